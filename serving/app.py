"""The application: every door of the service in one table, and the Starlette app made from it."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from accountant.tokens import SCOPES
from serving import api_explain, api_jobs, api_ledger, api_models, api_operations, api_placing, api_v2, static_files
from serving.bodies import known_query
from serving.doors import Door
from serving.errors import json_response
from serving.openapi import openapi
from serving.state import ServingState
from serving.ui_home import error_page
from serving.ui_pages import PAGES
from serving.warm import warming

DOORS: tuple[Door, ...] = (
    *api_models.DOORS,
    *api_explain.DOORS,
    *api_placing.DOORS,
    *api_v2.DOORS,
    *api_jobs.DOORS,
    *api_ledger.DOORS,
    *api_operations.DOORS,
)


def make_app(base: Callable[[], Mapping[str, Any]] = dict) -> Starlette:
    """Our routes, looking after their own state. `base` gives the OpenAPI description to merge ours into."""
    serving = ServingState()

    async def docs(request: Request) -> Response:
        known_query(request)
        return json_response(openapi(base(), DOORS))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with serving.watching(), warming(serving):
            await anyio.to_thread.run_sync(api_jobs.training_job)  # or the first request would wait for the import
            await anyio.to_thread.run_sync(static_files.files)  # fails where one is not the pinned one
            gc.collect()
            gc.freeze()  # what was made up to here stays for ever: the collector need not look at it again
            yield

    documented = (*DOORS, Door("GET", "/docs.json", SCOPES, docs, "This description"))
    routes = [Route(door.path, door.endpoint, methods=[door.method]) for door in (*documented, *PAGES)]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path is a door or it is not
    app.state.serving, app.state.error_page = serving, error_page
    return app
