"""Jobs at a server: listed, watched by its stream, given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serving.cli.backends.server.asking import asking


def listed(dataset: str | None, state: str | None, after: int | None, limit: int) -> dict[str, Any]:
    """Jobs, the newest first, a page of them."""
    with asking() as service:
        return dict(service.page_of_jobs(dataset, state, after, limit))


def job(number: int) -> dict[str, Any]:
    """One job."""
    with asking() as service:
        return dict(service.job(number).raw)


def watched(number: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """A job, once it is over, whatever came of it."""
    with asking() as service:
        for found in service.events(number):
            progress(found.done, found.total)
        return dict(found.raw)


def cancelled(number: int) -> dict[str, Any]:
    """A job whose reservation is given back. WrongState once it has started."""
    with asking() as service:
        return dict(service.cancel(number).raw)
