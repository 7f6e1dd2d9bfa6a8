"""Whether a convex fit ends, whatever the rows: Newton's steps where they are in use, and the steps that are sure to
end within the public number of docs/privacy/ebm.md, of the worst rows too.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from accountant.noise.objective import FINE, NEAR, STEP, ObjectivePerturbation, gradient, sample_normals
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from training.learners.ebm import convex
from training.learners.ebm.convex import Blocks, ConvexLoss, Layout, LossOfRows
from training.learners.ebm.ebm import DPEBMClassifier
from training.rows.partitions.rows import FEW_ROWS, Rows
from training.session.session import Public, Session

MILLION = 1_000_000
FEATURES = (NumericFeature("a", tuple(map(float, range(30)))), CategoricalFeature("c", ("u", "v", "w")))
KINDS = ("separable", "one class", "leaking", "by lot", "rare")
ALIKE = "alike"  # the worst: all rows bend in one direction


def rows_of(kind: str, count: int, features: tuple[Feature, ...] = FEATURES) -> Rows:
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, feature.bins, count).astype(np.uint8) for feature in features])
    labels = {
        "separable": codes[0] != 0,
        "one class": np.ones(count, bool),
        "leaking": codes[-1] == 1,
        "by lot": rng.random(count) < 0.5,
        "rare": rng.random(count) < 0.0005,
        ALIKE: np.arange(count) % 2 == 0,
    }[kind]
    if kind == ALIKE:
        codes[:] = 0
        codes[0] = 4  # an eighth of the way: all coordinates of its arcs
    return Rows(codes, labels.astype(np.uint8), [feature.bins for feature in features])


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "clip", "kinds"), [("8", 0.03, KINDS), ("30", None, KINDS[:3])])
def test_newton_alone_ends_at_a_million_rows_of_every_kind(epsilon, clip, kinds, monkeypatch):
    turns = []
    newton = LossOfRows._newton
    monkeypatch.setattr(LossOfRows, "_newton", lambda *given: turns.append(0) or newton(*given))
    monkeypatch.setattr(LossOfRows, "_surely", lambda *given: pytest.fail("Newton's steps did not do"))
    learner = DPEBMClassifier(engine="convex", pairs=0, clip=clip)
    public = Public(
        FEATURES, "y", ("n", "y"), MILLION, Relation.ADD_REMOVE, Budget.of(epsilon, "0.000001"), False, most=FEW_ROWS
    )
    recipe = learner.recipe(public)
    for kind in kinds:
        turns.clear()
        learner.learn(Session(public, recipe.unit, recipe.plan, rows_of(kind, MILLION)))
        assert len(turns) <= convex.TURNS // 2


def sure_turns_of(kind: str, count: int, monkeypatch) -> tuple[int, int]:
    """How many of the sure steps came to a minimum, and the bound for so many rows; no other steps are made."""
    monkeypatch.setattr(convex, "TURNS", 0)
    layout = Layout.of(FEATURES, [feature.bins - 1 for feature in FEATURES])
    blocks = Blocks.of(FEATURES, layout)
    loss = ConvexLoss(blocks, layout, 1 << convex.TABLE_UNIT - 1, np.zeros(blocks.width, np.int64), count)
    mechanism = ObjectivePerturbation(Decimal("0.6"), Decimal("0.55"), Decimal(20), layout.square, layout.most)
    scale = mechanism.check_scale(loss.sensitivity(Relation.ADD_REMOVE))
    noise, asked = sample_normals(scale, blocks.size), [0]
    slopes = LossOfRows.slopes

    def counted(self, theta, bits):
        asked[0] += 1
        return slopes(self, theta, bits)

    monkeypatch.setattr(LossOfRows, "slopes", counted)
    rows = loss(rows_of(kind, count))
    theta, bits = next(rows.candidates(noise, mechanism.ridge), (None, 0))
    bound = convex.sure_turns(mechanism.ridge, layout, blocks.size, count)
    if theta is not None:
        turns = asked[0]
        left = gradient(rows.slopes(theta, bits), theta, bits, noise, mechanism.ridge)
        assert sum(each * each for each in left) <= 1 << 2 * (bits + STEP - NEAR)
        return turns, bound
    return bound + 1, bound


@pytest.mark.parametrize("kind", [*KINDS, ALIKE])
def test_sure_steps_end_within_their_public_number(kind, monkeypatch):
    turns, bound = sure_turns_of(kind, 1000, monkeypatch)
    assert 10 < turns <= bound


def test_steps_of_three_times_the_length_that_is_proved_would_never_end(monkeypatch):
    true = convex.steepest
    monkeypatch.setattr(
        convex, "steepest", lambda ridge, blocks, squares: ridge + (true(ridge, blocks, squares) - ridge) // 3
    )
    turns, bound = sure_turns_of(ALIKE, 200, monkeypatch)
    assert turns > bound


def test_sums_of_scores_of_any_size_are_exact():
    """By whole numbers of any length: scores at stairs of the table, far beyond it, and beyond what 64 bits hold."""
    layout = Layout.of(FEATURES, [feature.bins - 1 for feature in FEATURES])
    blocks, clip = Blocks.of(FEATURES, layout), 1 << convex.TABLE_UNIT - 2
    begin = np.full(blocks.width, -3 << FINE - 3)
    rows = rows_of("by lot", 300)
    loss, bits = ConvexLoss(blocks, layout, clip, begin, FEW_ROWS)(rows), FINE + convex.LONGER
    rng = np.random.default_rng(2)
    table, digits = convex.slope_table(clip).tolist(), bits - convex.FINER
    for size in (1.0, 40.0, 2.0**40):
        theta = [int(each) << 30 for each in rng.normal(0, size * 2.0 ** (bits - 30), blocks.size).astype(object)]
        codes = blocks.terms(np.array(theta, object)) + (begin.astype(object) << convex.LONGER)
        sums = np.zeros(blocks.width, object)
        for at, label in zip(rows.bins.T.tolist(), rows.labels.tolist(), strict=True):
            places = [int(place) + code for place, code in zip(blocks.places, at, strict=True)]
            score = sum(int(codes[place]) for place in places)
            whole = (-score if label else score) + (len(table) // 2 << digits)
            step = min(max(whole >> digits, 0), len(table) - 2)
            part = min(max(whole - (step << digits), 0), 1 << digits)
            slope = (table[step] << digits) + (table[step + 1] - table[step]) * part
            for place in places:
                sums[place] += -slope if label else slope
        assert loss.slopes(theta, bits) == blocks.collect(sums).tolist()


def test_where_numbers_are_not_fine_enough_it_is_refused_and_never_chosen():
    few = tuple(BooleanFeature(f"b{at}") for at in range(4))
    public = Public(few, "y", ("n", "y"), 10**8, Relation.ADD_REMOVE, Budget.of("4", "0.000001"), False, most=1 << 28)
    learner = DPEBMClassifier(engine="convex")
    learner.check(public)
    assert DPEBMClassifier().engine_of(public) == "convex"
    many = replace(public, most=1 << 34)
    assert not convex.is_sure(Layout.of(few, [2] * len(few)), many.most)
    with pytest.raises(InputError, match="fewer records"):
        learner.check(many)
    assert DPEBMClassifier().engine_of(many) == "epochs"
