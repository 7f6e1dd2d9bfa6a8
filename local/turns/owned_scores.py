"""What an owner draws by in its turn: from rows to the scores of one of K. Pure, and the same for one owner or many.

A simulation of a whole campaign is: `scores_in` of a turn's owners, `definition.mechanism_in(turn).draw` of them,
`local.turns.learning.next_document` of the reports, and so on, turn after turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from local.reports.corners import as_corners
from local.reports.directions import directions, scores
from local.turns.definition import BoostedDefinition
from local.turns.so_far import SoFar, sides
from local.turns.weights import Floats, coins, turn_into_directions, weigh_rows


def check_turn(definition: BoostedDefinition, turn: int, so_far: SoFar) -> None:
    """Raise InputError where a turn that weighs has no voter to weigh. Public: no owner's row has a part in it."""
    if definition.weighs(turn) and not so_far.voters:
        raise InputError(f"turn {turn}: has no voter to weigh")


def scores_in(
    definition: BoostedDefinition, turn: int, codes: Sequence[NDArray[Any]], y: Floats, rows: NDArray[np.int64],
    so_far: SoFar, owners: NDArray[np.int64], fits: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:  # fmt: skip
    """Compute the scores (owners, K) of owners of these numbers (owners,), who hold `rows` (owners,) rows each, one by
    one; of an owner of whose rows too few fit those of no rows.

    Where a turn learns, the scores are how near each of an owner's public vectors is to its own. Where it weighs, they
    are 0 and 1: whether the newest voter is right on the owner's rows, by a public coin of its share of them.

    Args:
        codes: one array (n,) a feature.
        y: labels as corners (n, K - 1); of two classes (n,), -1 or 1.
        so_far: what was published before the turn; `check_turn` has found it good for that.
        fits: which rows count (n,); None: all of them.
    """
    own = own_answers(definition, turn, codes, y, rows, so_far, owners, fits)
    if definition.weighs(turn):
        return np.stack([~own, own], axis=1).astype(np.int64)
    return scores(directions(bytes.fromhex(definition.seed), owners, definition.candidates, definition.dimension), own)


def own_answers(
    definition: BoostedDefinition, turn: int, codes: Sequence[NDArray[Any]], y: Floats, rows: NDArray[np.int64],
    so_far: SoFar, owners: NDArray[np.int64], fits: NDArray[np.bool_] | None = None,
) -> NDArray[Any]:  # fmt: skip
    """Compute what owners would say who told all, arguments as of `scores_in`: where a turn learns, own vectors
    (owners, D), of length 1 or 0; where it weighs, whether the newest voter is right (owners,).
    """
    features, seed, y, wide = definition.features, bytes.fromhex(definition.seed), as_corners(y), definition.wide
    coin, weighs = coins(seed, owners), definition.weighs(turn)
    voters = so_far.before_last() if weighs else so_far
    of = weigh_rows(y, rows, voters.margins(features, codes), voters.log_mass, definition.basis.least_rows, fits)
    if weighs:
        edge = of.total((y * sides(so_far.voters[-1], features, codes, wide + 1)).sum(axis=1))
        return np.asarray(coin < (1 + wide * edge) / (wide + 1))
    return turn_into_directions(definition.basis.vectors(features, codes, of), coin)
