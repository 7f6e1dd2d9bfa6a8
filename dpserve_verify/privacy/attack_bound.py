"""What an attack by canaries shows: how often its guesses are right at least, beside the most that is claimed.

In each of n runs a canary is there, so many rows of it, or not, by a fair coin of its own, and it is guessed which.
Under a claim a guess is right with a chance of at most `ceiling`, whatever went before, so the number of right ones is
at most binomial (docs/privacy/prices.md). Whole numbers, and decimals of 40 digits with a SLACK; floating point in one
search.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.privacy.adaptive_opinion import adaptive_delta
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, Plan, PureDp
from dpserve_verify.privacy.pairs import OBJECTIVE

STEPS = 10_000  # chances and epsilons are multiples of .0001
LEVEL = 20  # at most one sound claim of so many is refuted
MOST_EPSILON = 64  # that is looked for
WITHIN, MOST_COPIES = 2, 1000  # copies of a canary are about that many deviations of the noise from none
HALF_PI = Fraction("1.5708")  # above it
GRID = 4  # squared grid units by which a discrete Gaussian is one of real numbers
UP = Context(prec=40, rounding=ROUND_CEILING)
CELLS, FLOAT = 800, 1e-9  # of the adversary's grid; above what its floating point rounds off
SLACK = Decimal("1e-12")  # above what rounding and noise on a grid add up to


def _sum(plan: Plan, wide: Fraction, grid: int) -> Fraction:
    total = Fraction(0)
    for release, count in plan.runs:
        match release.event:
            case BoundedRange():
                total += count * wide * Fraction(release.event.epsilon) ** 2 / 4
            case PureDp():
                total += count * wide * Fraction(release.event.epsilon) ** 2
            case Gaussian():
                left = Fraction(release.event.noise_multiplier) ** 2 - Fraction(grid, release.sensitivity**2)
                if left <= 0:
                    raise CertificateInvalid("mechanisms: noise narrower than its grid; no attack is stated of it")
                total += count / left
            case _:
                raise CertificateInvalid("mechanisms: no attack is stated of a private selection")
    return total


def squared_mu(plan: Plan) -> tuple[Fraction, bool]:
    """Return mu^2 of a plan, and whether it is mu-Gaussian DP; else, with objective perturbation, only its Renyi
    divergence at every order a is at most a mu^2 / 2. CertificateInvalid where neither is proved.
    """
    gaussian = not any(release.mechanism == OBJECTIVE for release, _ in plan.runs)
    return _sum(plan, HALF_PI if gaussian else Fraction(1), GRID if gaussian else 0), gaussian


def copies_of(plan: Plan) -> int:
    """Return how many units of privacy a canary is: so many that together they are about WITHIN from none."""
    twice = isqrt(int((2 * WITHIN) ** 2 / squared_mu(plan)[0]))
    return min(max(1, (twice + 1) // 2), MOST_COPIES)


@lru_cache(maxsize=256)
def ceiling(plan: Plan, epsilon: Decimal, delta: Decimal) -> int:
    """Return the largest chance of a right guess under a claim, in steps, rounded up: the best of what is proved."""
    (squared, gaussian), copies = squared_mu(plan), copies_of(plan)
    exact = squared * copies**2 / 4
    half = UP.sqrt(UP.divide(Decimal(exact.numerator), Decimal(exact.denominator)))  # half of mu of all copies
    by_noise = _normal(half) if gaussian else UP.divide(UP.add(Decimal(1), half), Decimal(2))
    return min(_steps(by_noise), by_epsilon(epsilon, delta, copies), _by_adversary(plan, copies, float(half)))


def _by_adversary(plan: Plan, copies: int, half: float) -> int:
    """Return the same of the best adaptive adversary, where each release has a pure price: a guess gains half of delta
    at epsilon 0. `half` of mu says how wide the grid has to be; any grid gives a bound.
    """
    events: list[tuple[Event, int]] = []
    for release, count in plan.runs:
        if not isinstance(release.event, BoundedRange | PureDp):
            return STEPS
        events.append((type(release.event)(copies * release.event.epsilon), count))
    prices = [float(event.pure or 0) for event, _ in events]
    step = max(min(prices) / 8, 20 * half / CELLS) * (1 + 1e-9)
    gain = adaptive_delta(events, 0.0, step, min(CELLS, int((20 * half + 2 * max(prices)) / step) + 1))
    return _steps(Decimal((1 + gain) / 2 + FLOAT))


def by_epsilon(epsilon: Decimal, delta: Decimal, copies: int) -> int:
    """Return the same of (epsilon, delta) for one unit: (e^E + D) / (1 + e^E), E and D of all copies."""
    one, whole = UP.exp(epsilon), UP.exp(UP.multiply(Decimal(copies), epsilon))
    times = UP.divide(UP.subtract(whole, Decimal(1)), UP.subtract(one, Decimal(1))) if epsilon else Decimal(copies)
    return _steps(UP.divide(UP.add(whole, UP.multiply(times, delta)), UP.add(Decimal(1), whole)))


def _normal(x: Decimal) -> Decimal:
    """Return the chance that a normal number is below x >= 0: 1 / 2, and its density times x + x^3 / 3 + x^5 / 15 .."""
    if x > 6:
        return Decimal(1)
    term, total, odd = x, x, 1
    while term > SLACK * SLACK:
        odd += 2
        term = UP.divide(UP.multiply(term, UP.multiply(x, x)), Decimal(odd))
        total = UP.add(total, term)
    density = UP.divide(UP.exp(UP.divide(UP.multiply(x, x), Decimal(-2))), UP.sqrt(TWO_PI))
    return UP.add(Decimal("0.5"), UP.multiply(density, total))


TWO_PI = Decimal("6.283185307179586476925286766559005768394")  # below it


def _steps(chance: Decimal) -> int:
    return min(STEPS, int(UP.multiply(UP.add(chance, SLACK), Decimal(STEPS)).to_integral_value(ROUND_CEILING)))


def is_unlikely(right: int, runs: int, chance: int) -> bool:
    """Tell whether so many right guesses of `runs`, or more, have a chance below 1 / LEVEL where each has `chance`, in
    steps. Exact.
    """
    if not right or not chance:
        return bool(right)
    term, total, most = chance**runs, 0, STEPS**runs  # `term`: of all right, of one less, ..
    for each in range(runs, right - 1, -1):
        total += term
        if LEVEL * total >= most:
            return False
        term = term * each * (STEPS - chance) // ((runs - each + 1) * chance)
    return True


def least_chance(right: int, runs: int) -> int:
    """Return the largest chance, in steps, under which so many right guesses are unlikely; 0 where none is."""
    return _largest(STEPS, lambda chance: is_unlikely(right, runs, chance))


def least_epsilon(least: int, delta: Decimal, copies: int) -> Decimal:
    """Return the largest epsilon, in steps, under which no guess has a chance above `least`, in steps; 0 where none
    is.
    """
    most = MOST_EPSILON * STEPS
    return Decimal(_largest(most, lambda at: by_epsilon(Decimal(at) / STEPS, delta, copies) <= least)) / STEPS


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest whole number from 0 to `most` up to which it holds."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
