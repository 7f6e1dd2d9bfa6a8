"""A service's answers as values. Every figure of privacy is an exact Decimal. `raw` is the answer as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias, TypedDict

from dpserve import drawings

Json = Mapping[str, Any]
Record = Mapping[str, float | int | str | bool | None]

Number: TypeAlias = str | float | Decimal


class JobFields(TypedDict, total=False):
    """Fields of a job beside its dataset, learner and epsilon; None is as left out."""

    delta: Number | None  # in [0, 1); the dataset's when left out
    parameters: Mapping[str, Any] | None  # of the learner, by name; they are public
    model: str | None  # name of the model; the dataset's when left out
    tuning: Mapping[str, Any] | None  # {"grid": {parameter: [values]}, "runs": mean}: the best of some runs, as one job
    target: str | None  # what to predict; must be said where the dataset has several targets
    promote: bool  # make the model champion of its name at once; else it is a candidate, unless it is the first
    evaluate: Number | None  # epsilon at which it is evaluated then on what is kept aside; charged together
    attack: int  # register an attack on the model's claim, of so many runs on made-up canaries
    blocks: str | None  # of a dataset that grows, which: all, last:12, 3-7; the job is charged to each
    public: str | None  # a model of the home to begin from, or the sha256 of a start that is kept there
    idempotency_key: str | None  # the same key with the same request is the same job, and spends once


class ScheduleFields(TypedDict, total=False):
    """Fields of a schedule beside its name, dataset and epsilon: those of a job, and when."""

    learner: str | None
    delta: Number | None
    parameters: Mapping[str, Any] | None
    model: str | None
    target: str | None
    promote: bool
    attack: int
    evaluate: Number | None
    blocks: str | None
    public: str | None
    every: str  # hour, day, week or month; week when left out
    start: str | None  # when the first period begins, in UTC, like 2026-01-05T06:00; now when left out
    dry_run: bool  # only tell how long it could be kept


class CountFields(TypedDict, total=False):
    """Fields that an evaluation, a profile and a query share, beside model or dataset and epsilon."""

    part: str | None  # holdout, what is kept aside, or training; when left out the first for an evaluation alone
    delta: Number | None
    blocks: str | None
    idempotency_key: str | None


class EvaluationFields(CountFields, total=False):
    """At most one of against, group and scores; cover goes with group."""

    against: str | None  # another model, to be compared with
    group: str | None  # a column by whose groups each is measured
    scores: bool  # of three or more classes: AUROC and log loss too
    cover: bool  # how answers cover the truth, for predictions with a level


class ProfileFields(CountFields, total=False):
    """Fields of a profile."""

    columns: Sequence[str]  # these alone
    pairs: Sequence[Sequence[str]]  # columns that are counted together as well
    around: str | None  # each column with this one, and the others along a tree, chosen privately


class QueryFields(CountFields, total=False):
    """Fields of a query; without epsilon, what follows from earlier releases alone."""

    epsilon: Number | None


class ChargeFields(TypedDict, total=False):
    """Fields of a charge beside what released it and why: a curve of one of four kinds, or what states it."""

    epsilon: Number | None
    delta: Number | None  # of that epsilon
    rho: Number | None  # of zero-concentrated privacy
    mu: Number | None  # of Gaussian privacy
    renyi: Mapping[str, Number] | None  # the divergence at each order above 1
    statement: Mapping[str, Any] | None  # a signed statement of dpserve, or a history of DP-SGD
    key: str | None  # of a signed statement: the issuer's key in PEM, or trust.json
    document: str | None  # sha256, in hex, of what says so
    unit: Literal["record", "person"] | None  # what the curve protects; record when left out
    contributions: int | None  # of a curve of records: how many of a person it read at most
    another: bool | None  # it is another release than one charged before
    blocks: str | None


FINAL = frozenset({"issued", "burned", "released"})


@dataclass(frozen=True)
class Budget:
    """The budget of a dataset or a family. Plan by `share_left` and `one_job`, which `room` says in words.

    `spent` and `reserved` are epsilon converted at `delta`, and do not add up.

    Attributes:
        epsilon: Epsilon in all.
        delta: Delta in all.
        reserved: Epsilon of jobs that have not started.
        spent: Epsilon spent.
        share_left: The share of the budget that is left, 0 to 1.
        one_job: Epsilon of a single job that would surely be admitted now, 0 where there is none: of Gaussian noise at
            `delta`, or of any noise at delta 0, or of the whole total (docs/budgets.md).
        jobs_left: By learner, how many jobs still fit.
        bound_by: In words, what lets no larger job in.
        room: In words, how much is used and what one more job may ask for, as every door says it.
        window: Of a dataset that has grown, the blocks with most room, which `share_left` and `one_job` speak of.
    """

    epsilon: Decimal
    delta: Decimal
    reserved: Decimal
    spent: Decimal
    share_left: Decimal
    one_job: Decimal
    jobs_left: Mapping[str, int]
    bound_by: str = ""
    room: str = ""
    window: tuple[int, int] | None = None

    @classmethod
    def of(cls, body: Json) -> Budget:
        """Read the service's JSON."""
        return cls(
            epsilon=Decimal(body["total"]["epsilon"]),
            delta=Decimal(body["total"]["delta"]),
            reserved=Decimal(body["reserved"]["epsilon"]),
            spent=Decimal(body["spent"]["epsilon"]),
            **_left(body["left"]),
            jobs_left=dict(body["jobs_left"]),
            bound_by=body["left"].get("binding", {}).get("words", ""),
            window=(blocks[0], blocks[1]) if (blocks := body["left"].get("window")) else None,
        )

    def _repr_html_(self) -> str:
        """Draw what is left of it, in a notebook."""
        return drawings.gauge(f"Budget of epsilon {self.epsilon}", 1 - float(self.share_left), self.room)


