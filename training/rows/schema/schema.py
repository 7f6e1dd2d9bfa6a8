"""The public schema: what everybody may know about a dataset before any row is read. YAML, strict, never completed
from rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from accountant.errors import SchemaError
from accountant.ledger.families.schema_profiles import MAX_PROFILES, SchemaProfile
from dpserve_verify.errors import InputError, ModelInvalid
from models.features.date_patterns import has_short_year
from models.features.features import CALENDAR, Feature
from models.features.reading import LONGEST, READING, choose_features, is_column_name
from models.features.table_format import TableFormat
from models.features.written import PLAIN, USUAL, Decimal, Form, Thousands, Written
from models.parts.answers import ClassLabel, check_head
from training.rows.packed.names import schema_file
from training.rows.schema.declared import (
    PUBLIC_ONLY,
    Boolean,
    Calendar,
    Categorical,
    Finite,
    Format,
    Numeric,
    Strict,
    Words,
)
from training.rows.schema.row_weight import DeclaredWeight, RowWeight
from training.rows.schema.schema_text import FILL_IN, MAX_SHOWN, blanks, check_spelling, load_yaml

if TYPE_CHECKING:
    from accountant.home import Home
    from accountant.ledger.families.families import Dataset

MAX_BYTES = 1 << 20
MARK = "# Refined from a profile of dataset "  # the first words of a file that was refined
MAX_FEATURES = 16_384  # as many inputs as an exported model may have: known before any budget is spent
MAX_ALL_BINS = 1 << 21  # of all features and groups together
MAX_LABEL = 200  # characters of a class, for a certificate names them all
MAX_TARGETS = 64
MAX_GROUPS, MAX_GROUP_BINS = 16, 64
LEAST_SHARE, NEAR_ONE = 1e-6, 0.01
# As tables call a column without a name, and one whose name stood there before.
_UNNAMED, _AGAIN = re.compile("column [0-9]+"), re.compile(r" \([0-9]+\)$")
KINDS = ("numeric", "categorical", "boolean", *CALENDAR)

_Share = Annotated[Finite, Field(ge=LEAST_SHARE, le=1 - LEAST_SHARE)]
_Kind = Annotated[Numeric | Categorical | Boolean | Calendar, Field(discriminator="type")]
_Group = Annotated[_Kind | None, BeforeValidator(lambda value: value or None)]  # none: the feature's own bins


class _Answers(Strict):
    """What one asks of a row: `classes` in their public order (the last one is the positive class), or a public `range`
    for regression. `missing`: whether rows without an answer refuse the file, or are left out of this target's jobs.
    `prevalence`: about which share of rows each class has, or, of two classes, the last one, from public knowledge.
    """

    classes: Annotated[tuple[StrictStr | StrictInt, ...], Field(min_length=2, max_length=255)] | None = None
    range: tuple[Finite, Finite] | None = None
    missing: Literal["refuse", "leave-out"] = "refuse"
    decimal: Decimal | None = None
    thousands: Thousands | None = None
    unit_mark: StrictStr = ""
    missing_words: Words = ()
    missing_values: Annotated[tuple[Finite, ...], Field(max_length=20)] = ()
    prevalence: _Share | tuple[_Share, ...] | None = None
    outside: Literal["expected"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> _Answers:
        if (self.classes is None) == (self.range is None):
            raise ValueError(f"needs `classes: [...]`, or `range: [low, high]` for regression: {PUBLIC_ONLY}")
        if self.classes is not None and len({str(label) for label in self.classes}) != len(self.classes):
            raise ValueError("classes: each must stand there once")
        if any(len(str(label)) > MAX_LABEL for label in self.classes or ()):
            raise ValueError(f"classes: each must have at most {MAX_LABEL} characters")
        for key in ("decimal", "thousands", "unit_mark", "missing_values", "outside"):
            if key in self.model_fields_set and self.range is None:
                raise ValueError(f"{key}: is of a number, with `range`")
        if self.range is not None and not self.range[0] / 2 < self.range[1] / 2:  # as it is centred and halved later
            raise ValueError(f"range={list(self.range)}: low must be below high")
        if self.prevalence is not None:
            self._check_prevalence()
        return self

    def _check_prevalence(self) -> None:
        if self.classes is None:
            raise ValueError("prevalence: is of classes, and this target is a number")
        if not isinstance(self.prevalence, tuple):
            if len(self.classes) > 2:
                raise ValueError(f"prevalence: of {len(self.classes)} classes it must be a list, a share for each")
            return
        if len(self.prevalence) != len(self.classes):
            raise ValueError(f"prevalence: must have a share for each of {len(self.classes)} classes, in their order")
        if abs(sum(self.prevalence) - 1) > NEAR_ONE:
            raise ValueError(f"prevalence: the shares add up to {sum(self.prevalence):g}; they must add up to 1")

    def shares(self) -> tuple[float, ...]:
        if self.prevalence is None:
            return ()
        if not isinstance(self.prevalence, tuple):
            return 1 - self.prevalence, self.prevalence
        return tuple(share / sum(self.prevalence) for share in self.prevalence)

    def target(self, name: str, also_feature: bool = False) -> Target:
        return Target(name, self.classes, self.range, self.missing == "leave-out", also_feature, self.shares())


class _Target(_Answers):
    name: StrictStr


class _Question(_Answers):
    """One of several targets. `also_feature`: it stands under `features` as well, for the models of the others."""

    also_feature: StrictBool = False


class _Profile(Strict):
    """A profile of rows that this file was refined from, as the ledger has it."""

    entry: Annotated[StrictInt, Field(ge=0, le=2**53 - 1)]
    dataset: Annotated[StrictStr, Field(min_length=1, max_length=200)]
    part: Literal["all", "training", "holdout"]
    epsilon: Annotated[StrictStr, Field(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", max_length=40)]
    delta: Annotated[StrictStr, Field(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", max_length=40)]


class _File(Strict):
    target: _Target | None = None
    targets: Annotated[dict[StrictStr, _Question], Field(min_length=1, max_length=MAX_TARGETS)] | None = None
    records: Annotated[StrictInt, Field(ge=1, le=10**12)]
    features: Annotated[dict[str, _Kind], Field(min_length=1, max_length=MAX_FEATURES)]
    groups: Annotated[dict[str, _Group], Field(default_factory=dict, max_length=MAX_GROUPS)]
    weight: DeclaredWeight | None = None
    ignore: tuple[StrictStr, ...] = ()
    missing: Literal["own-bin"] = "own-bin"
    format: Annotated[Format, Field(default_factory=Format)]
    refined: Annotated[tuple[_Profile, ...], Field(min_length=1, max_length=MAX_PROFILES)] | None = None

    @model_validator(mode="after")
    def _names_profiles_once(self) -> _File:
        entries = [profile.entry for profile in self.refined or ()]
        if len(set(entries)) != len(entries):
            raise ValueError("refined: names a profile twice")
        return self

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
        return tuple(declared.target(name, declared.also_feature) for name, declared in (self.targets or {}).items())

    def expected(self) -> Iterator[str]:
        """Yield the columns of which most cells may be other, or outside of the range."""
        targets = [(self.target.name, self.target)] if self.target else (self.targets or {}).items()
        for name, column in (*targets, *self.features.items()):
            if getattr(column, "other", None) or getattr(column, "outside", None):
                yield name

    def kinds_of_groups(self) -> dict[str, _Kind]:
        return {name: kind or self.features[name] for name, kind in self.groups.items()}

    def written(self) -> dict[str, Written]:
        """Return how each column is written that is not written as usual."""
        usual, forms = self.format, dict[str, Written]()
        answers = [(self.target.name, self.target)] if self.target else list((self.targets or {}).items())
        for name, column in (*answers, *self.groups.items(), *self.features.items()):
            missing = (*usual.missing_words, *(() if column is None else column.missing_words))
            if isinstance(column, _Answers | Numeric):
                thousands = usual.thousands if column.thousands is None else column.thousands
                forms[name] = Written(
                    column.decimal or usual.decimal, missing=missing, missing_numbers=tuple(column.missing_values),
                    thousands=thousands, unit_mark=column.unit_mark, trim=usual.trim and isinstance(column, _Answers),
                )  # fmt: skip
            elif isinstance(column, Boolean):
                true, false = (*usual.true_words, *column.true_words), (*usual.false_words, *column.false_words)
                forms[name] = Written(true=true, false=false, missing=missing)
            elif isinstance(column, Calendar):
                dates = column.written or usual.dates
                first = column.first_year or (usual.first_year if any(map(has_short_year, dates)) else None)
                forms[name] = Written(dates=dates, missing=missing, first_year=first)
            elif isinstance(column, Categorical):
                forms[name] = Written(missing=missing, trim=usual.trim)
            if name in forms and (problem := forms[name].problem()):
                raise SchemaError(f"schema: {name}: {problem}")
        if self.weight is not None:
            forms[self.weight.column] = self.weight.written(usual)
        return {name: column for name, column in forms.items() if column != USUAL}


@dataclass(frozen=True)
class Target:
    """A column to predict: one of `classes`, or (None) a number in the public `range`. `leave_out`: rows without an
    answer are left out of its jobs; else there are none. `also_feature`: the models of other targets read it.
    `prevalence`: the declared share of each class, 1 together; () where none is declared.
    """

    name: str
    classes: tuple[ClassLabel, ...] | None
    range: tuple[float, float] | None
    leave_out: bool = False
    also_feature: bool = False
    prevalence: tuple[float, ...] = ()


@dataclass(frozen=True)
class Schema:
    """A checked schema. `digest`: sha256 of the file's bytes, so that a ledger entry can name it.

    `ends`: of each number, the range that is declared, or its outer cut points. Of several `targets` a model learns
    one: `question` gives the schema of that one, which is what learners are given. `groups`: public bins of columns by
    which an evaluation may tell people apart, and no learner does. `form`, `written`: how files are written, and each
    column not written as usual. `measures`: numbers that are no ids, whatever their names say; `expected`: columns of
    which most cells may be none of the listed values, or lie outside of the range. `weight`: of rows; None: all alike.
    """

    targets: tuple[Target, ...]
    records: int
    features: tuple[Feature, ...]
    ignore: tuple[str, ...]
    digest: str
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    groups: tuple[Feature, ...] = ()
    form: Form = PLAIN
    written: Mapping[str, Written] = field(default_factory=dict, compare=False)
    measures: frozenset[str] = frozenset()
    expected: frozenset[str] = frozenset()
    refined: tuple[SchemaProfile, ...] = ()
    weight: RowWeight | None = None

    @property
    def stored(self) -> tuple[Feature, ...]:
        """Return the columns whose codes are stored for every row: features, then groups, then what a row weighs."""
        return (*self.features, *self.groups, *([] if self.weight is None else [self.weight.feature]))

    def group(self, name: str) -> Feature:
        """Return the group of this name. InputError where the schema names none."""
        group = next((candidate for candidate in self.groups if candidate.name == name), None)
        if group is None:
            has = [candidate.name for candidate in self.groups]
            raise InputError(f"group={name!r:.80}: the schema names no such group under `groups`; it has {has}")
        return group

    def ignores(self, name: str) -> bool:
        """Return whether it is a column that the schema ignores. The empty name stands for columns without one, and a
        name for all columns that are called so.
        """
        return name in self.ignore or called_again(name) in self.ignore or ("" in self.ignore and has_no_name(name))

    def twice(self, names: Iterable[str]) -> list[str]:
        """Return which of its own columns stand twice among a table's `names`."""
        own = {*(feature.name for feature in self.stored), *self.target_names}
        return sorted({plain for name in names if name not in own and (plain := called_again(name)) in own})

    @property
    def format(self) -> TableFormat:
        """Return how tables are written, which is all that a model needs of it to be asked."""
        return TableFormat(self.form, self.written)

    def written_as(self, name: str) -> Written:
        """Return how a column is written."""
        return self.written.get(name, USUAL)

    @property
    def only(self) -> Target:
        """Return the only target. InputError where there are several."""
        if len(self.targets) > 1:
            which_target(
                f"the schema has {len(self.targets)} targets", self.target_names, "choose one: schema.question"
            )
        return self.targets[0]

    @property
    def target(self) -> str:
        """Return the name of the only target."""
        return self.only.name

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        """Return the classes of the only target; None where it is a number."""
        return self.only.classes

    @property
    def target_range(self) -> tuple[float, float] | None:
        """Return the public range of the only target; None where it has classes."""
        return self.only.range

    @property
    def prevalence(self) -> tuple[float, ...]:
        """Return the declared shares of the only target's classes; () where none are declared."""
        return self.only.prevalence

    @property
    def target_names(self) -> tuple[str, ...]:
        """Return every target's name, in the file's order."""
        return tuple(target.name for target in self.targets)

    def question(self, name: str | None, parameters: Mapping[str, Any] | None = None) -> Schema:
        """Return the schema of one target: itself alone to be predicted, by all features but the column itself, or by
        those that a job's `parameters` name (`reading`). None: the only one there is. InputError where there is no such
        target, or None does not say which.
        """
        targets = [target for target in self.targets if target.name == (self.target if name is None else name)]
        if not targets:
            which_target(f"{name!r:.80} is no target of this schema", self.target_names, "choose one of its targets")
        rest = tuple(feature for feature in self.features if feature.name != targets[0].name)
        question = replace(self, targets=tuple(targets), features=rest)
        return question.reading(*((parameters or {}).get(word) for word in READING))

    def reading(self, features: object = None, without: object = None) -> Schema:
        """Return the schema of a model that reads these features alone, or all but some (`reading.chosen`)."""
        read = choose_features(self.features, features, without)
        return self if len(read) == len(self.features) else replace(self, features=read)


