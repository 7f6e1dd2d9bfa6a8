"""A profile for people: lines of figures, and a report as a page with its pictures, JSON, or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from models.explain.html import foldable, grid, page, paragraph, table
from models.explain.reports import write_report
from models.profile.columns import cell_labels, labels
from models.profile.figures import Noise
from models.profile.picture import STYLE, bars, cells


def count_width(body: Mapping[str, Any]) -> float:
    """Return how far a count may be off, at the profile's level."""
    return _width(body["variance"], body["noise"])


def _width(variance: str, kind: str) -> float:
    noise = Noise(float(variance), kind == "laplace")
    return float(noise.z * noise.variance**0.5)


def facts(body: Mapping[str, Any]) -> list[str]:
    """Return what was counted, how exactly, and by which entry it stands."""
    value, low, high = body["records"]
    much = f"{float(value):,.0f} rows" + ("" if low == high else f" ({float(low):,.0f} to {float(high):,.0f})")
    return [
        f"{much} of {body['dataset']}, {body['part']} rows, in the public bins of its schema; measured privately for "
        f"epsilon {body['epsilon']} at delta {body['delta']}, signed, and entered in the ledger as entry "
        f"{body['entry']}.",
        f"Each count is within {count_width(body):,.1f} rows of the true one with a chance of 95 %, and so is each "
        "figure within its interval: only the noise is left to chance. Numbers outside a declared range are taken as "
        "its nearer end.",
    ] + ([] if body.get("chosen") is None else [_chosen(body)])


def _chosen(body: Mapping[str, Any]) -> str:
    around, width = body["chosen"]["around"], _width(body["chosen"]["variance"], body["noise"])
    return (
        f"Pairs were chosen privately: each column with {around}, and the others along the tree of the largest noisy "
        f"scores, in at most 16 cells a column; each of their counts is within {width:,.1f} rows. Synthetic rows "
        "follow for nothing."
    )


def lines(column: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of a column: what, value, interval."""
    rows = [("missing", *_share(column["missing"]))]
    if column["type"] == "numeric":
        rows.append(("mean", *_number(column["mean"])))
        figure = zip(("5 %", "25 %", "median", "75 %", "95 %"), column["quantiles"], strict=True)
        return rows + [(name, *_number(each)) for name, each in figure]
    return rows + [(name, *_share(each)) for name, each in zip(labels(column), column["shares"], strict=False)]


def summary(column: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a column in one line: its type, the middle of it or its most frequent value, what is missing."""
    missing = "{} ({})".format(*_share(column["missing"]))
    if column["type"] == "numeric":
        value, between = _number(column["quantiles"][2])
        return column["type"], f"median {value} ({between})", missing
    shares = [float(each[0] or 0) for each in column["shares"]]
    most = max(range(len(shares)), key=shares.__getitem__)
    value, between = _share(column["shares"][most])
    return column["type"], f"most are {labels(column)[most]}: {value} ({between})", missing


def write(body: Mapping[str, Any], path: Path) -> None:
    """Write a profile in the format of the path's suffix: .html, .json or .csv; InputError for any other."""
    write_report(path, body, lambda: _html(body), lambda: _rows(body))


def figures(body: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """Return each column, and its picture."""
    width = count_width(body)
    return [(column, bars(column, width)) for column in body["columns"]]


def pair_figures(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each pair in words, and its picture."""
    width, names = count_width(body), {column["name"]: labels(column) for column in body["columns"]}
    if chosen := body.get("chosen"):
        width = _width(chosen["variance"], body["noise"])
        names = {
            column["name"]: cell_labels(column, own)
            for column, own in zip(body["columns"], chosen["cells"], strict=True)
        }
    return [("{} downwards by {} across".format(*pair["columns"]), cells(pair, names, width)) for pair in body["pairs"]]


def _html(body: Mapping[str, Any]) -> str:
    figure = "".join(paragraph(fact) for fact in facts(body))
    drawn = []
    for column, picture in figures(body):
        head = f"<figcaption><b>{escape(column['name'])}</b> {column['type']}, {column['role']}</figcaption>"
        counts = [(name, f"{count:,.0f}") for name, count in zip(labels(column), column["counts"], strict=True)]
        below = table(("figure", "value", "interval"), lines(column))
        drawn.append(
            f"<figure>{head}{picture}{foldable('Figures', below)}{foldable('Counts', table(HEAD, counts))}</figure>"
        )
    for words, picture in pair_figures(body):
        drawn.append(f"<figure><figcaption><b>{escape(words)}</b></figcaption>{picture}</figure>")
    return page(f"How the rows of {body['dataset']} are spread", f"<style>{STYLE}</style>{figure}{grid(drawn)}")


HEAD = ("bin", "rows")


def _rows(body: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    yield "column", "figure", "value", "low", "high"
    for column in body["columns"]:
        figures = [("missing", column["missing"])]
        if column["type"] == "numeric":
            levels = zip(body["levels"], column["quantiles"], strict=True)
            figures += [("mean", column["mean"]), *((f"quantile {level}", each) for level, each in levels)]
        else:
            shares = zip(labels(column), column["shares"], strict=False)
            figures += [(f"share of {name}", each) for name, each in shares]
        for name, figure in figures:
            yield column["name"], name, *(each or "" for each in figure)


def _share(figure: Sequence[str | None]) -> tuple[str, str]:
    value, low, high = ("not figure" if each is None else f"{100 * float(each):.1f} %" for each in figure)
    return value, f"{low} to {high}"


def _number(figure: Sequence[str | None]) -> tuple[str, str]:
    value, low, high = ("not figure" if each is None else f"{float(each):,.5g}" for each in figure)
    return value, f"{low} to {high}"
