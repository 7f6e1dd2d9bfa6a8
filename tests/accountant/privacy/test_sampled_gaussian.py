"""A step of DP-SGD costs what its integral says, and never less."""

from __future__ import annotations

from decimal import Decimal

import mpmath
import pytest

from accountant.privacy.sampled_gaussian import ROUNDING, divergence

STEPS = [
    ("1", "0.01", 9),
    ("0.7", "0.004", 18),
    ("4", "0.3", 36),
    ("0.5", "0.9", 2),
    ("20", "0.001", 88),
    ("2", "1", 5),
]


def integral(noise, rate, order, swapped=False):
    """D_order of the mixture against N(0, noise^2), or the other way round, by quadrature to 30 digits."""
    with mpmath.workdps(30):
        s, q = mpmath.mpf(noise), mpmath.mpf(rate)
        density = lambda x: mpmath.npdf(x, 0, s)  # noqa: E731
        ratio = lambda x: 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))  # noqa: E731
        power = (lambda x: ratio(x) ** (1 - order)) if swapped else (lambda x: ratio(x) ** order)
        ends = [-40 * s, -6 * s, 0, mpmath.mpf(order) / 2, order, order + 6 * s, order + 40 * s]
        return mpmath.log(mpmath.quad(lambda x: density(x) * power(x), sorted(ends))) / (order - 1)


@pytest.mark.parametrize(("noise", "rate", "order"), STEPS)
def test_a_step_costs_what_the_integral_says_rounded_up(noise, rate, order):
    exact = integral(noise, rate, order)
    figure = divergence(Decimal(noise), Decimal(rate), order)
    with mpmath.workdps(30):
        assert abs(mpmath.mpf(str(figure - ROUNDING)) - exact) <= mpmath.mpf("1e-18")
        assert integral(noise, rate, order, swapped=True) <= exact + mpmath.mpf("1e-18")  # the other direction
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent  # slow to load
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant([order], NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(float(rate), GaussianDpEvent(float(noise))))
    assert float(figure) == pytest.approx(accountant._rdp[0], rel=1e-9)


def test_the_ends_of_what_is_taken_have_a_price():
    assert divergence(Decimal("0.01"), Decimal("1e-9"), 9) > 40_000
    assert 0 < divergence(Decimal("1e6"), Decimal("1e-9"), 9) <= 2 * ROUNDING
    assert divergence(Decimal("1"), Decimal("0.5"), 2000) < divergence(Decimal("1"), Decimal("1"), 2000)
    assert divergence(Decimal("1"), Decimal("1"), 2000) == 1000 + ROUNDING
