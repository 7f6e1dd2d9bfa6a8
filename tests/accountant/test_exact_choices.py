"""Choices that are exact and whose time does not tell the scores: the exponential mechanism's, by inversion, and
permute-and-flip's coins, all flipped at once."""

from __future__ import annotations

import sys
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, product
from math import exp, prod

import numpy as np
import pytest
from exact_laws import permute_and_flip_law
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.noise import compiled_weights, mechanisms
from accountant.noise.compiled_weights import BLOCK
from accountant.noise.exact_weights import FINE, FINE_ERROR, ROUGH_ERROR, SERIES, PartialSums, gap_sums, rough_weights
from accountant.noise.mechanisms import ExponentialSelection, ExponentialSelections, PermuteAndFlip

DRAWS = 4000


def fixed(monkeypatch, numbers):
    """The uniform number, 64 bits at a time, the first as the system keeps it; asking for more is an error."""
    left = [numbers[0].to_bytes(8, sys.byteorder), *(each.to_bytes(8, "big") for each in numbers[1:])]
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: left.pop(0))
    return left


def ends(gaps, scale, digits=120):
    """Where each candidate's part ends, of 1."""
    with localcontext(prec=digits):
        weights = [(-(Decimal(gap) / Decimal(scale))).exp() for gap in gaps]
        return [Fraction(sum(weights[: h + 1]) / sum(weights)) for h in range(len(weights))]


def chosen(gaps, scale):
    return int(mechanisms.select_by_inversion(-np.array([gaps], np.int64), scale)[0])


@pytest.mark.statistical
def test_the_law_is_that_of_the_exponential_mechanism():
    """One row or many. False alarm: below 1e-6."""
    values = np.array([-300, 7, 0, 12, -14, 3, 12, 20, 5, -30, 8])
    weights = np.exp((values - values.max()) / 10)
    expected = weights / weights.sum()
    rows = np.stack([values] * DRAWS)
    for drawn in (
        [ExponentialSelection(Decimal("0.1")).draw(values, 1) for _ in range(DRAWS)],
        ExponentialSelections(Decimal("0.1")).draw(rows, 1),
    ):
        found = np.bincount(drawn, minlength=values.size)
        spread = np.sqrt(DRAWS * expected * (1 - expected))
        assert (np.abs(found - DRAWS * expected) <= 5.5 * spread + 3).all(), found


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [[0, 25], [25, 0], [0, 170], [400, 0, 3, 90, 161, 162], [0] * 3 + [165] * 50])
def test_each_part_ends_where_it_should(monkeypatch, gaps):
    """On either side of each end: as close as 2^-62, which floats do not tell; the first and the last there are."""
    exact = ends(gaps, 10.0)
    fixed(monkeypatch, [0])
    assert chosen(gaps, 10.0) == 0
    for h, end in enumerate(exact[:-1]):
        turn = int(end * 2**64)
        near = max(1, turn >> 30)
        for uniform in (turn - near, turn - 4, turn + 4, turn + near):
            fixed(monkeypatch, [uniform, 0])
            low, high = Fraction(uniform, 2**64), Fraction(uniform + 1, 2**64)
            expected = next(h for h, end in enumerate(exact) if high <= end)
            assert all(not low < each < high for each in exact[:-1])
            assert chosen(gaps, 10.0) == expected, (h, uniform)
    fixed(monkeypatch, [2**64 - 1, 2**63])
    assert chosen(gaps, 10.0) == len(gaps) - 1


def test_a_choice_asks_for_more_bits_until_they_tell(monkeypatch):
    gaps = [3, 0, 170]
    exact = int(ends(gaps, 10.0)[0] * 2**192)
    words = [exact >> 128, exact >> 64 & 2**64 - 1]
    for last, expected in ((0, 0), (2**64 - 1, 1)):
        left = fixed(monkeypatch, [*words, last])
        assert chosen(gaps, 10.0) == expected
        assert not left