def has_no_name(name: str) -> bool:
    """Return whether a table calls a column so that has no name."""
    return _UNNAMED.fullmatch(name) is not None


def called_again(name: str) -> str:
    """Return the name itself of a column that is called as one before it: `note` for `note (2)`."""
    return _AGAIN.sub("", name)


def which_target(why: str, names: Sequence[str], then: str) -> NoReturn:
    """Return the InputError that asks which target is meant."""
    raise InputError(f"target: {why}: {', '.join(names)}; {then}", targets=list(names))


@lru_cache(maxsize=16)  # of which many ask again and again: each price, each job twice
def parse_schema(raw: bytes, registered: bool = False) -> Schema:
    """Parse YAML bytes into a Schema; anything unknown, incomplete or double raises SchemaError naming the place.
    `registered`: the schema was accepted before, and keeps its meaning.
    """
    if len(raw) > MAX_BYTES:
        raise SchemaError(f"schema: {len(raw)} bytes; at most {MAX_BYTES}")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise SchemaError(f"schema: not YAML: {error}") from None
    schema = schema_from(load_yaml(text), raw)
    if not registered:
        check_spelling(text)
        for target in schema.targets:
            _check_learnable(schema, target)
    return schema


def _check_learnable(schema: Schema, target: Target) -> None:
    """Raise SchemaError where no model of this target could be released."""
    features = tuple(feature for feature in schema.features if feature.name != target.name)
    try:
        check_head(features, target.classes or (), 1.0, target.range)
    except ModelInvalid as error:
        raise SchemaError(f"schema: {target.name}: {error.message}") from None


