"""What a service answers, as values. Every figure of privacy is an exact Decimal. `raw` is the answer as it came."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias, TypedDict

from dpserve import drawings

Json = Mapping[str, Any]
Record = Mapping[str, float | int | str | bool | None]

Number: TypeAlias = str | float | Decimal


class JobFields(TypedDict, total=False):
    """What a job may say beside its dataset, learner and epsilon; None is as left out."""

    delta: Number | None  # in [0, 1); the dataset's when left out
    parameters: Mapping[str, Any] | None  # of the learner, by name; they are public
    model: str | None  # name of the model; the dataset's when left out
    tuning: Mapping[str, Any] | None  # {"grid": {parameter: [values]}, "runs": mean}: the best of some runs, as one job
    target: str | None  # what to predict; must be said where the dataset has several targets
    promote: bool  # make the model champion of its name at once; else it is a candidate, unless it is the first
    evaluate: Number | None  # epsilon at which it is evaluated then on what is kept aside; charged together
    blocks: str | None  # of a dataset that grows, which: all, last:12, 3-7; the job is charged to each
    idempotency_key: str | None  # the same key with the same request is the same job, and spends once


class ScheduleFields(TypedDict, total=False):
    """What a schedule may say beside its name, dataset and epsilon: as a job, and when."""

    learner: str | None
    delta: Number | None
    parameters: Mapping[str, Any] | None
    model: str | None
    target: str | None
    promote: bool
    evaluate: Number | None
    blocks: str | None
    every: str  # hour, day or week; week when left out
    start: str | None  # when the first period begins, in UTC, like 2026-01-05T06:00; now when left out
    dry_run: bool  # only tell how long it could be kept


class EvaluationFields(TypedDict, total=False):
    """What an evaluation may say beside model, dataset and epsilon; at most one of against, group and scores."""

    part: str | None  # holdout, what is kept aside, as when left out; or training
    delta: Number | None
    against: str | None  # another model, to be compared with
    group: str | None  # a column by whose groups each is measured
    scores: bool  # of three or more classes: AUROC and log loss too
    blocks: str | None
    idempotency_key: str | None


class ProfileFields(TypedDict, total=False):
    """What a profile may say beside dataset and epsilon."""

    delta: Number | None
    part: str | None  # holdout, what was kept aside; what learners read, when left out
    columns: Sequence[str]  # these alone
    pairs: Sequence[Sequence[str]]  # columns that are counted together as well
    blocks: str | None
    idempotency_key: str | None


def request_body(**fields: Any) -> dict[str, Any]:
    """Return what was said as a body: nothing of what was left out, decimals as texts that keep every digit."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: str(value) if isinstance(value, float | Decimal) else value for name, value in given.items()}


def with_key(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with an idempotency key: one is made where none was given, so that asking twice spends once."""
    return {"idempotency_key": str(uuid.uuid4())} | body


FINAL = frozenset({"issued", "burned", "released"})


@dataclass(frozen=True)
class Budget:
    """Epsilon and delta in all; what is reserved for jobs that have not started, what is spent, what is left.

    To plan by: `share_left`, and `one_job`, the epsilon of a single job that would surely be admitted now, 0 where
    there is none (of Gaussian noise at `delta`, or any at delta 0, or of the whole total: docs/budgets.md), and
    `bound_by`, in words, what lets no larger one in. Of a dataset that has grown, they speak of the block with most
    room, `window`. `spent`, `reserved` and `left` are converted at `delta`, and do not add up.
    """

    epsilon: Decimal
    delta: Decimal
    reserved: Decimal
    spent: Decimal
    left: Decimal
    share_left: Decimal
    one_job: Decimal
    jobs_left: Mapping[str, int]
    bound_by: str = ""
    window: tuple[int, int] | None = None

    @classmethod
    def of(cls, body: Json) -> Budget:
        """From the service's JSON."""
        return cls(
            epsilon=Decimal(body["total"]["epsilon"]),
            delta=Decimal(body["total"]["delta"]),
            reserved=Decimal(body["reserved"]["epsilon"]),
            spent=Decimal(body["spent"]["epsilon"]),
            left=Decimal(body["left"]["epsilon"]),
            share_left=Decimal(body["left"]["share"]),
            one_job=_one_job(body["left"]),
            jobs_left=dict(body["jobs_left"]),
            bound_by=body["left"].get("binding", {}).get("words", ""),
            window=(blocks[0], blocks[1]) if (blocks := body["left"].get("window")) else None,
        )

    def _repr_html_(self) -> str:
        """What is left of it, in a notebook."""
        said = f"{self.share_left:.0%} left; room for one more job: up to epsilon {self.one_job} at delta {self.delta}"
        return drawings.gauge(f"Budget of epsilon {self.epsilon}", float(self.share_left), said)


@dataclass(frozen=True)
class Dataset:
    """`relation`: add-remove or replace-one; `unit`: whom the promise protects, `record` or a column of people;
    `families`: the names of those whose budgets it shares."""

    name: str
    relation: str
    unit: str
    budget: Budget
    raw: Json = field(repr=False, compare=False)
    families: Sequence[str] = ()

    @property
    def targets(self) -> Sequence[str]:
        """What a job may be asked to predict, where there are several to choose from."""
        targets: Sequence[str] = self.raw.get("targets", ())
        return targets

    @classmethod
    def of(cls, body: Json) -> Dataset:
        """From the service's JSON."""
        families = body.get("family_names", ())
        return cls(body["name"], body["relation"], body["unit"], Budget.of(body["budget"]), body, families)


@dataclass(frozen=True)
class Family:
    """People who share one budget, and the names of the `datasets` that hold them."""

    name: str
    datasets: Sequence[str]
    relation: str
    unit: str
    budget: Budget
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, body: Json) -> Family:
        """From the service's JSON."""
        budget = Budget.of({"jobs_left": {}, **body["budget"]})
        return cls(body["name"], body["datasets"], body["relation"], body["unit"], budget, body)


