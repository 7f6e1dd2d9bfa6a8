"""Traces of requests and jobs for OpenTelemetry, off unless its own variables ask for them.

A span says public facts alone (docs/monitoring.md): which route, which kind of job, how many releases its plan has.
What is sent goes from a thread of its own, and is lost where it cannot be sent: nobody who asks for anything waits.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError

sdk, export, api, resources, finalizers, http = (
    later(name)
    for name in (
        "opentelemetry.sdk.trace",
        "opentelemetry.sdk.trace.export",
        "opentelemetry.trace",
        "opentelemetry.sdk.resources",
        "multiprocessing.util",
        "urllib.request",
    )
)  # loaded where traces are on

LOG = logging.getLogger("dpserve.traces")
EXPORTER, ENDPOINT = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN_ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
HEADERS, DISABLED, SERVICE = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"
DEFAULT_ENDPOINT = "http://localhost:4318"  # where OpenTelemetry has its collector, unless told otherwise
SECONDS = 3.0  # for one batch to be taken
PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
CURRENT: ContextVar[str | None] = ContextVar("dpserve-traceparent", default=None)  # what a span made here belongs to


@dataclass(frozen=True)
class Collector:
    """Where spans go."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()


def collector(environment: Mapping[str, str]) -> Collector | None:
    """Return the collector that OpenTelemetry's variables name; None where traces are off. InputError where they ask
    for something not offered: traces go by HTTP, as JSON.
    """
    variables = {
        name: environment.get(name, "").strip() for name in (EXPORTER, ENDPOINT, OWN_ENDPOINT, PROTOCOL, HEADERS)
    }
    exporter = variables[EXPORTER] or ("otlp" if variables[ENDPOINT] or variables[OWN_ENDPOINT] else "none")
    if exporter not in ("otlp", "none"):
        raise InputError(f"{EXPORTER}={exporter[:40]!r}: must be otlp or none")
    if exporter == "none" or environment.get(DISABLED, "").strip().lower() == "true":
        return None
    if variables[PROTOCOL] not in ("", "http/json"):
        raise InputError(f"{PROTOCOL}={variables[PROTOCOL][:40]!r}: must be http/json, in which traces are sent")
    url = variables[OWN_ENDPOINT] or f"{(variables[ENDPOINT] or DEFAULT_ENDPOINT).rstrip('/')}/v1/traces"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or not url.isascii() or any(part <= " " or part == "@" for part in url):
        name = OWN_ENDPOINT if variables[OWN_ENDPOINT] else ENDPOINT
        raise InputError(f"{name}: must be an address, http or https, without a password")
    return Collector(url, tuple(_header(part) for part in variables[HEADERS].split(",") if part.strip()))


def _header(text: str) -> tuple[str, str]:
    """Read `name=value`, the value as in an address. Neither is repeated in an error: it may be a secret."""
    name, equals, value = text.strip().partition("=")
    value = unquote(value.strip())
    if not equals or not re.fullmatch(r"[A-Za-z0-9-]+", name.strip()) or not value.isascii() or not value.isprintable():
        raise InputError(f"{HEADERS}: must be name=value, with commas between")
    return name.strip(), value


def tracer() -> Any | None:
    """Return this process's tracer; None where traces are off."""
    return _make_tracer(os.getpid())[0]


def stop() -> None:
    """Send what waits, and read the variables anew when a span is made again."""
    _, provider = _make_tracer(os.getpid())
    if provider is not None:
        provider.shutdown()
    _make_tracer.cache_clear()


@lru_cache(maxsize=1)  # of this process: a fork has a thread of its own
def _make_tracer(_process: int) -> tuple[Any | None, Any | None]:
    where = collector(os.environ)
    if where is None:
        return None, None
    name = {} if os.environ.get(SERVICE) else {"service.name": "dpserve"}
    provider = sdk.TracerProvider(resource=resources.Resource.create(name), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(Sender(where)))
    finalizers.Finalize(None, provider.shutdown, exitpriority=0)  # forks end without what atexit would call
    return provider.get_tracer("dpserve"), provider


