"""Reads `select` of counts, sums and means of one table, by groups and conditions that the schema makes public.

A closed list of syntax: whatever is not on it is refused, with what may be written instead.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from dpserve_verify.errors import InputError
from models.answers.question import Condition, Having, Kind, Output, Question, Sign, merge, value_text
from models.features.calendar import EXAMPLES, CalendarKind, number_of
from models.features.features import CalendarFeature, CategoricalFeature, NumericFeature
from models.profile.columns import Column

MOST_BANDS = 256  # bins of a number by floor
MOST_CALLS, MOST_BRACKETS = 4, 24  # in one another
NO_CALLS = {"and", "or", "not", "in", "where", "having", "by", "when", "then", "else", "select", "between", "filter"}
MOST_CHARACTERS, MOST_GROUPED, MOST_CONDITIONS, MOST_FIGURES = 1000, 8, 64, 32
FORM = (
    "write: select GROUPS, count(*), count(COLUMN), sum(COLUMN), avg(COLUMN) from DATASET where CONDITION and ... "
    "group by GROUPS having FIGURE > NUMBER order by FIGURE desc limit NUMBER"
)
CLAUSES = {"expressions", "from_", "from", "where", "group", "having", "order", "limit"}
FIGURES: Mapping[type[exp.Expression], Kind] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg"}
COMPARED: Mapping[type[exp.Expression], Sign] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
TURNED: Mapping[type[exp.Expression], type[exp.Expression]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ
}  # fmt: skip
GROUPED = (exp.Column, exp.Floor, exp.Mul)  # a column, or a number in bands
CASTS = {"DATE", "DATETIME", "TIME", "TIMESTAMP"}
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
Edges = Callable[[Column], Sequence[float]]
"""Of a number's column, the ascending ends of the public cells by which its rows are known."""


