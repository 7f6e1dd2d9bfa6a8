"""Pages of jobs: all of them, one with its progress, and the form, which shows a job's price before it can be sent."""

from __future__ import annotations

import uuid
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.certificates.answer import ANSWER
from accountant.certificates.statement_kinds import kind_at
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger.entry_search import Wanted, search
from accountant.ledger.families import family_rows
from accountant.ledger.families.job_kinds import Profile, kind_of
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import ISSUED, PUBLIC_STATES
from accountant.ledger.questions import about_job
from dpserve_verify.errors import DpserveError
from models.answers import report as answer_report
from models.profile import report
from models.store.versions import versions_by_entry
from serving.http.rights import JOBS, LISTED, NAMED, READS, seen_datasets
from serving.http.routes import access, in_snapshot, in_thread, job_number, page_door, state, with_prices
from serving.operations.doors import caller_of
from serving.operations.jobs import cancel_job
from serving.pages.datasets import every_dataset
from serving.pages.job_form import Form, price_of, send, view
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire import lists
from serving.wire.request_bodies import known_query, query_int
from training.kinds.registry import stated_steps
from training.planning.job_views import job_to_json, jobs_to_json
from training.requests import EvaluationRequest, ProfileRequest, QueryRequest

ASKS = ("train",)
ON_A_PAGE = 30
MAX_STEPS = 20
COLUMNS = (
    *("job", "state", "dataset", "target", "learner", "epsilon", "delta"),
    *("model", "version", "version_state", "by", "time"),
)


async def jobs(request: Request) -> Response:
    """Return a page of jobs, the newest first; of one dataset or state where the query names it."""
    known_query(request, "dataset", "state", "after", lists.FORM)
    terms = {name: request.query_params.get(name, "").strip() for name in ("dataset", "state")}
    form, after = lists.form_of(request), query_int(request, "after", -1)
    if form is not None:
        return lists.as_file(form, "jobs", COLUMNS, await in_thread(_all, state(request).home, terms, access(request)))
    context = await in_snapshot(
        request, _jobs, state(request).home, terms, None if after < 0 else after, access(request)
    )
    waits = any(PUBLIC_STATES[job["state"]].open for job in context["jobs"])
    return page(
        request,
        "jobs.html",
        **context,
        asked=terms,
        states=list(PUBLIC_STATES),
        newest=after < 0,
        waits=waits,
        most=lists.MAX_LINES,
    )


def _jobs(home: Home, terms: dict[str, str], after: int | None, rights: Access) -> dict[str, Any]:
    wanted = (terms["dataset"] or None, terms["state"] or None)
    listing = jobs_to_json(home, *wanted, after, ON_A_PAGE, rights)
    return {**listing, "datasets": 1 if listing["jobs"] else len(seen_datasets(rights, every_dataset(home)))}


def _all(home: Home, terms: dict[str, str], rights: Access) -> list[dict[str, Any]]:
    """Return all pages of the list together."""
    wanted = (terms["dataset"] or None, terms["state"] or None)

    def part(after: int | None) -> tuple[list[dict[str, Any]], int | None]:
        listing = jobs_to_json(home, *wanted, after, lists.PART_LINES, rights)
        return listing["jobs"], listing["next"]

    return lists.all_lines(part)


async def job(request: Request) -> Response:
    """Return the page of a job, step by step."""
    known_query(request)
    context = await in_snapshot(request, _job, state(request).home, job_number(request), access(request))
    of = PUBLIC_STATES[context["job"]["state"]]
    job_json = context["job"]
    makes = job_json["state"] == ISSUED and kind_of(job_json).makes_model
    unstored = makes and job_json["version"] is None  # its version is put among the models this moment
    cancellable = of.cancellable and context["theirs"]
    return page(request, "job.html", **context, open=of.open or unstored, cancellable=cancellable)


def _job(home: Home, seq: int, rights: Access) -> dict[str, Any]:
    """Return a job, its request, and its steps: entries of the ledger. `theirs`: whether the caller may cancel it."""
    home.ledger.log.database.ask(about_job(seq))
    row = home.ledger.job(seq)
    home.ledger.log.database.ask(family_rows.questions(row.dataset, rights.principal))
    job_json = job_to_json(home, row)
    steps = search(home.ledger.log.database, Wanted(job=seq), limit=MAX_STEPS).entries
    entry = home.ledger.reservation(seq).value
    delta = Decimal(0) if kind_of(job_json).is_pure else None
    budget = describe_budget(home.ledger.dataset_of(seq, rights.principal), delta)
    step_lines = [
        {"kind": step.value["type"], "time": step.value["time"], "entry": step.seq} for step in reversed(steps)
    ]
    return {
        "job": job_json, "steps": step_lines, "parameters": entry["parameters"], "budget": budget,
        "theirs": rights.has(*ASKING) and rights.may_cancel(row), **_released(home, job_json, rights),
    }  # fmt: skip


