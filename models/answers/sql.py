"""Reads `select` of counts, sums and means of one table, by groups and conditions that the schema makes public.

A closed list of syntax: whatever is not on it is refused, with what may be written instead.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpserve_verify.errors import InputError
from models.answers.question import Condition, Output, Question
from models.features.features import CalendarFeature, CategoricalFeature, NumericFeature
from models.profile.columns import Column

MOST_CHARACTERS, MOST_GROUPED, MOST_CONDITIONS, MOST_FIGURES = 1000, 8, 64, 32
FORM = (
    "write: select GROUPS, count(*), count(COLUMN), sum(COLUMN), avg(COLUMN) from DATASET where CONDITION and ... "
    "group by GROUPS"
)
CLAUSES = {"expressions", "from_", "from", "where", "group"}
FIGURES: Mapping[type[exp.Expression], Any] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg"}
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
Edges = Callable[[Column], Sequence[float]]
"""Of a number's column, the ascending ends of the public cells by which its rows are known."""


def read_question(text: str, dataset: str, columns: Mapping[str, Column], edges: Edges) -> Question:
    """Read a query of `dataset`. InputError where it asks for anything but counts, sums and means of its columns."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"select: has {len(text)} characters, and may have {MOST_CHARACTERS}")
    try:
        roots = sqlglot.parse(text)
    except (SqlglotError, RecursionError):
        raise InputError(f"select: is no query that can be read; {FORM}") from None
    if len(roots) != 1 or not isinstance(roots[0], exp.Select):
        raise InputError(f"select: must be one select; {FORM}")
    return _Reader(columns, edges).question(roots[0], dataset)


@dataclass(frozen=True)
class _Reader:
    columns: Mapping[str, Column]
    edges: Edges

    def question(self, tree: exp.Select, dataset: str) -> Question:
        others = [name.rstrip("_") for name, value in tree.args.items() if value and name not in CLAUSES]
        if others:
            raise InputError(f"select: {others[0]}: cannot be answered privately here, leave it out; {FORM}")
        self._require_table(tree.args.get("from_") or tree.args.get("from"), dataset)
        by = self._groups(tree.args.get("group"))
        outputs: list[Output] = []
        names = {column.name for column in by}
        for item in tree.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(inner, exp.Column):
                if self.column(inner).name not in names:
                    raise InputError(f"select: {inner.name}: stands outside of count, sum and avg, and not in group by")
                continue
            output = self._output(inner, item.alias)
            if any(output.name == other.name for other in outputs):
                raise InputError(f"select: {output.name}: stands twice")
            outputs.append(output)
        if not 0 < len(outputs) <= MOST_FIGURES:
            raise InputError(f"select: between 1 and {MOST_FIGURES} of count, sum and avg; {FORM}")
        where = tree.args.get("where")
        conditions = () if where is None else self._conditions(where.this)
        return Question(tree.sql(comments=False), by, conditions, tuple(outputs))

    def _require_table(self, source: exp.Expression | None, dataset: str) -> None:
        table = None if source is None else source.this
        plain = isinstance(table, exp.Table) and not any(
            value for name, value in table.args.items() if name not in ("this", "alias")
        )
        if table is None or not plain or table.name != dataset:
            quoted = dataset if dataset.isidentifier() else f'"{dataset}"'
            raise InputError(f"select: from: must name the dataset alone, {quoted}")

    def column(self, node: exp.Expression) -> Column:
        """Return the column that a node names; in other letters, where only one has this name."""
        if not isinstance(node, exp.Column) or node.args.get("db"):
            hint = ' in double quotes where its name is no word, like "marital-status"'
            raise InputError(f"select: {node.sql()[:60]!r}: must be a column of the schema by its name,{hint}")
        if node.name in self.columns:
            return self.columns[node.name]
        same = [] if node.this.quoted else [n for n in self.columns if n.casefold() == node.name.casefold()]
        if len(same) != 1:
            some = ", ".join([*self.columns][:20])
            raise InputError(f"select: {node.name[:80]!r}: is no column of the dataset, which has {some}")
        return self.columns[same[0]]

    def _groups(self, group: exp.Expression | None) -> tuple[Column, ...]:
        if group is None:
            return ()
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise InputError("select: group by: must name columns")
        by = tuple(map(self.column, group.expressions))
        if len({column.name for column in by}) < len(by) or len(by) > MOST_GROUPED:
            raise InputError(f"select: group by: each column once, and at most {MOST_GROUPED}")
        return by

    def _output(self, node: exp.Expression, alias: str) -> Output:
        kind = FIGURES.get(type(node))
        if kind is None:
            hint = "; for quantiles: dpserve profile" if isinstance(node, exp.Max | exp.Min | exp.Median) else ""
            raise InputError(f"select: {node.sql()[:60]!r}: must be count(*), or count, sum or avg of a column{hint}")
        if kind == "count" and isinstance(node.this, exp.Star) and not node.expressions:
            return Output(alias or "count", "count")
        if node.expressions:
            raise InputError(f"select: {node.sql()[:60]!r}: of one column")
        column = self.column(node.this)
        if kind != "count":
            self._require_number(column, kind)
        return Output(alias or f"{kind} {column.name}", kind, column)

    def _require_number(self, column: Column, what: str) -> None:
        feature = column.feature
        if not isinstance(feature, NumericFeature) or isinstance(feature, CalendarFeature):
            kind = "date" if isinstance(feature, CalendarFeature) else feature.kind
            raise InputError(f"select: {what}: {column.name} is a {kind} column, and must be a number's")
        if not column.ends[0] < column.ends[1]:
            raise InputError(f"select: {what}: {column.name} has no range in the schema")

    def _conditions(self, node: exp.Expression) -> tuple[Condition, ...]:
        nodes, conditions = [node], []
        while nodes:
            node = nodes.pop()
            if isinstance(node, exp.And | exp.Paren):
                nodes += [node.this] if isinstance(node, exp.Paren) else [node.expression, node.this]
            else:
                conditions.append(self._condition(node))
            if len(conditions) > MOST_CONDITIONS:
                raise InputError(f"select: where: has more than {MOST_CONDITIONS} conditions")
        merged: dict[str, Condition] = {}
        for condition in conditions:
            name = condition.column.name
            merged[name] = _both(merged[name], condition) if name in merged else condition
        return tuple(sorted(merged.values(), key=lambda condition: condition.column.name))

    def _condition(self, node: exp.Expression) -> Condition:
        negated = isinstance(node, exp.Not)
        inner = node.this if negated else node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Or):
            raise InputError("select: where: join conditions by and; of one column's values write: COLUMN in (..)")
        if isinstance(inner, exp.Column):
            column = self.column(inner)
            return self._values(column, [exp.true()], negated)
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return Condition.by_missing(self.column(inner.this), not negated)
        if isinstance(inner, exp.EQ | exp.NEQ | exp.In) and not inner.args.get("query"):
            column = self.column(inner.this)
            literals = inner.expressions if isinstance(inner, exp.In) else [inner.expression]
            return self._values(column, literals, negated != isinstance(inner, exp.NEQ))
        if isinstance(inner, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between) and not negated:
            column = self.column(inner.this)
            self._require_number(column, "where")
            return self._range(column, inner)
        raise InputError(
            f"select: where: {node.sql()[:60]!r}: must be COLUMN = VALUE, <>, in (..), <, <=, >, >=, between, is null"
        )

    def _values(self, column: Column, literals: Sequence[exp.Expression], negated: bool) -> Condition:
        feature = column.feature
        if isinstance(feature, NumericFeature):
            self._require_number(column, "where")
            if negated or len(literals) != 1:
                raise InputError(f"select: where: {column.name}: of a number write <, <=, >, >=, between, or =")
            value = _number(column, literals[0])
            return _both(self._bound(column, value, "above", True), self._bound(column, value, "upto", False))
        codes = set()
        for literal in literals:
            codes.add(_code(column, literal))
        if negated:
            codes = set(range(column.bins - 1)) - codes  # a missing value is not unequal to anything
        if not codes:
            raise InputError(f"select: where: {column.name}: no value is left")
        return Condition(column, tuple(sorted(codes)))

    def _range(self, column: Column, node: exp.Expression) -> Condition:
        if isinstance(node, exp.Between):
            low, high = (_number(column, node.args[name]) for name in ("low", "high"))
            return _both(self._bound(column, low, "above", True), self._bound(column, high, "upto", False))
        value = _number(column, node.expression)
        if isinstance(node, exp.GT | exp.GTE):
            return self._bound(column, value, "above", isinstance(node, exp.GTE))
        return self._bound(column, value, "upto", isinstance(node, exp.LT))

    def _bound(self, column: Column, value: float, end: str, before: bool) -> Condition:
        """Return the condition that a cell ends at the value, or at the next end of one beside it: `before`, so that
        the value itself lies above it, or at it or behind.
        """
        edges = self.edges(column)
        at = bisect_left(edges, value) - before
        if not 0 <= at < len(edges):
            beyond_low = at < 0
            if (end == "above") == beyond_low:  # all are above, or below
                return Condition(column)
            raise InputError(
                f"select: where: {column.name}: {value:g} is beyond its declared range, {column.ends[0]:g} to "
                f"{column.ends[1]:g}: no row would be counted"
            )
        edge = float(edges[at])
        return Condition(column, above=edge) if end == "above" else Condition(column, upto=edge)


def _both(a: Condition, b: Condition) -> Condition:
    """Return the condition that both hold. InputError where no row can meet it."""
    column = a.column
    if a.codes is not None and b.codes is not None:
        codes = tuple(sorted({*a.codes} & {*b.codes}))
        if codes:
            return Condition(column, codes)
    elif not (a.missing or b.missing):
        above = max(-inf if each.above is None else each.above for each in (a, b))
        upto = min(inf if each.upto is None else each.upto for each in (a, b))
        if above < upto:
            return Condition(column, above=above if isfinite(above) else None, upto=upto if isfinite(upto) else None)
    elif a.missing and b.missing:
        return a
    raise InputError(f"select: where: {column.name}: no row meets all of its conditions")


def _number(column: Column, node: exp.Expression) -> float:
    sign = -1.0 if isinstance(node, exp.Neg) else 1.0
    inner = node.this if isinstance(node, exp.Neg) else node
    try:
        if isinstance(inner, exp.Literal) and not inner.is_string and isfinite(value := float(inner.this)):
            return sign * value
    except ValueError:
        pass
    raise InputError(f"select: where: {column.name}: {node.sql()[:60]!r}: must be a number")


def _code(column: Column, node: exp.Expression) -> int:
    feature = column.feature
    if isinstance(feature, CategoricalFeature):
        text = node.this if isinstance(node, exp.Literal) else None
        if text in feature.values:
            return feature.values.index(text)
        some = ", ".join(feature.values[:20])
        raise InputError(f"select: where: {column.name}: {node.sql()[:60]}: must be one of its values: {some}")
    if isinstance(node, exp.Boolean):
        return int(bool(node.this))
    raise InputError(f"select: where: {column.name}: {node.sql()[:60]}: must be true or false")