@given(st.lists(st.integers(0, 10**4), min_size=1, max_size=30), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_rough_bounds_and_digits_choose_the_same(gaps, uniform):
    below = np.array([0, *gaps], np.uint64)
    with pytest.MonkeyPatch.context() as patched:
        fixed(patched, [uniform, 0, 0])
        assert chosen(below, 100.0) == mechanisms.select_by_digits(below, 100.0, uniform)


def test_what_floats_tell_asks_for_no_digits(monkeypatch):
    monkeypatch.setattr(mechanisms, "select_by_digits", None)
    fixed(monkeypatch, [2**63])
    assert chosen([0, *[161] * 5000], 10.0) == 0


def test_among_a_million_as_good_floats_tell_nearly_always(monkeypatch):
    """A ten-thousandth of a part away from where it begins. Sums of a million floats one by one would not tell."""
    count = 10**6
    gaps = [0] * count
    for h in (0, 1023, 1024, 77_777, count - 1):
        fixed(monkeypatch, [int(Fraction(10_000 * h + 1, 10_000 * count) * 2**64)])
        with monkeypatch.context() as patched:
            patched.setattr(mechanisms, "select_by_digits", None)
            assert chosen(gaps, 10.0) == h


@pytest.mark.parametrize("h", [0, 1022, 1023, 1024, 2047, 2998])
def test_parts_end_where_blocks_do(monkeypatch, h):
    """Closer to the end of a part than floats tell, and no digits are asked for."""
    end = Fraction(h + 1, 3000)
    monkeypatch.setattr(mechanisms, "gap_sums", None)
    for uniform, expected in ((int(end * 2**64) - 4, h), (int(end * 2**64) + 4, h + 1)):
        fixed(monkeypatch, [uniform, 0])
        assert chosen([0] * 3000, 10.0) == expected


def many_gaps(count, scale, seed=0):
    """Different ones, up to 100 scales and beyond the reach of a word, the best of them somewhere."""
    rng = np.random.default_rng(seed)
    below = rng.integers(0, min(2**64 - 1, int(100 * scale) + 3), count, dtype=np.uint64, endpoint=True)
    below[rng.integers(count)] = 0
    return below


SCALES = [0.01, 0.5, 3.7, 1e4, 2.0**31 / 3, 1e9, 1e15, 2.0**56, 2.0**62 / 7, 1e19, 9e27]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 2500])
def test_wide_sums_hold_the_true_ones_as_closely_as_they_claim(scale, count):
    """Against 60 digits: every bound of every sum, from both sides, and no wider than OFF for each weight."""
    below = many_gaps(count, scale, count)
    low, high, total = compiled_weights.wide_sums(below, scale)
    assert (len(low), total, low.unit) == (count, high[-1], high.unit)
    with localcontext(prec=60):
        true = list(accumulate((-(Decimal(gap) / Decimal(scale))).exp() for gap in below.tolist()))
        for i in {0, 1, 1022, 1023, 1024, 2047, 2048, count - 1} & set(range(count)):
            assert low[i] - 1 <= true[i] * 2**low.unit <= high[i] + 1  # what 60 digits themselves are off
            assert high[i] - low[i] == compiled_weights.OFF * (i + 1)
            assert true[i] * 2**low.unit - low[i] <= compiled_weights.OFF * (i + 1) / 2
    assert total < 2**127
    assert low[-1] == low[count - 1] >= 2**low.unit - compiled_weights.OFF


@pytest.mark.parametrize("scale", [3.7, 1e4, 1e9, 1e19])
def test_on_either_side_of_every_boundary_of_many_different_gaps(monkeypatch, scale):
    """Words next to each end, by 60 digits; 128 bits tell all of them: no sum is worked out by digits."""
    below = many_gaps(3000, scale)
    monkeypatch.setattr(mechanisms, "gap_sums", None)
    with localcontext(prec=60):
        parts = list(accumulate((-(Decimal(gap) / Decimal(scale))).exp() for gap in below.tolist()))
        exact = [int(part / parts[-1] * 2**128) for part in parts]
    wide = [h for h in range(1, 2999) if min(exact[h] - exact[h - 1], exact[h + 1] - exact[h]) > 2**66][:200]
    assert len(wide) > 30
    for h in wide:
        turn, rest = exact[h] >> 64, exact[h] & 2**64 - 1
        near = [turn, max(0, rest - 2**50)], [turn, rest + 2**50]
        for words, expected in (([turn - 1, 0], h), ([turn + 1, 0], h + 1), (near[0], h), (near[1], h + 1)):
            if words[1] < 2**64:
                fixed(monkeypatch, words)
                assert mechanisms.select_by_digits(below, scale, mechanisms.os.urandom(8) and words[0]) == expected


@pytest.mark.statistical
def test_the_law_where_floats_do_not_tell(monkeypatch):
    """Every draw goes through the integers; in rows and alone. False alarm: below 1e-6."""
    monkeypatch.setattr(compiled_weights, "off", lambda size: 0.45)
    monkeypatch.setattr(mechanisms, "gap_sums", None)
    asked, real = [], mechanisms.select_by_digits
    monkeypatch.setattr(mechanisms, "select_by_digits", lambda *given: asked.append(1) or real(*given))
    values = np.array([-300, 7, 0, 12, -14, 3, 12, 20, 5, -30, 8])
    expected = np.exp((values - values.max()) / 10)
    drawn = ExponentialSelections(Decimal(1)).draw(np.stack([values] * 3 * DRAWS), 10)
    counts = np.bincount(drawn, minlength=values.size)
    assert len(asked) > 2 * DRAWS
    assert counts[0] == 0
    expected = 3 * DRAWS * expected[1:] / expected[1:].sum()
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 45.1  # chi-square of 9 degrees: above by 1e-6


