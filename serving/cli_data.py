"""Commands of the steward and the analyst: datasets, schemas, prices, training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.budget import Budget, parse_relation
from accountant.errors import InputError
from accountant.home import Home
from serving.terminal import Json, aligned, note, rounds, show, this_user

dataset = typer.Typer(help="Register datasets, and see what is left of their budgets.", no_args_is_help=True)
schema = typer.Typer(help="Schemas: what everybody may know before any row is read.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The dataset's name.")]
Learner = Annotated[str, typer.Option(help="The learner, for instance lazybb.")]
Epsilon = Annotated[str, typer.Option(help="Epsilon of this job, a decimal.")]
Delta = Annotated[str | None, typer.Option(help="Delta of this job; the dataset's when left out.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A parameter of the learner, key=value. Repeatable.")]
Model = Annotated[str | None, typer.Option(help="Name of the model; the dataset's when left out.")]


@dataset.command("register")
def register(
    name: Name,
    data: Annotated[Path, typer.Option(help="The rows, .parquet or .csv.")],
    schema: Annotated[Path, typer.Option(help="The public schema, YAML.")],
    epsilon: Annotated[str, typer.Option(help="Epsilon in all, for ever.")],
    delta: Annotated[str, typer.Option(help="Delta in all, for ever.")],
    relation: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    unit: Annotated[str | None, typer.Option(help="The column that names the person.")] = None,
    json: Json = False,
) -> None:
    """Register a dataset with its total budget. Given once, and never changed.

    \b
    dpserve dataset register adult --data adult.parquet --schema adult.yaml --epsilon 3 --delta 1e-5
    """
    from training import job

    home = Home.open()
    found = job.register(home, name, data, schema, Budget.of(epsilon, delta), parse_relation(relation), unit)
    body = job.dataset_to_json(home, found)
    show(json, body, _dataset_text(body))


@dataset.command("list")
def list_datasets(json: Json = False) -> None:
    """List the datasets and their budgets.

    \b
    dpserve dataset list
    """
    from training import job

    home = Home.open()
    found = [job.dataset_to_json(home, each) for each in home.ledger.datasets()]
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


@dataset.command("show")
def show_dataset(name: Name, json: Json = False) -> None:
    """Show a dataset: its budget, and how many jobs still fit.

    \b
    dpserve dataset show adult
    """
    from training import job

    home = Home.open()
    body = job.dataset_to_json(home, home.ledger.dataset(name))
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
    ]
    return aligned(lines)


@schema.command("draft")
def draft(
    file: Annotated[Path, typer.Argument(help="A .parquet or .csv file.")],
    json: Json = False,
) -> None:
    """Draft a schema from column names and types. No value is read; what is public knowledge is yours to fill in.

    \b
    dpserve schema draft adult.parquet > adult.yaml
    """
    from training import job

    text = job.draft_schema(file)
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
    from training import job

    body = job.plan(Home.open(), job.Asked(name, learner, epsilon, delta, parameters(set), model)).to_json()
    lines = [
        ("job", f"{body['learner']} on {body['dataset']}, {body['rounds']} releases"),
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}, {body['relation']}"),
        ("left after it", f"epsilon {body['left']['epsilon']}, and {body['left']['jobs']} more jobs like it"),
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

    home, asked = Home.open(), job.Asked(name, learner, epsilon, delta, parameters(set), model)
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
