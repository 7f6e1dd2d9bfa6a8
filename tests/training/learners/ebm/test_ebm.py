"""DP-EBM: what is asked of rows, what is spent, what is released and from what. Its claims: test_ebm_privacy.py."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from math import exp

import numpy as np
import pyarrow as pa
import pytest
from split_rows import again

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO, Budget, Relation
from dpserve_verify.privacy.renyi import compose_pure
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from training.calibration.calibrate import calibrate, rehearse
from training.learners.boosting.probabilities import KNOTS, MIDDLES
from training.learners.ebm.defaults import EbmDefaults
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.ebm.noise import noise_of
from training.learners.ebm.one_score import OneScore
from training.learners.ebm.queries import BandCounts, BinCounts, LeafSums, SquareSum
from training.learners.ebm.residuals import CLIP, GRID, SCORES, ClassResiduals, NumberResiduals
from training.learners.ebm.splits import partition
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.rows.statistics.additive_rows import AdditiveRows, Joint, bin_counts
from training.rows.tables.data import rows_of
from training.session.reach import reach
from training.session.session import Public, Session, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
ROWS = 600
FEATURES = """
features:
  age: {type: numeric, range: [0, 100], bins: 16}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""
TARGETS = {"class": '{name: y, classes: ["no", "yes"]}', "number": "{name: y, range: [100, 101]}"}
BOTH = pytest.mark.parametrize("kind", ["class", "number"])


def schema_of(kind: str):
    return parse_schema(f"target: {TARGETS[kind]}\nrecords: {ROWS}{FEATURES}".encode())


def table(kind: str, rows: int = ROWS, seed: int = 0):
    random = np.random.default_rng(seed)
    age = np.where(random.random(rows) < 0.1, np.nan, random.uniform(0, 100, rows))
    signal = np.nan_to_num(age, nan=80) + random.normal(0, 10, rows)
    columns = {
        "age": pa.array(age),
        "colour": pa.array(random.choice(["red", "green", "a secret"], rows)),
        "member": pa.array(random.random(rows) < 0.5),
    }
    y = np.where(signal > 50, "yes", "no") if kind == "class" else 100 + signal / 100
    return pa.table(columns), y


def learner(kind: str, **parameters):
    made = DPEBMClassifier if kind == "class" else DPEBMRegressor
    return made(**{"schema": schema_of(kind), "epsilon": "1", "delta": "0.000001", "epochs": 3, **parameters})


def public_of(kind: str, relation=ADD, pure: bool = False, contributions: int = 1) -> Public:
    schema, budget = schema_of(kind), Budget.of("1", "0" if pure else "0.000001")
    return Public(
        schema.features, "y", schema.classes, ROWS, relation, budget, pure, contributions, schema.target_range
    )


def made_rows(kind: str, rows: int = 300) -> Rows:
    random = np.random.default_rng(1)
    widths = [feature.bins for feature in schema_of(kind).features]
    bins = np.array([random.integers(0, width, rows) for width in widths], np.uint8)
    if kind == "class":
        return Rows(bins, random.integers(0, 2, rows).astype(np.uint8), widths)
    return Rows(bins, random.integers(-TARGET_GRID, TARGET_GRID + 1, rows).astype(np.int32), widths, 0)


def made_terms(rows: Rows, size: int, seed: int = 2):
    random = np.random.default_rng(seed)
    return tuple(random.integers(-size, size, width) for width in rows.widths)


# ---- the plan --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("contributions", [1, 3])
def test_what_is_spent_is_what_was_rehearsed_event_by_event(kind, relation, pure, contributions):
    public, made = public_of(kind, relation, pure, contributions), learner(kind, leaves=4)
    plan = rehearse(made, public, Decimal("0.05"))
    assert len(plan) == 3 + 2 + 3 * 3  # histograms; a sum to start from, one for the clip, or counts by score; steps
    session = Session(public, Decimal("0.05"), plan, made_rows(kind))
    released = made.learn(session)
    assert session.close() == plan
    assert {release.sensitivity for release, _ in plan.runs} == {
        contributions * reach(GRID, 0, relation, "l1" if pure else "l2"),
        contributions * GRID,
    }
    assert isinstance(released, AdditiveEnsemble)


