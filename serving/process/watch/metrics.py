"""Prometheus metrics. What happens in a worker is counted there and added up over the workers; what the home knows is
read when it is asked for (`serving.process.watch.metrics`). No metric depends on the rows, and every label comes from a
bounded set.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import Scope

from accountant.home import Home
from accountant.ledger.archive import archived
from accountant.ledger.families.dataset_sets import questions as dataset_questions
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import ROOMIEST, FamilyRow, families_of, left, left_in_windows
from accountant.ledger.families.records import HOLDOUT, WAITING
from accountant.ledger.job_counts import QUEUE, JobFigures, queue
from dpserve_verify.errors import BudgetRefused, LedgerInvalid, LedgerUnavailable
from models.store.bundle import CHAMPION
from models.store.standing import Standing
from models.worth.statements import judgements
from serving.process.watch.access_log import note_subject
from serving.process.watch.audit_runs import read_last
from serving.process.watch.upkeep import upkeep

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
WAIT_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OTHER = "other"  # the label of all versions that have no series of their own
PROCESSES = ("serving", "keeper", "train", "prices", "audit", "drafts")  # dpserve-NAME
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})

PREDICTIONS = Counter(
    "dpserve_predictions",
    "Records predicted, by the champion that answers (adult@2); other: by all other versions together, unless "
    "DPSERVE_METRICS_VERSIONS=all.",
    ["model"],
    registry=None,
)
SECONDS = Histogram(
    "dpserve_prediction_seconds",
    "Seconds to answer a prediction request, from the whole body to the whole answer.",
    ["model"],
    buckets=BUCKETS,
    registry=None,
)
WAITS = Histogram(
    "dpserve_request_wait_seconds",
    "Seconds from a request's whole head to when a serving process begins with it.",
    buckets=WAIT_BUCKETS,
    registry=None,
)
LATENESS = Histogram(
    "dpserve_loop_late_seconds",
    "Seconds by which a serving process was late at what it does by itself four times a second: for so long what came "
    "had to wait.",
    buckets=WAIT_BUCKETS,
    registry=None,
)
REFUSALS = Counter(
    "dpserve_refusals", "Jobs that a budget or a quota did not admit.", ["dataset", "reason"], registry=None
)
FAILURES = Counter(
    "dpserve_certificate_failures", "Models found not to verify, counted by every worker.", ["reason"], registry=None
)
REQUESTS = Counter(
    "dpserve_requests",
    "Requests answered, by the template of the route; none: where no route was meant.",
    ["method", "route", "status"],
    registry=None,
)
MISMATCHES = Counter(
    "dpserve_index_mismatches",
    "Rows of the ledger's index that say what was never signed, counted by every worker.",
    ["table"],
    registry=None,
)
COUNTED = (PREDICTIONS, SECONDS, WAITS, LATENESS, REFUSALS, FAILURES, REQUESTS, MISMATCHES)


@lru_cache(maxsize=4096)
def _predictions(model: str) -> tuple[Any, Any]:
    return PREDICTIONS.labels(model), SECONDS.labels(model)


@contextmanager
def counting_refusals(dataset: str) -> Iterator[None]:
    """Note the dataset for the audit trail, and count a BudgetRefused raised within."""
    try:
        yield
        note_subject(dataset)
    except BudgetRefused as refused:
        note_subject(dataset)
        REFUSALS.labels(dataset, refused.details["reason"]).inc()
        raise


def count_predictions(model: str, records: int, seconds: float) -> None:
    """Count an answer of a model: `adult@2`, or OTHER for versions that have no series of their own."""
    predicted, took = _predictions(model)
    predicted.inc(records)
    took.observe(seconds)


def count_wait(seconds: float) -> None:
    """Count a request that had to wait so long before anybody began with it."""
    WAITS.observe(seconds)


@lru_cache(maxsize=4096)
def _requests(method: str, route: str, status: int) -> Any:
    return REQUESTS.labels(method, route, status)


def count_request(scope: Scope, status: int) -> None:
    """Count a request by its route's template, never by the path: "none" where no route was meant, or none was looked
    for.
    """
    _requests(known_method(scope), route_of(scope), status).inc()


def known_method(scope: Scope) -> str:
    """Return the method of a request; "other" for one that is not HTTP's."""
    return scope["method"] if scope["method"] in METHODS else "other"


