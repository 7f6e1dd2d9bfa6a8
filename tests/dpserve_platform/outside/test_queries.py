"""What a learner of others may ask: over every row that there can be, a row moves the answer as far as is declared and
no further, and the answers are those of a plain loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dpserve_platform.outside.queries import Distances, Grid, Leaves, PerCell, Table, TableSums
from dpserve_platform.replay.tapes import moved
from dpserve_verify.certificates.releases import ReleaseKind, kind_of
from dpserve_verify.privacy.budget import Relation
from models.parts.trees import tree_from_json
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows

WIDTHS = (2, 3, 4)  # the last code of each: missing
TARGETS = (-TARGET_GRID, 7, TARGET_GRID)
EVERY = {kind: list(product(*map(range, WIDTHS), of)) for kind, of in (("classes", (0, 1)), ("total", TARGETS))}
REST = {kind: [rows[0], rows[0], rows[9], rows[-1]] for kind, rows in EVERY.items()}
TREES = (["above", 2, 1, 0, ["is", 1, 2, 1, 2]], ["is", 0, 1, ["above", 2, 0, 1, 0], 0], ["above", 1, 0, 1, 0])
LEAVES = tuple(
    Leaves(tree_from_json(tree), size, WIDTHS) for tree, size in zip(TREES, (3, 2, 2), strict=True)
)  # the second has two leaves of one number
GRIDS = Grid((0,), (2,)), Grid((2, 1), (4, 3))


def table(rows, kind: str = "classes") -> Rows:
    values = np.array(rows, np.int64).reshape(-1, len(WIDTHS) + 1).T
    classes = 2 if kind == "classes" else 0
    return Rows(values[:-1].astype(np.uint8), values[-1].astype(np.uint8 if classes else np.int32), WIDTHS, classes)


TABLES = Table(0, ((3, -1), (-7, 2))), Table(2, ((0, 5, 1, -2),))
QUERIES = {
    "a histogram": PerCell(GRIDS[:1], 0, False, ""),
    "a histogram of two by class": PerCell(GRIDS[1:], 2, False, ""),
    "the total of a histogram": PerCell(GRIDS[1:], 0, True, ""),
    "leaves": PerCell(LEAVES, 0, False, ""),
    "leaves by class": PerCell(LEAVES, 2, False, ""),
    "the total of leaves": PerCell(LEAVES, 0, True, ""),
    "sums of tables": TableSums(TABLES, ""),
    "a choice by sums": TableSums(TABLES, "range"),
    "a choice by distance": Distances(GRIDS, 0, ((9, 0), (0,) * 6 + (9,) * 6)),
    "a choice by distance by class": Distances(GRIDS, 2, ((9, 0) * 2, ((0,) * 6 + (9,) * 6) * 2)),
}
LOOSE = {"sums of tables", "a choice by sums"}  # whose bound is of the largest entries, which one row need not have


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", QUERIES)
def test_a_row_moves_what_is_asked_as_far_as_is_declared_and_no_further(name, relation, norm):
    query = QUERIES[name] if QUERIES[name].norm else replace(QUERIES[name], norm=norm)
    kind = "total" if getattr(query, "total", False) else "classes"
    rest, square = REST[kind], query.norm == "l2"
    answers = [query(table([*rest, row], kind)) for row in EVERY[kind]]
    assert all(answer.shape == (query.size,) for answer in answers)
    others = [query(table(rest, kind))] if relation is Relation.ADD_REMOVE else answers
    furthest = max(moved(one, other, query.norm) for one in answers for other in others)
    declared = query.sensitivity(relation)
    assert kind_of(query.purpose) is ReleaseKind.MODEL  # so that a certificate can say it
    assert furthest <= (declared * declared if square else declared)
    least = (declared - 1) ** 2 if square else declared - 1
    assert furthest > (least if name not in LOOSE else least / 4)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_a_plain_loop(name, monkeypatch):
    monkeypatch.setattr("dpserve_platform.outside.queries.AT_ONCE", 64)
    query = replace(QUERIES[name], norm="l1") if not QUERIES[name].norm else QUERIES[name]
    kind = "total" if getattr(query, "total", False) else "classes"
    every = EVERY[kind]
    rows = [every[each] for each in np.random.default_rng(0).integers(0, len(every), 300)]
    found = query(table(rows, kind)).tolist()
    if isinstance(query, TableSums):
        assert found == [
            sum(each.values[row[3] % len(each.values)][row[each.feature]] for row in rows) for each in TABLES
        ]
        return
    plain, distances = [], []
    for at, each in enumerate(query.cells):
        counts = np.zeros((max(1, query.classes), each.size), np.int64)
        for row in rows:
            label = row[3] if query.classes else 0
            counts[label, place_of(each, row)] += row[3] if kind == "total" else 1
        plain += counts.ravel().tolist()
        if isinstance(query, Distances):
            distances.append(int(np.abs(counts.ravel() - query.given[at]).sum()))
    assert found == (distances if isinstance(query, Distances) else plain)


def place_of(cells: Grid | Leaves, row) -> int:
    if isinstance(cells, Grid):
        return int(np.ravel_multi_index([row[at] for at in cells.features], cells.widths))
    node = TREES[LEAVES.index(cells)]
    while isinstance(node, list):
        test, feature, code, yes, no = node
        value = row[feature]
        held = value == code if test == "is" else code < value < WIDTHS[feature] - 1
        node = yes if held else no
    return node