def schema_from(body: Any, raw: bytes) -> Schema:
    """Return what was read from `raw`, checked. SchemaError names the place."""
    if not isinstance(body, dict):
        kind_of_file = "an empty file" if body is None else "a file without keys"
        raise SchemaError(f"schema: {kind_of_file}; must have target, records and features")
    if blank := blanks(body):
        raise SchemaError(f"schema: still {FILL_IN}, for you to fill in from public knowledge: {', '.join(blank)}")
    try:
        file = _File.model_validate(body)
    except ValidationError as error:
        raise SchemaError("schema: " + "; ".join(_say(problem) for problem in error.errors()[:MAX_SHOWN])) from None
    _check_names(file)
    try:
        features, groups = tuple(_features(file.features)), tuple(_features(file.kinds_of_groups()))
    except ModelInvalid as error:  # names and values that a released model could not carry
        raise SchemaError(f"schema: {error.message}") from None
    columns = {**file.groups, **file.features}.items()
    ends = dict[str, tuple[float, float]]()
    for name, kind in columns:
        if isinstance(kind, Numeric):
            ends[name] = kind.range or (min(kind.edges or ()), max(kind.edges or ()))
        elif isinstance(kind, Calendar):
            ends[name] = (kind.ends()[0], kind.ends()[-1])
    for group in groups:
        if group.bins > MAX_GROUP_BINS:
            raise SchemaError(
                f"schema: groups.{group.name}: {group.bins} bins; at most {MAX_GROUP_BINS}: give it `edges`"
            )
    return Schema(
        file.questions(), file.records, features, file.ignore, hashlib.sha256(raw).hexdigest(), ends, groups,
        file.format.form(), file.written(),
        frozenset(name for name, kind in file.features.items() if isinstance(kind, Numeric) and kind.measure),
        frozenset(file.expected()),
        tuple(SchemaProfile(**profile.model_dump()) for profile in file.refined or ()),
        None if file.weight is None else file.weight.checked(),
    )  # fmt: skip


