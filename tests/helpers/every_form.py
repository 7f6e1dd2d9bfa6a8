"""Made models of every form, and trees of any shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from additive_models import BARE, FEATURES, NUMBER, THREE
from hypothesis import strategies as st

from models.features.features import CategoricalFeature, DateFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import round_to_classes
from models.forms.lines import LineEnsemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.nodes import EXACT
from models.parts.lines import Choice, Line
from models.parts.pairs import PairTerm
from models.parts.trees import Leaf, Split, codes_of_tests
from models.parts.votes import Vote

RANDOM = np.random.default_rng(7)
TWO = ("<=50K", ">50K")


def a_line(weight):
    terms = tuple(tuple(map(int, RANDOM.integers(-99, 99, feature.bins))) for feature in FEATURES)
    return Line(weight, -3, terms)


def a_choice(weight):
    lines = [a_line(weight) for _ in THREE]
    return Choice(weight, tuple(line.constant for line in lines), tuple(line.terms for line in lines))


MANY_VOTES = tuple(
    Vote(test, at, code, int(RANDOM.integers(1, 9)), int(RANDOM.integers(0, 3)))
    for at, feature in enumerate(FEATURES)
    for test, codes in (("above", range(feature.cuts)), ("is", range(feature.bins)))
    for code in codes
)
VOTES = tuple(replace(vote, output=0) for vote in MANY_VOTES)
TREES = (
    Split("above", 0, 1, Split("is", 1, 0, Leaf(5), Leaf(2)), Split("is", 0, 4, Leaf(-7), Leaf(3))),
    Split("is", 1, 3, Leaf(4), Split("is", 2, 1, Leaf(1), Split("is", 2, 2, Leaf(9), Leaf(-1)))),
    Leaf(-2),
)
PAIR = PairTerm((0, 1), ((0, 0, 1, 1, 2), (0, 1, 1, 1)), ((100, 200), (300, -400), (500, 600)))
PAIRED = replace(BARE, pairs=(PAIR, PairTerm((1, 2), ((0, 1, 0, 2), (0, 1, 0)), ((10, 20), (30, -40), (50, 60)))))
PAIR_OF_THREE = PairTerm(
    (0, 1), PAIR.groups, (((1, 2, 3), (4, 5, 6)), ((-7, 8, 9), (0, 0, 0)), ((5, 5, -5), (1, 1, 1)))
)
TERMS = [RANDOM.standard_normal((feature.bins, 3)) for feature in FEATURES]
DAY = DateFeature("day", (19723.0, 19800.5))
MODELS = {
    "votes": VotingEnsemble(FEATURES, "income", TWO, VOTES, 0.4),
    "votes of numbers": VotingEnsemble(FEATURES, "income", (1, -1), VOTES, 1),
    "votes on many": VotingEnsemble(FEATURES, "income", THREE, MANY_VOTES, 0.4),
    "votes on many numbers": VotingEnsemble(FEATURES, "income", (7, -7, 2), MANY_VOTES, 0.4),
    "no votes": VotingEnsemble(FEATURES, "income", THREE, (), 0.4),
    "trees": TreeEnsemble(FEATURES, "income", TWO, TREES, -1, 0.4),
    "additive": BARE,
    "bent": replace(BARE, bends=((-200, 0.002), (-1, 0.02), (1, 0.01), (201, 0.001))),
    "great scores": replace(BARE, constant=EXACT + 1, link=1e-7),
    "number": NUMBER,
    "pairs": PAIRED,
    "number of pairs": replace(PAIRED, classes=(), target_range=(100.0, 500.0)),
    "classes": round_to_classes(FEATURES, "income", THREE, 1.5, np.ones(3), TERMS),
    "pairs of three": replace(
        round_to_classes(FEATURES, "income", THREE, 1.5, np.ones(3), TERMS),
        constant=(1, 2, 3), terms=tuple(((100, 20, -3),) * f.bins for f in FEATURES), pairs=(PAIR_OF_THREE,),
    ),
    "lines": LineEnsemble(FEATURES, "income", TWO, (a_line(900), a_line(400)), 1 / 512),
    "choices": LineEnsemble(FEATURES, "income", THREE, (a_choice(900), a_choice(400), a_choice(401)), 1 / 512),
    "dates": AdditiveEnsemble((DAY,), "t", ("no", "yes"), None, 0.1, 1, ((3, -4, 5, 6),)),
    "texts alone": AdditiveEnsemble((FEATURES[1],), "label", ("no", "yes"), None, 0.1, 1, ((3, -4, 5, 6),)),
    "names of outputs": AdditiveEnsemble(
        (NumericFeature("label", (1.0,)), CategoricalFeature("value", ("a",))), "t", (0, 1), None, 0.1, 1,
        ((3, -4, 5), (1, -1, 2)),
    ),
}  # fmt: skip


@st.composite
def trees(draw, features, deep=5):
    if deep == 0 or draw(st.booleans()):
        return Leaf(draw(st.integers(-9, 9)))
    at = draw(st.integers(0, len(features) - 1))
    asked = codes_of_tests(features)[at]
    test, code = draw(st.sampled_from([(test, code) for test, codes in asked.items() for code in codes]))
    return Split(test, at, code, *(draw(trees(features, deep - 1)) for _ in range(2)))
