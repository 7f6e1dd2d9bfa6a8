"""The claims of boosted trees against exact laws: whole trees on worst pairs, every transcript of small runs, the range
of every single query. Each check is shown to fail when a sensitivity is half of the truth.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import cache
from itertools import product
from math import log

import numpy as np
import pytest
from draws import choices, refuted
from exact_laws import canonical, exponential_law, neighbours, public_of, rows_of
from topdown_laws import FLAGS, Walk, flags_of, people, public

from accountant.noise.mechanisms import ExponentialSelections
from dpserve_verify.privacy.budget import NANO, Relation
from dpserve_verify.privacy.renyi import compose_pure
from models.features.features import BooleanFeature, NumericFeature
from training.calibration.calibrate import rehearse
from training.learners.base.class_weights import ONE, Balance
from training.learners.boosting import lazybb_tree
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.boosting.reweighting import Projected, Scheduled
from training.learners.boosting.tree_queries import (
    LeafRules,
    LeafVotes,
    SplitGains,
    SplitTests,
    Weighing,
    split_tests,
)
from training.rows.kernels.trees import impurity
from training.rows.statistics.tree_rows import Cut, Grown
from training.session.session import sensitivity_of

pytestmark = pytest.mark.slow

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
QUERIES = (SplitGains, LeafVotes, LeafRules)
SLACK, TIGHT = 1e-9, 0.6
UNIT = Decimal(1)


@contextmanager
def halved_sensitivity():
    """The bug that every check here must notice: queries say half of their sensitivity."""
    with pytest.MonkeyPatch.context() as patch:
        for query in QUERIES:
            true = query.sensitivity
            patch.setattr(query, "sensitivity", lambda self, relation, true=true: true(self, relation) / 2)
        yield


# ---- whole trees on worst pairs --------------------------------------------------------------------------------------

# Most rows are of class 0; x2 finds those of class 1. A row among these changes its class, or is added. A test that no
# row passes keeps all rows together, so every level sees the same worst case again, whatever the depth.
MANY, FEW = ("000", 0, 2000), ("010", 1, 100)
WORST = {
    REPLACE: (people(MANY, FEW, ("010", 1, 1)), people(MANY, FEW, ("010", 0, 1))),
    ADD: (people(MANY, FEW), people(MANY, FEW, ("010", 1, 1))),
}
# After a tree that says class 1 everywhere the rows of class 1 are easy. One more of the others takes weight from them.
PROJECTED_ADD = (people(MANY, FEW), people(MANY, FEW, ("010", 0, 1)))
SHAPES = {
    "split and votes": {"depth": 1, "leaf": "vote"},
    "two levels and votes": {"depth": 2, "leaf": "vote"},
    "level and rules": {"depth": 2, "leaf": "rule"},
    "best first and votes": {"growth": "best-first", "leaves": 3, "leaf": "vote"},
    "best first and rules": {"growth": "best-first", "leaves": 2, "leaf": "rule"},
}
TREES = list(product((ADD, REPLACE), ("scheduled", "projected"), ("gini", "error"), SHAPES))


def first_tree(shape: str) -> list:
    """Answers that make a tree of this shape say class 1 everywhere: pairs of 6 tests, then votes or rules."""
    parameters = SHAPES[shape]
    best_first = parameters.get("growth") == "best-first"
    splits = parameters["leaves"] - 1 if best_first else parameters["depth"] - (parameters["leaf"] == "rule")
    leaves = splits + 1 if best_first else 1 << splits
    picks = [1 if best_first else np.full(1 << level, 1) for level in range(splits)]
    return [*picks, np.full(leaves, 6 if parameters["leaf"] == "rule" else 1)]


def worst_share(relation, reweighting, criterion, shape, pure=False, fault=nullcontext) -> float:
    """Largest loss over all transcripts of one tree as a share of its price, which it may not exceed."""
    after = relation is ADD and reweighting == "projected"  # the weights of others move after the first tree only
    pair = PROJECTED_ADD if after else WORST[relation]
    facts = public(relation, 2050 if after else len(pair[0]), pure)
    learner = LazyBBTree(
        rounds=1 + after,
        criterion=criterion,
        reweighting=reweighting,
        density=1.0,
        rate=1.0,
        decay=0.0,
        threshold=False,
        **SHAPES[shape],
    )
    plan = rehearse(learner, facts, UNIT)
    script = first_tree(shape) if after else []
    releases = len(plan) // (1 + after)
    price = compose_pure(plan.events) / NANO / (1 + after)
    with fault():
        one, other = (Walk(facts, UNIT, flags_of(data)).transcripts(learner, releases, script) for data in pair)
    assert np.isclose(np.exp(one).sum(), 1)
    loss = float(np.abs(one - other).max())
    assert loss <= price + SLACK, f"loss {loss}, claimed {price}"
    return loss / price


@pytest.mark.parametrize(("relation", "reweighting", "criterion", "shape"), TREES)
def test_every_transcript_of_a_tree_on_its_worst_pair(relation, reweighting, criterion, shape):
    assert TIGHT <= worst_share(relation, reweighting, criterion, shape) <= 1 + SLACK
    with pytest.raises(AssertionError, match="claimed"):
        worst_share(relation, reweighting, criterion, shape, fault=halved_sensitivity)


@pytest.mark.parametrize(("relation", "reweighting", "criterion", "shape"), TREES[::3])
def test_the_same_where_delta_is_zero(relation, reweighting, criterion, shape):
    assert TIGHT <= worst_share(relation, reweighting, criterion, shape, pure=True) <= 1 + SLACK


class Path:
    """A session that gives every row of scores one and the same answer, and adds up how likely that is."""

    def __init__(self, facts, rows, last: int) -> None:
        self.public, self.unit, self.price, self.log = facts, UNIT, 0.0, 0.0
        self._rows, self._last = rows, last

    def release(self, query, mechanism):
        values, epsilon = query(self._rows), float(mechanism.epsilon)
        pick = 1 if isinstance(query, SplitGains) else self._last
        laws = [exponential_law(row, epsilon / sensitivity_of(query, self.public)) for row in values]
        self.price, self.log = self.price + epsilon, self.log + sum(law[pick] for law in laws)
        return np.full(len(values), pick)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(("leaf", "lasts"), [("rule", (6, 13)), ("vote", (0, 1))])
@pytest.mark.parametrize("criterion", ["gini", "error"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_deep_trees_lose_what_they_claim(relation, criterion, leaf, lasts, depth):
    """Along one transcript: every level keeps all rows in one leaf, and the last release is the worse of two."""
    learner = LazyBBTree(rounds=1, depth=depth, leaf=leaf, criterion=criterion, threshold=False)
    facts, losses = public(relation, 2101), []
    for last in lasts:
        paths = [Path(facts, flags_of(data), last) for data in WORST[relation]]
        for path in paths:
            learner.learn(path)
        losses.append(abs(paths[0].log - paths[1].log) / paths[0].price)
    assert TIGHT <= max(losses) <= 1 + SLACK


def known_pair(label: int):
    """n = 400, balanced; h1 puts z into a child of class 1, 40 records; sixty others into one of class 0, of 32."""
    shared = [((1, 0), 1, 39), ((0, 1), 0, 31), ((0, 0), 1, 160), ((0, 0), 0, 169), ((1, 1), label, 1)]
    return rows_of([(*flags, y) for flags, y, count in shared for _ in range(count)], FLAGS[:2])


def test_the_known_worst_pair_of_one_split():
    """.917 at epsilon 1: h1 against sixty like h2, one of them changing its class."""
    picks = [("is", 0, 1), *[("is", 1, 1)] * 60]
    tests = SplitTests(tuple(picks), np.array([(f, 1, 1) for _, f, _ in picks]), (0, 1, 61))
    facts = public_of(REPLACE, 400, features=FLAGS[:2])
    query = SplitGains(tests, Weighing(Scheduled(0.4, 0.1), (), 0, facts), (), "gini", False)
    one, other = (exponential_law(query(known_pair(label))[0], 1 / query.sensitivity(REPLACE)) for label in (1, 0))
    assert abs(one - other).max() == pytest.approx(0.917, abs=0.002)


def test_the_published_sensitivity_is_false():
    """Lemma 9.2 says 4 zeta. n = 1000: a child of 21 and 1, one of 978; the lone row changes its class: 7.646 zeta."""

    def gain(a: int, b: int) -> float:
        def g(a, b):
            return 4 * a * b / (a + b) if a + b else 0.0

        return g(a, 1000 - a) - g(a, b) - g(0, 978)

    moved = gain(22, 0) - gain(21, 1)
    assert moved == pytest.approx(7.646, abs=0.001)
    assert moved > 4


# ---- small runs, every pair of neighbours ----------------------------------------------------------------------------

SMALL = [
    {"depth": 1, "leaf": "vote", "rounds": 2},
    {"depth": 2, "leaf": "rule", "rounds": 1},
    {"depth": 2, "leaf": "vote", "rounds": 1},
    {"depth": 2, "leaf": "rule", "rounds": 2},
    {"growth": "best-first", "leaves": 3, "leaf": "vote", "rounds": 1},
]


def every_pair(relation, reweighting, criterion, parameters, fault=nullcontext) -> float:
    facts = public_of(relation, 4)
    chosen = {
        "criterion": criterion,
        "reweighting": reweighting,
        "rate": 0.7,
        "density": 1.0,
        "decay": 0.0,
        **parameters,
    }
    learner = LazyBBTree(threshold=False, **chosen)
    plan = rehearse(learner, facts, UNIT)
    price, worst = compose_pure(plan.events) / NANO, 0.0

    @cache
    def law(data):
        with fault():
            return Walk(facts, UNIT, rows_of(data)).transcripts(learner, len(plan))

    for size in range(2) if relation is ADD else (3,):
        for one, other in neighbours(relation, size):
            loss = float(np.abs(law(canonical(one)) - law(canonical(other))).max())
            assert loss <= price + SLACK, f"{one} / {other}: loss {loss}, claimed {price}"
            worst = max(worst, loss / price)
    return worst


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("reweighting", ["scheduled", "projected"])
@pytest.mark.parametrize(("criterion", "parameters"), [
    ("error", SMALL[0]),
    ("error", SMALL[1]),
    ("gini", SMALL[2]),
    ("public", SMALL[3]),
    ("error", SMALL[4]),
])  # fmt: skip
def test_every_pair_of_neighbours_in_a_small_domain(relation, reweighting, criterion, parameters):
    assert every_pair(relation, reweighting, criterion, parameters) <= 1 + SLACK


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_splits_that_earlier_rules_named_lose_what_they_claim(relation, monkeypatch):
    """As of many features: a tree of one 1-rule, then one that is split by the feature that the first released."""
    monkeypatch.setattr(lazybb_tree, "MANY", 1)
    assert 0.5 < every_pair(relation, "scheduled", "public", SMALL[3]) <= 1 + SLACK
    with pytest.raises(AssertionError, match="claimed"):
        every_pair(relation, "scheduled", "public", SMALL[3], fault=halved_sensitivity)


# ---- single queries: the range of the joint change is at most the sensitivity ----------------------------------------

FEATURES = (NumericFeature("a", (0.0, 1.0)), BooleanFeature("b"))
RANDOM_ROWS = [(a, b, y) for a in range(4) for b in range(3) for y in range(2)]


def joint_range(query, one, other) -> int:
    """Range over all combinations of one candidate per row: the sum over rows of their ranges."""
    change = np.atleast_2d(query(other) - query(one))
    return int((change.max(axis=1) - change.min(axis=1)).sum())


def some_cuts(random, tests, leaves: int) -> tuple[Cut, ...]:
    return tuple(tests.cut(int(random.integers(leaf + 1)), int(random.integers(tests.size))) for leaf in range(leaves))


def widest(kind, relation, reweighting, tries: int, weighed: Balance | None = None) -> float:
    """Random histories of trees, partly grown trees, data of every size, any guess of the row count."""
    random, tests, worst = np.random.default_rng(0), split_tests(FEATURES), 0.0
    for _ in range(tries):
        trees = tuple(
            Grown(cuts, tuple(int(random.integers(1, 4)) * random.choice([-1, 1], len(cuts) + 1).astype(int)))
            for cuts in (some_cuts(random, tests, int(random.integers(0, 4))) for _ in range(random.integers(0, 4)))
        )
        counts = random.choice([0, 0, 0, 1, 3, 30, 300], len(RANDOM_ROWS))
        shared = [row for row, count in zip(RANDOM_ROWS, counts, strict=True) for _ in range(count)]
        row, second = (RANDOM_ROWS[int(pick)] for pick in random.integers(len(RANDOM_ROWS), size=2))
        records = len(shared) + 1 if relation is REPLACE else int(random.integers(1, 2 * len(shared) + 2))
        facts = public_of(relation, records, features=FEATURES)
        weighing = Weighing(reweighting(random), trees, sum(abs(tree.votes[0]) for tree in trees), facts, weighed)
        query = kind(tests, weighing, some_cuts(random, tests, int(random.integers(0, 4))))
        one = rows_of([*shared, row] if relation is REPLACE else shared, FEATURES)
        found = joint_range(query, one, rows_of([*shared, second], FEATURES))
        limit = sensitivity_of(query, facts)
        assert found <= limit, f"range {found} > {limit}"
        worst = max(worst, found / limit)
    return worst


KINDS = {
    "gini": lambda tests, weighing, cuts: SplitGains(tests, weighing, cuts, "gini", False),
    "error": lambda tests, weighing, cuts: SplitGains(tests, weighing, cuts, "error", False),
    "gini, best first": lambda tests, weighing, cuts: SplitGains(tests, weighing, cuts, "gini", True),
    "error, best first": lambda tests, weighing, cuts: SplitGains(tests, weighing, cuts, "error", True),
    "rules": LeafRules,
    "votes": lambda tests, weighing, cuts: LeafVotes(weighing, cuts),
}
REWEIGHTINGS = {
    "scheduled": lambda random: Scheduled(
        float(random.choice([0.1, 1, 4])), float(random.uniform(0, 1)), "exponential"
    ),
    "logistic": lambda random: Scheduled(float(random.choice([0.1, 1, 4])), float(random.uniform(0, 1)), "logistic", 2),
    "projected": lambda random: Projected(float(random.choice([0.1, 1, 4])), float(random.uniform(0.01, 1))),
}


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("reweighting", REWEIGHTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_range_above_the_sensitivity_anywhere(kind, reweighting, relation):
    found = widest(KINDS[kind], relation, REWEIGHTINGS[reweighting], 60)
    assert found >= (0.8 if reweighting != "projected" and "first" not in kind else 0.3)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("kind", KINDS)
def test_half_the_sensitivity_shows_in_the_ranges(kind, relation):
    with halved_sensitivity(), pytest.raises(AssertionError, match="range"):
        widest(KINDS[kind], relation, REWEIGHTINGS["scheduled"], 400)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("kind", ["gini", "error", "rules"])
def test_class_weights_move_no_more_and_one_of_two_is_seen(kind, relation):
    """The rare class weighs as much as any row did; the bug: twice that, at the same price."""
    how = REWEIGHTINGS["logistic"]
    assert widest(KINDS[kind], relation, how, 60, Balance(((ONE // 5, ONE),), (-1.6,))) >= 0.4
    with pytest.raises(AssertionError, match="range"):
        widest(KINDS[kind], relation, how, 400, Balance(((ONE // 5, 2 * ONE),), (-2.3,)))


def test_weights_are_at_most_half_of_what_a_row_moves():
    """What the rounding term rests on."""
    for relation, bound, records in product((ADD, REPLACE), (0, 1, 9), (1, 7, 5000)):
        for reweighting in (Scheduled(0.7, 0.3), Projected(0.7, 0.5), Projected(3.0, 1.0)):
            counts = np.zeros(2 * bound + 1, np.int64)
            counts[-1] = records
            weights = reweighting.weights(bound, counts, records, relation)
            assert 2 * int(weights.max()) <= reweighting.sensitivity(relation, bound, records)


def test_impurity_is_right_to_a_fiftieth_power_of_two_and_one():
    random = np.random.default_rng(5)
    for _ in range(20_000):
        a, b = (int(2.0 ** random.uniform(0, 61)) for _ in range(2))
        found = impurity(a, b)
        error = abs(found * (a + b) - 4 * a * b)  # times a + b: exact integers
        assert error << 50 <= 4 * a * b + (a + b << 50)
    assert impurity(0, 1 << 61) == impurity(1 << 61, 0) == impurity(0, 0) == 0


# ---- the real draws --------------------------------------------------------------------------------------------------

RUNS = 5_000
ZERO = {"gini": 47, "error": 40}  # rows of class 0 with x2, which makes x2 a little better than x1


def drawn(criterion: str, relation, label: int | None, fault: int, runs: int) -> int:
    """How often the split in the only leaf is x1, where a row (1, 1) of class `label` is among balanced others."""
    rest = 160 + ZERO[criterion] - 39
    kinds = [((1, 0), 1, 39), ((0, 1), 0, ZERO[criterion]), ((0, 0), 1, rest), ((0, 0), 0, 160)]
    data = [(*flags, y) for flags, y, count in kinds for _ in range(count)]
    data += [] if label is None else [(1, 1, label)]
    facts = public_of(relation, len(data), features=FLAGS[:2])
    query = SplitGains(split_tests(FLAGS[:2]), Weighing(Scheduled(0.4, 0.1), (), 0, facts), (), criterion, False)
    values, sensitivity = query(rows_of(data, FLAGS[:2])), query.sensitivity(relation) // fault
    mechanism = ExponentialSelections(UNIT)
    return int((choices(mechanism, values, sensitivity, runs) == 0).sum())


@pytest.mark.statistical
@pytest.mark.parametrize(("criterion", "relation"), [("gini", REPLACE), ("error", ADD)])
def test_the_claim_stands_and_a_factor_of_two_is_seen(criterion, relation):
    """False alarm: 1e-4."""
    labels = (0, 1) if relation is REPLACE else (None, 0)
    counts = [drawn(criterion, relation, label, 1, RUNS) for label in labels]
    assert not refuted(*counts, float(UNIT), RUNS), f"{counts} of {RUNS}"
    counts = [drawn(criterion, relation, label, 2, RUNS) for label in labels]
    assert refuted(*counts, float(UNIT), RUNS), f"{counts} of {RUNS}: half the noise was not noticed"


def test_log_of_a_level_is_the_sum_over_its_leaves():
    """The joint law of one pick per leaf is the exponential mechanism on the sum of scores."""
    values, rate = np.array([[3, 1, 0], [2, 2, 5]]), 0.3
    total = np.add.outer(values[0], values[1]).ravel()
    parts = [exponential_law(row, rate) for row in values]
    assert exponential_law(total, rate) == pytest.approx(np.add.outer(*parts).ravel())
    assert log(np.exp(exponential_law(total, rate)).sum()) == pytest.approx(0)
