"""Whole reports on worst pairs of owners, from rows to the exact law: never more than e^epsilon apart, and attained."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from one_of_k_law import law

from accountant.one_of_k import OneOfK
from models.features import CategoricalFeature, NumericFeature, encode_columns
from training.local.coordinates import Coordinates, whitened
from training.local.directions import SCALE, directions, gains, mean_of_reports, scores
from training.local.learning import directions_for
from training.local.statistics import own_vectors

FEATURES = (NumericFeature("a", tuple(np.linspace(-3, 3, 33))), CategoricalFeature("c", ("u", "v")))
SEED = bytes(range(32))
CANDIDATES = 64


def coordinates() -> Coordinates:
    rng = np.random.default_rng(0)
    columns = {"a": rng.standard_normal(200), "c": rng.choice(["u", "v"], 200)}
    return whitened(FEATURES, encode_columns(FEATURES, columns), 3)


def whole(learner: str, a: list[float], c: list[str], y: list[float]) -> list[int]:
    """Rows -> the scores of the owner's report."""
    where = coordinates()
    z = where.of(encode_columns(FEATURES, {"a": np.array(a), "c": np.array(c, object)}))
    own = own_vectors(learner, z, np.array(y), np.array([len(y)]))
    assert np.linalg.norm(own) < 1 + 1e-9
    vectors = directions(SEED, np.array([7]), CANDIDATES, where.size + 1)
    return scores(vectors, own)[0].tolist()


OWNERS = {
    "ordinary": ([0.1, -0.2, 2.0] * 7, ["u", "v", "u"] * 7, [1.0, -1.0, 1.0] * 7),
    "labels turned": ([0.1, -0.2, 2.0] * 7, ["u", "v", "u"] * 7, [-1.0, 1.0, -1.0] * 7),
    "one class": ([3.0] * 20, ["u"] * 20, [1.0] * 20),
    "far beyond": ([1e300, -1e300] * 10, ["?"] * 20, [-1.0] * 20),
    "missing": ([float("nan")] * 20, [None] * 20, [1.0] * 20),
    "balanced": ([1.0, 1.0] * 10, ["v", "v"] * 10, [1.0, -1.0] * 10),
}


@pytest.mark.parametrize("learner", ["local-linear", "local-lr"])
def test_whole_reports_are_at_most_e_epsilon_apart(learner):
    mechanism = OneOfK(Decimal(2), CANDIDATES, 20)
    with localcontext(prec=50):
        most = Fraction(mechanism.epsilon.exp())
    laws = {name: law(mechanism, whole(learner, *rows)) for name, rows in OWNERS.items()}
    worst = Fraction(0)
    for one, other in combinations(laws.values(), 2):
        worst = max(worst, *(max(p / q, q / p) for p, q in zip(one, other, strict=True)))
    assert most * (1 - Fraction(1, 2**20)) < worst <= most
    assert laws["ordinary"] != laws["labels turned"]


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


def test_number_of_directions_is_a_public_rule():
    assert [directions_for(20_000, epsilon) for epsilon in (0.5, 1, 2, 5)] == [8, 12, 17, 27]
    assert (directions_for(3, 0.1), directions_for(10**7, 10)) == (8, 32)
