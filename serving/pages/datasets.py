"""Pages of datasets: what is left of each budget, how it was used up, and what would still fit. No row is read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.home import Home
from accountant.home.notes import note_of, notes
from accountant.ledger import evaluations
from accountant.ledger.archive import archived
from accountant.ledger.families import family_rows
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import describe_accounts, describe_budget
from accountant.ledger.families.records import Unit
from accountant.ledger.families.windows import MAX_BLOCKS
from accountant.ledger.forecast import about_dataset
from accountant.ledger.ledger import Ledger
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import Relation
from serving.http.rights import LISTED, READS, seen_families
from serving.http.routes import access, in_snapshot, in_thread, page_door, state, with_prices
from serving.operations import Caller, Operation, at_home, totals
from serving.operations.answers import Answer
from serving.pages.parts import burndown_chart
from serving.pages.parts.blocks import blocks_of
from serving.pages.parts.burndown import Point, burndown, by_model
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire import lists
from serving.wire.request_bodies import known_query, query_int
from training.datasets.drafts.sample import sample_folder
from training.measuring.profile.release import profiles_of
from training.planning.job_views import family_to_json, jobs_to_json, problems_of, read_facts
from training.planning.plans import jobs_left
from training.rows.schema.described import describe_columns

NEWEST_JOBS = 5
FIGURES = {"spent": "epsilon", "reserved": "epsilon", "left": "share"}
COLUMNS = (
    *("family", "datasets", "relation", "unit", "epsilon", "delta", *FIGURES, "one_job", "bound_by", "protects"),
    "problem",
)
RELATIONS = {
    "add-remove": "whether a {unit} is in it or not",
    "replace-one": "what any one {unit} in it says; how many there are is public",
}


def offers() -> dict[str, Any]:
    """Return what a page needs that offers to upload a file or to take the sample."""
    return {"has_sample": sample_folder() is not None}


async def datasets(request: Request) -> Response:
    """Return the page of the families where a name holds `q`, with their datasets; the one with the least left
    first.
    """
    form, part, home = lists.form_of(request), lists.page_part(request, "archived"), state(request).home
    families = await in_thread(tightest_first, home, access(request))
    hidden = await in_thread(archived, home.ledger, "dataset")
    shown, following = part.cut(
        families,
        lambda line: line["name"],
        lambda line: [line["name"], *line["datasets"]],
        lambda line: all(name in hidden for name in line["datasets"]),
    )
    if form is not None:
        return lists.as_file(form, "families", COLUMNS, map(_row, shown))
    return page(
        request, "datasets.html", families=shown, asked=part.q, total=len(families), archived=len(hidden),
        every=part.archived,
        pager=lists.pager("/ui/datasets", part, following), notes=await in_thread(notes, home.path, "dataset"),
        **offers(),
    )  # fmt: skip


def _row(family: dict[str, Any]) -> dict[str, Any]:
    """Return a family as a row of a file: its figures, and of what is left the share and the largest job."""
    budget = family["budget"]
    figures = {name: budget[name][field] for name, field in FIGURES.items()}
    left = {
        "one_job": (budget["left"]["one_job"] or {"epsilon": "0"})["epsilon"],
        "bound_by": budget["left"]["binding"]["words"],
    }
    return {**family, "family": family["name"], **figures, **left}


def tightest_first(home: Home, rights: Access) -> list[dict[str, Any]]:
    """Return every family that the caller may see, with its budget and its datasets, the one with the least left
    first.
    """
    datasets = every_dataset(home, rights.principal)
    problems = problems_of(home, datasets)
    families = [
        family_to_json(row, problems) | {"protects": _protects(row.family.relation, row.family.unit)}
        for row in seen_families(rights, datasets)
    ]
    return sorted(families, key=lambda each: float(each["budget"]["left"]["share"]))


def every_dataset(home: Home, analyst: str | None = None) -> tuple[Dataset, ...]:
    """Load every dataset as the ledger's newest entry left it, under the quotas of an `analyst`."""
    return _as_of(home.ledger, home.ledger.log.size(), analyst)


@lru_cache(maxsize=16)
def _as_of(ledger: Ledger, size: int, analyst: str | None) -> tuple[Dataset, ...]:
    """Return the datasets as of a ledger of so many entries; cached, for none changes without an entry."""
    return tuple(ledger.datasets(analyst))


def line(dataset: Dataset) -> dict[str, Any]:
    """Return a dataset's fields at the head of its page."""
    registration = dataset.registration
    return {
        "name": registration.name,
        "unit": registration.unit.name,
        "relation": registration.relation.value,
        "protects": _protects(registration.relation, registration.unit),
        "budget": describe_budget(dataset),
    }


def _protects(relation: Relation, unit: Unit) -> str:
    return RELATIONS[relation.value].format(unit=unit.name)


async def dataset(request: Request) -> Response:
    """Return the page of a dataset: budget, families, quotas, how it was used up, the newest jobs."""
    known_query(request, "before")
    return await _dataset_page(request)


async def _dataset_page(request: Request, problem: DpserveError | None = None) -> Response:
    before = query_int(request, "before", MAX_BLOCKS + 1, 2, MAX_BLOCKS + 1)
    context = await in_snapshot(
        request, _dataset, state(request).home, request.path_params["name"], access(request), before
    )
    return page(request, "dataset.html", refusal=problem, **context)


