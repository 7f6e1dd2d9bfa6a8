"""The grid on which the game of `accountant.privacy.adaptive` is played: a public rule, and no part of any bound, which
holds on every grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, frexp, sqrt

from dpserve_verify.privacy.events import Event
from dpserve_verify.privacy.renyi import compose_grid, epsilon_at

Events = tuple[tuple[Event, int], ...]

FINENESS = (512, 384, 256, 192, 128, 96, 64, 56, 48, 40, 32, 24, 20, 16, 12, 10, 8, 6, 4, 3)  # steps to a typical span
MOST_WORK = 15_000_000  # inner operations; the finest grid that needs no more is taken
WIDEST = 100  # of one release's epsilon
TAIL = 1000  # the grid ends where Renyi DP gives delta / TAIL


@dataclass(frozen=True)
class Board:
    """The game on its grid. `moves`: (bounded range?, steps in epsilon, how often), from the last release to the first:
    the order in which values are computed."""

    step: float
    size: int
    moves: tuple[tuple[bool, int, int], ...]

    @property
    def work(self) -> int:
        """Count the inner operations that `play` makes; MOST_WORK is the limit."""
        return self.size * sum(count * (1 + bounded * steps) for bounded, steps, count in self.moves)


@lru_cache(maxsize=256)
def board_of(events: Events, delta: float) -> Board | None:
    """Return the grid by its public rule: the releases that weigh most span a whole number of steps, the finest that is
    cheap enough, and every epsilon is rounded up to a multiple of the step.
    """
    releases = [_Release(event.bounded, Fraction(event.pure or 0), n) for event, n in events]
    if not releases or not all(0 < release.epsilon <= WIDEST for release in releases):
        return None
    main = max(releases, key=lambda each: each.weight)
    typical = sqrt(sum(release.weight for release in releases) / sum(release.count for release in releases))
    end = Fraction(max(0.0, min(epsilon_at(order, rdp, delta / TAIL) for order, rdp in compose_grid(events))))
    total = sum(release.count * release.epsilon for release in releases)
    for fineness in FINENESS:
        step = _short(main.epsilon / max(1, round(fineness * float(main.epsilon) / typical)))
        moves = tuple((release.bounded, ceil(release.epsilon / step), release.count) for release in reversed(releases))
        pure_sum = sum(steps * count for _, steps, count in moves)  # the pure sum: V is 0 there
        board = Board(float(step), 1 + (ceil(end / step) if 1.1 * end < total else pure_sum), moves)
        if board.work <= MOST_WORK:
            return board
    return None


@dataclass(frozen=True)
class _Release:
    bounded: bool
    epsilon: Fraction
    count: int

    @property
    def weight(self) -> Fraction:
        """Return its share of the variance of the losses, up to a common factor."""
        return self.count * (self.epsilon if self.bounded else 2 * self.epsilon) ** 2


def _short(step: Fraction) -> Fraction:
    """Return `step` rounded up to 24 binary digits: its multiples are then exact floats."""
    unit = Fraction(2) ** (frexp(float(step))[1] - 24)
    return ceil(step / unit) * unit
