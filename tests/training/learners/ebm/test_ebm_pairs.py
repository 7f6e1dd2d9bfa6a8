"""Pairs of features in DP-EBM: exact losses over all small datasets, draws on a worst pair, what is asked for and in
which order, which cells, and that it finds what features say together."""

from __future__ import annotations

import json
from contextlib import nullcontext
from decimal import Decimal
from functools import cache
from itertools import pairwise, product
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from draws import ALARM, refuted

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.ebm.pairs import Asked, asked_pairs, cells_partition, groups_of, pairs_among
from training.learners.ebm.queries import JointCounts, LeafSums, PairScores, PairSums
from training.learners.ebm.queries import together as score_of_table
from training.learners.ebm.residuals import GRID, NumberResiduals
from training.learners.parameters import learner_of, stored
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.column_rules import Columns
from training.rows.statistics.additive_rows import AdditiveRows, Joint
from training.rows.statistics.residuals import LeafSums as RowSums
from training.rows.statistics.residuals import TableResiduals
from training.session.session import Public, Rehearsal, Session, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
THREE = tuple(BooleanFeature(name) for name in "abc")
UNIT = Decimal("0.7")
EPOCHS = 2
ANSWERS = {"class": (0, 1), "number": (-TARGET_GRID, TARGET_GRID)}
RUNS = 1500


def public_of(kind: str, relation=ADD, pure=False, features=THREE, records=3, contributions=1, draws=1) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    classes, span = (("no", "yes"), None) if kind == "class" else (None, (100.0, 101.0))
    return Public(features, "y", classes, records, relation, budget, pure, contributions, span, draws=draws)


def learner(kind: str, **parameters):
    made = DPEBMClassifier if kind == "class" else DPEBMRegressor
    known = {"epochs": EPOCHS, "leaves": 0, "rate": 0.9, "ridge": 0.1, "share": 0.2, "clip": 0.5, "spread": 0.9}
    return made(**{**known, **parameters})


@cache
def rows_of(kind: str, data) -> Rows:
    table = np.array(data, np.int64).reshape(len(data), 4)
    answers = table[:, 3].astype(np.uint8 if kind == "class" else np.int32)
    return Rows(np.ascontiguousarray(table[:, :3].T).astype(np.uint8), answers, [3] * 3, 2 if kind == "class" else 0)


def neighbours(kind: str, relation):
    """All with no row in common, and some with one or two: a row in the same cell as the one that changes, elsewhere,
    and in its row and its column."""
    kinds = list(product((0, 1, 2), (0, 2), (0, 1), ANSWERS[kind]))
    high = kinds[-1][3]
    for kept in ((), ((0, 0, 0, high),), ((1, 2, 1, kinds[0][3]),), ((0, 2, 1, high), (1, 0, 0, high))):
        if relation is ADD:
            yield from ((kept, (*kept, row)) for row in kinds)
        else:
            yield from (((*kept, one), (*kept, other)) for at, one in enumerate(kinds) for other in kinds[:at])


class Scripted:
    """A session that plays answers given beforehand, and keeps what was asked."""

    def __init__(self, public: Public, scale: float) -> None:
        self.public, self.unit, self.asked = public, UNIT, []
        self._random, self._scale = np.random.default_rng(5), scale

    def release(self, query, mechanism):
        self.asked.append((query, mechanism))
        return np.rint(self._random.normal(size=query.size) * self._scale * GRID).astype(np.int64)


def losses(kind: str, relation, pure: bool, asked, fault=nullcontext, draws=1) -> list[tuple[float, float]]:
    """(worst exact loss, claim) of transcripts from faint to so large that every term reaches its limit. Of Gaussians
    the loss is mu^2, else the pure epsilon. Of two draws all that is asked are sums."""
    public, found = public_of(kind, relation, pure, draws=draws), []
    for scale in (0.0, 3.0, 1000.0):
        session = Scripted(public, scale)
        learner(kind, pairs=asked).learn(session)
        with fault():
            scales = [_scale(query, mechanism, public) for query, mechanism in session.asked]
        each = np.array([_claim(mechanism) for _, mechanism in session.asked])
        values = cache(lambda data, asked=session.asked: [query(rows_of(kind, data)) for query, _ in asked])
        worst = 0.0
        for one, other in neighbours(kind, relation):
            moved = [a - b for a, b in zip(values(one), values(other), strict=True)]
            size = np.array([np.abs(each).sum() if pure else np.linalg.norm(each) for each in moved]) / scales
            loss = size if pure else size**2
            assert (loss <= each * (1 + 1e-12)).all(), "one release"
            worst = max(worst, float(loss.sum()))
        found.append((worst, float(each.sum())))
    return found


