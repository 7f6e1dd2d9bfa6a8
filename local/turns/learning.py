"""From a turn's reports to what is published after it: post-processing, free."""

from __future__ import annotations

from dataclasses import replace
from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from local.reports.corners import corners
from local.reports.directions import gains, mean_of_reports
from local.turns.definition import BoostedDefinition
from local.turns.lines import Lines
from local.turns.so_far import UNIT, SoFar, Stump, Voter, read_so_far
from local.turns.stumps import Stumps
from models.forms.ensemble import Ensemble
from models.forms.lines import LineEnsemble
from models.forms.registry import ensemble_bytes
from models.forms.voting import VotingEnsemble
from models.parts.lines import Choice, Line
from models.parts.votes import Test, Vote

Floats = NDArray[np.float64]
CAP, SUREST = 1.0, 0.95  # of an alpha, and of the edge that it is made of
AT_ONCE = 2  # stumps of a turn: the second best is nearly as good, and a turn has owners to pay for
ALWAYS: tuple[Test, int, int] = ("always", 0, 0)
UNKNOWN = 1  # the weight of a line that was not weighed yet


def ensemble_of(definition: BoostedDefinition, so_far: SoFar) -> Ensemble:
    """Make the model of these voters: the answer is the class of the highest F, and log odds are 2 F."""
    head, link = (definition.features, definition.target, definition.classes), 2 / UNIT
    if isinstance(definition.basis, Lines):
        return LineEnsemble(*head, tuple(voter for voter in so_far.voters if isinstance(voter, Line | Choice)), link)
    votes = [voter.votes() if isinstance(voter, Stump) else (voter,) for voter in so_far.voters]
    return VotingEnsemble(*head, tuple(vote for of in votes for vote in of if isinstance(vote, Vote)), link)


def next_document(
    definition: BoostedDefinition, turn: int, document: bytes, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> bytes:
    """Make what is published after a turn: the ensemble.json so far, by whose digest the log and the auditor go.

    Args:
        document: what was published before it.
        owners: who answered in the turn, (n,), at least one.
        reports: what they drew, (n,).
    """
    if not len(owners):
        raise InputError("reports: a turn needs at least one")
    so_far = read_so_far(document, definition.features, definition.classes)
    if definition.weighs(turn):
        so_far = so_far.with_alpha(alpha_of(definition, turn, float(reports.mean())))
    else:
        so_far = with_next_voters(definition, so_far, *mean_of(definition, owners, reports))
    return ensemble_bytes(ensemble_of(definition, so_far))


def with_next_voters(definition: BoostedDefinition, so_far: SoFar, mean: Floats, deviation: float) -> SoFar:
    """Add what a turn has learnt from the mean (dimension,) of own vectors, which has noise of this deviation."""
    classes, basis = len(definition.classes), definition.basis
    voters: tuple[Voter, ...]
    if isinstance(basis, Lines):
        voters = (basis.line_of(mean, UNKNOWN, classes),)
    else:
        voters = next_votes(basis, mean, deviation) if classes == 2 else next_stumps(basis, mean, deviation, classes)
    return replace(so_far, voters=(*so_far.voters, *voters))


def mean_of(
    definition: BoostedDefinition, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> tuple[Floats, float]:
    """Estimate the mean (dimension,) of own vectors without bias, and the deviation of its noise."""
    dimension, candidates = definition.dimension, definition.candidates
    gain = float(gains(dimension, candidates, float(definition.epsilon))[definition.favoured - 1])
    mean = mean_of_reports(bytes.fromhex(definition.seed), owners, reports, candidates, dimension, gain)
    return mean, 1 / (gain * sqrt(len(owners) * dimension))


def half_log_odds(edge: float, classes: int) -> float:
    """Compute half of SAMME's alpha, at most CAP: log((1 + (K - 1) edge) / (1 - edge)) / 2 for a voter whose edge is
    (K r - 1) / (K - 1), where r is how often it is right. For two classes this is artanh(edge), as in AdaBoost. 0
    where the edge is not above 0.
    """
    sure = min(max(edge, 0.0), SUREST)
    return min(CAP, (log1p((classes - 1) * sure) - log1p(-sure)) / 2)


def alpha_of(definition: BoostedDefinition, turn: int, ones: float) -> float:
    """Return the alpha of the newest line, at most CAP, by the share of reports that are 1; 0 where it is not right
    more often than a guess is.

    A report is 1 with chance (1 + (2 r - 1) (high - low) / (high + low)) / 2 of the mechanism's two weights, on the
    average, r how often the line is right in the weights.
    """
    high, low = definition.mechanism_in(turn).weights
    share_right, wide = (1 + (2 * ones - 1) * (high + low) / (high - low)) / 2, definition.wide
    return half_log_odds(((wide + 1) * share_right - 1) / wide, wide + 1)


def next_votes(basis: Stumps, mean: Floats, deviation: float) -> tuple[Vote, ...]:
    """Find the best stumps of two classes by the mean (dimension,) of own vectors; none where noise hides all.

    The mean is how far each vote is right in the weights so far, its edge, over the root of the dimension; alpha is
    after one deviation of the noise, which the choice of the best favours.
    """
    edges, spread = mean * sqrt(len(mean)), deviation * sqrt(len(mean))
    votes = []
    for at in np.argsort(-np.abs(edges), kind="stable")[:AT_ONCE]:
        test, feature, code = ALWAYS if at == 0 else basis.tests[at - 1]
        alpha = half_log_odds(float(np.abs(edges[at]) - spread), 2) / AT_ONCE
        votes.append(Vote(test, feature, code, round(float(np.sign(edges[at])) * alpha * UNIT)))
    return tuple(vote for vote in votes if vote.weight)


def next_stumps(basis: Stumps, mean: Floats, deviation: float, classes: int) -> tuple[Stump, ...]:
    """Do the same for three classes or more: of each test the class to vote for where it holds, and elsewhere.

    Of the mean, q_0 is of everybody and q_j of a test, over the root of how many these are. A stump for class a where
    test j holds and b elsewhere has the edge ((q_0 + q_j) . a + (q_0 - q_j) . b) / 2, a and b corners, and, whatever
    they are, the noise of one number: |a + b|^2 + |a - b|^2 = 4.
    """
    tests = len(basis.tests) + 1
    along = mean.reshape(tests, classes - 1) @ corners(classes).T * sqrt(tests)
    where, elsewhere = along[0] + along, along[0] - along  # of everybody, the second is 0
    edges, spread = (where.max(axis=1) + elsewhere.max(axis=1)) / 2, deviation * sqrt(tests)
    stumps = []
    for at in np.argsort(-edges, kind="stable")[:AT_ONCE]:
        test, feature, code = ALWAYS if at == 0 else basis.tests[at - 1]
        first = int(where[at].argmax())
        second = first if at == 0 else int(elsewhere[at].argmax())
        weight = 2 * round(half_log_odds(float(edges[at] - spread), classes) / AT_ONCE * UNIT / 2)
        stumps.append(Stump(test, feature, code, weight, first, second))
    return tuple(stump for stump in stumps if stump.weight)
