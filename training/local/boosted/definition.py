"""What a campaign in turns asks: signed before an answer, the same of all owners. Who answers in which turn follows
from an owner's number alone, and nobody is asked twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from accountant.canonical import JSON, exact_integer
from accountant.errors import InputError
from accountant.one_of_k import OneOfK
from accountant.privacy.events import Plan, Release
from training.local.boosted.basis import Stumps, stumps_from_json
from training.local.definition import PURPOSE
from training.local.question import Question

BOOSTED_LEARNERS = ("local-stump",)
MOST_ROUNDS = 256


@dataclass(frozen=True)
class BoostedDefinition(Question):
    """A campaign in turns. `rounds`: how many base learners at most; `seed`: public, 32 bytes in hex; `public_rows`:
    sha256 of the unlabelled rows that the basis came from, empty where it came from the schema alone.
    """

    TYPE: ClassVar[str] = "https://dpserve/campaign/rounds/v1"
    OWN: ClassVar[tuple[str, ...]] = ("seed", "public_rows", "rounds", "candidates", "favoured", "basis")

    basis: Stumps
    public_rows: str
    seed: str
    rounds: int
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        self.check_learner(BOOSTED_LEARNERS)
        super().__post_init__()
        if len(self.classes) != 2:
            raise InputError(f"classes={list(self.classes)}: {self.learner} tells two classes apart")
        if not re.fullmatch(r"[0-9a-f]{64}", self.seed) or not re.fullmatch(r"([0-9a-f]{64})?", self.public_rows):
            raise InputError("seed, public_rows: must be 64 hexadecimal digits each")
        if not 1 <= self.rounds <= MOST_ROUNDS or self.owners < self.rounds:
            raise InputError(f"rounds={self.rounds}: must be from 1 to {MOST_ROUNDS}, with an owner for each at least")
        self.basis.check(self.features)
        self.mechanism.event  # noqa: B018  # its parameters are checked as it is made

    @property
    def turns(self) -> int:
        """In how many turns owners answer."""
        return self.rounds

    def turn_of(self, owner: int) -> int:
        """From 1: the one turn in which this owner is asked."""
        return owner % self.rounds + 1

    def asked_in(self, turn: int) -> int:
        """How many owners are asked in a turn."""
        return len(range(turn - 1, self.owners, self.rounds))

    def least_in(self, turn: int) -> int:
        """Below so many reports of a turn it cannot end: its share of `least`, one at least."""
        return max(1, self.asked_in(turn) * self.least // self.owners)

    @property
    def mechanism(self) -> OneOfK:
        """What every owner draws by: its price and its law."""
        return OneOfK(self.epsilon, self.candidates, self.favoured)

    @property
    def plan(self) -> Plan:
        """What is charged: one report, for an owner answers once, whatever the turns are."""
        mechanism = self.mechanism
        return Plan.of([Release(PURPOSE, mechanism.name, mechanism.norm, 1, mechanism.event)])

    @property
    def own(self) -> dict[str, JSON]:
        """What the statement says beside what every campaign does."""
        return {**{name: getattr(self, name) for name in self.OWN}, "basis": self.basis.to_json()}

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """What the reservation, and so the certificate, says of it."""
        return {
            **super().parameters,
            "public_rows": self.public_rows or None,
            "rounds": self.rounds,
            "turns": self.turns,
            "dimension": self.basis.dimension,
            "candidates": self.candidates,
            "favoured": self.favoured,
        }

    @classmethod
    def of(cls, common: dict[str, Any], body: Mapping[str, Any]) -> BoostedDefinition:
        """From what every campaign says, and the fields of its own."""
        return cls(
            **common,
            seed=str(body["seed"]),
            public_rows=str(body["public_rows"]),
            rounds=exact_integer(body["rounds"], "rounds"),
            candidates=exact_integer(body["candidates"], "candidates"),
            favoured=exact_integer(body["favoured"], "favoured"),
            basis=stumps_from_json(body["basis"]),
        )
