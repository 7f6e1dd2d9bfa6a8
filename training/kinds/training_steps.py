"""A job that makes a model: a learner's, or the best of a tuned learner's runs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from accountant.errors import IdempotencyConflict
from accountant.home import Home
from accountant.ledger.families.records import Job
from accountant.ledger.questions import about_request
from accountant.ledger.schedules import Period
from accountant.system.traces import span
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import Budget
from models.forms.ensemble import Ensemble
from training.datasets.datasets import require_rows
from training.finish.lease import Lease, this_process
from training.finish.release import finish, keep
from training.kinds.job_steps import JobSteps, Learn
from training.learners.job_words import TUNING
from training.learners.others import OF_OTHERS, others
from training.measuring.worth.evaluate import plan_following
from training.planning.job_views import following
from training.planning.plans import plan, request_of
from training.requests import JobRequest
from training.rows.schema.schema import Schema
from training.tuning.selecting import Outcome
from training.tuning.tune import fits_of, forget_choice, keep_choice


class TrainingSteps(JobSteps):
    """Learn, keep the ensemble, export, sign and issue."""

    asks = JobRequest

    @classmethod
    def submit(
        cls,
        home: Home,
        asked: JobRequest,
        *,
        by: str,
        key: str | None,
        queued: bool,
        promotes: bool,
        scheduled: Period | None = None,
    ) -> Job:
        """Reserve also the evaluation of what it makes, where one is asked for. `scheduled`: the period of a schedule
        that the job is of.
        """
        with home.ledger.remembering(about_request(asked.dataset, by, key, asked.model)):
            if key is not None and (earlier := earlier_job(home, asked, by, key)):
                return earlier
            if not queued:
                require_rows(home, home.ledger.dataset(asked.dataset, by, blocks=asked.blocks))
            with span("rehearse"):
                planned = plan(home, asked, by, promotes)
            follows = None
            if asked.evaluate is not None:
                then = plan_following(home, planned.request, asked.evaluate, by)
                follows = then.request, then.recipe.unit, then.recipe.plan
        recipe = planned.recipe
        owner = None if queued else this_process()
        try:
            job = (planned.request, recipe.unit, recipe.plan)
            with span("reserve"):
                return home.ledger.reserve(
                    *job,
                    by=by,
                    key=key,
                    owner=owner,
                    lease=Lease.SECONDS,
                    promotes=promotes,
                    evaluation=follows,
                    scheduled=scheduled,
                )
        except BudgetRefused:  # somebody was faster between plan and reserve: say what fits now
            plan(home, asked, by, promotes)
            raise

    @property
    def is_resumable(self) -> bool:
        """Tell whether the job can be resumed: not where it is tuned, since all its runs are one release."""
        return TUNING not in self.request.parameters

    def check(self) -> None:
        """Raise where the learner of others that it names is not kept as it was admitted, or cannot run here."""
        if self.request.learner in OF_OTHERS:
            others().check_runs(self.home, self.request.parameters)

    def learner(self, schema: Schema) -> Learn:
        """Return what learns."""
        return fits_of(self.request.learner, self.request.parameters).learn

    def keep(self, released: Ensemble | Outcome) -> str:
        """Keep the ensemble, and which setting was chosen."""
        if isinstance(released, Outcome):
            keep_choice(self.home, self.seq, self.request.parameters, released)
            released = released.ensemble
        return keep(self.home, self.seq, released)

    def forget(self) -> None:
        """Remove the setting that was chosen."""
        forget_choice(self.home, self.seq)

    def finish(self) -> Path:
        """Return the folder of the model's version."""
        return finish(self.home, self.seq)


def earlier_job(home: Home, asked: JobRequest, by: str, key: str) -> Job | None:
    """Return the job that this key of `by` stands for; None where there is none. IdempotencyConflict where it came with
    another request.
    """
    request, _ = request_of(home, home.ledger.dataset(asked.dataset, by, blocks=asked.blocks), asked)
    earlier = home.ledger.find(by, key, request)
    if earlier:
        _check_following(home, earlier, asked)
    return earlier


def _check_following(home: Home, known: Job, asked: JobRequest) -> None:
    """Raise IdempotencyConflict where a job that is asked for again came with another evaluation, or with none."""
    then = following(home, known.seq)
    came = None if then is None else Decimal(home.ledger.reservation(then.seq).value["epsilon"])
    if came != (None if asked.evaluate is None else Budget.of(str(asked.evaluate), "0").epsilon):
        raise IdempotencyConflict(f"evaluate: job {known.seq} came with {came or 'none'} before", job=known.seq)