def read_question(text: str, dataset: str, columns: Mapping[str, Column], edges: Edges) -> Question:
    """Read a query of `dataset`. InputError where it asks for anything but counts, sums and means of its columns."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"select: has {len(text)} characters, and may have {MOST_CHARACTERS}")
    try:
        roots = _parse(text)
        if len(roots) != 1 or not isinstance(roots[0], exp.Select):
            raise InputError(f"select: must be one select; {FORM}")
        return _Reader(columns, edges).question(roots[0], dataset)
    except (SqlglotError, RecursionError):
        raise InputError(f"select: is no query that can be read; {FORM}") from None


def _parse(text: str) -> list[exp.Expr | None]:
    check_nesting(text)
    try:
        return sqlglot.parse(text)
    except Exception as error:  # what builds odd functions raises whatever it stumbles over
        raise SqlglotError(type(error).__name__) from None


def check_nesting(text: str) -> None:
    """Raise InputError where brackets of a query nest so deep that a parser would try them in more ways than it has
    time for: what stands in calls is tried anew for each. One pass over the tokens. SqlglotError where there are none.
    """
    open_brackets: list[bool] = []  # of each, whether it is of a call
    before = ""
    for token in sqlglot.tokenize(text):
        if token.token_type in (TokenType.L_BRACKET, TokenType.L_BRACE):
            raise InputError(f"select: [ and {{ have no meaning here; {FORM}")
        if token.token_type is TokenType.L_PAREN:
            end = before[-1:]
            open_brackets.append((end.isalnum() or end == "_") and before.lower() not in NO_CALLS)
            if open_brackets.count(True) > MOST_CALLS or len(open_brackets) > MOST_BRACKETS:
                raise InputError(f"select: brackets nest too deep; {FORM}")
        elif token.token_type is TokenType.R_PAREN and open_brackets:
            open_brackets.pop()
        before = token.text


@dataclass(frozen=True)
class _Reader:
    columns: Mapping[str, Column]
    edges: Edges

    def question(self, tree: exp.Select, dataset: str) -> Question:
        """Read a select. InputError where it is none of this form."""
        others = [name.rstrip("_") for name, value in tree.args.items() if value and name not in CLAUSES]
        if others:
            raise InputError(f"select: {others[0]}: cannot be answered privately here, leave it out; {FORM}")
        self._require_table(tree.args.get("from_") or tree.args.get("from"), dataset)
        where = tree.args.get("where")
        conditions = () if where is None else self._conditions(where.this)
        aliases = {each.alias: each.this for each in tree.expressions if isinstance(each, exp.Alias)}
        by = self._groups(tree.args.get("group"), tree.expressions, aliases)
        outputs: list[Output] = []
        names: list[str] = []  # of each item, the group's column or the figure
        for item in tree.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(inner, GROUPED):
                names.append(self.group(inner).name)
                if names[-1] not in {column.name for column in by}:
                    raise InputError(f"select: {names[-1]}: stands outside of count, sum and avg, and not in group by")
                continue
            output = self.output(inner, item.alias)
            if any(output.name == name for name in names):
                raise InputError(f"select: {output.name}: stands twice")
            if merge(conditions, output.where) is None:
                raise InputError(f"select: {output.name}: no row meets all of its conditions")
            outputs.append(output)
            names.append(output.name)
        if not 0 < len(outputs) <= MOST_FIGURES:
            raise InputError(f"select: between 1 and {MOST_FIGURES} of count, sum and avg; {FORM}")
        text = tree.sql(comments=False)
        if len(text) > MOST_CHARACTERS:
            raise InputError(f"select: has {len(text)} characters when it is written out, of {MOST_CHARACTERS}")
        lookup = _Lookup(self, {each.name: each for each in outputs}, by, names, aliases)
        having, order = lookup.having(tree.args.get("having")), lookup.order(tree.args.get("order"))
        return Question(text, by, conditions, tuple(outputs), having, order, _limit(tree.args.get("limit")))

    def _require_table(self, source: exp.Expression | None, dataset: str) -> None:
        table = None if source is None else source.this
        plain = isinstance(table, exp.Table) and not any(
            value for name, value in table.args.items() if name not in ("this", "alias")
        )
        if table is None or not plain or table.name != dataset:
            quoted = dataset if dataset.isidentifier() else f'"{dataset}"'
            raise InputError(f"select: from: must name the dataset alone, {quoted}")

    def column(self, node: exp.Expression | None) -> Column:
        """Return the column that a node names; in other letters, where only one has this name."""
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("db"):
            hint = ' in double quotes where its name is no word, like "marital-status"'
            raise InputError(f"select: {shown(node)!r}: must be a column of the schema by its name,{hint}")
        if node.name in self.columns:
            return self.columns[node.name]
        same = [] if node.this.quoted else [n for n in self.columns if n.casefold() == node.name.casefold()]
        if len(same) != 1:
            some = ", ".join([*self.columns][:20])
            raise InputError(f"select: {node.name[:80]!r}: is no column of the dataset, which has {some}")
        return self.columns[same[0]]

    def _groups(
        self, group: exp.Expression | None, items: Sequence[exp.Expression], aliases: Mapping[str, exp.Expression]
    ) -> tuple[Column, ...]:
        if group is None:
            return ()
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise InputError("select: group by: must name columns")
        nodes = [_behind(node, items, aliases, self.columns) for node in group.expressions]
        by = tuple(map(self.group, nodes))
        if len({column.name for column in by}) < len(by) or len(by) > MOST_GROUPED:
            raise InputError(f"select: group by: each column once, and at most {MOST_GROUPED}")
        return by

    def group(self, node: exp.Expression) -> Column:
        """Return a column, or a number in bins of one width, of `floor(COLUMN / WIDTH)` or that times WIDTH: each
        begins where the cell ends that is the next one below.
        """
        if not isinstance(node, exp.Floor | exp.Mul):
            return self.column(node)
        inner = node.this if isinstance(node, exp.Mul) else node
        divided = inner.this if isinstance(inner, exp.Floor) else None
        width = divided.expression if isinstance(divided, exp.Div) else None
        same = not isinstance(node, exp.Mul) or (width is not None and node.expression == width)
        if not isinstance(divided, exp.Div) or not isinstance(divided.this, exp.Column) or not same:
            raise InputError(f"select: group by: {shown(node)!r}: must be a column, or floor(COLUMN / WIDTH)")
        column = self.column(divided.this)
        self._require_number(column, "sum")
        size, (low, high), cells = number_in(None, divided.expression, "group by"), column.ends, self.edges(column)
        if not size > 0 or (high - low) / size > MOST_BANDS:
            raise InputError(f"select: group by: {shown(node)!r}: at most {MOST_BANDS} bins, of a width above 0")
        starts = [bin * size for bin in range(floor(low / size) + 1, ceil(high / size))]
        edges = {float(cells[at]) for start in starts if (at := bisect_left(cells, start) - 1) >= 0}
        if not edges:
            raise InputError(f"select: group by: {shown(node)!r}: would be one bin, from {low:g} to {high:g}")
        return replace(column, feature=NumericFeature(column.name, tuple(sorted(edges))))

    def output(self, node: exp.Expression, alias: str = "") -> Output:
        """Read count, sum or avg, of rows that meet conditions of its own where it has `filter` or `case`."""
        where: tuple[Condition, ...] = ()
        inner = node
        if isinstance(inner, exp.Filter):
            inner, where = inner.this, self._conditions(inner.expression.this)
        if isinstance(inner, exp.CountIf):
            return self._named("count", None, (*where, *self._conditions(inner.this)), alias)
        kind = FIGURES.get(type(inner))
        if kind is None:
            hint = "; for quantiles: dpserve profile" if isinstance(inner, exp.Max | exp.Min | exp.Median) else ""
            raise InputError(f"select: {shown(node)!r}: must be count(*), or count, sum or avg of a column{hint}")
        is_of_rows = isinstance(inner.this, exp.Star) if kind == "count" else False
        if (is_of_rows or (kind != "avg" and _is_number(inner.this, 1))) and not inner.expressions:
            return self._named("count", None, where, alias)
        if inner.expressions:
            raise InputError(f"select: {shown(node)!r}: of one column")
        if isinstance(inner.this, exp.Case | exp.If):
            kind, column, own = self._case(inner.this, kind)
            return self._named(kind, column, (*where, *own), alias)
        column = self.column(inner.this)
        if kind != "count":
            self._require_number(column, kind)
        return self._named(kind, column, where, alias)

    def _case(self, case: exp.Expression, kind: Kind) -> tuple[Kind, Column | None, tuple[Condition, ...]]:
        """Read `case when CONDITION then 1 else 0 end`, or with a column in the place of 1: what is counted, added up
        or averaged, and which rows.
        """
        branches, otherwise = [case], case.args.get("false")
        if isinstance(case, exp.Case):
            branches, otherwise = case.args["ifs"], case.args.get("default")
        then, condition = branches[0].args["true"], branches[0].this
        if isinstance(case, exp.Case) and case.this is not None:
            condition = exp.EQ(this=case.this, expression=condition)
        to_zero, is_one = _is_number(otherwise, 0), _is_number(then, 1)
        to_nothing = otherwise is None or isinstance(otherwise, exp.Null)
        column = self.column(then) if isinstance(then, exp.Column) else None
        fits = {"count": to_nothing, "sum": to_zero or to_nothing, "avg": to_zero if is_one else to_nothing}
        if len(branches) != 1 or not fits[kind] or not (is_one or column is not None):
            raise InputError(
                f"select: {shown(case)!r}: write sum(case when CONDITION then 1 else 0 end), avg of the same for a "
                f"share, or count(*) filter (where CONDITION)"
            )
        if column is not None and kind != "count":
            self._require_number(column, kind)
        return "count" if kind == "sum" and is_one else kind, column, self._conditions(condition)

    def _named(self, kind: Kind, column: Column | None, where: Sequence[Condition], alias: str) -> Output:
        merged = merge(where)
        if merged is None:
            raise InputError("select: filter: no row meets all of its conditions")
        own = _in_order(merged)
        words = ["share" if kind == "avg" and column is None else kind, *([] if column is None else [column.name])]
        words += [f"where {' and '.join(condition.words for condition in own)}"] if own else []
        return Output(alias or " ".join(words), kind, column, own)

    def _require_number(self, column: Column, what: str) -> None:
        feature, is_date = column.feature, isinstance(column.feature, CalendarFeature)
        if not isinstance(feature, NumericFeature) or (is_date and what == "sum"):
            kind, remedy = ("date", "; write avg for the mean date") if is_date else (feature.kind, "")
            raise InputError(f"select: {what}: {column.name} is a {kind} column, and must be a number's{remedy}")
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
        merged = merge(conditions)
        if merged is None:
            name = next(each.column.name for at, each in enumerate(conditions) if merge(conditions[: at + 1]) is None)
            raise InputError(f"select: where: {name}: no row meets all of its conditions")
        for condition in merged.values():
            if not condition.bins_met(condition.column):
                raise InputError(f"select: where: {condition.column.name}: no row can be so")
        return _in_order(merged)

    def _condition(self, node: exp.Expression) -> Condition:
        negated = isinstance(node, exp.Not)
        inner = node.this if negated else node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Or) and not negated:
            one, other = self._condition(inner.this), self._condition(inner.expression)
            if one.column != other.column or one.codes is None or other.codes is None:
                raise InputError("select: where: join conditions by and; or joins values of one column: COLUMN in (..)")
            return Condition(one.column, tuple(sorted({*one.codes, *other.codes})))
        if isinstance(inner, exp.Column):
            column = self.column(inner)
            return self._values(column, [exp.true()], negated)
        if type(inner) in TURNED and isinstance(inner.expression, exp.Column):
            inner = TURNED[type(inner)](this=inner.expression, expression=inner.this)
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Boolean):
            condition = self._values(self.column(inner.this), [inner.expression], False)
            others = tuple(code for code in condition.column.codes if code not in (condition.codes or ()))
            return Condition(condition.column, others) if negated else condition  # a missing value is not true
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
            f"select: where: {shown(node)!r}: must be COLUMN = VALUE, <>, in (..), <, <=, >, >=, between, is null"
        )

    def _values(self, column: Column, literals: Sequence[exp.Expression], negated: bool) -> Condition:
        feature = column.feature
        if isinstance(feature, NumericFeature):
            self._require_number(column, "where")
            if negated or len(literals) != 1:
                raise InputError(f"select: where: {column.name}: of a number write <, <=, >, >=, between, or =")
            value = number_in(column, literals[0])
            return self._between(column, value, value)
        codes = set()
        for literal in literals:
            codes.add(_code(column, literal))
        if negated:
            codes = {*column.codes} - {column.bins - 1} - codes  # a missing value is not unequal to anything
        if not codes:
            raise InputError(f"select: where: {column.name}: no value is left")
        return Condition(column, tuple(sorted(codes)))

    def _range(self, column: Column, node: exp.Expression) -> Condition:
        if isinstance(node, exp.Between):
            return self._between(column, *(number_in(column, node.args[name]) for name in ("low", "high")))
        value = number_in(column, node.expression)
        if isinstance(node, exp.GT | exp.GTE):
            return self._bound(column, value, "above", isinstance(node, exp.GTE))
        return self._bound(column, value, "upto", isinstance(node, exp.LT))

    def _between(self, column: Column, low: float, high: float) -> Condition:
        both = self._bound(column, low, "above", True).meet(self._bound(column, high, "upto", False))
        if both is None:
            raise InputError(f"select: where: {column.name}: no row meets all of its conditions")
        return both

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
                f"select: where: {column.name}: {value_text(column, value)} is beyond its declared range, "
                f"{value_text(column, column.ends[0])} to {value_text(column, column.ends[1])}: no row would be counted"
            )
        edge = float(edges[at])
        return Condition(column, above=edge) if end == "above" else Condition(column, upto=edge)


@dataclass(frozen=True)
class _Lookup:
    """Reads what is done on the noisy answer, by names of figures and groups, or places in the select list."""

    reader: _Reader
    outputs: Mapping[str, Output]
    by: Sequence[Column]
    items: Sequence[str]
    aliases: Mapping[str, exp.Expression]

    def having(self, clause: exp.Expression | None) -> tuple[Having, ...]:
        """Read comparisons of figures with numbers, joined by and."""
        return () if clause is None else tuple(map(self._comparison, _joined(clause.this)))

    def _comparison(self, node: exp.Expression) -> Having:
        sign = COMPARED.get(type(node))
        output = None if sign is None else self.outputs.get(self._name(node.this, "having"))
        if sign is None or output is None:
            raise InputError(f"select: having: {shown(node)!r}: must be FIGURE <, <=, > or >= a number")
        of_date = output.calendar is not None and output.column is not None
        value = number_in(output.column if of_date else None, node.expression, "having")
        text = value_text(output.column, value) if of_date and output.column is not None else f"{value:.7g}"
        return Having(output.name, sign, value, text)

    def order(self, clause: exp.Expression | None) -> tuple[tuple[str, bool], ...]:
        """Read figures or groups, each with `desc` where it falls."""
        each = () if clause is None else clause.expressions
        return tuple((self._name(item.this, "order by"), bool(item.args.get("desc"))) for item in each)

    def _name(self, node: exp.Expression, clause: str) -> str:
        """Return the name of the figure or the group's column that a node means."""
        if isinstance(node, exp.Literal) and not node.is_string and node.sql().isdecimal():
            if 1 <= (place := int(node.sql())) <= len(self.items):
                return self.items[place - 1]
        elif isinstance(node, GROUPED):
            if node.name in self.outputs:
                return node.name
            column = self.reader.group(_behind(node, (), self.aliases, self.reader.columns))
            if column in self.by:
                return column.name
        else:
            meant = self.reader.output(node)
            for own in self.outputs.values():
                if (own.kind, own.column, own.where) == (meant.kind, meant.column, meant.where):
                    return own.name
        raise InputError(f"select: {clause}: {shown(node)!r}: must be a group, or a figure of the select list")


