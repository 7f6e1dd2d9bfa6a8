"""Gaussian and Laplace noise that is exact: blocks of sizes by inversion, a place in the block, and a coin
(docs/privacy/prices.md, "Draws"). Every part is held against the weights by Decimal's exponential, to more digits than
the part has bits. Power 2 is the Gaussian's, 1 is Laplace's."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from accountant.noise import exact_weights, mechanisms
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace

SCALES = [1e-9, 0.001, 0.3, 1.0, 7.9, 8.0, 100.7, 2.0**20 * 1.37, 2.0**54]
ALL = 2**64
POWERS = pytest.mark.parametrize("power", [2, 1])


def law_of(power: int) -> tuple[int, ...]:
    """What the sampler is asked for beside a scale: the Gaussian's is what it does unasked."""
    return () if power == 2 else (power,)


def exact(gap: int, scale: float, power: int = 2, digits: int = 120) -> Fraction:
    """exp(-gap / (2 scale^2)), or by power 1 exp(-gap / scale)."""
    with localcontext(prec=digits):
        return Fraction((-Decimal(gap) / (2 * Decimal(scale) ** 2 if power == 2 else Decimal(scale))).exp())


def ends(scale: float, power: int = 2) -> list[Fraction]:
    """Where each block ends, of 1; as many blocks as are above 2^-140 of the whole."""
    width, sizes = exact_weights.width_of(scale), [Fraction(1)]
    while sizes[-1] * 2**140 > 1:
        sizes.append(exact((width * len(sizes)) ** power, scale, power))
    whole, found = sum(sizes), [Fraction(0)]
    for size in sizes:
        found.append(found[-1] + size / whole)
    return found[1:]


@pytest.mark.slow
@POWERS
@pytest.mark.parametrize("scale", SCALES)
def test_blocks_end_where_they_should(scale, power):
    """Both bounds of every end, which are a 2^-63rd apart or less; and blocks are between a 16th and an 8th wide."""
    width = exact_weights.width_of(scale)
    assert width & (width - 1) == 0
    assert width == 1 or scale / 16 < width <= scale / 8
    assert width > 1 or scale < 16
    ended, holds = exact_weights.block_ends(scale, *law_of(power))
    assert holds.size == ended.size + 1
    assert holds[-1] == 0
    for end, before, within in zip(ends(scale, power), ended.tolist(), holds.tolist(), strict=False):
        assert within <= end * ALL <= before + 1
        assert before + 1 - within <= 2


@pytest.mark.slow
@POWERS
@pytest.mark.parametrize("scale", [1.0, 100.7, 2.0**20 * 1.37])
def test_a_number_falls_into_its_block(monkeypatch, scale, power):
    """On either side of each end; where 64 bits do not tell, the bits that follow do."""
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: b"\x80" + bytes(size - 1))
    exactly = ends(scale, power)
    every = 1 if power == 2 else 61  # Laplace noise has four times as many blocks, all of one ratio
    for block, end in [*enumerate(exactly[:-1])][::every]:
        turn = int(end * ALL)
        near = [u for u in (turn - 9, turn - 2, turn - 1, turn, turn + 1, turn + 2, turn + 9) if 0 <= u < ALL]
        found = mechanisms.find_blocks(np.array(near, np.uint64), scale, *law_of(power)).tolist()
        assert found == [bisect_right(exactly, Fraction(2 * u + 1, 2 * ALL)) for u in near], block
    assert mechanisms.find_blocks(np.array([0], np.uint64), scale, *law_of(power)).tolist() == [0]


@POWERS
@pytest.mark.parametrize(("last", "expected"), [(0, 2), (ALL - 1, 3)])
def test_a_block_asks_for_more_bits_until_they_tell(monkeypatch, last, expected, power):
    """A number whose first 128 bits are those of the end of block 2."""
    end = int(ends(100.7, power)[2] * 2**192)
    left = [(end >> 64 & (ALL - 1)).to_bytes(8, "big"), last.to_bytes(8, "big")]
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: left.pop(0))
    found = mechanisms.find_blocks(np.array([end >> 128], np.uint64), 100.7, *law_of(power))
    assert found.tolist() == [expected]
    assert left == []


