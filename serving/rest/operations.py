"""The operator's doors: metrics, audits, and whether the server is alive and ready."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from accountant.access.tokens import SCOPES
from accountant.errors import UnknownName
from accountant.home import Home, local
from serving.http import cookies
from serving.http.rights import NOTHING
from serving.http.routes import TEXT, Door, in_thread, state
from serving.process.config.healthy import WORKER, is_beating
from serving.process.state import NOT_ASKED
from serving.process.watch import audit_runs
from serving.process.watch.metrics import (
    AuditGauges,
    LedgerGauges,
    ProcessGauges,
    ReachedGauges,
    ServingGauges,
    WorthGauges,
    render,
)
from serving.process.watch.upkeep import MachineGauges
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query

NOBODY_TRAINS = "no worker runs on this machine; `dpserve worker` runs what is queued"


async def metrics(request: Request) -> Response:
    """Return the metrics of all workers, and gauges of the home; without the ledger's own while it is away."""
    serving = state(request)
    home, lines = None if serving.is_away else serving.home, serving.registry.to_json()
    standings = Counter(line["state"] for line in lines)
    models = ServingGauges(serving.registry.loaded, serving.registry.refused, standings)
    parts = () if home is None else (LedgerGauges(home, serving.figures), WorthGauges(home, lines))
    of_ledger, audit = ReachedGauges(home, parts), AuditGauges(serving.path)
    machine = MachineGauges(serving.path, serving.certificate_end)
    collectors = (of_ledger, audit, models, machine, ProcessGauges(serving.root))
    return Response(await in_thread(render, collectors), media_type=CONTENT_TYPE_LATEST)


async def ask_audit(request: Request) -> Response:
    """Ask for an audit; 202 at once. The one that answers has `at` no earlier than `asked`."""
    known_query(request)
    time = await in_thread(audit_runs.ask, state(request).home)
    return json_response({"asked": time}, 202, {"Location": "/v1/audits/last"})


async def last_audit(request: Request) -> Response:
    """Return the newest audit's result; 404 before the first."""
    known_query(request)
    return json_response(await in_thread(_last_audit, state(request).home))


def _last_audit(home: Home) -> dict[str, Any]:
    audit = audit_runs.last_audit(home)
    if audit is None:
        raise UnknownName("audit: there was none yet; dpserve serve makes one, and so does dpserve auditor")
    return audit


async def about(request: Request) -> Response:
    """Name the service, for programs; a browser is sent to the pages."""
    if cookies.is_page(request.scope):
        return RedirectResponse(cookies.HOME, 303)
    return json_response({"service": "dpserve", "documentation": "/docs.json"})


async def alive(request: Request) -> Response:
    """Answer 200 always: the process answers."""
    return json_response({"alive": True})


async def ready(request: Request) -> Response:
    """Answer 200 if the home opens, its ledger continues what its keys signed, tokens are known, the models were looked
    at, no newer version has written to the ledger, and nobody has asked the server to stop. `training` says where no
    worker runs beside it, `ledger` that the database is away: predictions need neither, so it is ready all the same.
    """
    serving = state(request)
    serving.require_welcome()
    away = {"ledger": NOT_ASKED} if serving.is_away else {}
    trains = {} if is_beating(local(serving.path) / WORKER) else {"training": NOBODY_TRAINS}
    return json_response({"ready": True, **trains, **away})


ASKED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["asked"],
    "properties": {"asked": {"type": "string", "format": "date-time"}},
}
AUDIT = {
    "type": "object",
    "additionalProperties": False,
    "required": sorted(audit_runs.KEYS),
    "properties": {
        "at": {"type": "string", "format": "date-time", "description": "when it began"},
        "entries": {"type": "integer", "minimum": 0},
        "root": {
            "type": "string",
            "description": "of the tree of all entries, in base64; empty where it could not be read",
        },
        "ok": {"type": "boolean"},
        "problems": {"type": "array", "items": TEXT},
        "lost": {"type": "array", "items": TEXT, "description": "paid for, and not in the home any more; no problem"},
        "newer": {
            "type": "integer",
            "minimum": 0,
            "description": "the first entry that a newer version wrote: judged up to there; left out where none is",
        },
        "seconds": {"type": "number", "minimum": 0},
    },
}
DOORS = (
    Door("POST", "/v1/audits", ("audit",), ask_audit, "Ask for an audit of the ledger", 202, gives=ASKED),
    Door("GET", "/v1/audits/last", ("audit",), last_audit, "The newest audit's result", gives=AUDIT, errors=(404,)),
    Door("GET", "/metrics", ("audit",), metrics, "Metrics for Prometheus", gives=TEXT, media="text/plain"),
    Door("GET", "/", SCOPES, about, "What this is", gives=json_schemas.ABOUT, on=NOTHING),
    Door("GET", "/livez", (), alive, "Whether the server is alive", gives=json_schemas.ALIVE),
    Door("GET", "/readyz", (), ready, "Whether it can be relied upon", gives=json_schemas.READY),
)
