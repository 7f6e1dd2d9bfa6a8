"""What is asked of rows under released votes. Kept per output and row is only the state 2 F_k + [y_k = 1], brought up
to date from the votes that are asked about.

Two classes have one output, the score of class 1; K > 2 classes have K outputs, one score each. y_k is +1 where the
label is the class of output k, else -1; F_k is the sum of the votes of output k, and y_k F_k a row's margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.parts.votes import Vote, holds
from training.rows import kernels
from training.rows.partitions.joined import every_code, group_features, join_codes
from training.rows.partitions.partition import Integers, Partition

MEMO = "votes"
JOINT_CODES = 1 << 13  # 64 KiB of sums: more features in a group would cost more cache misses than it saves additions
ONE_BY_ONE = 8  # votes by themselves take as long as one group of features, by table, takes for all of them


@dataclass(frozen=True)
class StateCounts:
    """Rows per state: (outputs, 2 bound + 1, 2), by F_k + bound and whether y_k = 1."""

    votes: Sequence[Vote]
    bound: int

    def __call__(self, part: Partition) -> Integers:
        bound, count = self.bound, kernels.votes.count_states
        states = states_after(part, self.votes, bound)
        return np.stack(
            [count(output_states, 2 * bound, 2 * (2 * bound + 1)).reshape(-1, 2) for output_states in states]
        )


@dataclass(frozen=True)
class SignedSums:
    """Sum over rows of y_k * weights[y_k F_k + bound], per output k, feature and code: (outputs, features, width).
    `weights` (2 bound + 1,); or (outputs, 2, 2 bound + 1), by output and whether y_k = 1 as well.
    """

    votes: Sequence[Vote]
    weights: Integers
    bound: int

    def __call__(self, part: Partition) -> Integers:
        bound, sums = self.bound, kernels.votes.signed_sums
        tables = np.broadcast_to(self.weights, (part.outputs, 2, 2 * bound + 1))
        by_state = [np.stack([-other[::-1], own], axis=1).ravel() for other, own in tables]  # by state + 2 bound
        states = states_after(part, self.votes, bound)
        pairs = [*zip(states, by_state, strict=True)]
        limit = min(JOINT_CODES, part.size)
        if group_features(part.widths, limit)[1].size > len(part.widths):  # each feature by itself
            return np.stack([sums(part.bins, each, part.low, own, 2 * bound, max(part.widths)) for each, own in pairs])
        columns = join_codes(part, every_code(part.widths), limit)
        joint = np.stack([sums(columns.codes, each, 0, own, 2 * bound, columns.groups[2]) for each, own in pairs])
        return np.ascontiguousarray(columns.apart(joint.swapaxes(0, 1)).swapaxes(0, 1))


@dataclass
class _Known:
    """Kept in `memo`: of each output the states, what |F_k| is at most whatever the rows, and the votes in them."""

    states: list[NDArray[Any]] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    votes: tuple[Vote, ...] | None = None


def states_after(part: Partition, votes: Sequence[Vote], bound: int) -> list[NDArray[Any]]:
    """Return, of each output, the states of the rows after these votes. InputError where `bound` is less than the total
    weight of an output's.
    """
    progress: _Known = part.memo.pop(MEMO, None) or _Known()  # what an exception leaves half done is not found again
    if progress.votes is None or tuple(votes[: len(progress.votes)]) != progress.votes:
        first = 1 if part.outputs == 1 else 0
        progress.states = [(part.labels == output + first).astype(np.int16) for output in range(part.outputs)]
        progress.totals, progress.votes = [0] * part.outputs, ()
    ahead = votes[len(progress.votes) :]
    for vote in ahead:
        progress.totals[vote.output] += abs(vote.weight)
    for output, total in enumerate(progress.totals):
        progress.states[output] = progress.states[output].astype(_state_dtype(total), copy=False)
    if max(progress.totals) > bound:
        raise InputError(f"bound={bound}: must be at least the total weight of the votes of an output")
    for output, states in enumerate(progress.states):
        _advance(part, [vote for vote in ahead if vote.output == output], states)
    progress.votes = (*progress.votes, *ahead)  # and not `votes` anew: it hands them out one by one
    part.memo[MEMO] = progress
    return progress.states


def _advance(part: Partition, votes: Sequence[Vote], states: NDArray[Any]) -> None:
    """Apply votes to the states of their output: few one by one, many in one pass."""
    groups = group_features(part.widths, min(JOINT_CODES, part.size))
    passes = [_passing(part, vote) for vote in votes]
    if len(votes) <= ONE_BY_ONE * (groups[1].size - 1):
        for vote, (low, high) in zip(votes, passes, strict=True):
            codes, change = part.codes(vote.feature), states.dtype.type(2 * vote.weight)
            kernels.votes.advance(codes, codes.dtype.type(low), codes.dtype.type(high), change, states)
        return
    changes = [np.zeros(width, np.int64) for width in part.widths]
    for vote, (low, high) in zip(votes, passes, strict=True):
        changes[vote.feature] -= 2 * vote.weight
        changes[vote.feature][low : high + 1] += 4 * vote.weight
    members, starts, entries = groups
    joint = np.zeros((starts.size - 1, entries), states.dtype)
    for group_changes, (first, end) in zip(joint, pairwise(starts), strict=True):
        joint_changes = reduce(np.add.outer, [changes[member] for member in members[first:end]]).ravel()
        group_changes[: joint_changes.size] = joint_changes
    kernels.votes.advance_all(part.bins, part.low, joint, np.array(part.widths, np.int64), groups, states)


def _passing(part: Partition, vote: Vote) -> tuple[int, int]:
    """Return the lowest and the highest code that pass: neighbouring ones; (1, 0) where none does."""
    passes = np.flatnonzero(holds(vote.test, vote.code, part.widths[vote.feature]))
    return (int(passes[0]), int(passes[-1])) if passes.size else (1, 0)


def _state_dtype(total: int) -> type[np.signedinteger[Any]]:
    """Return the smallest integers that hold 2 F + 1 for every |F| <= total."""
    for dtype in (np.int16, np.int32, np.int64):
        if 2 * total + 1 <= np.iinfo(dtype).max:
            return dtype
    raise InputError(f"votes: a total weight of {total} does not fit into 64 bits")
