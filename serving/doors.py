"""One table of doors (method, path, who may pass, who answers) and the ASGI layer in front of everything.

The layer stands before BentoML's own routes as well, so that its pages need a token too, every error has one shape, and
nothing that is raised can leave a request without an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accountant.tokens import Token
from serving.errors import ClientGone, Forbidden, TakesTooLong, Unauthorized, error_response
from serving.state import ServingState
from serving.tokens import bearer, digest

Answer = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

TEXT = {"type": "string"}
OPEN = frozenset({"/livez", "/readyz"})
BENTOML_PAGE = "/schema.json"  # for its client; its web page calls addresses outside and is not among the doors
WORK_SECONDS = 4.5  # below the service's own timeout, whose answer has another shape


@dataclass(frozen=True)
class Door:
    """A route, and all that the documentation says of it. `scopes`: one of them is enough; none: open to everybody."""

    method: str
    path: str
    scopes: tuple[str, ...]
    answer: Answer
    says: str
    status: int = 200
    takes: Mapping[str, Any] | None = None
    gives: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    media: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> Answer:
        return partial(_pass, self) if self.scopes else self.answer


async def _pass(door: Door, request: Request) -> Response:
    token = caller(request)
    if not token.may(door.scopes):
        raise Forbidden(
            f"scope: token {token.name!r} has {list(token.scopes)}; this takes one of {[*door.scopes, 'admin']}",
            needs=list(door.scopes),
        )
    return await door.answer(request)


def caller(request: Request) -> Token:
    """Whose token it is."""
    return cast(Token, request.scope["dpserve.token"])


def state(request: Request) -> ServingState:
    return cast(ServingState, request.app.state.serving)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Blocking work off the loop. What takes too long goes on to its end, and is told to the client as a timeout."""
    try:
        with anyio.fail_after(WORK_SECONDS):
            return await anyio.to_thread.run_sync(partial(work, *arguments), abandon_on_cancel=True)
    except TimeoutError:
        raise TakesTooLong(f"not done within {WORK_SECONDS:g} seconds; it may still be done") from None


class Doors:
    """ASGI: who is it, may they, then the route; every exception becomes an answer.

    `ours` answers every path but one of BentoML's own, which `app` answers once the caller is known.
    """

    def __init__(self, app: ASGIApp, ours: Starlette) -> None:
        self.app, self.ours = app, ours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except ClientGone:
            return  # nobody is left to answer
        except Exception as error:  # an exception that leaves a middleware would hang the request until its timeout
            response = error_response(error)
            if not started:
                await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in OPEN:
            scope["dpserve.token"] = self._known(scope)
        if path == BENTOML_PAGE:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.ours
        await self.ours.router(scope, receive, send)

    def _known(self, scope: Scope) -> Token:
        serving: ServingState = self.ours.state.serving
        given = bearer(scope["headers"])
        serving.home  # noqa: B018 - NotReady while tokens cannot be relied upon
        token = None if given is None else serving.token(digest(given))
        if token is None:
            raise Unauthorized("Authorization: must be Bearer and a token that is good (dpserve token create)")
        return token