def _scale(query, mechanism, public: Public) -> float:
    sensitivity = sensitivity_of(query, public)
    return sensitivity / float(mechanism.epsilon) if public.pure else sensitivity * float(mechanism.noise_multiplier)


def _claim(mechanism) -> float:
    event = mechanism.event
    return float(event.epsilon) if event.pure is not None else 1 / float(event.noise_multiplier) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("kind", ["class", "number"])
def test_the_exact_loss_of_every_pair_is_within_the_claim_and_near_it(kind, relation, pure):
    """Pairs that are found, by the scores of all three, and such that are named; all queries of either plan."""
    for asked, draws in ((2, 1), (2, 2), ("a & b; b & c", 1)):
        found = losses(kind, relation, pure, asked, draws=draws)
        assert max(loss / claim for loss, claim in found) >= 0.6
        assert all(loss <= claim * (1 + 1e-12) for loss, claim in found)


@pytest.mark.parametrize(
    ("query", "relation"),
    [(PairScores, ADD), *((query, each) for query in (PairSums, JointCounts, LeafSums) for each in Relation)],
)
def test_the_exact_loss_sees_half_the_noise(query, relation):
    true = query.sensitivity

    def halved():
        return patch.object(query, "sensitivity", lambda self, relation: true(self, relation) // 2)

    with pytest.raises(AssertionError, match="one release"):
        losses("class", relation, False, 2, halved, draws=2 if query is PairSums else 1)


def test_residuals_twice_too_large_are_refused_before_they_are_scored():
    joint = Joint((0, 1), ((0, 1, 2), (0, 1, 2)))
    with patch.object(NumberResiduals, "most", 2 * GRID):
        terms = (np.zeros(3, np.int64),) * 3
        for asked in (PairScores, PairSums):
            query = asked(NumberResiduals(0, TARGET_GRID, ADD, "l2"), terms, (joint,))
            with pytest.raises(PlanMismatch, match="sensitivity"):
                query(None)


HIGH, LOW = TARGET_GRID, -TARGET_GRID
WORST = {  # what is there, and the row that is more or another
    ADD: (((0, 2, 0, HIGH), (1, 0, 0, HIGH)), (), (0, 0, 0, LOW)),
    REPLACE: (
        ((0, 1, 0, HIGH), (1, 0, 0, LOW), (1, 2, 0, HIGH), (2, 2, 0, LOW)),
        ((1, 2, 0, LOW),),
        (2, 0, 0, HIGH),
    ),
}


def score_of(relation) -> PairScores:
    joint = Joint((0, 1), ((0, 1, 2),) * 2)
    return PairScores(NumberResiduals(0, TARGET_GRID, relation, "l1"), (np.zeros(3, np.int64),) * 3, (joint,))


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_score_moves_by_what_it_says_and_by_no_more(relation):
    """Of random small tables, and the worst pair of neighbours, which reaches it."""
    random, steps = np.random.default_rng(0), 1 if relation is ADD else 2
    for _ in range(5000):
        table = random.integers(-2, 3, (3, 3))
        other = table.copy()
        for _ in range(steps):
            other[tuple(random.integers(0, 3, 2))] += random.integers(-1, 2)
        assert abs(score_of_table(other) - score_of_table(table)) <= 2 * steps
    kept, before, after = WORST[relation]
    one, two = (score_of(relation)(rows_of("number", rows)) for rows in ((*kept, *before), (*kept, after)))
    assert abs(two - one).tolist() == [score_of(relation).sensitivity(relation)]


@pytest.mark.statistical
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_claim_of_the_real_score_stands_and_a_factor_of_two_is_seen(relation):
    """Of the real draw through a session's plan, on that pair. False alarm: 1e-4; a miss is rarer than 1e-6."""
    public, query = public_of("number", relation, True, records=5), score_of(relation)
    kept, before, after = WORST[relation]
    sides = [rows_of("number", rows) for rows in ((*kept, after), (*kept, *before))]
    middle = float(np.mean([query(rows) for rows in sides]))

    def seen(rows, epsilon) -> int:
        rehearsal = Rehearsal(public, Decimal(1))
        for _ in range(RUNS):
            rehearsal.release(query, DiscreteLaplace(epsilon))
        session = Session(public, Decimal(1), rehearsal.plan, rows)
        told = sum(session.release(query, DiscreteLaplace(epsilon))[0] > middle for _ in range(RUNS))
        return told

    found = [seen(rows, Decimal(1)) for rows in sides]
    assert not refuted(*found, 1.0, RUNS), f"{found} of {RUNS}: a false alarm has probability {ALARM}"
    assert refuted(*[seen(rows, Decimal(2)) for rows in sides], 1.0, RUNS)


# ---- what is asked ---------------------------------------------------------------------------------------------------

MIXED = (
    NumericFeature("age", tuple(range(30))),
    CategoricalFeature("work & pay", tuple("abc")),
    BooleanFeature("owner"),
)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("auto", Asked()),
        (0, Asked(0)),
        ("2", Asked(2)),
        (9, Asked(3)),  # no more than there are
        ("owner & age", Asked(1, ((0, 2),))),
        ("work & pay & owner; age & work & pay", Asked(2, ((1, 2), (0, 1)))),
        ('[["age", "work & pay"]]', Asked(1, ((0, 1),))),
        ([("owner", "work & pay")], Asked(1, ((1, 2),))),
    ],
)
def test_pairs_are_asked_for_in_words_numbers_and_lists(said, asked):
    assert asked_pairs(said, MIXED) == asked


