"""The page that shows the server at work: requests, errors, seconds, the queue and training, over a range of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.home import Home
from accountant.ledger.entry_search import Wanted, search
from accountant.ledger.ledger import Ledger
from dpserve_verify.errors import InputError
from serving.http.routes import access, in_snapshot, page_door, state
from serving.pages.parts.ui import figure, page
from serving.process.watch.history import STEP_SECONDS, Step
from serving.wire.request_bodies import known_query
from training.planning.job_views import jobs_to_json

RANGES = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400}
SIDE, JOBS = 1000, 60
Series = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Panel:
    """A chart: `lines` by name as SVG path data in a square of SIDE, `most` at its top, and what it says in words."""

    title: str
    lines: dict[str, str]
    most: str
    says: str
    rows: Sequence[tuple[str, ...]]


async def service(request: Request) -> Response:
    """Return the page."""
    known_query(request, "range")
    chosen = request.query_params.get("range", "1h")
    if chosen not in RANGES:
        raise InputError(f"range={chosen[:20]!r}: must be one of {', '.join(RANGES)}")
    serving, end = state(request), datetime.now(UTC).timestamp()
    start = end - RANGES[chosen]
    steps = serving.history.steps(RANGES[chosen])
    trained = await in_snapshot(request, _training, serving.home, access(request), start, end)
    panels = [*_of_steps(steps, start, end), trained]
    times = [datetime.fromtimestamp(start + (end - start) * at / 3, UTC).strftime("%H:%M") for at in range(4)]
    return page(
        request, "service.html", panels=panels, times=times, ranges=[*RANGES], chosen=chosen, step=int(STEP_SECONDS),
        renewed=chosen in ("15m", "1h"),
    )  # fmt: skip


def _of_steps(steps: Sequence[Step], start: float, end: float) -> list[Panel]:
    def series(name: str) -> Series:
        return [(step.time, getattr(step, name)) for step in steps]

    return [
        _panel("Requests", {"a minute": series("requests")}, start, end, "a minute", "no request"),
        _panel("Errors", {"failed (5xx)": series("failed"), "refused (4xx)": series("refused")}, start, end, "a minute",
               "none"),
        _panel("Predictions take", {"95 of 100": series("slow"), "half of them": series("middle")}, start, end, "s",
               "no prediction"),
        _panel("Queue", {"waiting": series("waiting"), "running": series("running")}, start, end, "jobs",
               "nothing waits"),
    ]  # fmt: skip


def _panel(
    title: str, named: dict[str, Series], start: float, end: float, unit: str, nothing: str, dots: bool = False
) -> Panel:
    known = {name: [(at, value) for at, value in series if value is not None] for name, series in named.items()}
    most = max((value for series in known.values() for _, value in series), default=0.0)
    top = most or 1.0
    lines = {name: _path(series, start, end, top, dots) for name, series in known.items()}
    says = "; ".join(
        f"{name}: {figure(series[-1][1], 3)} now, {figure(max(value for _, value in series), 3)} at most"
        for name, series in known.items()
        if series
    )
    moments = sorted({at for series in known.values() for at, _ in series})[-20:]
    values = [dict(series) for series in known.values()]
    rows = [
        (
            datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S"),
            *(figure(each[at], 3) if at in each else "–" for each in values),
        )
        for at in moments
    ]
    return Panel(title, lines, f"{figure(top, 3)} {unit}", f"{says} ({unit})" if most else nothing, rows)


def _path(series: Sequence[tuple[float, float]], start: float, end: float, top: float, dots: bool) -> str:
    at = [
        (round(SIDE * (moment - start) / (end - start)), round(SIDE * (1 - value / top)))
        for moment, value in series
        if moment >= start
    ]
    if dots:
        return "".join(f"M{x},{y}h0" for x, y in at)
    return "M" + "L".join(f"{x},{y}" for x, y in at) if len(at) > 1 else ""


def _training(home: Home, rights: Any, start: float, end: float) -> Panel:
    """Return the panel of the newest jobs: when each ended, and the seconds that it took from its start."""
    listed = jobs_to_json(home, limit=JOBS, access=rights)["jobs"]
    ended = [_times(home.ledger, job["job"]) for job in listed if job["state"] in ("issued", "burned")]
    jobs = sorted((at, seconds) for at, seconds in filter(None, ended) if at >= start)
    return _panel("Training", {"one job": jobs}, start, end, "s", "no job trained", dots=True)


@lru_cache(maxsize=1024)
def _times(ledger: Ledger, seq: int) -> tuple[float, float] | None:
    """Return when a job ended, and its seconds; of a ledger that never changes what it says of one that ended."""
    entries = search(ledger.log.database, Wanted(job=seq), limit=20).entries
    moments = {each.value["type"]: datetime.fromisoformat(each.value["time"]).timestamp() for each in entries}
    end = moments.get("committed", moments.get("burned"))
    return None if end is None or "started" not in moments else (end, end - moments["started"])


DOORS = (page_door("GET", "/ui/service", ("audit",), service, "The server at work"),)