def _features(kinds: Mapping[str, _Kind]) -> Iterator[Feature]:
    """Make the features, as long as they have at most MAX_ALL_BINS: a few words ask for thousands of bins."""
    bins = 0
    for name, kind in kinds.items():
        feature = kind.feature(name)
        bins += feature.bins
        if bins > MAX_ALL_BINS:
            raise SchemaError(f"schema: {name}: more than {MAX_ALL_BINS} bins, all columns together; say fewer `bins`")
        yield feature


def _check_names(file: _File) -> None:
    targets = file.questions()
    for target in targets:
        _check_target(target, file, len(targets))
    for name, kind in file.groups.items():
        declared = file.features.get(name)
        if any(name == target.name for target in targets) or (kind or declared) is None:
            raise SchemaError(f"schema: groups.{name}: must be a feature, or have a type of its own, and be no target")
        if kind is not None and declared is not None and kind.type != declared.type:
            raise SchemaError(f"schema: groups.{name}: the feature is {declared.type}, and so must the group be")
    names = dict.fromkeys((*file.features, *file.groups, *(target.name for target in targets)))
    if file.weight is not None:
        names |= file.weight.own_column(names)
    for name in names.keys() & set(file.ignore):
        raise SchemaError(f"schema: ignore: {name!r} is used as a feature, a group, the weight or the target")
    for name in names:
        if not is_column_name(name):
            raise SchemaError(
                f"schema: {name!r}: a column name has 1 to {LONGEST} printable characters, / not first; name it "
                "otherwise in the file, or by `columns` and `skip` under `format`"
            )


