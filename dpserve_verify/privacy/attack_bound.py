"""What an attack by canaries shows: the least privacy loss that its right guesses leave possible.

Of m canaries each is in the rows by a fair coin. Of k of them it is guessed, from what was released, whether they are
in. Under a promise, an event of chance r with a canary has at least the chance g(r) without it; g is convex. Then the
chance of at least c right guesses is bounded (docs/privacy/prices.md, after Mahloujifar, Melis and Chaudhuri 2024),
however the releases tie canaries together. Decimals of DIGITS digits, each rounded so that the bound only gets weaker;
no floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, PureDp

DIGITS = 40
DOWN = Context(prec=DIGITS, rounding=ROUND_FLOOR)
STEPS = 10_000  # of a promise: bounds are multiples of .0001
MOST = 64  # the largest bound that is looked for
Least = Callable[[Decimal], Decimal]  # g


def squared_width(runs: Iterable[tuple[Event, int]]) -> Fraction:
    """Return 8 rho of a plan: its Renyi divergence at every order a is at most a rho, from the definition of each
    mechanism. CertificateInvalid where one has no such bound.
    """
    total = Fraction(0)
    for event, count in runs:
        match event:
            case BoundedRange():
                total += count * Fraction(event.epsilon) ** 2
            case PureDp():
                total += count * 4 * Fraction(event.epsilon) ** 2
            case Gaussian():
                total += count * 4 / Fraction(event.noise_multiplier) ** 2
            case _:
                raise CertificateInvalid("mechanisms: a private selection has no rho, and no attack is stated of it")
    return total


def rho_of(runs: Iterable[tuple[Event, int]]) -> Decimal:
    """Return rho of a plan in steps of .0001, rounded up: what is claimed."""
    exact = squared_width(runs) / 8
    return Decimal(-(-exact.numerator * STEPS // exact.denominator)) / STEPS


def of_rho(rho: Decimal) -> Least:
    """Return g of a Renyi divergence of at most a rho at every order a: exp(-(sqrt(-ln r) + sqrt(rho))^2)."""
    root = DOWN.next_plus(DOWN.sqrt(rho))

    def least(chance: Decimal) -> Decimal:
        if chance <= 0:
            return Decimal(0)
        loss = DOWN.next_plus(DOWN.copy_negate(DOWN.next_minus(DOWN.ln(chance))))
        side = DOWN.next_plus(DOWN.add(DOWN.next_plus(DOWN.sqrt(max(loss, Decimal(0)))), root))
        square = DOWN.next_plus(DOWN.multiply(side, side))
        return max(Decimal(0), DOWN.next_minus(DOWN.exp(-square)))

    return least


def of_epsilon(epsilon: Decimal, delta: Decimal) -> Least:
    """Return g of (epsilon, delta): (r - delta) e^-epsilon, and not below 0."""
    factor = DOWN.next_minus(DOWN.exp(-epsilon))
    return lambda chance: max(Decimal(0), DOWN.multiply(DOWN.subtract(chance, delta), factor))


def refutes(canaries: int, guesses: int, right: int, level: Decimal, least: Least) -> bool:
    """Return whether so many right guesses have a chance below `level` under a promise: then it is refuted.

    T[i] is a lower bound of the chance of at least i right ones, if that of `right` is `level`; one above 1 cannot be.
    """
    tail, above = level, Decimal(0)  # T[i], and the sum of those above i
    for i in range(right, 0, -1):
        chance = DOWN.divide(DOWN.add(DOWN.multiply(Decimal(i), tail), above), Decimal(canaries))
        above = DOWN.add(above, tail)
        wrong = DOWN.add(DOWN.multiply(Decimal(canaries), least(chance)), above)
        tail = max(tail, DOWN.divide(wrong, Decimal(guesses - i + 1)))
        if tail > 1:
            return True
    return False


def lower_bound(
    canaries: int, guesses: int, right: int, level: Decimal, promise: Callable[[Decimal], Least]
) -> Decimal:
    """Return the largest promise, in steps of .0001 and at most MOST, that these guesses refute; 0 where none is."""
    low, high = 0, MOST * STEPS
    if not refutes(canaries, guesses, right, level, promise(Decimal(0))):
        return Decimal(0)
    while high - low > 1:
        middle = (low + high) // 2
        if refutes(canaries, guesses, right, level, promise(Decimal(middle) / STEPS)):
            low = middle
        else:
            high = middle
    return Decimal(low) / STEPS
