"""A job that pays for what the rows of a dataset add to the sums of a campaign elsewhere.

It is charged before anything is sent, and its price stays whatever comes of the campaign: it starts and is burned at
once, and what its entry says is then asked of rows, by this process or, after its end, by another one, once a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.errors import IdempotencyConflict, WrongState
from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.ledger.families.job_kinds import Contribution, JobKind
from accountant.ledger.families.records import Job, Request, State, request_from_entry
from accountant.ledger.families.windows import ALL
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Plan, plan_from_json
from training.datasets.datasets import require_rows
from training.finish.lease import Lease, this_process
from training.kinds.job_steps import JobSteps, Learn
from training.learners.parameters import learner_of

REASON = "its rows are asked for sums by a campaign elsewhere"


@dataclass(frozen=True)
class ContributionRequest:
    """What a campaign asks of a dataset. `unit`, `plan`: as its definition has them; `definition`: its sha256;
    `part`: HOLDOUT where it asks the rows that are kept aside.
    """

    dataset: str
    learner: str
    budget: Budget
    parameters: dict[str, str | int | bool | None]
    definition: str
    unit: Decimal
    plan: Plan
    part: str | None = None


class ContributionSteps(JobSteps):
    """Charge, and nothing else: a campaign's own program asks the rows."""

    asks = ContributionRequest

    @classmethod
    def submit(
        cls, home: Home, asked: ContributionRequest, *, by: str, key: str | None, queued: bool, promotes: bool
    ) -> Job:
        """Charge the dataset, every block of one that has grown, once for each definition, whoever asks: the same
        again costs nothing, and reads what was charged.

        BudgetRefused where it does not fit; IdempotencyConflict where this campaign was answered with another dataset,
        or by another number, before; WrongState where it was given back.
        """
        before = home.ledger.find_contribution(asked.definition)
        if before is not None:
            about = request_from_entry(home.ledger.reservation(before).value)
            paid = about.dataset, about.learner, about.budget, dict(about.parameters), about.part
            if paid != (asked.dataset, asked.learner, asked.budget, dict(asked.parameters), asked.part):
                raise IdempotencyConflict(
                    f"campaign: was answered before in this home, as job {before}, with another dataset or as another "
                    "institution; rows stand once in its sums",
                    job=before,
                )
            return cls._charge(home, home.ledger.job(before), this_process())
        has_grown = home.ledger.dataset(asked.dataset).last is not None
        dataset = home.ledger.dataset(asked.dataset, part=asked.part, blocks=ALL if has_grown else None)
        if dataset.registration.remote:
            raise InputError(f"dataset={asked.dataset}: its rows are elsewhere")
        require_rows(home, dataset)
        dataset.check_delta(asked.budget)
        request = Request(
            asked.dataset, asked.learner, asked.budget, asked.parameters, "", kind=Contribution(asked.definition),
            part=asked.part, blocks=ALL if has_grown else None, window=dataset.window, registered=dataset.seq,
        )  # fmt: skip
        owner = this_process()
        job = home.ledger.reserve(
            request, asked.unit, asked.plan, by=by, key=asked.definition, owner=owner, lease=Lease.SECONDS
        )
        return cls._charge(home, job, owner)

    @staticmethod
    def _charge(home: Home, job: Job, owner: str) -> Job:
        """Let a job that was reserved start and end: its price stays."""
        if job.state is State.RESERVED:
            home.ledger.start(job.seq, owner, Lease.SECONDS)
            home.ledger.burn(job.seq, REASON, owner)
        elif job.state is State.RELEASED:
            raise WrongState(f"job {job.seq}: was given back before it started; nothing was sent", job=job.seq)
        return home.ledger.job(job.seq)

    def learner(self, schema: Any) -> Learn:
        """Return what asks the rows."""
        return learner_of(self.request.learner).learn

    def keep(self, released: Any) -> str:
        """Raise WrongState: nothing is released here."""
        raise WrongState(f"job {self.seq}: makes nothing here", job=self.seq)

    def finish(self) -> Path:
        """Raise WrongState: nothing comes of it here."""
        raise WrongState(f"job {self.seq}: makes nothing here", job=self.seq)


STEPS: dict[type[JobKind], type[JobSteps]] = {Contribution: ContributionSteps}


def charged(home: Home, seq: int) -> Started:
    """Return the right to ask rows for a contribution that was charged. WrongState where it was not."""
    job, entry = home.ledger.job(seq), home.ledger.reservation(seq).value
    request = request_from_entry(entry)
    if job.state not in (State.STARTED, State.BURNED) or not isinstance(request.kind, Contribution):
        raise WrongState(f"job {seq}: is {job.public_state}, and is no contribution that was charged", job=seq)
    return Started(seq, home.ledger.dataset_of(seq), request, Decimal(entry["unit"]), plan_from_json(entry["plan"]))