@dataclass(frozen=True)
class Dataset:
    """A registered dataset.

    Attributes:
        relation: add-remove or replace-one.
        unit: Whom the promise protects: `record`, or a column of people.
        budget: Its budget.
        families: The names of the families whose budgets it shares.
        problem: Why it cannot be trained on at the server now: its folder is not there; None where it is.
    """

    name: str
    relation: str
    unit: str
    budget: Budget
    raw: Json = field(repr=False, compare=False)
    families: Sequence[str] = ()
    problem: str | None = None

    @property
    def targets(self) -> Sequence[str]:
        """Return the targets that a job may be asked to predict, where there are several to choose from; else empty."""
        return self.raw.get("targets", ())  # type: ignore[no-any-return]

    @property
    def weight(self) -> Json | None:
        """Return the `column` by which its rows count, and the `most` that one does; None where all count alike."""
        return self.raw.get("weight")

    @classmethod
    def of(cls, body: Json) -> Dataset:
        """Read the service's JSON."""
        more = body.get("family_names", ()), body.get("problem")
        return cls(body["name"], body["relation"], body["unit"], Budget.of(body["budget"]), body, *more)


@dataclass(frozen=True)
class Family:
    """People who share one budget.

    Attributes:
        datasets: The names of the datasets that hold these people.
        relation: add-remove or replace-one.
        unit: Whom the promise protects: `record`, or a column of people.
        budget: The budget that they share.
    """

    name: str
    datasets: Sequence[str]
    relation: str
    unit: str
    budget: Budget
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, body: Json) -> Family:
        """Read the service's JSON."""
        budget = Budget.of({"jobs_left": {}, **body["budget"]})
        return cls(body["name"], body["datasets"], body["relation"], body["unit"], budget, body)


class _OfJob:
    """What a job and its plan say alike."""

    raw: Json

    @property
    def chosen_by_auto(self) -> str | None:
        """Explain why this learner was chosen, where the request named none; else None."""
        why: str | None = self.raw.get("chosen_by_auto")
        return why

    @property
    def target(self) -> str | None:
        """Return what it is to predict; None where its dataset has one target."""
        target: str | None = self.raw.get("target")
        return target


@dataclass(frozen=True)
class Plan(_OfJob):
    """A job's price before it is asked for.

    Attributes:
        epsilon: The price, with `delta`.
        rounds: Rounds of the learner.
        more: How many jobs like it fit after it.
        warnings: What to know before it is submitted.
        share_left: The share of the budget left after it.
        one_job: Epsilon of the largest single job that fits after it.
        room: In words, how much is used after it and what one more job may ask for.
    """

    dataset: str
    learner: str
    model: str
    epsilon: Decimal
    delta: Decimal
    rounds: int
    more: int
    warnings: Sequence[str]
    raw: Json = field(repr=False, compare=False)
    share_left: Decimal = Decimal(0)
    one_job: Decimal = Decimal(0)
    room: str = ""

    @classmethod
    def of(cls, body: Json) -> Plan:
        """Read the service's JSON."""
        return cls(
            dataset=body["dataset"],
            learner=body["learner"],
            model=body["model"],
            epsilon=Decimal(body["epsilon"]),
            delta=Decimal(body["delta"]),
            rounds=body["rounds"],
            more=body["left"]["jobs"],
            warnings=body["warnings"],
            raw=body,
            **_left(body["left"]),
        )


