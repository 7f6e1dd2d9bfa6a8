"""What can be expected of a model before anything is spent, from public facts alone: what learners by their defaults
reached in the utility study on held-out rows. It costs no fit and reads no row: other data may be harder or easier. Of
a rare class less is learnt: where its share is declared, twice its rows count, and no others. How the constants were
found, and how often they were right about datasets left out: studies/defaults/forecast.md,
which `python -m studies.defaults.forecast` makes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from training.learners.boosting.defaults import strength
from training.session.session import Public

FROM = (0.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""Where the bands of strength begin; a class of several counts as one model of that many."""
GUESS = 0.55
"""What is no better than guessing: an AUROC below, of the mean over splits."""
LEAST: dict[str, float] = {
    "lazybb": 97.0,
    "lazybb-tree": 97.0,
    "ebm": 84.0,
}
"""By learner: the strength from which models were better than that."""
REACHED: dict[str, tuple[tuple[float, float, float], ...]] = {
    "lazybb": (
        (0.451, 0.635, 0.911),
        (0.646, 0.77, 0.987),
        (0.716, 0.848, 0.981),
        (0.736, 0.889, 0.991),
        (0.753, 0.899, 0.998),
        (0.762, 0.91, 0.999),
    ),
    "lazybb-tree": (
        (0.372, 0.523, 0.915),
        (0.584, 0.812, 0.986),
        (0.725, 0.871, 0.988),
        (0.73, 0.923, 0.99),
        (0.748, 0.953, 1.0),
        (0.755, 0.911, 1.0),
    ),
    "ebm": (
        (0.504, 0.623, 0.91),
        (0.619, 0.7, 0.987),
        (0.737, 0.878, 0.985),
        (0.714, 0.887, 0.99),
        (0.753, 0.941, 0.996),
        (0.761, 0.91, 1.0),
    ),
}
"""By learner and band: the AUROC that a twentieth of the cells stayed below, half of them, and all but a twentieth."""


@dataclass(frozen=True)
class Expected:
    """`auroc`: of datasets that were left out, about eight of ten lay between the outer two; `better`: whether a model
    is told to be better than guessing, and from which `least` epsilon on it would be.
    """

    auroc: tuple[float, float, float]
    better: bool
    least: float

    @property
    def says(self) -> str:
        """Describe the expectation in plain words."""
        low, _, high = self.auroc
        if not self.better:
            return (
                f"no better than guessing: too few records for this epsilon. By what was reached on other datasets "
                f"about epsilon {self.least:g} is the least"
            )
        return f"AUROC {low:.2f} to {high:.2f}, as on most other tables of this size"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        low, middle, high = self.auroc
        figures = {"low": low, "middle": middle, "high": high}
        return {"auroc": figures, "better": self.better, "least_epsilon": self.least, "says": self.says}


def power(records: float, epsilon: float, classes: int) -> float:
    """Return the signal to noise, as `strength` has it, of each of the models that classes are told apart by."""
    return records * epsilon / (1 if classes == 2 else classes)


def telling_share(public: Public) -> float:
    """Return the share of rows that tells two classes apart: 1, or twice the rarer class's declared share."""
    return 2 * min(public.prevalence) if len(public.prevalence) == 2 else 1.0


def expected(public: Public, learner: str) -> Expected | None:
    """Return what to expect; None where the study does not tell: of a number, of learners that are not in it, and at
    delta 0.
    """
    if public.classes is None or learner not in LEAST or public.budget.delta == 0:
        return None
    signal = power(strength(public), 1.0, len(public.classes)) * telling_share(public)
    least = LEAST[learner] / max(signal / float(public.budget.epsilon), 1e-9)
    band = REACHED[learner][bisect_right(FROM, signal) - 1]
    return Expected(band, signal >= LEAST[learner], float(f"{least:.2g}"))
