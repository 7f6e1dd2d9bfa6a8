"""A released majority of lines: weighted votes of signs of sums over features. It never sees a row of training data.

score(x) = sum over lines of weight * (+1 if the line's sum is above 0 on x else -1)     (exact integers)

Two classes, answered as in `models.answers`. Signs make it no sum over features: it has importances, and no shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import erf, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from accountant.errors import ModelInvalid
from models.answers import ClassLabel, Scores, check_head, head_from_json
from models.explain.markdown import plain
from models.explain.vega import Poster
from models.features import Feature
from models.forms.ensemble import Ensemble
from models.lines import LARGEST, Line, check_line, line_from_json
from models.onnx.nodes import Branch, Graph, Inputs, Namer, check_exact, regressor
from models.onnx.sums import sums

SHOWN = 6  # features of a line, in words

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
    """A frozen classifier of two classes. Scores are exact integers."""

    word = "lines"
    noun = "A majority of lines"
    parts = "Lines"
    together = (
        "Its lines add up numbers of all features, and vote by the sign of the sum. How far each feature moves the "
        "score on the average, if all values of all features were equally likely:"
    )

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    lines: tuple[Line, ...]
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        if len(self.classes) != 2:
            raise ModelInvalid(f"classes={self.classes}: lines tell two classes apart")
        for line in self.lines:
            check_line(line, self.features)

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Codes (features, n) -> scores (n, 1)."""
        total = np.zeros(len(codes[0]), np.int64)
        for line in self.lines:
            total += line.weight * line.sides(codes)
        return total[:, np.newaxis]

    def numbers(self) -> dict[str, Any]:
        """The lines, each with its weight, its constant and its terms."""
        return {"lines": [line.to_json() for line in self.lines]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        features, target, classes, link = head_from_json(body, {"lines"})
        if type(body["lines"]) is not list:
            raise ModelInvalid("lines: must be a list")
        return cls(features, target, classes, tuple(line_from_json(line, features) for line in body["lines"]), link)

    def used_features(self) -> list[int]:
        """Positions of the features that move a sum, or the first one."""
        return [at for at in range(len(self.features)) if any(any(line.terms[at]) for line in self.lines)] or [0]

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Raw values -> `target` (N, 1): the sums of all lines at once, then a tree of one question for each."""
        if not self.lines:
            raise ModelInvalid("lines: a model that is exported has one at least")
        check_exact(sum(line.weight for line in self.lines))
        summed, precise = name("sums"), name("sums_double")
        tables = [
            np.array([line.terms[at] for line in self.lines], np.int64).T.copy() for at in range(len(self.features))
        ]
        constants = np.array([line.constant for line in self.lines], np.int64)
        asked = [
            Branch(at, "BRANCH_GT", 0.0, (float(line.weight),), (-float(line.weight),))
            for at, line in enumerate(self.lines)
        ]
        votes = (
            helper.make_node("Cast", [summed], [precise], to=TensorProto.DOUBLE),
            regressor(asked, precise, target),
        )
        return sums(self.features, tables, constants, inputs, name, summed) + Graph(votes)

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """No two codes of a feature with the same term."""
        step = LARGEST // (2 * sum(feature.bins for feature in features))
        terms = tuple(tuple(step * code for code in range(feature.bins)) for feature in features)
        return replace(self, features=features, lines=tuple(replace(line, terms=terms) for line in self.lines))

    def sizes(self) -> dict[str, float]:
        """How far knowing a feature's code moves the score on the average, if all codes of all features were equally
        likely, and the sum over the other features normal."""
        found: dict[str, float] = defaultdict(float)
        for line in self.lines:
            means = [float(np.mean(term)) for term in line.terms]
            spreads = [float(np.var(term)) for term in line.terms]
            for feature, term, mean, spread in zip(self.features, line.terms, means, spreads, strict=True):
                rest, width = line.constant + sum(means) - mean, sqrt(2 * max(sum(spreads) - spread, 1e-9))
                sides = np.array([erf((rest + value) / width) for value in term])
                found[feature.name] += line.weight * float(np.abs(sides - sides.mean()).mean())
        return {name: size if size > 1e-9 else 0.0 for name, size in found.items()}

    def texts(self) -> list[str]:
        """Every line in words: its weight, and how far its heaviest features can move its sum."""
        said = []
        for line in self.lines:
            ranges = [(max(term) - min(term), f.name) for f, term in zip(self.features, line.terms, strict=True)]
            heavy = ", ".join(f"{name} {size}" for size, name in sorted(ranges, reverse=True)[:SHOWN] if size)
            said.append(f"weight {line.weight}: {line.constant} and at most {heavy or 'nothing'}")
        return said

    def card_section(self) -> str:
        """What lines do, and the importances."""
        first, second = map(plain, self.classes)
        votes = "\n".join(f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items())
        return CARD.format(count=len(self.lines), link=f"{self.link:g}", first=first, second=second, votes=votes)

    def poster(self) -> Poster:
        """One panel of importances."""
        legend = "How far a feature moves the score, if all values of all features were equally likely."
        return replace(super().poster(), title=f"What tells {self.target} “{self.classes[1]}”", legend=legend)

    def account(self) -> str:
        """The lines as text."""
        first, second = (escape(str(each)) for each in self.classes)
        return PAGE.format(first=first, second=second, lines=escape("\n".join(self.texts())))
