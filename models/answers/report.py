"""An answer for people: its table in lines, and a report as a page with the picture of a cross table, JSON, or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from dpserve_verify.errors import InputError
from models.explain.html import page, paragraph, table
from models.profile.picture import STYLE, cells

SUFFIXES = (".html", ".json", ".csv")


def facts(body: Mapping[str, Any]) -> list[str]:
    """Return what was counted, at which price, and by which entry it stands."""
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
    return [
        f"{body['dataset']}, {body['part']} rows{f', where {where}' if where else ''}: from noisy sums measured for "
        f"epsilon {body['epsilon']} at delta {body['delta']}, signed, and entered in the ledger as entry "
        f"{body['entry']}.",
        "Each figure is within its interval with a chance of 95 %: only the noise is left to chance. Every "
        "group that the schema names is there, with rows or without; numbers outside a declared range are taken as its "
        "nearer end.",
        *shown,
    ]


def lines(body: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table: a heading, then groups with their figures and intervals."""
    question = body["question"]
    table_lines = [(*question["by"], *(word for name in question["figures"] for word in (name, "interval")))]
    for row in body["rows"]:
        words = list(row["group"])
        for name in question["figures"]:
            value, low, high = map(_word, row[name])
            words += [value, f"{low} to {high}"]
        table_lines.append(tuple(words))
    return table_lines


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
    if path.suffix not in SUFFIXES:
        raise InputError(f"out={path.name}: must end in {', '.join(SUFFIXES)}")
    text = json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    if path.suffix == ".html":
        head, *rows = lines(body)
        query = f"<pre>{escape(body['question']['select'])}</pre>"
        content = f"{''.join(map(paragraph, facts(body)))}{query}{picture(body)}{table(head, rows)}"
        text = page(f"Answer to a query of {body['dataset']}", f"<style>{STYLE}</style>{content}")
    elif path.suffix == ".csv":
        text = _csv(body)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"out={path}: cannot be written ({error.strerror})") from None


def _csv(body: Mapping[str, Any]) -> str:
    question, text = body["question"], io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = [word for name in question["figures"] for word in (name, f"{name} low", f"{name} high")]
    writer.writerow([*question["by"], *ends])
    for row in body["rows"]:
        writer.writerow([*row["group"], *(each or "" for name in question["figures"] for each in row[name])])
    return text.getvalue()
