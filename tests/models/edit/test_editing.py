"""Edits of an additive model, as functions: what changes, what does not, what is recorded, what is refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from confined_work import run_confined
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from accountant.system.confined import Bounds
from dpserve_verify.errors import InputError
from models.edit import edit_list
from models.edit.edit_list import MAX_EDITS, edit_all, read_edits
from models.edit.edit_parts import bin_text, part_of, ranges
from models.edit.editing import EditNote, clip, errors_of, monotone, set_value, smooth, to_additive, values_of, zero
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote

AGE = NumericFeature("age", (20.0, 30.0, 40.0, 50.0))  # bins ..20, 20..30, 30..40, 40..50, 50.., missing
JOB = CategoricalFeature("job", ("clerk", "cook, chef", "other one"))
OWNS = BooleanFeature("owns")
NOTE = EditNote("ann", "a review", "2026-05-03T10:00:00Z")
MODEL = AdditiveEnsemble(
    (AGE, JOB, OWNS),
    "income",
    ("no", "yes"),
    None,
    link=0.01,
    constant=7,
    terms=((-50, 30, 10, 40, 60, 5), (10, -20, 30, 0, 1), (-5, 5, 0)),
    counts=((10, 1, 3, -4, 20, 2), (5, 5, 5, 5, 5), (9, 9, 0)),
    errors=((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (1.0, 1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 2.0)),
)
COLUMNS = {
    "age": np.array([18.0, 25, 35, 45, 55, np.nan]),
    "job": np.array(["clerk", "cook, chef", "other one", "x", None, ""], object),
    "owns": np.array([0.0, 1.0, np.nan, 0.0, 1.0, 0.0]),
}


def only(model: AdditiveEnsemble, feature: int = 0) -> AdditiveEnsemble:
    """Nothing but this feature's terms, errors and the edits may have changed; the old model has not."""
    for field in ("features", "target", "classes", "target_range", "link", "constant", "counts"):
        assert getattr(model, field) == getattr(MODEL, field)
    for table in ("terms", "errors"):
        for at in {0, 1, 2} - {feature}:
            assert getattr(model, table)[at] == getattr(MODEL, table)[at]
    assert MODEL.edits == ()
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    return model


def done(model: AdditiveEnsemble) -> dict:
    edit = model.edits[-1]
    assert (edit.at, edit.by, edit.why) == (NOTE.at, NOTE.by, NOTE.why)
    return {"feature": edit.feature, **json.loads(edit.what)}


@pytest.mark.parametrize(
    ("feature", "part", "codes"),
    [
        (AGE, "all", [0, 1, 2, 3, 4, 5]),
        (AGE, "30..40", [2]),
        (AGE, "29..41", [1, 2, 3]),
        (AGE, "..20", [0]),
        (AGE, "50..", [4]),
        (AGE, "..", [0, 1, 2, 3, 4]),
        (AGE, "-5..3", [0]),
        (AGE, "70..80", [4]),
        (AGE, "missing", [5]),
        (AGE, "bin 1-3", [1, 2, 3]),
        (AGE, "bin 5", [5]),
        (JOB, "clerk", [0]),
        (JOB, "cook, chef", [1]),
        (JOB, '["cook, chef", "missing"]', [1, 4]),
        (JOB, "other, clerk", [0, 3]),
        (JOB, "other one", [2]),
        (OWNS, "true", [1]),
        (OWNS, "false, missing", [0, 2]),
    ],
)
def test_parts(feature, part, codes):
    assert part_of(feature, part) == codes


def test_a_value_that_is_called_as_a_part_is_meant_before_it():
    feature = CategoricalFeature("x", ("all", "other", "bin 1"))
    assert [part_of(feature, part) for part in ("all", "other", "bin 1")] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("feature", "part"),
    [
        *((AGE, part) for part in ("", "30", "40..30", "30..30", "a..b", "nan..4", "bin 6", "bin 3-1", "clerk", "bin")),
        *((JOB, part) for part in ("", "baker", "clerk, baker", "30..40", "[]", '["clerk"', "[1]", "bin 5")),
        *((OWNS, part) for part in ("1", "True?", "other")),
    ],
)
def test_no_such_bin(feature, part):
    with pytest.raises(InputError, match="bins="):
        part_of(feature, part)


