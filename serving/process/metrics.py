"""Prometheus metrics. What happens in a worker is counted there and added up over the workers; what the home knows is
read when it is asked for (`serving.process.gauges`). No metric depends on the rows, and every label comes from a
bounded set.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import Scope

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})

PREDICTIONS = Counter("dpserve_predictions", "Records predicted.", ["model"], registry=None)
SECONDS = Histogram(
    "dpserve_prediction_seconds", "Seconds to answer a prediction request.", ["model"], buckets=BUCKETS, registry=None
)
REFUSALS = Counter("dpserve_refusals", "Jobs refused.", ["dataset", "reason"], registry=None)
FAILURES = Counter(
    "dpserve_certificate_failures", "Models found not to verify, counted by every worker.", ["reason"], registry=None
)
REQUESTS = Counter("dpserve_requests", "Requests answered.", ["method", "route", "status"], registry=None)
COUNTED = (PREDICTIONS, SECONDS, REFUSALS, FAILURES, REQUESTS)


@lru_cache(maxsize=4096)
def _requests(method: str, route: str, status: int) -> Any:
    return REQUESTS.labels(method, route, status)


def count_request(scope: Scope, status: int) -> None:
    """By the route's template, never the path: "none" where no route was meant, or none was looked for."""
    method, route = scope["method"], scope.get("route")
    _requests(method if method in METHODS else "other", getattr(route, "path", "none"), status).inc()


def render(collectors: Iterable[Collector]) -> bytes:
    """The exposition text: what all workers counted, and what the collectors read now."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        for metric in COUNTED:
            registry.register(metric)
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
