"""The kinds of jobs: what a `reserved` entry says of each, what it may ask, and which entry ends it.

A new kind is one class here and its line in KINDS. The auditor reads kinds by itself
(dpserve_verify.entries.job_kinds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import check_name


@dataclass(frozen=True)
class JobKind:
    """What a job is for. Its fields are the keys of a `reserved` entry that only jobs of its kind have.

    Attributes:
        word: what traces call such a job.
        does: what such a job does, in words that follow its number.
        ends: the type of the entry that binds what came of it.
        binds: which of `model` (its digest), `name` and `dataset` a signed statement's entry says.
        names_model: whether it is about a model; else it names none, no target, and promotes nothing.
        makes_model: whether it makes a model, whose name is then bound.
        is_pure: whether its noise needs no delta, whatever delta was asked for.
        extension: which extension brings its steps; empty: they are of the core.
    """

    word: ClassVar[str]
    does: ClassVar[str]
    ends: ClassVar[str]
    binds: ClassVar[tuple[str, ...]] = ()
    names_model: ClassVar[bool] = True
    makes_model: ClassVar[bool] = False
    is_pure: ClassVar[bool] = False
    extension: ClassVar[str] = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what an entry, or a job's JSON, of this kind says."""
        return cls(**{field.name: value[field.name] for field in fields(cls) if field.name in value})

    def to_json(self) -> dict[str, Any]:
        """Return the keys that only this kind has."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def models(self) -> tuple[int, ...]:
        """Return the models that it measures, the one that it is named after first: entries that certify them, or the
        reservation of the job that is going to make one.
        """
        return ()

    def check(self, model: str, target: str | None, promotes: bool) -> None:
        """Raise InputError where a request of this kind may not name this model or target, or not promote."""
        if self.names_model:
            check_name("model", model)
        elif (model, target, promotes) != ("", None, False):
            raise InputError(f"{self.word}: is of a dataset, and of no model or target")


@dataclass(frozen=True)
class Training(JobKind):
    """It makes a model."""

    word, does, ends = "train", "makes a model", "issued"
    makes_model = True


@dataclass(frozen=True)
class Evaluation(JobKind):
    """It measures what a certified model is worth.

    Attributes:
        evaluates: the entry that certifies the model, or the reservation, just before, of the job that will make it.
        against: the entry that certifies the model that it is compared with, where it is.
    """

    evaluates: int
    against: int | None = None

    word, does, ends = "evaluate", "evaluates a model", "evaluated"
    binds = ("model", "name")
    is_pure = True

    @property
    def models(self) -> tuple[int, ...]:
        """Return the model, and the one that it is compared with."""
        return (self.evaluates,) if self.against is None else (self.evaluates, self.against)

    def check(self, model: str, target: str | None, promotes: bool) -> None:
        """Raise InputError also where a model is compared with itself."""
        super().check(model, target, promotes)
        if self.against == self.evaluates:
            raise InputError(f"against={self.against}: is the model itself")


@dataclass(frozen=True)
class Profile(JobKind):
    """It counts how the rows of a dataset are spread."""

    profile: Literal[True] = True

    word, does, ends = "profile", "profiles a dataset", "profiled"
    binds = ("dataset",)
    names_model = False


@dataclass(frozen=True)
class Contribution(JobKind):
    """It pays for what the rows of a dataset add to the sums of a campaign elsewhere. No statement ends it: it is
    burned as soon as it has started, and its price stays.

    Attributes:
        contributes: sha256 of the campaign's definition.
    """

    contributes: str

    word, does, ends = "contribute", "adds to the sums of a campaign elsewhere", "burned"
    extension = "parties"
    names_model = False


TRAINING = Training()
KINDS: dict[str, type[JobKind]] = {  # by the key that tells the kind
    "evaluates": Evaluation,
    "profile": Profile,
    "contributes": Contribution,
}
ENDS = (Training.ends, *(kind.ends for kind in KINDS.values() if kind is not Contribution))  # by a signed statement


def kind_of(value: Mapping[str, Any]) -> JobKind:
    """Read the kind of a job from its `reserved` entry, or from its JSON; one that no key tells trains."""
    return next((kind.from_json(value) for key, kind in KINDS.items() if key in value), TRAINING)
