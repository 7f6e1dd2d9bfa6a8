"""A released model of a number: an additive one, and trees that add what its curves leave to explain.

value = middle of target_range + link * (score of the curves + sum over trees of the weight of the leaf that x reaches),
clipped to that public range. It never sees a row of the training data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import later
from dpserve_verify.errors import ModelInvalid
from models.explain.markdown import plain
from models.features.features import Feature, RawColumns, number_text
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from models.forms.trees import add_tree_scores, mean_by_coins, with_tests
from models.onnx.nodes import Graph, Inputs, Namer
from models.onnx.trees import tree_scores
from models.parts.answers import Labels, Range, Scores, middle
from models.parts.trees import Tree, Walk, check_tree, codes_of_tests, splits, tree_from_json, tree_to_json, walk_of
from models.parts.votes import every_test

if TYPE_CHECKING:
    from onnx import helper
else:
    helper = later("onnx.helper")

CARD = """\
Each feature adds a number to the score by itself, and each of {count} trees asks a record some questions and adds one
more. The answer is {middle} + {link} × score. All numbers stand in ensemble.json.

**Within {low} to {high}.** In training, targets outside this public range were taken for its nearer end, and no answer
leaves the range.

How far each feature moves the answer, by itself and in the trees, if every other question were a fair coin:

| {target} | feature |
|---:|---|
{sizes}"""


@dataclass(frozen=True)
class CurvesAndTrees(Ensemble):
    """A frozen model of a number: `curves`, and `trees` beside them, in units of the same score."""

    word = "curves-and-trees"
    noun = "An additive model with trees beside it"
    parts = "Curves and trees"
    score_unit = None
    together = (
        "Its curves add up, and its trees ask several features together. How far each feature moves the answer, if "
        "every other question were a fair coin:"
    )

    features: tuple[Feature, ...]
    target: str
    classes: Labels
    target_range: Range | None = field()  # no default, whatever the base class says
    link: float
    curves: AdditiveEnsemble
    trees: tuple[Tree, ...]

    def __post_init__(self) -> None:
        if self.target_range is None:
            raise ModelInvalid("target_range: curves and trees together give a number, of a public range")
        allowed = codes_of_tests(self.features)
        for tree in self.trees:
            check_tree(tree, self.features, allowed)

    @classmethod
    def of(cls, curves: AdditiveEnsemble, trees: Sequence[Tree]) -> Self:
        """Return the model of these curves and trees."""
        return cls(curves.features, curves.target, (), curves.target_range, curves.link, curves, tuple(trees))

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Score codes (features, n): (n, 1)."""
        total = self.curves.coded_scores(codes)
        add_tree_scores(self.walks, codes, total[:, 0])
        return total

    @cached_property
    def walks(self) -> tuple[Walk, ...]:
        """Return the trees as arrays, made once."""
        widths = [feature.bins for feature in self.features]
        return tuple(walk_of(tree, widths) for tree in self.trees)

    def values(self, columns: RawColumns) -> NDArray[np.float64]:
        """Return the values (n,), within `target_range`."""
        return self.curves.values_of(self.scores(columns))

    def predict(self, columns: RawColumns) -> NDArray[Any]:
        """Return values (n,)."""
        return self.values(columns)

    def to_json(self) -> dict[str, Any]:
        """Return what the curves say of themselves, and the trees as `tree_to_json` writes them."""
        return {**self.curves.to_json(), **self.numbers()}

    def numbers(self) -> dict[str, Any]:
        """Return the trees."""
        return {"type": self.word, "trees": [tree_to_json(tree) for tree in self.trees]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        if type(body["trees"]) is not list:
            raise ModelInvalid("trees: must be a list")
        curves = {**{name: value for name, value in body.items() if name != "trees"}, "type": AdditiveEnsemble.word}
        return cls.of(AdditiveEnsemble.from_json(curves), [tree_from_json(tree) for tree in body["trees"]])

    def used_features(self) -> list[int]:
        """Return the positions of the features that move a score, or the first position where none does."""
        return sorted({*self.curves.used_features(), *(split.feature for tree in self.trees for split in splits(tree))})

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes of both, and their sum: `target` (N, 1)."""
        both = name("curves"), name("trees")
        curves = self.curves.score_graph(inputs, name, both[0])
        trees = tree_scores(self.trees, 0, self.features, inputs, lambda part: name(f"tree_{part}"), both[1])
        return curves + trees + Graph((helper.make_node("Sum", [*both], [target]),))

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model whose curves are the fullest, and in which every split has a test of its own."""
        tests = every_test(features)
        return self.of(self.curves.fullest(features), [with_tests(tree, tests) for tree in self.trees])

    def sizes(self) -> dict[str, float]:
        """Return the importance of each feature: of its curve, and half of what its splits move."""
        of_trees: dict[str, float] = defaultdict(float)
        for tree in self.trees:
            mean_by_coins(tree, 1.0, self.features, of_trees)
        of_curves = self.curves.sizes()
        names = {**of_curves, **of_trees}
        return {name: of_curves.get(name, 0.0) + self.link * of_trees.get(name, 0.0) for name in names}

    def card_section(self) -> str:
        """Return what adds up, and the importances."""
        assert self.target_range is not None
        low, high = map(number_text, self.target_range)
        lines = [f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items()]
        return CARD.format(
            count=len(self.trees), middle=number_text(middle(self.target_range)), link=f"{self.link:g}", low=low,
            high=high, target=plain(self.target), sizes="\n".join(lines),
        )  # fmt: skip

    def drawing_words(self) -> tuple[str, str]:
        """Return what moves the answer, and how importances are counted."""
        return (
            f"What {self.target} rests on",
            "How far a feature moves the answer, if every other question were a fair coin.",
        )
