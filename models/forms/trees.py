"""A released sum of decision trees with integer leaves, for two classes. It never sees a row of the training data.

score(x) = constant + sum over trees of the weight of the leaf that x reaches, answered as in `models.parts.answers`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import ModelInvalid
from models.explain.markdown import plain
from models.features.features import Feature
from models.forms.ensemble import Ensemble
from models.onnx.nodes import Graph, Inputs, Namer
from models.onnx.trees import tree_scores
from models.parts.answers import (
    Bends,
    ClassLabel,
    Scores,
    bend_words,
    bends_from_json,
    bends_to_json,
    check_bends,
    check_head,
    head_from_json,
)
from models.parts.trees import (
    Leaf,
    Split,
    Tree,
    Walk,
    check_tree,
    check_weight,
    codes_of_tests,
    heaviest,
    splits,
    tree_from_json,
    tree_text,
    tree_to_json,
    walk_of,
)
from models.parts.votes import OneTest, every_test

CHUNK = 1 << 14  # rows that walk together: what they need stays near the processor

CARD = """\
Each of {count} trees asks a record some questions and adds a number to its score, which starts at {constant}. Above
zero the answer is "{second}", otherwise "{first}". The probability of "{second}" is
1 / (1 + exp(-{link} × score)){bends}. All numbers stand in ensemble.json.

How far the questions about a feature move the score, if every other answer were a fair coin:

| score | feature |
|---:|---|
{votes}"""

PAGE = """<h2>The trees</h2>
<p>Each tree adds a number to the score, which starts at {constant}. Above zero, the answer is {second}, otherwise
{first}.</p>
<pre>
{trees}
</pre>"""


@dataclass(frozen=True)
class TreeEnsemble(Ensemble):
    """A frozen classifier of two classes. Scores are exact integers."""

    word = "trees"
    noun = "A sum of decision trees"
    parts = "Trees"
    together = (
        "Its trees ask several features together and add up their answers. How far the questions about each feature "
        "move the score, if every other answer were a fair coin:"
    )

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    trees: tuple[Tree, ...]
    constant: int
    link: float
    bends: Bends = ()

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        check_bends(self.bends)
        if len(self.classes) != 2:
            raise ModelInvalid(f"classes={self.classes}: trees tell two classes apart")
        check_weight(self.constant)
        allowed = codes_of_tests(self.features)
        for tree in self.trees:
            check_tree(tree, self.features, allowed)

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Score codes (features, n): (n, 1)."""
        total = np.full(len(codes[0]), self.constant, dtype=np.int64)
        add_tree_scores(self.walks, codes, total)
        return total[:, np.newaxis]

    @cached_property
    def walks(self) -> tuple[Walk, ...]:
        """Return the trees as arrays, made once."""
        widths = [feature.bins for feature in self.features]
        return tuple(walk_of(tree, widths) for tree in self.trees)

    def numbers(self) -> dict[str, Any]:
        """Return the constant, bends where there are any, and the trees as `tree_to_json` writes them."""
        trees = [tree_to_json(tree) for tree in self.trees]
        return {"constant": self.constant, **bends_to_json(self.bends), "trees": trees}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        features, target, classes, link = head_from_json(body, {"trees", "constant"} | ({"bends"} & body.keys()))
        if type(body["trees"]) is not list:
            raise ModelInvalid("trees: must be a list")
        trees = tuple(tree_from_json(tree) for tree in body["trees"])
        return cls(features, target, classes, trees, body["constant"], link, bends_from_json(body))

    def used_features(self) -> list[int]:
        """Return the positions of the features that a split tests, or the first position where there is no split."""
        return sorted({split.feature for tree in self.trees for split in splits(tree)}) or [0]

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes that turn raw values into scores: `target` (N, 1)."""
        return tree_scores(self.trees, self.constant, self.features, inputs, name, target)

    @property
    def largest(self) -> int:
        """Return the size that no score can exceed: the constant and every tree's heaviest leaf together."""
        return abs(self.constant) + sum(map(heaviest, self.trees))

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model in which every split has a test of its own, as far as there are tests."""
        tests = every_test(features)
        return replace(self, features=features, trees=tuple(with_tests(tree, tests) for tree in self.trees))

    def sizes(self) -> dict[str, float]:
        """Return for each feature the sum over its splits of half the difference between a split's two sides, if every
        other test were a fair coin.
        """
        sizes: dict[str, float] = defaultdict(float)
        for tree in self.trees:
            mean_by_coins(tree, 1.0, self.features, sizes)
        return sizes

    def texts(self) -> list[str]:
        """Return every tree as lines of questions and answers."""
        return ["\n".join(tree_text(tree, self.features)) for tree in self.trees]

    def card_section(self) -> str:
        """Return what trees do, and the importances."""
        first, second = map(plain, self.classes)
        lines = [f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items()]
        words = {"count": len(self.trees), "constant": self.constant, "link": f"{self.link:g}"}
        words["bends"] = bend_words(self.bends)
        return CARD.format(**words, first=first, second=second, votes="\n".join(lines))

    def drawing_words(self) -> tuple[str, str]:
        """Return what trees ask, and how importances are counted."""
        title = f"What the trees for {self.target} “{self.classes[1]}” ask"
        return title, "How far a feature's splits move the score, if every other answer were a fair coin."

    def account(self) -> str:
        """Return the trees as text."""
        first, second = (escape(str(each)) for each in self.classes)
        trees = escape("\n\n".join(self.texts()))
        return PAGE.format(constant=self.constant, first=first, second=second, trees=trees)


def add_tree_scores(walks: Sequence[Walk], codes: Sequence[NDArray[Any]], total: NDArray[np.int64]) -> None:
    """Add to `total` (n,) what trees say of codes (features, n)."""
    for start in range(0, total.size, CHUNK):
        part = slice(start, start + CHUNK)
        codes_of_part = np.stack([column[part] for column in codes])
        for walk in walks:
            total[part] += walk.weights_of(codes_of_part)


def mean_by_coins(tree: Tree, reached: float, features: Sequence[Feature], sizes: dict[str, float]) -> float:
    """Return the mean of a tree whose tests are fair coins; adds to `sizes` what its splits move, reached as often as
    said.
    """
    if isinstance(tree, Leaf):
        return float(tree.weight)
    yes, no = (mean_by_coins(side, reached / 2, features, sizes) for side in (tree.yes, tree.no))
    sizes[features[tree.feature].name] += reached * abs(yes - no) / 2
    return (yes + no) / 2


def with_tests(tree: Tree, tests: Iterator[OneTest]) -> Tree:
    """Return the same tree with other tests."""
    return (
        Split(*next(tests), with_tests(tree.yes, tests), with_tests(tree.no, tests))
        if isinstance(tree, Split)
        else tree
    )
