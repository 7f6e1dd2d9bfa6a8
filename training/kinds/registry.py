"""The kinds of jobs that can be run, each by its steps."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import cast

from accountant.home import Home
from accountant.ledger.families.job_kinds import Evaluation, JobKind, Profile, Training
from accountant.ledger.families.records import request_from_entry
from accountant.system import extensions
from training.kinds.evaluation_steps import EvaluationSteps
from training.kinds.job_steps import JobSteps
from training.kinds.stated_steps import StatedSteps
from training.kinds.table_steps import AnswerSteps, ProfileSteps
from training.kinds.training_steps import TrainingSteps

STEPS: dict[type[JobKind], type[JobSteps]] = {
    Training: TrainingSteps,
    Evaluation: EvaluationSteps,
    Profile: ProfileSteps,
}


def _every_steps() -> Mapping[type[JobKind], type[JobSteps]]:
    return ChainMap(STEPS, *extensions.load("kinds"))


def steps_of(home: Home, seq: int) -> JobSteps:
    """Return the steps of a job that was reserved. UnknownName where there is none of this number; InputError where an
    extension brings them that is not installed."""
    request = request_from_entry(home.ledger.reservation(seq).value)
    if request.learner == AnswerSteps.name:
        return AnswerSteps(home, seq, request)
    steps = _every_steps().get(type(request.kind))
    if steps is None:
        raise extensions.absence(request.kind.extension)
    return steps(home, seq, request)


def steps_for(kind: type) -> type[JobSteps]:
    """Return the steps of the jobs that requests of this class ask for."""
    every: tuple[type[JobSteps], ...] = (*_every_steps().values(), AnswerSteps)
    return next(steps for steps in every if kind is steps.asks)


def stated_steps(kind: type) -> type[StatedSteps]:
    """Return the same of jobs that end in a signed statement about counts."""
    return cast(type[StatedSteps], steps_for(kind))
