"""What every campaign asks: signed by the issuer, its digest in the log before an answer, the same of all owners."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Self

from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import JSON, exact_integer, exact_text, parse_decimal
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.privacy.events import Plan
from local.reports.forecast import Forecast, forecast_from_json
from models.features.features import Feature, feature_from_json

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
LIMIT = 1 << 19
MAX_OWNERS = 10**7
_TEXTS = ("campaign", "population", "model", "learner", "epsilon", "target", "features")
_COUNTS = ("owners", "least")
FORECAST = "forecast"  # of the statement too, but for what an older version has opened
COMMON = (*_TEXTS, *_COUNTS, "classes")


@dataclass(frozen=True)
class Spelled:
    """How a field stands in the statement. `read`: its value from what stands there under a name; `write`: the other
    way; `field`: its name in the definition, where that is another.
    """

    read: Callable[[Any, str], Any]
    write: Callable[[Any], JSON] = lambda value: value
    field: str = ""


TEXT, INTEGER = Spelled(exact_text), Spelled(exact_integer)
JSON_OF = Spelled(lambda value, _: value, lambda value: value.to_json())  # the value is read before
DECIMAL = Spelled(lambda value, _: parse_decimal(value), canonical.decimal_string)


@dataclass(frozen=True)
class Question(ABC):
    """A campaign. `owners`: how many may answer, numbered from 0; `least`: below so many reports nothing is learnt;
    `epsilon`: what an answer costs its owner; `forecast`: what all that is said here comes to on made-up rows, None of
    what an older version has opened.
    """

    TYPE: ClassVar[str]
    OWN: ClassVar[Mapping[str, Spelled]]  # fields of the statement beside COMMON

    campaign: str
    population: str
    model: str
    learner: str
    epsilon: Decimal
    owners: int
    least: int
    target: str
    classes: tuple[str, ...]
    features: tuple[Feature, ...]
    forecast: Forecast | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_name("campaign", self.campaign)
        check_name("model", self.model)
        if not 1 <= self.least <= self.owners <= MAX_OWNERS:
            raise InputError(f"least={self.least}: must be from 1 to the {self.owners} owners, at most {MAX_OWNERS}")
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"classes={list(self.classes)!s:.200}: must be different")
        names = [feature.name for feature in self.features]
        if not names or len({*names, self.target}) != len(names) + 1:
            raise InputError("features, target: must be different columns, at least one feature")

    def check_affordable(self) -> None:  # noqa: B027  # where a kind says nothing, it is
        """Raise InputError where answering would take an owner too long. Asked of what is opened and what is accepted,
        and not of what an older version has opened.
        """

    def check_learner(self, learners: tuple[str, ...]) -> None:
        """Raise InputError where the learner is none of `learners`."""
        if self.learner not in learners:
            raise InputError(f"learner={self.learner!r:.60}: must be one of {', '.join(learners)}")

    @property
    def wide(self) -> int:
        """Return how many numbers one label has: one less than there are classes; 1 where the target is a number."""
        return max(1, len(self.classes) - 1)

    @property
    @abstractmethod
    def row_numbers(self) -> int:
        """Return how many numbers one row becomes, at most, on its owner's machine."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Return what is charged for every owner."""

    @property
    def delta(self) -> Decimal:
        """Return the delta that an answer costs besides epsilon; 0 unless a trust model says otherwise."""
        return Decimal(0)

    @property
    def own(self) -> Mapping[str, JSON]:
        """Return the fields that OWN names, for the statement."""
        return {name: how.write(getattr(self, how.field or name)) for name, how in self.OWN.items()}

    @classmethod
    def of(cls, common: dict[str, Any], body: Mapping[str, Any]) -> Self:
        """Make the definition from what every campaign says and the fields of its own."""
        return cls(**common, **{how.field or name: how.read(body[name], name) for name, how in cls.OWN.items()})

    @cached_property
    def payload(self) -> bytes:
        """Return the statement that is signed, as canonical JSON."""
        body: dict[str, Any] = {name: getattr(self, name) for name in COMMON}
        body |= {
            "epsilon": canonical.decimal_string(self.epsilon),
            "features": json.dumps([feature.to_json() for feature in self.features]),
            "classes": list(self.classes),
            **self.own,
            **({} if self.forecast is None else {FORECAST: dict(self.forecast.to_json())}),
        }
        digest = hashlib.sha256(canonical.encode(body, LIMIT)).hexdigest()
        subject = [{"name": self.campaign, "digest": {"sha256": digest}}]
        head: dict[str, Any] = {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": self.TYPE}
        return canonical.encode({**head, "predicate": body}, LIMIT)

    @property
    def digest(self) -> str:
        """Return the sha256 of `payload` in hex, which the ledger's entries and the certificate name."""
        return hashlib.sha256(self.payload).hexdigest()

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign."""
        return {
            "campaign": self.campaign,
            "definition": self.digest,
            "owners": self.owners,
            "least": self.least,
        }


def common_from_json(body: Mapping[str, JSON]) -> dict[str, Any]:
    """Read the fields that every campaign has from a statement's predicate; InputError and its like where one is
    wrong.
    """
    texts: dict[str, Any] = {name: exact_text(body[name], name) for name in _TEXTS}
    counts: dict[str, Any] = {name: exact_integer(body[name], name) for name in _COUNTS}
    classes = body["classes"]
    if not isinstance(classes, list):
        raise InputError("classes: must be a list")
    return {
        **texts,
        **counts,
        "features": tuple(feature_from_json(feature) for feature in json.loads(texts["features"])),
        "epsilon": parse_decimal(texts["epsilon"]),
        "classes": tuple(exact_text(label, "class") for label in classes),
        "forecast": forecast_from_json(body[FORECAST]) if FORECAST in body else None,
    }
