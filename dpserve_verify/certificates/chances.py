"""What epsilon and delta come to, as chances of 100 that anybody can compare. All of them are rounded up.

Guesses: against (epsilon, delta)-DP a guess between two equally likely worlds is right with chance at most
(e^epsilon + delta) / (e^epsilon + 1), for every way of guessing (Kairouz, Oh and Viswanath 2015). Beliefs: but for a
chance of delta the model is drawn as if all odds changed by at most e^epsilon (Dwork, Rothblum and Vadhan 2010).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal

EXACT = Context(prec=60)


def factor(epsilon: Decimal) -> Decimal:
    """Return e^epsilon, rounded up to 5 significant digits."""
    return EXACT.exp(epsilon).normalize(Context(prec=5, rounding=ROUND_CEILING))


def best_guess(epsilon: Decimal, delta: Decimal) -> Decimal:
    """Return how often, in 100, a guess between two equally likely worlds can be right; rounded up to 2 decimals."""
    odds = EXACT.exp(epsilon)
    return _percent(EXACT.divide(EXACT.add(odds, delta), EXACT.add(odds, Decimal(1))))


def belief(epsilon: Decimal, prior: Decimal) -> Decimal:
    """Return the chance, in 100, that somebody may come to give to a fact of chance `prior`; rounded up to 2
    decimals.
    """
    up = EXACT.multiply(prior, EXACT.exp(epsilon))
    return _percent(EXACT.divide(up, EXACT.add(up, 1 - prior)))


def _percent(chance: Decimal) -> Decimal:
    return min(Decimal(100), (100 * chance).quantize(Decimal("0.01"), rounding=ROUND_CEILING))
