"""The Renyi divergence of one step of DP-SGD: Gaussian noise on a sum over a Poisson sample of the records.

Mironov, Talwar and Zhang 2019 ("Renyi Differential Privacy of the Sampled Gaussian Mechanism"), under add/remove: both
directions are at most the one that is computed here, and at whole orders it is a finite sum (docs/privacy/outside.md).
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache

DIGITS = 50
ROUNDING = Decimal("1e-20")  # far above what DIGITS leave of error in a sum of up to LARGEST terms
LARGEST = 10_000  # order


@lru_cache(maxsize=4096)
def divergence(noise_multiplier: Decimal, sample_rate: Decimal, order: int) -> Decimal:
    """Return the divergence of one step at a whole order, 2 to LARGEST, and no less.

    Args:
        noise_multiplier: Standard deviation over the L2 sensitivity, 0.01 to 1e6.
        sample_rate: The probability with which each record is in the sample, by itself: above 0 and at most 1.
        order: Renyi order.
    """
    with localcontext(Context(prec=DIGITS)):
        exponent = 1 / (2 * noise_multiplier * noise_multiplier)
        if sample_rate == 1:
            figure = order * exponent
        else:
            inside, outside = sample_rate.ln(), (1 - sample_rate).ln()
            binomial, logs = Decimal(0), [order * outside]
            for k in range(1, order + 1):
                binomial += (Decimal(order - k + 1) / k).ln()
                logs.append(binomial + (order - k) * outside + k * inside + (k * k - k) * exponent)
            largest = max(logs)
            figure = (largest + sum(((each - largest).exp() for each in logs), Decimal(0)).ln()) / (order - 1)
        return figure + ROUNDING
