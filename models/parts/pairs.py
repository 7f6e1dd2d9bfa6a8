"""What two features add together: one integer per cell of a grid over groups of their codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature, Feature, NumericFeature

JOINED = " & "
MAX_INTEGER = 1 << 53  # what JSON and float64 hold exactly
LISTED = 4  # values of a group named before the rest is counted
KEYS = {"features", "groups", "terms"}
MAY = {"counts", "errors"}
Row = tuple[Any, ...]


@dataclass(frozen=True)
class PairTerm:
    """`features`: the places of the two, the smaller first; `groups`: of either, the group of each of its codes, from 0
    without gaps, neighbouring bins of a number in one or in the next, and its missing value anywhere.

    `terms`, `counts` and `errors` as `models.forms.additive` has them of one feature, a row for each group of the first
    and a column for each of the second; of several classes a term is a tuple, with a number for each.
    """

    features: tuple[int, int]
    groups: tuple[tuple[int, ...], tuple[int, ...]]
    terms: tuple[tuple[Any, ...], ...]
    counts: tuple[tuple[int, ...], ...] = ()
    errors: tuple[tuple[float, ...], ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Count the groups of the first feature and of the second."""
        rows, columns = (max(groups, default=-1) + 1 for groups in self.groups)
        return rows, columns

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Return the terms of the cells, row after row: (cells, outputs)."""
        rows, columns = self.shape
        return np.array(self.terms, np.int64).reshape(rows * columns, -1)

    @property
    def largest(self) -> int:
        """Return the size of the largest term."""
        return int(np.abs(self.table).max())

    def cells(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
        """Return the cell of each row of codes (features, n): (n,)."""
        first, second = (
            np.array(groups, np.intp)[codes[at]] for at, groups in zip(self.features, self.groups, strict=True)
        )
        return np.asarray(first * self.shape[1] + second, np.intp)

    def name(self, features: Sequence[Feature]) -> str:
        """Return both features' names."""
        return pair_name(features, self.features)

    def labels(self, features: Sequence[Feature], side: int) -> list[str]:
        """Return every group of the first (0) or the second (1) in words."""
        owner, groups = features[self.features[side]], self.groups[side]
        codes = [[code for code, group in enumerate(groups) if group == at] for at in range(self.shape[side])]
        return [_label(owner, group_codes) for group_codes in codes]

    def check(
        self, features: Sequence[Feature], is_term: Callable[[Any], bool] = lambda term: is_integer(term)
    ) -> None:
        """Raise ModelInvalid unless it is a pair of these features as its class says, of terms that `is_term` takes."""
        places = (*self.features,)
        if [type(at) for at in places] != [int, int] or not 0 <= places[0] < places[1] < len(features):
            raise ModelInvalid(f"pair of {list(places)}: two places of features, ascending, below {len(features)}")
        name = self.name(features)
        for at, groups in zip(places, self.groups, strict=True):
            _check_groups(name, features[at], groups)
        rows, columns = self.shape
        kinds: tuple[tuple[str, Any, Any], ...] = (
            ("terms", self.terms, is_term),
            ("counts", self.counts, is_integer),
            ("errors", self.errors, is_error),
        )
        for key, table, fits in kinds:
            if not table and key != "terms":
                continue
            if [len(row) for row in table] != [columns] * rows or not all(
                fits(number) for row in table for number in row
            ):
                raise ModelInvalid(f"{key} of {name}: {rows} rows of {columns} numbers each, such as a feature has")

    def with_terms(self, terms: Sequence[Any], errors: Sequence[float]) -> PairTerm:
        """Return the same pair with other terms and errors of its cells, which are one row here."""
        across = self.shape[1]
        return replace(self, terms=in_rows(terms, across), errors=in_rows(errors, across) if self.errors else ())

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `pair_from_json`."""
        tables = {name: [list(row) for row in getattr(self, name)] for name in ("groups", "terms", "counts", "errors")}
        tables["terms"] = [[[*term] if isinstance(term, tuple) else term for term in row] for row in self.terms]
        return {"features": list(self.features), **{name: rows for name, rows in tables.items() if rows}}


def pair_from_json(body: Any) -> PairTerm:
    """Read what `to_json` wrote; TypeError or ModelInvalid where it is none. What its numbers mean is checked by
    `check`.
    """
    if not isinstance(body, Mapping) or not KEYS <= set(body) <= KEYS | MAY:
        raise ModelInvalid(f"pair: must hold {sorted(KEYS)}, and maybe {sorted(MAY)}")
    places, by_key = body["features"], {name: table for name, table in body.items() if name != "features"}
    if any(type(table) is not list or any(type(row) is not list for row in table) for table in by_key.values()):
        raise ModelInvalid("pair: groups, terms, counts and errors must be lists of lists")
    tables = {name: tuple(map(tuple, table)) for name, table in by_key.items()}
    if type(places) is not list or len(places) != 2 or len(tables["groups"]) != 2 or not all(tables.values()):
        raise ModelInvalid("pair: of two features, each with groups; tables are not empty, or absent")
    first, second = tables.pop("groups")
    terms = tables.pop("terms")
    tables["terms"] = tuple(tuple(tuple(term) if type(term) is list else term for term in row) for row in terms)
    return PairTerm((places[0], places[1]), (first, second), **tables)


def in_rows(cells: Sequence[Any], across: int) -> tuple[Row, ...]:
    """Return one row of cells as rows of so many columns."""
    return tuple(tuple(cells[at : at + across]) for at in range(0, len(cells), across))


def term_names(features: Sequence[Feature], pairs: Sequence[PairTerm]) -> tuple[str, ...]:
    """Return the names of what is added up: the features, and then the pairs."""
    return (*(feature.name for feature in features), *(pair.name(features) for pair in pairs))


def pair_name(features: Sequence[Feature], places: tuple[int, int]) -> str:
    """Return how the pair of the features at these places is called."""
    return JOINED.join(features[at].name for at in places)


def _check_groups(name: str, feature: Feature, groups: Sequence[int]) -> None:
    are_integers = all(type(group) is int for group in groups)
    if not are_integers or len(groups) != feature.bins or sorted(set(groups)) != list(range(max(groups) + 1)):
        raise ModelInvalid(
            f"groups of {name}: {feature.name} has {feature.bins} codes, in groups 0, 1, .. without gaps"
        )
    inner = groups[:-1]
    if isinstance(feature, NumericFeature) and any(after - at not in (0, 1) for at, after in pairwise(inner)):
        raise ModelInvalid(f"groups of {name}: bins of {feature.name} that lie side by side, in groups that do")


def _label(feature: Feature, codes: Sequence[int]) -> str:
    """Return a group in words."""
    if isinstance(feature, NumericFeature):
        inner = [code for code in codes if code != feature.missing]
        words = [_interval(feature, inner[0], inner[-1])] if inner else []
        return " or ".join([*words, *(["missing"] if len(inner) < len(codes) else [])])
    names = [feature.label(code) for code in codes]
    if isinstance(feature, CategoricalFeature) and len(names) > LISTED:
        return f"{', '.join(names[: LISTED - 1])} and {len(names) - LISTED + 1} more"
    return ", ".join(names)


def _interval(feature: NumericFeature, first: int, last: int) -> str:
    low = feature.text(feature.edges[first - 1]) if first else ""
    high = feature.text(feature.edges[last]) if last < len(feature.edges) else ""
    if not low and not high:
        return f"any {feature.noun}"
    if not low:
        return f"up to {high}"
    return f"above {low}, up to {high}" if high else f"above {low}"


def is_integer(value: object) -> bool:
    """Return whether it is a whole number that JSON and float64 hold exactly."""
    return type(value) is int and abs(value) <= MAX_INTEGER


def is_error(value: object) -> bool:
    """Return whether it is a standard error."""
    return type(value) is float and isfinite(value) and value >= 0
