"""A released additive model: one integer per code of each feature, added up. It never sees a row of the training data.

score(x) = constant + sum over features f of terms[f][code of x's f]     (exact integers)

Two classes: p(classes[1]) = 1 / (1 + exp(-link score)), answered as in `models.answers`. A number:
value = middle of target_range + link score, clipped to that public range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.canonical import decode_canonical
from accountant.errors import InputError, ModelInvalid
from models.answers import Labels, Scores, check_head, head_from_json, labels_of, probabilities_of
from models.features import Columns, Feature, encode_columns

MAX_INTEGER = 1 << 53  # of a term, a count or the largest score: what JSON and float64 hold exactly
MAX_EDIT = 1 << 20  # bytes of what one edit did
OPTIONAL = ("target_range", "counts", "errors", "edits")


@dataclass(frozen=True)
class Edit:
    """What a person changed after the release. `at`: ISO time with its zone; `feature`: a feature's name; `what`: a
    JSON object as canonical text (`accountant.canonical`: sorted keys, no floats)."""

    at: str
    by: str
    why: str
    feature: str
    what: str

    def __post_init__(self) -> None:
        for field in fields(self):
            text = getattr(self, field.name)
            if type(text) is not str or not text:
                raise ModelInvalid(f"edit.{field.name}={text!r}: must be a text, not empty")
        try:
            zone = datetime.fromisoformat(self.at).tzinfo
            what = decode_canonical(self.what.encode(), MAX_EDIT)
        except ValueError as error:  # an unreadable time, or a lone surrogate
            raise ModelInvalid(f"edit: {error}") from error
        except InputError as error:
            raise ModelInvalid(f"edit.what: {error.message}") from error
        if zone is None or not isinstance(what, dict):
            raise ModelInvalid(f"edit: at={self.at!r} must say its zone, what must be a JSON object")

    def to_json(self) -> dict[str, str]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class AdditiveEnsemble:
    """A frozen additive model of two classes, or of a number (`classes` is then empty, and `target_range` is given)."""

    features: tuple[Feature, ...]
    target: str
    classes: Labels
    target_range: tuple[float, float] | None  # public, of a number
    link: float  # two classes: logits per unit of score; a number: target units per unit of score
    constant: int
    terms: tuple[tuple[int, ...], ...]  # per feature, one per code (missing and other included)
    counts: tuple[tuple[int, ...], ...] = ()  # released noisy rows per code, negative at times; or none at all
    errors: tuple[tuple[float, ...], ...] = ()  # standard error of each term from the noise alone, in score units
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link, self.target_range)
        if len(self.classes) not in (0, 2):
            raise ModelInvalid(f"classes={self.classes}: an additive model tells two classes apart, or gives a number")
        _check_table("terms", self.features, self.terms, _integer)
        if self.counts:
            _check_table("counts", self.features, self.counts, _integer)
        if self.errors:
            _check_table("errors", self.features, self.errors, _error)
        if not _integer(self.constant) or self.largest > MAX_INTEGER:
            raise ModelInvalid(f"constant={self.constant!r}: an integer, and no score above {MAX_INTEGER} in size")
        unknown = {edit.feature for edit in self.edits} - {feature.name for feature in self.features}
        if unknown:
            raise ModelInvalid(f"edits: of {sorted(unknown)}, which are no features")

    @property
    def outputs(self) -> int:
        return 1

    @property
    def largest(self) -> int:
        """The size that no score can exceed."""
        return abs(self.constant) + sum(max(map(abs, term)) for term in self.terms)

    def tables(self) -> tuple[list[Scores], Scores]:
        """Terms (bins, 1) per feature, and the constant (1,)."""
        return [np.array(term, np.int64)[:, np.newaxis] for term in self.terms], np.array([self.constant], np.int64)

    def scores(self, columns: Columns) -> Scores:
        """Raw columns -> scores (n, 1)."""
        return self.coded_scores(encode_columns(self.features, columns))

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Codes (features, n) -> scores (n, 1)."""
        total = np.full(len(codes[0]), self.constant, np.int64)
        for term, code in zip(self.terms, codes, strict=True):
            total += np.array(term, np.int64)[code]
        return total[:, np.newaxis]

    def probabilities(self, columns: Columns) -> NDArray[np.float64]:
        """(n, 2): p(class 0), p(class 1). InputError for a number."""
        if not self.classes:
            raise InputError(f"model of {self.target}: answers a number, so it has no probabilities")
        return probabilities_of(self.scores(columns), self.link)

    def values(self, columns: Columns) -> NDArray[np.float64]:
        """(n,), within `target_range`. InputError for classes."""
        return self.values_of(self.scores(columns))

    def values_of(self, scores: Scores) -> NDArray[np.float64]:
        """Scores (n, 1) -> values (n,). InputError for classes."""
        if self.target_range is None:
            raise InputError(f"model of {self.target}: answers one of {list(self.classes)}, not a number")
        found: NDArray[np.float64] = np.clip(middle(self.target_range) + self.link * scores[:, 0], *self.target_range)
        return found

    def predict(self, columns: Columns) -> NDArray[Any]:
        """Labels (n,), or values (n,) of a number."""
        return labels_of(self.classes, self.scores(columns)) if self.classes else self.values(columns)

    def to_json(self) -> dict[str, Any]:
        """`classes` or `target_range`, whichever holds; counts, errors and edits only where there are any."""
        found = {
            "type": "additive",
            "target": self.target,
            "link": self.link,
            "features": [feature.to_json() for feature in self.features],
            "constant": self.constant,
            "terms": _lists(self.terms),
            "counts": _lists(self.counts),
            "errors": _lists(self.errors),
            "edits": [edit.to_json() for edit in self.edits],
            "classes": list(self.classes),
            "target_range": None if self.target_range is None else list(self.target_range),
        }
        return {name: value for name, value in found.items() if value or name not in (*OPTIONAL, "classes")}