@pytest.mark.parametrize("feature", [AGE, OWNS, CategoricalFeature("y", ("a", "b"))])
def test_a_bin_is_written_as_it_is_read(feature):
    for code in range(feature.bins):
        assert part_of(feature, bin_text(feature, code)) == [code]


@given(st.sets(st.integers(0, 30)))
def test_ranges_hold_each_code_once(codes):
    found = ranges(sorted(codes))
    assert [code for first, last in found for code in range(first, last + 1)] == sorted(codes)
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(found))


def test_set():
    found = only(set_value(MODEL, "age", "30..50", 0.254, NOTE))
    assert found.terms[0] == (-50, 30, 25, 25, 60, 5)
    assert found.errors[0] == (1.0, 2.0, 0.0, 0.0, 5.0, 6.0)
    assert done(found) == {"feature": "age", "do": "set", "bins": [[2, 3]], "value": "0.254"}
    assert values_of(found, "age")[2] == pytest.approx(0.25)
    assert errors_of(found, "age")[0] == pytest.approx(0.01)
    moved = found.scores(COLUMNS)[:, 0] - MODEL.scores(COLUMNS)[:, 0]
    assert moved.tolist() == [0, 0, 15, -15, 0, 0]


def test_set_values_by_name():
    found = only(set_value(MODEL, "job", '["cook, chef", "other"]', -1, NOTE), 1)
    assert found.terms[1] == (10, -100, 30, -100, 1)
    assert done(found)["bins"] == [[1, 1], [3, 3]]


def test_zero():
    whole = only(zero(MODEL, "age", NOTE))
    assert whole.terms[0] == (0,) * 6 == whole.errors[0]
    part = only(zero(MODEL, "age", NOTE, "missing"))
    assert part.terms[0] == (-50, 30, 10, 40, 60, 0)
    assert done(part) == {"feature": "age", "do": "zero", "bins": [[5, 5]]}


def test_clip_touches_what_lies_outside():
    found = only(clip(MODEL, "age", -0.2, 0.4, NOTE))
    assert found.terms[0] == (-20, 30, 10, 40, 40, 5)
    assert found.errors[0] == (0.0, 2.0, 3.0, 4.0, 0.0, 6.0)
    assert done(found) == {"feature": "age", "do": "clip", "bins": [[0, 5]], "low": "-0.2", "high": "0.4"}


def test_smooth_by_equal_weights():
    found = only(smooth(MODEL, "age", NOTE))
    assert found.terms[0] == (-10, -3, 27, 37, 50, 5)  # (-50+30)/2, (-50+30+10)/3, ...; missing stays
    assert found.errors[0] == (1.5, 2.0, 3.0, 4.0, 4.5, 6.0)
    what = {"do": "smooth", "bins": [[0, 4]], "window": 3, "weights": "equal"}
    assert done(found) == {"feature": "age", **what}


def test_smooth_within_a_part_by_counts_of_at_least_one():
    found = only(smooth(MODEL, "age", NOTE, "20..50", 5, "counts"))
    mean = round((30 * 1 + 10 * 3 + 40 * 1) / 5)  # the count -4 weighs 1
    assert found.terms[0] == (-50, mean, mean, mean, 60, 5)
    assert found.errors[0][1] == pytest.approx((2 * 1 + 3 * 3 + 4 * 1) / 5)


def test_a_window_wider_than_the_part_is_its_mean():
    found = only(smooth(MODEL, "age", NOTE, "..", 99))
    assert found.terms[0] == (18, 18, 18, 18, 18, 5)


def test_monotone_pools_by_counts():
    found = only(monotone(MODEL, "age", "increasing", NOTE))
    pooled = round((30 * 1 + 10 * 3) / 4)
    assert found.terms[0] == (-50, pooled, pooled, 40, 60, 5)
    assert found.errors[0] == pytest.approx((1.0, (2 * 1 + 3 * 3) / 4, (2 * 1 + 3 * 3) / 4, 4.0, 5.0, 6.0))
    assert done(found) == {"feature": "age", "do": "monotone", "bins": [[0, 4]], "direction": "increasing"}


