"""One table of doors (method, path, who may pass, who answers) and the ASGI layer in front of everything.

Under `bentoml serve` the layer stands before BentoML's own routes as well, so that its pages need a token too, every
error has one shape, and nothing that is raised can leave a request without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accountant.access.grants import Access
from accountant.access.tokens import Token
from accountant.system import traces
from dpserve_verify.errors import InputError
from serving.http import cookies, headers, rights
from serving.http.connections import connection_of
from serving.process.config.limits import meter
from serving.process.prices import REQUEST, PriceRequest, run_for_request
from serving.process.state import ServingState
from serving.process.tokens import bearer
from serving.process.watch.access_log import ABOUT, ASKING, REFUSAL, note_refusal, trail
from serving.process.watch.metrics import count_request, known_method, route_of
from serving.wire import work_time
from serving.wire.errors import ClientGone, NotReady, TakesTooLong, Unauthorized, error_response, in_protocol
from serving.wire.request_bodies import DOOR, let_go
from training.planning.price_engine import ENGINE, run_while_wanted

if TYPE_CHECKING:
    from serving.operations import Operation

LOG = logging.getLogger("dpserve.serving")

Answer = Callable[[Request], Awaitable[Response]]
Query = Mapping[str, str | Mapping[str, Any]]
ErrorPage = Callable[[Request, Response], Response]  # from the answer in JSON, of the same status
T = TypeVar("T")

TEXT = {"type": "string"}
HEALTH = ("/v2/health/live", "/v2/health/ready")  # a kubelet asks without a token
PROTOCOL = "/v2"  # the open inference protocol has a form of its own for errors
STATUS = "dpserve.status"  # of the scope: what was answered
EVENTS = "text/event-stream"
MAX_HEAD_FIELDS = 200  # that the head of a request may have
ERROR_HEADERS = ("retry-after", "allow")  # of an error's headers, on its page
PRICING = anyio.CapacityLimiter(64)  # threads that mostly wait for the price desk, which lets no more than that wait
PREDICTING = anyio.CapacityLimiter(16)  # their own: whatever else is asked for, a prediction finds a thread


@dataclass(frozen=True)
class Door:
    """A route, and all that the documentation says of it. `scopes`: one of them is enough; none: open to everybody.
    `on`: what it must be held on, where the path does not name it (`serving.http.rights`).

    `query`: a text says what a whole number is that may be left out; else a JSON Schema with `description`, and with
    `required` where it is. `also`: media types of the body beside JSON. `errors`: statuses that do not follow from the
    rest. `hidden`: a page for people, which the description leaves out. `operation`: what made it, where one did.
    """

    method: str
    path: str
    scopes: tuple[str, ...]
    answer: Answer
    says: str
    status: int = 200
    takes: Mapping[str, Any] | None = None
    gives: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    media: str = "application/json"
    query: Query = field(default_factory=dict)
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    hidden: bool = False
    on: str = ""
    operation: Operation[Any, Any] | None = None

    @property
    def thing(self) -> str:
        """Return what a scope must be held on: model, dataset or job that the path names, or one of
        `serving.http.rights`.
        """
        return self.on or rights.thing_of(self.path)

    def reach(self, scope: str) -> str:
        """Return what this scope reaches through it (`serving.http.rights.reach`)."""
        return rights.reach(self.scopes, self.thing, self.path, self.method not in cookies.SAFE, scope)

    @property
    def endpoint(self) -> Answer:
        """Return what Starlette calls: the answer, behind the check of the scopes."""
        return partial(_pass, self)


page_door = partial(Door, media="text/html", hidden=True)  # to a page for people, which no description lists


async def _pass(door: Door, request: Request) -> Response:
    request.scope[DOOR] = door
    if door.scopes == ("predict",) and (connection := connection_of(request.scope)) is not None:
        connection.may_repeat()
    if not door.scopes:
        return await door.answer(request)
    caller_rights, serving, path = access(request), state(request), request.path_params
    if rights.needs_look(caller_rights, door.scopes, door.thing):
        changes, dataset_of = request.method not in cookies.SAFE, serving.registry.dataset_of
        asked = serving.home, caller_rights, door.scopes, door.thing, path, changes, dataset_of
        await in_thread(rights.require_thing, *asked)
    return await door.answer(request)


def job_number(request: Request) -> int:
    """Return the number in the path. UnknownName where it is none."""
    return path_number(request, "job")


def path_number(request: Request, name: str) -> int:
    """Return the number that the path has for `name`. UnknownName where it is none."""
    return rights.read_number(name, request.path_params[name])


def caller(request: Request) -> Token:
    """Return the caller's token."""
    return cast(Token, request.scope["dpserve.token"])


