"""The form of a new job: its fields as a body of POST /v1/jobs, its price, and sending what was priced, nothing else.

Where "try several values" is chosen, values with commas between them are private tuning: each is tried, one is kept.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from accountant.access.grants import Access
from accountant.errors import Forbidden, IdempotencyConflict, RowsUnavailable, SchemaError, WrongState
from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families import family_rows
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import describe_budget
from accountant.ledger.learner_admissions import OUTSIDE, VOUCHED
from accountant.ledger.questions import about_plan
from accountant.system import extensions
from dpserve_verify.errors import BudgetRefused, DpserveError, InputError
from models.features.reading import READING
from serving.http.routes import in_thread
from serving.operations import Caller
from serving.operations.doors import serve
from serving.operations.jobs import plan_job, submit_job
from serving.pages.datasets import every_dataset
from serving.pages.parts.blocks import windows
from serving.pages.parts.commands import job_command
from serving.wire.errors import TakesTooLong
from training.learners.docs import learners_to_json
from training.planning.plans import fitting_learners
from training.requests import LADDER, JobRequest
from training.requests.base import Control, request_fields

Runs = Callable[..., Awaitable[Any]]
OWN_CONTROL = ("dataset", "target", "learner", "epsilon", "blocks")  # the others have the one that their field states
SHOWN = tuple((known, control) for known in request_fields(JobRequest) if (control := known.find(Control)))
FIELDS = (*OWN_CONTROL, *(known.name for known, _ in SHOWN), "runs", "several")
BESIDE = frozenset({"idempotency_key", "priced"})
PREFIX = "p."
OF_OTHERS = {"of others": OUTSIDE, "of others, with rows": VOUCHED}  # how the form's choices begin that are admitted
SENT = "This form was sent before, with other values. What stands in it now would be another job."
STALE = "What stands in the form is not what was priced. Look at the price again, and then submit."
SLOW = "Working out this price takes longer than a page may wait. Ask again in a moment, or for a smaller ε."


def body_of(kind: Any, typed: Mapping[str, str]) -> dict[str, Any]:
    """Return what was typed as a request's body: lists by commas, a switch by whether it is on, whole numbers where
    the default is one, no empty text.
    """
    body: dict[str, Any] = {}
    for request_field in request_fields(kind):
        text = typed.get(request_field.name, "")
        if text:
            is_list = isinstance(request_field.default, tuple)
            words = [word.strip() for word in text.split(",") if word.strip()]
            whole = type(request_field.default) is int and re.fullmatch("[0-9]{1,9}", text)
            one = True if request_field.default is False else int(text) if whole else text
            body[request_field.name] = words if is_list else one
    return body


@dataclass(frozen=True)
class Form:
    """What stands in the form: texts as they were typed, empty for what is left to its default."""

    fields: Mapping[str, str]
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Form:
        """Read a form's fields. InputError for an unknown field, or one that stands twice."""
        fields = list(pairs)
        names = [name for name, _ in fields]
        for name in names:
            if not (name in FIELDS or name in BESIDE or name.startswith(PREFIX)) or names.count(name) > 1:
                raise InputError(f"form: {name[:80]!r} is no field of it, or stands twice")
        texts = {name: value.strip() for name, value in fields if name not in BESIDE}
        parameters = {
            name.removeprefix(PREFIX): value for name, value in texts.items() if name.startswith(PREFIX) and value
        }
        return cls({name: texts.get(name, "") for name in FIELDS}, parameters)

    def __getitem__(self, name: str) -> str:
        return self.fields[name]

    @property
    def complete(self) -> bool:
        """Tell whether enough is filled in for a price."""
        return all(self.fields[name] for name in ("dataset", "learner", "epsilon"))

    @property
    def body(self) -> dict[str, Any]:
        """Return what stands in it as POST /v1/jobs takes it. InputError where a comma is no part of a value."""
        grid, fixed = {}, dict(self.parameters)
        for name, text in self.parameters.items():
            if "," in text and name not in READING:
                if not self.fields["several"]:
                    raise InputError(
                        f'{name}={text[:40]}: a comma stands in no value. Write 1500 and 0.5, or choose "try several '
                        'values" to have each tried privately'
                    )
                grid[name] = [value.strip() for value in fixed.pop(name).split(",") if value.strip()]
        runs = {"runs": self.fields["runs"]} if self.fields["runs"] else {}
        tuning = {"tuning": {"grid": grid, **runs}} if grid else {}
        body = body_of(JobRequest, self.fields)
        kind, _, name = self.fields["learner"].partition(": ")
        if name and kind in OF_OTHERS:
            fixed["code"], body["learner"] = name, OF_OTHERS[kind]
        return {**body, **({"parameters": fixed} if fixed else {}), **tuning}

    @property
    def digest(self) -> str:
        """Return the sha256 of `body` in hex, which names what was priced."""
        return hashlib.sha256(orjson.dumps(self.body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def view(home: Home, form: Form, rights: Access) -> dict[str, Any]:
    """Return what the form offers: the datasets that the caller may train on with their budgets, the learners, and the
    parameters of the chosen one.
    """
    home.ledger.log.database.ask(family_rows.questions(form["dataset"], rights.principal))
    datasets: list[dict[str, Any]] = [
        {
            "name": row.registration.name,
            "targets": row.registration.targets,
            "delta": row.delta,
            "budget": describe_budget(row),
            "blocks": row.last,
            "row": row,
        }
        for row in every_dataset(home, rights.principal)
        if rights.may("train", dataset=row.registration.name)
    ]
    nothing: dict[str, Any] = {"name": "", "targets": (), "row": None}
    first = datasets[0] if datasets and not form["dataset"] else nothing  # what a browser chooses
    chosen_dataset: dict[str, Any] = next((row for row in datasets if row["name"] == form["dataset"]), first)
    target = form["target"] if form["target"] in chosen_dataset["targets"] else ""
    learners = [*_fitting(home, chosen_dataset["row"], target), *_of_others(home, chosen_dataset["name"])]
    chosen = next((row for row in learners if row["name"] == form["learner"]), learners[0])
    return {
        "datasets": datasets, "learners": learners, "chosen": chosen, "targets": chosen_dataset["targets"],
        "target": target, "windows": windows(home, chosen_dataset["name"], rights, form["blocks"]), "shown": SHOWN,
        "ladder": LADDER,
    }  # fmt: skip


def _fitting(home: Home, dataset: Dataset | None, target: str) -> list[dict[str, Any]]:
    """Return the learners that fit, as documented; all of them where no schema is here to tell."""
    learners = learners_to_json()
    if dataset is None:
        return learners
    try:
        fitting = fitting_learners(home, dataset, target or None)
    except (RowsUnavailable, SchemaError):
        return learners
    return [row for row in learners if row["name"] in fitting] or learners


def _of_others(home: Home, dataset: str) -> list[dict[str, Any]]:
    """Return the learners of others that are admitted for jobs on a dataset, as the form shows learners; none where
    what runs them is not installed.
    """
    if not extensions.is_installed("platform"):
        return []
    lines = []
    for value in (entry.value for entry in learner_admissions.admissions(home.ledger)):
        if not dataset or dataset in value.get("datasets", [dataset]):
            kind = "of others, with rows" if "vouched" in value else "of others"
            word = "It reads rows, at a price by that one's word" if "vouched" in value else "It runs without rows"
            says = f"A learner of others, by {value['author']}; admitted by {value['by']}. {word}."
            lines.append({"name": f"{kind}: {value['name']}", "says": says, "parameters": []})
    return lines


async def price_of(home: Home, form: Form, rights: Access, run: Runs = in_thread) -> dict[str, Any] | None:
    """Return the price of a form; None where too little is filled in. `kind` is "fits" (with `plan`, and `now`: the
    budget before it), "refused" (with the refusal's details) or "wrong" (with a message). `run` runs blocking work.
    """
    if not form.complete:
        return None
    try:
        price: dict[str, Any] = await run(_price, home, form, rights)
        return price
    except BudgetRefused as refused:
        return {"kind": "refused", "message": refused.message, "details": refused.details}
    except TakesTooLong:
        return {"kind": "wrong", "message": SLOW}
    except (InputError, Forbidden) as error:
        return {"kind": "wrong", "message": error.message}


def _price(home: Home, form: Form, rights: Access) -> dict[str, Any]:
    rights.require("train", dataset=form["dataset"])
    with home.ledger.remembering(about_plan(form["dataset"], rights.principal, form["model"] or form["dataset"])):
        return _priced(home, form, rights)


def _priced(home: Home, form: Form, rights: Access) -> dict[str, Any]:
    targets = home.ledger.dataset(form["dataset"]).registration.targets
    if targets and not form["target"]:
        raise InputError(f"Choose a target: {', '.join(targets)}.")
    plan = serve(plan_job, Caller(home, rights), body=JobRequest.of(form.body))
    before = home.ledger.dataset(form["dataset"], rights.principal, blocks=form["blocks"] or None)
    now = describe_budget(before, Decimal(plan["delta"]))
    used, after = 1 - float(now["left"]["share"]), 1 - float(plan["left"]["share"])
    return {
        "kind": "fits",
        "plan": plan,
        "now": now,
        "used": used,
        "job": max(0.0, after - used),
        "digest": form.digest,
        "command": job_command(form.body),
    }


@dataclass(frozen=True)
class Sent:
    """A job's number; or why there is none, with the status of the answer and the key of the form that follows."""

    job: int | None
    key: str = ""
    refusal: DpserveError | None = None
    problem: str = ""


def send(home: Home, form: Form, priced: str, key: str, rights: Access) -> Sent:
    """Submit once, however often the same form is sent. Forbidden where the dataset may not be trained on."""
    rights.require("train", dataset=form["dataset"])
    try:
        if priced != form.digest:
            return Sent(None, key or uuid.uuid4().hex, WrongState(STALE), STALE)
        asked = JobRequest.of({**form.body, "idempotency_key": key or None})
        return Sent(serve(submit_job, Caller(home, rights), body=asked)["job"])
    except IdempotencyConflict as error:
        return Sent(None, uuid.uuid4().hex, error, SENT)
    except BudgetRefused as refused:
        return Sent(None, key, refused)  # the price beside the form tells it
    except (InputError, Forbidden) as error:
        return Sent(None, key, error, error.message)
