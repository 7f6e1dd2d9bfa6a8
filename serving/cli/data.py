"""Commands of the steward and the analyst: datasets, schemas, prices, training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.budget import Budget, exact_decimal, parse_relation
from accountant.errors import InputError
from accountant.home import Home
from serving.cli.complete import DATASETS, LEARNERS
from serving.cli.terminal import Json, aligned, busy, note, rounds, show, this_user

Name = Annotated[str, typer.Argument(help="The dataset's name.", autocompletion=DATASETS)]
Learner = Annotated[str, typer.Option(help="The learner, for instance lazybb.", autocompletion=LEARNERS)]
Epsilon = Annotated[str, typer.Option(help="Epsilon of this job, a decimal.")]
Delta = Annotated[str | None, typer.Option(help="Delta of this job; the dataset's when left out.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A parameter of the learner, key=value. Repeatable.")]
Model = Annotated[str | None, typer.Option(help="Name of the model; the dataset's when left out.")]


def register(
    name: Name,
    data: Annotated[Path, typer.Option(help="The rows, .parquet or .csv.")],
    schema: Annotated[Path, typer.Option(help="The public schema, YAML.")],
    epsilon: Annotated[str | None, typer.Option(help="Epsilon in all, for ever.")] = None,
    delta: Annotated[str | None, typer.Option(help="Delta in all, for ever.")] = None,
    relation: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    unit: Annotated[str | None, typer.Option(help="The column that names the person.")] = None,
    contributions: Annotated[int, typer.Option(help="Rows of one person that are used at most.")] = 1,
    family: Annotated[
        list[str] | None, typer.Option(help="A dataset of the same people, whose budget is shared. Repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Register a dataset: with its total budget, or in the family of others whose people it holds too.

    A refreshed, filtered or joined copy is about the same people: it shares their budget and gets none of its own.

    \b
    dpserve dataset register adult --data adult.parquet --schema adult.yaml --epsilon 3 --delta 1e-5
    dpserve dataset register adult-2027 --data new.parquet --schema adult.yaml --family adult
    """
    from training.job_views import dataset_to_json
    from training.rows import datasets

    home = Home.open()
    budget = _total(epsilon, delta, family or [])
    promised, shared = parse_relation(relation), family or []
    with busy(f"packing the rows of {name}"):
        found = datasets.register(home, name, data, schema, budget, promised, unit, contributions, shared)
    body = dataset_to_json(home, found)
    show(json, body, _dataset_text(body))


def _total(epsilon: str | None, delta: str | None, family: list[str]) -> Budget | None:
    if family and epsilon is None and delta is None:
        return None
    if family or epsilon is None or delta is None:
        raise InputError("budget: give --epsilon and --delta, or --family whose budget is shared, and not both")
    return Budget.of(epsilon, delta)


def change_budget(
    name: Name,
    epsilon: Annotated[str, typer.Option(help="The new total epsilon; what was spent stays spent.")],
    reason: Annotated[str, typer.Option(help="Why. It stands in the ledger for ever.")],
    json: Json = False,
) -> None:
    """Change the total epsilon of a dataset's family, by a reasoned entry in the ledger.

    Raising it weakens the promise that was made to the people in the data. Nothing that was spent comes back.

    \b
    dpserve dataset budget adult --epsilon 2 --reason "decision 14 of the data board"
    """
    from training.job_views import dataset_to_json

    home = Home.open()
    found = home.ledger.change_budget(name, exact_decimal("epsilon", epsilon), reason, this_user())
    body = dataset_to_json(home, found)
    show(json, body, _dataset_text(body))


def set_quota(
    name: Name,
    analyst: Annotated[str, typer.Option(help='Whose; "*" for everybody without a quota of their own.')],
    share: Annotated[str, typer.Option(help="Of the family's budget, above 0 and at most 1.")],
    reason: Annotated[str, typer.Option(help="Why. It stands in the ledger for ever.")],
    json: Json = False,
) -> None:
    """Set how much of a dataset's budget one analyst may use. What they used already counts.

    \b
    dpserve dataset quota adult --analyst alice --share 0.25 --reason "four projects"
    """
    home = Home.open()
    home.ledger.set_quota(name, analyst, exact_decimal("share", share), reason, this_user())
    found = home.ledger.quotas(name)
    rows = [("ANALYST", "QUOTA", "USED"), *((q["analyst"], q["quota"] or "none", q["used"]) for q in found)]
    show(json, {"dataset": name, "quotas": found}, aligned(rows))


def list_datasets(json: Json = False) -> None:
    """List the datasets and their budgets.

    \b
    dpserve dataset list
    """
    from training.job_views import dataset_to_json

    home = Home.open()
    found = [dataset_to_json(home, each, detail=False, priced=json) for each in home.ledger.datasets()]
    rows = [("NAME", "RELATION", "EPSILON", "SPENT", "RESERVED", "LEFT"), *map(_row, found)]
    show(json, {"datasets": found}, aligned(rows))


