"""BDPE: the M-alpha loss against its definition, exact privacy on worst pairs, draws, and what the learner is good for.

The worst pair of a split: 400 rows of class 0; s and d are of class 1. One test puts s among them and d alone, many
tests put d among them and s alone. Laws are exact; nothing here knows a sensitivity or a price.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from decimal import Decimal
from fractions import Fraction
from math import isqrt, sqrt
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow.parquet as pq
import pytest
from draws import choices, refuted
from exact_laws import exponential_law, permute_and_flip_law, public_of, rows_of
from hypothesis import given
from hypothesis import strategies as st
from slanted_rows import SCHEMA, slanted
from some_trees import FEATURES, leaf_of, scores_of, some_rows, some_tree, some_trees

from accountant.noise.mechanisms import ExponentialSelections, PermuteAndFlips
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO, Relation
from dpserve_verify.privacy.renyi import compose_pure
from models.features.features import BooleanFeature, encode_columns
from models.onnx.export import to_onnx
from training.calibration.calibrate import rehearse
from training.learners.boosting import bdpe, bdpe_loss
from training.learners.boosting.bdpe import CalibratedBoostingClassifier, SplitRisks, thin_tests
from training.learners.boosting.bdpe_loss import SCORE_ONE, WEIGHT_ONE
from training.learners.boosting.noisy_leaves import ClassWeights
from training.learners.boosting.tree_queries import SplitTests, split_tests
from training.rows.schema.schema import parse_schema
from training.rows.statistics.tree_rows import Cut
from training.rows.tables.data import columns_of
from training.session.session import Session, sensitivity_of

DATA = Path(__file__).resolve().parents[4] / "examples" / "data"
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
UNIT, SLACK, TIGHT = Decimal(1), 1e-9, 0.6
MANY, RUNS = 400, 4000
ALPHAS = pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
RELATIONS = pytest.mark.parametrize("relation", [ADD, REPLACE])


# ---- the loss --------------------------------------------------------------------------------------------------------


def bayes(q: float, alpha: float) -> float:
    return 2 * alpha * sqrt(q * (1 - q)) + 2 * (1 - alpha) * min(q, 1 - q)


@ALPHAS
def test_the_link_is_minus_the_slope_of_the_bayes_risk(alpha):
    for q in (0.01, 0.2, 0.4, 0.6, 0.99):
        slope = (bayes(q + 1e-7, alpha) - bayes(q - 1e-7, alpha)) / 2e-7
        assert bdpe_loss.link(q, alpha) == pytest.approx(-slope, rel=1e-5)
    assert bdpe_loss.link(0.5, alpha) == 0


@ALPHAS
def test_the_inverse_link_is_its_inverse_and_flat_in_the_middle(alpha):
    q = np.array([0.01, 0.2, 0.4, 0.6, 0.99])
    z = np.array([bdpe_loss.link(float(each), alpha) for each in q])
    assert bdpe_loss.inverse_link(z, alpha) == pytest.approx(q)
    flat = 2 * (1 - alpha) * np.linspace(-1, 1, 9)
    assert bdpe_loss.inverse_link(flat, alpha) == pytest.approx(0.5)


@ALPHAS
@pytest.mark.parametrize("bound", [0, 7, 500])
def test_weights_fall_with_the_margin_and_never_pass_one(alpha, bound):
    found = bdpe_loss.weights(bound, alpha)
    assert found.shape == (2 * bound + 1,)
    assert found[0] == WEIGHT_ONE
    assert (np.diff(found) <= 0).all()
    assert found.min() >= 0
    if bound:
        ratio = bdpe_loss.inverse_link(np.array([-bound, bound]) / SCORE_ONE, alpha)
        assert found[-1] / WEIGHT_ONE == pytest.approx(ratio[0] / ratio[1], rel=1e-3, abs=1e-6)


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.floats(0.01, 1))
def test_the_computed_risk_is_right_to_what_the_proof_says(a, b, alpha):
    found = int(bdpe_loss.risk(np.array([a]), np.array([b]), alpha, 1 << 50)[0])
    scale = 1 << 60
    root = Fraction(isqrt(a * b * scale * scale), scale)
    exact = 2 * Fraction(alpha) * root + 2 * (1 - Fraction(alpha)) * min(a, b)
    assert abs(found - exact) <= 1 + exact / 2**49 + Fraction(1, 1 << 40)


@given(st.integers(2, 1 << 26), st.floats(0.01, 1))
def test_most_is_rounded_up_and_by_next_to_nothing(size, alpha):
    exact = (2 - 2 * alpha + 2 * alpha * sqrt(size - 1)) * WEIGHT_ONE
    assert exact * (1 - 1e-12) <= bdpe_loss.most(size, alpha) <= exact * (1 + 1e-6) + 2


@given(
    st.integers(0, 500 * WEIGHT_ONE),
    st.integers(0, 500 * WEIGHT_ONE),
    st.integers(0, WEIGHT_ONE),
    st.integers(1, 500),
    st.floats(0.01, 1),
)
def test_a_row_adds_to_a_risk_between_nothing_and_most_whatever_the_true_number_of_rows(a, b, weight, records, alpha):
    before, after = (
        int(bdpe_loss.risk(np.array([a]), np.array([b + more]), alpha, records * WEIGHT_ONE)[0]) for more in (0, weight)
    )
    assert -2 <= after - before <= bdpe_loss.most(records + 1, alpha) + 2


# ---- the query against its definition --------------------------------------------------------------------------------


@ALPHAS
def test_scores_against_their_definition(alpha):
    rows, trees, tests = some_rows(size=300), some_trees(8, 3), split_tests(FEATURES)
    cuts = some_tree(np.random.default_rng(9), 3).cuts
    found = SplitRisks(tests, trees, 3, cuts, alpha, 0.7, 300)(rows)
    signs = np.where(rows.labels, 1, -1)
    weight = bdpe_loss.weights(3, 0.7)[signs * scores_of(trees, rows) + 3]
    leaf = leaf_of(cuts, rows)
    assert found.shape == (4, tests.size)
    for at in range(4):
        for t, (feature, low, high) in enumerate(tests.intervals):
            passes = (rows.bins[feature] >= low) & (rows.bins[feature] <= high)
            parts = [(leaf == at) & passes, (leaf == at) & ~passes]
            sums = [[float(weight[part & (rows.labels == y)].sum()) for y in (0, 1)] for part in parts]
            exact = sum((a + b) * bayes(b / (a + b), alpha) for a, b in sums if a + b)
            assert found[at, t] == pytest.approx(-exact, abs=2)


def test_values_thin_the_cut_points_of_numbers_alone():
    every, few = split_tests(FEATURES), thin_tests(FEATURES, 2)
    assert thin_tests(FEATURES, 0) is every
    assert thin_tests(FEATURES, 3).tests == every.tests
    assert [test for test in few.tests if test[0] == "is"] == [test for test in every.tests if test[0] == "is"]
    assert sum(test[:2] == ("above", 0) for test in few.tests) == 2
    assert few.size == len(few.intervals) == few.first[-1]
    assert set(few.tests) <= set(every.tests)


# ---- exact privacy on worst pairs ------------------------------------------------------------------------------------

FLAGS = tuple(BooleanFeature(name) for name in ("h1", "h2"))
ZEROS = ((0, 0, 0),) * MANY
S, D = (0, 1, 1), (1, 0, 1)  # h1 leaves s among the zeros, h2 leaves d there
PAIR = {ADD: (ZEROS, (*ZEROS, S)), REPLACE: ((*ZEROS, S), (*ZEROS, D))}


def candidates(copies: int) -> SplitTests:
    """h1 once, and h2 so many times."""
    tests = [("is", 0, 1), *[("is", 1, 1)] * copies]
    intervals = [(f, *Cut(0, test, f, code).interval(3)) for test, f, code in tests]
    return SplitTests(tuple(tests), np.array(intervals, np.int64), (0, 1, 1 + copies))


@contextmanager
def halved_sensitivity():
    """The bug that every check here must notice."""
    with pytest.MonkeyPatch.context() as patch:
        for query in (SplitRisks, ClassWeights):
            true = query.sensitivity
            patch.setattr(query, "sensitivity", lambda self, relation, true=true: max(1, true(self, relation) // 2))
        yield


def loss_of_split(relation, alpha, law, cuts=(), fault=nullcontext) -> float:
    """Largest log ratio of a whole level's answers at epsilon 1: the sum over leaves, as they are drawn apart."""
    records = MANY + (relation is REPLACE)
    query = SplitRisks(candidates(40), (), 0, cuts, alpha, alpha, records)
    with fault():
        rate = 1 / sensitivity_of(query, public_of(relation, records, features=FLAGS))
    one, other = (np.stack([law(row, rate) for row in query(rows_of(data, FLAGS))]) for data in PAIR[relation])
    gap = one - other
    return float(max(gap.max(axis=1).sum(), -gap.min(axis=1).sum()))


