"""What a model might have been under other noise: how often the interval holds what it says, and what it is made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.stats import t

from dpserve_verify.errors import InputError
from models.parts.beside import read_level
from models.parts.other_noise import noise_interval, student_quantile
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.ebm.refits import Draws, MadeUpSession, refits, rows_like
from training.planning.starts import learn_openly, score_of
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

ROWS, OTHERS, REFITS = 3000, 12, 12
SCHEMA = """
target: {target}
records: {rows}
features:
  age: {{type: numeric, range: [0, 100]}}
  hours: {{type: numeric, range: [0, 60], bins: 16}}
  trade: {{type: categorical, values: [a, b, c, d, e, f]}}
  member: {{type: boolean}}
"""
TARGETS = {"class": '{name: y, classes: ["no", "yes"]}', "number": "{name: y, range: [-4, 4]}"}


def people():
    """Rows whose features go together, as those of people do, and a score."""
    draw = np.random.default_rng(7)
    age = draw.uniform(18, 90, ROWS)
    hours = np.clip(60 - abs(age - 45) + draw.normal(0, 8, ROWS), 0, 60)
    trade = draw.integers(0, 6, ROWS)
    member = draw.random(ROWS) < trade / 8
    score = (age - 50) / 25 + (hours > 35) + 0.4 * (trade > 3) - 0.8
    return pa.table(
        {"age": age, "hours": hours, "trade": list(map("abcdef".__getitem__, trade)), "member": member}
    ), score


@pytest.fixture(scope="module", params=["class", "number", "class from a start"])
def fitted(request):
    """A learner, what is public, models of the same rows under different noise that is the same in every run of this
    test, and columns of people."""
    kind, draw = request.param, np.random.default_rng(8)
    schema = parse_schema(SCHEMA.format(target=TARGETS[kind.split()[0]], rows=ROWS).encode())
    X, score = people()
    noisy = score + draw.normal(0, 0.7, ROWS)
    learns, y = (DPEBMRegressor, noisy) if kind == "number" else (DPEBMClassifier, np.where(noisy > 0, "yes", "no"))
    learner = learns(schema=schema, epsilon=2, epochs=12)
    schema, public, rows = learner.declared(X, pa.array(y) if kind == "number" else y)
    if kind == "class from a start":
        older = X.append_column("y", pa.array(y)).filter(pc.greater(X["age"], 50))
        public = replace(public, start=score_of(learn_openly(schema, older), public, "0" * 64))
        learner.start = public.start.digest
    unit = learner.recipe(public).unit

    def fit(number):
        return learner.learn(MadeUpSession(public, unit, rows.fresh(), 1.0, Draws(b"real %d" % number)))

    return learner, public, unit, [fit(number) for number in range(OTHERS)], columns_of(schema, X.slice(0, 500))


def test_nine_of_ten_answers_of_other_noise_lie_in_the_interval(fitted):
    """And no more: an interval twice or half as wide would be seen."""
    learner, public, unit, models, columns = fitted
    answers = np.array([m.probabilities(columns)[:, 1] if m.classes else m.values(columns) for m in models])
    covered = []
    for at in range(3):
        made = list(islice(refits(learner, public, unit, models[at]), REFITS))
        low, high = noise_interval(models[at], made, columns, 0.9).T
        assert (low <= answers[at]).all()
        assert (answers[at] <= high).all()
        others = np.delete(answers, at, axis=0)
        covered.append(((others >= low) & (others <= high)).mean())
        if models[at].target_range:
            assert low.min() >= -4
            assert high.max() <= 4
    assert 0.82 <= np.mean(covered) <= 0.97, covered


def test_the_same_model_has_the_same_refits_and_no_two_are_alike(fitted):
    learner, public, unit, models, _ = fitted
    first, second = (list(islice(refits(learner, public, unit, models[0]), 2)) for _ in range(2))
    assert first == second
    assert first[0] != first[1]
    assert next(refits(learner, public, unit, models[1])) != first[0]


def test_made_up_rows_have_the_released_counts_and_the_models_answers(fitted):
    _, public, _, models, _ = fitted
    model, size = models[0], 4000
    rows = rows_like(model, public, size, Draws(b"rows")).binned(model.features)
    for at, counts in enumerate(model.counts):
        shares = np.maximum(counts, 0) / np.maximum(counts, 0).sum()
        found = np.bincount(rows.bins[at], minlength=shares.size) / size
        assert abs(found - shares).max() < 0.04
    scores = model.coded_scores([codes.astype(np.int64) for codes in rows.bins])
    if model.classes:
        chances = 1 / (1 + np.exp(-dict(model.bends).get(1, model.link) * scores[:, 0]))
        high = chances > np.median(chances)
        assert rows.labels[high].mean() - rows.labels[~high].mean() > 0.2
        ages = rows.bins[0][rows.labels == 1].mean() - rows.bins[0][rows.labels == 0].mean()
        assert ages > 1  # what speaks for a class stands with it
    else:
        assert np.corrcoef(scores[:, 0], rows.targets)[0, 1] > 0.5


@pytest.mark.parametrize("is_laplace", [False, True])
def test_drawn_noise_has_the_law_that_is_asked_for(is_laplace):
    noise = Draws(b"law").noise("x", 40_000, is_laplace)
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert abs((noise**4).mean() - (6 if is_laplace else 3)) < 0.6


def test_students_quantiles_are_those_of_scipy():
    for share in (0.75, 0.9, 0.95, 0.975, 0.995):
        for freedom in (8, 11, 19, 63):
            assert abs(student_quantile(share, freedom) - t.ppf(share, freedom)) < 2e-3


@pytest.mark.parametrize("text", ["", "0.4", "1", "nan", "x", "9"])
def test_a_level_is_a_number_from_a_half_to_99_hundredths(text):
    with pytest.raises(InputError, match="interval") as raised:
        read_level(text, "interval")
    assert "for instance .9" in str(raised.value)
    assert read_level(".9", "interval") == 0.9
