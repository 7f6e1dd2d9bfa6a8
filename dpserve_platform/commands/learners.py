"""Commands about learners of others: whether one keeps its promise, who admits it, and how its admission ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from dpserve_platform.outside.jobs import check_words
from dpserve_platform.replay import subjects
from dpserve_verify.privacy.budget import Budget, parse_relation
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import LEARNERS
from serving.cli.data.schema import schema_bytes
from serving.cli.requests import key_values
from serving.cli.terminal import Json, align_columns, show, show_busy

Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="A module it needs, loaded before its seal; MODULE:CALL is called. Repeatable."),
]
CheckedOn = Annotated[
    list[str] | None,
    typer.Option(help="Also on made-up rows of this dataset's schema, as a job on it would. Repeatable."),
]


def check_learner(
    name: Annotated[
        str, typer.Argument(help="A learner, MODULE[:CLASS], FILE.py:CLASS or FOLDER/:CLASS.", autocompletion=LEARNERS)
    ],
    schema: Annotated[Path | None, typer.Option(help="A schema, YAML; else a small one of two classes.")] = None,
    data: Annotated[Path | None, typer.Option(help="Rows to begin with, in place of made-up ones.")] = None,
    rows: Annotated[int, typer.Option(help="How many rows are made up.")] = subjects.Trial.rows,
    neighbours: Annotated[int, typer.Option(help="How many neighbours.")] = subjects.Trial.neighbours,
    target: Annotated[str | None, typer.Option(help="Which target, where the schema has several.")] = None,
    epsilon: Annotated[str, typer.Option(help="Epsilon of the job.")] = "1",
    delta: Annotated[str, typer.Option(help="Delta of the job.")] = "0.000001",
    relation: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    contributions: Annotated[int, typer.Option(help="How many rows one person may have.")] = 1,
    dataset: CheckedOn = None,
    set: Annotated[list[str] | None, typer.Option(help="A parameter, key=value. Repeatable.")] = None,
    module: Modules = None,
    json: Json = False,
) -> None:
    """Check that a learner keeps its promise: record it, and play it on neighbours with the same answers. Free.

    It must ask the same questions, return the same, and no answer may move by more than is declared. With --data the
    report tells of these rows: it is for their steward. Exit code 4 where the learner is refused.

    \b
    dpserve learner check lazybb --set rounds=20
    dpserve learner check mine.learner:Stumps --neighbours 1000
    dpserve learner check examples/naive_bayes.py:NaiveBayes --dataset adult
    """
    trial = subjects.Trial(
        subjects.SCHEMA if schema is None else schema_bytes(schema), target, Budget.of(epsilon, delta),
        parse_relation(relation), contributions, neighbours, rows, data,
    )  # fmt: skip
    with show_busy("recording and playing"):
        home = Home.open() if dataset else None
        report = subjects.check_learner(
            name, key_values("--set", set or []), trial, home, dataset or [], tuple(module or [])
        )
    reached = [
        ("QUERY", "REACHED OF ITS SENSITIVITY"),
        *((text, f"{part:.4f}") for text, part in report.reached.items()),
    ]
    faults = "\n".join(f"{fault.kind}: {fault.words} ({fault.neighbour})" for fault in report.faults)
    verdict = "it keeps its promise on every one of them" if report.ok else f"refused: {faults}"
    text = f"{name}: {report.releases} releases, {report.neighbours} neighbours: {verdict}"
    about = subjects.about(name)
    show(
        json,
        {"learner": name, **about, **report.to_json()},
        f"{align_columns(reached)}\n{text}" if report.reached else text,
    )
    if not report.ok:
        raise typer.Exit(4)


def admit_learner(
    name: Annotated[str, typer.Argument(help="FILE.py:CLASS, FOLDER/:CLASS, or an installed entry point.")],
    as_name: Annotated[str, typer.Option("--name", help="What jobs call it: --set code=NAME.")],
    reason: Annotated[str, typer.Option(help="Why. It is signed, with the report of the check.")],
    author: Annotated[
        str | None, typer.Option(help="Who wrote it; the package or the file's name if left out.")
    ] = None,
    neighbours: Annotated[int, typer.Option(help="How many neighbours.")] = subjects.Trial.neighbours,
    dataset: CheckedOn = None,
    only: Annotated[bool, typer.Option("--only", help="Admit it for jobs on these datasets alone.")] = False,
    module: Modules = None,
    vouched: Annotated[
        str | None, typer.Option(help="It reads rows, and you give your word that it keeps epsilon, or mu.")
    ] = None,
    relation: Annotated[str, typer.Option(help="Of --vouched: who are neighbours.")] = "add-remove",
    seconds: Annotated[int, typer.Option(help="Of --vouched: its result is handed on after so many.")] = 60,
    declared: Annotated[bool, typer.Option("--declared", help="Take its word on queries of its own.")] = False,
    json: Json = False,
) -> None:
    """Admit a learner of others to this home, after a check on made-up rows: then jobs may name it. By the steward.

    The admission is an entry of the ledger, with the digests of its text and of the signed report: a file that changes
    afterwards is another learner. Exit code 2 where the check refuses it; `dpserve learner check` says more.

    With --vouched nothing can test the promise: it is your word, and every certificate says so. Such a program runs on
    the datasets that are named alone.

    \b
    dpserve learner admit examples/naive_bayes.py:NaiveBayes --name bayes --reason "was read by two of us"
    """
    home = Home.open()
    require_access(home, "steward")
    vouch = None if vouched is None else {"promise": vouched, "relation": relation, "seconds": seconds}
    with show_busy("recording and playing"):
        source, why = subjects.source_by(name, author, tuple(module or []), vouch), Why(this_user(), reason)
        entered = subjects.admit(home, source, as_name, why, neighbours, dataset or [], only, declared)
    text = (
        f"{as_name} is admitted by entry {entered.entry.seq}: {check_words(entered.report)}; by "
        f"{entered.source.author}, sha256 {entered.source.digest}"
    )
    show(json, entered.to_json(), text)


def remove_learner(
    name: Annotated[str, typer.Argument(help="The name that it was admitted by.")],
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger.")],
    json: Json = False,
) -> None:
    """Take the admission of a learner back: no further job runs it. Its models and their certificates stay.

    A job that has started goes on, as its budget is spent; one that waits is given back.

    \b
    dpserve learner remove bayes --reason "its author mended it"
    """
    home = Home.open()
    require_access(home, "steward")
    gone = learner_admissions.remove(home.ledger, name, Why(this_user(), reason))
    called = gone.value["name"]
    show(
        json,
        {"name": called, "admitted": gone.seq},
        f"{called} is removed: no further job runs it; jobs that wait are given back",
    )
