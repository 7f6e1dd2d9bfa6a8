"""Whole reports on worst pairs of owners, from rows to the exact law: never more than e^epsilon apart, and attained."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from one_of_k_law import law
from scipy.stats import beta, binom

from accountant.noise.one_of_k import OneOfK
from dpserve_verify.errors import InputError
from local.reports.coordinates import Coordinates, whitened_coordinates
from local.reports.corners import check_classes, corners
from local.reports.directions import SCALE, directions, gains, mean_of_reports, scores
from local.reports.learning import directions_for
from local.reports.statistics import own_vectors
from local.turns import stumps, weights
from local.turns.definition import BoostedDefinition
from local.turns.learning import alpha_of, half_log_odds, next_document, next_stumps
from local.turns.lines import Lines, radius_for
from local.turns.owned_scores import check_turn, scores_in
from local.turns.so_far import SoFar, Stump, read_so_far
from models.features.features import CategoricalFeature, NumericFeature, encode_columns
from models.parts.lines import Choice, Line
from models.parts.votes import Vote, holds

FEATURES = (NumericFeature("a", tuple(np.linspace(-3, 3, 33))), CategoricalFeature("c", ("u", "v")))
SEED = bytes(range(32))
CANDIDATES = 64


def coordinates() -> Coordinates:
    rng = np.random.default_rng(0)
    columns = {"a": rng.standard_normal(200), "c": rng.choice(["u", "v"], 200)}
    return whitened_coordinates(FEATURES, encode_columns(FEATURES, columns), 3)


def whole(learner: str, a: list[float], c: list[str], labels: list[int], classes: int = 2) -> list[int]:
    """Rows -> the scores of the owner's report."""
    where, codes = coordinates(), encode_columns(FEATURES, {"a": np.array(a), "c": np.array(c, object)})
    y = corners(classes)[np.array(labels) % classes]
    if learner in ASKED[classes]:
        definition, so_far = ASKED[classes][learner]
        owner = np.array([8 * definition.rounds - 2])
        turn = 2 if learner == "weigh" else definition.turn_of(int(owner[0]))
        return scores_in(definition, turn, codes, y, np.array([len(y)]), so_far, owner)[0].tolist()
    z = where.of(codes)
    own = own_vectors(learner, z, y, np.array([len(y)]))
    assert np.linalg.norm(own) < 1 + 1e-9
    assert own.shape == (1, (where.size + 1) * (classes - 1))
    vectors = directions(SEED, np.array([7]), CANDIDATES, own.shape[1])
    return scores(vectors, own)[0].tolist()


VOTES = SoFar((Vote("above", 0, 20, 700), Vote("is", 1, 0, -300), Vote("always", 0, 0, 90)))
LINES = SoFar((Line(500, 3, (tuple(range(-17, 18)), (0, 9, 0, 0))), Line(1, -2, (tuple(range(35)), (-20, 0, 0, 1)))))


STUMPS = SoFar((Stump("above", 0, 20, 700, 2, 0), Stump("is", 1, 0, 300, 1, 2), Stump("always", 0, 0, 90, 1, 1)), 3)
CHOICES = SoFar(
    tuple(
        Choice(weight, (3, -2, 0), tuple((tuple(np.roll(range(-17, 18), 9 * k).tolist()), (0, k, 0, 0)) for k in order))
        for weight, order in ((500, (0, 1, 2)), (1, (2, 0, 1)))
    ),
    3,
)


def asked(learner: str, classes: int = 2) -> BoostedDefinition:
    known = coordinates()
    basis = (
        stumps.tests_for(FEATURES, None)
        if learner == "local-stump"
        else Lines(known, {"local-ncc": "centroids", "local-lr": "regression"}[learner], radius_for(known, None))
    )
    return BoostedDefinition(
        "c", "p", "m", learner, Decimal(2), 100, 1, "y", ("a", "b", "c")[:classes], FEATURES, basis, "", SEED.hex(), 3,
        CANDIDATES, 20,
    )  # fmt: skip


