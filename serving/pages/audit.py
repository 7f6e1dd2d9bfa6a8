"""The page of the audit: what the last one found, how to ask for another, and how to repeat it without us."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.canonical import encode_base64
from accountant.errors import InputError
from accountant.home import Home
from accountant.log.notes import parse_checkpoint
from serving.http.routes import Door, in_thread, state
from serving.pages.ui import form_fields, page, see_other
from serving.process import audit_runs
from serving.wire.request_bodies import known_query, query_text

HTML = "text/html"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


async def shown(request: Request) -> Response:
    """With `asked`: until there is an audit that answers, the page says so and looks again."""
    known_query(request, "asked")
    asked = query_text(request, "asked") or ""
    if asked and not _TIME.fullmatch(asked):
        raise InputError(f"asked={asked[:40]!r}: must be the time of the answer that led here")
    return page(request, "audit.html", **await in_thread(_shown, state(request).home, asked))


def _shown(home: Home, asked: str) -> dict[str, Any]:
    note = home.ledger.log.checkpoint()
    head, last = parse_checkpoint(note), audit_runs.last_audit(home)
    answered = last is not None and last["at"] >= asked
    return {
        "last": last,
        "since": 0 if last is None else head.size - last["entries"],
        "waiting": audit_runs.is_asked(home.path) or not (answered or asked == ""),
        "asked": asked,
        "head": {"size": head.size, "root": encode_base64(head.root)},
        "note": note,
        "origin": home.ledger.log.origin,
    }


async def ask(request: Request) -> Response:
    """Ask for an audit, and lead to the page that waits for it."""
    await form_fields(request, "again")
    asked = await in_thread(audit_runs.ask, state(request).home)
    return see_other(f"/ui/audit?asked={asked}")


async def checkpoint(request: Request) -> Response:
    """The newest signed tree head, as a file to keep."""
    known_query(request)
    note = await in_thread(state(request).home.ledger.log.checkpoint)
    name = f"checkpoint-{parse_checkpoint(note).size}.txt"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(note, headers=headers, media_type="text/plain; charset=utf-8")


AUDIT = ("audit",)
DOORS = (
    Door("GET", "/ui/audit", AUDIT, shown, "The audit", media=HTML, hidden=True),
    Door("POST", "/ui/audit", AUDIT, ask, "Ask for an audit", 303, media=HTML, hidden=True),
    Door("GET", "/ui/audit/checkpoint", AUDIT, checkpoint, "The newest checkpoint", media="text/plain", hidden=True),
)
