"""A released majority of lines: weighted votes of signs of sums over features. It never sees a row of training data.

Two classes:     score(x) = sum over lines of weight * (+1 if the line's sum is above 0 on x else -1)
K > 2 classes:   score(x)[k] = sum over choices of weight * (1 if class k has the choice's largest sum on x else 0)

Exact integers, answered as in `models.parts.answers`. Signs make it no sum over features: it has importances and no
shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import erf, sqrt
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import later
from dpserve_verify.errors import ModelInvalid
from models.explain.markdown import plain
from models.features.features import Feature
from models.forms.ensemble import Ensemble
from models.onnx.nodes import ML, Branch, Graph, Inputs, Namer, Walk, check_exact, regressor, tensor
from models.onnx.sums import balanced, halves, sums
from models.parts.answers import ClassLabel, Scores, check_head, head_from_json
from models.parts.lines import LARGEST, Choice, Line, check_line, line_from_json

if TYPE_CHECKING:
    import onnx
    from onnx import helper
else:
    onnx = later("onnx")
    helper = later("onnx.helper")

SHOWN = 6  # features of a line, in words

CARD_OF_MANY = """\
Each of {count} choices adds up a number for each class and feature's value, and votes for the class with the largest
sum, the first of equals. The votes are added up with the choices' weights, class by class: the answer is the class with
the most. The probability of a class is its share of exp({link} × votes). All numbers stand in ensemble.json.

How far a feature can move the sums of a choice, in shares of all features' together, weighed:

| share | feature |
|---:|---|
{votes}"""

PAGE_OF_MANY = """<h2>The choices</h2>
<p>Each choice adds up a number for each class and feature's value, and votes with its weight for the class with the
largest sum. Named is how far the heaviest features can move what tells two classes apart.</p>
<pre>
{lines}
</pre>"""

CARD = """\
Each of {count} lines adds up a number for each feature's value, and votes: above zero for "{second}", otherwise for
"{first}". The votes are added up with the lines' weights; above zero the answer is "{second}". The probability of
"{second}" is 1 / (1 + exp(-{link} × score)). All numbers stand in ensemble.json.

How far a feature moves the score, on the average, if all values of all features were equally likely:

