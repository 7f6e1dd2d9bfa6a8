"""The released voting ensemble: weighted 1-rules over public features. It never sees a row of the training data.

score(x) = sum over votes of weight * (+1 if the vote's test holds on x else -1)
label(x) = classes[1] if score(x) > 0 else classes[0]          (a tie is class 0, publicly)
p(classes[1] | x) = 1 / (1 + exp(-link * score(x)))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.errors import ModelInvalid
from models.features import Columns, Feature, encodable, encode_columns, feature_from_json, number_text

Test = Literal["above", "is", "always"]
ClassLabel = str | int


@dataclass(frozen=True)
class Vote:
    """One released 1-rule. `above`: code > `code` of an ordered feature; `is`: code == `code`; `always`: constant."""

    test: Test
    feature: int
    code: int
    weight: int

    def table(self, bins: int) -> NDArray[np.int64]:
        """What the vote adds for every code of its feature: (bins,) of +-weight. Missing is never `above`."""
        codes = np.arange(bins)
        match self.test:
            case "above":
                holds = (codes > self.code) & (codes < bins - 1)
            case "is":
                holds = codes == self.code
            case "always":
                holds = np.ones(bins, dtype=bool)
        return np.where(holds, self.weight, -self.weight).astype(np.int64)


@dataclass(frozen=True)
class VotingEnsemble:
    """A frozen, additive, binary classifier. Scores are exact integers."""

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ClassLabel]
    votes: tuple[Vote, ...]
    link: float

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        if not names or len(set(names)) != len(names):
            raise ModelInvalid(f"features={names}: at least one, each name once")
        if self.classes[0] == self.classes[1] or not (_all_texts(self.classes) or _all_integers(self.classes)):
            raise ModelInvalid(f"classes={self.classes}: two different texts, or two different 64-bit integers")
        if not 0 < self.link < inf:
            raise ModelInvalid(f"link={self.link}: must be > 0 and finite")

    def tables(self) -> tuple[list[NDArray[np.int64]], int]:
        """Votes summed per feature and code, and the constant: score = constant + sum_f tables[f][code_f]."""
        tables = [np.zeros(feature.bins, dtype=np.int64) for feature in self.features]
        constant = 0
        for vote in self.votes:
            if vote.test == "always":
                constant += vote.weight
            else:
                tables[vote.feature] += vote.table(self.features[vote.feature].bins)
        return tables, constant

    def scores(self, columns: Columns) -> NDArray[np.int64]:
        """Raw columns -> scores (n,)."""
        tables, constant = self.tables()
        codes = encode_columns(self.features, columns)
        total = np.full(len(codes[0]), constant, dtype=np.int64)
        for table, code in zip(tables, codes, strict=True):
            total += table[code]
        return total

    def probabilities(self, columns: Columns) -> NDArray[np.float64]:
        """(n, 2): p(class 0), p(class 1)."""
        positive = (1.0 + np.tanh(self.link / 2 * self.scores(columns))) / 2  # the same number; exp() would overflow
        return np.column_stack([1.0 - positive, positive])

    def predict(self, columns: Columns) -> NDArray[Any]:
        return np.asarray(self.classes)[(self.scores(columns) > 0).astype(np.intp)]

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "voting",
            "target": self.target,
            "classes": list(self.classes),
            "link": self.link,
            "features": [feature.to_json() for feature in self.features],
            "votes": [[vote.test, vote.feature, vote.code, vote.weight] for vote in self.votes],
        }


def _all_texts(classes: Sequence[ClassLabel]) -> bool:
    return all(type(label) is str and encodable(label) for label in classes)


def _all_integers(classes: Sequence[ClassLabel]) -> bool:
    return all(type(label) is int and abs(label) < 1 << 63 for label in classes)


def describe(vote: Vote, features: Sequence[Feature]) -> str:
    """The vote's test in words: `age > 27.5`, `education is Bachelors`, `always`."""
    if vote.test == "always":
        return "always"
    feature = features[vote.feature]
    if vote.test == "above" and feature.kind == "numeric":
        return f"{feature.name} > {number_text(feature.edges[vote.code])}"
    return f"{feature.name} is {feature.label(vote.code)}"


def ensemble_from_json(body: Mapping[str, Any]) -> VotingEnsemble:
    """Inverse of `VotingEnsemble.to_json`; anything else raises ModelInvalid."""
    try:
        if body["type"] != "voting":
            raise ModelInvalid(f"type={body['type']!r}: only 'voting' is known")
        features = tuple(feature_from_json(feature) for feature in body["features"])
        votes = tuple(_vote(features, *vote) for vote in body["votes"])
        first, second = body["classes"]
        return VotingEnsemble(features, str(body["target"]), (first, second), votes, float(body["link"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"ensemble.json: not a released ensemble ({error})") from error


def _vote(features: tuple[Feature, ...], test: Test, feature: int, code: int, weight: int) -> Vote:
    if {type(feature), type(code), type(weight)} != {int}:
        raise ModelInvalid(f"vote={[test, feature, code, weight]}: feature, code and weight are integers")
    vote = Vote(test, feature, code, weight)
    if test == "always":
        return vote
    if not 0 <= vote.feature < len(features):
        raise ModelInvalid(f"vote.feature={feature}: there are {len(features)} features")
    owner = features[vote.feature]
    limit = {"above": owner.cuts, "is": owner.bins}.get(test, 0)
    if not 0 <= vote.code < limit:
        raise ModelInvalid(f"vote {test} {code}: {owner.name} has {limit} such tests")
    return vote
