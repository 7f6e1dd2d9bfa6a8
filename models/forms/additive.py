"""A released additive model: one integer per code of each feature, added up. It never sees a row of the training data.

score(x) = constant + sum over features f of terms[f][code of x's f] + sum over pairs of theirs     (exact integers)

Two classes: p(classes[1]) = 1 / (1 + exp(-link score)), answered as in `models.parts.answers`: log-odds may bend in the
score, and what a feature adds is part of the score, before it bends. A number: value = middle of target_range + link
score, clipped to that public range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError, ModelInvalid
from models.explain.markdown import plain
from models.explain.page import shape_sections, shapes_page, title
from models.explain.shapes import BAND
from models.features.features import Feature, RawColumns, number_text
from models.forms.ensemble import SumEnsemble
from models.onnx.contributions import contributions_of, great_scores
from models.onnx.nodes import EXACT, Graph, Inputs, Namer
from models.onnx.sums import sum_scores
from models.parts.answers import (
    Bends,
    Labels,
    Range,
    Scores,
    before,
    bend_words,
    bends_from_json,
    bends_to_json,
    check_bends,
    check_head,
    head_from_json,
    middle,
)
from models.parts.edits import Edit
from models.parts.pairs import MAX_INTEGER, PairTerm, is_error, is_integer, pair_from_json, term_names

GREAT = 1 << 32  # no term that is released is larger
INTEGER = "must be an integer of at most 2^53 in size"
OPTIONAL = ("target_range", "counts", "errors", "edits", "pairs", "bends")

CARD_OF_TWO = """\
Each feature adds a number to the score, which starts at {constant}: which one, its value alone says. Above zero the
answer is "{second}", otherwise "{first}". The probability of "{second}" is
1 / (1 + exp(-{link} × score)){bends}. All numbers stand in ensemble.json.{errors}

How much each feature adds to the log odds of "{second}"{before}, or takes away, {how}:

| log odds | feature |
|---:|---|
{votes}"""

CARD_OF_A_NUMBER = """\
Each feature adds a number to the score, which starts at {constant}: which one, its value alone says. The answer is
{middle} + {link} × score. All numbers stand in ensemble.json.{errors}

**Within {low} to {high}.** In training, targets outside this public range were taken for its nearer end, and no answer
leaves the range.

How much each feature adds to the answer, or takes away, {how}:

| {target} | feature |
|---:|---|
{votes}"""

ERRORS = """ So does the standard error that the noise of
differential privacy gives each of them; how sure it is of the people behind the data, that does not say."""


@dataclass(frozen=True)
class AdditiveEnsemble(SumEnsemble):
    """A frozen additive model of two classes, or of a number (`classes` is then empty, and `target_range` is given)."""

    word = "additive"
    noun = "An additive model"
    parts = "Terms"

    features: tuple[Feature, ...]
    target: str
    classes: Labels
    target_range: Range | None = field()  # public, of a number; no default, whatever the base class says
    link: float  # two classes: logits per unit of score; a number: target units per unit of score
    constant: int
    terms: tuple[tuple[int, ...], ...]  # per feature, one per code (missing and other included)
    counts: tuple[tuple[int, ...], ...] = ()  # released noisy rows per code, negative at times; or none at all
    errors: tuple[tuple[float, ...], ...] = ()  # standard error of each term from the noise alone, in score units
    edits: tuple[Edit, ...] = ()
    pairs: tuple[PairTerm, ...] = ()  # what two features add together, beside what each adds by itself
    bends: Bends = ()

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link, self.target_range)
        if len(self.classes) not in (0, 2):
            raise ModelInvalid(f"classes={self.classes}: an additive model tells two classes apart, or gives a number")
        check_bends(self.bends)
        if self.bends and not self.classes:
            raise ModelInvalid(f"bends={self.bends}: of log-odds, and a number has none")
        _check_table("terms", self.features, self.terms, is_integer, INTEGER)
        if self.counts:
            _check_table("counts", self.features, self.counts, is_integer, INTEGER)
        if self.errors:
            _check_table("errors", self.features, self.errors, is_error, "must be a number >= 0 and finite")
        for pair in self.pairs:
            pair.check(self.features)
        names = term_names(self.features, self.pairs)
        if len(set(names)) < len(names):
            raise ModelInvalid("pairs: each once, and none called as a feature is")
        if not is_integer(self.constant) or self.largest > MAX_INTEGER:
            raise ModelInvalid(f"constant={self.constant!r}: an integer, and no score above {MAX_INTEGER} in size")
        unknown = {edit.feature for edit in self.edits} - set(names)
        if unknown:
            raise ModelInvalid(f"edits: of {sorted(unknown)}, which are neither features nor pairs")

    @property
    def largest(self) -> int:
        """Return the size that no score can exceed."""
        of_features = sum(max(map(abs, term)) for term in self.terms)
        return abs(self.constant) + of_features + sum(pair.largest for pair in self.pairs)

    def tables(self) -> tuple[list[Scores], Scores]:
        """Return the terms of each feature, (bins, 1), and the constant, (1,)."""
        return [np.array(term, np.int64)[:, np.newaxis] for term in self.terms], np.array([self.constant], np.int64)

    def values(self, columns: RawColumns) -> NDArray[np.float64]:
        """Return the values (n,), within `target_range`. InputError for classes."""
        return self.values_of(self.scores(columns))

    def values_of(self, scores: Scores) -> NDArray[np.float64]:
        """Return the values (n,) that scores (n, 1) mean. InputError for classes."""
        if self.target_range is None:
            raise InputError(f"model of {self.target}: answers one of {list(self.classes)}, not a number")
        values: NDArray[np.float64] = np.clip(middle(self.target_range) + self.link * scores[:, 0], *self.target_range)
        return values

    def predict(self, columns: RawColumns) -> NDArray[Any]:
        """Return labels (n,), or values (n,) of a number."""
        return super().predict(columns) if self.classes else self.values(columns)

    def to_json(self) -> dict[str, Any]:
        """Return `classes` or `target_range`, whichever holds; counts, errors and edits only where there are any."""
        return {name: value for name, value in super().to_json().items() if value or name not in (*OPTIONAL, "classes")}

    def numbers(self) -> dict[str, Any]:
        """Return the constant, and lists of lists, one number per feature and code."""
        return {
            "constant": self.constant,
            "terms": _lists(self.terms),
            "counts": _lists(self.counts),
            "errors": _lists(self.errors),
            "edits": [edit.to_json() for edit in self.edits],
            "pairs": [pair.to_json() for pair in self.pairs],
            "target_range": None if self.target_range is None else list(self.target_range),
            **bends_to_json(self.bends),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        optional = [name for name in OPTIONAL if name in body]
        features, target, classes, link = head_from_json(body, {"constant", "terms", *optional})
        if any(type(body[name]) is not list or not body[name] for name in optional):
            raise ModelInvalid(f"{', '.join(optional)}: lists, not empty, or absent")
        low_high = tuple(body["target_range"]) if "target_range" in body else None
        tables = {name: body[name] for name in ("terms", "counts", "errors") if name in body}
        for name, table in tables.items():
            if type(table) is not list or any(type(row) is not list for row in table):
                raise ModelInvalid(f"{name}: must be a list of lists")
            tables[name] = tuple(map(tuple, table))
        edits = tuple(Edit(**edit) for edit in body.get("edits", ()))
        tables |= {"edits": edits, "pairs": tuple(map(pair_from_json, body.get("pairs", ())))}
        tables["bends"] = bends_from_json(body)
        return cls(features, target, classes, low_high, link, constant=body["constant"], **tables)

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes of any sum; where float32 does not hold every score, round once: never across 0."""
        return (sum_scores if self.largest < EXACT else great_scores)(self, inputs, name, target)

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model in which no two codes of a feature have the same term, and numbers have many digits."""
        terms = tuple(tuple(range(GREAT, GREAT + feature.bins)) for feature in features)
        counts = tuple((-MAX_INTEGER,) * feature.bins for feature in features)
        errors = tuple((1e9 / 3,) * feature.bins for feature in features)
        pairs = tuple(_fullest(pair, features) for pair in self.pairs if pair.features[1] < len(features))
        return replace(self, features=features, terms=terms, counts=counts, errors=errors, pairs=pairs)

    def contribution_graph(self, inputs: Inputs, name: Namer, target: str) -> tuple[Graph, float] | None:
        """Return what each feature adds, centred, beside the scores."""
        return contributions_of(self, inputs, name, target)

    def card_section(self) -> str:
        """Return what terms do, and the importances."""
        words = {
            "constant": self.constant,
            "link": f"{self.link:g}",
            "errors": ERRORS if self.errors else "",
            "how": "on average over the released, noisy counts of records" if self.counts else "at most",
            "votes": "\n".join(f"| {size:.4g} | {plain(name)} |" for name, size in self.importances().items()),
        }
        if self.target_range is None:
            first, second = map(plain, self.classes)
            words |= {"before": before(self.bends), "bends": bend_words(self.bends)}
            return CARD_OF_TWO.format(**words, first=first, second=second)
        low, high = map(number_text, self.target_range)
        centre = number_text(middle(self.target_range))
        return CARD_OF_A_NUMBER.format(**words, middle=centre, low=low, high=high, target=plain(self.target))

    def drawing_words(self) -> tuple[str, str]:
        """Return what adds up to what, and what the bands are."""
        return title(self), BAND

    def page(self, claim: str) -> str:
        """Return every shape with its numbers, to be pointed at."""
        return shapes_page(self, claim)

    def sections(self) -> list[str]:
        """Return the shapes of the page."""
        return shape_sections(self)


def _fullest(pair: PairTerm, features: tuple[Feature, ...]) -> PairTerm:
    bins = [features[at].bins for at in pair.features]
    rows, columns = map(min, pair.shape, bins)
    first, second = (
        tuple(code * size // of for code in range(of)) for size, of in zip((rows, columns), bins, strict=True)
    )
    terms = tuple(tuple(range(GREAT + at, GREAT + at + columns)) for at in range(0, rows * columns, columns))
    full = (-MAX_INTEGER,) * columns, (1e9 / 3,) * columns
    return PairTerm(pair.features, (first, second), terms, full[:1] * rows, full[1:] * rows)


def _lists(table: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(row) for row in table]


def _check_table(
    name: str,
    features: Sequence[Feature],
    table: Sequence[Sequence[Any]],
    fits: Callable[[object], bool],
    rule: str,
) -> None:
    bins = [feature.bins for feature in features]
    if [len(row) for row in table] != bins:
        raise ModelInvalid(f"{name}: one row per feature, one number per code: {bins}")
    for feature, row in zip(features, table, strict=True):
        wrong = [value for value in row if not fits(value)]
        if wrong:
            raise ModelInvalid(f"{name} of {feature.name}={wrong[0]!r}: {rule}")
