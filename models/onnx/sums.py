"""Scores that are sums over features, votes and terms alike, as ONNX nodes.

Two classes: constant + TreeEnsembleRegressor(numbers) + LabelEncoder(text) + ...      (integers, exact in float32)
K classes:   constant + TreeEnsembleRegressor(numbers, codes of texts), with K targets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import later
from models.features.features import MISSING_TEXT, CategoricalFeature, Feature, NumericFeature
from models.onnx.nodes import (
    Branch,
    Graph,
    Inputs,
    Namer,
    Walk,
    Weights,
    check_exact,
    coded,
    dictionary,
    regressor,
    tensor,
)
from models.parts.answers import Scores
from models.parts.pairs import PairTerm
from models.parts.released import FeatureSum

if TYPE_CHECKING:
    from onnx import helper
else:
    helper = later("onnx.helper")

Table = Scores | NDArray[np.float64]  # of a feature: (bins, outputs)


def used_by_sums(ensemble: FeatureSum) -> list[int]:
    """Return the positions of the features that move a score (the first one when none does, so that N is known to the
    graph).
    """
    together = {at for pair in ensemble.pairs if pair.largest for at in pair.features}
    alone = moving(ensemble.tables()[0])
    return sorted(together.union(alone))


def moving(tables: Sequence[Scores]) -> list[int]:
    """Return the positions of the tables that hold anything but 0, or the first position where none does."""
    return [i for i, table in enumerate(tables) if table.any()] or [0]


def sum_scores(ensemble: FeatureSum, inputs: Inputs, name: Namer, target: str) -> Graph:
    """Build the nodes that turn raw values into scores: `target` (N, outputs)."""
    beside = pair_votes(ensemble, inputs, name) if any(pair.largest for pair in ensemble.pairs) else None
    return sums(ensemble.features, *ensemble.tables(), inputs, name, target, beside)


def pair_votes(ensemble: FeatureSum, inputs: Inputs, name: Namer) -> Beside:
    """Return what all pairs add: one tree a pair, whose branches ask both features."""
    encoding, found = coded_pairs(ensemble, inputs, name)
    walks = [pair_walk(ensemble.features, pair, pair.table, found) for pair in ensemble.pairs if pair.largest]
    votes = name("pair_votes")
    most = sum(pair.largest for pair in ensemble.pairs)
    return Beside(encoding + Graph((regressor(walks, found.numbers, votes),)), votes, most)


@dataclass(frozen=True)
class Beside:
    """A part of a sum that is in the tensor `votes` (N, outputs) by itself; `most`: its size at most."""

    graph: Graph
    votes: str
    most: int


def sums(
    features: Sequence[Feature],
    tables: list[Scores],
    constant: Scores,
    inputs: Inputs,
    name: Namer,
    target: str,
    beside: Beside | None = None,
) -> Graph:
    """Build the nodes that add up tables (bins, outputs), one per feature, and a constant (outputs,)."""
    more = beside.most if beside else 0
    check_exact(more + int(max(abs(constant) + sum(np.abs(table).max(axis=0) for table in tables))))
    used = {i: tables[i] for i in moving(tables)}
    texts = {i: f for i in used if isinstance(f := features[i], CategoricalFeature)}
    numbers = {i: steps(features[i], table) for i, table in used.items() if i not in texts}
    always = name("constant")
    if len(constant) == 1:
        votes, parts = _one_score(numbers, {i: text_codes(f, used[i][:, 0]) for i, f in texts.items()}, inputs, name)
    else:
        votes, parts = _many_scores(numbers, {i: (f, used[i]) for i, f in texts.items()}, inputs, name)
    if beside:
        votes, parts = votes + beside.graph, [*parts, beside.votes]
    summed = Graph(
        (helper.make_node("Sum", [always, *parts], [target]),),
        (tensor(constant[np.newaxis].astype(np.float32), always),),
    )
    return votes + summed


@dataclass(frozen=True)
class Steps:
    """Votes as a step function of a number: `values[number of edges < v]`, or `missing` for NaN."""

    edges: tuple[float, ...]
    values: tuple[Weights, ...]
    missing: Weights

    def walk(self, column: int) -> Walk:
        """Return the steps as a tree. Its edges end with infinity, which only NaN is not below: missing values reach a
        leaf of their own.
        """
        return balanced(column, (*self.edges, inf), (*self.values, self.missing))


def steps(feature: Feature, table: Table) -> Steps:
    """Return the table (bins, outputs) of a numeric or boolean feature, neighbouring bins of equal votes merged."""
    edges = feature.edges if isinstance(feature, NumericFeature) else (0.5,)
    *votes, missing = map(tuple, table.tolist())
    kept = [j for j, (left, right) in enumerate(pairwise(votes)) if left != right]
    return Steps(tuple(edges[j] for j in kept), (votes[0], *(votes[j + 1] for j in kept)), missing)


def coded_pairs(ensemble: FeatureSum, inputs: Inputs, name: Namer) -> tuple[Graph, Inputs]:
    """Return the texts that pairs ask about as codes beside the numbers: each text its own."""
    asked = {at for pair in ensemble.pairs for at in pair.features}
    texts = {i: f for i in sorted(asked) if isinstance(f := ensemble.features[i], CategoricalFeature)}
    codes = {i: text_codes(f, np.arange(f.bins, dtype=np.float64)) for i, f in texts.items()}
    return coded(inputs, codes, lambda part: name(f"pairs_{part}"))


def pair_walk(features: Sequence[Feature], pair: PairTerm, table: Table, found: Inputs) -> Walk:
    """Return a pair's cells (cells, 1) as a tree: it asks for the group of the first feature, and then of the
    second.
    """
    rows = [tuple(map(tuple, row)) for row in table.reshape(*pair.shape, -1).tolist()]
    first, second = pair.features
    inner = [_grouped(features[second], pair.groups[1], row, found.columns[second]) for row in rows]
    return _grouped(features[first], pair.groups[0], inner, found.columns[first])


def _grouped(feature: Feature, groups: Sequence[int], walks: Sequence[Walk], column: int) -> Walk:
    """Build a tree that leads to the walk of the value's group; neighbouring codes that go the same way are one."""
    of = [walks[group] for group in groups]
    if isinstance(feature, CategoricalFeature):
        ends, missing = halves(len(of)), None
    else:
        ends = feature.edges if isinstance(feature, NumericFeature) else (0.5,)
        *of, missing = of
    kept = [at for at, (left, right) in enumerate(pairwise(of)) if left != right]
    edges, ways = [ends[at] for at in kept], [of[0], *(of[at + 1] for at in kept)]
    if missing is not None and missing != ways[-1]:
        edges, ways = [*edges, inf], [*ways, missing]  # only NaN is not below infinity
    return balanced(column, tuple(edges), tuple(ways))