@BOTH
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_a_fit_uses_its_budget_up_and_no_more(kind, relation, delta):
    claim = learner(kind, relation=relation, delta=delta).fit(*table(kind)).recipe_.claim
    assert Decimal("0.999") <= claim.epsilon <= 1


@pytest.mark.parametrize("pure", [False, True])
def test_histograms_get_their_share_of_the_budget(pure):
    plan = rehearse(learner("class", share=0.1, epochs=8), public_of("class", ADD, pure), Decimal("0.01"))
    cost = [0.0, 0.0]
    for release, count in plan.runs:
        event = release.event
        each = float(event.epsilon) if pure else float(event.noise_multiplier) ** -2
        cost[release.purpose == BinCounts.purpose] += count * each
    assert cost[1] / (cost[0] + cost[1]) == pytest.approx(0.1, rel=0.08)  # two sums are beside the epochs
    if pure:
        assert compose_pure(plan.events) == pytest.approx(sum(cost) * NANO)


@pytest.mark.parametrize("pure", [False, True])
def test_a_larger_unit_never_has_more_noise(pure):
    public, rule = public_of("class", ADD, pure), EbmDefaults(4, 8, 0.5, 1.0, 0.03)
    found = [noise_of(public, Decimal(unit).scaleb(-9), rule) for unit in (1, 2, 3, 1000, 10**8, 10**9, 5 * 10**9)]
    for name in ("counting", "starting", "summing"):
        sizes = [
            float(getattr(each, name).event.epsilon if pure else 1 / getattr(each, name).noise_multiplier)
            for each in found
        ]
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_calibration_from_a_guess_finds_what_a_search_finds(pure, relation):
    public, made = public_of("class", relation, pure), learner("class")
    found, searched = made.recipe(public), calibrate(made, public, public.budget)
    assert float(found.unit) == pytest.approx(float(searched.unit), rel=2e-4)
    assert found.claim.epsilon <= public.budget.epsilon


# ---- sensitivities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(
    "span", [(0, 0), (-1, 1), (-500, 9000), (-(10**6), 10**6), (CLIP, CLIP + 5), (-(10**6), -CLIP)]
)
@pytest.mark.parametrize("clip", [1.0, 0.4, 0.001])
def test_class_residuals_fill_the_sensitivity_and_do_not_exceed_it(span, clip, relation, norm):
    residuals = ClassResiduals(0, *span, clip, relation, norm)
    assert GRID - 5 <= reach(*residuals.extremes(), relation, norm) <= GRID
    assert residuals.extremes() == (residuals.table.max(), -residuals.table.min())
    assert (np.diff(residuals.table) <= 0).all()  # so its ends are its extremes


@pytest.mark.parametrize("clip", [1.0, 0.6])
def test_class_residuals_are_those_of_the_log_loss_clipped_and_rounded_toward_zero(clip):
    residuals = ClassResiduals(100, -3 * SCORES, 2 * SCORES, clip, ADD, "l2")
    for score in (-3 * SCORES, -77, 0, 1234, 2 * SCORES):
        chance = 1 / (1 + exp(-score / SCORES))
        for label in (0, 1):
            exact = min(max(label - chance, -clip), clip) / residuals.worth
            found = int(residuals.table[label, score + 3 * SCORES])
            assert abs(found) <= abs(exact) + 1e-6
            assert found == pytest.approx(exact, abs=1.001)
    assert (residuals.table == ClassResiduals(100, -3 * SCORES, 2 * SCORES, clip, ADD, "l2").table).all()


