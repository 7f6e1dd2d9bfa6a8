"""`ebm` by one convex fit: what it learns, what its plan says, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from dpserve_verify.certificates.releases import ReleaseKind, kinds_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.drawing import is_wide
from dpserve_verify.privacy.events import Gaussian, PureDp
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from training.calibration.calibrate import rehearse
from training.learners.ebm.blocks import (
    BINS,
    BINS_OF_MANY,
    COARSE,
    MUCH_FROM,
    OF_TWO,
    OF_WORDS,
    Blocks,
    Layout,
    term_variances,
)
from training.learners.ebm.defaults import strength
from training.learners.ebm.ebm import DPEBMClassifier
from training.learners.ebm.engines import CONVEX_FROM, NUMBERS_FROM
from training.learners.ebm.refits import refits
from training.rows.schema.schema import parse_schema
from training.session.session import Public

SCHEMA = b"""
target: {name: y, classes: [0, 1]}
records: 20000
features:
  x: {type: numeric, range: [0, 1], bins: 32}
  z: {type: numeric, range: [-1000, 1000], bins: 32}
  c: {type: categorical, values: [a, b, c]}
  t: {type: boolean}
"""
ROWS = 20_000
NUMBERS = (NumericFeature("x", tuple(np.linspace(0, 1, 33)[1:-1].tolist())), BooleanFeature("t"))
PUBLIC = Public(NUMBERS, "y", ("0", "1"), ROWS, Relation.ADD_REMOVE, Budget.of("4", "0.000001"), False)


def table(seed: int = 5) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Rows, labels, and the true log-odds."""
    rng = np.random.default_rng(seed)
    x, z, c, t = rng.random(ROWS), rng.normal(0, 100, ROWS), rng.integers(0, 3, ROWS), rng.random(ROWS) < 0.5
    odds = 3 * np.sin(6 * x) + np.where(c == 2, 1.5, -0.5) - 1
    labels = (rng.random(ROWS) < 1 / (1 + np.exp(-odds))).astype(int)
    return pa.table({"x": x, "z": z, "c": np.array(["a", "b", "c"])[c], "t": t}), labels, odds


@pytest.fixture(scope="module")
def fitted() -> DPEBMClassifier:
    frame, labels, _ = table()
    return DPEBMClassifier(schema=parse_schema(SCHEMA), epsilon=4, engine="convex", pairs=0).fit(frame, labels)


def test_curves_are_learnt_at_once(fitted):
    frame, labels, odds = table(seed=6)
    assert roc_auc_score(labels, fitted.decision_function(frame)) > roc_auc_score(labels, odds) - 0.01
    model, errors = fitted.ensemble_, fitted.ensemble_.errors
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    curve = np.array(model.terms[0][:-1]) * model.link
    assert curve.max() - curve.min() > 3
    assert all(0 < min(each[:-1]) <= max(each) < 4096 for each in errors[:3])


def test_its_plan_is_public_and_has_a_line_for_all_that_the_minimum_costs(fitted):
    runs = [run for run, _ in fitted.recipe_.plan.runs if run.mechanism == "objective-perturbation"]
    assert [run.purpose.rpartition(": ")[2] for run in runs] == [
        "minimise a convex loss",
        "how the loss curves",
        "how near the minimum is",
    ]
    assert [type(run.event) for run in runs] == [Gaussian, PureDp, Gaussian]
    assert fitted.spent_.bound == "renyi"
    assert kinds_of(fitted.recipe_.plan) == {ReleaseKind.MODEL, ReleaseKind.CUT_POINTS}
    assert not any(is_wide(run) for run, _ in fitted.recipe_.plan.runs)
    other = DPEBMClassifier(schema=parse_schema(SCHEMA), epsilon=4, engine="convex", pairs=0)
    assert other.recipe(other.public_facts()).plan == fitted.recipe_.plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relation": Relation.REPLACE_ONE}, "not for replaced ones"),
        ({"contributions": 2}, "not for several"),
        ({"budget": Budget.of("4", "0"), "pure": True}, "no price at delta 0"),
        ({"classes": ("0", "1", "2")}, "two classes"),
        ({"classes": None, "target_range": (0.0, 1.0)}, "two classes"),
    ],
)
def test_what_is_not_proved_is_refused_in_words_and_never_chosen(change, words):
    public = replace(PUBLIC, **change)
    with pytest.raises(InputError, match=words):
        DPEBMClassifier(engine="convex").check(public)
    assert DPEBMClassifier().engine_of(public) == "epochs"
    plan = rehearse(DPEBMClassifier(epochs=2), public, Decimal("0.01"))
    assert not any(run.mechanism == "objective-perturbation" for run, _ in plan.runs)


