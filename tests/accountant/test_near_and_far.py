"""Coins that are exact and whose time does not tell the scores: the exponential mechanism's, near or far and then
within, which together are its law; and permute-and-flip's, all flipped at once."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import exp, prod

import numpy as np
import pytest
from bare_draws import bare_draws
from exact_laws import permute_and_flip_law
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant import mechanisms
from accountant.mechanisms import ExponentialSelection, PermuteAndFlip

DRAWS = 4000


def chances(values, scale):
    weights = np.exp((values - values.max()) / scale)
    return weights / weights.sum()


@pytest.mark.statistical
@pytest.mark.parametrize("near", [0, 0.5, 2, 16])
def test_the_law_is_that_of_the_exponential_mechanism(monkeypatch, near):
    """The coin and the far part are in use all the time, but for the last. False alarm: below 1e-6."""
    monkeypatch.setattr(mechanisms, "NEAR", near)
    values = np.array([-300, 7, 0, 12, -14, 3, 12, 20, 5, -30, 8])
    expected = chances(values, 10.0)
    mechanism = ExponentialSelection(Decimal("0.1"))
    with bare_draws():
        found = np.bincount([mechanism.draw(values, 1) for _ in range(DRAWS)], minlength=values.size)
    spread = np.sqrt(DRAWS * expected * (1 - expected))
    assert (np.abs(found - DRAWS * expected) <= 5.5 * spread + 3).all(), found


def parts_of(gaps, scale):
    near = np.array([gap for gap in gaps if gap <= mechanisms.NEAR * scale], np.uint64)
    return near, np.array([gap for gap in gaps if gap > mechanisms.NEAR * scale], np.uint64)


def fixed(monkeypatch, numbers):
    """The coin's uniform number, 64 bits at a time; asking for more than there are is an error."""
    left = list(numbers)
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: left.pop(0).to_bytes(size, "big"))
    return left


@pytest.mark.parametrize("gaps", [[0, 25], [0, 170], [0, 3, 90, 161, 162, 400], [0] * 3 + [165] * 1000])
def test_the_coin_turns_at_the_exact_chance(monkeypatch, gaps):
    """On either side of it, and closer to it than the rough bounds are."""
    near, far = parts_of(gaps, 10.0)
    low, high = mechanisms._share(near, far, 10.0, 64)
    turn, close = int(low * 2**64), max(1, int(low * 2**64) >> 30)
    for uniform, expected in ((0, True), (turn - close, True), (turn + close, False), (2**64 - 1, False)):
        fixed(monkeypatch, [uniform, 0])
        assert mechanisms._is_far(near, far, 10.0) is expected
    assert 0 < high - low < Fraction(1, 2**64)
    weights = [sum(exp(-int(gap) / 10) for gap in part) for part in (near, far)]
    assert float(low) == pytest.approx(weights[1] / sum(weights), rel=1e-9)


def test_the_coin_asks_for_more_bits_until_they_tell(monkeypatch):
    near, far = parts_of([0, 170], 10.0)
    exact = int(mechanisms._share(near, far, 10.0, 256)[0] * 2**192)
    words = [exact >> 128, exact >> 64 & 2**64 - 1]
    for last, expected in ((0, True), (2**64 - 1, False)):
        left = fixed(monkeypatch, [*words, last])
        assert mechanisms._is_far(near, far, 10.0) is expected
        assert not left


@given(
    st.lists(st.integers(0, 10**4), min_size=1, max_size=30), st.lists(st.integers(1, 10**4), min_size=1, max_size=30)
)
@settings(deadline=None)
def test_rough_bounds_hold_the_exact_chance(near, far):
    parts = np.array([0, *near], np.uint64), np.array(far, np.uint64)
    (low, high), exact = mechanisms._rough_share(*parts, 100.0), mechanisms._share(*parts, 100.0, 64)
    assert low <= exact[0] <= exact[1] <= high
    assert high - low < 0.001


def test_a_coin_that_is_clear_asks_for_no_digits(monkeypatch):
    monkeypatch.setattr(mechanisms, "_share", None)
    fixed(monkeypatch, [2**63])
    assert not mechanisms._is_far(*parts_of([0, *[161] * 5000], 10.0), 10.0)


def test_differences_beyond_64_bits_are_taken_exactly(monkeypatch):
    """The best and the worst there can be: their difference does not fit into an int64."""
    values = np.array([-(2**63), 2**63 - 1, -(2**63) + 5, 2**63 - 3])
    mechanism = ExponentialSelection(Decimal(1))
    assert {mechanism.draw(values, 1) for _ in range(200)} == {1, 3}


def test_one_candidate_is_chosen():
    assert ExponentialSelection(Decimal(1)).draw(np.array([5]), 1) == 0


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
    low, high = mechanisms._weight(gap, 10.0, 64)
    assert 0 <= high - low < Fraction(1, 2**64)
    assert float(low) == pytest.approx(exp(-gap / 10), rel=1e-9)
    turn, close = int(low * 2**64), int(low * 2**64) >> 40
    for uniform, expected in ((0, True), (turn - close - 1, True), (turn + close + 1, False), (2**64 - 1, False)):
        words = np.array([2**64 - 1, uniform], np.uint64).tobytes()
        monkeypatch.setattr(mechanisms.os, "urandom", lambda size, words=words: words if size == 16 else bytes(size))
        assert mechanisms._coins(np.array([0, gap], np.uint64), 10.0).tolist() == [True, expected]


def test_coins_ask_for_more_bits_until_they_tell(monkeypatch):
    exact = int(mechanisms._weight(7, 10.0, 256)[0] * 2**192)
    for last, expected in ((0, True), (2**64 - 1, False)):
        words = [np.array([exact >> 128], np.uint64).tobytes(), (exact >> 64 & 2**64 - 1).to_bytes(8, "big")]
        words.append(last.to_bytes(8, "big"))
        monkeypatch.setattr(mechanisms.os, "urandom", lambda size, words=words: words.pop(0))
        assert mechanisms._coins(np.array([7], np.uint64), 10.0).tolist() == [expected]
        assert not words


@pytest.mark.statistical
@pytest.mark.parametrize("gaps", [np.zeros(4000), np.full(4000, 9), np.full(4000, 500), np.arange(4000)])
def test_how_much_is_drawn_does_not_depend_on_the_scores(monkeypatch, gaps):
    """64 bits for every candidate, and hardly ever a digit more; one number among the heads. The sampler before this
    one flipped until the first heads: 1.2 ms or 242 ms. False alarm: 1e-11 (one coin in 1e8 asks for digits)."""
    asked, digits = [], []
    real, exact = mechanisms.os.urandom, mechanisms._weight
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: asked.append(size) or real(size))
    monkeypatch.setattr(mechanisms, "_weight", lambda *given: digits.append(given) or exact(*given))
    values = -np.append(gaps, 0).astype(np.int64)
    for _ in range(5):
        assert 0 <= PermuteAndFlip(Decimal("0.1")).draw(values, 1) < values.size
    assert asked.count(8 * values.size) == 5
    assert len(digits) <= 2