def _behind(
    node: exp.Expression,
    items: Sequence[exp.Expression],
    aliases: Mapping[str, exp.Expression],
    columns: Container[str],
) -> exp.Expression:
    """Return what a name given by `as`, or a place in the select list, stands for; anything else as it is."""
    if isinstance(node, exp.Literal) and not node.is_string and node.sql().isdecimal():
        at = int(node.sql()) - 1
        item = items[at] if 0 <= at < len(items) else node
        return item.this if isinstance(item, exp.Alias) else item
    return (
        aliases[node.name]
        if isinstance(node, exp.Column) and node.name in aliases and node.name not in columns
        else node
    )


def shown(node: exp.Expression | None) -> str:
    """Return how a part of a query is written, of 60 characters at most, for a message or to compare."""
    try:
        return "" if node is None else node.sql()[:60]
    except RecursionError:
        raise
    except Exception:  # an odd function, of which nothing can be written
        return type(node).__name__


def _joined(node: exp.Expression) -> list[exp.Expression]:
    """Return what `and` joins."""
    if isinstance(node, exp.Paren):
        return _joined(node.this)
    return [*_joined(node.this), *_joined(node.expression)] if isinstance(node, exp.And) else [node]


def _is_number(node: exp.Expression | None, number: int) -> bool:
    """Tell whether a node is this number, 1 or 1.0."""
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) == number


