"""The claims of objective perturbation (docs/privacy/ebm.md) against exact laws, by quadrature over what it
releases, and against draws. Prices are read from the mechanism and the query under test.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import kstest, norm

from accountant.errors import PlanMismatch
from accountant.noise import objective as objectives
from accountant.noise.objective import FINE, RELEASED, RIDGE, STEP, ObjectivePerturbation, gradient, sample_normals
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.jobs.draw_journal import _encode
from training.learners.ebm import convex
from training.learners.ebm.blocks import EVERYBODY, Blocks, Each, Layout
from training.learners.ebm.convex import ConvexLoss
from training.rows.partitions.rows import FEW_ROWS, Rows
from training.session.session import Public, Rehearsal, Session

FEATURES = (BooleanFeature("f"),)
ORDERS = (1.05, 1.5, 3.0, 8.0, 20.0)
HALF = 1 << convex.TABLE_UNIT - 1  # slopes up to a half
PUBLIC = Public(FEATURES, "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False)


def rows_of(points: list[tuple[int, int]]) -> Rows:
    """Rows of (code, class)."""
    codes, labels = ([each[at] for each in points] for at in (0, 1))
    return Rows(np.array([codes], np.uint8).reshape(1, -1), np.array(labels, np.uint8), [3])


def loss_of(blocks: Blocks, layout: Layout, clip: int = HALF) -> ConvexLoss:
    return ConvexLoss(blocks, layout, clip, np.zeros(blocks.width, np.int64), FEW_ROWS)


def mechanism_of(query: ConvexLoss, noise: str, curvature: str) -> ObjectivePerturbation:
    return ObjectivePerturbation(Decimal(noise), Decimal(curvature), Decimal(100), query.layout.square, query.size)


def price(mechanism: ObjectivePerturbation, order: float) -> float:
    """Of the noise in the loss and its curvature."""
    return mechanism.event.rdp(order) + mechanism.charges[0].event.rdp(order)


def scale_of(mechanism: ObjectivePerturbation, query: ConvexLoss) -> float:
    return mechanism.check_scale(query.sensitivity(Relation.ADD_REMOVE)) * 2.0**-objectives.SLOPE_UNIT


def slopes_at(table: np.ndarray, scores: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    """The loss of a row as the query defines it: slope and what it rises by."""
    knots = (np.arange(table.size) - table.size // 2) / convex.KNOTS
    signed = -scores if label else scores
    slope = np.interp(signed, knots, table) / 2.0**convex.TABLE_UNIT
    step = np.clip(np.searchsorted(knots, signed, side="right") - 1, 0, table.size - 2)
    rise = np.where(
        (signed >= knots[0]) & (signed < knots[-1]), np.diff(table)[step] * convex.KNOTS / 2.0**convex.TABLE_UNIT, 0.0
    )
    return (-slope if label else slope), rise


def log_density(points, blocks: Blocks, mechanism, query, grid: list[np.ndarray]) -> np.ndarray:
    """Of the exact minimum: the noise that leads there, and the volume."""
    table, ridge, scale = convex.slope_table(query.clip), mechanism.ridge / 2**RIDGE, scale_of(mechanism, query)
    noise = [ridge * each for each in grid]
    curved = np.zeros((*grid[0].shape, blocks.size, blocks.size)) + ridge * np.eye(blocks.size)
    for code, label in points:
        entries = zip(blocks.coordinates.tolist(), blocks.codes.tolist(), blocks.weights.tolist(), strict=True)
        has = {at: weight for at, of, weight in entries if of == code}
        slope, rise = slopes_at(table, sum(weight * grid[at] for at, weight in has.items()), label)
        for at, weight in has.items():
            noise[at] = noise[at] + weight * slope
        for one, other in product(has, has):
            curved[..., one, other] += has[one] * has[other] * rise
    return sum(norm.logpdf(each, scale=scale) for each in noise) + np.log(np.linalg.det(curved))


def divergence(one, other, order: float, axes: list[np.ndarray]) -> float:
    exponent = order * one + (1 - order) * other
    top = exponent.max()
    total = np.exp(exponent - top)
    for axis in reversed(axes):
        total = trapezoid(total, axis)
    return float(np.log(total) + top) / (order - 1)


CASES = [("2", "0.16"), ("0.7", "0.48"), ("4", "1"), ("20", "1")]
NOWHERE = np.zeros(1, np.int64)
LINE = Blocks(np.zeros(3, np.int64), np.arange(3), np.full(3, EVERYBODY), NOWHERE, 1, 3)  # everybody's coordinate alone
LAYOUT = Layout.of(FEATURES, [2])
ONE = loss_of(LINE, Layout((), 1))
BOTH = loss_of(Blocks.of(FEATURES, LAYOUT), LAYOUT)  # a constant and the feature's codes


def worst(noise: str, curvature: str, clip: int = HALF, most: int = 2) -> dict[float, float]:
    """Of each order: the largest divergence over its price, over neighbours of few rows of one coordinate."""
    query, found = loss_of(LINE, ONE.layout, clip), dict.fromkeys(ORDERS, 0.0)
    mechanism = mechanism_of(query, noise, curvature)
    width = 14 * scale_of(mechanism, query) * (1 + 20 / float(noise)) / (mechanism.ridge / 2**RIDGE)
    grid = np.linspace(-width, width, 40_001)
    for first, second in product(range(most + 1), repeat=2):
        less = [(0, 0)] * first + [(0, 1)] * second
        densities = [log_density(each, LINE, mechanism, query, [grid]) for each in (less, [*less, (0, 1)])]
        for order, (one, other) in product(ORDERS, (densities, densities[::-1])):
            found[order] = max(found[order], divergence(one, other, order, [grid]) / price(mechanism, order))
    return found


@pytest.mark.parametrize(("noise", "curvature"), CASES)
def test_no_exact_loss_is_above_its_price(noise, curvature):
    found = worst(noise, curvature)
    assert max(found.values()) <= 1
    if float(curvature) * float(noise) < 1:  # curvature is a third of it, as in fits
        assert max(found.values()) > 0.8


def test_half_of_the_noise_would_be_seen(monkeypatch):
    true = objectives.scale_of
    monkeypatch.setattr(objectives, "scale_of", lambda *given: true(*given) / 2)
    assert max(worst("2", "0.16").values()) > 2


def test_without_the_price_of_curvature_it_would_be_seen(monkeypatch):
    monkeypatch.setattr(f"{__name__}.price", lambda mechanism, order: mechanism.event.rdp(order))
    assert max(worst("20", "1").values()) > 1.02


def of_two_coordinates(layout: Layout) -> float:
    """The largest divergence over its price of a row more that has both coordinates, one at a part of its weight."""
    codes, weights = np.array([0, 1, 1, 2]), np.array([EVERYBODY, EVERYBODY, -EVERYBODY // 2, EVERYBODY // 2])
    query = loss_of(Blocks(np.array([0, 0, 1, 1]), codes, weights, NOWHERE, 2, 3), layout)
    mechanism = mechanism_of(query, "1", "0.4")
    width = 14 * scale_of(mechanism, query) / (mechanism.ridge / 2**RIDGE)
    axis = np.linspace(-width, width, 801)
    grid = list(np.meshgrid(axis, axis, indexing="ij"))
    less = [(0, 0), (2, 1)]
    densities = [log_density(each, query.blocks, mechanism, query, grid) for each in (less, [*less, (1, 1)])]
    return max(
        divergence(one, other, order, [axis, axis]) / price(mechanism, order)
        for order, (one, other) in product((1.5, 3.0, 8.0), (densities, densities[::-1]))
    )


def test_no_exact_loss_of_two_weighed_coordinates_is_above_its_price(monkeypatch):
    """And is, where a row is twice as long as the price says."""
    right = Layout(((Each(EVERYBODY // 2),),), 2)
    assert right.square == EVERYBODY**2 + (EVERYBODY // 2) ** 2
    assert 0.5 < of_two_coordinates(right) <= 1
    monkeypatch.setattr(Blocks, "longest", lambda blocks: 0)  # else it is refused
    half = SimpleNamespace(square=right.square // 4, count=right.count)
    assert of_two_coordinates(half) > 1.5


NUMBERS = tuple(NumericFeature("x", tuple(map(float, range(cuts)))) for cuts in (1, 4, 11, 31, 254))


def test_no_row_is_longer_than_its_layout_says():
    """Every code of every kind of feature, as the entries have it; and weights twice as large are refused."""
    for found in (NUMBERS, tuple(reversed(NUMBERS)), (*FEATURES, CategoricalFeature("c", ("a", "b", "c")))):
        layout = Layout.of(found, [31] * len(found))  # public before cut points are: as many bins of each number
        seen = [np.random.default_rng(0).normal(20, 30, feature.bins) for feature in found]
        blocks, length = Blocks.of(found, layout, seen), 0
        for place, feature in zip(blocks.places.tolist(), found, strict=True):
            codes = range(place, place + feature.bins)
            length += max(sum(w**2 for w in blocks.weights[blocks.codes == code].tolist()) for code in codes)
        assert 0 < length <= layout.square
        assert blocks.longest() == length
        loss = loss_of(blocks, layout)
        assert loss.sensitivity(Relation.ADD_REMOVE) * 2.0**-objectives.SLOPE_UNIT >= length**0.5 / 2
        assert np.bincount(blocks.codes).max() <= layout.count
        with pytest.raises(PlanMismatch, match="more weight"):
            loss_of(replace(blocks, weights=2 * blocks.weights), layout)


def best(s: float, k: float, m: float, removed: bool, steps: int = 25) -> float:
    """The moment of the worst of slopes that fall from s to 0, at most k fast, along the noise: by value iteration."""
    fall = s / steps
    width, slopes, values = fall / k, np.arange(steps + 1) * fall, np.zeros(steps + 1)
    for u in np.arange(-12 - 1.2 * m * s, 12 + 1.2 * m * s, width)[::-1]:
        sign, power = (-1, -m) if removed else (1, m + 1)
        level, down = (
            norm.pdf(u) * width * np.exp(abs(power) * sign * (2 * f * u - f * f) / 2)
            for f in (slopes, slopes[1:] - fall / 2)
        )
        values = np.maximum(values + level, np.append(-1.0, values[:-1] + down * (1 + k) ** power))
    return float(values.max())


@pytest.mark.parametrize(("s", "k"), [(0.27, 0.09), (0.27, 0.6), (0.8, 0.27), (1.6, 0.5), (0.4, 0.9)])
def test_the_worst_that_any_rows_could_do_is_within_the_price(s, k):
    for m, removed in product((0.3, 1.0, 5.0, 15.0), (False, True)):
        if m * s < 8:
            allowed = m * (m + 1) * s * s / 2 + np.log(np.cosh(m * k) + np.sinh(m * k) * np.tanh(k / 2))
            assert np.log(best(s, k, m, removed)) <= allowed + 1e-3


def test_the_lemma_of_removal_holds():
    k, x = np.meshgrid(np.geomspace(1e-3, 1, 150), np.geomspace(1e-3, 300, 6000), indexing="ij")
    m = x / k
    excess = np.expm1(-m * np.log1p(k)) + x
    theta = excess / (k * m * (m + 1))
    zeta = 1 / theta - m
    factor = (np.exp(m * theta / 2 / zeta) + np.exp(m * theta * (1 + 1 / 2 / zeta))) / 2
    right = np.cosh(x) - 1 + np.sinh(x) * np.tanh(k / 2)
    assert zeta.min() >= 1
    assert (excess * factor <= right).all()
    near, q, e0 = x <= 1, x * k / 2, np.expm1(-x) + x  # the steps by hand
    rest = np.exp(-x) * (1 - k / 6) * (1 + 0.3 * x * k) * (1 + 0.325 * x) * (1 + 0.285 * x * k)
    assert (factor <= (1 + 0.325 * x) * (1 + 0.285 * x * k))[near].all()
    assert (e0 * (1 + 0.325 * x) <= np.cosh(x) - 1)[near].all()
    assert (rest + 0.57 * e0 * (1 + 0.325 * x) <= (1 + x * x / 6) * (1 - k * k / 12))[near].all()
    r = q * (1 - k / 6)
    assert (excess <= e0 + np.exp(-x) * (r + 0.6 * r * r) + 1e-16)[near].all()
    axes = np.linspace(0, 1, 101), np.linspace(1, 3.5, 251)  # x from 1 to 3.5: cells bounded by their corners
    k0, x0 = np.meshgrid(*(axis[:-1] for axis in axes), indexing="ij")
    k1, x1 = np.meshgrid(*(axis[1:] for axis in axes), indexing="ij")
    most = np.expm1(-np.log1p(k1) / k1 * x1) + x1
    part = most / (x0 + k0)  # of m theta
    half = part * part * k1 / x0 / (2 * (1 - part))
    assert part.max() < 1
    left = most * (np.exp(half) + np.exp(part + half)) / 2
    assert (np.cosh(x0) - 1 + np.sinh(x0) * np.tanh(k0 / 2) - left).min() > 0.08
    assert np.cosh(3.5) >= 1 + 3.63 * 3.5
    assert np.sinh(3.5) >= 3.63 >= (np.exp(2 / 3) + np.exp(5 / 3)) / 2


# ---- the draw --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.8, 2.5, 9e5])
def test_noise_in_the_loss_is_normal_to_its_last_digits(scale):
    drawn = sample_normals(scale, 60_000)
    assert kstest(drawn / (scale * 2.0**objectives.DIGITS), "norm").pvalue > 1e-5
    assert kstest((np.abs(drawn) & 0xFFFF) / 2.0**16, "uniform").pvalue > 1e-5


def test_coins_that_floats_do_not_decide_are_decided_by_digits():
    whole, behind, scale = 1, 1 << 31, 0.8  # at 1.5
    chance = np.exp(-(1.5**2 - 1) / (2 * scale**2))
    for apart, heads in ((-(1 << 24), True), (1 << 24, False)):
        assert objectives._decide(whole, behind, int(chance * 2**64) + (apart << 16), scale) is heads


def released(points, mechanism: ObjectivePerturbation, query: ConvexLoss, count: int) -> np.ndarray:
    loss = query(rows_of(points))
    return np.array([mechanism.draw(loss, query.sensitivity(Relation.ADD_REMOVE))[0] for _ in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("bug", [False, True])
def test_what_is_drawn_follows_the_exact_law(bug, monkeypatch):
    """And would not with half of the noise."""
    points = [(0, 1), (1, 1), (2, 0), (2, 1)]
    mechanism, query = mechanism_of(ONE, "0.8", "0.5"), ONE
    grid = np.linspace(-12, 12, 40_001)
    density = np.exp(log_density(points, LINE, mechanism, query, [grid]))
    law = np.cumsum(density) * (grid[1] - grid[0])
    assert law[-1] == pytest.approx(1, abs=1e-3)
    if bug:
        true = objectives.scale_of
        monkeypatch.setattr(objectives, "scale_of", lambda *given: true(*given) / 2)
    drawn = released(points, mechanism, query, 500) / 2.0**RELEASED
    assert (kstest(drawn, lambda x: np.interp(x, grid, law)).pvalue > 1e-5) is not bug


class Badly:
    """Offers what is no minimum first."""

    def __init__(self, loss, by: int) -> None:
        self.loss, self.by = loss, by

    def __len__(self) -> int:
        return len(self.loss)

    def slopes(self, theta, bits):
        return self.loss.slopes(theta, bits)

    def candidates(self, noise, ridge):
        for theta, bits in self.loss.candidates(noise, ridge):
            yield [each + (self.by << bits - RELEASED) for each in theta], bits
            yield theta, bits


def test_what_is_no_minimum_is_never_released(monkeypatch):
    mechanism, query = mechanism_of(ONE, "0.8", "0.5"), ONE
    loss, noise = query(rows_of([(0, 1), (1, 0)])), sample_normals(1000.0, 1)
    monkeypatch.setattr(objectives, "sample_normals", lambda scale, count: noise)
    monkeypatch.setattr(objectives, "DiscreteGaussian", lambda multiplier: Plain())
    offered = [mechanism.draw(Badly(loss, by), 1)[0] for by in (0, mechanism.apart)]
    assert abs(int(offered[0]) - int(offered[1])) <= mechanism.apart // 2


class Plain:
    """No noise."""

    def draw(self, values, sensitivity):
        return values


@pytest.mark.parametrize("turns", [convex.TURNS, 0])
def test_answers_whose_exact_minima_are_the_same_are_so_near(turns, monkeypatch):
    """A neighbour's noise is moved by what its row adds to the gradient. With no fast steps, the sure ones do it."""
    monkeypatch.setattr(convex, "TURNS", turns)
    monkeypatch.setattr(objectives, "DiscreteGaussian", lambda multiplier: Plain())
    mechanism, query = mechanism_of(BOTH, "0.8", "0.5"), BOTH
    points = [(0, 1), (1, 0), (1, 1), (2, 0)] * (50 if turns else 1)
    noise = sample_normals(3000.0, query.size)
    monkeypatch.setattr(objectives, "sample_normals", lambda scale, count: noise)
    loss = query(rows_of(points))
    here = mechanism.draw(loss, 1)
    theta, bits = next(loss.candidates(noise, mechanism.ridge))
    both = [query(rows_of(each)).slopes(theta, bits) for each in (points, [*points, (2, 1)])]
    shift = bits + STEP - objectives.SLOPE_UNIT - objectives.DIGITS
    noise = noise - np.array([(int(more) - int(less)) >> shift for less, more in zip(*both, strict=True)])
    there = mechanism.draw(query(rows_of([*points, (2, 1)])), 1)
    assert np.linalg.norm(here - there) <= mechanism.apart
    assert not (here == 0).all()


