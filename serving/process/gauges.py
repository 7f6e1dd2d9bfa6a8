"""Metrics that are read at the moment of a scrape, the same from every worker: the ledger's figures, the queue, the
last audit, the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accountant.errors import LedgerInvalid
from accountant.home import Home
from accountant.ledger.families import Dataset
from accountant.ledger.job_counts import JobFigures, queue
from serving.process.audit_runs import read_last


@dataclass(frozen=True, eq=False)
class LedgerGauges(Collector):
    """Budgets, jobs and the queue. `jobs`: kept by the caller, so that a job that ended is read once."""

    home: Home
    jobs: JobFigures

    def collect(self) -> Iterable[Metric]:
        datasets = self.home.ledger.datasets()
        yield _by_dataset("dpserve_epsilon_spent", "Epsilon spent.", datasets, _spent)
        yield _by_dataset("dpserve_epsilon_total", "Epsilon in all.", datasets, _total)
        yield _by_dataset("dpserve_budget_left_ratio", "Share neither spent nor reserved.", datasets, _left)
        yield self._jobs()
        yield _gauge("dpserve_ledger_size", "Entries of the ledger.", self.home.ledger.log.size())
        yield from self._queue()

    def _jobs(self) -> Metric:
        family = CounterMetricFamily(
            "dpserve_jobs", "Jobs that have come to this state.", labels=["dataset", "learner", "state"]
        )
        for labels, count in sorted(self.jobs.passed(self.home.ledger.log.database).items()):
            family.add_metric(labels, count)
        return family

    def _queue(self) -> Iterable[Metric]:
        found = queue(self.home.ledger.log.database, datetime.now(UTC))
        yield _gauge("dpserve_queue_length", "Jobs that wait for a worker.", found.length)
        yield _gauge(
            "dpserve_queue_oldest_seconds", "Seconds that the oldest of them has waited.", found.oldest_seconds
        )
        yield _gauge("dpserve_jobs_running", "Jobs that have started and not ended.", found.running)


@dataclass(frozen=True, eq=False)
class AuditGauges(Collector):
    """The last audit; before the first, and where its result cannot be read, it counts as failed and old."""

    home: Home

    def collect(self) -> Iterable[Metric]:
        try:
            found = read_last(self.home.path) or {}
        except LedgerInvalid:
            found = {}
        at = datetime.fromisoformat(found["at"]).timestamp() if found else 0.0
        yield _gauge("dpserve_audit_ok", "Whether the last audit found nothing wrong.", float(found.get("ok", False)))
        yield _gauge("dpserve_audit_timestamp_seconds", "When the last audit began; 0: never.", at)
        yield _gauge("dpserve_audit_entries", "Entries that the last audit read.", found.get("entries", 0))


@dataclass(frozen=True, eq=False)
class ServingGauges(Collector):
    """Models that the answering worker serves or refuses; every worker sees the same folder."""

    served: int
    refused: int

    def collect(self) -> Iterable[Metric]:
        yield _gauge("dpserve_models_loaded", "Model versions verified and served.", self.served)
        yield _gauge("dpserve_models_refused", "Model versions that do not verify, and are not served.", self.refused)


def _spent(dataset: Dataset) -> float:
    return float(dataset.filter.epsilon_of(dataset.used - dataset.reserved))


def _total(dataset: Dataset) -> float:
    return float(dataset.budget.epsilon)


def _left(dataset: Dataset) -> float:
    return 1 - dataset.filter.share(dataset.used)


def _by_dataset(name: str, help: str, datasets: list[Dataset], figure: Callable[[Dataset], float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=["dataset"])
    for dataset in datasets:
        family.add_metric([dataset.registration.name], figure(dataset))
    return family


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value)