def route_of(scope: Scope) -> str:
    """Return the template of a request's route; "none" where there is none."""
    return str(getattr(scope.get("route"), "path", "none"))


def render(collectors: Iterable[Collector]) -> bytes:
    """Return the exposition text: what all workers counted, and what the collectors read now."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        for metric in COUNTED:
            registry.register(metric)
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


@dataclass(frozen=True, eq=False)
class ReachedGauges(Collector):
    """Whether the ledger can be asked, and what `parts` read of it in one snapshot, each as a whole: where it cannot,
    they say nothing rather than keep back what needs no ledger. `home`: None where it could not be looked at a
    moment ago, so nobody waits for it.
    """

    home: Home | None
    parts: Sequence[Collector]

    def collect(self) -> Iterable[Metric]:
        """Read the ledger now, until it cannot be."""
        metrics, reached = ([], False) if self.home is None else self._read(self.home)
        yield from metrics
        yield _gauge("dpserve_ledger_reachable", "Whether the ledger's database could be asked now.", float(reached))

    def _read(self, home: Home) -> tuple[list[Metric], bool]:
        metrics: list[Metric] = []
        try:
            with home.ledger.log.sharing():
                for part in self.parts:
                    metrics += list(part.collect())
        except LedgerUnavailable:
            return metrics, False
        return metrics, True


@dataclass(frozen=True, eq=False)
class LedgerGauges(Collector):
    """Budgets, jobs, the queue, what is kept up. `jobs`: kept by the caller, so that a job that ended is read once."""

    home: Home
    jobs: JobFigures

    def collect(self) -> Iterable[Metric]:
        """Read the ledger now. A retired dataset has no series of budgets: nothing is asked of it any more."""
        return list(self._read())

    def _read(self) -> Iterable[Metric]:
        self.home.ledger.log.database.ask([*dataset_questions(), *self.jobs.questions(), *QUEUE])
        retired = archived(self.home.ledger, "dataset")
        datasets = [each for each in self.home.ledger.datasets() if each.registration.name not in retired]
        yield from _budgets(datasets)
        yield from _windows(datasets)
        yield from _holdout_and_person(self.home, datasets)
        yield from _by_family(families_of(datasets))
        yield self._jobs()
        with self.home.ledger.log.signed() as signed:
            yield _gauge("dpserve_ledger_size", "Entries of the ledger.", signed.size)
            yield from upkeep(self.home, signed, retired)
        yield from self._queue()

    def _jobs(self) -> Metric:
        family = CounterMetricFamily(
            "dpserve_jobs", "Jobs that have ever come to this state.", labels=["dataset", "learner", "state"]
        )
        for labels, count in sorted(self.jobs.passed(self.home.ledger.log.database).items()):
            family.add_metric(labels, count)
        return family

    def _queue(self) -> Iterable[Metric]:
        jobs = queue(self.home.ledger.log.database, datetime.now(UTC))
        yield _gauge("dpserve_queue_length", "Jobs that wait for a worker.", jobs.length)
        yield _gauge("dpserve_queue_oldest_seconds", "Seconds that the oldest of them has waited.", jobs.oldest_seconds)
        passed_over = GaugeMetricFamily(
            "dpserve_queue_left", "Jobs that a worker left for another: it cannot read the rows.", labels=["why"]
        )
        for why in WAITING:
            passed_over.add_metric([why], jobs.left.get(why, 0))
        yield passed_over
        yield _gauge("dpserve_jobs_running", "Jobs that have started and not ended.", jobs.running)


@dataclass(frozen=True, eq=False)
class AuditGauges(Collector):
    """The last audit; before the first, and where its result cannot be read, it counts as failed and old."""

    home: Path

    def collect(self) -> Iterable[Metric]:
        """Read the last result now."""
        try:
            audit = read_last(self.home) or {}
        except LedgerInvalid:
            audit = {}
        at = datetime.fromisoformat(audit["at"]).timestamp() if audit else 0.0
        yield _gauge(
            "dpserve_audit_ok", "Whether the last audit found nothing wrong.", float(audit.get("problems") == [])
        )
        yield _gauge("dpserve_audit_timestamp_seconds", "When the last audit began; 0: never.", at)
        yield _gauge("dpserve_audit_entries", "Entries that the last audit read.", audit.get("entries", 0))


@dataclass(frozen=True, eq=False)
class ServingGauges(Collector):
    """Models that the answering worker serves or refuses; every worker sees the same folder."""

    served: int
    refused: int
    standings: Mapping[str, int]

    def collect(self) -> Iterable[Metric]:
        """Yield how many versions are loaded and refused, and how many are in each state."""
        family = GaugeMetricFamily("dpserve_model_versions", "Model versions, by how they stand.", labels=["state"])
        for state in Standing:
            family.add_metric([state.value], self.standings.get(state.value, 0))
        yield family
        yield _gauge("dpserve_models_loaded", "Model versions verified and served.", self.served)
        yield _gauge(
            "dpserve_models_refused",
            "Model versions that do not verify, and are not served; not those that were revoked.",
            self.refused,
        )


@dataclass(frozen=True, eq=False)
class ProcessGauges(Collector):
    """The processes below one, `root`: those that `dpserve serve` forks, by their names, and what they have begun."""

    root: int

    def collect(self) -> Iterable[Metric]:
        """Count them now, where the system tells of processes as Linux does."""
        children = defaultdict[int, list[tuple[int, str]]](list)
        for each in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                number, _, rest = each.read_text("utf-8", "replace").partition(" (")
                name, _, fields = rest.rpartition(") ")
                children[int(fields.split()[1])].append((int(number), name.removeprefix("dpserve-")))
        counts, above = dict.fromkeys((*PROCESSES, OTHER), 0), [self.root]
        while above:
            for process, name in children[above.pop()]:
                above.append(process)
                counts[name if name in PROCESSES else OTHER] += 1
        family = GaugeMetricFamily(
            "dpserve_processes",
            "Processes of this server on this machine; other: sealed ones, of readers and learners of others.",
            labels=["kind"],
        )
        for kind, count in counts.items():
            family.add_metric([kind], count)
        yield family


class WorthGauges(Collector):
    """What champions were measured to be worth: of signed statements alone, whose figures are public."""

    def __init__(self, home: Home, lines: list[dict[str, Any]]) -> None:
        self.home, self.lines = home, [line for line in lines if line[CHAMPION]]

    def collect(self) -> Iterable[Metric]:
        """Yield, for each champion, its first figure with the interval, and the verdict."""
        worth = GaugeMetricFamily(
            "dpserve_model_worth",
            "The first figure of the champion's newest evaluation; bound: value, low, high.",
            labels=["model", "metric", "bound"],
        )
        better = GaugeMetricFamily(
            "dpserve_model_better",
            "1: that evaluation shows it to be better than a constant answer; 0: it does not.",
            labels=["model"],
        )
        for line, statement in judgements(self.home, self.lines):
            if statement is not None:
                first = statement["metrics"][0]
                better.add_metric([line["name"]], float(statement["better"]))
                for bound in (name for name in ("value", "low", "high") if first[name] is not None):
                    worth.add_metric([line["name"], first["metric"], bound], float(first[bound]))
        yield from (worth, better)


def _gauges(labels: list[str], **helps: str) -> dict[str, GaugeMetricFamily]:
    """Make gauges of these labels, by the end of their names."""
    return {name: GaugeMetricFamily(f"dpserve_{name}", says, labels=labels) for name, says in helps.items()}


def _budgets(datasets: Sequence[Dataset]) -> Iterable[Metric]:
    """Yield where each dataset's budget stands, and by which account. Of one that has grown, what is left is that of
    the block with most room, and what was spent is that of the block with least.
    """
    gauges = _gauges(
        ["dataset"],
        epsilon_spent="Epsilon spent, converted at delta; above a total that was lowered since.",
        epsilon="Epsilon in all.",
        epsilon_largest="The largest total epsilon that was ever in force: what is promised.",
        budget_left_ratio="Share neither spent nor reserved, of the account of which least is left; of a dataset that "
        "has grown, on the block with most room.",
        epsilon_one_job="Epsilon of the largest single job that fits, by all accounts; on the same block.",
    )
    binds = GaugeMetricFamily(
        "dpserve_budget_binding",
        "1: the kind of account (family, block, person, rows) that gives the figure (budget_left_ratio, "
        "epsilon_one_job).",
        labels=["dataset", "figure", "account"],
    )
    for dataset in datasets:
        name, most, now = dataset.registration.name, dataset.most_used, left(dataset)
        gauges["epsilon_spent"].add_metric([name], float(most.epsilon_of(most.used - most.reserved)))
        gauges["epsilon"].add_metric([name], float(most.budget.epsilon))
        gauges["epsilon_largest"].add_metric([name], float(most.largest))
        gauges["budget_left_ratio"].add_metric([name], now.share)
        gauges["epsilon_one_job"].add_metric([name], float(now.job.epsilon))
        binds.add_metric([name, "budget_left_ratio", now.least.kind], 1)
        binds.add_metric([name, "epsilon_one_job", now.binding.kind], 1)
    yield from (*gauges.values(), binds)


def _windows(datasets: Sequence[Dataset]) -> Iterable[Metric]:
    """Yield two windows of each dataset that has grown: the newest block, and all blocks together. However many blocks
    there are, two.
    """
    gauges = _gauges(
        ["dataset", "window"],
        blocks_left_ratio="Share that is left to a job on the newest block, or on all.",
        blocks_epsilon_one_job="Epsilon of the largest single job on the newest block, or on all.",
    )
    for dataset in datasets:
        for window, now in left_in_windows(dataset).items():
            if window != ROOMIEST:  # dpserve_budget_left_ratio
                labels = [dataset.registration.name, window]
                gauges["blocks_left_ratio"].add_metric(labels, now.share)
                gauges["blocks_epsilon_one_job"].add_metric(labels, float(now.job.epsilon))
    yield from gauges.values()


def _holdout_and_person(home: Home, datasets: Sequence[Dataset]) -> Iterable[Metric]:
    """Yield the accounts beside a dataset's own: of the part kept aside for evaluation, and of one person over all
    blocks.
    """
    holdout = _gauges(
        ["dataset"],
        holdout_epsilon_spent="Epsilon spent of the part kept aside, converted at delta.",
        holdout_left_ratio="Share neither spent nor reserved of the part kept aside.",
        holdout_epsilon_one_job="Epsilon of the largest single evaluation that fits.",
    )
    person = _gauges(["dataset"], person_left_ratio="Share that is left of one person's total over all blocks.")
    for dataset in datasets:
        name = dataset.registration.name
        if dataset.person is not None:
            person["person_left_ratio"].add_metric([name], 1 - dataset.person.share)
        if dataset.holdout is not None:
            aside = home.ledger.dataset(name, part=HOLDOUT)
            most, now = aside.most_used, left(aside, Decimal(0))  # an evaluation's noise is pure
            holdout["holdout_epsilon_spent"].add_metric([name], float(most.epsilon_of(most.used - most.reserved)))
            holdout["holdout_left_ratio"].add_metric([name], now.share)
            holdout["holdout_epsilon_one_job"].add_metric([name], float(now.job.epsilon))
    yield from (*holdout.values(), *person.values())


def _by_family(families: Sequence[FamilyRow]) -> Iterable[Metric]:
    """Yield one series for each budget, and which datasets share it."""
    gauges = _gauges(
        ["family"],
        family_epsilon="Epsilon in all.",
        family_epsilon_spent="Epsilon spent, converted at delta.",
        family_left_ratio="Share neither spent nor reserved.",
        family_epsilon_one_job="Epsilon of the largest single job that fits.",
    )
    member = GaugeMetricFamily("dpserve_family_member", "1 for each dataset of it.", labels=["family", "dataset"])
    for row in families:
        family, now = row.family, left(row.dataset)
        gauges["family_epsilon"].add_metric([family.name], float(family.budget.epsilon))
        gauges["family_epsilon_spent"].add_metric(
            [family.name], float(family.epsilon_of(family.used - family.reserved))
        )
        gauges["family_left_ratio"].add_metric([family.name], now.share)
        gauges["family_epsilon_one_job"].add_metric([family.name], float(now.job.epsilon))
        for dataset in row.names:
            member.add_metric([family.name, dataset], 1)
    yield from (*gauges.values(), member)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value)