def _row(body: dict[str, Any]) -> tuple[str, ...]:
    budget = body["budget"]
    return (
        body["name"],
        body["relation"],
        body["epsilon"],
        *(budget[k]["epsilon"] for k in ("spent", "reserved", "left")),
    )


def show_dataset(name: Name, json: Json = False) -> None:
    """Show a dataset: its budget, and how many jobs still fit.

    \b
    dpserve dataset show adult
    """
    from training.job_views import dataset_to_json

    home = Home.open()
    body = dataset_to_json(home, home.ledger.dataset(name))
    show(json, body, _dataset_text(body))


def _dataset_text(body: dict[str, Any]) -> str:
    budget = body["budget"]
    jobs = ", ".join(f"{count} of {learner}" for learner, count in budget["jobs_left"].items())
    lines = [
        ("dataset", body["name"]),
        ("relation", f"{body['relation']}, unit of privacy: {body['unit']}"),
        ("total", f"epsilon {body['epsilon']}, delta {body['delta']}"),
        ("spent", f"epsilon {budget['spent']['epsilon']}"),
        ("reserved", f"epsilon {budget['reserved']['epsilon']}"),
        (
            "left",
            f"epsilon {budget['left']['epsilon']} ({float(budget['left']['share']):.1%} of what the filter admits)",
        ),
        ("still fit", f"at a tenth of the total epsilon each: {jobs or 'none'}"),
        ("at this rate", _forecast_text(body["forecast"])),
        *(("quota", f"{q['analyst']}: {q['used']} used of {q['quota'] or 'any'}") for q in body["quotas"]),
    ]
    return aligned(lines)


def _forecast_text(forecast: dict[str, Any]) -> str:
    if forecast["days_left"] is None:
        return "nothing was spent lately"
    return f"{float(forecast['share_per_day']):.2%} a day, {forecast['days_left']} days left"


def draft(
    file: Annotated[Path, typer.Argument(help="A .parquet or .csv file.")],
    json: Json = False,
) -> None:
    """Draft a schema from column names and types. No value is read; what is public knowledge is yours to fill in.

    \b
    dpserve schema draft adult.parquet > adult.yaml
    """
    from training.rows.row_files import draft_schema

    text = draft_schema(file)
    show(json, {"schema": text}, text.rstrip("\n"))
    note("Fill in every FILL-IN from public knowledge, never from the rows: dpserve accepts the file only then.")


def plan(
    name: Name,
    learner: Learner,
    epsilon: Epsilon,
    delta: Delta = None,
    set: Set = None,
    model: Model = None,
    json: Json = False,
) -> None:
    """Price a job: what it would cost and what would be left. Spends nothing.

    \b
    dpserve plan adult --learner lazybb --epsilon 0.5
    """
    from training import plans
    from training.plans import Asked

    asked = Asked(name, learner, epsilon, delta, parameters(set), model)
    body = plans.plan(Home.open(), asked, this_user()).to_json()
    lines = [
        ("job", f"{body['learner']} on {body['dataset']}, {body['rounds']} releases"),
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}, {body['relation']}"),
        ("left after it", f"epsilon {body['left']['epsilon']}, and {body['left']['jobs']} more jobs like it"),
        *(("warning", text) for text in body["warnings"]),
    ]
    show(json, body, aligned(lines))


def train(
    name: Name,
    learner: Learner,
    epsilon: Epsilon,
    delta: Delta = None,
    set: Set = None,
    model: Model = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key gives the same job, and spends once.")
    ] = None,
    json: Json = False,
) -> None:
    """Train a model: reserve its price, fit, certify, put it among the served models.

    \b
    dpserve train adult --learner lazybb --epsilon 0.5
    """
    from training import job
    from training.plans import Asked

    home, asked = Home.open(), Asked(name, learner, epsilon, delta, parameters(set), model)
    job.recover(home)
    with rounds(f"{learner} on {name}") as progress:
        body = job.train(home, asked, by=this_user(), key=idempotency_key, progress=progress)
    certificate = body["certificate"] or {}
    lines = [
        ("job", f"{body['job']}: {body['state']}"),
        ("model", body["model"]),
        ("spent", f"epsilon {body['epsilon']}, delta {body['delta']}, {body['rounds']} releases"),
        ("certificate", f"entry {certificate.get('entry')}, statement {certificate.get('statement')}"),
        ("left", f"epsilon {body['left']['epsilon']}"),
    ]
    show(json, body, aligned(lines))


def parameters(pairs: list[str] | None) -> dict[str, str]:
    """`key=value` texts as a mapping; InputError where one has no '=' or a key comes twice."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in found:
            raise InputError(f"--set {pair!r}: must be key=value, each key once")
        found[key] = value
    return found
