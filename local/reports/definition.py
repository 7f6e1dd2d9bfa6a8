"""What a campaign asks of every owner, the same of all: signed by the issuer, its digest in the log before an answer.

Nothing in it can make a report cost more than its epsilon: the law of the report is `accountant.noise.one_of_k`'s,
whatever vectors and coordinates are. The rest decides what the report is good for.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from accountant.noise.one_of_k import OneOfK
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Plan, Release
from local.reports.coordinates import Coordinates, coordinates_from_json
from local.reports.corners import check_classes
from local.reports.question import INTEGER, JSON_OF, TEXT, Question, Spelled

PURPOSE = "one report of one owner"
LEARNERS = ("local-linear", "local-lr")
MAX_DIMENSION = 1 << 16  # of an owner's vector
MAX_REGRESSION = 1 << 10  # of an own regression, which solves for all of it at once
MAX_WORK = 1 << 22  # numbers in all of an owner's public vectors: a fraction of a second, whoever asks


class Reports(Question):
    """A campaign of random reports, whether all owners are asked at once or in turns. `seed`: public, 32 bytes in hex;
    `public_rows`: sha256 of the unlabelled rows that what is asked about came from.
    """

    seed: str
    public_rows: str
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.learner, self.classes)
        if not re.fullmatch(r"[0-9a-f]{64}", self.seed) or not re.fullmatch(r"([0-9a-f]{64})?", self.public_rows):
            raise InputError("seed, public_rows: must be 64 hexadecimal digits each")
        self.mechanism.event  # noqa: B018  # its parameters are checked as it is made
        if self.dimension > MAX_DIMENSION or self.dimension * self.candidates > MAX_WORK:
            raise InputError(
                f"candidates={self.candidates}: of {self.dimension} numbers each are too many to ask an owner "
                f"about; at most {MAX_DIMENSION} numbers, and {MAX_WORK} in all"
            )

    def check_affordable(self) -> None:
        """Raise InputError where an owner's regression has more numbers than a device solves for in a second."""
        if self.learner == "local-lr" and self.dimension > MAX_REGRESSION:
            raise InputError(
                f"learner=local-lr: a regression of {self.dimension} numbers; at most {MAX_REGRESSION}: name fewer "
                "features or classes, give public rows, or ask by local-linear"
            )

    @property
    def mechanism(self) -> OneOfK:
        """Return the mechanism by which every owner draws, except owners who weigh a voter: its price and its law."""
        return OneOfK(self.epsilon, self.candidates, self.favoured)

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Return how many numbers an owner's own vector has."""

    @property
    def row_numbers(self) -> int:
        """Return how many numbers one row becomes; a regression has the products of labels too."""
        return self.dimension * (self.wide if self.learner == "local-lr" else 1)

    @property
    def plan(self) -> Plan:
        """Return what is charged: one report, since an owner answers once, however many turns there are."""
        mechanism = self.mechanism
        return Plan.of([Release(PURPOSE, mechanism.name, mechanism.norm, 1, mechanism.event)])

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign."""
        parameters = {"public_rows": self.public_rows or None, "candidates": self.candidates, "favoured": self.favoured}
        return {**super().parameters, **parameters}


@dataclass(frozen=True)
class Definition(Reports):
    """All owners are asked at once, about public coordinates."""

    TYPE: ClassVar[str] = "https://dpserve/campaign/v1"
    OWN: ClassVar[Mapping[str, Spelled]] = {
        "seed": TEXT, "public_rows": TEXT, "candidates": INTEGER, "favoured": INTEGER, "coordinates": JSON_OF,
    }  # fmt: skip

    coordinates: Coordinates
    public_rows: str
    seed: str
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        self.check_learner(LEARNERS)
        super().__post_init__()
        if not self.public_rows:
            raise InputError("public_rows: must be 64 hexadecimal digits")

    @property
    def dimension(self) -> int:
        """Return how many numbers an owner's own vector has: a label for each coordinate, and one label by itself."""
        return (self.coordinates.size + 1) * self.wide

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign."""
        return {**super().parameters, "directions": self.coordinates.size}

    @classmethod
    def of(cls, common: dict[str, Any], body: Mapping[str, Any]) -> Self:
        """Make the definition, whose coordinates are about the features."""
        coordinates = coordinates_from_json(common["features"], body["coordinates"])
        return super().of(common, {**body, "coordinates": coordinates})
