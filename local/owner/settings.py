"""What an owner decides beforehand, in one file of the owner's own (owner.toml). What is not understood is refused.

url = "https://campaigns.example"    # where campaigns are
trust = "trust.json"                 # the pinned keys of who asks
rows = "rows.csv"                    # the owner's rows, with the answer
ledger = "owner.db"                  # what was sent, and what it cost
ca = "ca.pem"                        # of the server's certificate; the system's when left out
witnesses = "witnesses.policy"       # whose cosignatures the log must show (C2SP tlog-policy); nobody's when left out
pace_seconds = 1                     # an answer is sent whole multiples of this after it was asked for

[question]                           # what may be asked about your rows; nothing else is answered
target = "income"                    # the column that holds the answer
classes = ["low", "high"]            # its words, all of them; or range = [0, 1000] where it is a number
features = ["age", "job"]            # no other column

[policy]
total_epsilon = "3"                  # of all reports together, permanently
largest_epsilon = "1"                # of one report
learners = ["local-linear"]
least_owners = 100                   # none that asks fewer
least_candidates = 2
most_rounds = 1                      # above 1 where owners may be asked in turns, each of them once
total_delta = "0"                    # above 0 where shares may be sent to two aggregators
largest_delta = "0"
aggregators = []                     # fingerprints of those you trust: one of the two must be among them
least_worth = "0.6"                  # of a campaign's forecast: 0.5 is guessing, 1 perfect; any when left out

[ranges]                             # where a campaign must know a number's range as the owner does
age = [17, 90]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.system.lazy_import import later
from dpserve_verify.errors import BudgetRefused, InputError
from local.campaign.asking import Place
from local.campaign.questions import LEARNERS
from local.campaign.settings_files import Kind, check_settings, read_place, read_policy, read_toml
from local.reports.question import Question
from local.reports.shared import SharedDefinition
from local.turns.definition import BoostedDefinition
from models.features.features import NumericFeature

if TYPE_CHECKING:
    from local.forecast import simulating
else:
    simulating = later("local.forecast.simulating")  # loads learners, where a policy asks what a campaign is worth

PACE = 1.0
SLOWEST = 3600.0


@dataclass(frozen=True)
class Pinned:
    """What may be asked about an owner's rows, fixed beforehand and by the owner: one target, its words (or the range
    of its numbers), and the columns that may stand beside it.
    """

    target: str
    classes: tuple[str, ...]
    features: tuple[str, ...]
    range: tuple[float, float] | None = None

    def check(self, definition: Question) -> None:
        """Raise InputError where a campaign asks for anything else. It looks at the definition alone."""
        if definition.target != self.target:
            raise InputError(f"target={definition.target!r:.80}: you answer about {self.target!r} alone")
        if set(definition.classes) != set(self.classes):
            raise InputError(f"classes={list(definition.classes)!s:.200}: you answer with {list(self.classes)} alone")
        ends = getattr(definition, "bounded", None)
        if ends is not None and (self.range is None or not self.range[0] <= ends[0] < ends[1] <= self.range[1]):
            raise InputError(f"range={list(ends)}: is not within yours, {self.range}")
        more_features = [feature.name for feature in definition.features if feature.name not in self.features]
        if more_features:
            raise InputError(f"features={more_features!s:.200}: you answer about {list(self.features)} alone")


@dataclass(frozen=True)
class Policy:
    """What an owner agrees to. `total_epsilon`, `total_delta`: of all reports that were ever drawn; `largest_epsilon`,
    `largest_delta`: of one. `aggregators`: fingerprints of those whom the owner believes to be honest. `most_rounds`:
    of a campaign that asks owners in turns; each of them answers once all the same. `question`: what may be asked;
    None: nothing. `least_worth`: of the forecast that a campaign is signed with; None: whatever it is.
    """

    total_epsilon: Decimal
    largest_epsilon: Decimal
    learners: tuple[str, ...] = LEARNERS
    least_owners: int = 1
    least_candidates: int = 2
    most_rounds: int = 1
    total_delta: Decimal = Decimal(0)
    largest_delta: Decimal = Decimal(0)
    aggregators: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    question: Pinned | None = None
    least_worth: Decimal | None = None

    def check(self, definition: Question) -> None:
        """Raise InputError for the first thing that this owner does not agree to, BudgetRefused where it is epsilon. It
        is decided by the campaign's definition and the owner's settings, never by rows.
        """
        if self.question is None:
            raise InputError(
                "question: your owner.toml does not say what you may be asked; add [question] with target, classes (or "
                "range) and features, or let `dpserve owner init` write a new file"
            )
        self.question.check(definition)
        definition.check_affordable()
        for name in ("epsilon", "delta"):
            price, most = getattr(definition, name), getattr(self, f"largest_{name}")
            if price > most:
                raise BudgetRefused(f"{name}={price}: your policy gives at most {most} to one report")
        if definition.learner not in self.learners:
            raise InputError(f"learner={definition.learner}: your policy allows {', '.join(self.learners)}")
        if isinstance(definition, SharedDefinition):
            fingerprints = {aggregator.fingerprint for aggregator in definition.aggregators}
            if not fingerprints & set(self.aggregators):
                raise InputError("aggregators: your policy names neither of the two that the campaign has")
        if definition.owners < self.least_owners:
            raise InputError(f"owners={definition.owners}: your policy wants at least {self.least_owners}")
        if isinstance(definition, BoostedDefinition) and definition.rounds > self.most_rounds:
            raise InputError(f"rounds={definition.rounds}: your policy allows {self.most_rounds} (most_rounds)")
        candidates = getattr(definition, "candidates", None)  # shares have none
        if candidates is not None and candidates < self.least_candidates:
            raise InputError(f"candidates={candidates}: your policy wants at least {self.least_candidates}")
        for feature in definition.features:
            if isinstance(feature, NumericFeature) and feature.edges and feature.name in self.ranges:
                low, high = self.ranges[feature.name]
                if feature.edges[0] < low or feature.edges[-1] > high:
                    raise InputError(f"{feature.name}: the campaign's range is not within yours, {low} to {high}")
        if self.least_worth is not None:
            simulating.require_worth(definition, self.least_worth)


@dataclass(frozen=True)
class Settings(Place):
    """owner.toml, with paths beside that file."""

    rows: Path
    ledger: Path
    policy: Policy
    pace: float = PACE


def read_settings(path: Path) -> Settings:
    """Read owner.toml. InputError where the file is not there, or says something that is not understood."""
    needed: dict[str, Kind] = {"rows": str, "ledger": str}
    optional: dict[str, Kind] = {"ranges": dict, "question": dict, "pace_seconds": (int, float)}
    top = read_toml(path, needed, optional)
    ranges = {name: _ends(name, ends) for name, ends in top.get("ranges", {}).items()}
    pins = pinned_from_toml(top["question"]) if "question" in top else None
    policy = read_policy(Policy, top["policy"], ranges=ranges, question=pins)
    if not (policy.total_epsilon > 0 and policy.largest_epsilon > 0):
        raise InputError("policy: total_epsilon and largest_epsilon must be above 0")
    pace = float(top.get("pace_seconds", PACE))
    if not 0 < pace <= SLOWEST:
        raise InputError(f"pace_seconds={pace}: must be above 0 and at most {SLOWEST:.0f}")
    ledger = path.parent / top["ledger"]
    place = read_place(path, top, ledger)
    return Settings(**place, rows=path.parent / top["rows"], ledger=ledger, policy=policy, pace=pace)


def pinned_from_toml(raw: dict[str, Any]) -> Pinned:
    """Read a [question] of owner.toml; InputError where it leaves something open."""
    about = check_settings(raw, {"target": str, "features": list}, {"classes": list, "range": list})
    if ("classes" in about) == ("range" in about):
        raise InputError("question: must have classes, the words of the target, or range, the ends of its numbers")
    classes, features = about.get("classes", []), about["features"]
    for name, texts in (("classes", classes), ("features", features)):
        if not all(type(text) is str and text for text in texts) or len(set(texts)) != len(texts):
            raise InputError(f"question: {name} must be different texts, none of them empty")
    if not features or ("classes" in about and len(classes) < 2) or not about["target"]:
        raise InputError("question: must name the target, two classes or more, and at least one feature")
    if about["target"] in features:
        raise InputError(f"question: {about['target']!r} is the target, and cannot be a feature")
    ends = _ends("range", about["range"]) if "range" in about else None
    return Pinned(about["target"], tuple(classes), tuple(features), ends)


def _ends(name: str, ends: Any) -> tuple[float, float]:
    """Read the ends of a range. InputError unless they are the finite lower and higher end of a range."""
    numbers = isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
    if not numbers or not all(map(isfinite, ends)) or not ends[0] < ends[1]:
        raise InputError(f"{name}: must be [low, high], two numbers of which the first is the smaller")
    return float(ends[0]), float(ends[1])