def access(request: Request) -> Access:
    """Return the caller's rights: `access(request).principal` is who asks, as entries name them."""
    return cast(Access, request.scope["dpserve.access"])


async def require_dataset(request: Request, scopes: tuple[str, ...], dataset: str) -> Access:
    """Return the caller's rights. Forbidden unless one of `scopes` is held on the dataset."""
    caller_rights = access(request)
    if not caller_rights.may(*scopes):  # else nothing need be read
        await in_thread(partial(caller_rights.require, *scopes, dataset=dataset))
    return caller_rights


def state(request: Request) -> ServingState:
    """Return this worker's state: the home, the tokens, the models."""
    return cast(ServingState, request.app.state.serving)


def given_token(headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, bool]:
    """Return the token of the request, and whether the cookie gave it, which counts only without an Authorization
    header.
    """
    for name, _ in headers:
        if name == b"authorization":
            return bearer(headers), False
    return cookies.cookie(headers), True


async def in_thread(work: Callable[..., T], *arguments: Any, limiter: anyio.CapacityLimiter | None = None) -> T:
    """Run blocking work in a thread, as many at a time as `limiter` admits. Work that takes too long goes on to its
    end; the client gets TakesTooLong.
    """
    try:
        with anyio.fail_after(work_time.WORK_SECONDS):
            call = partial(work_time.OVERDUE.watch, work, *arguments)
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
    except TimeoutError:
        raise TakesTooLong(f"not done within {work_time.WORK_SECONDS:g} seconds; it may still be done") from None


