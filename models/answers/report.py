"""An answer for people: its table in lines, and a report as a page with the picture of a cross table, JSON, or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from models.explain.html import page, paragraph, table
from models.explain.reports import write_report
from models.profile.picture import STYLE, cells

OF_ALL = "of all"  # over a count that is scaled to all units


def facts(body: Mapping[str, Any]) -> list[str]:
    """Return of which rows it is, what was counted, at which price, and by which entry it stands."""
    question = body["question"]
    where, afterwards = "; ".join(question["where"]), "; ".join(question.get("afterwards", ()))
    shown = (
        [
            f"Shown: {afterwards}. This is done on the noisy figures, at no price: noise too decides which groups are "
            "shown, so of those chosen for a large or small figure more than 5 % lie outside of their interval."
        ]
        if afterwards
        else []
    )
    scaled = (
        [
            f"Under {OF_ALL}: the count of this part scaled to everybody, with an interval that also holds what the "
            "draw of the part leaves open. Rows beyond the bound on one person are counted nowhere. Sums and means are "
            "of the part alone."
        ]
        if "scaled" in body
        else []
    )
    return [
        f"{body['dataset']}, {body['of']}{f', where {where}' if where else ''}: from noisy sums measured for "
        f"epsilon {body['epsilon']} at delta {body['delta']}, signed, and entered in the ledger as entry "
        f"{body['entry']}.",
        "Each figure is within its interval with a chance of 95 %: only the noise is left to chance. Every "
        "group that the schema names is there, with rows or without; numbers outside a declared range are taken as its "
        "nearer end.",
        *scaled,
        *shown,
    ]


def lines(body: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table: a heading, then groups with their figures and intervals."""
    question, counts = body["question"], scaled_names(body)
    head = [
        word
        for name in question["figures"]
        for word in (name, "interval", *((OF_ALL, "interval") if name in counts else ()))
    ]
    table_lines = [(*question["by"], *head)]
    for at, row in enumerate(body["rows"]):
        words = list(row["group"])
        for name in question["figures"]:
            for value, low, high in (row[name], *([body["scaled"][at][name]] if name in counts else ())):
                words += [_word(value), f"{_word(low)} to {_word(high)}"]
        table_lines.append(tuple(words))
    return table_lines


def scaled_names(body: Mapping[str, Any]) -> list[str]:
    """Return which figures are counts that are scaled to all units."""
    return [*body["scaled"][0]] if body.get("scaled") else []


def _word(value: str | None) -> str:
    """Return a figure for people; a date as it is."""
    if value is None:
        return "-"
    try:
        return f"{float(value):,.5g}"
    except ValueError:
        return value


def picture(body: Mapping[str, Any]) -> str:
    """Return the cross table of the first figure as a picture; empty unless there are two groups and it is a count.
    Groups that are not shown are white.
    """
    by, first = body["question"]["by"], body["question"]["figures"][0]
    if len(by) != 2 or body["question"].get("kinds", ["count"])[0] != "count":
        return ""
    names = [[*dict.fromkeys(row["group"][at] for row in body["rows"])] for at in (0, 1)]
    width = max((float(row[first][2]) - float(row[first][0]) for row in body["rows"]), default=0.0)
    by_group = {tuple(row["group"]): float(row[first][0]) for row in body["rows"]}
    counts = [by_group.get((row, column), 0.0) for row in names[0] for column in names[1]]
    return cells({"columns": [*by], "counts": counts}, dict(zip(by, names, strict=True)), width) if counts else ""


def write(body: Mapping[str, Any], path: Path) -> None:
    """Write an answer in the format of the path's suffix: .html, .json or .csv; InputError for any other."""

    def to_html() -> str:
        head, *rows = lines(body)
        query = f"<pre>{escape(body['question']['select'])}</pre>"
        content = f"{''.join(map(paragraph, facts(body)))}{query}{picture(body)}{table(head, rows)}"
        return page(f"Answer to a query of {body['dataset']}", f"<style>{STYLE}</style>{content}")

    write_report(path, body, to_html, lambda: _rows(body))


def _rows(body: Mapping[str, Any]) -> Iterator[list[str]]:
    question, scaled = body["question"], scaled_names(body)
    names = [*question["figures"], *(f"{name}, {OF_ALL}" for name in scaled)]
    yield [*question["by"], *(word for name in names for word in (name, f"{name} low", f"{name} high"))]
    for at, row in enumerate(body["rows"]):
        figures = [*(row[name] for name in question["figures"]), *(body["scaled"][at][name] for name in scaled)]
        yield [*row["group"], *(each or "" for figure in figures for each in figure)]
