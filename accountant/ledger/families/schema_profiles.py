"""The profiles that a schema was refined from, as its file and the dataset's entry name them: whoever certifies what
was learnt names them with their price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALL, TRAINING, HOLDOUT = "all", "training", "holdout"
PARTS = (ALL, TRAINING, HOLDOUT)
MAX_PROFILES = 64


@dataclass(frozen=True)
class SchemaProfile:
    """One profile of rows. `entry`: the index of its `profiled` entry; `part`: one of PARTS; `epsilon`, `delta`: of its
    claim, exact decimals as texts; `same_people`: whether the dataset whose schema this is shares a family with it.
    """

    entry: int
    dataset: str
    part: str
    epsilon: str
    delta: str
    same_people: bool = False

    def to_json(self) -> dict[str, Any]:
        """Spell it as a dataset's entry does."""
        return {
            "entry": self.entry,
            "dataset": self.dataset,
            "part": self.part,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "same_people": self.same_people,
        }


def profiles_from_entry(value: Mapping[str, Any]) -> tuple[SchemaProfile, ...]:
    """Read them from the entry of a dataset."""
    return tuple(SchemaProfile(**line) for line in value.get("refined", ()))
