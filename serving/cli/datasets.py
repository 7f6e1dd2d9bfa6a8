"""Commands of the steward: datasets, their budgets and quotas, and drafts of schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import blocks_words, left_words, windows_words
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal
from serving.cli.backend import backend
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import Name
from serving.cli.terminal import Json, align_columns, note, show, show_busy
from training.planning.job_views import dataset_to_json

LISTED = 12  # blocks in a line of text

Unit = Annotated[
    str | None, typer.Option(help='The column that names the person, or "record": each row is another person.')
]
QueryReason = Annotated[
    str | None,
    typer.Option(help="Why each row that the query answers is about one person alone, where nothing shows it."),
]
Family = Annotated[list[str] | None, typer.Option(help="A dataset of the same people, or their family. Repeatable.")]
FamilyName = Annotated[
    str | None, typer.Option(help="Name of the family that is founded; the dataset's when left out.")
]
Holdout = Annotated[
    str | None,
    typer.Option(help="Share of the people kept aside for evaluation, 0.2 for instance; or none, as when left out."),
]

NewPeopleSaid = Annotated[
    bool, typer.Option("--new-people", help="These are people without a budget yet, whatever they look like.")
]
OnePerson = Annotated[bool, typer.Option("--one-person", help="An id with many more rows than others is one person.")]
DistinctIds = Annotated[
    bool,
    typer.Option("--distinct-ids", help="Ids that capitals or leading zeros alone tell apart are different people."),
]


def register(
    name: Name,
    data: Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")],
    schema: Annotated[Path | None, typer.Option(help="The public schema, YAML.")] = None,
    query: Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")] = None,
    query_reason: QueryReason = None,
    table: Annotated[str | None, typer.Option(help="Of a database: the whole table.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Epsilon in all, permanently.")] = None,
    delta: Annotated[str | None, typer.Option(help="Delta in all, permanently.")] = None,
    relation: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    unit: Unit = None,
    contributions: Annotated[int, typer.Option(help="Rows of one person that are used at most.")] = 1,
    family: Family = None,
    family_name: FamilyName = None,
    holdout: Holdout = None,
    new_people: NewPeopleSaid = False,
    reason: Annotated[str | None, typer.Option(help="Why. It stays in the ledger permanently.")] = None,
    person_epsilon: Annotated[str | None, typer.Option(help="Epsilon for one person over all blocks to come.")] = None,
    person_delta: Annotated[str | None, typer.Option(help="Delta for one person over all blocks to come.")] = None,
    one_person: OnePerson = False,
    distinct_ids: DistinctIds = False,
    tries: Annotated[bool, typer.Option("--made-up", help="The rows are made up, to try things with.")] = False,
    json: Json = False,
) -> None:
    """Register a dataset: with its total budget, or in the family of others whose people it holds too.

    A refreshed, filtered or joined copy is about the same people: it shares their budget and gets none of its own.

    \b
    dpserve dataset register adult --data adult.parquet --schema adult.yaml --epsilon 3 --delta 1e-5 --holdout 0.2
    dpserve dataset register taxis --data 's3://rows/taxis/*.parquet' --schema taxis.yaml --epsilon 3 --delta 1e-5
    dpserve dataset register adult-2027 --data new.parquet --schema adult.yaml --family adult
    dpserve dataset register visits --data env:URL --table visits --schema visits.yaml --epsilon 3 --delta 1e-5
    """
    # What reads rows loads slowly, and lists wait for none of it.
    from training.datasets.drafts.asked import AskedRegistration, register_asked
    from training.datasets.opened import RowSource, rows_at

    if schema is None:
        raise InputError(
            "schema: --schema FILE says what is public; on a terminal, dpserve dataset guide FILE asks for it; "
            "dpserve schema draft FILE --data writes one to fill in"
        )
    home = Home.open()
    registration = AskedRegistration(
        name, epsilon, delta, relation, unit, contributions, tuple(family or ()), family_name, holdout, new_people,
        reason, tries, person_epsilon, person_delta, one_person, distinct_ids,
    )  # fmt: skip
    registration.check()
    for shared in registration.family:
        require_access(home, "steward", dataset=home.ledger.member(shared))
    access = require_access(home) if registration.family else require_access(home, "steward")
    source = RowSource(data, query, table, query_reason)
    row_query = None if source.stated is None else RowQuery.of(source.stated, query_reason, this_user())
    with show_busy(f"packing the rows of {name}"), rows_at(home, source, schema, unit) as (rows, origin):
        dataset = register_asked(home, registration, rows, schema, this_user(), origin, row_query, access)
    if dataset.holdout is None and not registration.family and holdout is None:
        note("All rows are for training. With --holdout 0.2 a fifth of the people would be kept aside, with a budget")
        note("of their own, so that models can be evaluated on them; that cannot be declared later.")
    show_as_is(home, dataset, json)


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
    home = Home.open()
    require_access(home, "steward", dataset=name)
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
    home = Home.open()
    require_access(home, "steward", dataset=name)
    home.ledger.set_quota(name, analyst, exact_decimal("share", share), reason, this_user())
    quotas = home.ledger.quotas(name)
    rows = [("ANALYST", "QUOTA", "USED"), *((q["analyst"], q["quota"] or "none", q["used"]) for q in quotas)]
    show(json, {"dataset": name, "quotas": quotas}, align_columns(rows))


def list_datasets(json: Json = False) -> None:
    """List the families, each with its datasets and the one budget that they share.

    \b
    dpserve dataset list
    """
    datasets = backend().datasets
    if json:
        return show(True, {"datasets": datasets.list_all()}, "")
    rows = [("FAMILY", "DATASETS", "RELATION", "TOTAL", "LEFT")]
    for body in datasets.list_families():
        total = f"epsilon {body['epsilon']}, delta {body['delta']}"
        members = ", ".join(body["datasets"])
        rows.append((body["name"], members, body["relation"], total, left_words(body["budget"]["left"])))
    return show(False, {}, align_columns(rows))


def show_dataset(name: Name, json: Json = False) -> None:
    """Show a dataset: its budget, and how many jobs still fit.

    \b
    dpserve dataset show adult
    """
    with show_busy("pricing a job of each learner"):
        body = backend().datasets.get(name)
    show(json, body, dataset_text(body))


def show_as_is(home: Home, dataset: Dataset, json: bool) -> None:
    """Show a dataset as a command left it."""
    body = dataset_to_json(home, dataset)
    show(json, body, dataset_text(body))


def dataset_text(body: dict[str, Any]) -> str:
    """Describe a dataset in lines for people."""
    budget = body["budget"]
    closed = budget["closed_by"]
    jobs = ", ".join(f"{count} of {learner}" for learner, count in budget["jobs_left"].items())
    forecast, rate = body["forecast"], "nothing was spent lately"
    where = f"{blocks_words(budget['left']['window'])}: " if "windows" in budget["left"] else ""
    if forecast["days_left"] is not None:
        rate = f"{float(forecast['share_per_day']):.2%} a day, {forecast['days_left']} days left"
    elif float(forecast["share_per_day"]):
        rate = "too early to say"
    block = budget["account"].get("block")
    most = f", of block {block}, of which most is used" if block is not None else ""
    lines = [
        ("dataset", body["name"]),
        ("family", ", ".join(body["family_names"])),
        ("relation", f"{body['relation']}, unit of privacy: {body['unit']}"),
        *(("targets", f"{', '.join(names)}; a job says --target") for names in [body.get("targets")] if names),
        ("total", f"epsilon {body['epsilon']}, delta {body['delta']}"),
        *([] if budget["largest"] == body["epsilon"] else [("largest ever", f"epsilon {budget['largest']}")]),
        ("spent", f"epsilon {budget['spent']['epsilon']}, converted at delta {body['delta']}{most}"),
        ("reserved", f"epsilon {budget['reserved']['epsilon']}, converted at delta {body['delta']}{most}"),
        *(("left", words) for words in windows_words(budget["left"]) or [left_words(budget["left"])]),
        *([("blocks", _blocks_text(body["blocks"]))] if "blocks" in body else []),
        *([("one person", _person_text(body["person"]))] if "person" in body else []),
        *(
            (
                "kept aside",
                f"{float(holdout['share']) * 100:g} %; left {left_words(holdout['budget']['left'], 'evaluation')}",
            )
            for holdout in [body.get("holdout")]
            if holdout
        ),
        *([] if closed is None else [("closed", f"by job {closed}, which took the whole total: nothing is admitted")]),
        ("still fit", f"{where}at a tenth of the total epsilon each: {jobs or 'none'}"),
        ("at this rate", where + rate),
        *(("quota", f"{q['analyst']}: {q['used']} used of {q['quota'] or 'any'}") for q in body["quotas"]),
    ]
    return align_columns(lines)


def _person_text(person: dict[str, Any]) -> str:
    total, spent = person["total"], person["spent"]["epsilon"]
    return (
        f"epsilon {total['epsilon']} at delta {total['delta']} over all blocks that will ever come; {spent} is spent, "
        f"left {left_words({name: person['left'][name] for name in ('share', 'one_job')})}"
    )


def _blocks_text(blocks: dict[str, Any]) -> str:
    """Say how many blocks there are, and what is left of the newest."""
    newest = ", ".join(f"{block['block']}: {float(block['left']):.1%}" for block in blocks["listed"][-LISTED:])
    gone = f"; the rows up to {blocks['dropped']} are deleted" if blocks["dropped"] else ""
    return f"{blocks['last']}{gone}; left of each, the newest last: {newest}"


def draft(
    file: Annotated[Path, typer.Argument(help="A file or folder of rows.")],
    data: Annotated[
        bool,
        typer.Option("--data", help="Look at how cells are written, too: marks, dates, words."),
    ] = False,
    json: Json = False,
) -> None:
    """Draft a schema from column names and types. No value is read; what is public knowledge is yours to fill in.

    With --data it also proposes how the file is written, from the cells of its first rows: `format`, the marks of
    decimals, patterns of dates, words for yes and no. Never a range, never a category.

    \b
    dpserve schema draft adult.parquet > adult.yaml
    dpserve schema draft visits.csv --data > visits.yaml
    """
    from training.datasets.drafts.proposal import SchemaProposal  # loads what reads rows

    text = SchemaProposal.of_file(file, data).to_yaml(file.name, data)
    show(json, {"schema": text}, text.rstrip("\n"))
    note("Fill in every FILL-IN from public knowledge, never from the rows: dpserve accepts the file only then.")