def _in_order(conditions: Mapping[str, Condition]) -> tuple[Condition, ...]:
    return tuple(conditions[name] for name in sorted(conditions))


def _limit(clause: exp.Expression | None) -> int | None:
    if clause is None:
        return None
    text = clause.expression.sql() if isinstance(clause, exp.Limit) and clause.expression is not None else ""
    if not text.isdecimal() or not int(text):
        raise InputError("select: limit: must be a whole number from 1 on")
    return int(text)


def number_in(column: Column | None, node: exp.Expression, clause: str = "where") -> float:
    """Read a number; where a column has dates or times, one of these."""
    place = f"select: {clause}: " + ("" if column is None else f"{column.name}: ") + f"{shown(node)}: "
    if column is not None and isinstance(column.feature, CalendarFeature):
        return _moment(column.feature.kind, node, place)
    sign = -1.0 if isinstance(node, exp.Neg) else 1.0
    inner = node.this if isinstance(node, exp.Neg) else node
    try:
        if isinstance(inner, exp.Literal) and not inner.is_string and isfinite(value := float(inner.this)):
            return sign * value
    except ValueError:
        pass
    raise InputError(f"{place}must be a number")


def _moment(kind: CalendarKind, node: exp.Expression, place: str) -> float:
    """Read a date or a time as ISO 8601 has it, as pandas and SQL write it too: a day with the time 00:00:00, a moment
    with only its day, nine digits of a second.
    """
    inner = node.this if isinstance(node, exp.Cast) and shown(node.to) in CASTS else node
    like = f"like '{EXAMPLES[kind]}'"
    if not isinstance(inner, exp.Literal) or not inner.is_string:
        raise InputError(f"{place}must be a {kind} in single quotes, {like}")
    text = re.sub(r"(:\d\d\.\d{6})0+(?=Z|[+-]|$)", r"\1", inner.this)
    if kind == "date":
        text = re.sub(r"[T ]00:00(:00(\.0+)?)?$", "", text)
    elif kind == "datetime" and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        text += "T00:00:00"
    try:
        return number_of(kind, text)
    except ValueError as error:
        why = str(error) if str(error).startswith("must be") else f"is no {kind}: {error}; write it {like}"
        raise InputError(f"{place}{why}") from None


def _code(column: Column, node: exp.Expression) -> int:
    feature = column.feature
    if isinstance(feature, CategoricalFeature):
        text = node.this if isinstance(node, exp.Literal) else None
        if text in feature.values:
            return feature.values.index(text)
        some = ", ".join(feature.values[:20])
        raise InputError(f"select: where: {column.name}: {shown(node)}: must be one of its values: {some}")
    if isinstance(node, exp.Boolean):
        return int(bool(node.this))
    raise InputError(f"select: where: {column.name}: {shown(node)}: must be true or false")
