"""The law of one report: by exact counting, never by trust in floats; and draws, which a wrong scale fails."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from one_of_k_law import law
from scipy.stats import binom

from accountant.noise.one_of_k import OneOfK
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import PureDp

SHAPES = [("0.5", 2, 1), ("1", 5, 1), ("2", 8, 3), ("7", 64, 4), ("0.000000001", 64, 30), ("20", 4096, 2000)]


@pytest.mark.parametrize(("epsilon", "candidates", "favoured"), SHAPES)
def test_ratio_is_at_most_e_epsilon_and_attained(epsilon, candidates, favoured):
    mechanism = OneOfK(Decimal(epsilon), candidates, favoured)
    high, low = mechanism.weights
    with localcontext(prec=50):
        exact = Fraction(Decimal(epsilon).exp())
    assert exact * (1 - Fraction(1, 2**20)) < Fraction(high, low) <= exact
    assert mechanism.event == PureDp(Decimal(epsilon))
    rng = np.random.default_rng(1)
    one, other = rng.permutation(candidates).tolist(), rng.permutation(candidates).tolist()
    laws = law(mechanism, one), law(mechanism, other)
    assert all(sum(each) == 1 for each in laws)
    worst = max(max(p / q, q / p) for p, q in zip(*laws, strict=True))
    assert worst <= exact
    assert laws[0] == laws[1] or worst == Fraction(high, low)


def test_every_pair_of_owners_on_a_small_law():
    mechanism = OneOfK(Decimal(1), 5, 2)
    with localcontext(prec=50):
        exact = Fraction(Decimal(1).exp())
    laws = [law(mechanism, [int(at in near) for at in range(5)]) for near in combinations(range(5), 2)]
    ratios = [p / q for one in laws for other in laws for p, q in zip(one, other, strict=True)]
    assert max(ratios) == Fraction(*mechanism.weights) <= exact


def test_special_cases_are_those_of_the_books():
    bit = law(OneOfK(Decimal("0.7"), 2, 1), [1, 0])
    assert float(bit[0]) == pytest.approx(np.exp(0.7) / (1 + np.exp(0.7)), rel=1e-12)
    category = law(OneOfK(Decimal(2), 6, 1), [0, 0, 0, 1, 0, 0])
    assert float(category[3]) == pytest.approx(np.exp(2) / (np.exp(2) + 5), rel=1e-12)
    assert len(set(category)) == 2


def favoured_share(mechanism: OneOfK, draws: int) -> int:
    """How many of so many draws are favoured: 0, 2 and 5 of eight scores that float noise would not move."""
    scores = np.tile([9, -3, 9, 0, 0, 8, -9, 2], (draws, 1))
    return int(np.isin(mechanism.draw(scores), [0, 2, 5]).sum())


@pytest.mark.statistical
def test_draws_follow_the_law_and_a_factor_of_two_is_found():
    """Two-sided, 1e-9 each; the law at twice or half epsilon lies more than 20 deviations off."""
    mechanism, draws = OneOfK(Decimal(1), 8, 3), 40_000
    chance = float(Fraction(3 * mechanism.weights[0], mechanism.total))
    low, high = binom.ppf([1e-9, 1 - 1e-9], draws, chance)
    assert low <= favoured_share(mechanism, draws) <= high
    for wrong in ("2", "0.5"):
        assert not low <= favoured_share(OneOfK(Decimal(wrong), 8, 3), draws) <= high
    counts = np.bincount(mechanism.draw(np.tile([9, -3, 9, 0, 0, 8, -9, 2], (draws, 1))), minlength=8)
    expected = np.array(law(mechanism, [9, -3, 9, 0, 0, 8, -9, 2]), float) * draws
    assert (np.abs(counts - expected) < 6.5 * np.sqrt(expected)).all()


def test_scores_at_the_ends_of_integers_are_ordered():
    mechanism = OneOfK(Decimal(20), 3, 1)
    ends = np.tile([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0], (200, 1))
    assert set(mechanism.draw(ends)) == {1}  # another has chance 2 e^-20 a draw


@pytest.mark.parametrize(
    ("epsilon", "candidates", "favoured"),
    [("0", 4, 1), ("-1", 4, 1), ("NaN", 4, 1), ("20.1", 4, 1), ("1", 1, 1), ("1", 5000, 1), ("1", 4, 4), ("1", 4, 0)],
)
def test_what_makes_no_law_is_refused(epsilon, candidates, favoured):
    with pytest.raises(InputError):
        OneOfK(Decimal(epsilon), candidates, favoured)


def test_draw_refuses_another_shape_or_sensitivity():
    mechanism = OneOfK(Decimal(1), 4, 1)
    with pytest.raises(InputError, match="scores"):
        mechanism.draw(np.zeros((2, 3), np.int64))
    with pytest.raises(InputError, match="sensitivity"):
        mechanism.draw(np.zeros(4, np.int64), 2)
