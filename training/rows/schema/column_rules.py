"""A schema from the names of columns alone, by a public rule: for tables in memory, which bring no file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any

import numpy as np

from accountant.errors import SchemaError
from models.parts.answers import ClassLabel
from training.rows.schema.schema import Schema, schema_from

GUESSED_RECORDS = 1000
WEIGHT = "sample_weight"  # the column of weights that come beside the rows


@dataclass(frozen=True)
class Columns:
    """A public rule that makes a schema from the names of columns alone: each a number in [low, high] (values outside
    are clipped), `bins` to a column; labels are `classes`, in that order, or the target is a number in `target_range`.
    `prevalence`: about which share of rows each class has, or, of two classes, the last one.

    `columns`: what is otherwise, by name, in the words of a schema file: {"sex": {"type": "categorical", "values":
    ["F", "M"]}}; low and high may be left out where every column is there. `ignore`: names of columns that are not
    learnt from. What is `...` stands for what a person must still say. `records`: None is the number of rows under
    replace-one, where it is public, and a guess of GUESSED_RECORDS under add/remove. `weight`: {"most": 10} where a fit
    gets a `sample_weight`, with "column" where the weights are a column of the rows. Whoever writes a rule vouches that
    it is public knowledge: nothing is read from rows.
    """

    low: float | None = None
    high: float | None = None
    classes: Sequence[ClassLabel] | None = None
    records: int | None = None
    bins: int = 32
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    target: str = "target"
    target_range: Sequence[float] | None = None
    prevalence: float | Sequence[float] | None = None
    ignore: Sequence[str] = ()
    weight: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Convert what was given to plain Python values, whatever kind of array or number it was written as."""
        for name in ("classes", "target_range", "prevalence"):
            listed = getattr(self, name)
            plain = tuple(map(_plain, listed)) if isinstance(listed, Sequence | np.ndarray) else listed
            object.__setattr__(self, name, listed if isinstance(listed, str) else plain)
        for name in ("low", "high"):
            object.__setattr__(self, name, _plain(getattr(self, name)))

    def body(self, names: Sequence[str], rows: int | None = None) -> dict[str, Any]:
        """Return the schema as a file would say it. `rows`: their number, where it is public."""
        unknown = sorted({*self.columns, *self.ignore} - set(names))
        if unknown:
            raise SchemaError(f"columns={unknown}: X has no such columns; it has {sorted(names)[:20]}")
        blanks = [name for name, declared in self.columns.items() if has_blank(declared)]
        blanks += [word for word in ("classes", "target_range") if has_blank(getattr(self, word))]
        if blanks:
            raise SchemaError(f"columns: write what is publicly known where `...` stands: {', '.join(blanks[:20])}")
        weight = None if self.weight is None else {"column": WEIGHT, **self.weight}
        names = [name for name in names if weight is None or name != weight["column"]]
        missing = sorted(set(names) - {*self.columns, *self.ignore})
        if missing and (self.low is None or self.high is None):
            raise SchemaError(f"low, high: say the range of columns that are not declared: {', '.join(missing[:20])}")
        number = {"type": "numeric", "range": [self.low, self.high], "bins": self.bins}
        records = self.records if self.records is not None else rows or GUESSED_RECORDS
        classes = tuple(map(str, self.classes)) if self.classes and self.has_truths else self.classes
        kinds = {"classes": classes, "range": self.target_range, "prevalence": self.prevalence}
        return {
            "target": {"name": self.target, **{kind: value for kind, value in kinds.items() if value is not None}},
            "records": records,
            "features": {
                name: _with_texts(self.columns.get(name, number)) for name in names if name not in self.ignore
            },
            **({"ignore": list(self.ignore)} if self.ignore else {}),
            **({"weight": weight} if weight else {}),
        }

    @property
    def has_truths(self) -> bool:
        """Return whether the classes are False and True."""
        return set(map(type, self.classes or ())) == {bool}

    def __repr__(self) -> str:
        """Return the call that makes it, a line to a column."""
        given = {
            item.name: getattr(self, item.name) for item in fields(self)
            if item.name != "columns" and getattr(self, item.name) != item.default
        }  # fmt: skip
        parts = [f"{name}={'...' if value is ... else repr(value)}" for name, value in given.items()]
        if not self.columns:
            return f"Columns({', '.join(parts)})"
        lines = "".join(f"    {name!r}: {dict(declared)},\n" for name, declared in self.columns.items())
        return (
            "Columns("
            + "".join(f"{part}, " for part in parts)
            + "columns={\n"
            + lines.replace("Ellipsis", "...")
            + "})"
        )

    def schema(self, names: Sequence[str], rows: int | None = None) -> Schema:
        """Return the checked schema of columns with these names; its digest is that of `text`."""
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(f"columns {twice}: stand there twice")
        return schema_from(self.body(names, rows), self.text(names, rows).encode())

    def text(self, names: Sequence[str], rows: int | None = None) -> str:
        """Return the same schema as a file, for `dpserve dataset register --schema`: JSON, which is YAML as well."""
        try:
            return json.dumps(self.body(names, rows), indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SchemaError(f"schema: a rule holds finite numbers and texts ({error})") from None


def array_names(count: int) -> list[str]:
    """Return names for the columns of an array, which have none: x0, x1, ..."""
    return [f"x{index}" for index in range(count)]


def uniform_schema(
    features: int | Sequence[str],
    low: float,
    high: float,
    classes: Sequence[ClassLabel] | None,
    records: int,
    bins: int = 32,
    target: str = "target",
    target_range: Sequence[float] | None = None,
) -> Schema:
    """Return a schema of numbers in [low, high]: `features` names them, or says how many there are (x0, x1, ...)."""
    names = array_names(features) if isinstance(features, int) else list(features)
    return Columns(low, high, classes, records, bins, target=target, target_range=target_range).schema(names)


def _plain(value: Any) -> Any:
    """Return a number or text of NumPy as Python's own."""
    return value.item() if hasattr(value, "item") else value


def _with_texts(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is declared of a column, ends of a range that are days or moments as the texts of a schema file."""
    kind, ends = declared.get("type"), declared.get("range")
    if kind not in ("date", "datetime") or not isinstance(ends, list | tuple):
        return dict(declared)
    moments = [_plain(end.astype("datetime64[s]")) if isinstance(end, np.datetime64) else end for end in ends]
    form = "%Y-%m-%d" if kind == "date" else "%Y-%m-%dT%H:%M:%S"
    return {**declared, "range": [end.strftime(form) if isinstance(end, date) else end for end in moments]}


def has_blank(value: Any) -> bool:
    """Return whether `...` stands in it."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return value is ... or any(map(has_blank, parts))
