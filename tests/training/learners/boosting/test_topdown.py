"""Boosted trees: what rows know of them against plain definitions, and what the learner takes and refuses."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from slanted_rows import SCHEMA
from some_trees import FEATURES, WIDTHS, leaf_of, scores_of, some_rows, some_tree, some_trees
from split_rows import again

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.forms.trees import TreeEnsemble
from models.parts.trees import Leaf, route
from training.calibration.calibrate import rehearse
from training.learners.boosting import lazybb_tree
from training.learners.boosting.lazybb_tree import MAX_LEAVES, LazyBBTree
from training.learners.boosting.reweighting import Projected, Scheduled
from training.learners.boosting.tree_queries import LeafRules, LeafVotes, SplitGains, Weighing, public_cuts, split_tests
from training.rows import kernels
from training.rows.kernels.trees import BLOCK, NEAR
from training.rows.schema.column_rules import Columns
from training.rows.schema.schema import parse_schema
from training.rows.statistics.tree_rows import Cut, TreeRows
from training.session.session import Session

DATA = Path(__file__).resolve().parents[4] / "examples" / "data"


def public_facts(size: int, relation=Relation.ADD_REMOVE):
    from exact_laws import public_of

    return public_of(relation, size, features=FEATURES)


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_nested_splits_say_what_cuts_say():
    rows = some_rows()
    for tree in some_trees(1, 12):
        expected, fresh = np.array(tree.votes)[leaf_of(tree.cuts, rows)], pickle.dumps(tree)
        assert (route(tree.tree, rows.bins, WIDTHS) == expected).all()
        assert pickle.dumps(tree) == fresh  # a worker elsewhere is not sent what is kept here
        assert pickle.loads(fresh) == tree


def test_scores_of_rows_are_those_of_the_released_ensemble():
    rows, trees, bound = some_rows(), some_trees(2, 9), 9
    ensemble = TreeEnsemble(FEATURES, "y", ("no", "yes"), tuple(tree.tree for tree in trees), 0, 1.0)
    total = sum(route(tree, rows.bins, WIDTHS) for tree in ensemble.trees)
    assert (total == scores_of(trees, rows)).all()
    expected = np.zeros((2, 2 * bound + 1), int)
    np.add.at(expected, (rows.labels, total + bound), 1)
    assert (TreeRows(rows).score_counts(trees, bound) == expected).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_histograms_and_leaf_sums_against_their_definition(threads):
    rows, trees = some_rows(), some_trees(3, 4)
    rows = again(-(-rows.size // threads), rows)
    cuts = some_tree(np.random.default_rng(4), 6).cuts
    weights = np.arange(1, 10) * (1 << 33) + 7  # bound 4
    signs = np.where(rows.labels, 1, -1)
    weight, leaf = weights[signs * scores_of(trees, rows) + 4], leaf_of(cuts, rows)
    found = TreeRows(rows).histograms(trees, cuts, weights)
    assert found.shape == (3, 14, max(WIDTHS))
    for f, codes in enumerate(rows.bins):
        expected = np.zeros((14, max(WIDTHS)), np.int64)
        np.add.at(expected, (2 * leaf + rows.labels, codes), weight)
        assert (found[f] == expected).all()
    assert (TreeRows(rows).leaf_sums(trees, cuts, weights) == found[0].sum(axis=1).reshape(-1, 2)).all()
    margins = TreeRows(rows).margins(trees, cuts, weights)
    assert (margins == found[:, 1::2] - found[:, ::2]).all()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("width", "features"), [(3, 9), (NEAR // 5, 4), (NEAR // 5 + 1, 5), (300, 6)])
def test_sums_are_the_same_however_many_features_stand_side_by_side(width, features, apart):
    random, size, leaves, bound = np.random.default_rng(width), BLOCK + 11, 5, 3
    bins = random.integers(0, width, (features, 7 + size)).astype(np.uint8 if width <= 256 else np.uint16)
    labels, leaf = (random.integers(0, most, size).astype(np.uint8) for most in (2, leaves))
    scores = random.integers(-bound, bound + 1, size).astype(np.int32)
    weights = random.integers(-(1 << 40), 1 << 40, (2, 2 * bound + 1))
    found = kernels.trees.histograms(bins, 7, labels, leaf, scores, weights, bound, leaves, width, apart)
    key, keys = (2 * leaf + labels, 2 * leaves) if apart else (leaf, leaves)
    expected = np.zeros((features, keys, width), np.int64)
    for f, codes in enumerate(bins[:, 7:]):
        np.add.at(expected[f], (key, codes), weights[labels, scores + bound])
    assert found.shape == expected.shape
    assert (found == expected).all()


def test_what_rows_remember_is_rebuilt_when_other_trees_are_asked_about():
    rows, weights = some_rows(), np.arange(1, 8)
    one, other = some_trees(5, 3), some_trees(6, 3)
    cuts = some_tree(np.random.default_rng(7), 5).cuts
    for trees, grown in ((one, cuts), (one, cuts[:2]), (other, cuts), (one[:1], ()), (one, cuts)):
        fresh = TreeRows(some_rows()).histograms(trees, grown, weights)
        assert (TreeRows(rows).histograms(trees, grown, weights) == fresh).all()
    assert len(rows.parts[0].memo) == 1


def test_a_bound_that_votes_may_exceed_is_refused():
    with pytest.raises(InputError, match="bound=2"):
        TreeRows(some_rows()).score_counts(some_trees(5, 3), 2)


def test_what_was_left_half_done_is_not_believed(monkeypatch):
    rows, trees, expected = some_rows(), some_trees(5, 3), TreeRows(some_rows()).score_counts(some_trees(5, 3), 3)
    TreeRows(rows).score_counts(trees[:1], 1)

    def cut(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("training.rows.kernels.trees.add_votes", cut)
        with pytest.raises(KeyboardInterrupt):
            TreeRows(rows).score_counts(trees, 3)
    assert (TreeRows(rows).score_counts(trees, 3) == expected).all()


# ---- queries against their definitions -------------------------------------------------------------------------------


def g(a: int, b: int) -> Fraction:
    return Fraction(4 * a * b, a + b) if a + b else Fraction(0)


@pytest.mark.parametrize("reweighting", [Scheduled(0.7, 0.2), Projected(0.7, 0.5)], ids=["scheduled", "projected"])
def test_scores_against_their_definitions(reweighting):
    rows, trees, tests = some_rows(size=300), some_trees(8, 3), split_tests(FEATURES)
    cuts = some_tree(np.random.default_rng(9), 3).cuts
    weighing = Weighing(reweighting, trees, 3, public_facts(300))
    signs = np.where(rows.labels, 1, -1)
    weight = weighing.weights(rows)[signs * scores_of(trees, rows) + 3]
    leaf = leaf_of(cuts, rows)
    gini, error = (SplitGains(tests, weighing, cuts, kind, False)(rows) for kind in ("gini", "error"))
    rules, votes = LeafRules(tests, weighing, cuts)(rows), LeafVotes(weighing, cuts)(rows)
    for at in range(4):
        inside = leaf == at
        whole = [int(weight[inside & (rows.labels == y)].sum()) for y in (0, 1)]
        assert votes[at].tolist() == [whole[0] - whole[1], whole[1] - whole[0]]
        for t, (feature, low, high) in enumerate(tests.intervals):
            passes = inside & (rows.bins[feature] >= low) & (rows.bins[feature] <= high)
            yes = [int(weight[passes & (rows.labels == y)].sum()) for y in (0, 1)]
            no = [whole[y] - yes[y] for y in (0, 1)]
            exact = g(*whole) - g(*yes) - g(*no)
            assert abs(gini[at, t] - exact) <= 3 + exact / 2**50
            assert error[at, t] == abs(yes[1] - yes[0]) + abs(no[1] - no[0]) - abs(whole[1] - whole[0])
            assert rules[at, t] == yes[1] - yes[0] - no[1] + no[0] == -rules[at, t + tests.size + 1]
        assert rules[at, tests.size] == whole[1] - whole[0] == -rules[at, -1]
    assert (SplitGains(tests, weighing, cuts, "gini", True)(rows) == gini.ravel()).all()


def test_rules_become_the_votes_of_both_halves():
    tests = split_tests(FEATURES)
    cuts = (Cut(0, "is", 2, 1),)
    size = tests.size + 1
    query = LeafRules(tests, Weighing(Scheduled(0.4, 0.1), (), 0, public_facts(10)), cuts)
    grown = query.grown([2, size + tests.size], 5)  # the third test as it is; the constant, negated
    assert grown.cuts[:2] == (*cuts, tests.cut(0, 2))
    assert grown.votes == (-5, -5, 5, -5)


def test_public_splits_are_a_fixed_table_that_reaches_every_feature():
    tests = split_tests(FEATURES)
    trees = [public_cuts(tests, tree, 3) for tree in range(80)]
    assert {len(cuts) for cuts in trees} == {7}
    assert trees[0] == public_cuts(tests, 0, 2) + trees[0][3:]
    shares = np.bincount([cut.feature for cuts in trees for cut in cuts]) / (7 * len(trees))
    assert (abs(shares - 1 / 3) < 0.1).all()
    picks = (8, 5, 4, 4, 7, 5, 1)  # fixed permanently: releases of old rest on it
    assert trees[0] == tuple(tests.cut(leaf, pick) for leaf, pick in zip((0, 0, 1, 0, 1, 2, 3), picks, strict=True))


def test_of_many_features_splits_are_drawn_from_those_that_first_rules_named(monkeypatch):
    """Among sixty columns that say nothing, two act together with a third: the trees after the first quarter split by
    no other feature than those that were named, and find it.
    """
    monkeypatch.setattr(lazybb_tree, "MANY", 50)
    random = np.random.default_rng(3)
    columns = {f"x{at}": random.random(1500) for at in range(60)}
    label = np.where((columns["x0"] > 0.5) & (columns["x1"] > 0.5), "yes", "no")
    schema = Columns(low=0, high=1, classes=["no", "yes"], bins=8).schema(list(columns))
    model = LazyBBTree(schema=schema, epsilon="4", rounds=40).fit(columns, label)
    assert model.recipe_.plan == model.recipe(model.public_facts(schema)).plan
    trees = [split_features(tree) for tree in model.ensemble_.trees]
    named = set().union(*trees[:10])
    assert {0, 1} <= named
    assert all(len(tree) == 1 for tree in trees[:10])
    assert max(len(tree) for tree in trees[10:]) > 1
    inner = set().union(*(split_features(tree, last=False) for tree in model.ensemble_.trees[10:]))
    assert inner <= named
    assert (model.predict(columns) == label).mean() > 0.9


def split_features(tree, last: bool = True) -> set[int]:
    """The features that a tree splits by; but for those of its `last` level where that is not asked."""
    if isinstance(tree, Leaf):
        return set()
    ends = isinstance(tree.yes, Leaf) and isinstance(tree.no, Leaf)
    below = split_features(tree.yes, last) | split_features(tree.no, last)
    return below if ends and not last else below | {tree.feature}


# ---- the learner -----------------------------------------------------------------------------------------------------


def make(**parameters) -> LazyBBTree:
    return LazyBBTree(**{"schema": SCHEMA, "epsilon": "2", **parameters})


def chequered(rows: int = 400, seed: int = 0):
    random = np.random.default_rng(seed)
    a, b = random.random(rows), random.random(rows)
    columns = {"a": a, "b": b, "c": random.random(rows) < 0.5}
    return columns, np.where((a > 0.5) ^ (b > 0.5), "yes", "no")


SHAPES = [
    {},
    {"depth": 1},
    {"depth": 6, "rounds": 2},
    {"criterion": "error"},
    {"leaf": "vote"},
    {"leaf": "vote", "criterion": "public"},
    {"criterion": "gini", "leaf": "vote", "depth": 3},
    {"criterion": "public", "depth": 4},
    {"growth": "best-first"},
    {"growth": "best-first", "leaves": 7, "criterion": "gini", "leaf": "vote"},
    {"growth": "best-first", "leaves": MAX_LEAVES, "rounds": 2},
    {"depth": 6, "growth": "best-first", "leaf": "vote", "rounds": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_spent_is_what_was_rehearsed_whatever_the_shape(shape, relation):
    X, y = chequered()
    for delta in ("0.000001", "0"):
        learner = make(**{"rounds": 4, **shape}, delta=delta, relation=relation)
        learner.fit(X, y)
        facts = learner.recipe_
        assert len(learner.ensemble_.trees) == (learner.rounds or 4)
        assert 1.9 < facts.claim.epsilon <= 2
        assert set(learner.predict(X)) <= {"no", "yes"}


def test_a_session_spends_what_the_rehearsal_wrote_down():
    from training.rows.tables.data import rows_of
    from training.session.session import Public

    schema = parse_schema(SCHEMA)
    X, y = chequered()
    for shape in SHAPES[:8]:
        learner = make(rounds=3, **{key: value for key, value in shape.items() if key != "rounds"})
        base = public_facts(400)
        facts = Public(schema.features, "y", schema.classes, 400, base.relation, base.budget, False)
        plan = rehearse(learner, facts, base.budget.epsilon)
        session = Session(facts, base.budget.epsilon, plan, rows_of(schema, X, y, base.relation))
        learner.learn(session)
        assert session.close() == plan


@pytest.mark.slow
def test_two_levels_tell_a_chequered_board_and_one_does_not():
    X, y = chequered()
    deep = make(epsilon="50", depth=3, criterion="error", rounds=60).fit(X, y)
    public = make(epsilon="50", depth=4, rounds=60).fit(X, y)
    flat = make(epsilon="50", depth=1, rounds=60).fit(X, y)
    assert deep.score(X, y) > 0.9  # 150 fits: .991 +- .005; .993 +- .003
    assert public.score(X, y) > 0.9
    assert flat.score(*chequered(2000, 1)) < 0.75  # on other rows: .601 +- .029


@pytest.mark.slow
def test_the_paper_is_among_the_shapes():
    X, y = chequered()
    learner = make(epsilon="50", depth=3, rounds=30, criterion="gini", leaf="vote", growth="best-first", leaves=8)
    assert learner.fit(X, y).score(X, y) > 0.75


@pytest.mark.parametrize("share", [0.05, 0.125, 0.5])
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_votes_get_their_share_of_a_tree(share, delta):
    learner = make(rounds=1, depth=4, leaf="vote", label_share=share, threshold=False, delta=delta, epsilon="8")
    learner.fit(*chequered())
    costs = np.array([float(event.epsilon) for event, count in learner.recipe_.plan.events for _ in range(count)])
    if delta != "0":
        costs = costs**2
    assert costs[-1] / costs.sum() == pytest.approx(share, abs=0.04)


BAD = [
    *({"rounds": bad} for bad in (0, -1, 10_001, 2.5, "many", True)),
    *({"depth": bad} for bad in (0, 7, 1.5, True)),
    *({"leaves": bad, "growth": "best-first"} for bad in (1, 33, "four")),
    {"leaves": 4},
    *({"rate": bad} for bad in (0, 11, float("nan"), "x")),
    *({"density": bad} for bad in (0, 1.1, "x")),
    *({"slope": bad} for bad in (-0.1, 1.1)),
    *({"label_share": bad} for bad in (0, 0.6, None, True)),
    {"criterion": "entropy"},
    {"criterion": "public", "growth": "best-first"},
    {"leaf": None},
    {"growth": "wide"},
    {"reweighting": "none"},
    {"threshold": 1},
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        make(**bad).fit(*chequered())


def test_three_classes_are_refused():
    with pytest.raises(InputError, match="exactly two classes"):
        make(schema=SCHEMA.replace(b'"yes"', b'"yes", "maybe"')).fit(*chequered())


def test_real_rows():
    schema = parse_schema((DATA / "adult.schema.yaml").read_bytes())
    X = pq.read_table(DATA / "adult_train.parquet").slice(0, 5000)
    learner = LazyBBTree(schema=schema, epsilon="4", rounds=20).fit(X, X["income"])
    assert learner.score(X, np.asarray(X["income"])) > 0.78  # all of one class: .75
