"""Prometheus metrics. What happens in a worker is counted there and added up over the workers; what the ledger knows is
read when it is asked for. No metric depends on the rows, and every label comes from a bounded set.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from accountant.families import Dataset
from accountant.home import Home
from accountant.records import Job, State

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

PREDICTIONS = Counter("dpserve_predictions", "Records predicted.", ["model"], registry=None)
SECONDS = Histogram(
    "dpserve_prediction_seconds", "Seconds to answer a prediction request.", ["model"], buckets=BUCKETS, registry=None
)
REFUSALS = Counter("dpserve_refusals", "Jobs refused.", ["dataset", "reason"], registry=None)
FAILURES = Counter(
    "dpserve_certificate_failures", "Models found not to verify, counted by every worker.", ["reason"], registry=None
)
COUNTED = (PREDICTIONS, SECONDS, REFUSALS, FAILURES)

# What a job in this state has been through.
PASSED = {
    State.RESERVED: ("reserved",),
    State.STARTED: ("reserved", "started"),
    State.COMMITTED: ("reserved", "started", "committed"),
    State.BURNED: ("reserved", "started", "burned"),
    State.RELEASED: ("reserved", "released"),
}


class LedgerFigures(Collector):
    """The ledger's figures at the moment of a scrape, the same from every worker."""

    def __init__(self, home: Home, learners: dict[int, str]) -> None:
        self._home, self._learners = home, learners

    def collect(self) -> Iterable[Metric]:
        datasets = self._home.ledger.datasets()
        yield _gauge("dpserve_epsilon_spent", "Epsilon spent.", datasets, _spent)
        yield _gauge("dpserve_epsilon_total", "Epsilon in all.", datasets, _total)
        yield _gauge("dpserve_budget_left_ratio", "Share of the budget neither spent nor reserved.", datasets, _left)
        yield self._jobs()
        yield GaugeMetricFamily("dpserve_ledger_size", "Entries of the ledger.", self._home.ledger.log.size())

    def _jobs(self) -> Metric:
        """Monotone, as a counter must be: how many jobs have ever come to each state."""
        tally = Tally(each for job in self._home.ledger.jobs() for each in self._passed(job))
        family = CounterMetricFamily(
            "dpserve_jobs", "Jobs that have come to this state.", labels=["dataset", "learner", "state"]
        )
        for labels, count in sorted(tally.items()):
            family.add_metric(labels, count)
        return family

    def _passed(self, job: Job) -> Iterator[tuple[str, str, str]]:
        learner = self._learners.get(job.seq) or str(self._home.ledger.reservation(job.seq).value["learner"])
        self._learners[job.seq] = learner  # an entry never changes
        states = PASSED[job.state] + (("issued",) if job.issued is not None else ())
        return ((job.dataset, learner, state) for state in states)


def _spent(dataset: Dataset) -> float:
    return float(dataset.filter.epsilon_of(dataset.used - dataset.reserved))


def _total(dataset: Dataset) -> float:
    return float(dataset.budget.epsilon)


def _left(dataset: Dataset) -> float:
    return 1 - dataset.filter.share(dataset.used)


def _gauge(name: str, help: str, datasets: list[Dataset], figure: Callable[[Dataset], float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=["dataset"])
    for dataset in datasets:
        family.add_metric([dataset.registration.name], figure(dataset))
    return family


class Loaded(Collector):
    """Models that the answering worker serves; every worker sees the same folder."""

    def __init__(self, count: int) -> None:
        self._count = count

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("dpserve_models_loaded", "Model versions verified and served.", self._count)


def render(home: Home, learners: dict[int, str], loaded: int) -> bytes:
    """The exposition text. `learners`: a cache of job number -> learner that the caller keeps."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        for metric in COUNTED:
            registry.register(metric)
    for collector in (LedgerFigures(home, learners), Loaded(loaded)):
        registry.register(collector)
    return generate_latest(registry)