def _released(home: Home, job_json: dict[str, Any], rights: Access) -> dict[str, Any]:
    """Return what a finished evaluation or profile says, as far as the caller may see it: `result`, `counted`, and the
    `model` that was measured.
    """
    kind, seq, dataset = kind_of(job_json), job_json["job"], job_json["dataset"]
    shown: dict[str, Any] = {"result": None, "counted": [], "model": None}
    if job_json["state"] != ISSUED or kind.makes_model or not rights.may(*READS, dataset=dataset):
        return shown
    with suppress(UnknownName):  # in another home of the same ledger
        if isinstance(kind, Profile) and kind_at(home, seq) is ANSWER:
            return {**shown, "counted": answer_report.facts(stated_steps(QueryRequest).read(home, seq)[3])}
        if isinstance(kind, Profile):
            return {**shown, "counted": report.facts(stated_steps(ProfileRequest).read(home, seq)[3])}
        result = stated_steps(EvaluationRequest).read(home, seq)[3]
        version = versions_by_entry(home, result["model"]).get(result["certificate"])
        return {**shown, "result": result, "model": version and f"{result['model']}@{version[0]}"}
    return shown


async def cancel(request: Request) -> Response:
    """Cancel a job that has not started."""
    await form_fields(request)
    seq = job_number(request)
    await in_thread(cancel_job.function, caller_of(request), seq)
    return see_other(f"/ui/jobs/{seq}")


async def new(request: Request) -> Response:
    """Return the page of the form; with `epsilon` in the query it has its price, for browsers without scripts. One form
    has one key, which then stands in its address too: going back to it and sending it again gives the same job.
    """
    key = request.query_params.get("idempotency_key") or uuid.uuid4().hex
    return await _form(request, Form.of(request.query_params.multi_items()), key)


async def _form(
    request: Request, form: Form, key: str, refusal: DpserveError | None = None, problem: str = ""
) -> Response:
    home, rights = state(request).home, access(request)
    context = await in_snapshot(request, view, home, form, rights)
    price = await price_of(home, form, rights, partial(with_prices, request))
    return page(request, "job_new.html", refusal=refusal, **context, form=form, key=key, price=price, problem=problem)


async def price(request: Request) -> Response:
    """Return a part of the form: the price of what stands in it now, and the button that sends exactly that."""
    form = Form.of(request.query_params.multi_items())
    form_price = await price_of(state(request).home, form, access(request), partial(with_prices, request))
    return page(request, "_price.html", form=form, price=form_price)


async def parameters(request: Request) -> Response:
    """Return a part of the form: the parameters of the chosen learner."""
    form = Form.of(request.query_params.multi_items())
    context = await in_snapshot(request, view, state(request).home, form, access(request))
    return page(request, "_parameters.html", form=form, **context)


async def blocks(request: Request) -> Response:
    """Return a part of the form: what depends on the chosen dataset and target, which are the blocks where it has
    grown, the targets, the learners that fit, and their parameters.
    """
    form = Form.of(request.query_params.multi_items())
    context = await in_snapshot(request, view, state(request).home, form, access(request))
    return page(request, "_choices.html", form=form, **context)


async def submit(request: Request) -> Response:
    """Submit what was priced; anything else shows its price first."""
    fields = await form_fields(request)
    form, key = Form.of(list(fields.items())), fields.get("idempotency_key", "")
    sent = await with_prices(request, send, state(request).home, form, fields.get("priced", ""), key, access(request))
    if sent.job is not None:
        return see_other(f"/ui/jobs/{sent.job}")
    return await _form(request, form, sent.key, sent.refusal, sent.problem)


DOORS = (
    page_door("GET", "/ui/jobs", JOBS, jobs, "Jobs, the newest first", on=LISTED),
    page_door("GET", "/ui/jobs/new", ASKS, new, "The form of a new job", on=NAMED),
    page_door("POST", "/ui/jobs/new", ASKS, submit, "Submit a job", 303, on=NAMED),
    page_door("GET", "/ui/jobs/price", ASKS, price, "What a job would cost", on=NAMED),
    page_door("GET", "/ui/jobs/parameters", ASKS, parameters, "What a learner takes", on=NAMED),
    page_door("GET", "/ui/jobs/blocks", ASKS, blocks, "What depends on the dataset", on=NAMED),
    page_door("GET", "/ui/jobs/{job}", JOBS, job, "A job and its progress"),
    page_door("POST", "/ui/jobs/{job}/cancel", ASKING, cancel, "Cancel a job before it started", 303),
)