def test_class_weights_are_refused():
    public = replace(PUBLIC, prevalence=(0.9, 0.1))
    with pytest.raises(InputError, match="no class weights"):
        DPEBMClassifier(engine="convex", balance=1.0).check(public)
    assert DPEBMClassifier(balance=1.0).engine_of(public) == "epochs"
    with pytest.raises(InputError, match="engine"):
        DPEBMClassifier(engine="best").check(public)


WORDS = tuple(CategoricalFeature(name, ("a", "b", "c")) for name in "uv")


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize(
    ("features", "least"), [((*WORDS, NUMBERS[0]), CONVEX_FROM), ((*WORDS, *NUMBERS), NUMBERS_FROM)]
)
def test_the_rule_takes_it_where_there_is_much_to_tell_and_more_of_numbers(factor, features, least):
    public = replace(PUBLIC, features=features)
    public = replace(public, records=round(ROWS * factor * least / strength(public)))
    assert DPEBMClassifier().engine_of(public) == ("convex" if factor > 1 else "epochs")


def test_a_layout_is_fixed_before_cut_points_are():
    features = (*NUMBERS, CategoricalFeature("c", tuple(map(str, range(40)))))
    layout = Layout.of(features, [32, 2, 40])
    assert layout.levels == ((*COARSE, BINS), OF_TWO, OF_WORDS)
    assert Layout.of(features, [32, 2, 40], MUCH_FROM).levels[0] == (*COARSE, BINS_OF_MANY)
    assert Layout.of(features, [8, 2, 40]).levels[0] == (*COARSE[:2], BINS)
    for bins in (2, 32, 255):
        found = (NumericFeature("x", tuple(np.linspace(0, 1, bins + 1)[1:-1].tolist())), *features[1:])
        blocks = Blocks.of(found, layout, [np.linspace(0, 99, feature.bins) for feature in found])
        assert blocks.size <= layout.most
        assert np.bincount(blocks.codes).max() <= layout.count
        line = blocks.terms(np.eye(blocks.size)[1])[: found[0].bins]  # of many rows at high values
        assert line[-1] == 0  # the missing value's is another
        assert line[:-1].tolist() == sorted(line[:-1], reverse=True)
        assert abs(line).max() <= COARSE[0].weight


def test_bands_are_as_wide_as_the_noise_makes_them():
    features = (*NUMBERS, WORDS[0])
    blocks = Blocks.of(features, Layout.of(features, [32, 2, 3]))
    curved = np.concatenate([np.linspace(0, 40, 33), np.full(3, 200.0), np.full(blocks.width - 36, 5.0)])
    wanted = np.zeros(blocks.width)
    for low, high in ((0, 33), (33, 36), (36, blocks.width)):
        has = np.zeros((blocks.width, blocks.size))
        inside = (blocks.codes >= low) & (blocks.codes < high) & (blocks.coordinates > 0)
        has[blocks.codes[inside], blocks.coordinates[inside]] = blocks.weights[inside]
        spread = has @ np.linalg.inv(has.T @ (curved[:, None] * has) + 7.0 * np.eye(blocks.size))
        wanted[low:high] = 9.0 * (spread**2).sum(axis=1)[low:high]
    assert term_variances(blocks, curved, 7.0, 3.0) == pytest.approx(wanted)


def test_refits_of_made_up_rows_go_through_the_same_steps(fitted):
    refit, other = islice(refits(fitted, fitted.public_facts(), fitted.recipe_.unit, fitted.ensemble_), 2)
    assert refit != other
    least = min(len(each.terms[0]) for each in (refit, other)) - 1
    curves = [np.array(each.terms[0][:least], float) for each in (refit, other)]
    assert np.corrcoef(*curves)[0, 1] > 0.8