@pytest.mark.parametrize(
    "said",
    [-1, 65, "65", True, 1.5, "", "age", "age & age", "age & nobody", "age & owner; owner & age", "[", "[1]", [],
     [["age"]], [["age", 3]], "age & owner & work", None, {}, "[" * 9999],
)  # fmt: skip
def test_what_names_no_pairs_is_refused_before_anything_is_spent(said):
    with pytest.raises(InputError, match="pairs"):
        DPEBMClassifier(pairs=said).check(public_of("class", features=MIXED))


def test_a_pair_that_is_called_as_a_feature_is_refused():
    features = (*THREE, BooleanFeature("a & c"))
    with pytest.raises(InputError, match="'a & c' is a feature"):
        DPEBMClassifier(pairs=1).check(public_of("class", features=features))
    DPEBMClassifier(pairs=0).check(public_of("class", features=features))


def test_the_plan_says_scores_counts_and_sums_of_pairs_and_a_request_of_before_is_the_same_one():
    public = public_of("class", records=10_000, contributions=2)
    made = (learner("class", epochs=100, pairs=asked) for asked in (0, 2, "a & b; a & c"))
    plans = {each.pairs: each.recipe(public).plan for each in made}
    purposes = {asked: [(run.purpose, count) for run, count in plan.runs] for asked, plan in plans.items()}
    before, after = ("sum residuals per leaf", 300), ("count rows by class and score", 1)
    pairs = [("count rows per cell of a pair", 2), ("sum residuals per leaf", 200)]
    assert purposes[0][-2:] == [before, after]
    assert purposes["a & b; a & c"][-4:] == [before, *pairs, after]
    assert purposes[2][-5:] == [before, ("score pairs of features", 1), *pairs, after]
    score = next(run for run, _ in plans[2].runs if run.purpose == "score pairs of features")
    assert score.sensitivity == 2 * int(np.ceil(2 * GRID * 3**0.5))
    told = [(run, count / float(run.event.noise_multiplier) ** 2) for run, count in plans[2].runs]
    assert 0.03 < next(each for run, each in told if run is score) / sum(each for _, each in told) < 0.08
    assert "pairs" not in stored(learner_of("ebm", {}))
    assert stored(learner_of("ebm", {"pairs": [["a", "b"]]}))["pairs"] == '[["a", "b"]]'
    assert stored(learner_of("ebm", {"pairs": 3}))["pairs"] == "3"


# ---- which cells -----------------------------------------------------------------------------------------------------


