"""What a campaign asks of every owner, the same of all: signed by the issuer, its digest in the log before an answer.

Nothing in it can make a report cost more than its epsilon: the law of the report is `accountant.one_of_k`'s, whatever
vectors and coordinates are. The rest decides what the report is good for.
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
from training.local.coordinates import Coordinates, coordinates_from_json
from training.local.corners import check_classes
from training.local.question import Question

PURPOSE = "one report of one owner"
LEARNERS = ("local-linear", "local-lr")


@dataclass(frozen=True)
class Definition(Question):
    """A campaign of random reports. `seed`: public, 32 bytes in hex; `public_rows`: sha256 of the unlabelled rows that
    the coordinates came from.
    """

    TYPE: ClassVar[str] = "https://dpserve/campaign/v1"
    OWN: ClassVar[tuple[str, ...]] = ("seed", "public_rows", "candidates", "favoured", "coordinates")

    coordinates: Coordinates
    public_rows: str
    seed: str
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        self.check_learner(LEARNERS)
        super().__post_init__()
        check_classes(self.learner, self.classes)
        for name in ("seed", "public_rows"):
            if not re.fullmatch(r"[0-9a-f]{64}", getattr(self, name)):
                raise InputError(f"{name}: must be 64 hexadecimal digits")
        self.mechanism.event  # noqa: B018  # its parameters are checked as it is made

    @property
    def mechanism(self) -> OneOfK:
        """What every owner draws by: its price and its law."""
        return OneOfK(self.epsilon, self.candidates, self.favoured)

    @property
    def dimension(self) -> int:
        """Of an owner's own vector: a label for each coordinate, and one alone."""
        return (self.coordinates.size + 1) * self.wide

    @property
    def plan(self) -> Plan:
        """What is charged: one report, for an owner answers once."""
        mechanism = self.mechanism
        return Plan.of([Release(PURPOSE, mechanism.name, mechanism.norm, 1, mechanism.event)])

    @property
    def own(self) -> dict[str, JSON]:
        """What the statement says beside what every campaign does."""
        return {**{name: getattr(self, name) for name in self.OWN}, "coordinates": self.coordinates.to_json()}

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """What the reservation, and so the certificate, says of it."""
        return {
            **super().parameters,
            "public_rows": self.public_rows,
            "directions": self.coordinates.size,
            "candidates": self.candidates,
            "favoured": self.favoured,
        }

    @classmethod
    def of(cls, common: dict[str, Any], body: Mapping[str, Any]) -> Definition:
        """From what every campaign says, and the fields of its own."""
        return cls(
            **common,
            seed=str(body["seed"]),
            public_rows=str(body["public_rows"]),
            candidates=exact_integer(body["candidates"], "candidates"),
            favoured=exact_integer(body["favoured"], "favoured"),
            coordinates=coordinates_from_json(common["features"], body["coordinates"]),
        )
