"""What a campaign's definition comes to on made-up rows: said when it is opened, signed with it, and what owners and
institutions go by. Light: what simulates it is `local.forecast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string, exact_object, exact_text, parse_decimal
from dpserve_verify.privacy.budget import exact_decimal

DIGITS = Decimal("0.01")
GUESS = Decimal("0.5")
BAR = Decimal("0.55")
"""From here on a model is better than guessing: the bar that is put to models of central rows as well."""
WORDS = {"auroc": "AUROC", "explained": "worth"}


@dataclass(frozen=True)
class Forecast:
    """`mean` and `spread` over several runs, two digits. `metric`: "auroc", of more than two classes the mean of each
    against the others; of a number "explained": half of 1 and the root of the share of the variance that is explained,
    so that .5 is guessing, and 1 perfect, as well. `although_noise`: who opened the campaign said that it is to be,
    though it is no better than guessing.
    """

    METRICS: ClassVar[tuple[str, ...]] = ("auroc", "explained")

    metric: str
    mean: Decimal
    spread: Decimal
    although_noise: bool = False

    def __post_init__(self) -> None:
        if self.metric not in self.METRICS:
            raise InputError(f"forecast={self.metric!r:.80}: must be one of {', '.join(self.METRICS)}")
        for name, value in (("mean", self.mean), ("spread", self.spread)):
            if not 0 <= value <= 1 or value != value.quantize(DIGITS):
                raise InputError(f"forecast: {name}={value!s:.40}: must be from 0 to 1, of two digits")

    @property
    def worth(self) -> Decimal:
        """Return what most runs reach: the mean less the spread."""
        return self.mean - self.spread

    @property
    def is_better(self) -> bool:
        """Tell whether a model is to be expected that is better than guessing."""
        return self.worth >= BAR

    @property
    def says(self) -> str:
        """Return it in plain words."""
        figure = f"{WORDS[self.metric]} {self.mean} ± {self.spread} on made-up rows (0.5 is guessing, 1 perfect)"
        return f"{figure}: {'' if self.is_better else 'no '}better than guessing"

    def to_json(self) -> dict[str, str | bool]:
        """Return it as JSON. Inverse: `forecast_from_json`."""
        figures = {"mean": decimal_string(self.mean), "spread": decimal_string(self.spread)}
        return {"metric": self.metric, **figures, "although_noise": self.although_noise}

    def shown(self) -> dict[str, str | bool]:
        """Return it as JSON for people and programs, with what it comes to."""
        return {**self.to_json(), "better": self.is_better, "says": self.says}


def forecast_from_json(body: Any) -> Forecast:
    """Read what `Forecast.to_json` wrote. InputError for anything else."""
    fields: Mapping[str, Any] = exact_object(body, ("metric", "mean", "spread", "although_noise"), "forecast")
    mean, spread = (parse_decimal(exact_text(fields[name], name)) for name in ("mean", "spread"))
    if type(fields["although_noise"]) is not bool:
        raise InputError("although_noise: must be true or false")
    return Forecast(exact_text(fields["metric"], "metric"), mean, spread, fields["although_noise"])


def read_least_worth(text: str) -> Decimal:
    """Read a policy's `least_worth`. InputError unless it is a decimal from 0.5, guessing, to 1."""
    least = exact_decimal("least_worth", text)
    if not GUESS <= least <= 1:
        raise InputError(f"least_worth={text:.40}: must be from {GUESS}, which is guessing, to 1")
    return least
