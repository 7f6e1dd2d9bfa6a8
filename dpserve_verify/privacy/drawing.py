"""The scale of a draw: one number for the mechanism that draws and for whoever words a certificate.

It imports no sampler, so verifiers can ask it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf, nextafter
from types import MappingProxyType

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Gaussian, Release, RepeatAndSelect

WIDEST_GAUSSIAN, WIDEST_LAPLACE = 2.0**55, 2.0**48  # scales up to which 64 bits hold the sizes of noise
WIDEST: Mapping[str, float] = MappingProxyType(  # by mechanism
    {
        "exponential": inf,
        "exponential-per-row": inf,
        "permute-and-flip": inf,
        "permute-and-flip-per-row": inf,
        "discrete-laplace": WIDEST_LAPLACE,
        "discrete-gaussian": WIDEST_GAUSSIAN,
        "objective-perturbation": WIDEST_GAUSSIAN,
        "one-of-k": inf,
    }
)
SELECTION = "private-selection"  # a random number of runs; the plan does not say by which mechanisms each run draws


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
    if release.mechanism not in WIDEST:
        raise InputError(f"mechanism={release.mechanism:.80}: nobody is known to draw for it; name it in WIDEST")
    if isinstance(event, Gaussian):
        scale = scale_of(release.sensitivity, event.noise_multiplier, 1)
    else:
        scale = scale_of(release.sensitivity, event.epsilon)
    return scale > WIDEST[release.mechanism]