ASKED = {
    classes: {
        "local-stump": (asked("local-stump", classes), votes),
        "local-ncc": (asked("local-ncc", classes), lines),
        "boosted local-lr": (asked("local-lr", classes), lines),
        "weigh": (asked("local-ncc", classes), lines),
    }
    for classes, votes, lines in ((2, VOTES, LINES), (3, STUMPS, CHOICES))
}
OWNERS = {
    "ordinary": ([0.1, -0.2, 2.0] * 7, ["u", "v", "u"] * 7, [1, 2, 1] * 7),
    "labels turned": ([0.1, -0.2, 2.0] * 7, ["u", "v", "u"] * 7, [0, 1, 0] * 7),
    "one class": ([3.0] * 20, ["u"] * 20, [1] * 20),
    "far beyond": ([1e300, -1e300] * 10, ["?"] * 20, [2] * 20),
    "missing": ([float("nan")] * 20, [None] * 20, [1] * 20),
    "balanced": ([1.0, 1.0] * 10, ["v", "v"] * 10, [1, 0] * 10),
}


@pytest.mark.parametrize("classes", ASKED)
@pytest.mark.parametrize("learner", ["local-linear", "local-lr", *ASKED[2]])
def test_whole_reports_are_at_most_e_epsilon_apart(learner, classes):
    weighs = learner == "weigh"
    mechanism = ASKED[classes]["local-ncc"][0].mechanism_in(2) if weighs else OneOfK(Decimal(2), CANDIDATES, 20)
    with localcontext(prec=50):
        most = Fraction(mechanism.epsilon.exp())
    laws = {name: law(mechanism, whole(learner, *rows, classes)) for name, rows in OWNERS.items()}
    worst = Fraction(0)
    for one, other in combinations(laws.values(), 2):
        worst = max(worst, *(max(p / q, q / p) for p, q in zip(one, other, strict=True)))
    assert most * (1 - Fraction(1, 2**20)) < worst <= most
    assert weighs or laws["ordinary"] != laws["labels turned"]


@pytest.mark.slow
def test_vectors_are_public_uniform_and_the_gain_is_theirs():
    """The mean of 40,000 reports of one own vector is that vector, within 6 deviations a number."""
    mechanism, owners = OneOfK(Decimal(2), CANDIDATES, 20), np.arange(40_000)
    own = np.tile([0.6, 0.0, -0.8, 0.0], (len(owners), 1))
    vectors = directions(SEED, owners, CANDIDATES, 4)
    assert (vectors[:5] == directions(SEED, owners[:5], CANDIDATES, 4)).all()
    assert np.abs(vectors.mean(axis=(0, 1))).max() < 6 / np.sqrt(4 * vectors[..., 0].size)
    reports = mechanism.draw(scores(vectors, own))
    gain = float(gains(4, CANDIDATES, 2.0)[19])
    found = mean_of_reports(SEED, owners, reports, CANDIDATES, 4, gain)
    assert np.abs(found - own[0]).max() < 6 / gain / np.sqrt(len(owners))
    assert np.abs(scores(vectors[:9], own[:9])).max() <= SCALE


@pytest.mark.parametrize(("dimension", "candidates"), [(2, 8), (4, 24), (60, 32)])
def test_gains_are_those_of_the_binomial_law(dimension, candidates):
    m, angle = np.arange(1, candidates), (np.arange(20_000) + 0.5) * np.pi / 20_000
    weight = np.sin(angle) ** (dimension - 2) / (np.sin(angle) ** (dimension - 2)).sum()
    few = binom.cdf((m - 1)[:, np.newaxis], candidates - 1, np.clip(np.cumsum(weight) - weight / 2, 0, 1)[np.newaxis])
    known = np.expm1(2.0) * (candidates * few @ (np.cos(angle) * weight)) / (m * np.expm1(2.0) + candidates)
    assert np.allclose(gains(dimension, candidates, 2.0), known, rtol=1e-9, atol=1e-12)


def test_number_of_directions_is_a_public_rule():
    assert [directions_for(20_000, epsilon) for epsilon in (0.5, 1, 2, 5)] == [8, 12, 17, 27]
    assert (directions_for(3, 0.1), directions_for(10**7, 10)) == (8, 32)


