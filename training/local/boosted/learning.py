"""From a turn's reports to the votes of the next one: post-processing, free."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.forms.registry import ensemble_bytes
from models.forms.voting import VotingEnsemble
from models.votes import Vote
from training.local.boosted.definition import BoostedDefinition
from training.local.boosted.so_far import UNIT, SoFar, read_so_far
from training.local.directions import gains, mean_of_reports

Floats = NDArray[np.float64]
CAP, SUREST = 1.0, 0.95  # of an alpha, and of the edge that it is made of
AT_ONCE = 2  # stumps of a turn: the second best is nearly as good, and a turn has owners to pay for


def ensemble_of(definition: BoostedDefinition, so_far: SoFar) -> VotingEnsemble:
    """The model of these votes: the answer is the sign of F, and log odds are 2 F."""
    return VotingEnsemble(definition.features, definition.target, definition.classes, so_far.votes, 2 / UNIT)


def document_of(definition: BoostedDefinition, so_far: SoFar) -> bytes:
    """What is published after a turn: the ensemble.json so far, by whose digest the log and the auditor go."""
    return ensemble_bytes(ensemble_of(definition, so_far))


def next_document(
    definition: BoostedDefinition, document: bytes, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> bytes:
    """What is published after a turn, from what was before it and the reports (n,) of the owners (n,) of that turn."""
    so_far = read_so_far(document, definition.features)
    return document_of(definition, SoFar((*so_far.votes, *next_votes(definition, owners, reports))))


def next_votes(
    definition: BoostedDefinition, owners: NDArray[np.int64], reports: NDArray[np.int64]
) -> tuple[Vote, ...]:
    """The best stumps by the reports (n,) of owners (n,), drawn from their own vectors; none where noise hides all.

    A report's mean is an unbiased estimate of how far each vote is right in the weights so far, its edge; alpha is
    artanh of it (AdaBoost's), after one standard deviation of the noise, which the choice of the best favours.
    """
    if not len(owners):
        raise InputError("reports: a turn needs at least one")
    seed, basis = bytes.fromhex(definition.seed), definition.basis
    gain = float(gains(basis.dimension, definition.candidates, float(definition.epsilon))[definition.favoured - 1])
    found = mean_of_reports(seed, owners, reports, definition.candidates, basis.dimension, gain)
    edges, spread = found * sqrt(basis.dimension), 1 / (gain * sqrt(len(owners)))
    sure = np.sign(edges) * np.clip(np.abs(edges) - spread, 0, SUREST)
    alphas = np.clip(np.arctanh(sure), -CAP, CAP) / AT_ONCE
    votes = []
    for at in np.argsort(-np.abs(edges), kind="stable")[:AT_ONCE]:
        test, feature, code = ("always", 0, 0) if at == 0 else basis.tests[at - 1]
        votes.append(Vote(test, feature, code, round(float(alphas[at]) * UNIT)))
    return tuple(vote for vote in votes if vote.weight)
