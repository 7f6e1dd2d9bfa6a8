"""A door for agents: `dpserve mcp` speaks the Model Context Protocol, and asks a server as every client does.

It decides nothing: what a token may do, what is granted and what a quota leaves, the server says. A tool that spends
takes what a plan gave, a sealed request and its price, from the same caller, once: the seal's number is the idempotency
key of the request, so that an agent that repeats itself is given the same job.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.errors import Forbidden
from accountant.system.lazy_import import later
from dpserve_verify.errors import DpserveError, InputError
from serving.cli.backends.choice import ServerAddress, server_address
from serving.cli.backends.server.connection import Connection
from serving.cli.terminal import note

if TYPE_CHECKING:
    import anyio
    import mcp_types
    import uvicorn
    from mcp.server import lowlevel, stdio

    from dpserve import Client
else:
    anyio, mcp_types, uvicorn = later("anyio"), later("mcp_types"), later("uvicorn")
    lowlevel, stdio = later("mcp.server.lowlevel"), later("mcp.server.stdio")

Body = Mapping[str, Any]
TEXT, OBJECT = {"type": "string"}, {"type": "object"}
PAID = "Costs what `plan` said, for good: give its `token` and its `price`. The same token again costs nothing more. "
SPENDING = {  # tool: what of the client prices and does it, and what a plan's request has
    "train": ("plan", "submit", "dataset, learner, epsilon; delta, parameters, model, target, evaluate"),
    "evaluate": ("plan_evaluation", "evaluate", "model, dataset, epsilon; against, group, scores, cover, part"),
    "query": ("plan_query", "query", "dataset, select, epsilon; part"),
}
FREE: Mapping[str, tuple[str, Body]] = {
    "list": (
        "Free. What the token may see: datasets, models, or jobs.",
        {"what": {"enum": ["datasets", "models", "jobs"]}},
    ),
    "plan": (
        "Free. The price of train, evaluate or query, what it leaves, and the token to do it with. A request has: "
        + "; ".join(f"{tool}: {fields}" for tool, (_, _, fields) in SPENDING.items()),
        {"what": {"enum": [*SPENDING]}, "request": OBJECT},
    ),
    "job": ("Free. A job as it stands, by its number.", {"job": {"type": "integer"}}),
    "explain": (
        "Free. What each feature adds, to each of some records.",
        {"model": TEXT, "records": {"type": "array"}},
    ),
    "predict": ("Free. A label or number for each of some records.", {"model": TEXT, "records": {"type": "array"}}),
}


@dataclass(frozen=True)
class Agents:
    """What agents may ask of the server at `address`. `seal`: of plans, for as long as this process runs."""

    address: ServerAddress
    seal: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def call(self, tool: str, given: Body, token: str | None) -> Body:
        """Answer a tool by the server, under the caller's token. Raises DpserveError."""
        fields = {"token", "price"} if tool in SPENDING else set(FREE[tool][1]) if tool in FREE else None
        if fields is None:
            raise InputError(f"{tool[:40]}: is no tool; there are {', '.join([*FREE, *SPENDING])}")
        if set(given) != fields:
            raise InputError(f"{tool}: give {' and '.join(sorted(fields))}, and nothing else")
        if not token:
            raise Forbidden("token: is missing; send the server's own as a bearer, or set DPSERVE_TOKEN")
        planned = self._planned(tool, given, token) if tool in SPENDING else {}
        with Connection(replace(self.address, token=token), note).asking() as service:
            match tool:
                case "list" if given["what"] in FREE["list"][1]["what"]["enum"]:
                    return service.part(given["what"])
                case "plan":
                    return self._plan(service, given, token)
                case "job" if type(given["job"]) is int:
                    return service.job(given["job"]).raw
                case "explain":
                    return service.explain(str(given["model"]), given["records"]).raw
                case "predict":
                    return service.predict(str(given["model"]), given["records"]).raw
                case "train" | "evaluate" | "query":
                    return _ask(service, SPENDING[tool][1], planned)
        raise InputError(f"{tool}: takes {json.dumps(FREE[tool][1])}")

    def _plan(self, service: Client, given: Body, token: str) -> Body:
        what, request = str(given["what"]), given["request"]
        if what not in SPENDING or not isinstance(request, dict) or "idempotency_key" in request:
            raise InputError(f"plan: `what` is one of {[*SPENDING]}, `request` an object without an idempotency_key")
        plan = _ask(service, SPENDING[what][0], request)
        prices = [plan, plan.get("evaluation") or {}]
        price = str(sum(Decimal(each["epsilon"]) for each in prices if "epsilon" in each))
        sealed = json.dumps([what, request, price, _holder(token), secrets.token_hex(16)])
        raw = base64.urlsafe_b64encode(sealed.encode()).decode()
        return {"price": price, "token": f"{raw}.{self._sign(raw)}", "plan": plan}

    def _planned(self, tool: str, given: Body, token: str) -> Body:
        """Return the request that a plan sealed, with its key. InputError where it is of another, or its price is."""
        raw, _, signature = str(given["token"]).partition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._sign(raw).encode()):
            raise InputError("token: is of no plan that was made here; ask `plan`, and send its token as it is")
        what, request, price, holder, key = json.loads(base64.urlsafe_b64decode(raw))
        if what != tool or holder != _holder(token):
            raise InputError(f"token: is of another plan, to {what}, or of somebody else; ask `plan` for this one")
        if str(given["price"]) != price:
            raise InputError(f"price: the plan's is {price}; nothing was spent")
        return {**request, "idempotency_key": key}

    def _sign(self, raw: str) -> str:
        return hmac.new(self.seal, raw.encode(errors="replace"), "sha256").hexdigest()