@given(
    st.lists(st.integers(-(2**20), 2**20), min_size=6, max_size=6),
    st.lists(st.integers(-50, 500), min_size=6, max_size=6),
    st.sampled_from(["increasing", "decreasing"]),
)
def test_monotone_is_monotone_and_keeps_the_weighted_mean(terms, counts, direction):
    model = replace(MODEL, terms=(tuple(terms), *MODEL.terms[1:]), counts=(tuple(counts), *MODEL.counts[1:]))
    ordered = np.array(terms[:5])
    if np.all(np.diff(ordered) * (1 if direction == "increasing" else -1) >= 0):
        return
    fitted = np.array(monotone(model, "age", direction, NOTE).terms[0])
    steps = np.diff(fitted[:5]) * (1 if direction == "increasing" else -1)
    assert (steps >= 0).all()
    assert fitted[5] == terms[5]
    weight = np.maximum(1, counts[:5])
    assert abs(weight @ (fitted[:5] - ordered)) <= weight.sum() / 2 + 1e-6  # PAV keeps it; each term was rounded
    known = isotonic_regression(ordered.astype(float), weights=weight, increasing=direction == "increasing").x
    assert np.abs(fitted[:5] - known).max() <= 0.5 + 1e-6


def test_edits_follow_one_another_and_none_is_lost():
    twice = zero(set_value(MODEL, "age", "missing", 1, NOTE), "job", NOTE)
    assert [edit.feature for edit in twice.edits] == ["age", "job"]


def test_a_model_without_counts_or_errors():
    bare = replace(MODEL, counts=(), errors=())
    found = monotone(bare, "age", "increasing", NOTE)
    assert found.terms[0] == (-50, 20, 20, 40, 60, 5)
    assert found.errors == ()
    assert errors_of(bare, "age") == [None] * 6
    with pytest.raises(InputError, match="released no counts"):
        smooth(bare, "age", NOTE, weights="counts")


def test_a_number_is_edited_in_its_own_units():
    number = replace(MODEL, classes=(), target_range=(0.0, 100.0), link=0.5)
    assert set_value(number, "age", "missing", -12.5, NOTE).terms[0][5] == -25


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda: set_value(MODEL, "height", "all", 1, NOTE), "feature='height'"),
        (lambda: set_value(MODEL, "age", "all", float("nan"), NOTE), "finite"),
        (lambda: set_value(MODEL, "age", "all", float("inf"), NOTE), "finite"),
        (lambda: set_value(MODEL, "age", "all", "1", NOTE), "finite"),
        (lambda: set_value(MODEL, "age", "all", True, NOTE), "finite"),
        (lambda: set_value(MODEL, "age", "all", 1e300, NOTE), "at most"),
        (lambda: set_value(MODEL, "age", "all", 9.00719925474099e13, NOTE), "score"),
        (lambda: set_value(MODEL, "age", "missing", 0.05, NOTE), "nothing would change"),
        (lambda: clip(MODEL, "age", 2, 1, NOTE), "must not be above"),
        (lambda: clip(MODEL, "age", float("-inf"), 1, NOTE), "finite"),
        (lambda: clip(MODEL, "age", -5, 5, NOTE), "nothing would change"),
        (lambda: smooth(MODEL, "age", NOTE, window=4), "window"),
        (lambda: smooth(MODEL, "age", NOTE, window=1), "window"),
        (lambda: smooth(MODEL, "age", NOTE, window=10**9 + 1), "window"),
        (lambda: smooth(MODEL, "age", NOTE, weights="rows"), "weights"),
        (lambda: smooth(MODEL, "job", NOTE), "no order"),
        (lambda: smooth(MODEL, "age", NOTE, "missing"), "fewer than two"),
        (lambda: monotone(MODEL, "job", "increasing", NOTE), "no order"),
        (lambda: monotone(MODEL, "owns", "increasing", NOTE), "no order"),
        (lambda: monotone(MODEL, "age", "up", NOTE), "increasing or decreasing"),
        (lambda: EditNote("ann", " "), "why"),
        (lambda: EditNote("", "x"), "by"),
        (lambda: EditNote("ann", "two\nlines"), "why"),
    ],
)
def test_refused(edit, problem):
    with pytest.raises(InputError, match=problem):
        edit()


VOTES = (
    Vote("above", 0, 1, 3),
    Vote("above", 0, 3, 2),
    Vote("is", 1, 2, 4),
    Vote("always", 0, 0, 1),
    Vote("is", 2, 1, 5),
)


