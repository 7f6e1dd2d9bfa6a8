"""A released additive model of three classes or more: a number for each class and code of each feature, added up.

score(x)[k] = constant[k] + sum over features f of terms[f][code of x's f][k] + sum over pairs of theirs, of class k
(exact integers that float32 holds)

Answered as in `models.parts.answers`: the class of the highest score. It never sees a row of the training data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import ModelInvalid
from models.explain.html import table
from models.explain.markdown import plain
from models.features.features import Feature
from models.forms.ensemble import SumEnsemble
from models.onnx.nodes import EXACT
from models.parts.answers import Labels, Scores, check_head, head_from_json
from models.parts.edits import Edit
from models.parts.pairs import MAX_INTEGER, PairTerm, in_rows, is_integer, pair_from_json, term_names

Floats = NDArray[np.float64]
Numbers = tuple[int, ...]  # one for each class
HELD = EXACT - 1  # no score is larger
OPTIONAL = ("edits", "pairs", "counts")

CARD = """\
Each feature adds a number to the score of each class: which one, its value alone says. The answer is the class with the
highest score, the first of equals; the probability of a class is its share of exp({link} × score). All numbers stand in
ensemble.json.

How much each feature adds to the log odds of a class, or takes away, {how}:

| log odds | feature |
|---:|---|
{votes}"""

PAGE = """<h2>Where the scores start</h2>
<table>
<tr><th>class</th><th>logits</th></tr>
{rows}
</table>"""


@dataclass(frozen=True)
class ClassesEnsemble(SumEnsemble):
    """A frozen additive model of three classes or more."""

    word = "classes"
    noun = "An additive model of several classes"
    parts = "Terms"

    features: tuple[Feature, ...]
    target: str
    classes: Labels
    link: float  # logits per unit of score
    constant: Numbers
    terms: tuple[tuple[Numbers, ...], ...]  # per feature, one per code (missing and other included)
    edits: tuple[Edit, ...] = ()
    pairs: tuple[PairTerm, ...] = ()  # what two features add together, a number for each class and cell
    counts: tuple[tuple[int, ...], ...] = ()  # released noisy rows per code, negative at times; or none at all

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        if len(self.classes) < 3:
            raise ModelInvalid(f"classes={self.classes}: must be three or more; of two there is the additive form")
        if [len(term) for term in self.terms] != [feature.bins for feature in self.features]:
            raise ModelInvalid("terms: must be one list a feature, with the numbers of each of its codes")
        if not all(map(self._is_term, (self.constant, *(values for term in self.terms for values in term)))):
            raise ModelInvalid("constant, terms: must be one integer for each class, everywhere")
        for pair in self.pairs:
            pair.check(self.features, self._is_term)
        names = term_names(self.features, self.pairs)
        if len(set(names)) < len(names) or any(pair.errors for pair in self.pairs):
            raise ModelInvalid("pairs: each once, none called as a feature is, and without errors")
        if self.counts and [len(row) for row in self.counts] != [feature.bins for feature in self.features]:
            raise ModelInvalid("counts: one row per feature, one number per code")
        if not all(is_integer(count) for row in self.counts for count in row):
            raise ModelInvalid("counts: must be integers of at most 2^53 in size")
        if self.largest > HELD:
            raise ModelInvalid(f"terms: no score may reach {EXACT} in size; float32 would round it")
        unknown = {edit.feature for edit in self.edits} - set(names)
        if unknown:
            raise ModelInvalid(f"edits: of {sorted(unknown)}, which are neither features nor pairs")

    def _is_term(self, numbers: Any) -> bool:
        one_each = type(numbers) is tuple and len(numbers) == len(self.classes)
        return one_each and all(type(number) is int and abs(number) <= HELD for number in numbers)

    @property
    def largest(self) -> int:
        """Return the size that no score can exceed."""
        largest_terms = [
            [max(abs(number) for number in numbers) for numbers in zip(*term, strict=True)] for term in self.terms
        ]
        of_class: list[int] = [sum(map(abs, parts)) for parts in zip(self.constant, *largest_terms, strict=True)]
        return max(of_class) + sum(pair.largest for pair in self.pairs)

    def tables(self) -> tuple[list[Scores], Scores]:
        """Return the terms of each feature, (bins, classes), and the constant, (classes,)."""
        return [np.array(term, np.int64) for term in self.terms], np.array(self.constant, np.int64)

    def numbers(self) -> dict[str, Any]:
        """Return the constant, and of each feature and code a list of numbers, one for each class; edits, pairs and
        counts if there are any.
        """
        terms = [[list(numbers) for numbers in term] for term in self.terms]
        optional: dict[str, list[Any]] = {"edits": [edit.to_json() for edit in self.edits]}
        optional |= {"pairs": [pair.to_json() for pair in self.pairs], "counts": [list(row) for row in self.counts]}
        more = {name: parts for name, parts in optional.items() if parts}
        return {"constant": list(self.constant), "terms": terms, **more}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        optional = [name for name in OPTIONAL if name in body]
        features, target, classes, link = head_from_json(body, {"constant", "terms", *optional})
        if any(type(body[name]) is not list or not body[name] for name in optional):
            raise ModelInvalid(f"{', '.join(optional)}: lists, not empty, or absent")
        lists = (body["constant"], body["terms"], *body["terms"], *(part for term in body["terms"] for part in term))
        if any(type(part) is not list for part in lists):
            raise ModelInvalid("constant, terms: must be lists")
        terms = tuple(tuple(map(tuple, term)) for term in body["terms"])
        if any(type(row) is not list for row in body.get("counts", ())):
            raise ModelInvalid("counts: must be a list of lists")
        edits, pairs = (
            tuple(Edit(**edit) for edit in body.get("edits", ())),
            tuple(map(pair_from_json, body.get("pairs", ()))),
        )
        counts = tuple(map(tuple, body.get("counts", ())))
        return cls(features, target, classes, link, tuple(body["constant"]), terms, edits, pairs, counts)

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model in which no two codes of a feature have the same terms, nor two cells of a pair."""
        pairs = [pair for pair in self.pairs if pair.features[1] < len(features)]
        step = EXACT // (2 * (sum(feature.bins for feature in features) + sum(pair.table.size for pair in pairs)))
        terms = tuple(tuple((step * code,) * len(self.classes) for code in range(f.bins)) for f in features)
        full = tuple(_fullest(pair, features, step, len(self.classes)) for pair in pairs)
        counts = tuple((-MAX_INTEGER,) * feature.bins for feature in features)
        start = (0,) * len(self.classes)
        return replace(self, features=features, terms=terms, constant=start, pairs=full, counts=counts)

    def card_section(self) -> str:
        """Return what terms do, and the importances."""
        votes = "\n".join(f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items())
        how = "on average over the released, noisy counts of records" if self.counts else "at most"
        return CARD.format(link=f"{self.link:g}", votes=votes, how=how)

    def drawing_words(self) -> tuple[str, str]:
        """Return what speaks for which class."""
        legend = "A curve above zero speaks for its class, one below against it. Same scale in every panel."
        return f"What speaks for which {self.target}", legend

    def account(self) -> str:
        """Return the constants, and what people changed, in HTML."""
        rows = "\n".join(
            f"<tr><td>{escape(str(label))}</td><td>{self.link * number:+.3g}</td></tr>"
            for label, number in zip(self.classes, self.constant, strict=True)
        )
        edits = [(edit.feature, edit.at, edit.by, edit.why, edit.what) for edit in self.edits]
        changed = ["<h2>Edits</h2>", table(("feature", "when", "who", "why", "what"), edits)] if edits else []
        return "\n".join([PAGE.format(rows=rows), *changed])