@dataclass(frozen=True)
class Job(_OfJob):
    """A job as it stands.

    Attributes:
        state: reserved, started, committed, issued, burned or released.
        done: Releases of the plan that were made, or runs where the job is tuned; nothing of the data.
        total: How many there are in all.
        epsilon: Its price, with `delta`.
        share_left: The share of the budget that is left now, 0 to 1.
        one_job: Epsilon of the largest single job that fits now.
        room: In words, how much is used and what one more job may ask for.
        entry: The ledger's entry of its certificate.
        error: Why it came to nothing.
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
    share_left: Decimal
    one_job: Decimal
    room: str
    entry: int | None
    error: str | None
    raw: Json = field(repr=False, compare=False)

    @property
    def over(self) -> bool:
        """Return whether its state is final: it changes no more."""
        return self.state in FINAL

    @property
    def version(self) -> str | None:
        """Return the version as `adult@2`, once it is among the models; else None."""
        number = self.raw.get("version")
        return None if number is None else f"{self.model}@{number}"

    @property
    def version_state(self) -> str | None:
        """Return the state of that version: candidate, champion, retired or revoked."""
        state: str | None = self.raw.get("version_state")
        return state

    @classmethod
    def of(cls, body: Json) -> Job:
        """Read the service's JSON."""
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
            **_left(body["left"]),
            entry=None if body["certificate"] is None else body["certificate"]["entry"],
            error=body["error"],
            raw=body,
        )


@dataclass(frozen=True)
class Model:
    """A line of the list of models.

    Attributes:
        reference: `adult@2`.
        version: The number of the version.
        champion: Whether the name alone means this version.
        state: candidate, champion, retired or revoked.
        epsilon: Claimed, with `delta`; both None where it was not verified yet, or does not verify.
        problem: Why it does not verify.
    """

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
        """Read the service's JSON."""
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
    """Predictions of a model.

    Attributes:
        model: `adult@2`, which answered.
        labels: One label or number for each record.
        classes: The classes; empty for a model of numbers.
        probabilities: `probabilities[record][class]`; empty for a model of numbers.
    """

    model: str
    labels: Sequence[Any]
    classes: Sequence[Any]
    probabilities: Sequence[Sequence[float]]
    raw: Json = field(repr=False, compare=False)

    @property
    def target(self) -> str | None:
        """Return what was predicted; None from services that do not say it."""
        target: str | None = self.raw.get("target")
        return target

    @classmethod
    def of(cls, body: Json) -> Predictions:
        """Read the service's JSON."""
        return cls(body["model"], body["predictions"], body.get("classes", []), body.get("probabilities", []), body)

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns that `dpserve predict` writes: `label` and `p_<class>`, or `value`. pandas, polars and
        pyarrow make a frame of them.
        """
        chances = {f"p_{name}": [row[at] for row in self.probabilities] for at, name in enumerate(self.classes)}
        return {"label" if self.classes else "value": list(self.labels), **chances}


@dataclass(frozen=True)
class Explanation:
    """What each feature adds to the predictions: prediction i comes of `base` and the sum of `contributions[i]`.

    Attributes:
        model: `adult@2`, which answered.
        unit: The unit of `base` and `contributions`.
        features: Names of the features.
        base: What every prediction begins with.
        contributions: For each record what each feature adds; a list of each where there are several classes.
        labels: One label or number for each record.
    """

    model: str
    unit: str
    features: Sequence[str]
    base: Any
    contributions: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, body: Json) -> Explanation:
        """Read the service's JSON."""
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
        """Return a column for each feature: what it adds to each record's score, a list of each where there are several
        classes.
        """
        return {name: [line[at] for line in self.contributions] for at, name in enumerate(self.features)}

    def _repr_html_(self) -> str:
        """Draw the first record's, in a notebook: what adds most, of several classes to the one that was predicted."""
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


def _left(left: Json) -> dict[str, Any]:
    """Read what is left: its share, the largest epsilon of one more job, 0 where none fits, and its words."""
    job = left.get("one_job") or {"epsilon": "0"}
    return {"share_left": Decimal(left["share"]), "one_job": Decimal(job["epsilon"]), "room": left.get("words", "")}