| score | feature |
|---:|---|
{votes}"""

PAGE = """<h2>The lines</h2>
<p>Each line adds up a number for each feature's value, and votes with its weight: above zero for {second}, otherwise
for {first}. Named is how far the heaviest features can move its sum.</p>
<pre>
{lines}
</pre>"""


@dataclass(frozen=True)
class LineEnsemble(Ensemble):
    """A frozen classifier: lines of two classes, choices of more. Scores are exact integers."""

    word = "lines"
    noun = "A majority of lines"
    parts = "Lines"
    together = (
        "Its lines add up numbers of all features, and vote by the sums. How far each feature moves the score, if all "
        "values of all features were equally likely:"
    )

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    lines: tuple[Line | Choice, ...]
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        for line in self.lines:
            check_line(line, self.features, len(self.classes))

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Score codes (features, n): (n, outputs)."""
        total = np.zeros((len(codes[0]), self.outputs), np.int64)
        for line in self.lines:
            if isinstance(line, Line):
                total[:, 0] += line.weight * line.sides(codes)
            else:
                total[np.arange(len(total)), line.chosen_classes(codes)] += line.weight
        return total

    def numbers(self) -> dict[str, Any]:
        """Return the lines, each with its weight, its constant and its terms."""
        return {"lines": [line.to_json() for line in self.lines]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        features, target, classes, link = head_from_json(body, {"lines"})
        if type(body["lines"]) is not list:
            raise ModelInvalid("lines: must be a list")
        lines = tuple(line_from_json(line, features, len(classes)) for line in body["lines"])
        return cls(features, target, classes, lines, link)

    @property
    def _sums(self) -> list[Line]:
        """Return every sum that the model computes: one for each line, and one per class for each choice."""
        return [part for line in self.lines for part in ([line] if isinstance(line, Line) else line.lines)]

    def used_features(self) -> list[int]:
        """Return the positions of the features that move a sum, or the first position where none does."""
        return [at for at in range(len(self.features)) if any(any(line.terms[at]) for line in self._sums)] or [0]

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes that turn raw values into scores, `target` (N, outputs): all sums at once, then a tree for
        each line, with one question; or a tree for each choice, over the place of its largest sum.
        """
        if not self.lines:
            raise ModelInvalid("lines: a model that is exported has one at least")
        check_exact(sum(line.weight for line in self.lines))
        every_sum, summed, precise = self._sums, name("sums"), name("sums_double")
        tables = [
            np.array([line.terms[at] for line in every_sum], np.int64).T.copy() for at in range(len(self.features))
        ]
        constants = np.array([line.constant for line in every_sum], np.int64)
        added = sums(self.features, tables, constants, inputs, name, summed)
        if self.outputs == 1:
            cast = helper.make_node("Cast", [summed], [precise], to=onnx.TensorProto.DOUBLE)
            walks: list[Walk] = [
                Branch(at, "BRANCH_GT", 0.0, (float(line.weight),), (-float(line.weight),))
                for at, line in enumerate(every_sum)
            ]
            return added + Graph((cast, regressor(walks, precise, target)))
        picked, walks = self._places(summed, precise, name), []
        for at, line in enumerate(self.lines):
            leaves = tuple(tuple(map(float, row)) for row in line.weight * np.eye(self.outputs))
            walks.append(balanced(at, halves(self.outputs), leaves))
        return added + picked + Graph((regressor(walks, precise, target, outputs=self.outputs),))

    def _places(self, summed: str, target: str, name: Namer) -> Graph:
        """Build the nodes that turn sums (N, choices * classes) into `target` (N, choices), double: the place of each
        choice's largest sum.
        """
        choice, at, place, joined = name("choice"), name("columns"), name("place"), name("places")
        nodes, constants = [], []
        for n in range(len(self.lines)):
            columns = np.arange(n * self.outputs, (n + 1) * self.outputs)
            constants.append(tensor(columns, f"{at}_{n}"))
            nodes.append(helper.make_node("ArrayFeatureExtractor", [summed, f"{at}_{n}"], [f"{choice}_{n}"], domain=ML))
            nodes.append(helper.make_node("ArgMax", [f"{choice}_{n}"], [f"{place}_{n}"], axis=1, keepdims=1))
        nodes.append(helper.make_node("Concat", [f"{place}_{n}" for n in range(len(self.lines))], [joined], axis=1))
        nodes.append(helper.make_node("Cast", [joined], [target], to=onnx.TensorProto.DOUBLE))
        return Graph(tuple(nodes), tuple(constants))

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model in which no two codes of a feature have the same term."""
        step = LARGEST // (2 * sum(feature.bins for feature in features))
        terms = tuple(tuple(step * code for code in range(feature.bins)) for feature in features)
        lines = tuple(
            replace(line, terms=terms) if isinstance(line, Line) else replace(line, terms=(terms,) * self.outputs)
            for line in self.lines
        )
        return replace(self, features=features, lines=lines)

    def sizes(self) -> dict[str, float]:
        """Return, for two classes, how far knowing a feature's code moves the score on the average, if all codes of all
        features were equally likely, and the sum over the other features normal. Of more, how far it can move what
        tells two classes apart, of all features' moves together, added up over choices in their weights.
        """
        sizes: dict[str, float] = defaultdict(float)
        for line in self.lines:
            if isinstance(line, Choice):
                moved = _moves(line)
                for feature, move in zip(self.features, moved, strict=True):
                    sizes[feature.name] += line.weight * move / max(1, sum(moved))
                continue
            means = [float(np.mean(term)) for term in line.terms]
            spreads = [float(np.var(term)) for term in line.terms]
            for feature, term, mean, spread in zip(self.features, line.terms, means, spreads, strict=True):
                rest, width = line.constant + sum(means) - mean, sqrt(2 * max(sum(spreads) - spread, 1e-9))
                sides = np.array([erf((rest + value) / width) for value in term])
                sizes[feature.name] += line.weight * float(np.abs(sides - sides.mean()).mean())
        return {name: size if size > 1e-9 else 0.0 for name, size in sizes.items()}

    def texts(self) -> list[str]:
        """Return every line in words: its weight, and how far its heaviest features can move its sum."""
        texts = []
        for line in self.lines:
            moves = [max(term) - min(term) for term in line.terms] if isinstance(line, Line) else _moves(line)
            ranges = zip(moves, (feature.name for feature in self.features), strict=True)
            heavy = ", ".join(f"{name} {size}" for size, name in sorted(ranges, reverse=True)[:SHOWN] if size)
            start = f"{line.constant} and " if isinstance(line, Line) else ""
            texts.append(f"weight {line.weight}: {start}at most {heavy or 'nothing'}")
        return texts

    def card_section(self) -> str:
        """Return what lines do, and the importances."""
        votes = "\n".join(f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items())
        words = {"count": len(self.lines), "link": f"{self.link:g}", "votes": votes}
        if self.outputs > 1:
            return CARD_OF_MANY.format(**words)
        first, second = map(plain, self.classes)
        return CARD.format(**words, first=first, second=second)

    def drawing_words(self) -> tuple[str, str]:
        """Return what lines tell, and how importances are counted."""
        if self.outputs > 1:
            legend = "How far a feature can move the sums that are voted by, in shares, times the votes."
            return f"What tells which {self.target}", legend
        legend = "How far a feature moves the score, if all values of all features were equally likely."
        return f"What tells {self.target} “{self.classes[1]}”", legend

    def account(self) -> str:
        """Return the lines as text."""
        lines = escape("\n".join(self.texts()))
        if self.outputs > 1:
            return PAGE_OF_MANY.format(lines=lines)
        first, second = (escape(str(label)) for label in self.classes)
        return PAGE.format(first=first, second=second, lines=lines)


def _moves(choice: Choice) -> list[int]:
    """Return how far each feature can move the difference of two classes' sums, the two for which that is farthest."""
    moves = []
    for terms in zip(*choice.terms, strict=True):  # of one feature, (classes, bins)
        table = np.array(terms)
        differences = table[:, np.newaxis] - table[np.newaxis]
        moves.append(int((differences.max(axis=2) - differences.min(axis=2)).max()))
    return moves
