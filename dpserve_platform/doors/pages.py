"""The page of learners of others: what is admitted, a form that asks for a check and an admission, and removal."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from dpserve_platform.doors.learners import STEWARD, seen_learners
from dpserve_platform.outside import admitted
from dpserve_platform.outside.sources import LONGEST_TEXT
from dpserve_platform.replay import admission_checks
from dpserve_platform.replay.admission_checks import AdmissionRequest
from dpserve_verify.errors import DpserveError
from dpserve_verify.formats.canonical import whole_number
from serving.http.rights import LISTED, READS
from serving.http.routes import access, in_thread, page_door, state
from serving.pages.datasets import every_dataset
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire.request_bodies import known_query

PATH = "/ui/learners"
FIELDS = ("name", "kind", "author", "reason", "text", "neighbours", "dataset", "only")
FORM_BYTES = 4 * LONGEST_TEXT


async def list_learners(request: Request) -> Response:
    """Return the page: what is admitted, checks, and for stewards the form."""
    known_query(request)
    return await _page(request, {})


async def admit(request: Request) -> Response:
    """Ask for a check, which ends in an admission or says why not."""
    typed = await form_fields(request, *FIELDS, most=FORM_BYTES)
    about = (typed[name].strip() if name != "text" else typed[name].replace("\r\n", "\n") for name in FIELDS[:5])
    name, kind, author, reason, text = about
    played = whole_number(typed["neighbours"].strip() or "100")
    datasets = (typed["dataset"],) if typed["dataset"] else ()
    asked = AdmissionRequest(name, text, kind, author, reason, played or 0, datasets, bool(typed["only"]))
    try:
        await in_thread(admission_checks.ask, state(request).home, asked, access(request).principal)
    except DpserveError as error:
        return await _page(request, typed, error)
    return see_other(f"{PATH}#checks")


async def show_learner(request: Request) -> Response:
    """Return the page of one: who wrote it, who admitted it, what its check saw, and its text."""
    known_query(request)
    return await _show(request)


async def remove(request: Request) -> Response:
    """End an admission, with a reason that the ledger keeps."""
    typed = await form_fields(request, "reason")
    home, name = state(request).home, request.path_params["learner"]
    try:
        why = Why(access(request).principal, typed["reason"].strip())
        await in_thread(learner_admissions.remove, home.ledger, name, why)
    except DpserveError as error:
        return await _show(request, error)
    return see_other(PATH)


async def forget(request: Request) -> Response:
    """Take the word of a refused check off the page."""
    await form_fields(request)
    await in_thread(admission_checks.forget, state(request).home, request.path_params["learner"])
    return see_other(PATH)


async def _show(request: Request, problem: DpserveError | None = None) -> Response:
    found = await in_thread(admitted.shown, state(request).home, request.path_params["learner"])
    return page(request, "learner.html", refusal=problem, found=found, steward=access(request).may("steward"))


async def _page(request: Request, typed: dict[str, str], problem: DpserveError | None = None) -> Response:
    context = await in_thread(_context, state(request).home, access(request))
    form = {**dict.fromkeys(FIELDS, ""), **typed}
    return page(request, "learners.html", refusal=problem, form=form, **context)


def _context(home: Home, rights: Access) -> dict[str, Any]:
    steward = rights.may("steward")
    checks = admission_checks.checks(home) if steward else []
    return {
        "learners": seen_learners(home, rights),
        "checks": checks,
        "running": any(each["state"] == admission_checks.CHECKING for each in checks),
        "steward": steward,
        "reads": steward or rights.may("audit"),
        "datasets": [each.registration.name for each in every_dataset(home, rights.principal)] if steward else [],
    }


DOORS = (
    page_door("GET", PATH, READS, list_learners, "Learners of others", on=LISTED),
    page_door("POST", PATH, STEWARD, admit, "Admit a learner", 303),
    page_door("GET", f"{PATH}/{{learner}}", ("steward", "audit"), show_learner, "A learner"),
    page_door("POST", f"{PATH}/{{learner}}/remove", STEWARD, remove, "Remove a learner", 303),
    page_door("POST", f"{PATH}/{{learner}}/forget", STEWARD, forget, "Forget a check", 303),
)