def test_groups_follow_the_rows_and_missing_is_one_of_its_own():
    """Nine tenths of the rows are in one bin of thirty: it is a group, and the others share what is left."""
    rows = np.ones(32)
    rows[7], rows[-1] = 300, -3
    groups = groups_of(MIXED[0], rows, 8)
    assert groups.count(groups[7]) == 1
    assert groups[-1] == max(groups) == groups[-2] + 1
    assert all(after - at in (0, 1) for at, after in pairwise(groups))
    assert groups_of(MIXED[0], np.zeros(32), 40) == tuple(range(32))
    assert max(groups_of(MIXED[0], np.zeros(32), 15)) <= 15
    many = CategoricalFeature("many", tuple(map(str, range(40))))
    kept = groups_of(many, np.arange(42.0), 3)
    assert kept[-3:] == (0, 1, 2)
    assert set(kept[:-3]) == {3}


def test_a_row_is_in_the_cell_of_both_groups_and_every_cell_in_one_leaf():
    joint = Joint((0, 1), ((0, 0, 1), (2, 0, 1)))
    rows = rows_of("class", tuple((a, b, 0, 0) for a, b in product(range(3), repeat=2)))
    assert joint.codes(rows.parts[0]).tolist() == [
        3 * joint.groups[0][a] + joint.groups[1][b] for a, b in product(range(3), repeat=2)
    ]
    assert JointCounts(joint, "l2")(rows).tolist() == [2 * GRID] * 3 + [GRID] * 3
    cells = Joint((0, 1), (groups_of(MIXED[0], np.zeros(32), 15), (0, 1, 2, 3, 4)))
    leaves = cells_partition(MIXED, cells, np.ones(cells.cells), 3, 0.7, (0, 0)).reshape(cells.shape)
    assert len(np.unique(leaves)) == leaves.max() + 1 == 5 * len(np.unique(leaves[:, 0]))
    assert len(np.unique(leaves[:, 0])) <= 4
    assert not set(leaves[-1]) & set(leaves[:-1].ravel())  # missing by itself


def test_terms_of_pairs_reach_every_row():
    """Scores kept in the memory of rows are those of terms and pairs added up, whatever was asked before."""
    random = np.random.default_rng(0)
    data = tuple(map(tuple, random.integers(0, 2, (50, 4)).tolist()))
    rows, joint = rows_of("class", data), Joint((0, 2), ((0, 1, 2), (0, 1, 1)))
    terms = [random.integers(-9, 9, 3) for _ in range(3)]
    AdditiveRows(rows, terms)
    pair = random.integers(-9, 9, joint.cells)
    for more, joints in (((np.zeros(6, np.int64),), (joint,)), ((pair,), (joint,)), ((), ())):
        [part] = rows.parts
        wanted = sum(term[rows.bins[at]] for at, term in enumerate(terms))
        wanted = wanted + (more[0][joint.codes(part)] if more else 0)
        model = AdditiveRows(rows, (*terms, *more), joints)
        table = np.arange(2 * 101, dtype=np.int32).reshape(2, 101)
        sums = model.ask(RowSums(TableResiduals(table, -50), 0, np.zeros(3, np.int64)))
        assert sums.tolist() == [int(table[rows.labels, wanted + 50].sum())]


def test_only_the_features_that_matter_most_are_looked_at():
    sizes = [1.0] * 16 + [0.0] * 10 + [5.0]
    assert len(pairs_among(sizes)) == 66
    assert {at for pair in pairs_among(sizes) for at in pair} == {*range(11), 26}


def test_what_one_feature_leaves_by_itself_is_no_reason_to_look_at_two():
    alone = [[3, 6], [-1, -2]], [[3, -1], [6, -2]], [[1, 1], [1, 5]]
    assert [score_of_table(np.array(table)[..., None]) for table in alone] == [0, 0, 0]
    assert score_of_table(np.array([[2, -2], [-2, 2]])[..., None]) == 8


def test_no_pairs_are_found_by_shared_sums_unless_asked_for():
    def purposes(draws, asked):
        public = public_of("class", records=40_000, draws=draws)
        return {run.purpose for run, _ in learner("class", pairs=asked).recipe(public).plan.runs}

    assert "score pairs of features" in purposes(1, "auto")
    assert not any("pair" in each for each in purposes(2, "auto"))
    assert "sum residuals per cell of pairs" in purposes(2, 1)


