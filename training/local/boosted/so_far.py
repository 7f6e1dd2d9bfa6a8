"""What was learnt before an owner's turn: the voters of an ensemble.json, read without what exports or draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.features import Feature
from models.lines import Line, line_from_json
from models.votes import Vote

Floats = NDArray[np.float64]
UNIT = 1024  # of a weight: a voter of so much has an alpha of 1
NOTHING = b""
Voter = Vote | Line


@dataclass(frozen=True)
class SoFar:
    """Voters, each with its alpha in UNIT: +-1 by the codes of a record. Without voters: before the first turn."""

    voters: tuple[Voter, ...] = ()

    @property
    def log_mass(self) -> float:
        """The logarithm of the mean weight exp(-y F) that voters of these alphas leave: the product of 1 / cosh(alpha),
        for an alpha says how often its voter is right. Public.
        """
        alphas = np.abs([voter.weight / UNIT for voter in self.voters])
        return -float(np.sum(alphas + np.log1p(np.exp(-2 * alphas)) - np.log(2)))

    def margins(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
        """F (n,) of codes, one array (n,) a feature: above 0 for the second class."""
        total = np.zeros(len(codes[0]))
        for voter in self.voters:
            total += voter.weight / UNIT * sides(voter, features, codes)
        return total

    def before_last(self) -> SoFar:
        """Without the newest, of which it is not known yet what it is worth."""
        return SoFar(self.voters[:-1])

    def weighed(self, alpha: float) -> SoFar:
        """With this alpha for the newest, which has to be a line; without it where that comes to nothing."""
        weight, last = round(alpha * UNIT), self.voters[-1]
        return SoFar((*self.voters[:-1], *([replace(last, weight=weight)] if weight > 0 else [])))


def sides(voter: Voter, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
    """+-1 (n,): what a voter says where its weight is above 0."""
    if isinstance(voter, Line):
        return voter.sides(codes).astype(np.float64)
    table = replace(voter, weight=1).table(features[voter.feature].bins)
    return np.asarray(table[codes[voter.feature]], np.float64)


def read_so_far(document: bytes, features: Sequence[Feature]) -> SoFar:
    """Of an ensemble.json of votes or lines for two classes. InputError where it is none."""
    if document == NOTHING:
        return SoFar()
    try:
        body = json.loads(document)
        if body["features"] != [feature.to_json() for feature in features]:
            raise InputError("ensemble: is not of this campaign's features")
        if body["type"] == "lines":
            return SoFar(tuple(line_from_json(each, features) for each in body["lines"]))
        if body["type"] != "voting":
            raise InputError("ensemble: must be of votes or lines")
        votes = [Vote(*each) for each in body["votes"]]
        for vote in votes:
            numbers = vote.feature, vote.code, vote.weight
            known = all(type(each) is int for each in numbers) and vote.test in ("above", "is", "always")
            if not (known and 0 <= vote.feature < len(features) and 0 <= vote.code < features[vote.feature].bins):
                raise InputError("ensemble: has a vote that is none")
        return SoFar(tuple(votes))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"ensemble: cannot be read ({type(error).__name__})") from None
