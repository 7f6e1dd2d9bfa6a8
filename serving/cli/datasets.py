"""Commands of the steward: datasets, their budgets and quotas, and drafts of schemas."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import blocks_words, left_words, windows_words
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal, percent_words, short_delta
from models.explain.croissant import croissant_of
from serving.cli.backend import backend, open_home
from serving.cli.backends.user import this_user
from serving.cli.complete import Name
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
    show,
    show_busy,
)  # fmt: skip
from serving.operations import datasets, totals
from serving.operations.totals import Archived, QuotaRequest, Withdrawn
from serving.wire.list_parts import Part
from training.planning.job_views import dataset_to_json
from training.requests import Reasoned

LISTED = 12  # blocks in a line of text

RowsData = Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")]
DatabaseQuery = Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")]
DatabaseTable = Annotated[str | None, typer.Option(help="Of a database: the whole table.")]
QueryReason = Annotated[
    str | None,
    typer.Option(help="Why each row that the query answers is about one person alone, where nothing shows it."),
]
OnePerson = Annotated[bool, typer.Option("--one-person", help="An id with many more rows than others is one person.")]
Reason = Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")]
DistinctIds = Annotated[
    bool,
    typer.Option("--distinct-ids", help="Ids that capitals or leading zeros alone tell apart are different people."),
]


def change_budget(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")],
    epsilon: Annotated[str | None, typer.Option(help="The new total epsilon; what was spent stays spent.")] = None,
    person_epsilon: Annotated[
        str | None, typer.Option(help="Or the new total epsilon for one person over all blocks.")
    ] = None,
    json: Json = False,
) -> None:
    """Change the total epsilon of a dataset's family, or of one person over all blocks, by a reasoned entry.

    Raising it weakens the promise that was made to the people in the data. Nothing that was spent comes back.

    \b
    dpserve dataset budget adult --epsilon 2 --reason "decision 14 of the data board"
    """
    home = open_home("steward", dataset=name)
    if (epsilon is None) == (person_epsilon is None):
        raise InputError("epsilon: give --epsilon, or --person-epsilon, and not both")
    if person_epsilon is not None:
        total = exact_decimal("person-epsilon", person_epsilon)
        changed = home.ledger.change_person_total(name, total, reason, this_user())
    else:
        changed = home.ledger.change_budget(name, exact_decimal("epsilon", epsilon or ""), reason, this_user())
    show_as_is(home, changed, json)


def set_quota(
    name: Name,
    analyst: Annotated[
        str, typer.Option(help='Whose: token:NAME, cli:USER or a principal; "*": everybody without one of their own.')
    ],
    share: Annotated[str, typer.Option(help="Of the family's budget, above 0 and at most 1.")],
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")],
    json: Json = False,
) -> None:
    """Set how much of a dataset's budget one analyst may use. What they used already counts.

    \b
    dpserve dataset quota adult --analyst cli:alice --share 0.25 --reason "four projects"
    """
    done = backend().ask(totals.set_quota, name=name, body=QuotaRequest(reason, analyst, share))
    rows = [("ANALYST", "QUOTA", "USED"), *((each.analyst, each.quota or "none", each.used) for each in done.quotas)]
    show(json, done.to_json(), align_columns(rows))


def withdraw(name: Name, reason: Reason, json: Json = False) -> None:
    """Withdraw a registration that nothing was spent on: with a wrong schema, or a wrong total.

    Its name, its rows and its family are free again, with a whole total. Jobs that were cancelled before they started
    cost nothing and do not hold it; grants and schedules on it end first. Five in an hour, with other comparisons.

    \b
    dpserve dataset withdraw adult --reason "age is a number, and was declared a category"
    """
    done = backend().ask(totals.withdraw_dataset, name=name, body=Reasoned(reason))
    _show_decision(done, json, "is withdrawn, and its name and rows are free")


def retire(name: Name, reason: Reason, json: Json = False) -> None:
    """Let a dataset take no further job, schedule or block. What was spent stays spent, and its models answer.

    Lists leave it out (--all shows it). Jobs that were reserved before may still run. `restore` takes it up again.

    \b
    dpserve dataset retire visits-2024 --reason "its budget is spent"
    """
    done = backend().ask(totals.retire_dataset, name=name, body=Reasoned(reason))
    _show_decision(done, json, "is retired, and takes no further job, schedule or block")


def restore(name: Name, reason: Reason, json: Json = False) -> None:
    """Take a retired dataset up again.

    \b
    dpserve dataset restore visits-2024 --reason "a review"
    """
    _show_decision(backend().ask(totals.restore_dataset, name=name, body=Reasoned(reason)), json, "is taken up again")


def _show_decision(done: Withdrawn | Archived, json: bool, words: str) -> None:
    show(json, done.to_json(), f"dataset {done.dataset} {words}; entry {done.entry} of the ledger says so")


def list_datasets(
    contains: Contains = "", limit: Limit = None, after: After = None, every: Every = False, json: Json = False
) -> None:
    """List the families, each with its datasets and the one budget that they share; with --json, the datasets.

    \b
    dpserve dataset list
    """
    part = Part(contains, after, limit, every)
    if json:
        return show(True, backend().ask(datasets.list_datasets, part=part), "")
    rows, problems = [("FAMILY", "DATASETS", "TOTAL", "BUDGET")], list[str]()
    families = backend().ask(datasets.list_families, part=part)
    for body in families["families"]:
        total = f"epsilon {body['epsilon']}, delta {short_delta(body['delta'])}"
        members = ", ".join(body["datasets"])
        rows.append((body["name"], members, total, left_words(body["budget"]["left"])))
        problems += [body["problem"]] if body["problem"] else []
    show(False, {}, "\n".join([align_columns(rows), *problems]))
    return note_more(families["next"])


def show_dataset(
    name: Name,
    croissant: Annotated[
        Path | None, typer.Option(help="Write what its schema says as Croissant metadata (.json), for a catalogue.")
    ] = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Show a dataset: its budget, and what is used of it; with --verbose, how many jobs of each learner still fit.

    \b
    dpserve dataset show adult
    dpserve dataset show adult --croissant adult.croissant.json
    """
    check_out(croissant, (".json",))
    with show_busy("pricing a job of each learner"):
        body = backend().ask(datasets.show_dataset, name=name)
    if croissant is not None:
        croissant.write_text(f"{dumps(croissant_of(body), indent=2)}\n", encoding="utf-8")
        note(f"metadata written to {croissant}")
    show(json, body, dataset_text(body, verbose))


