"""What two features add together: scores by hand, JSON, ONNX, explanations, drawings, edits, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan

import numpy as np
import pytest
from border_columns import borders

from dpserve_verify.errors import InputError, ModelInvalid
from models.edit.edit_list import edit_all
from models.edit.editing import EditNote, bin_texts, counts_of, errors_of, values_of
from models.explain.card import model_card
from models.explain.compare import compare
from models.explain.explain import contributions, pair_shapes, shapes, unused_of
from models.explain.markdown import plain
from models.explain.page import record_page, shapes_page
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx.export import to_onnx
from models.onnx.nodes import EXACT
from models.onnx.runtime import OnnxModel
from models.parts.pairs import PairTerm

FEATURES = (
    NumericFeature("age", (18.0, 40.0, 65.0)),
    CategoricalFeature("work", ("Private", "State")),
    BooleanFeature("owner"),
    NumericFeature("hours", ()),
)
TERMS = ((-7, 2, 3, 30, 5), (4, -3, 1, -2), (0, 6, 9), (0, 0))
AGES = (0, 0, 1, 1, 2)  # up to 40, above, missing
FIRST = PairTerm(
    (0, 1), (AGES, (0, 1, 1, 1)), ((100, 200), (300, 400), (500, 600)), ((9, -1), (3, 4), (0, 0)), ((0.5,) * 2,) * 3
)
SECOND = PairTerm((1, 2), ((0, 1, 0, 2), (0, 1, 0)), ((1000, 2000), (3000, 4000), (5000, 6000)))
MODEL = AdditiveEnsemble(FEATURES, "income", ("no", "yes"), None, 0.25, -1, TERMS, pairs=(FIRST, SECOND))
KNOWN = replace(MODEL, counts=tuple((5,) * f.bins for f in FEATURES), errors=tuple((1.0,) * f.bins for f in FEATURES))
CLAIM = {"epsilon": "0.5", "delta": "0.000001", "relation": "add-remove", "unit": "one record"}
NOTE = EditNote("ann", "a review", "2026-01-02T03:04:05Z")


@pytest.mark.parametrize(
    ("age", "work", "owner", "score"),
    [
        (18, "Private", False, -7 + 4 + 0 - 1 + 100 + 1000),
        (40.5, "State", True, 3 - 3 + 6 - 1 + 400 + 4000),
        (70, "elsewhere", nan, 30 + 1 + 9 - 1 + 400 + 1000),
        (nan, None, True, 5 - 2 + 6 - 1 + 600 + 6000),
    ],
)
def test_scores_by_hand_and_what_they_are_made_of(age, work, owner, score):
    columns = {"age": [age], "work": [work], "owner": [owner], "hours": [1.0]}
    for model in (MODEL, KNOWN):
        assert model.scores(columns).tolist() == [[score]]
        found = contributions(model, columns)
        assert found.features == ("age", "work", "owner", "hours", "age & work", "work & owner")
        assert float(found.base[0] + found.votes.sum()) == pytest.approx(score * 0.25, rel=1e-12)
    assert MODEL.largest == 1 + 30 + 4 + 9 + 600 + 6000


def test_json_both_ways_and_a_model_of_before_is_as_it_was():
    for model in (MODEL, KNOWN):
        assert ensemble_from_bytes(ensemble_bytes(model)) == model
    assert "pairs" not in replace(MODEL, pairs=()).to_json()
    assert list(SECOND.to_json()) == ["features", "groups", "terms"]


def random_pairs(features, rng, size, wide) -> tuple[PairTerm, ...]:
    """Of every two features; numbers in groups of neighbours, others in any."""
    found = []
    for at in range(len(features)):
        for other in range(at + 1, len(features)):
            groups = tuple(_groups(features[place], rng) for place in (at, other))
            shape = [max(each) + 1 for each in groups]
            terms = rng.integers(-wide, wide + 1, shape) if rng.random() < 0.9 else np.zeros(shape, np.int64)
            found.append(PairTerm((at, other), groups, tuple(map(tuple, terms.tolist()))))
    return tuple(found[:size])


def _groups(feature, rng):
    if isinstance(feature, NumericFeature):
        inner = np.cumsum(rng.integers(0, 2, feature.bins - 1))
        inner -= inner[0]
        return (*inner.tolist(), int(rng.integers(0, inner[-1] + 2)))
    _, groups = np.unique(rng.integers(0, 3, feature.bins), return_inverse=True)
    return tuple(groups.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("wide", [1, 3000, EXACT // 8, EXACT, 1 << 40])
def test_the_export_gives_the_same_scores_beside_every_border(wide):
    """Whatever the groups, of every kind of feature; sums that float32 holds, and such that it does not."""
    rng = np.random.default_rng(wide % 1000)
    for features in (FEATURES, FEATURES[::-1], FEATURES[1:3], (FEATURES[0], FEATURES[2])):
        for kind in ({"classes": ("no", "yes"), "target_range": None}, {"classes": (), "target_range": (-2.0, 1.5)}):
            terms = tuple(
                tuple(int(v) for v in rng.integers(-wide, wide + 1, f.bins) * rng.integers(0, 2)) for f in features
            )
            pairs = random_pairs(features, rng, 4, wide)
            model = AdditiveEnsemble(features, "t", link=1 / wide, constant=5, terms=terms, pairs=pairs, **kind)
            columns = borders(features, 150, rng)
            exported = OnnxModel(to_onnx(model, {}))
            answers, probabilities = exported.predict(columns)
            if model.classes:
                assert answers.tolist() == model.predict(columns).tolist()
                np.testing.assert_allclose(probabilities, model.probabilities(columns), rtol=0, atol=1e-6)
            else:
                np.testing.assert_allclose(answers, model.values(columns), rtol=0, atol=3.5e-6)
            wanted = contributions(model, columns)
            np.testing.assert_allclose(exported.contributions(columns), wanted.votes[:, :, 0], rtol=1e-6, atol=1e-9)
            assert exported.base == wanted.base[0]


def test_exact_scores_are_the_same_bits():
    """Of integers that float32 holds, the answer's nodes get the model's own numbers: labels at a score of 0, too."""
    rng = np.random.default_rng(3)
    model = replace(
        MODEL, pairs=random_pairs(FEATURES, rng, 4, 5), terms=tuple((0,) * f.bins for f in FEATURES), constant=0
    )
    columns = borders(FEATURES, 400, rng)
    scores = model.scores(columns)[:, 0]
    assert (scores == 0).sum() > 5
    exported = OnnxModel(to_onnx(model, {}))
    assert exported.predict(columns)[0].tolist() == model.predict(columns).tolist()


# ---- explained -------------------------------------------------------------------------------------------------------


def test_a_map_is_centred_over_its_released_counts():
    first, second = sorted(pair_shapes(KNOWN), key=lambda shape: shape.feature)
    assert first.feature == "age & work"
    assert first.rows == ("up to 40", "above 40", "missing")
    assert first.columns == ("Private", "State, other, missing")
    middle = (9 * 100 + 3 * 300 + 4 * 400) / 16
    assert [each.votes for each in first.bins] == pytest.approx(
        [0.25 * (term - middle) for term in range(100, 700, 100)]
    )
    assert [(each.error, each.count) for each in first.bins][:2] == [(0.125, 9), (0.125, -1)]
    assert second.bins[0].label == "work Private, other, owner false, missing"
    assert second.importance == 0.25 * 2500
    assert [shape.feature for shape in shapes(KNOWN)] == ["age", "owner", "work"]
    assert next(iter(KNOWN.importances())) == "work & owner"


def test_what_moves_a_score_only_together_is_not_of_no_use():
    alone = replace(MODEL, terms=tuple((0,) * f.bins for f in FEATURES), pairs=(FIRST,))
    assert unused_of(alone) == ["owner", "hours"]
    assert alone.used_features() == [0, 1]


@pytest.mark.slow
def test_it_is_told_on_the_page_the_card_the_summary_and_the_drawing():
    page = shapes_page(KNOWN, "a claim")
    assert "What two features add together" in page
    assert page.count("age &amp; work") == 4  # heading, drawing, figure and table
    assert "age above 40, work Private: +" in page  # what a cell says where it is pointed at
    assert "What two features add together" not in shapes_page(replace(KNOWN, pairs=()), "a claim")
    assert "age &amp; work" in KNOWN.svg("a claim") or "age & work" in KNOWN.svg("a claim")
    assert plain("work & owner") in model_card(KNOWN, CLAIM)
    body, rows = KNOWN.summary()
    assert json.loads(json.dumps(body))["pairs"][0]["features"] == ["work", "owner"]
    assert rows[1][1] == "work & owner"
    columns = {"age": [70.0], "work": ["State"], "owner": [True], "hours": [1.0]}
    assert "age = 70 &amp; work = State" in record_page(KNOWN, "a claim", columns, KNOWN.sections())


def test_a_comparison_names_the_pairs_that_it_leaves_out():
    found = compare(KNOWN, replace(KNOWN, pairs=(FIRST,)), ("one", "two"))
    assert found.pairs == ("age & work", "work & owner")
    assert all(each.more == 0 for each in found.differences)


# ---- edited ----------------------------------------------------------------------------------------------------------


def test_cells_are_set_clipped_and_zeroed():
    edits = [
        {"feature": "age & work", "set": {"bins": "..30 & Private", "to": -2.5}},
        {"feature": "age & work", "clip": {"low": -10, "high": 100, "bins": "all"}},
        {"feature": "work & owner", "zero": "State, missing & all"},
    ]
    after = edit_all(KNOWN, edits, NOTE)
    assert after.pairs[0].terms == ((-10, 200), (300, 400), (400, 400))
    assert after.pairs[0].errors == ((0.0, 0.5), (0.5, 0.5), (0.0, 0.0))
    assert after.pairs[1].terms == ((1000, 2000), (0, 0), (0, 0))
    assert [edit.feature for edit in after.edits] == ["age & work", "age & work", "work & owner"]
    assert replace(after, pairs=KNOWN.pairs, edits=()) == KNOWN
    assert ensemble_from_bytes(ensemble_bytes(after)) == after
    assert values_of(KNOWN, "age & work").tolist() == [25, 50, 75, 100, 125, 150]
    assert (errors_of(KNOWN, "age & work")[0], errors_of(MODEL, "age")[0]) == (0.125, None)
    assert (counts_of(KNOWN, "age & work")[:2], counts_of(KNOWN, "work & owner")[0]) == ([9, -1], None)
    assert bin_texts(KNOWN, "age & work")[0] == "up to 40 & Private"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"feature": "age & work", "smooth": "all"}, "set, clipped or zeroed"),
        ({"feature": "age & work", "monotone": "increasing"}, "set, clipped or zeroed"),
        ({"feature": "age & work", "zero": "30..40"}, "bins of the one & bins of the other"),
        ({"feature": "age & work", "zero": "30..40 & nothing"}, "work has"),
        ({"feature": "age & owner", "zero": "all"}, "the model has age, work, owner, hours, age & work, work & owner"),
        ({"feature": "age & work", "set": {"bins": "..30 & Private", "to": 25}}, "nothing would change"),
    ],
)
def test_other_edits_are_refused(edit, says):
    with pytest.raises(InputError, match=says):
        edit_all(KNOWN, [edit], NOTE)


# ---- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pair",
    [
        replace(FIRST, features=(1, 0)),
        replace(FIRST, features=(0, 0)),
        replace(FIRST, features=(0, 4)),
        replace(FIRST, features=(-1, 1)),
        replace(FIRST, features=(0, True)),
        replace(FIRST, groups=(AGES, (0, 1, 1))),
        replace(FIRST, groups=(AGES, (0, 2, 2, 2))),
        replace(FIRST, groups=((1, 0, 1, 1, 2), FIRST.groups[1])),  # bins of a number that do not lie side by side
        replace(FIRST, groups=(AGES, (0.0, 1, 1, 1))),
        replace(FIRST, terms=FIRST.terms[:2]),
        replace(FIRST, terms=((1, 2), (3, 4), (5, 6.0))),
        replace(FIRST, terms=((1, 2), (3, 4), (5, 1 << 54))),
        replace(FIRST, counts=FIRST.counts[:1]),
        replace(FIRST, errors=((0.5, -1.0),) * 3),
        replace(FIRST, errors=((0.5, nan),) * 3),
        SECOND,  # twice
    ],
)
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(ModelInvalid):
        replace(MODEL, pairs=(pair, SECOND))


def test_a_pair_may_not_be_called_as_a_feature_is():
    features = (*FEATURES[:3], BooleanFeature("age & work"))
    with pytest.raises(ModelInvalid, match="none called as a feature"):
        AdditiveEnsemble(features, "t", ("no", "yes"), None, 1.0, 0, (*TERMS[:3], (0, 0, 0)), pairs=(FIRST,))


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        {},
        [1],
        [{"features": [0, 1]}],
        [{"features": [0], "groups": [[0], [0]], "terms": [[1]]}],
        [{**FIRST.to_json(), "more": 1}],
        [{**FIRST.to_json(), "counts": []}],
        [{**FIRST.to_json(), "terms": [1]}],
        [{**FIRST.to_json(), "groups": [[0, 0, 0, 0, 0]]}],
        [{**FIRST.to_json(), "groups": [["0"] * 5, [0, 1, 1, 1]]}],
    ],
)
def test_json_that_is_none_is_refused(pairs):
    raw = json.dumps({**MODEL.to_json(), "pairs": pairs}, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    with pytest.raises(ModelInvalid):
        ensemble_from_bytes(raw)
