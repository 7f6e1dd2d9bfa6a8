"""Commands about learners: what can be trained, what each takes, whether one keeps its promise, and who admits it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.errors import UnknownName
from accountant.home import TRUST, Home, place
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from dpserve_verify.privacy.budget import Budget, parse_relation
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import LEARNERS
from serving.cli.data.schema import schema_bytes
from serving.cli.requests import key_values
from serving.cli.terminal import Json, align_columns, show, show_busy
from training.outside import admitted
from training.replay import subjects

Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="A module it needs, loaded before its seal; MODULE:CALL is called. Repeatable."),
]
CheckedOn = Annotated[
    list[str] | None,
    typer.Option(help="Also on made-up rows of this dataset's schema, as a job on it would. Repeatable."),
]


def list_learners(json: Json = False) -> None:
    """List the learners: dpserve's own, and those of others that the home admits, with who admitted them.

    \b
    dpserve learner list
    """
    from training.learners.docs import learners_to_json  # loads every learner, which a remote plan does without

    learners, entered = learners_to_json(), admitted.listed(Home.open()) if _has_home() else []
    text = align_columns([("LEARNER", "WHAT"), *((learner["name"], learner["says"]) for learner in learners)])
    if entered:
        rows = [("OF OTHERS", "SHA256", "AUTHOR", "ADMITTED BY", "AT", "DATASETS", "JOBS")]
        rows += [
            (
                each["name"], each["digest"][:12], each["author"], each["by"], each["time"][:10],
                ", ".join(each["datasets"] or ["all"]) + " (reads rows)" * bool(each["vouched"]), str(each["jobs"]),
            )
            for each in entered
        ]  # fmt: skip
        text += f"\n\n{align_columns(rows)}"
    show(json, {"learners": learners, "admitted": entered}, text)


def _has_home() -> bool:
    return (place(os.environ)[0] / TRUST).exists()


def show_learner(
    name: Annotated[str, typer.Argument(help="The learner's name.", autocompletion=LEARNERS)], json: Json = False
) -> None:
    """Show a learner: the parameters that `--set key=value` gives it. All have defaults. Of one of others that was
    admitted: who wrote and who admitted it, what its check saw, and where its text is.

    \b
    dpserve learner show lazybb
    dpserve learner show bayes
    """
    from training.learners.docs import learners_to_json  # as above

    learner = next((body for body in learners_to_json() if body["name"] == name), None)
    if learner is None and _has_home():
        return _show_admitted(Home.open(), name, json)
    if learner is None:
        raise UnknownName(f"learner={name!r}: no such learner", learner=name)
    rows = [("PARAMETER", "KIND", "DEFAULT")]
    for parameter in learner["parameters"]:
        kind = " | ".join(map(str, parameter["choices"])) or parameter["kind"]
        default = "by a public rule" if parameter["default"] is None else str(parameter["default"]) or "none"
        rows.append((parameter["name"], kind, default))
    show(json, learner, f"{learner['says']}\n\n{align_columns(rows)}")


def _show_admitted(home: Home, name: str, json: bool) -> None:
    body = admitted.shown(home, name)
    of = learner_admissions.VOUCHED if body["vouched"] else learner_admissions.OUTSIDE
    saw, path = body["report"], home.path / admitted.FOLDER / body["digest"] / admitted.TEXT
    lines = [
        ("written by", body["author"]),
        ("class", body["class"]),
        ("sha256", body["digest"]),
        ("text", str(path)),
        ("admitted by", f"{body['by']}, {body['time']}, entry {body['entry']}: {body['reason']}"),
        ("for jobs on", ", ".join(body["datasets"] or ["every dataset"])),
        ("jobs", str(body["jobs"])),
        ("check", _check_words(saw)),
        *(("", f"{share} of the sensitivity reached: {query}") for query, share in saw.get("reached", {}).items()),
        *(("with", f"{package} {version}") for package, version in saw.get("packages", {}).items()),
        ("on schemas", ", ".join(each[:12] for each in saw.get("schemas", ())) or "not said"),
    ]
    show(
        json,
        body | {"path": str(path)},
        f"{name}: a learner of others, for jobs with --learner {of} --set code={name}\n\n{align_columns(lines)}",
    )


def _check_words(saw: Mapping[str, Any]) -> str:
    if "vouch" in saw:
        return f"it reads rows: that it keeps {saw['vouch']['promise']} is the word of who admitted it, and not tested"
    return f"{saw['releases']} releases, {saw['neighbours']} neighbours, no fault"


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
        f"{as_name} is admitted by entry {entered.entry.seq}: {_check_words(entered.report)}; by "
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