@dataclass(frozen=True)
class Plan:
    """A job's price before it is asked for; after it `share_left` of the budget, `one_job` more of at most so much
    epsilon, and `more` jobs like it. `left`: epsilon, converted at the dataset's delta."""

    dataset: str
    learner: str
    model: str
    epsilon: Decimal
    delta: Decimal
    rounds: int
    left: Decimal
    more: int
    warnings: Sequence[str]
    raw: Json = field(repr=False, compare=False)
    share_left: Decimal = Decimal(0)
    one_job: Decimal = Decimal(0)

    @property
    def chosen_by_auto(self) -> str | None:
        """Why it is this learner, where none was named; else None."""
        why: str | None = self.raw.get("chosen_by_auto")
        return why

    @property
    def target(self) -> str | None:
        """What it is to predict; None where its dataset has one target."""
        target: str | None = self.raw.get("target")
        return target

    @classmethod
    def of(cls, body: Json) -> Plan:
        """From the service's JSON."""
        return cls(
            dataset=body["dataset"],
            learner=body["learner"],
            model=body["model"],
            epsilon=Decimal(body["epsilon"]),
            delta=Decimal(body["delta"]),
            rounds=body["rounds"],
            left=Decimal(body["left"]["epsilon"]),
            more=body["left"]["jobs"],
            warnings=body["warnings"],
            raw=body,
            share_left=Decimal(body["left"]["share"]),
            one_job=_one_job(body["left"]),
        )


@dataclass(frozen=True)
class Job:
    """A job as it stands. `state`: reserved, started, committed, issued, burned or released.

    `done` of `total`: releases of the plan, or runs where the job is tuned; nothing of the data. `entry`: where its
    certificate stands in the ledger. `error`: why it came to nothing.
    """

    number: int
    state: str
    done: int
    total: int
    dataset: str
    learner: str
    model: str
    epsilon: Decimal
    delta: Decimal
    left: Decimal
    entry: int | None
    error: str | None
    raw: Json = field(repr=False, compare=False)

    @property
    def over(self) -> bool:
        """Whether it changes no more."""
        return self.state in FINAL

    @property
    def version(self) -> str | None:
        """`adult@2`, once it is among the models."""
        number = self.raw.get("version")
        return None if number is None else f"{self.model}@{number}"

    @property
    def version_state(self) -> str | None:
        """How that version stands: candidate, champion, retired or revoked."""
        state: str | None = self.raw.get("version_state")
        return state

    @property
    def chosen_by_auto(self) -> str | None:
        """Why it is this learner, where none was named; else None."""
        why: str | None = self.raw.get("chosen_by_auto")
        return why

    @property
    def target(self) -> str | None:
        """What it is to predict; None where its dataset has one target."""
        target: str | None = self.raw.get("target")
        return target

    @classmethod
    def of(cls, body: Json) -> Job:
        """From the service's JSON."""
        return cls(
            number=body["job"],
            state=body["state"],
            done=body["progress"]["done"],
            total=body["progress"]["total"],
            dataset=body["dataset"],
            learner=body["learner"],
            model=body["model"],
            epsilon=Decimal(body["epsilon"]),
            delta=Decimal(body["delta"]),
            left=Decimal(body["left"]["epsilon"]),
            entry=None if body["certificate"] is None else body["certificate"]["entry"],
            error=body["error"],
            raw=body,
        )