def middle(target_range: tuple[float, float]) -> float:
    """What a score of 0 means for a number. Halves first: the sum of two great numbers may be infinite."""
    low, high = target_range
    return low / 2 + high / 2


def additive_from_json(body: Mapping[str, Any]) -> AdditiveEnsemble:
    """Inverse of `AdditiveEnsemble.to_json`; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
    given = [name for name in OPTIONAL if name in body]
    features, target, classes, link = head_from_json(body, {"constant", "terms", *given})
    if any(type(body[name]) is not list or not body[name] for name in given):
        raise ModelInvalid(f"{', '.join(given)}: lists, not empty, or absent")
    low_high = tuple(body["target_range"]) if "target_range" in body else None
    tables = {name: _tuples(name, body[name]) for name in ("terms", "counts", "errors") if name in body}
    edits = tuple(Edit(**edit) for edit in body.get("edits", ()))
    return AdditiveEnsemble(features, target, classes, low_high, link, constant=body["constant"], edits=edits, **tables)


def _tuples(name: str, table: Any) -> Any:
    if type(table) is not list or any(type(row) is not list for row in table):
        raise ModelInvalid(f"{name}: must be a list of lists")
    return tuple(map(tuple, table))


def _lists(table: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(row) for row in table]


def _check_table(name: str, features: Sequence[Feature], table: Sequence[Sequence[Any]], fits: Any) -> None:
    bins = [feature.bins for feature in features]
    if [len(row) for row in table] != bins:
        raise ModelInvalid(f"{name}: one row per feature, one number per code: {bins}")
    for feature, row in zip(features, table, strict=True):
        wrong = [value for value in row if not fits(value)]
        if wrong:
            raise ModelInvalid(f"{name} of {feature.name}={wrong[0]!r}: {fits.__doc__}")


def _integer(value: object) -> bool:
    """must be an integer of at most 2^53 in size"""
    return type(value) is int and abs(value) <= MAX_INTEGER


def _error(value: object) -> bool:
    """must be a number >= 0 and finite"""
    return type(value) is float and isfinite(value) and 0 <= value < inf