@pytest.mark.parametrize("fault", ["a unit more in a table", "a digit left out", "a scale of half the size"])
def test_faults_of_wide_sums_are_seen(monkeypatch, fault):
    real = compiled_weights.tables
    if fault == "a scale of half the size":
        monkeypatch.setattr(compiled_weights, "tables", lambda scale, unit: real(scale / 2, unit))
    elif fault == "a digit left out":
        monkeypatch.setattr(compiled_weights, "tables", lambda *given: (real(*given)[0], real(*given)[1][:-1]))
    else:  # in the high word: 2^-64 of a weight
        monkeypatch.setattr(
            compiled_weights, "tables", lambda *given: (real(*given)[0], real(*given)[1] + np.uint64(1))
        )
    with pytest.raises(AssertionError):
        test_wide_sums_hold_the_true_ones_as_closely_as_they_claim(1e9, 1025)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.lists(st.integers(0, 2**70), min_size=4, max_size=4))
def test_partial_sums_are_the_sums(kinds, weights):
    sums = PartialSums(weights, np.array(kinds))
    expected = list(accumulate(weights[kind] for kind in kinds))
    assert [sums[i] for i in range(len(sums))] == expected
    assert sums[-1] == expected[-1]


@pytest.mark.parametrize("fault", ["a scale of half the size", "the first part twice as long"])
def test_faults_are_seen(monkeypatch, fault):
    """Each would cost twice the privacy."""
    real = compiled_weights.running_weights
    wrong = {
        "a scale of half the size": lambda values, scale: real(values, scale / 2),
        "the first part twice as long": lambda values, scale: real(values, scale) + real(values, scale)[:, :1],
    }
    monkeypatch.setattr(compiled_weights, "running_weights", wrong[fault])
    with pytest.raises(AssertionError):
        test_each_part_ends_where_it_should(monkeypatch, [0, 25])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 37.3, 2.0**40, 2.0**70])
def test_compiled_weights_are_the_rough_ones_to_the_last_bit(scale):
    """Those beyond the table's reach, 0, and differences that do not fit into an int64, too."""
    random = np.random.default_rng(5)
    values = random.integers(-(2**63), 2**63 - 1, (4, 2999))
    values[1] >>= 22
    values[2] = random.integers(-9000, 1, 2999)
    values[3] = [0, *np.rint(-min(scale, 2.0**40) * np.array([59.99, 60, 60.01, 1 / 128] * 749 + [0, 0]))]
    below = (values.max(axis=1, keepdims=True) - values).view(np.uint64)
    near = rough_weights(below, scale, FINE)
    blocks = [near[:, at : at + BLOCK].cumsum(axis=1) for at in range(0, near.shape[1], BLOCK)]
    behind = np.cumsum([0 * blocks[0][:, -1], *(block[:, -1] for block in blocks)], axis=0)
    expected = np.hstack([start[:, None] + block for start, block in zip(behind[:-1], blocks, strict=True)])
    assert (compiled_weights.running_weights(values, scale) == expected).all()