def test_sums_over_cells_add_up_and_are_those_of_single_rows():
    """Of all pairs, one after the other: what institutions answer comes to what all rows together answer."""
    random = np.random.default_rng(1)
    data = tuple(map(tuple, random.integers(0, 2, (40, 4)).tolist()))
    joints = tuple(Joint(at, ((0, 1, 2), (0, 1, 1))) for at in ((0, 1), (0, 2)))
    residuals, terms = NumberResiduals(0, TARGET_GRID, ADD, "l2"), (np.zeros(3, np.int64),) * 3
    query = PairSums(residuals, terms, joints)
    rows = [tuple((*row[:3], TARGET_GRID // (row[3] + 1)) for row in part) for part in (data, data[:7], data[7:])]
    whole, *parts = (query(rows_of("number", part)) for part in rows)
    assert (parts[0] + parts[1]).tolist() == whole.tolist()
    expected = np.zeros(query.size, np.int64)
    for row in rows[0]:
        for start, joint in ((0, joints[0]), (6, joints[1])):
            sides = [groups[row[at]] for at, groups in zip(joint.features, joint.groups, strict=True)]
            expected[start + sides[0] * 2 + sides[1]] += row[3] * residuals.factor >> 20
    np.testing.assert_allclose(whole, expected, atol=len(data))
    assert query.sensitivity(ADD) == int(np.ceil(GRID * 2**0.5))


# ---- what it finds ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def together():
    """Two numbers that say nothing alone and everything together, and a class of a text and a number."""
    random, size = np.random.default_rng(1), 6000
    columns = {name: random.uniform(0, 1, size) for name in "abcd"} | {"e": random.choice(["x", "y", "z"], size)}
    score = 4 * np.sign((columns["a"] - 0.5) * (columns["b"] - 0.5)) + (columns["e"] == "x") * np.where(
        columns["d"] > 0.5, 2, -2
    )
    columns["a"][:60] = np.nan
    texts = {"e": {"type": "categorical", "values": ["x", "y"]}}
    return (
        pa.table(columns),
        score + random.logistic(size=size),
        {"low": 0, "high": 1, "records": size, "columns": texts},
    )


@pytest.mark.slow
def test_it_finds_what_features_say_together(together):
    """Right on more than three of four rows where features alone are right on little more than half of them. Chance of
    a false alarm: what is found is ten standard deviations of its noise above what is not."""
    table, score, rule = together
    labels = np.where(score > 0, "yes", "no")
    fitted = {
        asked: DPEBMClassifier(schema=Columns(classes=["no", "yes"], **rule), epsilon=4, pairs=asked).fit(table, labels)
        for asked in (0, 1)
    }
    assert [pair.features for pair in fitted[1].ensemble_.pairs] == [(0, 1)]
    right = {asked: float((model.predict(table) == labels).mean()) for asked, model in fitted.items()}
    assert right[1] > 0.75 > 0.65 > right[0]  # of ten fits .876 to .919, and .543 to .552
    assert json.loads(json.dumps(fitted[1].ensemble_.to_json()))["pairs"][0]["features"] == [0, 1]


@pytest.mark.slow
def test_of_a_number_too(together):
    table, score, rule = together
    made = DPEBMRegressor(schema=Columns(target_range=(-12, 12), **rule), epsilon=4, pairs="b & a; e & d")
    made.fit(table, score)
    assert made.score(table, score) > 0.45  # of 14 fits .60 to .68, with a deviation of .021; next to nothing without
    pair = made.ensemble_.pairs[0]
    rows, columns = pair.shape
    held, cells = np.maximum(pair.counts, 0) + 1e-9, np.array(pair.terms)
    for axis in (0, 1):  # what its rows and columns add by themselves is told by the features' own curves
        assert np.abs(np.average(cells, axis=axis, weights=held)).max() < 0.05 * np.abs(cells).max()
    assert np.array(pair.errors).shape == np.array(pair.counts).shape == (rows, columns)
    assert abs(sum(map(sum, pair.counts)) - 6000) < 2600  # seven deviations of the noise
