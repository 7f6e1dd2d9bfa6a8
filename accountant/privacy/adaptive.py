"""The certified bound for a whole plan: what the best adaptive adversary reaches against releases of bounded range and
of pure DP, by value iteration (docs/privacy/prices.md). An upper bound: every rounding goes up.

V(x) is the largest delta at epsilon = x. It is known at the multiples of one step, from 0 to a public end; to the left
it follows by symmetry, to the right it only falls. In e^x it is convex, so chords lie above it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, frexp, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.privacy import adaptive_rules
from accountant.privacy.events import Event
from accountant.privacy.renyi import compose_grid, epsilon_at

Events = tuple[tuple[Event, int], ...]
Floats = NDArray[np.float64]

FINENESS = (512, 384, 256, 192, 128, 96, 64, 56, 48, 40, 32, 24, 20, 16, 12, 10, 8, 6, 4, 3)  # steps to a typical span
MOST_WORK = 15_000_000  # inner operations; the finest grid that needs no more is taken
FEW, FEW_PASSES = 24, 12_000  # boards that a process plays before it loads the compiled rules, and their passes
WIDEST = 100  # of one release's epsilon
TAIL = 1000  # the grid ends where Renyi DP gives delta / TAIL
SLACK = 1e-9  # floating point of reading the result: relative in delta, absolute in epsilon


@dataclass(frozen=True)
class Board:
    """The game on its grid. `moves`: (bounded range?, steps in epsilon, how often), from the last release to the first:
    the order in which values are computed."""

    step: float
    size: int
    moves: tuple[tuple[bool, int, int], ...]

    @property
    def work(self) -> int:
        """Inner operations that `play` makes; MOST_WORK is the limit."""
        return self.size * sum(count * (1 + bounded * steps) for bounded, steps, count in self.moves)


@lru_cache(maxsize=4096)
def epsilon_of(events: Events, delta: Decimal) -> Decimal | None:
    """Smallest epsilon at `delta`, rounded up to 6 digits, for releases played in this order, chosen adaptively. None
    where a release has no pure price, or the bound is too dear to compute."""
    board = board_of(events, float(delta)) if delta > 0 else None
    if board is None:
        return None
    values, allowed = play(board), float(delta) * (1 - SLACK)
    if values[-1] > allowed:
        return None
    first = int(np.argmax(values <= allowed))
    if first == 0:
        return Decimal(0)
    share = (values[first - 1] - allowed) / (values[first - 1] - values[first])
    epsilon = (first - 1) * board.step + log1p(share * expm1(board.step))
    return Decimal(epsilon + SLACK).quantize(Decimal("0.000001"), rounding=ROUND_CEILING)


def delta_of(events: Events, epsilon: float) -> float:
    """An upper bound of delta at `epsilon` >= 0; 1.0 where this bound does not apply."""
    # delta at `epsilon` from Renyi DP: the inverse of `epsilon_at`
    exponents = ((order - 1) * (epsilon_at(order, rdp, 1.0) - epsilon) for order, rdp in compose_grid(events))
    board = board_of(events, max(1e-300, exp(min(0.0, *exponents))))
    if board is None:
        return 1.0
    values, place = play(board), min(epsilon / board.step, board.size - 1.0)
    share = expm1((place - int(place)) * board.step) / expm1(board.step)
    return float((values[int(place)] * (1 - share) + values[int(place) + 1] * share) * (1 + SLACK))


@lru_cache(maxsize=256)
def board_of(events: Events, delta: float) -> Board | None:
    """The public rule for the grid: the releases that weigh most span a whole number of steps, the finest that is cheap
    enough, and every epsilon is rounded up to a multiple of the step."""
    releases = [_Release(event.bounded, Fraction(event.pure or 0), n) for event, n in events]
    if not releases or not all(0 < each.epsilon <= WIDEST for each in releases):
        return None
    main = max(releases, key=lambda each: each.weight)
    typical = sqrt(sum(each.weight for each in releases) / sum(each.count for each in releases))
    end = Fraction(max(0.0, min(epsilon_at(order, rdp, delta / TAIL) for order, rdp in compose_grid(events))))
    total = sum(each.count * each.epsilon for each in releases)
    for fineness in FINENESS:
        step = _short(main.epsilon / max(1, round(fineness * float(main.epsilon) / typical)))
        moves = tuple((each.bounded, ceil(each.epsilon / step), each.count) for each in reversed(releases))
        whole = sum(steps * count for _, steps, count in moves)  # the pure sum: V is 0 there
        board = Board(float(step), 1 + (ceil(end / step) if 1.1 * end < total else whole), moves)
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
        """Its share of the variance of the losses."""
        return self.count * (self.epsilon if self.bounded else 2 * self.epsilon) ** 2


def _short(step: Fraction) -> Fraction:
    """`step` rounded up to 24 binary digits: its multiples are then exact floats."""
    unit = Fraction(2) ** (frexp(float(step))[1] - 24)
    return ceil(step / unit) * unit


_PLAYED = [0]  # boards, of this process


def load_rules() -> None:
    """From here on every board of this process, and of its forks, is played by the compiled rules. Raises where they
    cannot be loaded, and boards are played as before.
    """
    from accountant.privacy import adaptive_compiled  # loads numba

    for rule in (adaptive_compiled.bounded, adaptive_compiled.pure):
        rule(np.zeros(9), 1, 1.0, 1)


def play(board: Board) -> Floats:
    """V after every release, at 0, step, .., size * step.

    The first few boards of a process by numpy, which takes nine times as long for each: a verifier plays one or two,
    and to load the compiled rules takes as long as a dozen, unless something compiled is there already. Both are the
    same operations.
    """
    bounded, pure = adaptive_rules.bounded, adaptive_rules.pure
    _PLAYED[0] += 1
    machine_code = sys.modules.get("accountant.system.numba_cache")  # not to be loaded by asking
    compiled = machine_code is not None and machine_code.CodeFiles.loaded
    if compiled or _PLAYED[0] > FEW or sum(count * steps for _, steps, count in board.moves) > FEW_PASSES:
        from accountant.privacy import adaptive_compiled  # loads numba

        bounded, pure = adaptive_compiled.bounded, adaptive_compiled.pure
    values = np.zeros(board.size + 1)
    for is_bounded, steps, count in board.moves:
        values = (bounded if is_bounded else pure)(values, steps, board.step, count)
    return values
