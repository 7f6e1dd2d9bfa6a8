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

from accountant.errors import InputError
from local.reports.corners import corners
from models.features.features import Feature
from models.parts.lines import Choice, Line, line_from_json
from models.parts.votes import Test, Vote, holds

Floats = NDArray[np.float64]
UNIT = 1024  # of a weight: a voter of so much has an alpha of 1
HEAVIEST = 1 << 31  # of a voter's weight; an alpha is at most 1
MOST_VOTERS = 1 << 12
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
        """As the voting form has it, which adds a vote where a test holds and takes as much away where it does not."""
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
        """The logarithm of the mean weight exp(-y F) that voters of these alphas leave: the product of
        K exp(a / K) / (exp(a) + K - 1), a twice an alpha, for an alpha says how often its voter is right; of two
        classes 1 / cosh(alpha). Public.
        """
        twice, rest = 2 * np.abs([voter.weight / UNIT for voter in self.voters]), self.classes - 1
        parts = np.log(self.classes) - twice * rest / self.classes - np.log1p(rest * np.exp(-twice))
        return float(np.sum(parts))

    def margins(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
        """F (n, K - 1) of codes, one array (n,) a feature: the product with a class's corner is how far that class is
        above the mean of all, as a logarithm; of two classes F is above 0 for the second.
        """
        total = np.zeros((len(codes[0]), self.classes - 1))
        for voter in self.voters:
            part = 2 * (self.classes - 1) / self.classes
            total += part * voter.weight / UNIT * sides(voter, features, codes, self.classes)
        return total

    def before_last(self) -> SoFar:
        """Without the newest, of which it is not known yet what it is worth."""
        return replace(self, voters=self.voters[:-1])

    def weighed(self, alpha: float) -> SoFar:
        """With this alpha for the newest, which has to be a line; without it where that comes to nothing."""
        weight, last = round(alpha * UNIT), self.voters[-1]
        kept = [replace(last, weight=weight)] if weight > 0 else []
        return replace(self, voters=(*self.voters[:-1], *kept))


def sides(voter: Voter, features: Sequence[Feature], codes: Sequence[NDArray[Any]], classes: int = 2) -> Floats:
    """Corners (n, K - 1) of the classes that a voter says, where its weight is above 0: +-1 of two."""
    if isinstance(voter, Choice):
        return corners(classes)[voter.chosen(codes)]
    if isinstance(voter, Stump):
        hold = holds(voter.test, voter.code, features[voter.feature].bins)[codes[voter.feature]]
        return corners(classes)[np.where(hold, voter.holds, voter.fails)]
    if isinstance(voter, Line):
        return voter.sides(codes).astype(np.float64)[:, np.newaxis]
    table = replace(voter, weight=1).table(features[voter.feature].bins)
    return np.asarray(table[codes[voter.feature]], np.float64)[:, np.newaxis]


def read_so_far(document: bytes, features: Sequence[Feature], classes: Sequence[object] = ("", "")) -> SoFar:
    """Of an ensemble.json of votes or lines for these classes. InputError where it is none."""
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
            return _checked(SoFar(tuple(line_from_json(each, features, count) for each in body["lines"]), count))
        if body["type"] != "voting":
            raise InputError("ensemble: must be of votes or lines")
        votes = [Vote(*each) for each in body["votes"]]
        for vote in votes:
            numbers = vote.feature, vote.code, vote.weight, vote.output
            known = all(type(each) is int for each in numbers) and vote.test in ("above", "is", "always")
            known = known and 0 <= vote.output < (1 if count == 2 else count)
            if not (known and 0 <= vote.feature < len(features) and 0 <= vote.code < features[vote.feature].bins):
                raise InputError("ensemble: has a vote that is none")
        return _checked(SoFar(tuple(votes if count == 2 else _stumps(votes)), count))
    except InputError:
        raise
    except Exception as error:  # of a stranger's making, read before any row is looked at
        raise InputError(f"ensemble: cannot be read ({type(error).__name__})") from None


def _checked(found: SoFar) -> SoFar:
    """InputError where a voter weighs more than any ever does: its logarithms stay finite for all owners' rows."""
    if any(abs(voter.weight) > HEAVIEST for voter in found.voters) or len(found.voters) > MOST_VOTERS:
        raise InputError(f"ensemble: has a voter that weighs more than {HEAVIEST}, or more than {MOST_VOTERS} voters")
    return found


def _stumps(votes: list[Vote]) -> list[Stump]:
    """The stumps of which these are the votes; InputError where they are of none."""
    found = []
    for start in range(0, len(votes), 4):
        first, *others = votes[start : start + 4]
        fails = others[0].output if others else 0
        stump = Stump(first.test, first.feature, first.code, 2 * first.weight, first.output, fails)
        if list(stump.votes()) != [first, *others] or stump.weight <= 0:
            raise InputError("ensemble: has votes that are no stump's")
        found.append(stump)
    return found
