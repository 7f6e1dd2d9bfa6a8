"""The requests that doors take: a job, a schedule of jobs, an evaluation, a profile and a charge from elsewhere.

Each is one class, from which type check, JSON Schema, command line and form follow.

A new field of a job is a field here, in `dpserve.types` for the client, and, where the ledger enters it, in
`accountant.ledger.families.records` and `accountant.audit.replay`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StrictBool, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from training.requests.base import CLOSED, Checked, Control, Option, request_fields
from training.requests.fields import (
    AttackRuns,
    Blocks,
    Delta,
    Epsilon,
    Figures,
    Grid,
    Key,
    Name,
    Pairs,
    Parameters,
    Reason,
    Reference,
    Runs,
    Text,
    Texts,
)

MOST_OF_KEY = 1 << 16  # characters of a trust file
LADDER = ("0.1", "0.2", "0.5", "1", "2", "4", "8")  # epsilons of a job that are looked at side by side
AUTO = "auto"  # in the place of a learner: the one that a public rule chooses
Part: TypeAlias = Literal["holdout", "training"]


@dataclass(frozen=True, config=CLOSED)
class TuningRequest(Checked):
    """The best of runs with settings from a grid, as one job."""

    grid: Grid
    runs: Annotated[
        Runs | None,
        Field(description="how many runs on average; 5 to 8, by the grid, when left out"),
    ] = None


@dataclass(frozen=True, config=CLOSED)
class JobRequest(Checked):
    """A job in the words of the one who asks. With `tuning`, `parameters` are what all of its runs share."""

    dataset: Annotated[Name, Field(description="the dataset's name")]
    learner: Annotated[Name, Field(description="the learner; auto: by a public rule")] = AUTO
    epsilon: Annotated[Epsilon, Field(description="epsilon of this job, a decimal; a text keeps every digit")] = ...  # type: ignore[assignment]
    delta: Annotated[
        Delta | None,
        Field(description="delta of this job; the dataset's when left out"),
        Control("δ", "A far smaller chance on top. Empty: the dataset’s whole δ.", "the dataset’s"),
    ] = None
    parameters: Parameters = None
    model: Annotated[
        Name | None,
        Field(description="name of the model; the dataset's when left out"),
        Control(
            "Name of the model", "A known name gets a new version. Empty: the dataset’s name.", "the dataset’s", 64
        ),
    ] = None
    tuning: Annotated[TuningRequest | None, Field(description="private tuning: values to try, as one job")] = None
    target: Annotated[
        Text | None, Field(description="what to predict; must be said where the dataset has several targets")
    ] = None
    promote: Annotated[StrictBool, Field(description="make the model champion of its name at once")] = False
    evaluate: Annotated[
        Epsilon | None,
        Field(description="epsilon at which it is evaluated then, on what is kept aside; charged together"),
        Control(
            "ε of an evaluation",
            "What the model is worth, measured on what the dataset keeps aside, from a budget of its own. Empty: not "
            "measured.",
            "none",
            inputmode="decimal",
        ),
    ] = None
    public: Annotated[
        Text | None,
        Field(description="begin from a public score: a model of this home, or the sha256 of a start that is kept"),
        Option("--public", "begin from a public score: a file of public rows, or a model of this home"),
    ] = None
    attack: Annotated[
        AttackRuns,
        Field(description="register an attack on the model's claim, of so many runs on made-up canaries; 0: none"),
        Control(
            "Runs of an attack on it",
            "Free, and made later by the steward: dpserve evaluate MODEL --attack. Empty: none.",
            "none",
            inputmode="numeric",
        ),
    ] = 0
    blocks: Blocks = None
    idempotency_key: Key = None


@dataclass(frozen=True, config=CLOSED)
class ScheduleRequest(JobRequest):
    """The same job once a period, from a moment on."""

    tuning: None = None
    idempotency_key: None = None
    name: Annotated[Name, Field(description="the schedule's name")] = ...  # type: ignore[assignment]
    every: Annotated[
        Literal["hour", "day", "week", "month"], Field(description="the period: hour, day, week or month")
    ] = "week"
    start: Annotated[
        Text | None, Field(description="when the first period begins, in UTC, like 2026-01-05T06:00; now when left out")
    ] = None
    dry_run: Annotated[StrictBool, Field(description="only tell how long it could be kept")] = False

    @property
    def job(self) -> JobRequest:
        """Return what it asks for in each period."""
        mine = {field.name for field in request_fields(ScheduleRequest)}
        return JobRequest(**{f.name: getattr(self, f.name) for f in request_fields(JobRequest) if f.name in mine})


@dataclass(frozen=True, config=CLOSED)
class EvaluationRequest(Checked):
    """What a model is worth on private rows. At most one of `against`, `group`, `scores`; `cover` goes with `group`."""

    model: Annotated[Reference, Field(description="the model: adult, adult@champion or adult@2")]
    dataset: Annotated[Name, Field(description="private rows: of this dataset, at the price of epsilon")]
    epsilon: Annotated[Epsilon, Field(description="epsilon of this evaluation, a decimal")]
    part: Annotated[
        Part | None,
        Field(
            description="the rows: holdout, what is kept aside, as when left out; or training, which is marked as such"
        ),
    ] = None
    delta: Annotated[Delta, Field(description="delta of this evaluation; 0, which needs no delta, when left out")] = "0"
    against: Annotated[
        Reference | None,
        Field(description="another model, adult@1 for instance: which is better, measured on the same rows"),
    ] = None
    group: Annotated[
        Text | None, Field(description="by the groups of this column, which the schema names: figures and gaps")
    ] = None
    scores: Annotated[StrictBool, Field(description="of three or more classes: AUROC and log loss too")] = False
    cover: Annotated[
        StrictBool, Field(description="how answers cover the truth, for predictions with a level; also by a group")
    ] = False
    blocks: Blocks = None
    idempotency_key: Key = None


@dataclass(frozen=True, config=CLOSED)
class ProfileRequest(Checked):
    """How the rows of a dataset are spread: noisy counts of every column in its public bins."""

    dataset: Annotated[Name, Field(description="the dataset's name")]
    epsilon: Annotated[Epsilon, Field(description="epsilon of this profile, a decimal")]
    delta: Annotated[
        Delta | None,
        Field(description="delta of this profile; the dataset's when left out, 0 for noise that needs none"),
    ] = None
    part: Annotated[
        Part | None, Field(description="the rows: holdout, what was kept aside; what learners read, when left out")
    ] = None
    columns: Annotated[
        Texts,
        Field(description="these columns alone: fewer are counted more exactly; all when left out"),
        Option("--columns", "this column alone: fewer are counted more exactly; all when left out"),
    ] = ()
    pairs: Annotated[Pairs, Field(description="two columns each that are counted together as well")] = ()
    around: Annotated[
        Text | None,
        Field(description="in place of pairs: each column with this one (auto: the target), and a tree of the others"),
    ] = None
    blocks: Blocks = None
    idempotency_key: Key = None


@dataclass(frozen=True, config=CLOSED)
class ChargeRequest(Checked):
    """A release that was made elsewhere: one curve of four kinds, what made it, and why it is charged."""

    mechanism: Annotated[Text, Field(description="what released it, in a line")]
    why: Annotated[Text, Field(description="why it is charged; stays in the ledger permanently")]
    epsilon: Annotated[Epsilon | None, Field(description="what it costs: epsilon, a decimal")] = None
    delta: Annotated[
        Delta | None, Field(description="of that epsilon; above 0 where the dataset sets a delta apart for it")
    ] = None
    rho: Annotated[Epsilon | None, Field(description="or rho of zero-concentrated privacy")] = None
    mu: Annotated[Epsilon | None, Field(description="or mu of Gaussian privacy")] = None
    renyi: Annotated[Figures | None, Field(description="or its Renyi curve: the divergence at each order above 1")] = (
        None
    )
    statement: Annotated[
        dict[str, Any] | None,
        Field(description="or a document that states it: a signed statement of dpserve, or a history of DP-SGD"),
    ] = None
    key: Annotated[
        StrictStr | None,
        Field(max_length=MOST_OF_KEY, description="of a signed statement: the issuer's key in PEM, or trust.json"),
    ] = None
    document: Annotated[Text | None, Field(description="sha256, in hex, of what says so; it is not kept here")] = None
    unit: Annotated[Literal["record", "person"], Field(description="what that curve protects: record or person")] = (
        "record"
    )
    contributions: Annotated[
        StrictInt | None, Field(description="of a curve of records: how many of a person it read at most")
    ] = None
    another: Annotated[StrictBool, Field(description="it is another release than one charged before")] = False
    blocks: Blocks = None


@dataclass(frozen=True, config=CLOSED)
class Reasoned(Checked):
    """What is decided for a reason that stays in the ledger."""

    reason: Reason


@dataclass(frozen=True, config=CLOSED)
class QueryRequest(Checked):
    """A query of counts, sums and means of a dataset's rows, by groups that its schema makes public."""

    dataset: Annotated[Name, Field(description="the dataset's name")]
    select: Annotated[
        Text,
        Field(description="the query, like: select education, count(*), avg(age) from adult group by education"),
    ]
    epsilon: Annotated[
        Epsilon | None,
        Field(description="epsilon of this answer, a decimal; left out: what follows from earlier releases alone"),
    ] = None
    delta: Annotated[
        Delta | None,
        Field(description="delta of this answer; the dataset's when left out, 0 for noise that needs none"),
    ] = None
    part: Annotated[
        Part | None, Field(description="the rows: holdout, what was kept aside; what learners read, when left out")
    ] = None
    blocks: Blocks = None
    idempotency_key: Key = None
