"""From a request to a certified model: plan, reserve, start, play, commit, export, sign, issue. Each step takes what
the one before made.

A job is charged before a row is read; a crash costs, never saves. What was released is on disk before it is
committed, so from there on nothing can be lost: exporting and signing are post-processing and are resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from accountant.budget import Budget, exact_decimal, from_nano, nano
from accountant.canonical import decimal_string
from accountant.errors import BudgetRefused, InputError, JobFailed, PlanMismatch, UnknownName, WrongState
from accountant.events import Plan
from accountant.home import Home
from accountant.names import check_name
from accountant.prices import Price, price
from accountant.records import Dataset, Job, Request, Started, refusal
from training.calibrate import Recipe
from training.datasets import open_rows, schema_of
from training.datasets import register as register  # the doors know this module, and no other of this room
from training.learners import LEARNERS, PrivateClassifier
from training.lease import Lease, dead, this_process
from training.release import finish, forget, keep
from training.schema import Schema
from training.session import Public, Session
from training.tables import draft_schema as draft_schema
from training.tables import read_columns as read_columns
from training.tables import write_predictions as write_predictions

Progress = Callable[[int, int], None]
OWN = {"schema", "epsilon", "delta", "relation"}


@dataclass(frozen=True)
class Asked:
    """A job in the words of the one who asks. `delta` None: the dataset's; `model` None: the dataset's name."""

    dataset: str
    learner: str
    epsilon: str | float | Decimal
    delta: str | float | Decimal | None = None
    parameters: Mapping[str, Any] | None = None
    model: str | None = None


@dataclass(frozen=True)
class Planned:
    """A job that fits: its request, its recipe (unit, plan, claim) and its price. Nothing is spent yet."""

    request: Request
    recipe: Recipe
    price: Price
    dataset: Dataset

    def to_json(self) -> dict[str, Any]:
        after = self.dataset.used + self.price
        filter = self.dataset.filter
        left = self.dataset.registration.budget.epsilon - filter.epsilon_of(after)
        return {
            "dataset": self.request.dataset,
            "learner": self.request.learner,
            "epsilon": decimal_string(self.recipe.claim.epsilon),
            "delta": decimal_string(self.recipe.claim.delta),
            "rounds": len(self.recipe.plan),
            "unit": decimal_string(self.recipe.unit),
            "relation": self.dataset.registration.relation.value,
            "left": {
                "epsilon": decimal_string(left),
                "share": f"{1 - filter.share(after):.6f}",
                "jobs": filter.jobs_left(after, self.price),
            },
            "model": self.request.model,
            "certificate": None,
        }


def learner_of(name: str, parameters: Mapping[str, Any] | None = None) -> PrivateClassifier:
    """The learner of that name with these public parameters; InputError names what it would take."""
    if name not in LEARNERS:
        raise UnknownName(f"learner={name!r}: no such learner; there are {sorted(LEARNERS)}", learner=name)
    kind = LEARNERS[name]
    known = set(kind().get_params()) - OWN
    unknown = set(parameters or {}) - known
    if unknown:
        raise InputError(f"parameters {sorted(unknown)}: {name} takes {sorted(known)}")
    defaults = kind().get_params()
    return kind(**{key: _parameter(key, value, defaults[key]) for key, value in (parameters or {}).items()})


def _parameter(key: str, value: Any, default: Any) -> Any:
    """A value from the command line or JSON as the type its default has."""
    if value is None or isinstance(default, bool):
        if value in (None, True, False, "true", "false"):
            return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        raise InputError(f"{key}={value!r}: must be true or false")
    if isinstance(default, str):
        return str(value)
    number = exact_decimal(key, value) if not isinstance(value, bool) else None
    if number is None or (not isinstance(default, float) and number != int(number)):
        raise InputError(f"{key}={value!r}: must be a {'number' if isinstance(default, float) else 'whole number'}")
    return float(number) if isinstance(default, float) else int(number)


def plan(home: Home, asked: Asked) -> Planned:
    """Rehearse and price. BudgetRefused where it would not be admitted now, with what would fit. Spends nothing."""
    dataset = home.ledger.dataset(asked.dataset)
    request, learner = _request(dataset, asked)
    public = _public(dataset, schema_of(home, dataset), request.budget)
    recipe = learner.recipe(public)
    cost = price(recipe.plan, dataset.filter.orders)
    if not dataset.filter.admits(dataset.used, cost):
        raise refusal(dataset, request, cost, would_fit(dataset, learner, public))
    return Planned(request, recipe, cost, dataset)


def _request(dataset: Dataset, asked: Asked) -> tuple[Request, PrivateClassifier]:
    learner = learner_of(asked.learner, asked.parameters)
    total = dataset.registration.budget
    budget = Budget.of(str(asked.epsilon), str(total.delta if asked.delta is None else asked.delta))
    budget.check_delta(dataset.registration.records)
    if budget.delta > total.delta:
        raise InputError(f"delta={budget.delta}: dataset {asked.dataset} has {total.delta} in all")
    model = check_name("model", asked.model or asked.dataset)
    return Request(asked.dataset, asked.learner, budget, _stored_parameters(learner), model), learner


def _stored_parameters(learner: PrivateClassifier) -> dict[str, str | int | bool | None]:
    """Every hyper-parameter, defaults included; floats as their shortest decimal text."""
    found = {key: value for key, value in learner.get_params().items() if key not in OWN}
    return {
        key: decimal_string(Decimal(repr(value))) if isinstance(value, float) else value for key, value in found.items()
    }


def _public(dataset: Dataset, schema: Schema, budget: Budget) -> Public:
    relation, pure = dataset.registration.relation, dataset.registration.budget.delta == 0
    return Public(schema.features, schema.target, schema.classes, schema.records, relation, budget, pure)


def would_fit(dataset: Dataset, learner: PrivateClassifier, public: Public) -> dict[str, str] | None:
    """Largest epsilon below the asked one, in steps of 1e-3, that this learner could still get at this delta; None if
    none.
    """
    low, high = 0, nano(public.budget.epsilon) // 10**6
    while high > low:
        middle = (low + high + 1) // 2
        cost = _price_at(learner, public, from_nano(middle * 10**6), dataset.filter.orders)
        low, high = (middle, high) if cost and dataset.filter.admits(dataset.used, cost) else (low, middle - 1)
    fits = Budget(from_nano(low * 10**6), public.budget.delta).to_json() if low else None
    return fits


def _price_at(
    learner: PrivateClassifier, public: Public, epsilon: Decimal, orders: tuple[Decimal, ...]
) -> Price | None:
    budget = Budget(epsilon, public.budget.delta)
    asked = Public(
        public.features, public.target, public.classes, public.records, public.relation, budget, public.pure
    )  # fmt: skip
    try:
        return price(learner.recipe(asked).plan, orders)
    except InputError:
        return None


def jobs_left(home: Home, dataset: Dataset) -> dict[str, int]:
    """For each learner, how many jobs at a tenth of the total epsilon still fit by defaults."""
    total = dataset.registration.budget
    reference = Budget(from_nano(max(1, nano(total.epsilon) // 10)), total.delta)
    public = _public(dataset, schema_of(home, dataset), reference)
    found = {name: _reference_price(name, public, dataset.filter.orders) for name in LEARNERS}
    return {name: dataset.filter.jobs_left(dataset.used, cost) for name, cost in found.items() if cost}


@lru_cache(maxsize=1024)
def _reference_price(name: str, public: Public, orders: tuple[Decimal, ...]) -> Price | None:
    return _price_at(LEARNERS[name](), public, public.budget.epsilon, orders)


def dataset_to_json(home: Home, dataset: Dataset) -> dict[str, Any]:
    """What everybody may know of a dataset: `dpserve dataset show` and GET /v1/datasets/{name}."""
    registration = dataset.registration
    public_count = {"records": registration.records} if registration.relation == "replace-one" else {}
    return {
        "name": registration.name,
        "uuid": dataset.uuid,
        "family": dataset.family,
        "relation": registration.relation.value,
        "unit": registration.unit.name,
        **registration.budget.to_json(),
        **public_count,
        "schema": registration.schema,
        "budget": {**dataset.summary(), "jobs_left": jobs_left(home, dataset)},
    }


def submit(home: Home, asked: Asked, *, by: str, key: str | None = None, queued: bool = True) -> Job:
    """Plan and reserve: from here on the budget is held. With `queued` a worker will run it; else the caller must."""
    if key is not None:
        request, _ = _request(home.ledger.dataset(asked.dataset), asked)
        known = home.ledger.find(key, request)
        if known:
            return known
    planned = plan(home, asked)
    recipe = planned.recipe
    owner = None if queued else this_process()
    try:
        return home.ledger.reserve(planned.request, recipe.unit, recipe.plan, by=by, key=key, owner=owner)
    except BudgetRefused:  # somebody was faster between plan and reserve: say what fits now
        plan(home, asked)
        raise


def run(home: Home, seq: int, progress: Progress = lambda done, total: None) -> Path:
    """Start a reserved job, play its plan, commit, export, sign, issue. Returns the model's bundle.

    JobFailed after the start means that the budget is spent. Its message holds no word of the data.
    """
    started = home.ledger.start(seq, this_process(), Lease.SECONDS)
    with Lease(home.ledger, seq) as lease:

        def tell(done: int, total: int) -> None:
            lease.progress(done)
            progress(done, total)

        released = _play(home, started, tell)
        home.ledger.commit(seq, released)
    return finish(home, seq)


def _play(home: Home, started: Started, progress: Progress) -> str:
    """Play the plan and put what it released on disk; its sha256."""
    try:
        schema = schema_of(home, started.dataset)
        public = _public(started.dataset, schema, started.request.budget)
        session = Session(public, started.unit, started.plan, open_rows(home, started, schema), progress)
        ensemble = learner_of(started.request.learner, started.request.parameters)._fit(session)
        _require_played(session.close(), started.plan)
        return keep(home, started.seq, ensemble)
    except Exception as error:
        home.ledger.burn(started.seq, "failed")
        said = error.message if isinstance(error, JobFailed) else type(error).__name__
        raise JobFailed(
            f"job {started.seq}: failed after it had started ({said}); its budget is spent", job=started.seq
        ) from None


def _require_played(spent: Plan, reserved: Plan) -> None:
    if spent != reserved:
        raise PlanMismatch("what was played is not what was reserved")


def train(
    home: Home, asked: Asked, *, by: str, key: str | None = None, progress: Progress = lambda d, t: None
) -> dict[str, Any]:
    """Submit and run in this process: `dpserve train`. The same key gives the same answer and spends once."""
    job = submit(home, asked, by=by, key=key, queued=False)
    if job.state == "reserved":
        run(home, job.seq, progress)
    elif job.state == "committed":
        finish(home, job.seq)
    else:
        failed = JobFailed if job.state == "burned" else WrongState  # given back, or run by another process
        raise failed(f"job {job.seq}: stands for this idempotency key and is {job.state.value}", job=job.seq)
    return job_to_json(home, home.ledger.job(job.seq))


def job_to_json(home: Home, job: Job) -> dict[str, Any]:
    """A job as `dpserve train` prints it and GET /v1/jobs/{id} answers it."""
    entry = home.ledger.reservation(job.seq).value
    summary = home.ledger.dataset(job.dataset).summary()
    state = "issued" if job.issued is not None else job.state.value
    return {
        "job": job.seq,
        "state": state,
        "progress": {"done": job.total if job.issued is not None else job.done, "total": job.total},
        "dataset": job.dataset,
        "learner": entry["learner"],
        "epsilon": entry["claim"]["epsilon"],
        "delta": entry["claim"]["delta"],
        "rounds": job.total,
        "left": summary["left"],
        "model": job.model,
        "certificate": None if job.issued is None else {"entry": job.issued, "statement": _statement(home, job.issued)},
        "error": "the job failed after it had started; its budget is spent" if job.state == "burned" else None,
    }


def _statement(home: Home, issued: int) -> str:
    return str(home.ledger.log.entry(issued).value["statement"])


def recover(home: Home) -> dict[str, list[int]]:
    """After a crash: burn what had started and has no living owner, give back what had not, finish what was
    committed.
    """
    found: dict[str, list[int]] = {"burned": [], "released": [], "finished": []}
    for holding in home.ledger.leases():
        if not dead(holding.owner, holding.expires):
            continue
        started = holding.state == "started"
        try:
            home.ledger.burn(holding.seq, "interrupted") if started else home.ledger.release(holding.seq)
        except WrongState:  # another process cleans up as well, and was faster
            continue
        found["burned" if started else "released"].append(holding.seq)
    for folder in sorted(home.jobs.iterdir()) if home.jobs.exists() else []:
        if folder.name.isdigit() and home.ledger.job(int(folder.name)).state == "committed":
            finish(home, int(folder.name))
            found["finished"].append(int(folder.name))
        elif folder.name.isdigit() and home.ledger.job(int(folder.name)).state == "burned":
            forget(home, int(folder.name))
    return found