@dataclass(frozen=True)
class Model:
    """A line of the list of models. `state`: candidate, champion, retired or revoked. `epsilon` None: it was not looked
    at yet, or does not verify, and `problem` says why."""

    reference: str
    name: str
    version: int
    champion: bool
    state: str
    epsilon: Decimal | None
    delta: Decimal | None
    problem: str | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, body: Json) -> Model:
        """From the service's JSON."""
        claim = body["certificate"] or {}
        return cls(
            reference=body["model"],
            name=body["name"],
            version=body["version"],
            champion=body["champion"],
            state=body["state"],
            epsilon=Decimal(claim["epsilon"]) if claim else None,
            delta=Decimal(claim["delta"]) if claim else None,
            problem=body["problem"],
            raw=body,
        )


@dataclass(frozen=True)
class Predictions:
    """One label for each record, or one number; of classes also `probabilities[record][class]`."""

    model: str
    labels: Sequence[Any]
    classes: Sequence[Any]
    probabilities: Sequence[Sequence[float]]
    raw: Json = field(repr=False, compare=False)

    @property
    def target(self) -> str | None:
        """What was predicted; None of services that do not say."""
        target: str | None = self.raw.get("target")
        return target

    @classmethod
    def of(cls, body: Json) -> Predictions:
        """From the service's JSON."""
        return cls(body["model"], body["predictions"], body.get("classes", []), body.get("probabilities", []), body)

    def columns(self) -> dict[str, list[Any]]:
        """A column for each answer, as `dpserve predict` writes them: `label` and `p_<class>`, or `value`. pandas,
        polars and pyarrow make a frame of it.
        """
        chances = {f"p_{name}": [row[at] for row in self.probabilities] for at, name in enumerate(self.classes)}
        return {"label" if self.classes else "value": list(self.labels), **chances}


@dataclass(frozen=True)
class Explanation:
    """Prediction i comes of `base` and the sum of `contributions[i]`, one for each feature, in `unit`."""

    model: str
    unit: str
    features: Sequence[str]
    base: Any
    contributions: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, body: Json) -> Explanation:
        """From the service's JSON."""
        return cls(
            model=body["model"],
            unit=body["unit"],
            features=body["features"],
            base=body["base"],
            contributions=body["contributions"],
            labels=body["predictions"],
            raw=body,
        )

    def columns(self) -> dict[str, list[Any]]:
        """A column for each feature: what it adds to each record's score; of several classes a list of each."""
        return {name: [line[at] for line in self.contributions] for at, name in enumerate(self.features)}

    def _repr_html_(self) -> str:
        """The first record's, in a notebook: what adds most, of several classes to the one that was predicted."""
        line, label = self.contributions[0], self.labels[0]
        at = list(self.raw.get("classes", ())).index(label) if line and isinstance(line[0], list) else None
        sizes = {name: adds if at is None else adds[at] for name, adds in zip(self.features, line, strict=True)}
        heavy = dict(sorted(sizes.items(), key=lambda each: -abs(each[1]))[:12])
        title = f"{self.model} says {label}: what adds to it ({self.unit}), record 1 of {len(self.labels)}"
        drawn, high = drawings.bars(title, heavy)
        return drawings.svg([drawn], drawings.NAMES + drawings.WIDE, high, title)


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger; `text` is exactly what was hashed."""

    index: int
    text: str


def _one_job(left: Json) -> Decimal:
    """0 where no job fits; services did not always tell it."""
    told = left.get("one_job")
    return Decimal(told["epsilon"]) if told else Decimal(0)


@dataclass(frozen=True)
class Grant:
    """That a principal may do what `scope` says: on "everything", or on {"dataset": name}, a family or a model.

    `number`: of the entry that made it; `revoked`: of the one that ended it. `stops`: of `Client.grant` alone, what
    would end with it: the names of `tokens`, `still`, another grant that covers it, and `jobs` that would go on.
    """

    number: int
    principal: str
    scope: str
    on: str | Json
    expires: str | None
    revoked: int | None
    raw: Json = field(repr=False, compare=False)
    stops: Json | None = None

    @classmethod
    def of(cls, body: Json) -> Grant:
        """From the service's JSON."""
        own = body["grant"], body["principal"], body["scope"], body["on"], body["expires"], body["revoked"]
        return cls(*own, body, body.get("stops"))
