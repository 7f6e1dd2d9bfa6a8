"""Commands on released models: list, predict, evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import short_delta
from models.parts.beside import read_wanted
from models.worth.words import short_figure, short_figures, short_worth, verdict
from serving.cli.backend import backend
from serving.cli.backends.abstract import RowsToPredict
from serving.cli.complete import Model
from serving.cli.requests import takes_request
from serving.cli.terminal import (
    After,
    Contains,
    Every,
    Json,
    Limit,
    Verbose,
    align_columns,
    check_out,
    note,
    note_more,
    paint,
    show,
    show_busy,
    show_progress,
)
from serving.wire.list_parts import Part
from training.requests import EvaluationRequest

if TYPE_CHECKING:
    from models.worth import attacks, metrics
    from models.worth import report as worth_report
    from models.worth import stated as worth_stated
    from training.rows.tables import row_files
else:
    attacks = later("models.worth.attacks")
    metrics = later("models.worth.metrics")
    worth_report = later("models.worth.report")
    worth_stated = later("models.worth.stated")
    row_files = later("training.rows.tables.row_files")  # loads what writes tables

Described = Annotated[
    Path | None,
    typer.Option(help="A schema that says how the file is written; that of the model's dataset when left out."),
]


def list_models(
    contains: Contains = "",
    limit: Limit = None,
    after: After = None,
    every: Every = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """List the models of this home, each held against the ledger that issued it; `verify` asks for all.

    \b
    dpserve model list
    dpserve model list --contains adult --limit 20
    """
    with show_busy("looking at the models"):
        body = backend().models.list_part(Part(contains, after, limit, every))
    rows = [("MODEL", "STATE", "EPSILON", "WORTH", *(("DELTA", "NEIGHBOURS") if verbose else ()))]
    rows += [_row(line)[: len(rows[0])] for line in body["models"]]
    show(json, body, align_columns(rows))
    note_more(body["next"])


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    certificate = line["certificate"]
    if certificate is None:
        problem = f": {line['problem']}" if line["problem"] and line["state"] != "revoked" else ""
        return (line["model"], f"{line['state']}{problem}", "", "", "", "")
    worth = [short_worth(statement) for statement in line["worth"]] or ["not evaluated"]
    detail = short_delta(certificate["delta"]), certificate["relation"]
    return line["model"], line["state"], certificate["epsilon"], "; ".join(worth), *detail


def predict(
    name: Model,
    data: Annotated[
        Path, typer.Option(help="Records, .parquet or .csv; columns that are no features are passed over.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write label and p_<class>, or value; .parquet or .csv.")],
    schema: Described = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the file to write before the predictions, such as an id.")
    ] = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also a column that says which values were clipped, unknown or missing.")
    ] = False,
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Also columns low and high: between them it would have been under other noise, for instance .9.",
        ),
    ] = None,
    cover: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Also columns in_<class>, or low and high, which hold the truth so often, for instance .9.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="With --cover: a column in each of whose groups that is so.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict every row of a file, in its order, with a verified model.

    \b
    dpserve predict adult --data new.parquet --out predictions.parquet
    dpserve predict visits --data new.csv --schema new.yaml --out predictions.csv
    dpserve predict visits --data new.csv --keep id --out predictions.csv
    dpserve predict adult --data new.parquet --notes --out predictions.csv
    dpserve predict adult --data new.parquet --interval .9 --out predictions.csv
    dpserve predict adult --data new.parquet --cover .9 --out predictions.csv

    The interval is what the noise of privacy makes alone, for models of ebm; it costs no budget, and seconds.
    --cover needs an evaluation of the model with --cover.
    """
    wanted = read_wanted(interval, cover, group)
    file = RowsToPredict(name, data, schema, out, keep or (), notes, wanted)
    with show_progress(f"predicting with {name}") as progress:
        body = backend().models.predict(file, progress)
    summary = f"{body['target']} of {body['records']} records predicted with {body['model']}, written to {out}"
    summary += f"; its price is {body['vouched']}" if "vouched" in body else ""
    show(json, body, summary)


OpenRows = Annotated[
    Path | None, typer.Option(help="Rows that are nobody's secret, with the target: .parquet or .csv. Free.")
]


