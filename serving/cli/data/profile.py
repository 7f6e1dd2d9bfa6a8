"""`dpserve profile`: how the rows of a dataset are spread, measured privately, signed, and given again for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import InputError
from models.profile import report
from serving.cli.backend import backend
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, align_columns, check_out, note, show, show_busy
from training.requests import ProfileRequest


@takes_request(ProfileRequest, "dataset", without=("pairs",))
def profile(
    asked: ProfileRequest,
    pairs: Annotated[
        list[str] | None, typer.Option(help="Two columns, A,B, that are counted together as well. Repeatable.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a report: .html with pictures, .json or .csv.")] = None,
    json: Json = False,
) -> None:
    """Profile a dataset: noisy counts of every column in its public bins, and what follows from them.

    One release: quantiles, means and shares with their intervals follow for nothing. The statement is signed, stands in
    the ledger, and is given again for nothing where the same is asked again.

    \b
    dpserve profile adult --epsilon 0.2 --plan
    dpserve profile adult --epsilon 0.2 --out adult.html
    dpserve profile adult --epsilon 0.2 --columns age --columns sex --pairs age,sex
    """
    check_out(out)
    together = [tuple(map(str.strip, names.split(","))) for names in pairs or ()]
    if any(len(names) != 2 for names in together):
        raise InputError("pairs: must be two columns each, A,B, in whose names there is no comma")
    request = replace(asked, pairs=tuple((a, b) for a, b in together))
    if plan:
        return show_plan(backend().measurements.plan(request), json)
    with show_busy(f"counting the rows of {asked.dataset}"):
        body, _ = backend().measurements.measure(request)
    statement = body["profile"]
    if out is not None:
        report.write(statement, out)
    rows = [("COLUMN", "TYPE", "FIGURE", "MISSING")]
    rows += [(column["name"], *report.summary(column)) for column in statement["columns"]]
    text = "\n".join([*report.facts(statement), "", align_columns(rows)])
    show(json, body | {"out": None if out is None else str(out)}, text)
    note(f"statement {body['statement']}; {left_words(body['left'], 'profile')}")


def show_plan(body: dict[str, Any], json: bool) -> None:
    """Show the price of a profile, and how exact it would be."""
    counted_before = "" if body["known"] is None else f"; job {body['known']} has counted this: its statement is given"
    pairs = f" and {len(body['pairs'])} pairs" if body["pairs"] else ""
    pairs += f", and of pairs, each with {body['around']} and along a tree" if body["around"] else ""
    lines = [
        ("price", f"epsilon {body['epsilon']}, on {body['part']} rows{counted_before}"),
        ("counts", f"of {len(body['columns'])} columns{pairs}, each within {body['count_within']} rows, with a chance "
                   f"of 95 % ({body['noise']} noise)"),
        ("expect", body["expected"]["says"]),
        ("after it", left_words(body["left"], "profile")),
    ]  # fmt: skip
    show(json, body, align_columns(lines))
