"""The released voting ensemble: weighted 1-rules over public features. It never sees a row of the training data.

score(x) = sum over votes of weight * (+1 if the vote's test holds on x else -1)

Two classes have one score; K > 2 have one each, and a vote moves the score of its `output` alone. `models.answers` says
what scores mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.errors import ModelInvalid
from models.additive import AdditiveEnsemble, additive_from_json
from models.answers import (
    ClassLabel,
    Range,
    Scores,
    check_head,
    head_from_json,
    labels_of,
    outputs_of,
    probabilities_of,
)
from models.features import Columns, Feature, encode_columns, number_text
from models.trees import Split, TreeEnsemble, holds, trees_from_json

__all__ = ["ClassLabel", "Ensemble", "Test", "Vote", "VotingEnsemble", "describe", "ensemble_from_json", "target_range"]

Test = Literal["above", "is", "always"]


class Ensemble(Protocol):
    """A released model, whatever its form: frozen, public, and the same answer wherever it runs. `classes` is empty
    where it answers a number; such a model has no probabilities (InputError)."""

    @property
    def features(self) -> tuple[Feature, ...]: ...
    @property
    def target(self) -> str: ...
    @property
    def classes(self) -> tuple[ClassLabel, ...]: ...
    @property
    def link(self) -> float: ...
    @property
    def outputs(self) -> int:
        """Scores per record: 1 for two classes or a number, else one per class."""

    def scores(self, columns: Columns) -> NDArray[np.int64]:
        """Raw columns -> scores (n, outputs)."""

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """The same from what `encode_columns` makes of the columns: codes (features, n)."""

    def probabilities(self, columns: Columns) -> NDArray[np.float64]:
        """Raw columns -> (n, classes)."""

    def predict(self, columns: Columns) -> NDArray[Any]:
        """Raw columns -> labels (n,), or values (n,) of a number."""

    def to_json(self) -> dict[str, Any]:
        """The released numbers; `ensemble_from_json` reads them."""


@dataclass(frozen=True)
class Vote:
    """One released 1-rule for one output. `above`: code > `code` of an ordered feature; `is`: code == `code`; `always`:
    constant."""

    test: Test
    feature: int
    code: int
    weight: int
    output: int = 0

    def table(self, bins: int) -> NDArray[np.int64]:
        """What the vote adds for every code of its feature: (bins,) of +-weight. Missing is never `above`."""
        return np.where(holds(self.test, self.code, bins), self.weight, -self.weight).astype(np.int64)


@dataclass(frozen=True)
class VotingEnsemble:
    """A frozen, additive classifier of two classes or more. Scores are exact integers."""

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    votes: tuple[Vote, ...]
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        if any(not 0 <= vote.output < self.outputs for vote in self.votes):
            raise ModelInvalid(f"vote.output: there are {self.outputs} outputs")

    @property
    def outputs(self) -> int:
        return outputs_of(self.classes)

    def tables(self) -> tuple[list[Scores], Scores]:
        """Votes summed per feature and code, (bins, outputs) each, and the constant (outputs,):
        scores = constant + sum_f tables[f][code_f]."""
        tables = [np.zeros((feature.bins, self.outputs), dtype=np.int64) for feature in self.features]
        constant = np.zeros(self.outputs, dtype=np.int64)
        for vote in self.votes:
            if vote.test == "always":
                constant[vote.output] += vote.weight
            else:
                tables[vote.feature][:, vote.output] += vote.table(self.features[vote.feature].bins)
        return tables, constant

    def scores(self, columns: Columns) -> NDArray[np.int64]:
        """Raw columns -> scores (n, outputs)."""
        return self.coded_scores(encode_columns(self.features, columns))

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Codes (features, n) -> scores (n, outputs)."""
        tables, constant = self.tables()
        total = np.tile(constant, (len(codes[0]), 1))
        for table, code in zip(tables, codes, strict=True):
            total += table[code]
        return total

    def probabilities(self, columns: Columns) -> NDArray[np.float64]:
        """(n, classes)."""
        return probabilities_of(self.scores(columns), self.link)

    def predict(self, columns: Columns) -> NDArray[Any]:
        return labels_of(self.classes, self.scores(columns))

    def to_json(self) -> dict[str, Any]:
        """A vote is [test, feature, code, weight], and its output where there are several."""
        return {
            "type": "voting",
            "target": self.target,
            "classes": list(self.classes),
            "link": self.link,
            "features": [feature.to_json() for feature in self.features],
            "votes": [self._vote_to_json(vote) for vote in self.votes],
        }

    def _vote_to_json(self, vote: Vote) -> list[Any]:
        output = [vote.output] if self.outputs > 1 else []
        return [vote.test, vote.feature, vote.code, vote.weight, *output]


def describe(vote: Vote | Split, features: Sequence[Feature]) -> str:
    """The test in words: `age > 27.5`, `education is Bachelors`, `always`."""
    if vote.test == "always":
        return "always"
    feature = features[vote.feature]
    if vote.test == "above" and feature.kind == "numeric":
        return f"{feature.name} > {number_text(feature.edges[vote.code])}"
    return f"{feature.name} is {feature.label(vote.code)}"


def target_range(ensemble: Ensemble) -> Range | None:
    """Of a model that answers a number, the public range that it keeps to; None of one that tells classes apart."""
    return ensemble.target_range if isinstance(ensemble, AdditiveEnsemble) else None


def ensemble_from_json(body: Mapping[str, Any]) -> VotingEnsemble | TreeEnsemble | AdditiveEnsemble:
    """Inverse of `Ensemble.to_json`; anything else raises ModelInvalid."""
    try:
        match body["type"]:
            case "voting":
                return _voting_from_json(body)
            case "trees":
                return trees_from_json(body)
            case "additive":
                return additive_from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"ensemble.json: not a released ensemble ({error})") from error
    raise ModelInvalid(f"type={body['type']!r}: must be 'voting', 'trees' or 'additive'")


def _voting_from_json(body: Mapping[str, Any]) -> VotingEnsemble:
    features, target, classes, link = head_from_json(body, {"votes"})
    length = 4 if outputs_of(classes) == 1 else 5
    if type(body["votes"]) is not list or any(type(vote) is not list or len(vote) != length for vote in body["votes"]):
        raise ModelInvalid(f"votes: lists of {length} values each, as there are {len(classes)} classes")
    votes = tuple(_vote(features, *vote) for vote in body["votes"])
    return VotingEnsemble(features, target, classes, votes, link)


def _vote(features: tuple[Feature, ...], test: Test, feature: int, code: int, weight: int, output: int = 0) -> Vote:
    if {type(feature), type(code), type(weight), type(output)} != {int}:
        raise ModelInvalid(f"vote={[test, feature, code, weight, output]}: all but the test are integers")
    vote = Vote(test, feature, code, weight, output)
    if test == "always":
        return vote
    if not 0 <= vote.feature < len(features):
        raise ModelInvalid(f"vote.feature={feature}: there are {len(features)} features")
    owner = features[vote.feature]
    limit = {"above": owner.cuts, "is": owner.bins}.get(test, 0)
    if not 0 <= vote.code < limit:
        raise ModelInvalid(f"vote {test} {code}: {owner.name} has {limit} such tests")
    return vote