async def change_budget(request: Request) -> Response:
    """Set another total for a dataset, which the ledger keeps with its reason."""
    typed = await form_fields(request, "epsilon", "reason")
    return await _change(request, totals.change_budget, typed)


async def set_quota(request: Request) -> Response:
    """Set what one analyst may use of the budget."""
    typed = await form_fields(request, "analyst", "share", "reason")
    return await _change(request, totals.set_quota, {**typed, "analyst": typed["analyst"].strip() or "*"})


async def withdraw(request: Request) -> Response:
    """Withdraw a registration that nothing was spent on."""
    return await _change(request, totals.withdraw_dataset, await form_fields(request, "reason"), "/ui/datasets")


async def _change(
    request: Request, asked: Operation[..., Answer], typed: Mapping[str, str], then: str = ""
) -> Response:
    name, who = request.path_params["name"], Caller(state(request).home, access(request))
    try:
        body = asked.parameters["body"].of({field: text.strip() for field, text in typed.items()})
        await in_thread(partial(at_home, asked, who, name=name, body=body))
    except InputError as error:
        return await _dataset_page(request, error)
    return see_other(then or f"/ui/datasets/{name}")


def _dataset(home: Home, name: str, rights: Access, before: int) -> dict[str, Any]:
    home.ledger.log.database.ask(family_rows.questions(name, None))
    dataset = home.ledger.dataset(name, rights.principal)
    home.ledger.log.database.ask(about_dataset(dataset))
    evaluations.ask_profiles(home.ledger.log.database)
    jobs = jobs_to_json(home, dataset=name, limit=NEWEST_JOBS, access=rights)  # asks the most
    facts, registration = read_facts(home, dataset, True, rights.principal), dataset.registration
    size = home.ledger.log.size()
    (points, by_models), now = _history(home.ledger, name, size), datetime.now(UTC)
    return {
        **line(dataset),
        "lost": problems_of(home, [dataset]).get(name),
        "contributions": registration.unit.contributions,
        "column": registration.unit.column,
        "records": registration.records if registration.relation == "replace-one" else None,
        "targets": registration.targets,
        "weight": registration.weight,
        "schema": registration.schema,
        "columns": describe_columns(home, dataset),
        "entry": dataset.seq,
        "version": dataset.version,
        "families": [
            {**family_to_json(row, {}), "id": row.family.identity}
            for row in seen_families(rights, every_dataset(home, rights.principal))
            if name in row.names
        ],
        **facts,
        "models": by_models,
        "points": points,
        "chart": burndown_chart.staircase([(point.time, 1 - point.share) for point in points], now),
        "jobs": jobs,
        "trains": rights.may("train", dataset=name) and not facts["archived"],
        "keeps": rights.may("steward", dataset=name),
        "states": rights.may("steward", "audit", dataset=name),
        "measures": rights.may(*ASKING, dataset=name),
        **offers(),
        "note": note_of(home.path, "dataset", name),
        "profiles": profiles_of(home, name),
        "blocks": blocks_of(home, dataset, before),
        "aside": None if dataset.holdout is None else float(dataset.holdout),
        "holdout": facts["holdout"]["budget"] if "holdout" in facts else None,
        "person": None if dataset.person is None else describe_accounts([dataset.person]),
    }


@lru_cache(maxsize=64)
def _history(ledger: Ledger, name: str, size: int) -> tuple[list[Point], list[dict[str, Any]]]:
    """Return how the budget was used up to the newest of `size` entries, and each model's part of it."""
    return burndown(ledger, name), by_model(ledger, name)


async def fits(request: Request) -> Response:
    """Return a part of the dataset's page that takes longer: what would still fit, per learner."""
    known_query(request)
    name = request.path_params["name"]
    context = await with_prices(request, _fits, state(request).home, name, access(request).principal)
    trains = await in_thread(partial(access(request).may, "train", dataset=name))
    return page(request, "_fits.html", **context, trains=trains)


def _fits(home: Home, name: str, analyst: str) -> dict[str, Any]:
    dataset = home.ledger.dataset(name, analyst)
    problem = problems_of(home, [dataset]).get(name)
    left = {} if problem else jobs_left(home, dataset)
    return {"name": name, "left": left, "epsilon": dataset.budget.epsilon / 10, "problem": problem}


STEWARD = ("steward",)
DOORS = (
    page_door("GET", "/ui/datasets", READS, datasets, "Datasets and their budgets", on=LISTED),
    page_door("GET", "/ui/datasets/{name}", READS, dataset, "A dataset, its budget and its jobs"),
    page_door("POST", "/ui/datasets/{name}/budget", STEWARD, change_budget, "Change it", 303),
    page_door("POST", "/ui/datasets/{name}/quotas", STEWARD, set_quota, "Set a quota", 303),
    page_door("POST", "/ui/datasets/{name}/withdraw", STEWARD, withdraw, "Withdraw it", 303),
    page_door("GET", "/ui/datasets/{name}/fits", READS, fits, "What would still fit"),
)
