"""Two models side by side: on bins that both can tell apart, in units of their joint standard error."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

import pytest
from additive_models import BARE, CLASSES, ERRORS, LINK, NUMBER, TERMS

from dpserve_verify.errors import InputError
from models.explain.compare import compare, comparison_picture
from models.features.features import CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.trees import Leaf
from models.parts.votes import Vote

NAMES = ("a@1", "a@2")


def of_age(edges, terms, errors=(), counts=()):
    features = (NumericFeature("age", edges),)
    wrap = [(each,) if each else () for each in (terms, counts, errors)]
    return AdditiveEnsemble(features, "income", ("<=50K", ">50K"), None, 1.0, 0, *wrap)


def test_a_model_is_like_itself():
    found = compare(CLASSES, CLASSES, NAMES)
    assert {each.more for each in found.differences} == {0.0}
    assert found.summary().startswith("0 of 15 values")


def test_one_value_apart_comes_first_in_joint_standard_errors():
    terms = ((*TERMS[0][:2], TERMS[0][2] + 100, *TERMS[0][3:]), *TERMS[1:])
    other = replace(CLASSES, terms=terms, errors=((*ERRORS[0][:2], 3.0, *ERRORS[0][3:]), *ERRORS[1:]))
    top = compare(CLASSES, other, NAMES).differences[0]
    assert (top.feature, top.first.label) == ("age", "above 27.5, up to 65")
    assert top.error == pytest.approx(LINK * hypot(4, 3))
    assert top.more == pytest.approx(LINK * (100 - 30))  # 3 in 10 of the records are there, so the mean moves by 30
    assert top.deviates == pytest.approx(top.more / top.error)


def test_bins_are_united():
    one = of_age((10.0, 20.0), (0, 6, 12, 3), (1.0, 2.0, 3.0, 4.0))
    two = of_age((15.0,), (0, 12, 3), (1.0, 2.0, 3.0))
    found = compare(one, two, NAMES)
    assert found.features[0].edges == (10.0, 15.0, 20.0)
    first, second = found.curves[0]
    assert [each.votes - first[0].votes for each in first] == pytest.approx([0, 6, 6, 12, 3])
    assert [each.votes - second[0].votes for each in second] == pytest.approx([0, 0, 12, 12, 3])
    assert [each.error for each in first] == [1, 2, 2, 3, 4]
    assert sum(each.votes for each in first) == pytest.approx(0)


def test_categories_are_united_and_new_ones_are_other():
    def of(values, terms):
        return AdditiveEnsemble((CategoricalFeature("x", values),), "t", (0, 1), None, 1.0, 0, (terms,))

    first, second = compare(of(("a", "b"), (1, 2, 3, 4)), of(("c", "a"), (10, 20, 30, 40)), NAMES).curves[0]
    assert [each.label for each in first] == ["a", "b", "c", "other", "missing"]
    assert [each.votes - first[0].votes for each in first] == pytest.approx([0, 1, 2, 2, 3])
    assert [each.votes - second[0].votes for each in second] == pytest.approx([0, 10, -10, 10, 20])


def test_counts_are_shared_among_the_pieces_of_a_bin():
    one = of_age((10.0,), (0, 10, 0), counts=(30, 70, 0))
    two = of_age((20.0,), (0, 10, 0), counts=(30, 70, 0))
    first, _ = compare(one, two, NAMES).curves[0]
    shares = [(0.3 + 0.15) / 2, (0.35 + 0.15) / 2]  # up to 10; 10 to 20
    assert first[0].votes == pytest.approx(-10 * (1 - shares[0]))


def test_without_errors_the_size_alone():
    found = compare(BARE, replace(BARE, terms=((0, *TERMS[0][1:]), *TERMS[1:])), NAMES)
    assert found.differences[0].deviates is None
    assert found.differences[0].first.label == "up to 18"
    assert "No standard errors" in found.summary()


def test_votes_beside_terms_in_log_odds():
    votes = VotingEnsemble(CLASSES.features, "income", CLASSES.classes, (Vote("above", 0, 1, 4),), 0.25)
    found = compare(votes, CLASSES, NAMES)
    first, _ = found.curves[0]
    assert first[2].votes - first[0].votes == pytest.approx(2 * 4 * 0.25)


def test_features_of_one_alone_are_named():
    fewer = replace(CLASSES, features=CLASSES.features[:2], terms=TERMS[:2], counts=(), errors=())
    assert compare(CLASSES, fewer, NAMES).only == (("owner", "idle"), ())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(CLASSES, classes=("no", "yes")), "answers income: no or yes"),
        (NUMBER, "answers price: a number"),
        (TreeEnsemble(CLASSES.features, "income", CLASSES.classes, (Leaf(1),), 0, 1.0), "trees"),
        (VotingEnsemble(CLASSES.features, "income", ("a", "b", "c"), (), 1.0), "a score for each class"),
        (of_age((1.0,), (1, 2, 3)), None),
        (
            AdditiveEnsemble(
                (CategoricalFeature("age", ("a",)),), "income", CLASSES.classes, None, 1.0, 0, ((1, 2, 3),)
            ),
            "age is numeric in one and categorical in the other",
        ),
    ],
)
def test_what_cannot_be_compared(other, message):
    if message is None:
        assert compare(CLASSES, other, NAMES).only[0] == ("work <b>", "owner", "idle")
        return
    with pytest.raises(InputError, match=message):
        compare(CLASSES, other, NAMES)


@pytest.mark.slow
def test_pictures(tmp_path):
    found = compare(CLASSES, replace(CLASSES, terms=((0, *TERMS[0][1:]), *TERMS[1:])), NAMES)
    for name in ("both.png", "both.svg", "both.html"):
        comparison_picture(found, tmp_path / name, ("claim <one>", "claim two"))
    page = (tmp_path / "both.html").read_text("utf-8")
    assert "claim &lt;one&gt;" in page
    assert "a@1: " in page
    assert "<b>" not in page
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="out=both"):
        comparison_picture(found, tmp_path / "both.txt", ("", ""))
