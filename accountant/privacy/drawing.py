"""Who draws a release: dpserve's own exact samplers, or OpenDP.

`accountant.noise.mechanisms` asks this module before it draws, and certificates ask it to name who drew: one answer for
both. It imports no sampler, so verifiers can ask it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf, nextafter
from types import MappingProxyType

from accountant.errors import InputError
from accountant.privacy.events import Gaussian, Release, RepeatAndSelect

WIDEST_GAUSSIAN, WIDEST_LAPLACE = 2.0**55, 2.0**48  # scales of our own noise: 64 bits hold its sizes
OWN_UP_TO: Mapping[str, float] = MappingProxyType(  # by mechanism, the largest scale that dpserve draws itself
    {
        "exponential": inf,
        "exponential-per-row": inf,
        "permute-and-flip": inf,
        "permute-and-flip-per-row": inf,
        "discrete-laplace": WIDEST_LAPLACE,
        "discrete-gaussian": WIDEST_GAUSSIAN,
        "randomized-response": 0.0,
        "one-of-k": inf,
    }
)
SELECTION = "private-selection"  # a random number of runs; the plan does not say by which mechanisms each run draws


def is_drawn_by_opendp(mechanism: str, scale: float) -> bool:
    """Tell whether OpenDP draws for this mechanism at this scale.

    InputError where nobody is known to draw for it.
    """
    if mechanism not in OWN_UP_TO:
        raise InputError(f"mechanism={mechanism:.80}: nobody is known to draw for it; name who does in OWN_UP_TO")
    return scale > OWN_UP_TO[mechanism]


@lru_cache(maxsize=256)
def scale_of(sensitivity: int, unit: Decimal, power: int = -1) -> float:
    """Compute the scale of a draw: the sensitivity over epsilon, or times a noise multiplier by power 1; rounded up."""
    return round_up(sensitivity * Fraction(unit) ** power)


def round_up(exact: Fraction) -> float:
    """Find the smallest float that is not below `exact`: rounding may only add noise."""
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)


def draws_by_opendp(release: Release) -> bool | None:
    """Tell whether OpenDP draws this release; None of a private selection, whose runs may differ.

    InputError where nobody is known to draw for its mechanism.
    """
    if release.mechanism == SELECTION:
        return None
    event = release.event
    if isinstance(event, Gaussian):
        return is_drawn_by_opendp(release.mechanism, scale_of(release.sensitivity, event.noise_multiplier, 1))
    if isinstance(event, RepeatAndSelect):
        raise InputError(f"mechanism={release.mechanism:.80}: a choice among runs is made by {SELECTION}")
    return is_drawn_by_opendp(release.mechanism, scale_of(release.sensitivity, event.epsilon))