def _check_target(target: Target, file: _File, targets: int) -> None:
    """Check one target. It is a feature of the others' models only where the schema says so twice: here and under
    `features`.
    """
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
    if (target.classes is None) != isinstance(feature, Numeric):
        raise SchemaError(
            f"schema: features.{name}: a target with a range is a numeric feature, one with classes is not"
        )
    if len(file.features) == 1:
        raise SchemaError(f"schema: targets.{name}: there is no other feature to learn it from")


def _say(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"] if part not in KINDS)
    hint = ""
    if problem["type"] in ("string_type", "int_type") and isinstance(problem.get("input"), bool):
        hint = " (YAML reads yes, no, on, off as booleans: put quotes around it)"
    if problem["type"] == "missing":
        hint = f" ({PUBLIC_ONLY})"
    return f"{where or 'file'}: {problem['msg'].removeprefix('Value error, ')}{hint}"


def registered_schema(home: Home, dataset: Dataset) -> bytes:
    """Return the text of the schema as registered. Raises as `schema_file`."""
    return schema_file(home, dataset).read_bytes()


def schema_of(home: Home, dataset: Dataset) -> Schema:
    """Return the public schema as registered, reading no rows. Raises as `schema_file`."""
    schema = parse_schema(registered_schema(home, dataset), registered=True)
    if schema.digest != dataset.registration.schema:
        raise SchemaError(f"dataset={dataset.registration.name}: its schema file is not the registered one")
    return schema