def show_as_is(home: Home, dataset: Dataset, json: bool) -> None:
    """Show a dataset as a command left it."""
    body = dataset_to_json(home, dataset)
    show(json, body, dataset_text(body))


def dataset_text(body: dict[str, Any], verbose: bool = False) -> str:
    """Describe a dataset in lines for people."""
    budget = body["budget"]
    closed, forecast = budget["closed_by"], body["forecast"]
    where = f"{blocks_words(budget['left']['window'])}: " if "windows" in budget["left"] else ""
    used_up = forecast["used_up_on"]
    family = [] if body["family_names"] == [body["name"]] else [("family", ", ".join(body["family_names"]))]
    protects = "one row" if body["unit"] == "record" else f"one {body['unit']}, with all their rows"
    lines = [
        ("dataset", body["name"]),
        *(("problem", problem) for problem in [body["problem"]] if problem),
        *([("retired", "it takes no further job, schedule or block")] if body.get("archived") else []),
        *family,
        ("protects", protects),
        *(("targets", f"{', '.join(names)}; a job says --target") for names in [body.get("targets")] if names),
        *(("weight", f"a row counts by {w['column']}, {w['most']} at most") for w in [body.get("weight")] if w),
        ("total", f"epsilon {body['epsilon']}, delta {short_delta(body['delta'])}"),
        *([] if budget["largest"] == body["epsilon"] else [("largest ever", f"epsilon {budget['largest']}")]),
        *(("budget", words) for words in windows_words(budget["left"]) or [left_words(budget["left"])]),
        *([("blocks", _blocks_text(body["blocks"]))] if "blocks" in body else []),
        *([("one person", _person_text(body["person"]))] if "person" in body else []),
        *(
            (
                "kept aside",
                f"{float(holdout['share']) * 100:g} %: {left_words(holdout['budget']['left'], 'evaluation')}",
            )
            for holdout in [body.get("holdout")]
            if holdout
        ),
        *([] if closed is None else [("closed", f"by job {closed}, which took the whole total: nothing is admitted")]),
        *([] if used_up is None else [("at this rate", f"{where}used up on {used_up}")]),
        *_charges_lines(body["charges"]),
        *(
            (
                "quota",
                f"{q['analyst']} may use {percent_words(float(q['quota'] or 1))} of the budget, has used "
                f"{percent_words(float(q['used']))}",
            )
            for q in body["quotas"]
            if q["quota"] or verbose
        ),
        *(_details(body, where) if verbose else []),
    ]
    return align_columns(lines)