def test_public_coins_keep_lengths_on_the_average():
    """The mean of 200,000 directed vectors is the vector, length and all, within 6 deviations."""
    own = np.tile([0.3, 0.0, -0.4], (200_000, 1))
    turned = weights.turn_into_directions(own, weights.coins(SEED, np.arange(len(own))))
    assert np.allclose(np.linalg.norm(turned, axis=1), 1)
    assert np.abs(turned.mean(axis=0) - own[0]).max() < 6 / np.sqrt(len(own))
    odd = np.array([[np.nan, 1, 0], [0, 0, 0], [np.inf, 0, 0], [3, 4, 0], [1e300, 1e300, 0]])
    assert np.isfinite(weights.turn_into_directions(odd, np.zeros(5))).all()
    assert np.linalg.norm(weights.turn_into_directions(odd, np.full(5, 0.9)), axis=1).max() < 1 + 1e-9


def test_rows_weigh_as_adaboost_has_it_and_no_owner_more_than_one():
    of = weights.weigh_rows(np.array([[1.0], [-1], [1]]), np.array([2, 1]), np.array([[1.0], [1], [-1]]), 0.0)
    assert np.allclose(of.share, [np.exp(-1) / (np.exp(-1) + np.exp(1)), np.exp(1) / (np.exp(-1) + np.exp(1)), 1.0])
    assert np.allclose(of.size, [1.0, 1.0])
    calm = weights.weigh_rows(np.ones((1, 1)), np.array([1]), np.ones((1, 1)), -0.25)
    assert np.allclose(calm.size, np.exp(-0.75))
    assert 0 < weights.weigh_rows(np.ones((1, 1)), np.array([1]), np.full((1, 1), 1e9), 0.0).size[0] < 1e-9
    half = SoFar((Vote("is", 1, 0, 512),)).log_mass
    assert np.isclose(half, np.log(1 / np.cosh(0.5)))
    three, alpha = SoFar((Stump("is", 1, 0, 512, 2, 0),), 3), 1.0  # SAMME: a row told apart wrongly weighs e^alpha more
    codes, y = [np.array([0, 0, 0]), np.array([0, 0, 1])], corners(3)[[2, 1, 0]]
    weight = np.exp(-(y * three.margins(FEATURES, codes)).sum(axis=1))
    assert np.allclose(weight / weight[0], [1, np.exp(alpha), 1])
    right = np.exp(alpha) / (np.exp(alpha) + 2)  # how often, where alpha is log((1 - err) / err) + log(K - 1)
    assert np.isclose(np.exp(three.log_mass), right * weight[0] + (1 - right) * weight[1])
    assert np.isclose(2 * half_log_odds((3 * right - 1) / 2, 3), alpha)
    assert (half_log_odds(1.0, 3), half_log_odds(-0.2, 3), half_log_odds(float("-inf"), 2)) == (1, 0, 0)


@pytest.mark.parametrize("classes", [2, 3, 4, 11, 32])
def test_labels_are_corners_that_are_all_as_far_from_each_other(classes):
    found = corners(classes)
    assert np.allclose(found @ found.T, np.eye(classes) - (1 - np.eye(classes)) / (classes - 1))
    assert np.allclose(found.sum(axis=0), 0)
    assert classes > 2 or found.tolist() == [[-1.0], [1.0]]
    for wrong in (("a",), range(33)):
        with pytest.raises(InputError, match="from 2 to 32"):
            check_classes("local-ncc", wrong)


def test_the_best_stumps_of_three_classes_are_found():
    """Of 3,000 rows, without noise: the edge of the first is that of the best of all stumps, tried one by one."""
    rng, basis = np.random.default_rng(1), stumps.tests_for(FEATURES, None)
    codes = [rng.integers(0, 33, 3000), rng.integers(0, 2, 3000)]
    labels = np.where(codes[0] > 20, 2, np.where(rng.random(3000) < 0.3, 1, codes[1] % 2))
    of = weights.weigh_rows(corners(3)[labels], np.array([3000]), np.zeros((3000, 2)), 0.0)
    (first, second) = next_stumps(basis, basis.vectors(FEATURES, codes, of)[0], 0.0, 3)
    right = {}
    for test, at, code in basis.tests:
        side = holds(test, code, FEATURES[at].bins)[codes[at]]
        for a, b in product(range(3), repeat=2):
            right[(test, at, code, a, b)] = float(np.mean(np.where(side, a, b) == labels))
    best = max(right, key=lambda key: right[key])
    assert (first.test, first.feature, first.code, first.holds, first.fails) == best
    assert first.weight == 2 * round(half_log_odds((3 * right[best] - 1) / 2, 3) * 512 / 2)
    assert second.weight > 0
    own = (second.test, second.feature, second.code)
    assert right[(*own, second.holds, second.fails)] == max(each for key, each in right.items() if key[:3] == own)
    nobody = next_stumps(basis, np.zeros(12), 0.1, 3)
    assert nobody == ()