def _holder(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _ask(service: Client, method: str, request: Body) -> Body:
    """Call a method of the client; InputError where its arguments are not those."""
    call = getattr(service, method)
    try:
        inspect.signature(call).bind(**request)
    except TypeError as error:
        raise InputError(f"request: {error}") from None
    answer = call(**request)
    return answer if isinstance(answer, Mapping) else answer.raw


def server_of(agents: Agents, own: str | None) -> Any:
    """Return the server of the protocol. `own`: the token of who started it, who alone speaks to it; None: each caller
    brings one.
    """

    async def list_tools(context: Any, params: Any) -> Any:
        return mcp_types.ListToolsResult(tools=_tools())

    async def call_tool(context: Any, params: Any) -> Any:
        bearer = "" if context.request is None else context.request.headers.get("authorization", "")
        token = own if own is not None else bearer.removeprefix("Bearer ")
        try:
            body = await anyio.to_thread.run_sync(agents.call, params.name, params.arguments or {}, token)
            return _result(body)
        except DpserveError as error:
            return _result(error.to_json(), is_error=True)

    return lowlevel.Server("dpserve", on_list_tools=list_tools, on_call_tool=call_tool)


def _result(body: Body, is_error: bool = False) -> Any:
    text = mcp_types.TextContent(type="text", text=json.dumps(body, ensure_ascii=False))
    return mcp_types.CallToolResult(content=[text], structured_content=dict(body), is_error=is_error)


def _tools() -> list[Any]:
    paid: Body = {"token": TEXT, "price": {**TEXT, "description": "epsilon, as the plan says it"}}
    said = {**FREE, **{tool: (f"{PAID}{tool} as planned.", paid) for tool in SPENDING}}
    return [
        mcp_types.Tool(
            name=tool,
            description=words,
            input_schema={**OBJECT, "properties": fields, "required": [*fields], "additionalProperties": False},
            annotations=mcp_types.ToolAnnotations(read_only_hint=tool in FREE, destructive_hint=tool in SPENDING),
        )
        for tool, (words, fields) in said.items()
    ]


def serve_agents(
    http: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Listen at 127.0.0.1:PORT/mcp, each caller with a token; else on stdin."),
    ] = None,
) -> None:
    """Let an agent ask a server by the Model Context Protocol, under a token's grants and quotas.

    \b
    DPSERVE_URL=https://dp.example.org DPSERVE_TOKEN=dps_... dpserve mcp
    DPSERVE_URL=https://dp.example.org dpserve mcp --http 3001
    """
    address = server_address()
    if address is None:
        raise InputError("dpserve mcp asks a server: set DPSERVE_URL and DPSERVE_TOKEN, or dpserve login")
    agents = Agents(address)
    if http is not None:
        app = server_of(agents, None).streamable_http_app(json_response=True, stateless_http=True)
        return uvicorn.run(app, host="127.0.0.1", port=http, log_level="warning")
    if not address.token:
        raise InputError("dpserve mcp: DPSERVE_TOKEN is not set, under which the agent asks")
    server = server_of(agents, address.token)

    async def speak() -> None:
        async with stdio.stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    return anyio.run(speak)
