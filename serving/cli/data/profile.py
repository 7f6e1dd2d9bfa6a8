"""`dpserve profile`: how the rows of a dataset are spread, measured privately, signed, and given again for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import InputError
from models.profile import report
from serving.cli.backend import backend
from serving.cli.complete import DATASETS, Blocks
from serving.cli.terminal import Json, aligned, busy, check_out, note, show


def profile(
    name: Annotated[str, typer.Argument(help="The dataset's name.", autocompletion=DATASETS)],
    epsilon: Annotated[str, typer.Option(help="Epsilon of this profile, a decimal.")],
    delta: Annotated[
        str | None,
        typer.Option(help="Delta of this profile; the dataset's when left out, 0 for noise that needs none."),
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="holdout, what was kept aside; what learners read, when left out.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="This column alone: fewer are counted more exactly. Repeatable.")
    ] = None,
    pairs: Annotated[
        list[str] | None, typer.Option(help="Two columns, A,B, that are counted together as well. Repeatable.")
    ] = None,
    blocks: Blocks = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a report: .html with pictures, .json or .csv.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key gives the same job, and spends once.")
    ] = None,
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
    check_out(out, report.SUFFIXES)
    together = [tuple(map(str.strip, each.split(","))) for each in pairs or ()]
    if any(len(each) != 2 for each in together):
        raise InputError("pairs: must be two columns each, A,B, in whose names there is no comma")
    asked = {"dataset": name, "epsilon": epsilon, "delta": delta, "part": part, "blocks": blocks}
    asked_for = {**asked, "columns": tuple(columns or ()), "pairs": tuple(together)}
    if plan:
        return _show_plan(backend().measurements.plan_profile(asked_for), json)
    with busy(f"counting the rows of {name}"):
        body = backend().measurements.profile(asked_for, idempotency_key, out)
    found = body["profile"]
    rows = [("COLUMN", "TYPE", "FIGURE", "MISSING")]
    rows += [(column["name"], *report.summary(column)) for column in found["columns"]]
    text = "\n".join([*report.facts(found), "", aligned(rows)])
    show(json, body | {"out": None if out is None else str(out)}, text)
    note(f"statement {body['statement']}; left {left_words(body['left'], 'profile')}")


def _show_plan(body: dict[str, Any], json: bool) -> None:
    known = "" if body["known"] is None else f"; job {body['known']} has counted this: its statement is given"
    pairs = f" and {len(body['pairs'])} pairs" if body["pairs"] else ""
    told = [
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}, on {body['part']} rows{known}"),
        ("counts", f"of {len(body['columns'])} columns{pairs}, each within {body['count_within']} rows, with a chance "
                   f"of 95 % ({body['noise']} noise)"),
        ("left after it", left_words(body["left"], "profile")),
    ]  # fmt: skip
    show(json, body, aligned(told))
