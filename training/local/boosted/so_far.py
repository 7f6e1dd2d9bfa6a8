"""What was learnt before an owner's turn: the votes of an ensemble.json, read without what exports or draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.features import Feature
from models.votes import Vote

Floats = NDArray[np.float64]
UNIT = 1024  # of a weight: a vote of so much is an alpha of 1
NOTHING = b""


@dataclass(frozen=True)
class SoFar:
    """Votes: +-1 by the codes of a record, each with its alpha. Without votes: before the first turn."""

    votes: tuple[Vote, ...] = ()

    @property
    def log_mass(self) -> float:
        """The logarithm of the mean weight exp(-y F) that votes of these alphas leave: the product of 1 / cosh(alpha),
        for an alpha says how often its vote is right. Public.
        """
        return -float(sum(np.log(np.cosh(vote.weight / UNIT)) for vote in self.votes))

    def margins(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
        """F (n,) of codes, one array (n,) a feature: above 0 for the second class."""
        total = np.zeros(len(codes[0]))
        for vote in self.votes:
            total += vote.table(features[vote.feature].bins)[codes[vote.feature]] / UNIT
        return total


def read_so_far(document: bytes, features: Sequence[Feature]) -> SoFar:
    """Of an ensemble.json with a score for two classes. InputError where it is none."""
    if document == NOTHING:
        return SoFar()
    try:
        body = json.loads(document)
        if body["type"] != "voting" or body["features"] != [feature.to_json() for feature in features]:
            raise InputError("ensemble: is not of this campaign's features")
        votes = [Vote(*each) for each in body["votes"]]
        for vote in votes:
            numbers = vote.feature, vote.code, vote.weight
            known = all(type(each) is int for each in numbers) and vote.test in ("above", "is", "always")
            if not (known and 0 <= vote.feature < len(features) and 0 <= vote.code < features[vote.feature].bins):
                raise InputError("ensemble: has a vote that is none")
        return SoFar(tuple(votes))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"ensemble: cannot be read ({type(error).__name__})") from None
