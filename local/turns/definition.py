"""What a campaign in turns asks: signed before an answer, the same of all owners. Who answers in which turn follows
from an owner's number alone, and nobody is asked twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from accountant.noise.one_of_k import OneOfK
from dpserve_verify.errors import InputError
from local.reports.definition import Reports
from local.reports.question import INTEGER, JSON_OF, TEXT, Spelled
from local.turns.lines import Lines, lines_from_json
from local.turns.stumps import Stumps, stumps_from_json

OWN = {"local-ncc": "centroids", "local-lr": "regression"}  # of learners of lines
BOOSTED_LEARNERS = ("local-ncc", "local-stump", "local-lr")  # the last one by rounds; without, it asks all at once
MAX_ROUNDS = 256
SEATS = 8  # of a round of lines: seven owners learn, the eighth weighs
MAX_NUMBERS = 150_000  # of all lines together: what is published stays below what an owner reads


@dataclass(frozen=True)
class BoostedDefinition(Reports):
    """A campaign in turns. `rounds`: how many base learners at most; `seed`: public, 32 bytes in hex; `public_rows`:
    sha256 of the unlabelled rows that the basis came from, empty where it came from the schema alone.
    """

    TYPE: ClassVar[str] = "https://dpserve/campaign/rounds/v1"
    OWN: ClassVar[Mapping[str, Spelled]] = {
        "seed": TEXT, "public_rows": TEXT, "rounds": INTEGER, "candidates": INTEGER, "favoured": INTEGER,
        "basis": JSON_OF,
    }  # fmt: skip

    basis: Stumps | Lines
    public_rows: str
    seed: str
    rounds: int
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        self.check_learner(BOOSTED_LEARNERS)
        super().__post_init__()
        least = self.rounds * self.seats
        if not 1 <= self.rounds <= MAX_ROUNDS or self.owners < least:
            raise InputError(f"rounds={self.rounds}: must be from 1 to {MAX_ROUNDS}, and have {self.seats} owners each")
        self.basis.check(self.features)
        wanted = None if isinstance(self.basis, Stumps) else self.basis.own
        if OWN.get(self.learner) != wanted:
            raise InputError(f"basis: is not what {self.learner} asks about")
        sums = 1 if self.wide == 1 else len(self.classes)
        if wanted is not None and self.rounds * sums * sum(feature.bins for feature in self.features) > MAX_NUMBERS:
            raise InputError(f"rounds={self.rounds}: lines of so many codes are too many; at most {MAX_NUMBERS} in all")

    @property
    def turns(self) -> int:
        """Return in how many turns owners answer: one a round for stumps; for lines one to learn and one to weigh."""
        return self.rounds * self.steps

    @property
    def steps(self) -> int:
        """Return how many turns a round has."""
        return 1 if isinstance(self.basis, Stumps) else 2

    @property
    def seats(self) -> int:
        """Return how many seats a round has: of so many owners with consecutive numbers, each has one."""
        return 1 if self.steps == 1 else SEATS

    def weighs(self, turn: int) -> bool:
        """Return whether owners of a turn say how often the newest voter is right, and not what the next one is."""
        return self.steps == 2 and turn % 2 == 0

    def turns_of(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the one turn, from 1, in which each of these owners (n,) is asked."""
        place = owners % (self.rounds * self.seats)
        turns = place // self.seats * self.steps + 1 + (self.steps - 1) * (place % self.seats == SEATS - 1)
        return np.asarray(turns, np.int64)

    def turn_of(self, owner: int) -> int:
        """Return the one turn, from 1, in which this owner is asked."""
        return int(self.turns_of(np.array([owner]))[0])

    def asked_in(self, turn: int) -> int:
        """Return how many owners are asked in a turn."""
        return int(np.count_nonzero(self.turns_of(np.arange(self.owners)) == turn))

    def last_settled(self, turn: int) -> int:
        """Return the last turn, up to this one, after which every voter has been weighed; 0 where there is none."""
        return turn - turn % self.steps

    def least_in(self, turn: int) -> int:
        """Return how few reports of a turn can end it: its share of `least`, one at least."""
        return max(1, self.asked_in(turn) * self.least // self.owners)

    @property
    def dimension(self) -> int:
        """Return how many numbers an owner's own vector has."""
        return self.basis.dimension(self.wide)

    def mechanism_in(self, turn: int) -> OneOfK:
        """Return what an owner of a turn draws by. Its price is the same in every turn."""
        return OneOfK(self.epsilon, 2, 1) if self.weighs(turn) else self.mechanism

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign."""
        parameters = {"rounds": self.rounds, "turns": self.turns, "dimension": self.dimension}
        return {**super().parameters, **parameters}

    @classmethod
    def of(cls, common: dict[str, Any], body: Mapping[str, Any]) -> Self:
        """Make the definition, whose basis is about the features, or says itself what it is about."""
        by_lines = common["learner"] in OWN
        basis = lines_from_json(common["features"], body["basis"]) if by_lines else stumps_from_json(body["basis"])
        return super().of(common, {**body, "basis": basis})
