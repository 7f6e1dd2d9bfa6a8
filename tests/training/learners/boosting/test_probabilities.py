"""The counts that place probabilities: how far a row moves them, what the real noise tells, what is made of them."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from draws import ALARM, refuted
from exact_laws import BOOLEAN, neighbours, public_of, rows_of

from dpserve_verify.privacy.budget import Relation
from models.parts.answers import check_bends, probabilities_of
from training.calibration.calibrate import rehearse
from training.learners.boosting.lazybb import LazyBB, VoteScores
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.boosting.leaf_rules import one_rules
from training.learners.boosting.probabilities import KNOTS, MIDDLES, ScoreCounts, counting, fit_bends, fit_link
from training.learners.boosting.tree_queries import TreeScores, split_tests
from training.rows.statistics.tree_rows import Grown

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
RUNS = 4000
TESTS = split_tests(BOOLEAN)


def votes_of(picks) -> tuple:
    return tuple(one_rules(BOOLEAN).vote(pick, weight) for pick, weight in zip(picks, (64, 45), strict=True))


def queries():
    """Every history of two votes, and some trees, at links that put all rows into one band, or each into its own."""
    for link in (0.001, 0.05, 1.0):
        for picks in product(range(one_rules(BOOLEAN).size), repeat=2):
            yield VoteScores(109, link, votes_of(picks))
        for signs in product((-1, 1), repeat=2):
            tree = Grown((TESTS.cut(0, 0),), tuple(64 * sign for sign in signs))
            yield TreeScores(128, link, (tree, tree))


def farthest(relation: Relation, fault=nullcontext) -> float:
    """By how much of the sensitivity a neighbour moves the counts in L1, at most, which it may not exceed."""
    worst = 0.0
    for query in queries():
        with fault():
            limit = query.sensitivity(relation)
        for one, other in neighbours(relation, 2):
            moved = int(np.abs(query(rows_of(one)) - query(rows_of(other))).sum())
            assert moved <= limit, f"moved {moved} > {limit}"
            worst = max(worst, moved / limit)
    return worst


def halved():
    true = ScoreCounts.sensitivity
    return patch.object(ScoreCounts, "sensitivity", lambda self, relation: true(self, relation) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(Relation))
def test_no_row_moves_the_counts_further_than_they_say(relation):
    """Discrete Laplace noise of that scale loses epsilon times it, exactly."""
    assert farthest(relation) == 1
    with pytest.raises(AssertionError, match="moved"):
        farthest(relation, halved)


def test_counts_are_of_rows_by_class_and_log_odds():
    votes, link = votes_of((0, 2)), 0.02
    data = [(0, 0)] * 3 + [(1, 0)] * 2 + [(0, 1)] + [(1, 1)] * 5 + [(2, 1)] * 2
    scores = [sum(int(vote.table(3)[code]) for vote in votes) for code, _ in data]
    found = VoteScores(109, link, votes)(rows_of(data)).reshape(2, -1)
    for k in range(2):
        odds = [link * score for score, (_, y) in zip(scores, data, strict=True) if y == k]
        places = np.clip(np.ceil(np.array(odds) + 3), 0, MIDDLES.size - 1).astype(int)
        assert found[k].tolist() == np.bincount(places, minlength=MIDDLES.size).tolist()


@pytest.mark.statistical
@pytest.mark.parametrize(("relation", "one", "other"), [(ADD, (0, 0), (0, 0, 1)), (REPLACE, (0, 0), (0, 1))])
def test_the_claim_stands_and_a_factor_of_two_is_seen(relation, one, other):
    """The real draw, on rows of one score. False alarm: 1e-4."""
    query, mechanism = VoteScores(109, 0.02, votes_of((0, 2))), counting(Decimal(1))

    def seen(labels, sensitivity) -> int:
        values = query(rows_of([(0, label) for label in labels]))
        place = MIDDLES.size + int(np.flatnonzero(query(rows_of([(0, 1)])))[0]) % MIDDLES.size
        looked_at = values[[place, place - MIDDLES.size]]  # each number has noise of its own
        drawn = mechanism.draw(np.tile(looked_at, RUNS), sensitivity).reshape(RUNS, 2)
        return sum(_tells(*noisy, relation) for noisy in drawn)

    limit = query.sensitivity(relation)
    sides = [seen(labels, limit) for labels in (other, one)]
    assert not refuted(*sides, 1.0, RUNS), f"{sides} of {RUNS}: a false alarm has probability {ALARM}"
    half = mechanism.__class__(mechanism.epsilon * 2)  # as if rows moved half as much
    mechanism = half
    assert refuted(*[seen(labels, limit) for labels in (other, one)], 1.0, RUNS)


def _tells(own: int, other: int, relation: Relation) -> bool:
    """That class 1 has one row here, and under replace-one class 0 one less."""
    return bool(own >= 1 and (relation is ADD or other <= 1))


@pytest.mark.parametrize("learner", [LazyBB(rounds=4), LazyBBTree(rounds=4)], ids=lambda each: each.name)
def test_it_is_one_more_release_of_the_plan_and_may_be_left_out(learner):
    plan = rehearse(learner, public_of(ADD), Decimal("0.1"))
    last = plan.runs[-1][0]
    assert (last.purpose, last.mechanism, last.sensitivity) == ("count rows by class and score", "discrete-laplace", 1)
    assert last.event.pure == Decimal("0.1")
    without = rehearse(learner.set_params(threshold=False), public_of(ADD), Decimal("0.1"))
    assert plan.runs[:-1] == without.runs


# ---- what is made of them --------------------------------------------------------------------------------------------


def drawn(intercept: float, slope: float, rows: int, noise: float, seed: int = 0):
    random = np.random.default_rng(seed)
    odds = random.normal(0, 2, rows)
    truth = random.random(rows) < 1 / (1 + np.exp(-(intercept + slope * odds)))
    bands = np.clip(np.ceil(odds + 3), 0, MIDDLES.size - 1).astype(int)
    exact = np.concatenate([np.bincount(bands[truth == k], minlength=MIDDLES.size) for k in (False, True)])
    return np.rint(exact + random.normal(0, noise, exact.size)).astype(np.int64)


@pytest.mark.parametrize(("intercept", "slope"), [(0.0, 1.0), (-1.5, 0.7), (0.8, 1.4)])
def test_many_rows_say_where_probabilities_lie(intercept, slope):
    link, constant = fit_link(drawn(intercept, slope, 50_000, 30.0), 0.01, 30.0)
    assert link / 0.01 == pytest.approx(slope, abs=0.08)
    assert constant * link == pytest.approx(intercept, abs=0.1)


def test_where_noise_drowns_the_rows_the_public_rule_stands():
    for seed in range(20):
        link, constant = fit_link(drawn(-2.0, 0.5, 50, 3000.0, seed), 0.01, 3000.0)
        assert link / 0.01 == pytest.approx(1, abs=0.3)
        assert abs(constant * link) < 0.6


def test_of_blank_counts_the_public_rule_is_left():
    assert fit_link(np.zeros(ScoreCounts.size, np.int64), 0.01, 1e9) == (0.01, 0)


def test_whatever_comes_out_stays_within_bounds():
    random = np.random.default_rng(1)
    for _ in range(300):
        scale = 10.0 ** random.uniform(0, 12)
        link, constant = fit_link(random.normal(0, scale, ScoreCounts.size).astype(np.int64), 0.01, scale)
        assert 0.003 <= link <= 0.025
        assert abs(constant) * link <= 3.01


# ---- log-odds that bend ----------------------------------------------------------------------------------------------


def test_of_blank_counts_nothing_bends():
    link, constant, bends = fit_bends(np.zeros(ScoreCounts.size, np.int64), 0.01, 1e9)
    assert (link, constant) == (0.01, 0)
    assert {slope for _, slope in bends} == {0.01}


@pytest.mark.parametrize("offset", [0.0, -1.7, 2.0])
def test_many_rows_say_where_log_odds_bend(offset):
    """Rows of known log-odds, steeper below -1 and flatter above 1 than the public rule: chances within .02."""
    odds = np.linspace(-4, 4, 4001)
    true = offset + 0.4 + 2 * np.minimum(odds + 1, 0) + np.clip(odds, -1, 1) + 0.4 * np.maximum(odds - 1, 0)
    chance = 1 / (1 + np.exp(-true))
    place = np.clip(np.ceil(odds + 3), 0, MIDDLES.size - 1).astype(int)
    exact = [np.bincount(place, weights=25 * each, minlength=MIDDLES.size) for each in (1 - chance, chance)]
    link, constant, bends = fit_bends(np.rint(np.concatenate(exact)).astype(np.int64), 0.01, 10.0, offset)
    scores = np.rint(odds / 0.01).astype(np.int64) + constant
    found = probabilities_of(scores[:, None], link, bends)[:, 1]
    assert np.abs(found - chance).mean() < 0.02
    straight, moved = fit_link(np.rint(np.concatenate(exact)).astype(np.int64), 0.01, 10.0, offset)
    unbent = probabilities_of(np.rint(odds / 0.01).astype(np.int64)[:, None] + moved, straight)[:, 1]
    assert np.abs(found - chance).mean() < np.abs(unbent - chance).mean() / 2


def test_whatever_bends_rises_and_keeps_labels():
    random = np.random.default_rng(1)
    for _ in range(300):
        scale, rule = 10.0 ** random.uniform(0, 12), 10.0 ** random.uniform(-14, 0.5)
        noisy = random.normal(0, scale, ScoreCounts.size).astype(np.int64)
        offset = random.uniform(-5, 5)
        link, constant, bends = fit_bends(noisy, rule, scale, offset, most=1 << 23)
        assert max(abs(constant), abs(fit_link(noisy, rule, scale, offset, most=1 << 23)[1])) <= 1 << 23
        check_bends(bends)
        assert len(bends) <= KNOTS.size
        scores = np.unique(np.append(random.integers(-20_000, 20_000, 50), [-1, 0, 1]))
        found = probabilities_of(scores[:, None], link, bends)[:, 1]
        assert (np.diff(found) >= 0).all()
        assert (np.sign(found - 0.5) == np.sign(scores)).all()
