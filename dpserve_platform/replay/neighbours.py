"""Neighbours of rows: with a row more or less (of a person: as many as one may have), or another in its place.

What is added is what is hardest to bound: nothing known of a row, every number at an end of its range or far beyond
it, a category that nobody lists, a copy of a row that is there, a row at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import pyarrow as pa

from dpserve_verify.privacy.budget import Relation
from models.features.features import BooleanFeature, CategoricalFeature, Feature
from training.datasets.made_up import UNLISTED, made_up_columns, uniform_numbers
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema
from training.rows.tables.data import rows_of

BEYOND = 1000  # how far beyond the ends of its range a value may be
SHAPES = ("missing", "low", "high", "less", "beyond", "copy", "random")  # rows that are added; "less": taken out
FEW, OFTEN = 3, 4  # rows that are alike, and how often
TENTH = 10  # what part of the rows of the largest tables others have
AT_ONCE = 1_400_000  # rows of all neighbours of one table, at most, where they are more than two
ADDED = 1 << 20  # between the seeds of random rows that are added to one table and to the next


def neighbours(
    schema: Schema, table: pa.Table, relation: Relation, contributions: int, seed: int = 0
) -> Iterator[tuple[Rows, str]]:
    """Yield neighbours of a table without end, each with what is different, in words: every shape of row in turn, of
    every class in turn. Rows are a set: each neighbour has them in another order.
    """

    def mixed(other: pa.Table) -> Rows:
        places = np.argsort(uniform_numbers(seed, "order", str(number), len(other)))
        return packed(schema, other.take(places), relation)

    size = len(table)
    for number in count():
        shape, label = SHAPES[number % len(SHAPES)], number + number // len(SHAPES)
        some = min(contributions, size - 1)
        order = np.argsort(uniform_numbers(seed, "rows", str(number), size))
        out = sorted(order[:some].tolist())
        rest, places = table.filter(pa.array(~np.isin(np.arange(size), out))), ", ".join(str(at + 1) for at in out)
        if shape == "less":
            shape = "random"
            if relation is Relation.ADD_REMOVE and out:
                yield mixed(rest), f"without row {places}"
                continue
        drawn = ADDED + seed * ADDED + number * contributions  # so that no two tables are added the same random rows
        more = [
            _row(schema, table.slice(order[-1], 1), shape, label + member, drawn + member)
            for member in range(contributions)
        ]
        if relation is Relation.REPLACE_ONE:
            yield mixed(pa.concat_tables([rest, *more[: len(out)]])), f"row {places} replaced ({shape})"
        else:
            yield mixed(pa.concat_tables([table, *more])), f"{contributions} more ({shape})"


def pairs(
    schema: Schema, table: pa.Table | None, rows: int, relation: Relation, contributions: int, many: int
) -> Iterator[tuple[pa.Table, list[tuple[Rows, str]]]]:
    """Yield tables and their neighbours, `many` in all: the table given, else made-up ones of so many `rows`, of a
    tenth of them, of few, and of few that are alike, to which whatever is added is new. A large table has fewer.
    """
    left, seed = many, 0
    while left:
        if table is None:
            size = rows
            if seed % OFTEN and relation is Relation.ADD_REMOVE:
                size = max(rows // TENTH, FEW * contributions + 1)
            base = pa.table(made_up_columns(schema, size, seed))
            if relation is Relation.ADD_REMOVE and seed % OFTEN == 1:
                alike = _row(schema, base.slice(0, 1), "low", seed // OFTEN)
                base = pa.concat_tables([alike] * (FEW * contributions))
            elif relation is Relation.ADD_REMOVE and seed % OFTEN == OFTEN - 1:
                base = base.slice(0, FEW * contributions)
        else:
            base = table
        here = min(left, max(2, min(len(SHAPES) * 2, AT_ONCE // max(1, len(base)))))
        yield base, [*islice(neighbours(schema, base, relation, contributions, seed), here)]
        left, seed = left - here, seed + 1


def packed(schema: Schema, table: pa.Table, relation: Relation) -> Rows:
    """Pack a table in memory, as the schema's only target asks."""
    return rows_of(schema, table, table[schema.target], relation)


def _row(schema: Schema, table: pa.Table, shape: str, label: int, drawn: int = 0) -> pa.Table:
    """Make a table of one row of this shape, in the columns of `table`, which has one row. `drawn`: the seed of a
    random one.
    """
    if shape == "copy":
        return table
    if shape == "random":
        return pa.table(made_up_columns(schema, 1, drawn)).select(table.column_names).cast(table.schema)
    columns = {name: table[name] for name in table.column_names}
    for feature in schema.features:
        columns[feature.name] = _value(feature, schema, shape, table[feature.name].type)
    columns[schema.target] = _answer(schema, shape, label, table[schema.target].type)
    return pa.table(columns).cast(table.schema)


def _value(feature: Feature, schema: Schema, shape: str, kind: pa.DataType) -> pa.Array:
    if shape == "missing":
        return pa.array([None], kind)
    if isinstance(feature, BooleanFeature):
        return pa.array([shape == "high"], kind)
    if isinstance(feature, CategoricalFeature):
        wanted = UNLISTED if shape == "beyond" else feature.values[0 if shape == "low" else -1]
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return pa.array([None if shape == "beyond" else int(wanted)], pa.int64()).cast(kind)
        return pa.array([wanted], kind)
    low, high = schema.ends[feature.name]
    value = {"low": low, "high": high, "beyond": high + BEYOND * (1 + abs(high - low))}[shape]
    if pa.types.is_floating(kind):
        return pa.array([value], kind)
    whole = int(value if shape != "beyond" or pa.types.is_integer(kind) else high)
    return pa.array([whole], pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()).cast(
        kind
    )


def _answer(schema: Schema, shape: str, label: int, kind: pa.DataType) -> pa.Array:
    if schema.classes is not None:
        return pa.array([schema.classes[label % len(schema.classes)]]).cast(kind)
    low, high = schema.target_range or (0.0, 1.0)
    beyond = BEYOND * (high - low) if shape == "beyond" else 0
    return pa.array([(low - beyond, high + beyond, (low + high) / 2)[label % 3]], pa.float64()).cast(kind, safe=False)