def test_tests_are_of_public_quantiles_or_of_the_schema_alone():
    found = stumps.tests_for(FEATURES, None).tests
    assert found == (("above", 0, 8), ("above", 0, 16), ("above", 0, 24), ("is", 1, 0), ("is", 1, 1))
    skewed = stumps.tests_for(FEATURES, [np.array([1, 1, 2, 3, 30, 34]), np.zeros(6, int)]).tests
    assert skewed == (("above", 0, 1), ("above", 0, 2), ("above", 0, 3), ("is", 1, 0), ("is", 1, 1))


def test_an_owner_who_weighs_says_how_often_the_newest_line_is_right():
    """20,000 owners of three rows, of which the newest line tells two rightly: an edge of a third, within 6 deviations
    of a one-bit response at epsilon 2."""
    definition, owners = ASKED[2]["weigh"][0], np.arange(20_000)
    rows = np.full(len(owners), 3)
    codes = [np.tile([20, 20, 20], len(owners)), np.tile([1, 1, 1], len(owners))]
    y = np.tile([1.0, 1.0, -1.0], len(owners))
    newest = SoFar((Line(1, 1, ((0,) * 35, (0,) * 4)),))
    bits = definition.mechanism_in(2).draw(scores_in(definition, 2, codes, y, rows, newest, owners))
    alpha = alpha_of(definition, 2, bits.mean())
    assert abs(np.tanh(alpha) - 1 / 3) < 6 / np.tanh(1) / np.sqrt(len(owners))
    document = next_document(definition, 1, b"", owners[:50], np.zeros(50, int))
    assert [line.weight for line in read_so_far(document, FEATURES).voters] == [1]
    for value, left in ((0, 0), (1, 1)):  # always wrong: dropped; always right: as sure as the cap
        weighed = next_document(definition, 2, document, owners[:50], np.full(50, value))
        assert [line.weight for line in read_so_far(weighed, FEATURES).voters] == [1024] * left
    with pytest.raises(InputError, match="no voter to weigh"):
        check_turn(definition, 2, SoFar())
    assert not scores_in(ASKED[2]["boosted local-lr"][0], 1, codes, y, rows, SoFar(), owners).any()  # 3 rows of 20


@pytest.mark.parametrize("classes", ASKED)
@pytest.mark.parametrize("factor", [1, 2])
def test_a_black_box_finds_a_report_of_twice_the_epsilon(factor, classes):
    """Two worst owners, 40,000 reports each: with the law of epsilon 2 no index is more than e^2 times as likely for
    one as for the other, by Clopper and Pearson at 1e-9 for all 64; with twice the epsilon it shows."""
    definition = ASKED[classes]["local-ncc"][0]
    mechanism = OneOfK(factor * definition.epsilon, CANDIDATES, 20)
    counts = []
    for rows in ("ordinary", "labels turned"):
        law_of = np.tile(whole("local-ncc", *OWNERS[rows], classes), (40_000, 1))
        counts.append(np.bincount(mechanism.draw(law_of), minlength=CANDIDATES))
    caught = False
    for one, other in (counts, counts[::-1]):
        low = beta.ppf(1e-9 / 256, one, 40_000 - one + 1)
        high = beta.ppf(1 - 1e-9 / 256, other + 1, 40_000 - other)
        caught |= bool((np.nan_to_num(low) > high * np.exp(float(definition.epsilon))).any())
    assert caught == (factor == 2)