@takes_request(EvaluationRequest, "model", without=("delta",), optional=("dataset", "epsilon"))
def evaluate(
    given: Mapping[str, Any],
    data: OpenRows = None,
    schema: Described = None,
    public: Annotated[
        bool, typer.Option("--public", help="The rows of --data are nobody's secret: needed where they are under 100.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write a report: .html, .json, .csv, .parquet.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    attack: Annotated[
        bool, typer.Option("--attack", help="Attack its claim, as was registered with its training. Free.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure how good a model is: on private rows at a price, or on rows of yours.

    One noisy histogram is released, and every figure and interval follows from it. The statement is signed, stands in
    the ledger, and is given again for nothing where the same is asked again.

    \b
    dpserve evaluate adult --dataset adult --epsilon 0.25
    dpserve evaluate adult --dataset adult --epsilon 0.25 --part training
    dpserve evaluate adult@2 --against adult@1 --dataset adult --epsilon 0.25
    dpserve evaluate adult --dataset adult --epsilon 0.25 --group sex
    dpserve evaluate adult --data public.parquet --out report.html
    dpserve evaluate adult --attack
    """
    check_out(out, (".html", ".json", ".csv", ".parquet"))
    name = given["model"]
    if attack:
        if len(given) > 1 or data is not None or plan or out is not None:
            raise InputError("attack: its protocol was registered with the training; give --attack alone")
        return show_attack(name, json)
    if data is not None and len(given) == 1 and not plan:
        return _evaluate_rows(name, data, schema, out, public, json)
    if data is not None or not {"dataset", "epsilon"} <= given.keys():
        raise InputError("evaluate: give --dataset NAME --epsilon E, or --data FILE")
    request = EvaluationRequest.of(given)
    if plan:
        body = backend().measurements.plan(request)
        price = f"epsilon {body['epsilon']}, on {body['part']} rows"
        measured_before = (
            "" if body["known"] is None else f"; job {body['known']} has measured this: its statement is given"
        )
        budget = left_words(body["left"], "evaluation")
        expected = [] if body["expected"] is None else [("expect", body["expected"]["says"])]
        return show(
            json, body, align_columns([("price", f"{price}{measured_before}"), ("after it", budget), *expected])
        )
    with show_busy(f"evaluating {name} on {given['dataset']}"):
        body, stated = backend().measurements.measure(request)
    if out is not None:
        _write_report(
            worth_stated.report_of(body["worth"], stated.form.claim.unit.contributions, stated.form.model.classes), out
        )
    show(json, body, worth_text(body["worth"]))
    note(f"{left_words(body['left'], 'evaluation')}. Signed: {body['statement']}")


def show_attack(name: str, json: bool) -> None:
    """Make the attack that was registered, and show it. Exit code 4 where it is above the claim."""
    with show_busy(f"attacking {name}"):
        body = backend().measurements.attack(name)
    show(json, body, attack_text(body))
    if body["refuted"]:
        raise typer.Exit(4)


def attack_text(body: dict[str, Any]) -> str:
    """Describe what an attack shows in lines for people."""
    verdict = paint("ABOVE THE CLAIM: do not rely on it", "bad") if body["refuted"] else "not above the claim"
    lines = [
        ("attack", attacks.right_words(body)),
        ("guesses", attacks.chance_words(body)),
        ("epsilon", f"at least {body['epsilon']['least']} by that; at most {body['epsilon']['claimed']} by proof"),
        ("verdict", verdict),
        ("signed", f"entry {body['entry']}, {body['statement']}"),
    ]
    return align_columns(lines)


def _evaluate_rows(name: str, data: Path, schema: Path | None, out: Path | None, public: bool, json: bool) -> None:
    with show_busy(f"evaluating {name} on {data.name}"):
        evaluation = backend().measurements.evaluate_rows(name, data, schema, public)
    if out is not None:
        _write_report(evaluation, out)
    rows = [("FIGURE", "VALUE"), *((metric["metric"], short_figure(metric["value"])) for metric in evaluation.metrics)]
    show(
        json,
        {**evaluation.body, "out": None if out is None else str(out)},
        "\n".join([*evaluation.facts, "", align_columns(rows)]),
    )


def _write_report(report: worth_report.Report, out: Path) -> None:
    """Write a page, JSON or a table, by the ending of `out`."""
    if out.suffix == ".parquet":
        row_files.write_figures(out, report.metrics)
    else:
        worth_report.write(report, out)


PARTS = {"holdout": "the part kept aside", "training": "the training rows", "all": "all rows"}


def worth_text(body: dict[str, Any]) -> str:
    """Describe a statement of worth in lines for people: where and how it was measured, then every figure with its
    interval.
    """
    warning = "; the model learnt from these rows: it looks better than it is" if body["seen"] else ""
    head = [
        ("model", body["model"]),
        ("measured on", f"{PARTS.get(body['part'], body['part'])} of {body['dataset']}{warning}"),
        ("price", f"epsilon {body['epsilon']}"),
        ("verdict", verdict(body)),
    ]
    lines = [(metrics.name_of_figure(metric), *short_figures(metric)) for metric in body["metrics"]]
    percent = f"{float(body['level']) * 100:g} %"
    rows = [("FIGURE", "VALUE", f"{percent} INTERVAL"), *lines]
    return f"{align_columns(head)}\n\n{align_columns(rows)}"