def _fullest(pair: PairTerm, features: tuple[Feature, ...], step: int, classes: int) -> PairTerm:
    """Return a pair of as many groups over these features, as far as they have codes, and no two cells alike."""
    bins = [features[at].bins for at in pair.features]
    rows, columns = map(min, pair.shape, bins)
    first, second = (
        tuple(code * size // of for code in range(of)) for size, of in zip((rows, columns), bins, strict=True)
    )
    cells = [(step * at,) * classes for at in range(rows * columns)]
    counts = ((-MAX_INTEGER,) * columns,) * rows
    return PairTerm(pair.features, (first, second), in_rows(cells, columns), counts)


def round_to_classes(
    features: tuple[Feature, ...], target: str, classes: Labels, link: float, constant: Floats, terms: Sequence[Floats]
) -> ClassesEnsemble:
    """Round a model of real numbers (classes,) and (bins, classes) a feature, as finely as float32 adds them up
    exactly. `link`: logits per 1 of them.
    """
    parts = sum(np.abs(term).max(axis=0) for term in terms)
    step = max(1e-12, float((np.abs(constant) + parts).max())) / (EXACT // 2)
    numbers = [tuple(tuple(map(int, row)) for row in np.rint(term / step)) for term in terms]
    start = tuple(map(int, np.rint(constant / step)))
    return ClassesEnsemble(features, target, classes, link * step, start, tuple(numbers))
