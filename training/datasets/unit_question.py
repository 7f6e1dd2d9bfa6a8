"""Who is one person? Asked of the steward where a file has a column that may name people, and never assumed.

A column is asked about by its name and type alone, in many languages (`training.rows.people.id_words`); or, where the
schema does not describe its values (under `ignore`, or called an id), by its values: where one of them repeats, and
there are more of them than the square root of the number of rows, and they are no fractions, they look like ids of
people with several rows each. A feature of categories is asked about in the same way where the file has more than twice
as many values as the schema lists. A number with a public range is taken for the measure that the schema calls it:
whole prices and areas repeat as ids do. What this says of the values reaches the steward alone, as the refusal of a
registration.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from accountant.errors import DataError
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import RECORD, Unit
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature, CalendarFeature, CategoricalFeature, NumericFeature
from training.datasets.overlap import People, Sketch
from training.datasets.unit_candidates import Candidates
from training.rows.people.id_words import is_id, names_people
from training.rows.schema.schema import Schema

EACH_ROW = "record"
FEW = 100  # a feature with fewer listed categories names no people


def columns_to_watch(schema: Schema, types: Mapping[str, pa.DataType | None]) -> tuple[list[str], list[str]]:
    """Return the file's columns that name people by their names, and those whose values are to be looked at. DataError
    where an id is a number to learn from.
    """
    check_no_ids(schema, types)
    few = {
        feature.name
        for feature in schema.stored
        if isinstance(feature, BooleanFeature) or (isinstance(feature, CategoricalFeature) and feature.bins < FEW)
    }
    able = [
        name for name, kind in types.items() if _can_name(kind) and name not in few and name not in schema.target_names
    ]
    by_name = [name for name in able if names_people(name)]
    open_ones = [name for name in able if name in schema.ignore or is_id(name)]
    return by_name, [name for name in open_ones if name not in by_name]


def check_no_ids(schema: Schema, types: Mapping[str, pa.DataType | None]) -> None:
    """Check that no feature is a number that is called as ids are, and may be whole, unless the schema says that it
    measures.
    """
    for feature in schema.features:
        kind = types.get(feature.name)
        number = isinstance(feature, NumericFeature) and not isinstance(feature, CalendarFeature)
        may_be_whole = kind is None or pa.types.is_integer(kind)
        is_named_like_id = names_people(feature.name) or is_id(feature.name)
        if number and may_be_whole and is_named_like_id and feature.name not in schema.measures:
            raise DataError(
                f"features.{feature.name}: is called as ids are, and an id is no measure: what a model learns of it "
                "holds for nobody else; put it under `ignore`, or, if it is a measure, say `measure: true` of it",
                column=feature.name,
            )


def _can_name(kind: pa.DataType | None) -> bool:
    """Return whether a column can name people, by its type; a .csv says none."""
    if kind is None:
        return True
    return not (pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_temporal(kind))


def many(values: People, rows: int) -> bool:
    """Return whether there are as many as ids: more distinct ones than the square root of the number of rows."""
    return bool(len(values.ids) / values.part > rows**0.5)


def naming_people(sketch: Sketch, unit: str | None, by_name: Collection[str]) -> Sketch:
    """Return the sketch with the ids of people alone: of the unit's column, and of those `by_name` that hold as many
    values as ids do. Other columns that were looked at hold what strangers share: countries, dates, weights, row
    numbers.
    """
    ids = {name for name in by_name if many(sketch.people[name], sketch.rows)} | {unit}
    return replace(sketch, people={name: people for name, people in sketch.people.items() if name in ids})


def repeat_like_ids(values: People, rows: int) -> bool:
    """Return whether some value stands twice, and there are as many distinct ones as ids are."""
    return bool((values.counts > 1).any()) and many(values, rows)


def columns_like_ids(sketch: Sketch, columns: Sequence[str], schema: Schema) -> list[str]:
    """Return which of these `columns`, and of the features of categories, have values that repeat as ids do."""
    found = [name for name in columns if repeat_like_ids(sketch.people[name], sketch.rows)]
    for feature in schema.stored:
        if isinstance(feature, CategoricalFeature) and feature.name in sketch.columns:
            cells = sketch.cells[:, sketch.columns.index(feature.name)]
            counts = np.unique(cells, return_counts=True)[1]
            repeated = int((counts > 1).sum()) > 1  # one may be that of a missing value
            if repeated and len(counts) > max(len(cells) ** 0.5, 2 * feature.bins):
                found.append(feature.name)
    return found


def read_unit(
    unit: str | None, contributions: int, columns: Collection[str], families: Sequence[Dataset]
) -> Unit | None:
    """Return what `unit` says: None is no answer, "record" each row by itself, else a column of the file's `columns`.

    COLUMN=OTHER says besides that it names by the same ids the person whom a dataset of the family names by OTHER.
    InputError where a family's datasets name the person by a column that the answer does not speak of.
    """
    theirs = {dataset.registration.unit.column or "" for dataset in families} - {""}
    if unit is None:
        if theirs:
            text = f"the family's datasets name the person by {sorted(theirs)}; which column of this file does"
            raise _question(text, ["--unit COLUMN"])
        if contributions != 1:
            raise InputError(f"contributions={contributions}: needs --unit, the column that names the person")
        return None
    if unit == EACH_ROW:
        if EACH_ROW in columns:
            raise InputError(f"unit={EACH_ROW}: means each row by itself, and a column is called so; rename the column")
        return RECORD if contributions == 1 else Unit("record", None, contributions)
    column, same = (unit, []) if unit in columns else (unit.partition("=")[0], unit.split("=")[1:])
    if column not in columns:
        raise DataError(f"unit={column}: the file has no such column")
    other_columns = sorted(theirs - {column, *same})
    if other_columns:
        raise _question(
            f"the family's datasets name the person by {other_columns}, this one by {column!r}; are these the "
            "same ids of the same people",
            ["--unit " + "=".join([column, *same, *other_columns])],
        )
    return Unit("person", column, contributions)


def ask(candidates: Candidates, columns: Sequence[str], why: str) -> InputError:
    """Return the question where `columns` may name people and nothing was said: the likeliest of them first, with what
    tells them apart.
    """
    ranked = [*dict.fromkeys((*candidates.columns, *columns))]
    return _question(
        f"columns {ranked} may name people ({why}); can one person have several rows",
        [
            f"--unit {shlex.quote(ranked[0])} (and --contributions) if that column names the person",
            f"--unit {EACH_ROW} if no person has two rows",
        ],
        candidates.words,
    )


def _question(text: str, answers: Sequence[str], about: Sequence[str] = ()) -> InputError:
    said = f". {'; '.join(about)}" if about else ""
    return InputError(f"unit: {text}? Answer by {', or '.join(answers)}{said}", answers=list(answers))