@contextmanager
def span(name: str, parent: str | None = None, answers: bool = False) -> Iterator[Any | None]:
    """Record a span of the `with` block, the parent of spans made there; None where traces are off. `parent`: in the
    form of W3C's `traceparent`; else it is CURRENT. `answers`: of who answers a request from elsewhere.
    """
    own_tracer = tracer()
    if own_tracer is None:
        yield None
        return
    kind = api.SpanKind.SERVER if answers else api.SpanKind.INTERNAL
    begun = own_tracer.start_span(name, _context(parent or CURRENT.get()), kind)
    before = CURRENT.set(_parent_of(begun))
    try:
        yield begun
    finally:
        CURRENT.reset(before)
        if begun.is_recording():  # else it is not sampled, or was ended within
            begun.end()


def record_span(
    name: str, parent: str | None, begin: datetime, end: datetime, failed: bool = False, **facts: Any
) -> str:
    """Record a span of these times; return its `traceparent`, for spans that have it as their parent. Only where there
    is a tracer.
    """
    own_tracer = tracer()
    attributes = {f"dpserve.{each}": value for each, value in facts.items()}
    begun = own_tracer.start_span(name, _context(parent), attributes=attributes, start_time=_nano(begin))  # type: ignore[union-attr]
    if failed:
        begun.set_status(api.StatusCode.ERROR)
    begun.end(_nano(end))
    return _parent_of(begun)


def parent_in(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the `traceparent` that came with a request, if it is one and stands once."""
    values = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    return values[0] if len(values) == 1 and _ids(values[0]) else None


def _nano(time: datetime) -> int:
    return int(time.timestamp()) * 10**9


def _ids(text: str) -> tuple[int, int, int] | None:
    match = PARENT.fullmatch(text)
    trace, span_id, flags = (int(digits, 16) for digits in match.groups()) if match else (0, 0, 0)
    return (trace, span_id, flags) if trace and span_id else None


def _context(parent: str | None) -> Any:
    ids = None if parent is None else _ids(parent)
    if ids is None:
        return api.set_span_in_context(api.INVALID_SPAN)
    remote = api.SpanContext(ids[0], ids[1], is_remote=True, trace_flags=api.TraceFlags(ids[2]))
    return api.set_span_in_context(api.NonRecordingSpan(remote))


def _parent_of(begun: Any) -> str:
    context = begun.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class Sender:
    """Sends spans as OTLP's JSON over HTTP. What cannot be sent is dropped; the log says so once, until it works."""

    def __init__(self, where: Collector) -> None:
        self._where, self._works = where, True

    def export(self, spans: Sequence[Any]) -> Any:
        """Send one batch; return its SpanExportResult."""
        body = json.dumps(to_json(spans)).encode()
        headers = {"Content-Type": "application/json", **dict(self._where.headers)}
        request = http.Request(self._where.url, body, headers, method="POST")
        try:
            with http.urlopen(request, timeout=SECONDS) as answer:
                answer.read(1)
            self._works = True
            return export.SpanExportResult.SUCCESS
        except (OSError, ValueError) as error:
            if self._works:
                LOG.warning("traces cannot be sent, and are dropped: %s", type(error).__name__)
            self._works = False
            return export.SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Do nothing: there is nothing to release."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: no span waits here."""
        return True


def to_json(spans: Sequence[Any]) -> dict[str, Any]:
    """Return an ExportTraceServiceRequest in the JSON of OTLP: ids in hex, 64-bit integers as texts."""
    shared = spans[0].resource.attributes if spans else {}
    scope = {"scope": {"name": "dpserve"}, "spans": [_span_json(item) for item in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _facts_json(shared)}, "scopeSpans": [scope]}]}


def _span_json(each: Any) -> dict[str, Any]:
    context = each.get_span_context()
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        **({} if each.parent is None else {"parentSpanId": f"{each.parent.span_id:016x}"}),
        "name": each.name,
        "kind": each.kind.value + 1,
        "startTimeUnixNano": str(each.start_time),
        "endTimeUnixNano": str(each.end_time),
        "attributes": _facts_json(each.attributes),
        "status": {"code": each.status.status_code.value},
    }


def _facts_json(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    def value(fact: Any) -> dict[str, Any]:
        return {"intValue": str(fact)} if isinstance(fact, int) else {"stringValue": str(fact)}

    return [{"key": name, "value": value(fact)} for name, fact in facts.items()]
