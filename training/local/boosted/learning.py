"""From a turn's reports to what is published after it: post-processing, free."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.forms.ensemble import Ensemble
from models.forms.lines import LineEnsemble
from models.forms.registry import ensemble_bytes
from models.forms.voting import VotingEnsemble
from models.lines import Line
from models.votes import Vote
from training.local.boosted.definition import BoostedDefinition
from training.local.boosted.lines import Lines
from training.local.boosted.so_far import UNIT, SoFar, read_so_far
from training.local.boosted.stumps import Stumps
from training.local.directions import gains, mean_of_reports

Floats = NDArray[np.float64]
CAP, SUREST = 1.0, 0.95  # of an alpha, and of the edge that it is made of
AT_ONCE = 2  # stumps of a turn: the second best is nearly as good, and a turn has owners to pay for
UNKNOWN = 1  # the weight of a line that was not weighed yet


def ensemble_of(definition: BoostedDefinition, so_far: SoFar) -> Ensemble:
    """The model of these voters: the answer is the sign of F, and log odds are 2 F."""
    head, link = (definition.features, definition.target, definition.classes), 2 / UNIT
    if isinstance(definition.basis, Lines):
        return LineEnsemble(*head, tuple(each for each in so_far.voters if isinstance(each, Line)), link)
    return VotingEnsemble(*head, tuple(each for each in so_far.voters if isinstance(each, Vote)), link)


def next_document(
    definition: BoostedDefinition, turn: int, document: bytes, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> bytes:
    """What is published after a turn: the ensemble.json so far, by whose digest the log and the auditor go.

    Args:
        document: what was published before it.
        owners: who answered in the turn, (n,), at least one.
        reports: what they drew, (n,).
    """
    if not len(owners):
        raise InputError("reports: a turn needs at least one")
    so_far, basis = read_so_far(document, definition.features), definition.basis
    if definition.weighs(turn):
        so_far = so_far.weighed(alpha_of(definition, turn, reports))
    elif isinstance(basis, Lines):
        so_far = SoFar((*so_far.voters, basis.line_of(mean_of(definition, owners, reports)[0], UNKNOWN)))
    else:
        so_far = SoFar((*so_far.voters, *next_votes(basis, *mean_of(definition, owners, reports))))
    return ensemble_bytes(ensemble_of(definition, so_far))


def mean_of(
    definition: BoostedDefinition, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> tuple[Floats, float]:
    """The unbiased estimate (dimension,) of the mean of own vectors, and the deviation of its noise, a number."""
    dimension, candidates = definition.basis.dimension, definition.candidates
    gain = float(gains(dimension, candidates, float(definition.epsilon))[definition.favoured - 1])
    mean = mean_of_reports(bytes.fromhex(definition.seed), owners, reports, candidates, dimension, gain)
    return mean, 1 / (gain * sqrt(len(owners) * dimension))


def alpha_of(definition: BoostedDefinition, turn: int, reports: NDArray[np.int64]) -> float:
    """AdaBoost's alpha of the newest line, at most CAP; not above 0 where it is not right more often than wrong.

    A report is 1 with chance (1 + edge (high - low) / (high + low)) / 2 of the mechanism's two weights, on the average.
    """
    high, low = definition.mechanism_in(turn).weights
    edge = (2 * float(reports.mean()) - 1) * (high + low) / (high - low)
    return min(CAP, float(np.arctanh(np.clip(edge, -SUREST, SUREST))))


def next_votes(basis: Stumps, mean: Floats, deviation: float) -> tuple[Vote, ...]:
    """The best stumps by the mean (dimension,) of own vectors; none where noise hides all.

    The mean is how far each vote is right in the weights so far, its edge, over the root of the dimension; alpha is
    artanh of it (AdaBoost's), after one deviation of the noise, which the choice of the best favours.
    """
    edges, spread = mean * sqrt(basis.dimension), deviation * sqrt(basis.dimension)
    sure = np.sign(edges) * np.clip(np.abs(edges) - spread, 0, SUREST)
    alphas = np.clip(np.arctanh(sure), -CAP, CAP) / AT_ONCE
    votes = []
    for at in np.argsort(-np.abs(edges), kind="stable")[:AT_ONCE]:
        test, feature, code = ("always", 0, 0) if at == 0 else basis.tests[at - 1]
        votes.append(Vote(test, feature, code, round(float(alphas[at]) * UNIT)))
    return tuple(vote for vote in votes if vote.weight)
