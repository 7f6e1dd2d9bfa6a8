"""The door to the events of a job."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.home import Home
from serving.http.rights import JOBS
from serving.http.routes import TEXT, Door, access, caller, in_thread, job_number, state
from serving.rest.event_stream import Event, events
from serving.wire.request_bodies import known_query
from training.planning import job_views


async def job_events(request: Request) -> Response:
    """Stream the job at each change, until it is over, as server-sent events."""
    known_query(request)
    seq, token = job_number(request), caller(request)

    def event(home: Home, seen: str | None) -> Event | None:
        row = home.ledger.job(seq)
        placing = job_views.is_placing(home, row)  # before its version is looked up, so that the last event has it
        name = f"{row.public_state}:{row.done}" + (":placing" if placing else "")
        return None if name == seen else Event(name, job_views.job_to_json(home, row), placing)

    async def look(seen: str | None) -> Event | None:
        return await in_thread(event, state(request).home, seen)

    def is_good() -> bool:
        bearer = state(request).bearer(token.digest)
        return bearer is not None and bearer.access == access(request)  # else it comes back, and is asked anew

    return await events(request, access(request).principal, look, is_good)


STREAM = "A job's progress as server-sent events: `job` at each change, `end` at the end"
DOORS = (Door("GET", "/v1/jobs/{job}/events", JOBS, job_events, STREAM, gives=TEXT, media="text/event-stream"),)
