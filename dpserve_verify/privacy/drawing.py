"""The scale of a draw: one number for the mechanism that draws and for whoever words a certificate.

It imports no sampler, so verifiers can ask it too.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf, nextafter

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Gaussian, Release, RepeatAndSelect
from dpserve_verify.privacy.pairs import PAIRS, SELECTION


@lru_cache(maxsize=256)
def scale_of(sensitivity: int, unit: Decimal, power: int = -1) -> float:
    """Compute the scale of a draw: the sensitivity over epsilon, or times a noise multiplier by power 1; rounded up."""
    return round_up(sensitivity * Fraction(unit) ** power)


def round_up(exact: Fraction) -> float:
    """Find the smallest float that is not below `exact`: rounding may only add noise."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else nextafter(nearest, inf)


def is_wide(release: Release) -> bool | None:
    """Tell whether its noise is wider than 64 bits hold; None of a private selection, whose runs may differ.

    InputError where nobody is known to draw for its mechanism.
    """
    if release.mechanism == SELECTION:
        return None
    event = release.event
    if isinstance(event, RepeatAndSelect):
        raise InputError(f"mechanism={release.mechanism:.80}: a choice among runs is made by {SELECTION}")
    widest = PAIRS[release.mechanism].widest if release.mechanism in PAIRS else None
    if widest is None:
        raise InputError(f"mechanism={release.mechanism:.80}: nobody is known to draw for it; name it in PAIRS")
    if isinstance(event, Gaussian):
        scale = scale_of(release.sensitivity, event.noise_multiplier, 1)
    else:
        scale = scale_of(release.sensitivity, event.epsilon)
    return scale > widest
