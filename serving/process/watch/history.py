"""What a server's own metrics were, at a coarse step, for as long as the process lives: requests, errors, seconds of
predictions, the queue. Kept in memory alone; who needs more asks Prometheus.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from accountant.ledger.job_counts import queue
from dpserve_verify.errors import DpserveError
from serving.process.watch.metrics import BUCKETS, COUNTED

if TYPE_CHECKING:
    from accountant.store.store import Store

STEP_SECONDS = 15.0
MAX_SAMPLES = 24 * 3600 // int(STEP_SECONDS)
ERRORS = {"4": "refused", "5": "failed"}


@dataclass(frozen=True)
class Sample:
    """Counts since the server began, of all its workers, and the queue at `time` (seconds since 1970).

    took: how many predictions took at most so many seconds, for each of BUCKETS and in all.
    """

    time: float
    requests: float
    refused: float
    failed: float
    took: tuple[float, ...]
    waiting: int
    running: int


@dataclass(frozen=True)
class Step:
    """What happened between two samples: requests a minute, quantiles of the seconds of predictions (None: there were
    none), and the queue at its end.
    """

    time: float
    requests: float
    refused: float
    failed: float
    middle: float | None
    slow: float | None
    waiting: int
    running: int


class History:
    """Samples of this process, the newest last."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._due = 0.0

    def look(self, database: Store) -> None:
        """Take a sample where it is time for one. A ledger or a file that cannot be read now leaves a gap, and nothing
        else.
        """
        if time.monotonic() >= self._due:
            with suppress(DpserveError, OSError):
                self.take(database)

    def take(self, database: Store) -> None:
        """Take a sample now."""
        self._due = time.monotonic() + STEP_SECONDS
        jobs = queue(database, datetime.now(UTC))
        self._samples.append(Sample(time.time(), *_counted(), waiting=jobs.length, running=jobs.running))

    def steps(self, seconds: float, most: int = 120) -> list[Step]:
        """Return what happened in the last `seconds`, in at most so many steps of equal length."""
        samples = [sample for sample in self._samples if sample.time >= time.time() - seconds]
        stride = max(1, -(-(len(samples) - 1) // most))
        chosen = samples[::-1][::stride][::-1]
        return [_step(before, after) for before, after in pairwise(chosen)]


def _counted() -> tuple[float, float, float, tuple[float, ...]]:
    """Return the requests of all workers, those refused, those failed, and the buckets of predictions."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        for metric in COUNTED:
            registry.register(metric)
    sums = dict.fromkeys(("requests", "refused", "failed"), 0.0)
    took = dict.fromkeys((*BUCKETS, float("inf")), 0.0)
    for family in registry.collect():
        for line in family.samples:
            if line.name == "dpserve_requests_total":
                sums["requests"] += line.value
                kind = ERRORS.get(line.labels["status"][:1])
                if kind is not None:
                    sums[kind] += line.value
            elif line.name == "dpserve_prediction_seconds_bucket":
                took[float(line.labels["le"])] += line.value
    return sums["requests"], sums["refused"], sums["failed"], tuple(took.values())


def _step(before: Sample, after: Sample) -> Step:
    minutes = max(after.time - before.time, 1e-9) / 60
    requests, refused, failed = (
        max(0.0, getattr(after, name) - getattr(before, name)) / minutes for name in ("requests", "refused", "failed")
    )
    took = [max(0.0, one - other) for one, other in zip(after.took, before.took, strict=True)]
    middle, slow = _quantile(took, 0.5), _quantile(took, 0.95)
    return Step(after.time, requests, refused, failed, middle, slow, after.waiting, after.running)


def _quantile(took: Sequence[float], share: float) -> float | None:
    """Return the seconds within which this share of predictions was answered, as Prometheus does: evenly within a
    bucket. Beyond the last bound, that bound.
    """
    total = took[-1] if took else 0.0
    if not total:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound, count in zip(BUCKETS, took, strict=False):
        if count >= wanted:
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return BUCKETS[-1]