def test_the_noise_shrinks_where_the_released_terms_say_little():
    near, far = (ClassResiduals(0, -span, span, 1.0, ADD, "l2").worth for span in (0, 4 * SCORES))
    assert near * GRID == pytest.approx(0.5, rel=1e-5)
    assert 0.98 < far * GRID < 1


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("clip", [1, 3, 1000, TARGET_GRID // 3, TARGET_GRID, 2 * TARGET_GRID])
def test_number_residuals_do_not_exceed_the_sensitivity(clip, relation):
    for norm in ("l1", "l2"):
        assert GRID * 0.99 < reach(*NumberResiduals(0, clip, relation, norm).extremes(), relation, norm) <= GRID


def test_a_range_far_from_zero_moves_nothing_further():
    """Targets in [100, 101]: what a record adds is at most GRID, as it is for [0, 1]; not 101 times as much."""
    found = []
    for low in (0, 100):
        text = f"target: {{name: y, range: [{low}, {low + 1}]}}\nrecords: 2\nfeatures:\n  member: {{type: boolean}}\n"
        schema = parse_schema(text.encode())
        public = Public(
            schema.features, "y", None, 2, ADD, Budget.of("1", "0.000001"), False, target_range=schema.target_range
        )
        query = LeafSums(NumberResiduals(0, TARGET_GRID, ADD, "l2"), (np.zeros(3, np.int64),), 0, np.arange(3))
        one = [pa.table({"member": [True] * n}) for n in (1, 2)]
        sums = [query(rows_of(schema, X, pa.array([low + 0.5] + [low + 1.0] * (len(X) - 1)), ADD)) for X in one]
        assert np.abs(sums[1] - sums[0]).max() <= sensitivity_of(query, public) == GRID
        assert np.abs(sums[1] - sums[0]).max() > 0.99 * GRID
        found.append(sums)
    assert np.array_equal(found[0], found[1])


def test_targets_outside_the_range_count_as_its_ends():
    X, _ = table("number", 3)
    schema = schema_of("number")
    wild, ends = ([-1e9, 100.5, 1e300], [100.0, 100.5, 101.0])
    targets = [rows_of(schema, X, pa.array(y), ADD).targets.tolist() for y in (wild, ends)]
    assert targets[0] == targets[1] == [-TARGET_GRID, 0, TARGET_GRID]


# ---- sums over rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [50, 40_000])
def test_class_sums_are_those_of_every_row_by_itself(threads, size):
    rows = made_rows("class")
    rows = again(-(-rows.size // threads), rows)
    terms, leaves = made_terms(rows, size), np.arange(rows.widths[0]) % 5
    residuals = ClassResiduals(70, -2000, 3000, 0.6, ADD, "l2")
    expected = np.zeros(5, np.int64)
    for i in range(rows.size):
        score = 70 + sum(int(term[code]) for term, code in zip(terms, rows.bins[:, i], strict=True))
        expected[leaves[rows.bins[0, i]]] += residuals.table[rows.labels[i], min(max(score, -2000), 3000) + 2000]
    query = LeafSums(residuals, terms, 0, leaves)
    assert query(rows).tolist() == expected.tolist() == query(rows).tolist()


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("clip", [1000, TARGET_GRID])
def test_number_sums_are_those_of_every_row_by_itself(clip, relation):
    rows = made_rows("number")
    terms, leaves = made_terms(rows, TARGET_GRID), np.arange(rows.widths[1])
    residuals = NumberResiduals(-5, clip, relation, "l2")
    expected = np.zeros(len(leaves), np.int64)
    for i in range(rows.size):
        score = -5 + sum(int(term[code]) for term, code in zip(terms, rows.bins[:, i], strict=True))
        rest = int(rows.targets[i]) - score
        part = min(abs(rest), clip) * residuals.factor // 2**20
        expected[leaves[rows.bins[1, i]]] += part if rest > 0 else -part
    assert LeafSums(residuals, terms, 1, leaves)(rows).tolist() == expected.tolist()


def test_rows_follow_the_terms_forth_and_back():
    rows = made_rows("class")
    residuals, leaves = ClassResiduals(0, -9000, 9000, 1.0, ADD, "l2"), np.arange(rows.widths[0])
    steps = [made_terms(rows, 3000, seed) for seed in (3, 4, 3)]
    steps.insert(1, (*steps[0][:2], steps[1][2]))  # one term is another, the rest are the same objects
    kept = [LeafSums(residuals, terms, 0, leaves)(rows).tolist() for terms in steps]
    fresh = [LeafSums(residuals, terms, 0, leaves)(made_rows("class")).tolist() for terms in steps]
    assert kept == fresh
    assert kept[0] == kept[3] != kept[1]


def test_terms_too_large_for_the_scores_are_refused():
    rows = made_rows("class")
    with pytest.raises(InputError, match="terms"):
        AdditiveRows(rows, tuple(np.full(width, 1 << 29) for width in rows.widths))


def test_squares_are_those_of_every_row_by_itself():
    rows = made_rows("number")
    for constant in (0, -12345, TARGET_GRID):
        apart = [min(abs(target - constant), TARGET_GRID) for target in rows.targets.tolist()]
        found = SquareSum(constant, "l2")(rows)
        assert found.tolist() == [sum(residual**2 // TARGET_GRID for residual in apart)]


def test_a_number_is_clipped_to_its_released_spread():
    """Of so many rows the noise moves it by a hundredth: a tenth is nine standard deviations, once in 1e18 runs."""
    rows = 4 * ROWS
    (X, _), schema = table("number", rows), replace(schema_of("number"), records=rows)
    y = 100.5 + np.random.default_rng(0).choice([-0.05, 0.05], rows)
    made, asked, sums = learner("number", schema=schema, epsilon="90", spread=2.0), [], LeafSums.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeafSums, "__call__", lambda self, rows: asked.append(self.residuals.clip) or sums(self, rows))
        made.fit(X, y)
    assert asked[0] == TARGET_GRID
    assert asked[-1] == pytest.approx(2 * 0.1 * TARGET_GRID, rel=0.1)


def test_bins_are_counted():
    rows = made_rows("class")
    for feature, width in enumerate(rows.widths):
        counts = np.bincount(rows.bins[feature], minlength=width)
        assert bin_counts(rows, feature).tolist() == counts.tolist()
        assert BinCounts(feature, width, "l2")(rows).tolist() == (counts * GRID).tolist()


# ---- partitions ------------------------------------------------------------------------------------------------------

NUMBER = NumericFeature("n", tuple(range(30)))
EVEN = np.ones(32)


@pytest.mark.parametrize("rows", [EVEN, -EVEN, np.arange(32.0) ** 2, np.eye(32)[7] * 1e6])
@pytest.mark.parametrize("mass", [0, 0.7, 1])
@pytest.mark.parametrize("leaves", [2, 3, 8, 30])
def test_partitions_cover_all_bins_in_order_in_at_most_the_given_number_of_leaves(leaves, mass, rows):
    for epoch in range(5):
        found = partition(NUMBER, leaves, mass, rows, (1, epoch))
        assert found.size == NUMBER.bins
        assert found[0] == 0
        assert set(np.diff(found)) <= {0, 1}
        assert found[-1] == found[-2] + 1 <= leaves  # missing is a leaf of its own


def test_partitions_differ_by_feature_and_epoch_and_are_the_same_for_everybody():
    found = {partition(NUMBER, 8, 0.5, EVEN, (place, epoch)).tobytes() for place in range(4) for epoch in range(4)}
    assert len(found) == 16
    assert np.bincount(partition(NUMBER, 4, 0, EVEN, (0, 0))).tolist() == [11, 4, 14, 2, 1]


def test_cuts_follow_the_released_rows():
    rows = np.where(np.arange(32) < 8, 1000.0, 0.0)
    first = [partition(NUMBER, 8, mass, rows, (0, epoch))[8] for mass in (0, 1) for epoch in range(20)]
    assert sum(first[20:]) > 2 * sum(first[:20])


@pytest.mark.parametrize("feature", [BooleanFeature("b"), CategoricalFeature("w", tuple("abcdefghijkl"))])
@pytest.mark.parametrize("leaves", [0, 3, 100])
def test_bins_without_an_order_are_leaves_of_their_own(feature, leaves):
    assert partition(feature, leaves, 0.5, EVEN, (0, 0)).tolist() == list(range(feature.bins))


# ---- what is released ------------------------------------------------------------------------------------------------


@BOTH
def test_a_category_that_is_not_listed_is_never_released(kind):
    made = learner(kind, epsilon="50").fit(*table(kind))
    body = json.dumps(made.ensemble_.to_json())
    assert "secret" not in body
    declared = [each for each in made.schema_.features if not isinstance(each, NumericFeature)]
    assert [each for each in made.ensemble_.features if not isinstance(each, NumericFeature)] == declared


@BOTH
@pytest.mark.parametrize("held", [0, 1])
def test_what_is_released_has_one_shape_whether_a_record_holds_the_category_or_not(kind, held):
    X, y = table(kind)
    colour = pa.array(["only mine"] * held + ["red"] * (ROWS - held))
    made = learner(kind, cuts="declared").fit(X.set_column(1, "colour", colour), y).ensemble_
    assert [len(term) for term in made.terms] == [len(count) for count in made.counts] == [17 + 1, 4, 3]
    assert "only mine" not in json.dumps(made.to_json())


def test_classes_are_learnt_also_from_missing_and_unlisted_values():
    made = learner("class", epsilon="50", epochs=10).fit(*table("class"))
    X, y = table("class", 2000, seed=9)
    assert made.score(X, y) > 0.85
    missing = made.predict_proba({"age": [np.nan], "colour": ["never seen"], "member": [None]})
    assert missing[0, 1] > 0.7  # a missing age is an 80


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_numbers_are_learnt_within_their_range(relation):
    made = learner("number", epsilon="50", epochs=10, relation=relation).fit(*table("number"))
    X, y = table("number", 2000, seed=9)
    values = made.predict(X)
    assert ((values >= 100) & (values <= 101)).all()
    assert np.corrcoef(values, y)[0, 1] > 0.9
    assert np.sqrt(np.mean((values - np.clip(y, 100, 101)) ** 2)) < 0.4 * np.std(y)


@BOTH
def test_terms_are_centred_and_counts_are_near_the_rows(kind):
    made = learner(kind, epsilon="90").fit(*table(kind)).ensemble_
    for term, count in zip(made.terms, made.counts, strict=True):
        rows = np.maximum(count, 0)
        assert abs(rows @ np.array(term) / rows.sum()) < 0.02 * max(map(abs, term)) + 1  # counts are rounded
        assert sum(count) == pytest.approx(ROWS, abs=60)


def test_standard_errors_are_those_of_repeated_fits():
    """Every bin its own leaf, one feature: the spread of the terms over fits of one table."""
    schema = parse_schema(
        f"target: {TARGETS['number']}\nrecords: 20000\nfeatures:\n  member: {{type: boolean}}\n".encode()
    )
    X = pa.table({"member": pa.array([True, False] * 10_000)})
    y = np.full(20_000, 100.5)
    terms, errors = [], []
    for _ in range(40):
        made = DPEBMRegressor(
            schema=schema, epsilon="0.2", epochs=4, leaves=0, rate=0.5, ridge=0.0, spread=0.0, clip=1.0, doubt=0
        )
        released = made.fit(X, y).ensemble_
        terms.append(np.array(released.terms[0]))
        errors.append(np.array(released.errors[0]))
    spread = np.std([term[1] - term[0] for term in terms])  # the constant takes part in neither
    claimed = np.mean([np.hypot(error[0], error[1]) for error in errors])
    assert 0.6 < spread / claimed < 1.5  # uncorrected noise would be 1.7 times as large, 40 fits tell to 11 %


# ---- refusals --------------------------------------------------------------------------------------------------------


BAD = [
    *({"epochs": bad} for bad in (0, -1, 5001, 2.5, "many", True)),
    *({"leaves": bad} for bad in (-1, 1, 10**6, 2.5, "many")),
    *({"rate": bad} for bad in (0, -1, 1.1, float("nan"), "x")),
    *({"ridge": bad} for bad in (-0.1, float("inf"), "x", True)),
    *({"share": bad} for bad in (0, 1, 0.6, float("nan"))),
    *({"clip": bad} for bad in (0, 1.1, float("nan"), "x")),
    *({"mass": bad} for bad in (-0.1, 1.1, "x")),
    *({"spread": bad} for bad in (-1, float("inf"), True)),
    *({"doubt": bad} for bad in (-0.1, 1001, "x")),
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_parameters_out_of_range_are_refused(bad):
    (name,) = bad
    made = learner("class", **bad)
    with pytest.raises(InputError, match=f"{name}="):
        made.fit(*table("class"))
    assert not hasattr(made, "recipe_")


def test_counts_by_class_and_score_mend_what_clipped_residuals_leave(monkeypatch):
    """Clipped residuals balance where a rare class is under-predicted. One class in thirty, told by age."""
    random = np.random.default_rng(3)
    age = random.uniform(0, 100, 20_000)
    rare = random.random(20_000) < 0.12 * (age > 75)
    table = pa.table({"age": age, "colour": ["red"] * 20_000, "member": [True] * 20_000})
    schema = parse_schema(f"target: {TARGETS['class']}\nrecords: 20000{FEATURES}".encode())

    def said() -> float:
        model = DPEBMClassifier(schema=schema, epsilon=8, clip=0.4)
        return float(model.fit(table, np.where(rare, "yes", "no")).predict_proba(table)[:, 1].mean() / rare.mean())

    assert 0.8 < said() < 1.25
    monkeypatch.setattr("training.learners.ebm.one_score.OneScore.place", lambda self, counts: None)
    assert said() < 0.75


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("pairs", [(), ((0, 1),)])
def test_counts_are_of_rows_by_class_and_log_odds(relation, pairs):
    """Of features alone, and of a pair; in bands of one, the lower end outside."""
    rows = made_rows("class")
    joints = tuple(Joint(each, ((0,) * rows.widths[0], tuple(range(rows.widths[1])))) for each in pairs)
    terms = (*made_terms(rows, 3 * SCORES), *(np.arange(joint.cells) * 1000 for joint in joints))
    scores = sum(term[codes] for term, codes in zip(terms[: len(rows.widths)], rows.bins, strict=True))
    scores = scores + sum(term[rows.bins[1]] for term in terms[len(rows.widths) :])
    found = BandCounts(terms, joints, "l2")(rows).reshape(2, -1)
    for k in (0, 1):
        places = np.clip(np.ceil(scores[rows.labels == k] / SCORES + 3), 0, MIDDLES.size - 1).astype(int)
        assert found[k].tolist() == (GRID * np.bincount(places, minlength=MIDDLES.size)).tolist()
    assert (found > 0).sum() > 10


def test_log_odds_bend_where_features_do_not_add_up(monkeypatch):
    """Two truths together: curves that add up say too much of one alone, and the bends take most of that away. What a
    feature adds stays in the log-odds that were learnt."""
    random = np.random.default_rng(4)
    truths = random.random((2, 40_000)) < 0.5
    yes, one = random.random(40_000) < np.where(truths.all(axis=0), 0.9, 0.02), truths.sum(axis=0) == 1
    table = pa.table({"age": np.full(40_000, 50.0), "colour": np.where(truths[0], "red", "green"), "member": truths[1]})
    schema = parse_schema(f"target: {TARGETS['class']}\nrecords: 40000{FEATURES}".encode())

    def fitted() -> tuple[AdditiveEnsemble, float]:
        model = DPEBMClassifier(schema=schema, epsilon=8, pairs=0).fit(table, np.where(yes, "yes", "no"))
        return model.ensemble_, abs(float(model.predict_proba(table)[one, 1].mean() - yes[one].mean()))

    bent, error = fitted()
    assert (len(bent.bends), bent.link) == (KNOTS.size + 2, 1 / SCORES)
    monkeypatch.setattr("training.learners.ebm.one_score.OneScore.place", lambda self, counts: None)
    straight, unbent = fitted()
    assert straight.bends == ()
    assert error < unbent / 2


@pytest.mark.parametrize(("unit", "least", "most"), [("0.0001", 590, 610), ("5", 99, 110)])
def test_weak_histograms_leave_the_declared_number_of_rows(unit, least, most):
    """Counts that come out as 100 rows, where 600 are declared: by much noise they say nothing, by none all."""
    public, made = public_of("number", ADD, False), learner("number")
    settings = made.settings(public)
    counts = [np.full(feature.bins, 100 / feature.bins) for feature in public.features]
    model = OneScore(public, settings, noise_of(public, Decimal(unit), settings), counts)
    assert least < model._rows() < most
