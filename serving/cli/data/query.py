"""`dpserve query`: counts, sums and means by groups, answered privately, signed, and given again for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from models.answers import report
from serving.cli.backend import backend
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, align_columns, check_out, note, show, show_busy
from training.requests import QueryRequest


@takes_request(QueryRequest, "dataset", without=("select",), optional=("select",))
def query(
    asked: dict[str, Any],
    select: Annotated[str, typer.Argument(help="Counts, sums and means by groups, as in the examples.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a report: .html, .json or .csv.")] = None,
    json: Json = False,
) -> None:
    """Ask for counts, sums and means of a dataset's rows, by groups that its schema names.

    What follows from an earlier answer or profile, at least as exactly, is given for nothing; without --epsilon, only
    that. Each answer is signed and stands in the ledger, and every figure has its interval.

    \b
    dpserve query adult "select education, count(*), avg(age) from adult group by education" --epsilon 0.1 --plan
    dpserve query adult "select education, count(*), avg(age) from adult group by education" --epsilon 0.1
    dpserve query adult "select count(*) from adult where education in ('Masters', 'Doctorate')"
    """
    check_out(out)
    request = QueryRequest.of({**asked, "select": select})
    if plan:
        return _show_plan(backend().measurements.plan(request), json)
    with show_busy(f"adding up the rows of {request.dataset}"):
        body, _ = backend().measurements.measure(request)
    answer = body["answer"]
    if out is not None:
        report.write(answer, out)
    text = "\n".join([align_columns(report.lines(answer)), "", *report.facts(answer)])
    show(json, body | {"out": None if out is None else str(out)}, text)
    note(f"statement {body['statement']}; {left_words(body['left'], 'query')}")


def _show_plan(body: dict[str, Any], json: bool) -> None:
    known = "" if body["known"] is None else f"; it follows from what job {body['known']} released"
    question = body["question"]
    lines = [
        ("price", f"epsilon {body['epsilon']}, on {body['part']} rows{known}"),
        ("groups", f"{body['groups']}" + (f", by {', '.join(question['by'])}" if question["by"] else "")),
        ("rows", " and ".join(question["where"]) or "all"),
        *([("shown", "; ".join(question["afterwards"]) + ", by the noisy figures")] if question["afterwards"] else []),
        ("expect", f"{body['expected']['says']} ({body['noise']} noise)"),
        ("after it", left_words(body["left"], "query")),
    ]
    show(json, body, align_columns(lines))