def words(monkeypatch, blocks: list[int], places: list[int]) -> None:
    """The first two draws of a proposal, number by number; what comes after is the system's own."""
    real, given = mechanisms.os.urandom, [np.array([*blocks, *places], np.uint64).tobytes()]
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: given.pop(0) if given else real(size))


@pytest.mark.parametrize("scale", [3.0, 100.7, 2.0**20 * 1.37, 2.0**54])
def test_a_size_is_kept_with_the_chance_that_its_block_lacks(monkeypatch, scale):
    """What the coin is flipped with: floats near (z^2 - first^2) / (2 scale^2), and bounds of its exponential."""
    count, width = 24, exact_weights.width_of(scale)
    asked = count * 9 // 8 + 8
    turns = [ALL * k // asked for k in range(asked)]
    inside = [(k * 0x9E3779B97F4A7C15 % ALL) for k in range(asked)]
    blocks = mechanisms.find_blocks(np.array(turns, np.uint64), scale).tolist()
    seen = []

    def coins(below, twice, chance):
        for i in range(asked):
            first, size = width * blocks[i], width * blocks[i] + inside[i] % width
            true = Fraction(size**2 - first**2) / (2 * Fraction(scale) ** 2)
            assert abs(Fraction(float(below[i])) / Fraction(twice) - true) <= true / 2**50
            low, high = chance(i, 200)
            assert low <= exact(size**2 - first**2, scale) <= high
            assert high - low <= Fraction(1, 2**200)
        seen.append(asked)
        return np.ones(asked, np.bool_)

    monkeypatch.setattr(mechanisms, "flip_coins", coins)
    words(monkeypatch, turns, inside)
    drawn = mechanisms.sample_noise(scale, count).tolist()
    sizes = [width * block + place % width for block, place in zip(blocks, inside, strict=True)]
    signed = [-size if place >> 63 else size for size, place in zip(sizes, inside, strict=True)]
    assert drawn == [z for z, place in zip(signed, inside, strict=True) if z or not place >> 63][:count]
    assert seen == [asked]


@pytest.mark.parametrize("scale", [3.0, 100.7, 2.0**20 * 1.37, 2.0**47])
def test_a_size_of_laplace_noise_is_kept_with_the_chance_that_its_block_lacks(monkeypatch, scale):
    """The coin is that of a choice: a whole gap, the place in the block, over the scale itself."""
    count, width = 24, exact_weights.width_of(scale)
    asked = count * 9 // 8 + 8
    turns = [ALL * k // asked for k in range(asked)]
    inside = [(k * 0x9E3779B97F4A7C15 % ALL) for k in range(asked)]
    blocks = mechanisms.find_blocks(np.array(turns, np.uint64), scale, 1).tolist()
    seen = []

    def coins(below, over):
        assert below.tolist() == [place % width for place in inside]
        assert over == scale
        seen.append(asked)
        return np.ones(asked, np.bool_)

    monkeypatch.setattr(mechanisms, "flip_coins", coins)
    words(monkeypatch, turns, inside)
    drawn = mechanisms.sample_noise(scale, count, 1).tolist()
    sizes = [width * block + place % width for block, place in zip(blocks, inside, strict=True)]
    signed = [-size if place >> 63 else size for size, place in zip(sizes, inside, strict=True)]
    assert drawn == [z for z, place in zip(signed, inside, strict=True) if z or not place >> 63][:count]
    assert seen == [asked]


def law(scale: float, most: int, power: int) -> dict[int, float]:
    over = 2 * scale**2 if power == 2 else scale
    chances = {z: float(np.exp(-(abs(z) ** power) / over)) for z in range(-most, most + 1)}
    whole = sum(chances.values())
    return {z: chance / whole for z, chance in chances.items()}


def p_value(drawn: np.ndarray, scale: float, power: int = 2) -> float:
    """Chi-square of at most a hundred groups of neighbouring sizes, of about the same chance."""
    chances, seen = law(scale, int((12 if power == 2 else 45) * scale) + 9, power), Counter(drawn.tolist())
    found, expected = [0], [0.0]
    for z, chance in chances.items():
        if expected[-1] >= 0.01:
            found, expected = [*found, 0], [*expected, 0.0]
        found[-1], expected[-1] = found[-1] + seen.pop(z, 0), expected[-1] + chance
    if seen:
        return 0.0
    found = [*found[:-2], found[-2] + found[-1]]
    shares = np.array([*expected[:-2], expected[-2] + expected[-1]])
    return float(chisquare(found, shares / shares.sum() * drawn.size).pvalue)


@pytest.mark.statistical
@POWERS
@pytest.mark.parametrize("scale", [0.6, 3.0, 40.0, 700.0])
def test_the_law_of_what_is_drawn(scale, power):
    """A scale that is off by a twelfth is seen: missing it is less likely than 1e-9. False alarm: 1e-6."""
    drawn = mechanisms.sample_noise(scale, 60_000, *law_of(power))
    assert p_value(drawn, scale, power) > 1e-6
    assert p_value(drawn, scale * 1.08, power) < 1e-6
    assert p_value(drawn, scale / 1.08, power) < 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [DiscreteGaussian(Decimal(3)), DiscreteLaplace(Decimal("0.25"))])
def test_the_law_of_what_is_added_release_by_release(mechanism):
    """A scale that is off by a twelfth is seen: missing it is less likely than 1e-9. False alarm: 1e-6."""
    scale, power = (30.0, 2) if mechanism.norm == "l2" else (40.0, 1)
    values = np.arange(8)
    drawn = np.concatenate([mechanism.draw(values, 10) - values for _ in range(7500)])
    assert p_value(drawn, scale, power) > 1e-6
    assert p_value(drawn, scale * 1.08, power) < 1e-6
    assert p_value(drawn, scale / 1.08, power) < 1e-6
    halves = np.sign(drawn[:-8].astype(float)) @ np.sign(drawn[8:])  # of releases one after the other
    assert abs(halves) < 5 * np.sqrt(drawn.size)


@pytest.mark.statistical
@POWERS
@pytest.mark.parametrize("fault", ["no coin", "a negative zero", "blocks of another scale", "one sign"])
def test_faults_are_seen(monkeypatch, fault, power):
    """Missing one of them is less likely than 1e-9."""
    coins, ends_of, frombuffer = mechanisms.flip_coins, mechanisms.block_ends, np.frombuffer
    if fault == "no coin":  # 64 has blocks of 8: what a coin takes is little, and seen
        monkeypatch.setattr(mechanisms, "flip_coins", lambda below, *_: np.ones(below.size, np.bool_))
    elif fault == "a negative zero":
        monkeypatch.setattr(mechanisms, "flip_coins", lambda *given: coins(*given).astype(np.int64).view(Anyway))
    elif fault == "blocks of another scale":
        monkeypatch.setattr(mechanisms, "block_ends", lambda scale, *law: ends_of(scale * 1.5, *law))
    else:
        monkeypatch.setattr(
            mechanisms.np, "frombuffer", lambda data, kind: frombuffer(data, kind) & np.uint64(ALL // 2 - 1)
        )
    scale = 0.6 if fault == "a negative zero" else 64.0
    assert p_value(mechanisms.sample_noise(scale, 400_000, *law_of(power)), scale, power) < 1e-6


class Anyway(np.ndarray):
    """Keeps what it had, whatever is asked of it beside."""

    def __iand__(self, other):
        return self.astype(np.bool_).view(np.ndarray)


@POWERS
def test_what_floats_tell_asks_for_no_digits(monkeypatch, power):
    """False alarm: 1e-5 (a coin in 1e8, and 64 bits at an end of a block, ask for more)."""
    exact_weights.block_ends(50.0, *law_of(power))
    monkeypatch.setattr(mechanisms, "weight", None)
    monkeypatch.setattr(mechanisms, "block_sums", None)
    assert mechanisms.sample_noise(50.0, 1000, *law_of(power)).size == 1000


def test_as_many_as_asked_for_however_few_are_kept(monkeypatch):
    """Nine of ten are rejected: it goes on until there are enough."""
    monkeypatch.setattr(mechanisms, "flip_coins", lambda below, *_: np.arange(below.size) % 10 == 0)
    assert mechanisms.sample_noise(50.0, 1000).shape == (1000,)
    assert mechanisms.sample_noise(50.0, 0).shape == (0,)


@POWERS
@pytest.mark.parametrize("scale", [0.4, 3.0, 100.7, 2.0**56 * 1.37, 2.0**300])
def test_wide_noise_has_the_same_law(monkeypatch, scale, power):
    """A block by inversion, any place in it, a sign, and the chance that the block lacks: as of the others, above."""
    width, ended, coins = exact_weights.width_of(scale), ends(scale, power), []

    def coin(uniform, low, high, chance):
        coins.append((uniform, low, high, *chance(200)))
        return True

    monkeypatch.setattr(mechanisms, "_coin", coin)
    for turn in (ALL * k // 9 for k in range(9)):
        block = bisect_right(ended, Fraction(2 * turn + 1, 2 * ALL))
        for place, negative in itertools.product({0, width // 3, width - 1}, (0, 1)):
            first, size = width * block, width * block + place
            words = [turn.to_bytes(8, "little"), bytes(8)]  # for the block, and for the coin
            monkeypatch.setattr(mechanisms.os, "urandom", lambda count, words=words: words.pop(0)[:count])
            monkeypatch.setattr(mechanisms.secrets, "randbelow", lambda bound, place=place: place % bound)
            monkeypatch.setattr(mechanisms.secrets, "randbits", lambda bits, sign=negative: sign)
            if not size and negative:  # a zero is kept with one sign alone
                with pytest.raises(IndexError):
                    mechanisms.sample_wide_noise(scale, *law_of(power))
            else:
                assert mechanisms.sample_wide_noise(scale, *law_of(power)) == (-size if negative else size)
            uniform, low, high, least, most = coins.pop()
            assert (uniform, low, high, words) == (0, 0, 1, [])
            assert least <= exact(size**power - first**power, scale, power) <= most
            assert most - least <= Fraction(1, 2**200)


@pytest.mark.statistical
@POWERS
def test_wide_noise_is_spread_as_it_should(power):
    """False alarm: 1e-6."""
    scale, count = 2.3, 20_000
    drawn = Counter(mechanisms.sample_wide_noise(scale, *law_of(power)) for _ in range(count))
    sizes = range(-7, 8)
    chances = np.array([float(exact(abs(size) ** power, scale, power)) for size in range(-80, 81)])
    law = chances / chances.sum() * count
    seen = [drawn[size] for size in sizes]
    expected = [law[size + 80] for size in sizes]
    assert chisquare([*seen, count - sum(seen)], [*expected, count - sum(expected)]).pvalue > 1e-6


@pytest.mark.parametrize(
    ("mechanism", "limit"), [(DiscreteGaussian(Decimal(2)), 1 << 54), (DiscreteLaplace(Decimal("0.5")), 1 << 47)]
)
def test_noise_beyond_64_bits_is_drawn_in_larger_integers(monkeypatch, mechanism, limit):
    """Sizes of the others fit 64 bits with room: 2^8 scales of the Gaussian, 2^15 of Laplace; and sums are clamped."""
    asked, real = [], mechanisms.sample_wide_noise
    monkeypatch.setattr(mechanisms, "sample_wide_noise", lambda *law: asked.append(law) or real(*law))
    most = np.iinfo(np.int64).max
    values = np.array([most, -most] * 40)
    for sensitivity in (limit, 16 * limit):
        drawn = mechanism.draw(values, sensitivity)
        assert len(asked) == (0 if sensitivity == limit else 80)
        assert {-most - 1, most} <= set(drawn.tolist())  # 40 of one sign: 2^-39
        assert drawn.dtype == np.int64
    asked.clear()
    assert mechanism.draw(np.zeros(3, np.int64), limit + 16).shape == (3,)
    assert {scale for scale, *_ in asked} == {float(2 * limit + 32)}
