"""The kinds of jobs that can be run, each by its steps."""

from __future__ import annotations

from typing import Any

from accountant.home import Home
from accountant.ledger.families.job_kinds import Contribution, Evaluation, JobKind, Profile, Training
from accountant.ledger.families.records import request_from_entry
from training.kinds.answer_steps import AnswerSteps
from training.kinds.contribution_steps import ContributionSteps
from training.kinds.evaluation_steps import EvaluationSteps
from training.kinds.job_steps import JobSteps
from training.kinds.profile_steps import ProfileSteps
from training.kinds.training_steps import TrainingSteps

STEPS: dict[type[JobKind], type[JobSteps]] = {
    Training: TrainingSteps,
    Evaluation: EvaluationSteps,
    Profile: ProfileSteps,
    Contribution: ContributionSteps,
}


def steps_of(home: Home, seq: int) -> JobSteps:
    """Return the steps of a job that was reserved. UnknownName where there is none of this number."""
    request = request_from_entry(home.ledger.reservation(seq).value)
    steps = AnswerSteps if request.learner == AnswerSteps.name else STEPS[type(request.kind)]
    return steps(home, seq, request)


def steps_for(asked: Any) -> type[JobSteps]:
    """Return the steps of the kind of job that is asked for."""
    every: tuple[type[JobSteps], ...] = (*STEPS.values(), AnswerSteps)
    return next(steps for steps in every if type(asked) is steps.asks)
