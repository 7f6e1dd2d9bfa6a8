"""What was learnt before an owner's turn: the voters of an ensemble.json, read without what exports or draws.

Every voter answers a class, and an answer is that class's corner: +-1 of two classes. What is here of K classes is of
two the same formulas, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from local.reports.corners import corners
from models.features.features import Feature
from models.parts.lines import Choice, Line, line_from_json
from models.parts.votes import Test, Vote, holds

Floats = NDArray[np.float64]
UNIT = 1024  # of a weight: a voter of so much has an alpha of 1
HEAVIEST = 1 << 31  # of a voter's weight; an alpha is at most 1
MAX_VOTERS = 1 << 12
NOTHING = b""


@dataclass(frozen=True)
class Stump:
    """Of three classes or more: votes `weight`, which is even, for class `holds` where its test holds, else for class
    `fails`.
    """

    test: Test
    feature: int
    code: int
    weight: int
    holds: int
    fails: int

    def votes(self) -> tuple[Vote, ...]:
        """Return the votes of the voting form, which adds a vote where a test holds and takes as much away where it
        does not.
        """
        asks, half = (self.test, self.feature, self.code), self.weight // 2
        return (
            Vote(*asks, half, self.holds),
            Vote(*asks, -half, self.fails),
            Vote("always", 0, 0, half, self.holds),
            Vote("always", 0, 0, half, self.fails),
        )


Voter = Vote | Line | Stump | Choice


@dataclass(frozen=True)
class SoFar:
    """Voters, each with its alpha in UNIT: the class of a record by its codes. Without voters: before the first
    turn. `classes`: how many there are.
    """

    voters: tuple[Voter, ...] = ()
    classes: int = 2

    @property
    def log_mass(self) -> float:
        """Compute the logarithm of the mean weight exp(-y F) that voters of these alphas leave. The mean weight is the
        product, over the voters, of K exp(a / K) / (exp(a) + K - 1), where a is twice an alpha, since an alpha says
        how often its voter is right; for two classes each factor is 1 / cosh(alpha). The result is public.
        """
        twice, rest = 2 * np.abs([voter.weight / UNIT for voter in self.voters]), self.classes - 1
        parts = np.log(self.classes) - twice * rest / self.classes - np.log1p(rest * np.exp(-twice))
        return float(np.sum(parts))

    def margins(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
        """Compute F (n, K - 1) of codes, one array (n,) a feature: the product with a class's corner is how far that
        class is above the mean of all, as a logarithm; of two classes F is above 0 for the second.
        """
        total = np.zeros((len(codes[0]), self.classes - 1))
        for voter in self.voters:
            part = 2 * (self.classes - 1) / self.classes
            total += part * voter.weight / UNIT * sides(voter, features, codes, self.classes)
        return total

    def before_last(self) -> SoFar:
        """Return the ensemble without the newest voter, whose worth is not known yet."""
        return replace(self, voters=self.voters[:-1])

    def with_alpha(self, alpha: float) -> SoFar:
        """Return the ensemble with this alpha for the newest voter, a line; without that voter where it comes to
        nothing.
        """
        weight, last = round(alpha * UNIT), self.voters[-1]
        newest = [replace(last, weight=weight)] if weight > 0 else []
        return replace(self, voters=(*self.voters[:-1], *newest))


def sides(voter: Voter, features: Sequence[Feature], codes: Sequence[NDArray[Any]], classes: int = 2) -> Floats:
    """Return the corners (n, K - 1) of the classes that a voter says, where its weight is above 0: +-1 of two."""
    if isinstance(voter, Choice):
        return corners(classes)[voter.chosen_classes(codes)]
    if isinstance(voter, Stump):
        hold = holds(voter.test, voter.code, features[voter.feature].bins)[codes[voter.feature]]
        return corners(classes)[np.where(hold, voter.holds, voter.fails)]
    if isinstance(voter, Line):
        return voter.sides(codes).astype(np.float64)[:, np.newaxis]
    table = replace(voter, weight=1).table(features[voter.feature].bins)
    return np.asarray(table[codes[voter.feature]], np.float64)[:, np.newaxis]


def read_so_far(document: bytes, features: Sequence[Feature], classes: Sequence[object] = ("", "")) -> SoFar:
    """Read an ensemble.json of votes or lines for these classes. InputError where it is none."""
    count = len(classes)
    if document == NOTHING:
        return SoFar((), count)
    try:
        body = json.loads(document)
        if body["features"] != [feature.to_json() for feature in features]:
            raise InputError("ensemble: is not of this campaign's features")
        if len(body["classes"]) != count:
            raise InputError(f"ensemble: must tell {count} classes apart")
        if body["type"] == "lines":
            return _check_weights(SoFar(tuple(line_from_json(line, features, count) for line in body["lines"]), count))
        if body["type"] != "voting":
            raise InputError("ensemble: must be of votes or lines")
        votes = [Vote(*line) for line in body["votes"]]
        for vote in votes:
            numbers = vote.feature, vote.code, vote.weight, vote.output
            is_valid = all(type(line) is int for line in numbers) and vote.test in ("above", "is", "always")
            is_valid = is_valid and 0 <= vote.output < (1 if count == 2 else count)
            if not (is_valid and 0 <= vote.feature < len(features) and 0 <= vote.code < features[vote.feature].bins):
                raise InputError("ensemble: has a vote that is none")
        return _check_weights(SoFar(tuple(votes if count == 2 else _stumps_of_votes(votes)), count))
    except InputError:
        raise
    except Exception as error:  # of a stranger's making, read before any row is looked at
        raise InputError(f"ensemble: cannot be read ({type(error).__name__})") from None


def _check_weights(so_far: SoFar) -> SoFar:
    """Raise InputError where a voter weighs more than any ever does: its logarithms stay finite for all owners'
    rows.
    """
    if any(abs(voter.weight) > HEAVIEST for voter in so_far.voters) or len(so_far.voters) > MAX_VOTERS:
        raise InputError(f"ensemble: has a voter that weighs more than {HEAVIEST}, or more than {MAX_VOTERS} voters")
    return so_far


def _stumps_of_votes(votes: list[Vote]) -> list[Stump]:
    """Return the stumps that these votes are made of; InputError where they are of none."""
    stumps = []
    for start in range(0, len(votes), 4):
        first, *rest = votes[start : start + 4]
        fails = rest[0].output if rest else 0
        stump = Stump(first.test, first.feature, first.code, 2 * first.weight, first.output, fails)
        if list(stump.votes()) != [first, *rest] or stump.weight <= 0:
            raise InputError("ensemble: has votes that are no stump's")
        stumps.append(stump)
    return stumps