@RELATIONS
@ALPHAS
@pytest.mark.parametrize("law", [exponential_law, permute_and_flip_law])
def test_a_split_loses_what_it_claims_and_no_more(relation, alpha, law):
    loss = loss_of_split(relation, alpha, law)
    assert TIGHT <= loss <= 1 + SLACK
    assert loss_of_split(relation, alpha, law, fault=halved_sensitivity) > 1.1


@RELATIONS
@ALPHAS
def test_a_level_loses_no_more_than_a_split(relation, alpha):
    """s goes to one leaf and d to the other: what a row is in, it leaves with the whole of its risk."""
    for cuts in ((Cut(0, "is", 0, 1),), (Cut(0, "is", 0, 2), Cut(0, "is", 1, 2), Cut(1, "is", 0, 2))):
        assert loss_of_split(relation, alpha, exponential_law, cuts) <= 1 + SLACK
    assert loss_of_split(relation, alpha, exponential_law, cuts) >= TIGHT


def test_the_known_figures_of_the_worst_pair():
    assert loss_of_split(REPLACE, 1.0, exponential_law) == pytest.approx(0.975, abs=2e-3)
    assert loss_of_split(ADD, 1.0, exponential_law) == pytest.approx(0.984, abs=2e-3)


@RELATIONS
def test_more_rows_than_the_public_guess_lose_no_more(relation):
    """Under add/remove `records` is a guess: here it is a tenth of the truth."""
    if relation is REPLACE:
        return
    query = SplitRisks(candidates(40), (), 0, (), 1.0, 1.0, MANY // 10)
    rate = 1 / sensitivity_of(query, public_of(ADD, MANY // 10, features=FLAGS))
    one, other = (exponential_law(query(rows_of(data, FLAGS))[0], rate) for data in PAIR[ADD])
    assert TIGHT <= np.abs(one - other).max() <= 1 + SLACK


@RELATIONS
def test_leaf_weights_lose_what_they_claim(relation):
    """A row that comes, changes its class, or goes to another leaf. Laplace: the exact log ratio of worst outcomes is
    the distance in L1 over the scale; Gaussian: the distance in L2 is at most sigma / noise multiplier.
    """
    cuts = (Cut(0, "is", 1, 1),)
    moves, flips = ((*ZEROS, S), (*ZEROS, D)), (ZEROS, (*ZEROS[1:], (0, 0, 1)))
    pairs = [PAIR[ADD]] if relation is ADD else [moves, flips]
    for one, other in pairs:
        for norm, order in (("l1", 1), ("l2", 2)):
            query = ClassWeights(cuts, (), bdpe_loss.weights(0, 1.0), WEIGHT_ONE, norm)
            moved = np.linalg.norm((query(rows_of(one, FLAGS)) - query(rows_of(other, FLAGS))).astype(float), order)
            assert 0.999 <= moved / sensitivity_of(query, public_of(relation, features=FLAGS)) <= 1
            with halved_sensitivity():
                assert moved / sensitivity_of(query, public_of(relation, features=FLAGS)) > 1.4


class Weighed:
    """A session that follows a transcript on given rows, and adds up its exact log probability (delta 0)."""

    def __init__(self, public, rows, transcript) -> None:
        self.public, self.unit, self.log = public, UNIT, 0.0
        self._rows, self._left = rows, list(transcript)

    def release(self, query, mechanism):
        answer, values = self._left.pop(0), query(self._rows)
        rate = float(mechanism.epsilon) / sensitivity_of(query, self.public)
        if mechanism.norm == "range":
            self.log += sum(permute_and_flip_law(row, rate)[pick] for row, pick in zip(values, answer, strict=True))
        else:
            self.log -= rate * float(np.abs(answer - values).sum())
        return answer


class Noted(Session):
    """Keeps what came out."""

    def release(self, query, mechanism):
        answer = super().release(query, mechanism)
        self.__dict__.setdefault("transcript", []).append(answer)
        return answer


@RELATIONS
def test_whole_runs_lose_no_more_than_they_claim(relation, monkeypatch):
    """Trees after trees, whose weights depend on what came before: any transcript's exact log ratio, delta 0."""
    monkeypatch.setattr(bdpe, "thin_tests", lambda features, values: candidates(3))
    public = public_of(relation, MANY + (relation is REPLACE), True, FLAGS)
    learner = CalibratedBoostingClassifier(rounds=3, depth=2, alpha=1.0, calibration=0.5)
    plan = rehearse(learner, public, UNIT)
    claimed = compose_pure(plan.events) / NANO
    assert claimed == pytest.approx(3, abs=1e-6)
    losses = []
    for turn in range(20):
        session = Noted(public, UNIT, plan, rows_of(PAIR[relation][turn % 2], FLAGS))
        learner.learn(session)
        sides = [Weighed(public, rows_of(data, FLAGS), session.transcript) for data in PAIR[relation]]
        for side in sides:
            learner.learn(side)
        losses.append(abs(sides[0].log - sides[1].log))
    assert max(losses) <= claimed + SLACK


# ---- draws -----------------------------------------------------------------------------------------------------------


def count_event(relation, data, records, sensitivity, runs, mechanism) -> int:
    """Runs in which the level's answer is h1, by the real mechanism."""
    values = SplitRisks(candidates(4), (), 0, (), 1.0, 1.0, records)(rows_of(data, FLAGS))
    return int((choices(mechanism, values, sensitivity, runs) == 0).sum())


@pytest.mark.statistical
@RELATIONS
@pytest.mark.parametrize("kind", [ExponentialSelections, PermuteAndFlips])
def test_the_claim_stands_and_a_factor_of_two_is_seen(relation, kind):
    """False alarm: 1e-4 per test. With half of the noise the chances are 1/5 and 1/31 or further apart (add/remove)."""
    records = MANY + (relation is REPLACE)
    query = SplitRisks(candidates(4), (), 0, (), 1.0, 1.0, records)
    limit = sensitivity_of(query, public_of(relation, records, features=FLAGS))
    for sensitivity, runs, wrong in ((limit, RUNS, False), (limit // 2, RUNS, True)):
        sides = [count_event(relation, data, records, sensitivity, runs, kind(UNIT)) for data in PAIR[relation]]
        assert refuted(*sides, 1.0, runs) is wrong, f"{sides} of {runs}: a false alarm has probability 1e-4"


# ---- the learner -----------------------------------------------------------------------------------------------------


def make(**parameters) -> CalibratedBoostingClassifier:
    return CalibratedBoostingClassifier(**{"schema": SCHEMA, "epsilon": "2", **parameters})


SHAPES = [
    {},
    {"depth": 1},
    {"depth": 6, "rounds": 2},
    {"alpha": 0.1, "calibration": 1},
    {"split_share": 0.9, "values": 3},
    {"clamp": 0.5, "rate": 1, "values": 0},
]


@pytest.mark.slow
@RELATIONS
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_spent_is_what_was_rehearsed(shape, relation, delta):
    X, y = slanted()
    learner = make(**{"rounds": 4, **shape}, delta=delta, relation=relation)
    learner.fit(X, y)
    assert learner.recipe_.plan == rehearse(learner, learner.public_facts(), learner.recipe_.unit)
    assert 1.9 < learner.recipe_.claim.epsilon <= 2
    assert len(learner.ensemble_.trees) == learner.rounds
    depth = learner.depth or bdpe.depth_of(learner.public_facts())
    assert len(learner.recipe_.plan) == learner.rounds * (depth + 1)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_splits_get_their_share_of_a_tree(share):
    learner = make(rounds=2, depth=3, split_share=share, delta="0").fit(*slanted())
    prices = [float(event.epsilon) for event, count in learner.recipe_.plan.events for _ in range(count)]
    assert sum(prices) == pytest.approx(2, abs=1e-6)
    assert prices[:3] == prices[4:7] == [pytest.approx(share / 3, rel=1e-6)] * 3
    smooth = make(rounds=2, depth=3, split_share=share).fit(*slanted())
    curves = [event.rdp(3.0) for event, count in smooth.recipe_.plan.events for _ in range(count)]
    assert sum(curves[:3]) / sum(curves[:4]) == pytest.approx(share, abs=0.02)


def test_it_learns_what_one_test_cannot_tell():
    X, y = slanted()
    for alpha in (0.2, 1.0):
        assert make(epsilon="80", rounds=10, depth=3, alpha=alpha).fit(X, y).score(X, y) > 0.85


def test_calibration_makes_deep_splits_cheaper_in_noise_and_not_in_budget():
    plan = make(rounds=1, depth=3, calibration=0.5, epsilon="1").fit(*slanted()).recipe_.plan
    splits = [release for release, count in plan.runs for _ in range(count)][:3]
    assert splits[0].sensitivity > splits[1].sensitivity > splits[2].sensitivity
    assert len({release.event for release in splits}) == 1


BAD = [
    *({"rounds": bad} for bad in (0, -1, 2001, 2.5, "many", True)),
    *({"depth": bad} for bad in (0, 7, 1.5)),
    *({"alpha": bad} for bad in (0, 1.1, float("nan"), None)),
    *({"calibration": bad} for bad in (0, 1.5, "x")),
    *({"split_share": bad} for bad in (0, 1, True)),
    *({"rate": bad} for bad in (0, 1.5)),
    *({"clamp": bad} for bad in (0, 101)),
    {"clamp": 100, "rate": 1, "rounds": 2000},
    {"values": -1},
    {"values": None},
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        make(**bad).fit(*slanted())


def test_three_classes_and_numbers_are_refused():
    with pytest.raises(InputError, match="exactly two classes"):
        make(schema=SCHEMA.replace(b'"yes"', b'"yes", "maybe"')).fit(*slanted())
    with pytest.raises(InputError, match="classes"):
        make(schema=SCHEMA.replace(b'classes: ["no", "yes"]', b"range: [0, 1]")).fit(slanted()[0], np.ones(400))


def adult():
    schema = parse_schema((DATA / "adult.schema.yaml").read_bytes())
    train, test = (pq.read_table(DATA / f"adult_{part}.parquet") for part in ("train", "test"))
    return schema, train, test


@pytest.mark.slow
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_better_than_chance_on_adult_at_epsilon_one(delta):
    """All of one class: accuracy .764 and AUROC .5; a fit has about .83 and .87."""
    from sklearn.metrics import roc_auc_score

    schema, train, test = adult()
    learner = CalibratedBoostingClassifier(schema=schema, epsilon="1", delta=delta).fit(train, train["income"])
    truth = np.asarray(test["income"])
    assert learner.score(test, truth) > 0.78
    assert roc_auc_score(truth == ">50K", learner.decision_function(test)) > 0.78


@pytest.mark.slow
def test_the_exported_model_says_the_same():
    schema, train, test = adult()
    learner = CalibratedBoostingClassifier(schema=schema, epsilon="1").fit(train, train["income"])
    some = test.slice(0, 500)
    columns = columns_of(schema, some)
    session = onnxruntime.InferenceSession(to_onnx(learner.ensemble_, {}))
    kinds = {each.name: str if each.type == "tensor(string)" else np.float64 for each in session.get_inputs()}
    feeds = {name: np.asarray(columns[name]).astype(kind).reshape(-1, 1) for name, kind in kinds.items()}
    labels, chances = session.run(None, feeds)
    assert labels.tolist() == learner.predict(some).tolist()
    assert chances == pytest.approx(learner.predict_proba(some), abs=1e-6)
    assert learner.ensemble_.coded_scores(encode_columns(schema.features, columns)).any()
