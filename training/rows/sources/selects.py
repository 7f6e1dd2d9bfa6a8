"""Whether a query keeps one unit's rows apart from all others, as its text says (proof: docs/privacy/rows.md).

What is allowed is a closed list of syntax. Whatever is not on it is a doubt, about which the steward is asked, and what
can never be sound is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpserve_verify.errors import InputError
from training.rows.sources import syntax

MOST_CHARACTERS = 64_000
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql", "duckdb": "duckdb"}
RECORD = "record"  # what --unit says where each row is another unit
ANSWER = (
    "--query-reason TEXT, which says why each row that it answers is about one unit alone, and stands permanently in "
    "the ledger and in certificates"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it would quote the query, which may name people


@dataclass(frozen=True)
class RowSelect:
    """What was read of a query. `table`: the parts of the one table's name, each with whether it was quoted; empty
    where there is not one. `words`: those of it that may name a function, in small letters. `doubts`: what may tie the
    rows of several units together, in words.
    """

    table: tuple[tuple[str, bool], ...]
    words: frozenset[str]
    doubts: tuple[str, ...]


def require_answer(doubts: tuple[str, ...], reason: str | None) -> None:
    """Ask the steward about a query with `doubts`: InputError, where no `reason` was given."""
    if doubts and reason is None:
        raise InputError(
            f"query: {'; '.join(doubts[:5])}. So one unit's rows may depend on those of others, and leaving one out "
            "may move many rows: is each row that it answers about one unit alone, whoever else is there? Answer by "
            f"{ANSWER}; or read with columns, expressions of one row, where, and group by the unit",
            answers=["--query-reason TEXT"],
        )


def read_select(query: str, dialect: str, unit: str | None) -> RowSelect:
    """Judge a query as a database of this `dialect` (a SQLAlchemy backend's name) reads it, for the column that names
    the `unit` ("record" or None: no column does).

    InputError for what can never be sound: no query, several statements, one that writes, a function that answers
    differently each time, a text that no database should be given.
    """
    if len(query) > MOST_CHARACTERS:
        raise InputError(f"query: has {len(query)} characters, and may have {MOST_CHARACTERS}")
    if _CONTROL.search(query):
        raise InputError("query: holds a control character, which databases read differently; leave it out")
    sql_dialect = DIALECTS.get(dialect)
    doubts = [] if sql_dialect else [f"which names are views or functions, {dialect[:40]} cannot be asked"]
    try:
        tokens = sqlglot.tokenize(query, read=sql_dialect)
        roots = sqlglot.parse(query, read=sql_dialect)
    except RecursionError:
        raise InputError("query: is nested too deeply to be read; put it into a table of the database") from None
    except SqlglotError:
        if ";" in query.rstrip(" \t\r\n;"):
            raise InputError("query: must be one select, without a semicolon in it") from None
        return RowSelect((), frozenset(), (*doubts, "it has a form that dpserve cannot read"))
    if len(roots) != 1 or not isinstance(roots[0], exp.Query) or roots[0].args.get("into"):
        raise InputError("query: must be one select")
    _require_repeatable(roots[0])
    if any(token.comments for token in tokens):
        doubts.append("it has comments, whose ends databases see at different places")
    if sql_dialect == "mysql" and ('"' in query or "\\" in query):
        doubts.append("it has a double quote or a backslash, which MySQL reads by its settings")
    table: tuple[tuple[str, bool], ...] = ()
    if isinstance(roots[0], exp.Select):
        clauses = [name for name, value in roots[0].args.items() if value and name not in syntax.ALLOWED_CLAUSES]
        doubts += [syntax.CLAUSES.get(name, f"{name.strip('_').upper()} of a query") for name in clauses]
        table, table_doubts = _table_of(roots[0])
        doubts += [*table_doubts, *_doubts_of_rows(roots[0], _unit_column(unit, roots[0]))]
    else:
        doubts.append("it puts several queries together" if isinstance(roots[0], exp.SetOperation) else "a query in it")
    marks = [token.text for token in tokens]
    around = zip(["", *marks], marks, [*marks[1:], ""], strict=False)
    words = frozenset(word.lower() for before, word, after in around if after == "(" or before == ".")
    return RowSelect(table, words, tuple(dict.fromkeys(doubts)))


def _require_repeatable(root: exp.Expr) -> None:
    """Raise InputError where a function answers differently each time: the rows would not be those of anybody."""
    for node in root.walk():
        name = node.name.lower()
        called = isinstance(node, exp.Anonymous) and name in syntax.VARYING_FUNCTIONS
        word = isinstance(node, exp.Column) and name in syntax.VARYING_WORDS
        bare = word and not node.this.args.get("quoted")
        empty = isinstance(node, syntax.VARYING_BARE) and not any(node.args.values())
        if called or bare or empty or isinstance(node, syntax.VARYING):
            function = name if called or bare else type(node).__name__
            raise InputError(
                f"query: {function[:60]} answers differently each time, so these rows could never be read again; write "
                "the day or the number itself, or put the rows into a table"
            )


def _table_of(select: exp.Select) -> tuple[tuple[tuple[str, bool], ...], list[str]]:
    """Return the one table that is read, and what is in doubt of it."""
    source = select.args.get("from_")
    table = source.this if source else None
    if not isinstance(table, exp.Table):
        return (), ["it reads from another query" if table is not None else "it reads no table"]
    parts = table.parts
    if not all(type(part) is exp.Identifier for part in parts):
        return (), ["it reads from a function of tables"]
    doubts = [
        syntax.CLAUSES.get(name, f"{name.upper()} of a table") for name, value in table.args.items()
        if value and name not in ("this", "db", "catalog", "alias")
    ]  # fmt: skip
    alias = table.args.get("alias")
    doubts += ["it renames columns of its table"] if alias and alias.args.get("columns") else []
    return tuple((part.name, bool(part.args.get("quoted"))) for part in parts), doubts


def _unit_column(unit: str | None, select: exp.Select) -> str | None:
    """Return the name of the unit's column in what is answered; None where each row is another unit."""
    if unit is None or unit == RECORD:
        return None
    names = {name.lower() for name in select.named_selects}
    return (unit if unit.lower() in names else unit.partition("=")[0]).lower()


def _doubts_of_rows(select: exp.Select, unit: str | None) -> Iterator[str]:
    """Yield the doubts of the columns, the condition and the groups."""
    where, group, having = (select.args.get(name) for name in ("where", "group", "having"))
    if where:
        yield from _doubts_of_expression(where.this)
    if group:
        yield from _doubts_of_groups(select, group, unit)
        return
    if having:
        yield "HAVING without groups looks at all rows together"
    for column in select.expressions:
        yield from _doubts_of_expression(column)
    if unit is not None:
        yield from _doubts_of_unit(select, unit)


def _doubts_of_unit(select: exp.Select, unit: str) -> Iterator[str]:
    """Check the unit. It must be a column of the table as it stands: computed, it may part one person into many."""
    stars = [column for column in select.expressions if column.is_star]
    unit_columns = [
        column for column in select.expressions if column.alias_or_name.lower() == unit and not column.is_star
    ]
    if any(isinstance(column, exp.Star) and any(column.args.values()) for column in stars):
        yield "a star that leaves out, replaces or renames columns"
    if len(unit_columns) + len(stars) > 1:
        yield f"the unit {unit[:60]!r} may stand in it twice"
    for column in unit_columns:
        source = column.this if isinstance(column, exp.Alias) else column
        if not isinstance(source, exp.Column):
            yield f"the unit {unit[:60]!r} is computed, so one person may get several names or share one"
        elif source.name.lower() != unit:
            yield f"the unit {unit[:60]!r} is another column of the table under this name; call it as the table does"


def _doubts_of_groups(select: exp.Select, group: exp.Group, unit: str | None) -> Iterator[str]:
    """Check the groups. Rows of one group must be of one unit, and what is answered must be of the group alone."""
    if any(value for name, value in group.args.items() if name != "expressions"):
        yield "groups of several kinds at once"
    keys = [_resolve_ordinal(select, key) for key in group.expressions]
    for key in keys:
        yield from _doubts_of_expression(key)
    names = {key.name.lower() for key in keys if isinstance(key, exp.Column)}
    renamed = {
        column.alias.lower() for column in select.expressions
        if isinstance(column, exp.Alias) and column.alias.lower() != column.this.name.lower()
    }  # fmt: skip
    if names & renamed:
        yield "a group by a name that is a column's and an expression's"
    unit_columns = [column for column in select.expressions if column.alias_or_name.lower() == unit]
    sources = [column.this if isinstance(column, exp.Alias) else column for column in unit_columns]
    if unit is None:
        yield "GROUP BY puts rows together, and no --unit says whose they are"
    elif len(sources) != 1 or not isinstance(sources[0], exp.Column) or {sources[0].name.lower()} != {unit} & names:
        yield f"GROUP BY puts rows together that are not of one unit: {unit[:60]!r} must be grouped by, and answered"
    having = select.args.get("having")
    for column in [*select.expressions, *([having.this] if having else [])]:
        yield from _doubts_of_grouped(column, keys, names)


def _resolve_ordinal(select: exp.Select, key: exp.Expr) -> exp.Expr:
    """Resolve `group by 1`, which is by the first column."""
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit():
        at = int(key.name[:6])
        if 1 <= at <= len(select.expressions):
            column: exp.Expr = select.expressions[at - 1]
            return column.this if isinstance(column, exp.Alias) else column
    return key


def _doubts_of_grouped(node: exp.Expr, keys: list[exp.Expr], names: set[str]) -> Iterator[str]:
    """Yield a doubt for each part that is neither an aggregate of the group's own rows nor made of grouping keys."""
    pending = [node]
    while pending:
        part = pending.pop()
        if part in keys or (isinstance(part, exp.Column) and part.name.lower() in names and not part.is_star):
            continue
        if type(part) in syntax.AGGREGATES:
            for inner in part.iter_expressions():
                if type(inner) is exp.Distinct and not inner.args.get("on"):
                    for argument in inner.expressions:
                        yield from _doubts_of_expression(argument)
                elif not (type(inner) is exp.Star and type(part) is exp.Count):
                    yield from _doubts_of_expression(inner)
        elif isinstance(part, exp.Column | exp.Star):
            yield f"{part.sql()[:60]!r} is neither grouped by nor added up: which row of the group it is of is open"
        else:
            doubt = _doubt_of(part)
            if doubt is None:
                pending.extend(part.iter_expressions())
            else:
                yield doubt


def _doubts_of_expression(root: exp.Expr) -> Iterator[str]:
    """Yield a doubt for each part that is not known to be a function of one row."""
    pending = [root]
    while pending:
        node = pending.pop()
        doubt = _doubt_of(node)
        if doubt is None:
            pending.extend(node.iter_expressions())
        else:
            yield doubt


def _doubt_of(node: exp.Expr) -> str | None:
    """Return why a part of an expression may not be a function of one row; None where it is, if its own parts are."""
    kind = type(node)
    if kind is exp.Anonymous:
        return f"the function {node.name[:60]!r} is none that dpserve knows"
    if isinstance(node, exp.Query | exp.Exists):
        return "a query in the query sees other rows"
    if kind is exp.In and any(value for name, value in node.args.items() if name not in ("this", "expressions")):
        return "IN looks into a table or a query, which sees other rows"
    if isinstance(node, exp.Window):
        return "a window function (OVER) sees other rows"
    if isinstance(node, exp.AggFunc):
        return f"{node.sql_name().upper()} sees other rows: not those of one unit alone, or in an order that is open"
    if kind not in syntax.ROW_WISE:
        return f"{kind.__name__[:60]!r} is not known to look at one row alone"
    if isinstance(node, exp.Column) and node.name.lower() in syntax.POSITIONS:
        return f"{node.name[:60].lower()!r} may be where a row lies among all others"
    if kind is exp.Literal and node.is_string and node.name.strip().lower() in syntax.MOMENTS:
        return f"the text {node.name.strip()[:20]!r} may mean the present moment"
    if kind is exp.DataType and node.this not in syntax.TYPES:
        return "a type that dpserve does not know"
    return None