async def in_snapshot(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Run what only reads and waits for nothing, as `in_thread`: all that it reads of the ledger is of one snapshot."""
    log = state(request).home.ledger.log

    def shared() -> T:
        with log.sharing():
            return work(*arguments)

    return await in_thread(shared)


async def with_prices(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Run work that needs prices, as `in_thread`: they are calculated in the caller's turn, and given up with the
    request, when it is late or the client hangs up.
    """
    given_up = threading.Event()

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        given_up.set()

    request.scope[REQUEST] = PriceRequest(access(request).principal, given_up, run_while_wanted)
    gone = asyncio.create_task(until_gone())
    try:
        return await in_thread(work, *arguments, limiter=PRICING)
    finally:
        given_up.set()
        gone.cancel()


def open_paths(app: Starlette) -> re.Pattern[str]:
    """Return what matches the paths of the doors without scopes: whoever asks there needs no token."""
    handlers = ((route.path_regex.pattern, route.endpoint) for route in app.routes if isinstance(route, Route))
    patterns = (
        re.sub(r"\(\?P<\w+>", "(?:", pattern)
        for pattern, handler in handlers
        if isinstance(handler, partial) and handler.func is _pass and not handler.args[0].scopes
    )
    return re.compile("|".join(sorted(patterns)) or "(?!)")


class Doors:
    """ASGI application: authenticate, authorize, then the route; every exception becomes an answer.

    `ours` answers every path but `theirs`, which `app` answers once the caller is known.
    """

    def __init__(self, app: ASGIApp, ours: Starlette, theirs: Container[str] = ()) -> None:
        self.app, self.ours, self.theirs = app, ours, theirs
        ENGINE.run = run_for_request  # whoever serves has prices worked out beside
        self._named = {
            (method, route.path): route
            for route in ours.routes
            if isinstance(route, Route) and "{" not in route.path
            for method in (route.methods or ())
        }  # found without a look at all the others
        self._open = open_paths(ours)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it, so nobody comes in by it
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if traces.tracer() is None:
            await self._through(scope, receive, send)
            return
        with traces.span("", traces.parent_in(scope["headers"]), answers=True) as span:
            try:
                await self._through(scope, receive, send)
            finally:
                _trace(scope, span)

    async def _through(self, scope: Scope, receive: Receive, send: Send) -> None:
        ASKING.set(scope)
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                _record(scope, message["status"])
                message["headers"] = headers.with_ours(scope, message.get("headers", ()))
                serving: ServingState | None = getattr(self.ours.state, "serving", None)
                if serving is not None and serving.stopping:
                    message["headers"].append(headers.LAST)
                count_request(scope, message["status"])
                scope[STATUS] = message["status"]
                if (connection := connection_of(scope)) is not None:
                    connection.write_answer()
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except ClientGone:  # nobody is left to answer
            with suppress(NotReady):
                _record(scope, None)
        except Exception as error:  # an exception that leaves a middleware would hang the request until its timeout
            response = self._refusal(scope, error)
            if not started:
                await response(scope, receive, sending)
        finally:
            let_go(scope)

    def _refusal(self, scope: Scope, error: Exception) -> Response:
        """Return the error as an answer: a page where a page was asked for, a redirect to the login where there is no
        session.
        """
        note_refusal(error)
        response = error_response(error)
        if scope["path"].startswith(PROTOCOL):
            return in_protocol(response)
        if not cookies.is_page(scope):
            return response
        if isinstance(error, Unauthorized) and scope["method"] in cookies.SAFE:
            return cookies.to_login(scope)
        page: ErrorPage | None = getattr(self.ours.state, "error_page", None)
        try:
            answer = response if page is None else page(Request(scope), response)
            answer.headers.update({name: response.headers[name] for name in ERROR_HEADERS if name in response.headers})
            return answer
        except Exception as fault:
            LOG.error("the page of an error failed: %s", type(fault).__name__, exc_info=fault)
            return response

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        _check_head(scope)
        path = scope["path"]
        if not self._open.fullmatch(path):
            await self._authenticate(scope)
        elif (scope["method"], path) in cookies.SIGN_INS:
            scope["dpserve.home"] = self.ours.state.serving.path
        if path in self.theirs:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.ours
        route = self._named.get((scope["method"], path))
        if route is None:
            await self.ours.router(scope, receive, send)
            return
        scope["route"], scope["path_params"] = route, {}
        response = await route.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> None:
        """Authenticate the request, check its origin where a cookie gave the token, and count it against the token's
        limits.
        """
        serving: ServingState = self.ours.state.serving
        home = scope["dpserve.home"] = serving.path  # NotReady while tokens cannot be relied upon
        secret, by_cookie = given_token(scope["headers"])
        known_bearer = None if secret is None else await serving.admit(secret)
        if known_bearer is None:
            raise Unauthorized("Authorization: must be Bearer and a token that is good (dpserve token create)")
        token = scope["dpserve.token"] = known_bearer.token
        scope["dpserve.access"] = known_bearer.access
        if by_cookie:
            cookies.check_same_origin(scope)
        if token.limits:
            meter(home).admit(token)


def _check_head(scope: Scope) -> None:
    """Raise InputError unless the head has at most MAX_HEAD_FIELDS fields and names one host (RFC 9112, section 3.2):
    with two, a proxy in front may have meant another.
    """
    if len(scope["headers"]) > MAX_HEAD_FIELDS:
        raise InputError(f"head: at most {MAX_HEAD_FIELDS} fields")
    hosts = [name for name, _ in scope["headers"]].count(b"host")
    if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):
        raise InputError("Host: must stand in the head once")


def _trace(scope: Scope, span: Any) -> None:
    """Set a span's attributes: method, the template of the route, the status. Where only a steward comes in, rows may
    be read, and a stream of events ends when a job does: the span ends when it began, for how long that took is nobody
    else's.
    """
    name = f"{known_method(scope)} {route_of(scope)}"
    span.update_name(name)
    span.set_attributes({"http.request.method": known_method(scope), "http.route": route_of(scope)})
    if STATUS in scope:
        span.set_attribute("http.response.status_code", scope[STATUS])
    door: Door | None = scope.get(DOOR)
    is_untimed = door is not None and ({*door.scopes} == {"steward"} or door.media == EVENTS)
    if is_untimed and span.is_recording():
        span.end(span.start_time)


def _record(scope: Scope, status: int | None) -> None:
    """Write the request's line of the audit trail, once; of what needs no token only logins have one. NotReady where it
    cannot be written.
    """
    home = scope.pop("dpserve.home", None)
    if home is None:
        return
    token: Token | None = scope.get("dpserve.token")
    door: Door | None = scope.get(DOOR)
    about = scope.get(ABOUT)
    if about is None and status is not None and status < 400:  # else there may be nothing of that name
        about = next(iter(scope.get("path_params", {}).values()), None)
    name, route = None if token is None else token.name, None if door is None else door.path
    trail(home).write(name, scope["method"], route, status, about, scope.get(REFUSAL))
