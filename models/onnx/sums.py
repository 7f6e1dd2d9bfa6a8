"""Scores that are sums over features, votes and terms alike, as ONNX nodes.

Two classes: constant + TreeEnsembleRegressor(numbers) + LabelEncoder(text) + ...      (integers, exact in float32)
K classes:   constant + TreeEnsembleRegressor(numbers, codes of texts), with K targets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from models.answers import Scores
from models.features import MISSING_TEXT, CategoricalFeature, Feature, NumericFeature
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
from models.released import FeatureSum

Table = Scores | NDArray[np.float64]  # of a feature: (bins, outputs)


def used_by_sums(ensemble: FeatureSum) -> list[int]:
    """Positions of the features that move a score (the first one when none does, so that N is known to the graph)."""
    return moving(ensemble.tables()[0])


def moving(tables: Sequence[Scores]) -> list[int]:
    """Positions of the tables that hold anything but 0, or the first one."""
    return [i for i, table in enumerate(tables) if table.any()] or [0]


def sum_scores(ensemble: FeatureSum, inputs: Inputs, name: Namer, target: str) -> Graph:
    """Raw values -> `target` (N, outputs)."""
    return sums(ensemble.features, *ensemble.tables(), inputs, name, target)


def sums(
    features: Sequence[Feature], tables: list[Scores], constant: Scores, inputs: Inputs, name: Namer, target: str
) -> Graph:
    """The same of tables (bins, outputs), one a feature, and a constant (outputs,)."""
    check_exact(int(max(abs(constant) + sum(np.abs(table).max(axis=0) for table in tables))))
    used = {i: tables[i] for i in moving(tables)}
    texts = {i: f for i in used if isinstance(f := features[i], CategoricalFeature)}
    numbers = {i: steps(features[i], table) for i, table in used.items() if i not in texts}
    always = name("constant")
    if len(constant) == 1:
        votes, parts = _one_score(numbers, {i: text_codes(f, used[i][:, 0]) for i, f in texts.items()}, inputs, name)
    else:
        votes, parts = _many_scores(numbers, {i: (f, used[i]) for i, f in texts.items()}, inputs, name)
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
        """Its edges end with infinity, which only NaN is not below: missing values reach a leaf of their own."""
        return balanced(column, (*self.edges, inf), (*self.values, self.missing))


def steps(feature: Feature, table: Table) -> Steps:
    """The table (bins, outputs) of a numeric or boolean feature, neighbouring bins of equal votes merged."""
    edges = feature.edges if isinstance(feature, NumericFeature) else (0.5,)
    *votes, missing = map(tuple, table.tolist())
    kept = [j for j, (left, right) in enumerate(pairwise(votes)) if left != right]
    return Steps(tuple(edges[j] for j in kept), (votes[0], *(votes[j + 1] for j in kept)), missing)


def balanced(column: int, edges: tuple[float, ...], values: tuple[Weights, ...]) -> Walk:
    """A step function as a tree of least depth: `values[number of edges < v]`."""
    if not edges:
        return values[0]
    middle = len(edges) // 2
    below = balanced(column, edges[:middle], values[: middle + 1])
    above = balanced(column, edges[middle + 1 :], values[middle + 1 :])
    return Branch(column, "BRANCH_LEQ", edges[middle], below, above)


Texts = tuple[dict[str, float], float]  # a number for each text, and for all others


def text_codes(feature: CategoricalFeature, numbers: Table) -> Texts:
    """One number per code, as a dictionary."""
    *listed, other, missing = map(float, numbers)
    return {**dict(zip(feature.values, listed, strict=True)), MISSING_TEXT: missing}, other


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
    """Texts that vote alike share a code; a code is one more number to walk over."""
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
    """What lies between the codes 0..count - 1."""
    return tuple(code + 0.5 for code in range(count - 1))
