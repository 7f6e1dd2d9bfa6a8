"""What an owner decides beforehand, in one file of the owner's own (owner.toml). What is not understood is refused.

url = "https://campaigns.example"    # where campaigns are
trust = "trust.json"                 # the pinned keys of who asks
rows = "rows.csv"                    # the owner's rows, with the answer
ledger = "owner.db"                  # what was sent, and what it cost
ca = "ca.pem"                        # of the server's certificate; the system's when left out
witnesses = "witnesses.policy"       # whose cosignatures the log must show (C2SP tlog-policy); nobody's when left out

[policy]
total_epsilon = "3"                  # of all reports together, for ever
largest_epsilon = "1"                # of one report
learners = ["local-linear"]
least_owners = 100                   # none that asks fewer
least_candidates = 2
most_rounds = 1                      # above 1 where owners may be asked in turns, each of them once
total_delta = "0"                    # above 0 where shares may be sent to two aggregators
largest_delta = "0"
aggregators = []                     # fingerprints of those you trust: one of the two must be among them

[ranges]                             # where a campaign must know a number's range as the owner does
age = [17, 90]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.budget import exact_decimal
from accountant.errors import BudgetRefused, InputError
from accountant.log.seen_checkpoints import SeenCheckpoints
from models.features import NumericFeature
from training.local.asking import seen_beside
from training.local.boosted.definition import BoostedDefinition
from training.local.question import Question
from training.local.questions import LEARNERS
from training.local.shared import SharedDefinition
from training.local.toml import only


@dataclass(frozen=True)
class Policy:
    """What an owner agrees to. `total`, `total_delta`: of all reports that were ever drawn; `largest`, `largest_delta`:
    of one. `aggregators`: fingerprints of those whom the owner believes to be honest. `most_rounds`: of a campaign that
    asks owners in turns; each of them answers once all the same.
    """

    total: Decimal
    largest: Decimal
    learners: tuple[str, ...] = LEARNERS
    least_owners: int = 1
    least_candidates: int = 2
    most_rounds: int = 1
    total_delta: Decimal = Decimal(0)
    largest_delta: Decimal = Decimal(0)
    aggregators: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def check(self, definition: Question) -> None:
        """InputError names the first thing that this owner does not agree to; BudgetRefused where it is epsilon."""
        if definition.epsilon > self.largest:
            raise BudgetRefused(f"epsilon={definition.epsilon}: your policy gives at most {self.largest} to one report")
        if definition.delta > self.largest_delta:
            raise BudgetRefused(
                f"delta={definition.delta}: your policy gives at most {self.largest_delta} to one report"
            )
        if definition.learner not in self.learners:
            raise InputError(f"learner={definition.learner}: your policy allows {', '.join(self.learners)}")
        if isinstance(definition, SharedDefinition):
            asked = {each.fingerprint for each in definition.aggregators}
            if not asked & set(self.aggregators):
                raise InputError("aggregators: your policy names neither of the two that the campaign has")
        if definition.owners < self.least_owners:
            raise InputError(f"owners={definition.owners}: your policy wants at least {self.least_owners}")
        if isinstance(definition, BoostedDefinition) and definition.rounds > self.most_rounds:
            raise InputError(f"rounds={definition.rounds}: your policy allows {self.most_rounds} (most_rounds)")
        candidates = getattr(definition, "candidates", None)  # shares have none
        if candidates is not None and candidates < self.least_candidates:
            raise InputError(f"candidates={candidates}: your policy wants at least {self.least_candidates}")
        for feature in definition.features:
            if isinstance(feature, NumericFeature) and feature.name in self.ranges:
                low, high = self.ranges[feature.name]
                if feature.edges[0] < low or feature.edges[-1] > high:
                    raise InputError(f"{feature.name}: the campaign's range is not within yours, {low} to {high}")


@dataclass(frozen=True)
class Settings:
    """owner.toml, with paths beside that file."""

    url: str
    trust: Path
    rows: Path
    ledger: Path
    ca: Path | None
    policy: Policy
    seen: SeenCheckpoints


def read_settings(path: Path) -> Settings:
    """InputError where the file is not there, or says something that is not understood."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as TOML ({type(error).__name__})") from None
    needed: dict[str, type] = {"url": str, "trust": str, "rows": str, "ledger": str, "policy": dict}
    top = only(found, needed, {"ca": str, "witnesses": str, "ranges": dict})
    policy = only(
        top["policy"],
        {"total_epsilon": str, "largest_epsilon": str},
        {
            "learners": list,
            "least_owners": int,
            "least_candidates": int,
            "most_rounds": int,
            "total_delta": str,
            "largest_delta": str,
            "aggregators": list,
        },
    )
    total, largest = (exact_decimal(name, policy.pop(name)) for name in ("total_epsilon", "largest_epsilon"))
    if not (total > 0 and largest > 0):
        raise InputError("policy: total_epsilon and largest_epsilon must be above 0")
    for name in ("total_delta", "largest_delta"):
        if name in policy:
            policy[name] = exact_decimal(name, policy[name])
    ranges = {}
    for name, ends in top.pop("ranges", {}).items():
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)):
            raise InputError(f"ranges: {name} must be [low, high]")
        ranges[name] = float(ends[0]), float(ends[1])
    more: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in policy.items()}
    paths = {name: path.parent / top[name] for name in ("trust", "rows", "ledger")}
    ca = path.parent / top["ca"] if "ca" in top else None
    if not top["url"].startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise InputError(f"url={top['url']:.80}: must be https, or this machine")
    seen = seen_beside(paths["ledger"], path.parent / top["witnesses"] if "witnesses" in top else None)
    own = Policy(total, largest, ranges=ranges, **more)
    return Settings(top["url"].rstrip("/"), ca=ca, policy=own, seen=seen, **paths)
