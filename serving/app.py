"""The application: every door of the service in one table, and the Starlette app made from it."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from accountant.access.tokens import SCOPES
from accountant.system import extensions
from serving.http.connections import Connections
from serving.http.rights import NOTHING
from serving.http.routes import Door, Doors
from serving.operations import datasets, edits, grants, notes, people, placing, schedules, totals
from serving.operations import jobs as job_operations
from serving.operations import ledger as ledger_operations
from serving.operations.doors import doors
from serving.pages.all import PAGES
from serving.pages.home import error_page
from serving.pages.parts import static_files
from serving.pages.parts.prefetch import warming
from serving.process.state import ServingState
from serving.process.workers.loading import loading
from serving.rest import (
    drafts,
    explain,
    files,
    jobs,
    ledger,
    measurements,
    models,
    operations,
    profiles,
    v2,
)
from serving.rest.openapi import openapi
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query
from training.learners.docs import learners_to_json

DOORS: tuple[Door, ...] = (
    *models.DOORS,
    *files.DOORS,
    *explain.DOORS,
    *doors(*placing.OPERATIONS),
    *doors(*edits.OPERATIONS),
    *v2.DOORS,
    *doors(*job_operations.OPERATIONS),
    *jobs.DOORS,
    *doors(*datasets.OPERATIONS),
    *doors(*people.OPERATIONS),
    *chain(*extensions.load("doors")),
    *measurements.DOORS,
    *profiles.DOORS,
    *drafts.DOORS,
    *doors(*schedules.OPERATIONS),
    *doors(*totals.OPERATIONS),
    *doors(*notes.OPERATIONS),
    *doors(*ledger_operations.OPERATIONS),
    *ledger.DOORS,
    *doors(*grants.OPERATIONS),
    *operations.DOORS,
)


def make_server_app() -> ASGIApp:
    """Return what a serving process of `dpserve serve` answers with: the doors of one app, and who waits at them."""
    app = make_app()
    return Connections(Doors(app, ours=app))


Beside = Callable[[ServingState], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def nothing_beside(serving: ServingState) -> AsyncIterator[None]:
    """Start nothing: who started this process looks after the others."""
    yield


def make_app(beside: Beside = nothing_beside) -> Starlette:
    """Return the routes, looking after their own state. `beside`: what goes on for as long as they are served."""
    serving = ServingState()

    async def docs(request: Request) -> Response:
        known_query(request)
        return json_response(openapi(DOORS))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with serving.watching(), warming(serving), beside(serving):
            with loading():
                await anyio.to_thread.run_sync(learners_to_json)  # loads them, or the first request would wait for it
                await anyio.to_thread.run_sync(static_files.files)  # fails where one is not the pinned one
                gc.collect()
            yield

    documented = (*DOORS, Door("GET", "/docs.json", SCOPES, docs, "This description", on=NOTHING))
    routes = [Route(door.path, door.endpoint, methods=[door.method]) for door in (*documented, *PAGES)]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path is a door or it is not
    app.state.serving, app.state.error_page = serving, error_page
    return app