def test_slopes_are_the_same_by_either_way_and_by_the_definition():
    blocks, points = BOTH.blocks, [(code, label) for code in (0, 1, 2) for label in (0, 1)] * 3
    begin = np.array([1, 1, 1]) << FINE - 2
    loss = ConvexLoss(blocks, LAYOUT, HALF, begin, FEW_ROWS)(rows_of(points))
    theta = [int(each) for each in np.random.default_rng(1).normal(0, 2.0**FINE, blocks.size)]
    theta[1] = 40 << FINE  # beyond the table
    fast, long = loss.slopes(theta, FINE), loss.slopes([each << convex.LONGER for each in theta], FINE + convex.LONGER)
    assert [each << convex.LONGER for each in fast] == long
    scores = (blocks.terms(np.array(theta)) + begin) / 2.0**FINE
    terms = [slopes_at(convex.slope_table(HALF), scores[code], label)[0] for code, label in points]
    wanted = sum(terms)
    assert fast[0] / 2.0 ** (FINE + STEP) == pytest.approx(EVERYBODY * wanted, rel=1e-9)
    assert any(gradient(fast, theta, FINE, np.zeros(blocks.size, np.int64), 1024))


# ---- the session -----------------------------------------------------------------------------------------------------


def test_a_plan_has_all_that_the_draw_costs_and_is_played_once():
    mechanism, query = mechanism_of(BOTH, "3", "0.11"), BOTH
    rehearsal = Rehearsal(PUBLIC, Decimal(1))
    assert rehearsal.release(query, mechanism).shape == (query.size,)
    assert [release.event for release, _ in rehearsal.plan.runs] == [
        mechanism.event,
        *(each.event for each in mechanism.charges),
    ]
    stored = []

    class Journal:
        is_kept = False

        def next(self, draw):
            stored.append(_encode(draw()))
            return 0

    session = Session(PUBLIC, Decimal(1), rehearsal.plan, rows_of([(0, 1), (1, 0)]), answers=Journal())
    session.release(query, mechanism)
    assert len(stored) == 3
    assert session.close() == rehearsal.plan
    with pytest.raises(PlanMismatch):
        session.release(query, mechanism)


@pytest.mark.parametrize("change", [{"relation": Relation.REPLACE_ONE}, {"contributions": 2}])
def test_what_is_not_proved_is_refused(change):
    with pytest.raises(PlanMismatch, match="proved for one row"):
        Rehearsal(replace(PUBLIC, **change), Decimal(1)).release(BOTH, mechanism_of(BOTH, "3", "0.1"))


def test_too_little_ridge_or_too_much_noise_is_refused():
    with pytest.raises(InputError, match="at most 1 is proved"):
        mechanism_of(ONE, "3", "1.1")
    with pytest.raises(InputError, match="too much noise"):
        mechanism_of(ONE, "100000", "0.1").check_scale(1 << 11)
