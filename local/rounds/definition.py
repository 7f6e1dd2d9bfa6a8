"""What a campaign of institutions asks: a learner's whole plan of sums, each of which is shared to two aggregators.

Light: an owner's program reads it too. What rehearses and plays it is `local.rounds.playing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

from accountant.ledger.families.records import HOLDOUT, Unit
from accountant.noise import shares
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import exact_text
from dpserve_verify.privacy.events import Plan, Release, plan_from_json
from local.reports.question import DECIMAL, INTEGER, TEXT, Spelled
from local.reports.shared import ALLOWED, BOTH, Aggregator, ForAggregators
from training.learners.job_words import CHOSEN

EVALUATION, PROFILE = "evaluation", "profile"  # in the place of a learner: counts that a statement is made of
ROUND_LEARNERS = ("ebm", "forest")
ROUND_ASKED = (*ROUND_LEARNERS, EVALUATION, PROFILE)
UNSAID = ("ensemble", "evaluates")  # settings that no reservation repeats
MOST_INSTITUTIONS = 1000
MOST_ROUNDS = 1 << 14
MOST_NUMBERS = 1 << 15  # of one sum: a quarter of a megabyte
MOST_PATIENCE = 86_400
PATIENCE = 60  # seconds
OF_UNIT = ("name", "column", "contributions")


def _json(read: Callable[[Any], Any], write: Callable[[Any], Any]) -> Spelled:
    """Spell a value by a text of JSON."""
    return Spelled(lambda text, name: read(json.loads(exact_text(text, name))), lambda value: json.dumps(write(value)))


@dataclass(frozen=True)
class RoundsDefinition(ForAggregators):
    """`owners`: how many institutions; `least`: in a sum of fewer nothing is learnt.

    Attributes:
        schema: the public schema, as its file says it: the same features and target as each institution's own.
        unit: of privacy, each institution's own: one record, or a person with so many contributions at most.
        settings: of the learner, as JSON; of an evaluation the model, of a profile its columns.
        plan: the releases, with the noise of one aggregator alone; `standard`: the unit that it was rehearsed at.
        chosen: why it is this learner, where a public rule chose it; else empty.
        numbers: of the sums of each purpose, filled up with zeros: so all shares of a round have one length.
        patience: seconds that a round waits for an institution that was in the one before.
        code: sha256 of what plays a plan: all play the same, or what they ask would not add up.
    """

    TYPE: ClassVar[str] = "https://dpserve/campaign/institutions/v1"
    OWN: ClassVar[Mapping[str, Spelled]] = {
        "delta": ALLOWED,
        "schema": TEXT,
        "unit": _json(lambda unit: Unit(**unit), lambda unit: {name: getattr(unit, name) for name in OF_UNIT}),
        "chosen": TEXT,
        "settings": TEXT,
        "releases": _json(plan_from_json, Plan.to_json),
        "standard": DECIMAL,
        "numbers": _json(lambda pairs: tuple((str(of), int(count)) for of, count in pairs), list),
        "patience": INTEGER,
        "code": TEXT,
        "aggregators": BOTH,
    }

    allowed: Decimal
    schema: str
    unit: Unit
    chosen: str
    settings: str
    releases: Plan
    standard: Decimal
    numbers: tuple[tuple[str, int], ...]
    patience: int
    code: str
    aggregators: tuple[Aggregator, ...]

    def __post_init__(self) -> None:
        self.check_learner(ROUND_ASKED)
        super().__post_init__()
        if self.owners > MOST_INSTITUTIONS:
            raise InputError(f"owners={self.owners}: at most {MOST_INSTITUTIONS} institutions")
        if self.unit.remote:
            raise InputError("unit: must be a record, or a person whom a column names")
        purposes = {release.purpose for release, _ in self.plan.runs}
        if [*self._widths] != sorted(purposes):
            raise InputError("numbers: must say of each purpose of the plan, in order, how many numbers its sums have")
        in_range = 1 <= len(self.plan) <= MOST_ROUNDS and 1 <= min(self._widths.values()) <= self.widest <= MOST_NUMBERS
        if not in_range or not 1 <= self.patience <= MOST_PATIENCE or not self.standard > 0:
            raise InputError(
                f"plan, numbers, patience: must be 1 to {MOST_ROUNDS} sums, of 1 to {MOST_NUMBERS} numbers, waited for "
                f"1 to {MOST_PATIENCE} seconds"
            )
        self.check_sums()

    @property
    def plan(self) -> Plan:
        """Return what is charged: all sums, with the noise of one aggregator alone."""
        return self.releases

    @cached_property
    def given(self) -> dict[str, Any]:
        """Return the parameters of the learner; of an evaluation also the model, and which rows are counted."""
        try:
            settings = json.loads(self.settings)
        except (ValueError, RecursionError):
            settings = None
        if not isinstance(settings, dict):
            raise InputError("settings: must be an object of JSON")
        return settings

    @property
    def is_counting(self) -> bool:
        """Return whether rows are counted for a statement, and no model is learnt."""
        return self.learner in (EVALUATION, PROFILE)

    @property
    def part(self) -> str | None:
        """Return HOLDOUT where the rows that institutions keep aside are asked; None: those that learners read."""
        return HOLDOUT if self.given.get("part") == HOLDOUT and self.learner == EVALUATION else None

    @cached_property
    def rounds(self) -> tuple[Release, ...]:
        """Return the release of each round."""
        return tuple(release for release, count in self.releases.runs for _ in range(count))

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign and of its learner."""
        learner = {key: value for key, value in self.given.items() if key not in UNSAID}
        chosen = {CHOSEN: self.chosen} if self.chosen else {}
        return {**learner, **chosen, **super().parameters, "numbers": self.widest, **self.fingerprints}

    @cached_property
    def _widths(self) -> dict[str, int]:
        return dict(self.numbers)

    @property
    def widest(self) -> int:
        """Return how many numbers the widest sum has."""
        return max(self._widths.values())

    def numbers_of(self, turn: int) -> int:
        """Return how many numbers the sum of a round has."""
        return self._widths[self.rounds[turn].purpose]

    def share_bytes(self, turn: int) -> int:
        """Return how many bytes one sealed share of a round has."""
        return 8 * self.numbers_of(turn) + shares.OVERHEAD

    @property
    def row_numbers(self) -> int:
        """Return how many numbers one row becomes, at most."""
        return self.widest

    def about(self, turn: int, owner: int, aggregator: int) -> bytes:
        """Return what a sealed share is bound to: it opens for this campaign, round, institution and aggregator, and no
        other.
        """
        return f"dpserve round {self.digest} {turn} {owner} {aggregator}".encode()