def _details(body: dict[str, Any], where: str) -> list[tuple[str, str]]:
    """Return the lines of --verbose."""
    budget = body["budget"]
    jobs = ", ".join(f"{count} of {learner}" for learner, count in budget["jobs_left"].items())
    block = budget["account"].get("block")
    most = f", of block {block}, of which most is used" if block is not None else ""
    at = f", converted at delta {short_delta(body['delta'])}{most}"
    return [
        ("families", ", ".join(body["family_names"])),
        ("neighbours", f"{body['relation']}, unit of privacy: {body['unit']}"),
        ("spent", f"epsilon {budget['spent']['epsilon']}{at}"),
        ("reserved", f"epsilon {budget['reserved']['epsilon']}{at}"),
        ("still fit", f"{where}at a tenth of the total epsilon each: {jobs or 'none'}"),
    ]


def _person_text(person: dict[str, Any]) -> str:
    total = person["total"]
    return (
        f"epsilon {total['epsilon']}, delta {short_delta(total['delta'])}, over all blocks that will ever come: "
        f"{left_words({name: person['left'][name] for name in ('share', 'one_job')})}"
    )


def _blocks_text(blocks: dict[str, Any]) -> str:
    """Say how many blocks there are, and how much is used of the newest."""
    shares = [(block["block"], 1 - float(block["left"])) for block in blocks["listed"][-LISTED:]]
    newest = ", ".join(f"{number}: {100 * used:.0f} %" for number, used in shares)
    gone = f"; the rows up to {blocks['dropped']} are deleted" if blocks["dropped"] else ""
    return f"{blocks['last']}{gone}; used of each, the newest last: {newest}"


def _charges_lines(charges: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what releases made elsewhere take of the budget, and the newest of them."""
    if charges["count"] or "delta" in charges:
        yield "elsewhere", charges["words"]
    for charge in charges["listed"][:LISTED]:
        document = f", document {charge['document'][:12]}.." if "document" in charge else ""
        what = f"{charge['words']} for one {charge['unit']}, {charge['mechanism']}"
        yield f"entry {charge['entry']}", f"{what}; {charge['time'][:10]} by {charge['by']}{document}"


def draft(
    file: Annotated[Path, typer.Argument(help="A file or folder of rows.")],
    data: Annotated[
        bool,
        typer.Option("--data", help="Look at how cells are written, too: marks, dates, words."),
    ] = False,
    sheet: Annotated[str, typer.Option(help="The sheet of a workbook, where several hold cells.")] = "",
    header: Annotated[
        bool, typer.Option(help="Whether the first line names the columns; else you name them in the draft.")
    ] = True,
    json: Json = False,
) -> None:
    """Write a draft of a schema from column names and types. No value is read; what is public knowledge is yours to
    fill in.

    With --data it also proposes how the file is written, from the cells of its first rows: `format`, the marks of
    decimals, patterns of dates, words for yes and no. Never a range, never a category.

    \b
    dpserve schema draft adult.parquet > adult.yaml
    dpserve schema draft visits.csv --data > visits.yaml
    dpserve schema draft adult.data --data --no-header > adult.yaml
    """
    from training.datasets.drafts.proposal import SchemaProposal  # loads what reads rows

    proposal = SchemaProposal.of_file(file, data, sheet=sheet, header=header)
    text = proposal.to_yaml(file.name, data)
    show(json, {"schema": text}, text.rstrip("\n"))
    if proposal.reading:
        note(proposal.reading)
    for column, question in proposal.questions.items():
        note(f"{column} may be read as\n{align_columns(question.table())}")
    if proposal.people_words:
        note("\n".join(["May name people, the likeliest first:", *(f"  {line}" for line in proposal.people_words)]))
    note("Fill in every FILL-IN from public knowledge, never from the rows: dpserve accepts the file only then.")
