"""What draws say against a claim: intervals for the chance of one event on two neighbours."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import numpy as np
import pytest
from scipy.stats import beta

from accountant.noise.mechanisms import ExponentialSelection, ExponentialSelections

ALARM = 1e-4
WHOLE = 20


def drawn(play: Callable[[], object], kind: type, count: int, of: slice | np.ndarray = slice(None)) -> np.ndarray:
    """(count, n): what so many plays of one release draw by a mechanism of this kind; of its numbers those of a mask.

    A release is a draw from what the session hands to its mechanism. That is seen to be the same in WHOLE plays; then
    all is drawn in one call, in which each number has noise of its own: what nobody looks at need not be drawn.
    """
    draw, seen = kind.draw, []

    def noted(self, values, size):
        seen.append((self, values.tolist(), size))
        return draw(self, values, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "draw", noted)
        for _ in range(WHOLE):
            play()
    mechanism, values, size = seen[0]
    assert seen == [seen[0]] * WHOLE
    return kind.draw(mechanism, np.tile(np.array(values)[of], count), size).reshape(count, -1)


def choices(mechanism, values: np.ndarray, sensitivity: int, count: int) -> np.ndarray:
    """(count,): so many choices among the same candidates. An exponential one is drawn as the only row of many, so here
    all are rows of one draw, each with a number of its own.
    """
    if isinstance(mechanism, ExponentialSelection | ExponentialSelections):
        rows = np.tile(values.reshape(1, -1), (count, 1))
        return ExponentialSelections(mechanism.epsilon).draw(rows, sensitivity)
    return np.array([mechanism.draw(values, sensitivity) for _ in range(count)]).ravel()


def interval(count: int, runs: int) -> tuple[float, float]:
    """Each end is wrong with probability at most ALARM / 4: four ends are looked at."""
    side = ALARM / 4
    low = float(beta.ppf(side, count, runs - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - side, count + 1, runs - count)) if count < runs else 1.0
    return low, high


def refuted(one: int, other: int, epsilon: float, runs: int) -> bool:
    (low_one, high_one), (low_other, high_other) = interval(one, runs), interval(other, runs)
    return low_one > exp(epsilon) * high_other or low_other > exp(epsilon) * high_one


def loss(with_it, without) -> float:
    """The least log-ratio that the frequencies of the event allow for, at 1e-4 each."""
    from scipy.stats import beta

    above, below = int(with_it.sum()), int(without.sum())
    low = beta.ppf(1e-4, above, len(with_it) - above + 1)
    high = beta.ppf(1 - 1e-4, below + 1, len(without) - below)
    return float(np.log(low / high))
