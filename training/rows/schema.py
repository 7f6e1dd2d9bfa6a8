"""The public schema: what everybody may know about a dataset before any row is read. YAML, strict, never completed
from rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import expm1, log1p
from typing import Annotated, Any, Literal, NoReturn

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from accountant.errors import InputError, ModelInvalid, SchemaError
from models.answers import ClassLabel
from models.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from training.rows.schema_text import FILL_IN, Loader, blanks

MAX_BYTES = 1 << 20
MAX_BINS = 60_000
MAX_FEATURES = 16_384  # as many inputs as an exported model may have: known before any budget is spent
MAX_LABEL = 200  # characters of a class, for a certificate names them all
MAX_TARGETS = 64
LOG_SHARE = 4
MAX_GROUPS, MAX_GROUP_BINS = 16, 64
PUBLIC_ONLY = "it is public knowledge that a person must write down; dpserve never reads it from rows"


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is neither true nor false (YAML reads yes, no, on, off as these)")
    return value


Finite = Annotated[float, BeforeValidator(_no_truth), Field(allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Numeric(_Strict):
    """`range` with `bins` uniform cut points from its low end on (and, for `scale: log`, a quarter as many
    log-spaced), or `edges`.
    """

    type: Literal["numeric"]
    range: tuple[Finite, Finite] | None = None
    bins: Annotated[StrictInt, Field(ge=2, le=4096)] = 32
    scale: Literal["linear", "log"] = "linear"
    edges: tuple[Finite, ...] | None = None

    @model_validator(mode="after")
    def _complete(self) -> _Numeric:
        if (self.range is None) == (self.edges is None):
            raise ValueError(f"needs either `range: [low, high]` or `edges: [...]`: {PUBLIC_ONLY}")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range={list(self.range)}: low must be below high")
        if self.edges is not None and (not self.edges or any(a >= b for a, b in pairwise(self.edges))):
            raise ValueError("edges: at least one, ascending, without repeats")
        return self

    def feature(self, name: str) -> NumericFeature:
        if self.edges is not None:
            return NumericFeature(name, self.edges)
        assert self.range is not None
        low, high = self.range
        cuts = {low + (high - low) * j / self.bins for j in range(self.bins)}
        if self.scale == "log":
            steps = max(2, self.bins // LOG_SHARE)
            cuts |= {low + expm1(log1p(high - low) * j / steps) for j in range(steps)}
        return NumericFeature(name, tuple(sorted(cuts)))


class _Categorical(_Strict):
    """`values`: the categories that are publicly known. Anything else is `other`."""

    type: Literal["categorical"]
    values: Annotated[tuple[StrictStr | StrictInt, ...], Field(min_length=1, max_length=MAX_BINS)]

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: tuple[StrictStr | StrictInt, ...]) -> tuple[StrictStr | StrictInt, ...]:
        texts = [str(value) for value in values]
        if len(set(texts)) != len(texts):
            raise ValueError(f"values: {sorted({text for text in texts if texts.count(text) > 1})} stand there twice")
        return values

    def feature(self, name: str) -> CategoricalFeature:
        return CategoricalFeature(name, tuple(str(value) for value in self.values))


class _Boolean(_Strict):
    type: Literal["boolean"]

    def feature(self, name: str) -> BooleanFeature:
        return BooleanFeature(name)


_Kind = Annotated[_Numeric | _Categorical | _Boolean, Field(discriminator="type")]


_Group = Annotated[_Kind | None, BeforeValidator(lambda value: value or None)]  # none: the feature's own bins


class _Answers(_Strict):
    """What one asks of a row: `classes` in their public order (the last one is the positive class), or a public `range`
    for regression. `missing`: whether rows without an answer refuse the file, or are left out of this target's jobs.
    """

    classes: Annotated[tuple[StrictStr | StrictInt, ...], Field(min_length=2, max_length=255)] | None = None
    range: tuple[Finite, Finite] | None = None
    missing: Literal["refuse", "leave-out"] = "refuse"

    @model_validator(mode="after")
    def _complete(self) -> _Answers:
        if (self.classes is None) == (self.range is None):
            raise ValueError(f"needs `classes: [...]`, or `range: [low, high]` for regression: {PUBLIC_ONLY}")
        if self.classes is not None and len({str(label) for label in self.classes}) != len(self.classes):
            raise ValueError("classes: each must stand there once")
        if any(len(str(label)) > MAX_LABEL for label in self.classes or ()):
            raise ValueError(f"classes: each must have at most {MAX_LABEL} characters")
        if self.range is not None and not self.range[0] / 2 < self.range[1] / 2:  # as it is centred and halved later
            raise ValueError(f"range={list(self.range)}: low must be below high")
        return self

    def target(self, name: str, also_feature: bool = False) -> Target:
        return Target(name, self.classes, self.range, self.missing == "leave-out", also_feature)


class _Target(_Answers):
    name: StrictStr


class _Question(_Answers):
    """One of several targets. `also_feature`: it stands under `features` as well, for the models of the others."""

    also_feature: StrictBool = False


class _File(_Strict):
    target: _Target | None = None
    targets: Annotated[dict[StrictStr, _Question], Field(min_length=1, max_length=MAX_TARGETS)] | None = None
    records: Annotated[StrictInt, Field(ge=1, le=10**12)]
    features: Annotated[dict[str, _Kind], Field(min_length=1, max_length=MAX_FEATURES)]
    groups: Annotated[dict[str, _Group], Field(max_length=MAX_GROUPS)] = {}
    ignore: tuple[StrictStr, ...] = ()
    missing: Literal["own-bin"] = "own-bin"

    @model_validator(mode="after")
    def _asks(self) -> _File:
        if (self.target is None) == (self.targets is None):
            raise ValueError(
                "needs either `target: {name: ..., classes: [...]}`, or, for several questions about the same rows, "
                f"`targets: {{NAME: {{classes: [...]}}, NAME: {{range: [...]}}}}`: {PUBLIC_ONLY}"
            )
        return self

    def questions(self) -> tuple[Target, ...]:
        if self.target is not None:
            return (self.target.target(self.target.name),)
        return tuple(each.target(name, each.also_feature) for name, each in (self.targets or {}).items())


@dataclass(frozen=True)
class Target:
    """A column to predict: one of `classes`, or (None) a number in the public `range`. `leave_out`: rows without an
    answer are left out of its jobs; else there are none. `also_feature`: the models of other targets read it.
    """

    name: str
    classes: tuple[ClassLabel, ...] | None
    range: tuple[float, float] | None
    leave_out: bool = False
    also_feature: bool = False


@dataclass(frozen=True)
class Schema:
    """A checked schema. `digest`: sha256 of the file's bytes, so that a ledger entry can name it.

    `ends`: of each number, the range that is declared, or its outer cut points. Of several `targets` a model learns
    one: `question` gives the schema of that one, which is what learners are given. `groups`: public bins of columns by
    which an evaluation may tell people apart, and no learner does.
    """

    targets: tuple[Target, ...]
    records: int
    features: tuple[Feature, ...]
    ignore: tuple[str, ...]
    digest: str
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    groups: tuple[Feature, ...] = ()

    @property
    def stored(self) -> tuple[Feature, ...]:
        """Whose codes are kept of every row: features, then groups."""
        return (*self.features, *self.groups)

    def group(self, name: str) -> Feature:
        """The group of this name. InputError where the schema names none."""
        found = next((each for each in self.groups if each.name == name), None)
        if found is None:
            has = [each.name for each in self.groups]
            raise InputError(f"group={name!r:.80}: the schema names no such group under `groups`; it has {has}")
        return found

    @property
    def only(self) -> Target:
        """The target. InputError where there are several."""
        if len(self.targets) > 1:
            which_target(
                f"the schema has {len(self.targets)} targets", self.target_names, "choose one: schema.question"
            )
        return self.targets[0]

    @property
    def target(self) -> str:
        """The name of the only target."""
        return self.only.name

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        """The classes of the only target; None where it is a number."""
        return self.only.classes

    @property
    def target_range(self) -> tuple[float, float] | None:
        """The public range of the only target; None where it has classes."""
        return self.only.range

    @property
    def target_names(self) -> tuple[str, ...]:
        """Every target's name, in the file's order."""
        return tuple(target.name for target in self.targets)

    def question(self, name: str | None) -> Schema:
        """The schema of one target: itself alone to be predicted, by all features but the column itself. None: the only
        one there is. InputError where there is no such target, or None does not say which.
        """
        chosen = [target for target in self.targets if target.name == (self.target if name is None else name)]
        if not chosen:
            which_target(f"{name!r:.80} is no target of this schema", self.target_names, "choose one of its targets")
        rest = tuple(feature for feature in self.features if feature.name != chosen[0].name)
        return replace(self, targets=tuple(chosen), features=rest)


def which_target(why: str, names: Sequence[str], then: str) -> NoReturn:
    """InputError that asks which target is meant."""
    raise InputError(f"target: {why}: {', '.join(names)}; {then}", targets=list(names))


def parse_schema(raw: bytes) -> Schema:
    """YAML bytes -> Schema; anything unknown, incomplete or double raises SchemaError naming the place."""
    if len(raw) > MAX_BYTES:
        raise SchemaError(f"schema: {len(raw)} bytes; at most {MAX_BYTES}")
    try:
        body = yaml.load(raw.decode(), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML lets Python's own ValueError through
        raise SchemaError(f"schema: not YAML: {error}") from error
    return schema_from(body, raw)


def schema_from(body: Any, raw: bytes) -> Schema:
    """What was read from `raw`, checked. SchemaError names the place."""
    if blank := blanks(body):
        raise SchemaError(f"schema: still {FILL_IN}, for you to fill in from public knowledge: {', '.join(blank)}")
    try:
        file = _File.model_validate(body)
    except ValidationError as error:
        raise SchemaError("schema: " + "; ".join(_say(problem) for problem in error.errors())) from None
    _check_names(file)
    try:
        features = tuple(kind.feature(name) for name, kind in file.features.items())
        groups = tuple((kind or file.features[name]).feature(name) for name, kind in file.groups.items())
    except ModelInvalid as error:  # names and values that a released model could not carry
        raise SchemaError(f"schema: {error.message}") from None
    every = {**file.groups, **file.features}.items()
    numbers = {name: kind for name, kind in every if isinstance(kind, _Numeric)}
    ends = {name: kind.range or (min(kind.edges or ()), max(kind.edges or ())) for name, kind in numbers.items()}
    for each in groups:
        if each.bins > MAX_GROUP_BINS:
            raise SchemaError(
                f"schema: groups.{each.name}: {each.bins} bins; at most {MAX_GROUP_BINS}: give it `edges`"
            )
    return Schema(file.questions(), file.records, features, file.ignore, hashlib.sha256(raw).hexdigest(), ends, groups)


def _check_names(file: _File) -> None:
    targets = file.questions()
    for target in targets:
        _check_target(target, file, len(targets))
    for name, kind in file.groups.items():
        own = file.features.get(name)
        if any(name == target.name for target in targets) or (kind or own) is None:
            raise SchemaError(f"schema: groups.{name}: must be a feature, or have a type of its own, and be no target")
        if kind is not None and own is not None and kind.type != own.type:
            raise SchemaError(f"schema: groups.{name}: the feature is {own.type}, and so must the group be")
    names = dict.fromkeys((*file.features, *file.groups, *(target.name for target in targets)))
    for name in names.keys() & set(file.ignore):
        raise SchemaError(f"schema: ignore: {name!r} is used as a feature, a group or the target")
    for name in names:
        if not name or len(name) > 200 or not name.isprintable():
            raise SchemaError(f"schema: {name!r}: a column name has 1 to 200 printable characters")


def _check_target(target: Target, file: _File, targets: int) -> None:
    """A target is a feature of the others' models only where the schema says so twice: here and under `features`."""
    name, feature = target.name, file.features.get(target.name)
    if target.also_feature and (feature is None or targets == 1):
        raise SchemaError(
            f"schema: targets.{name}: also_feature needs the column under `features` as well, and another target"
        )
    if feature is None:
        return
    if not target.also_feature:
        hint = "" if targets == 1 else "; where the models of other targets may read it, say `also_feature: true`"
        raise SchemaError(f"schema: features.{name}: the target cannot be a feature{hint}")
    if (target.classes is None) != isinstance(feature, _Numeric):
        raise SchemaError(
            f"schema: features.{name}: a target with a range is a numeric feature, one with classes is not"
        )
    if len(file.features) == 1:
        raise SchemaError(f"schema: targets.{name}: there is no other feature to learn it from")


def _say(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"] if part not in ("numeric", "categorical", "boolean"))
    hint = ""
    if problem["type"] in ("string_type", "int_type") and isinstance(problem.get("input"), bool):
        hint = " (YAML reads yes, no, on, off as booleans: put quotes around it)"
    if problem["type"] == "missing":
        hint = f" ({PUBLIC_ONLY})"
    return f"{where or 'file'}: {problem['msg'].removeprefix('Value error, ')}{hint}"