@pytest.mark.parametrize("link", [1e-7, 0.03, 0.5, 3.0])
def test_votes_become_terms_with_the_same_answers(link):
    votes = VotingEnsemble((AGE, JOB, OWNS), "income", ("no", "yes"), VOTES, link)
    found = to_additive(votes)
    assert found.link <= 1 / 65536
    assert (found.probabilities(COLUMNS) == votes.probabilities(COLUMNS)).all()
    assert (found.predict(COLUMNS) == votes.predict(COLUMNS)).all()
    assert all(max(term) == -min(term) for term in found.terms)
    assert to_additive(found) is found


def test_what_is_no_sum_cannot_be_edited():
    three = VotingEnsemble((AGE,), "income", ("a", "b", "c"), (), 0.5)
    for model in (three, TreeEnsemble((AGE,), "income", ("a", "b"), (), 0, 0.5)):
        with pytest.raises(InputError, match="sum over features"):
            to_additive(model)


def test_a_file_of_edits(tmp_path):
    (tmp_path / "edits.yaml").write_text(
        """
- {feature: age, set: {bins: "..20", to: -0.4}, why: too few}
- {feature: age, smooth: {bins: 20..50, weights: counts}}
- {feature: age, clip: {low: -1, high: 0.5}}
- {feature: age, monotone: increasing}
- {feature: job, zero: all}
- {feature: owns, zero: {bins: true}}
"""
    )
    found = edit_all(MODEL, read_edits(tmp_path / "edits.yaml"), NOTE)
    by_hand = set_value(MODEL, "age", "..20", -0.4, replace(NOTE, why="too few"))
    by_hand = clip(smooth(by_hand, "age", NOTE, "20..50", 3, "counts"), "age", -1, 0.5, NOTE)
    by_hand = zero(zero(monotone(by_hand, "age", "increasing", NOTE), "job", NOTE), "owns", NOTE, "true")
    assert found == by_hand


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "[",
        "[]",
        "[1]",
        "[{feature: age}]",
        "[{feature: age, zero: all, clip: {low: 0, high: 1}}]",
        "[{feature: age, set: {bins: all}}]",
        "[{feature: age, set: {bins: all, to: 1, more: 2}}]",
        "[{feature: age, set: {bins: all, to: one}}]",
        "[{feature: age, set: {bins: all, to: .nan}}]",
        "[{zero: all}]",
        "[{feature: age, zero: all, why: ''}]",
        "[{feature: age, zero: all, extra: 1}]",
        "[{feature: age, smooth: {window: many}}]",
        "[{feature: age, clip: {low: [], high: 1}}]",
        "[{feature: age, monotone: {direction: 1}}]",
        "!!python/object:os.system [x]",
        "- &a {feature: age, zero: all}\n- *a\n",
        "a: &a [x]\nb: [*a, *a]",
        "[{feature: age, zero: all}" + ", {feature: age, zero: all}" * MAX_EDITS + "]",
    ],
)
def test_a_file_that_is_wrong(tmp_path, text):
    (tmp_path / "edits.yaml").write_text(text)
    with pytest.raises(InputError):
        edit_all(MODEL, read_edits(tmp_path / "edits.yaml"), NOTE)


def test_edits_are_counted_with_what_they_cost(monkeypatch):
    """Each makes the whole model anew, and checks it: of a large one fewer are made at once."""
    cells = sum(map(len, MODEL.terms)) + sum(pair.table.size for pair in MODEL.pairs)
    edits = [{"feature": "age", "set": {"bins": "missing", "to": number}} for number in (1, 2, 3)]
    monkeypatch.setattr(edit_list, "MAX_CELLS", 3 * cells)
    assert len(edit_all(MODEL, edits, NOTE).edits) == len(MODEL.edits) + 3
    monkeypatch.setattr(edit_list, "MAX_CELLS", 3 * cells - 1)
    with pytest.raises(InputError, match="at most 2 at once"):
        edit_all(MODEL, edits, NOTE)


@pytest.mark.parametrize("feature", [NumericFeature("n", tuple(map(float, range(60_000)))),
                                     CategoricalFeature("c", tuple(map(str, range(59_000))))])  # fmt: skip
def test_the_bins_of_the_widest_feature_are_written_in_time(feature):
    """Each by itself: all of them for each took minutes."""
    assert run_confined(Bounds(300 << 20, 5), 120.0, lambda: [bin_text(feature, code) for code in range(feature.bins)])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_edits(tmp_path / "edits.yaml")