@pytest.mark.parametrize("size", [1, 30, 1024, 100_000])
def test_running_sums_are_as_near_as_they_claim(size):
    """Against sums of whole numbers: half of what is allowed for, where all are as large and where they differ."""
    for most in (1, 3, 40):
        below = np.random.default_rng(size).integers(0, most, size).astype(np.uint64)
        below[0] = 0
        found = compiled_weights.running_weights(-below.astype(np.int64)[None], 3.7)[0]
        low, high, _ = gap_sums(below, 3.7, 128)
        for i in {0, size // 3, size - 1}:
            assert low[i] <= high[i] <= low[i] + (low[i] >> 100)
            assert abs(Fraction(found[i]) / Fraction(low[i], 4**128) - 1) <= compiled_weights.off(size) / 2
    assert compiled_weights.off(10**6) < 2e-12


@pytest.mark.parametrize("scale", [3.7, 1e4, 2.0**45 / 3])
def test_rough_weights_are_as_near_as_they_claim(scale):
    """Of integers as far apart as floats no longer tell, and all over the table: a quarter of what is allowed for."""
    some = np.unique(np.rint(np.linspace(0, 59.5, 400) * scale).astype(np.uint64))
    for series, allowed in ((FINE, FINE_ERROR), (SERIES, ROUGH_ERROR)):
        found = rough_weights(some, scale, series)
        for gap, near in zip(some.tolist(), found.tolist(), strict=True):
            low, high = mechanisms.weight(gap, scale, 256)
            assert max(abs(low - Fraction(near)), abs(high - Fraction(near))) <= low * Fraction(allowed) / 4
    assert min(abs(rough_weights(some, scale) / found - 1)) < 4 * FINE_ERROR  # and the other series is not as near


def test_differences_beyond_64_bits_are_taken_exactly(monkeypatch):
    """The best and the worst there can be: their difference does not fit into an int64."""
    values = np.array([-(2**63), 2**63 - 1, -(2**63) + 5, 2**63 - 3])
    mechanism = ExponentialSelection(Decimal(1))
    assert {mechanism.draw(values, 1) for _ in range(200)} == {1, 3}


def test_one_candidate_is_chosen():
    assert ExponentialSelection(Decimal(1)).draw(np.array([5]), 1) == 0


@pytest.mark.parametrize("kind", [ExponentialSelection, PermuteAndFlip])
@pytest.mark.parametrize("h", [0, mechanisms.AT_ONCE - 1, mechanisms.AT_ONCE, 2 * mechanisms.AT_ONCE, 70_000])
def test_the_best_by_far_is_chosen_of_many_wherever_it_is(kind, h):
    values = np.zeros(70_001, np.int64)
    values[h] = 10**6
    assert kind(Decimal(1)).draw(values, 1) == h


def test_any_of_the_heads_is_the_law_of_permute_and_flip():
    """All coins flipped and one of the heads taken, enumerated, against the law that its paper proves."""
    values, rate = np.array([4, 4, 1, -2, 0, 3]), 0.37
    chances = np.exp(rate * (values - values.max()))
    law = np.zeros(values.size)
    for heads in product([False, True], repeat=values.size):
        if any(heads):
            weight = prod(p if head else 1 - p for p, head in zip(chances, heads, strict=True))
            law += weight * np.array(heads) / sum(heads)
    assert law == pytest.approx(np.exp(permute_and_flip_law(values, rate)), rel=1e-12)


@pytest.mark.parametrize("gap", [1, 7, 25, 400])
def test_each_of_the_coins_turns_at_its_exact_chance(monkeypatch, gap):
    """On either side of it, and closer to it than the rough bounds are; the best always is heads."""
    low, high = mechanisms.weight(gap, 10.0, 64)
    assert 0 <= high - low < Fraction(1, 2**64)
    assert float(low) == pytest.approx(exp(-gap / 10), rel=1e-9)
    turn, close = int(low * 2**64), int(low * 2**64) >> 40
    for uniform, expected in ((0, True), (turn - close - 1, True), (turn + close + 1, False), (2**64 - 1, False)):
        words = np.array([2**64 - 1, uniform], np.uint64).tobytes()
        monkeypatch.setattr(mechanisms.os, "urandom", lambda size, words=words: words if size == 16 else bytes(size))
        assert mechanisms.flip_coins(np.array([0, gap], np.uint64), 10.0).tolist() == [True, expected]


def test_coins_ask_for_more_bits_until_they_tell(monkeypatch):
    exact = int(mechanisms.weight(7, 10.0, 256)[0] * 2**192)
    for last, expected in ((0, True), (2**64 - 1, False)):
        words = [np.array([exact >> 128], np.uint64).tobytes(), (exact >> 64 & 2**64 - 1).to_bytes(8, "big")]
        words.append(last.to_bytes(8, "big"))
        monkeypatch.setattr(mechanisms.os, "urandom", lambda size, words=words: words.pop(0))
        assert mechanisms.flip_coins(np.array([7], np.uint64), 10.0).tolist() == [expected]
        assert not words


@pytest.mark.statistical
@pytest.mark.parametrize("gaps", [np.zeros(4000), np.full(4000, 9), np.full(4000, 500), np.arange(4000)])
def test_how_much_is_drawn_does_not_depend_on_the_scores(monkeypatch, gaps):
    """64 bits for every candidate, and hardly ever a digit more; one number among the heads. The sampler before this
    one flipped until the first heads: 1.2 ms or 242 ms. False alarm: 2e-4 (one coin in 1e8 asks for digits)."""
    asked, digits = [], []
    real, exact = mechanisms.os.urandom, mechanisms.weight
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: asked.append(size) or real(size))
    monkeypatch.setattr(mechanisms, "weight", lambda *given: digits.append(given) or exact(*given))
    values = -np.append(gaps, 0).astype(np.int64)
    for _ in range(5):
        assert 0 <= PermuteAndFlip(Decimal("0.1")).draw(values, 1) < values.size
    assert asked.count(8 * values.size) == 5
    assert digits == []
