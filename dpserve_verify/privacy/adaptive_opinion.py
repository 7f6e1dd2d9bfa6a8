"""The game of the best adaptive adversary from its definition (PRIVACY section 2), for the auditor alone: where
`accountant.privacy.adaptive` bounds the worst case between two grid points, this solves for it.

V(x) is the largest delta at epsilon = x, on the multiples of a step from 0 on. In e^x it is convex, so that chords lie
above it: every figure is a true bound, whatever the step and the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil, exp, expm1, sqrt
from typing import TypeAlias

from dpserve_verify.privacy.events import BoundedRange, Event
from dpserve_verify.privacy.second_opinion import pure

WorstRange: TypeAlias = Callable[[list[float], int, float], list[float]]
"""V, an event's epsilon in steps, and the step -> V after one more release of bounded range."""


def adaptive_delta(
    events: Iterable[tuple[Event, int]], epsilon: float, step: float, size: int, move: WorstRange | None = None
) -> float:
    """Return what the best adaptive adversary reaches at `epsilon`, from above, on a grid of `size` steps: the last
    release comes first. `move`: computes the same as `worst_range`.
    """
    move = move or worst_range
    value, reached = [0.0] * (size + 1), 0
    for event, count in reversed(tuple(events)):
        cells = ceil((pure(event) or Fraction(0)) / Fraction(step))
        for _ in range(count if cells else 0):
            reached = min(size, reached + cells)  # beyond, V is still 0
            if isinstance(event, BoundedRange):
                value[: reached + 1] = move(value[: reached + 1], cells, step)
            else:
                line, odds = _line(value, cells, step), exp(cells * step)  # a coin whose sides differ by e
                pairs = zip(line[: size + 1], line[2 * cells :], strict=True)
                value = [(odds * near + far) / (1 + odds) for near, far in pairs]
    place = min(epsilon / step, float(size))  # beyond, it only falls
    first = min(int(place), size - 1)
    share = expm1((place - first) * step) / expm1(step)
    return value[first] * (1 - share) + value[first + 1] * share


def _line(value: list[float], cells: int, step: float) -> list[float]:
    """Extend V to -cells .. size + cells: the two hypotheses change places on the left, V falls on the right."""
    right = value + [value[-1]] * cells
    return [1 - exp(-step * place) * (1 - right[place]) for place in range(cells, 0, -1)] + right


def worst_range(value: list[float], cells: int, step: float) -> list[float]:
    """Compute one release with losses in [t - e, t], the worst t at every x: solved for within each step of t.

    Between two values of t, with q = e^(first - t) in [r, 1], chords of V give at most
    f(q) = f_last + (q - r) / (1 - r) (slope + bend (1 - q) / q), which is largest at an end, or at
    q^2 = r bend / (bend - slope) where that lies between. A block of steps in which even this is no more than the best
    known is left out, any other is halved. The best t of the neighbour is where to begin.
    """
    line, whole = _line(value, cells, step), expm1(cells * step)
    weights = [expm1(j * step) / whole for j in range(cells + 1)]
    grown = [exp(j * step) / whole for j in range(cells + 1)]
    ratios = [(exp(-width * step), -expm1(-width * step)) for width in range(cells + 1)]
    found, guess = [], (cells + 1) // 2
    for x, best in enumerate(value):
        near, far = x + cells, x + 2 * cells  # in `line`, V(x - j h) and V(x - j h + e) stand j places before these
        gap = line[near - guess] - line[far - guess]
        f = line[near - guess] - weights[guess] * gap
        blocks = [
            (guess, f, gap, cells, best, line[x] - best),
            (0, best, best - line[far], guess, f, gap),
        ]
        if f > best:
            best = f
        while blocks:
            first, f_first, gap_first, last, f_last, gap_last = blocks.pop()
            r, rest = ratios[last - first]
            bend, slope = grown[first] * (gap_last / r - gap_first), f_first - f_last
            if slope >= bend * rest or slope * r <= -bend * rest:
                continue  # at an end
            q = sqrt(r * bend / (bend - slope))
            top = f_last + (q - r) / rest * (slope + bend * (1 - q) / q)
            if top <= best:
                continue
            if last - first == 1:
                best, guess = top, last
                continue
            width = last - first
            quarter = (width + 3) // 4  # the best t lies close to that of the neighbour
            middle = last - quarter if last == guess else first + (quarter if first == guess else width // 2)
            gap = line[near - middle] - line[far - middle]
            f = line[near - middle] - weights[middle] * gap
            if f > best:
                best = f
            blocks.append((first, f_first, gap_first, middle, f, gap))
            blocks.append((middle, f, gap, last, f_last, gap_last))
        found.append(best)
    return found