def balanced(column: int, edges: tuple[float, ...], values: Sequence[Walk]) -> Walk:
    """Return a step function as a tree of least depth: `values[number of edges < v]`."""
    if not edges:
        return values[0]
    middle = len(edges) // 2
    below = balanced(column, edges[:middle], values[: middle + 1])
    above = balanced(column, edges[middle + 1 :], values[middle + 1 :])
    return Branch(column, "BRANCH_LEQ", edges[middle], below, above)


Texts = tuple[dict[str, float], float]  # a number for each text, and for all others


def text_codes(feature: CategoricalFeature, numbers: Table) -> Texts:
    """Return one number per code, as a dictionary."""
    by_code = [*map(float, numbers)]
    listed = {value: by_code[code] for value, code in zip(feature.values, feature.codes, strict=True)}
    return {**listed, MISSING_TEXT: by_code[feature.missing]}, by_code[feature.other]


def _one_score(
    numbers: dict[int, Steps], texts: dict[int, Texts], inputs: Inputs, name: Namer
) -> tuple[Graph, list[str]]:
    parts, nodes = [], []
    if numbers:
        parts.append(name("number_votes"))
        nodes.append(regressor([s.walk(inputs.columns[i]) for i, s in numbers.items()], inputs.numbers, parts[-1]))
    for i, votes in texts.items():
        parts.append(name(f"votes_{i}"))
        nodes.append(dictionary(*votes, inputs.texts[i], parts[-1]))
    return Graph(tuple(nodes)), parts


def _many_scores(
    numbers: dict[int, Steps], texts: dict[int, tuple[CategoricalFeature, Scores]], inputs: Inputs, name: Namer
) -> tuple[Graph, list[str]]:
    """Build the scores of several outputs: texts that vote alike share a code, one more number to walk over."""
    codes, rows = {}, {}
    for i, (feature, table) in texts.items():
        distinct, group = np.unique(table, axis=0, return_inverse=True)
        codes[i] = text_codes(feature, group.reshape(-1))
        rows[i] = tuple(map(tuple, distinct.tolist()))
    encoding, found = coded(inputs, codes, name)
    walks = [shape.walk(found.columns[i]) for i, shape in numbers.items()]
    walks += [balanced(found.columns[i], halves(len(each)), each) for i, each in rows.items()]
    votes = name("votes")
    return encoding + Graph((regressor(walks, found.numbers, votes),)), [votes]


def halves(count: int) -> tuple[float, ...]:
    """Return what lies between the codes 0..count - 1."""
    return tuple(code + 0.5 for code in range(count - 1))
