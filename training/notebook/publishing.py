"""From a notebook to the ledger: the same job on a dataset that a home has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.access.grants import access_of
from accountant.home import Home
from accountant.system.user import this_user
from dpserve_verify.errors import InputError
from training.jobs import job
from training.learners.base.checks import OWN, read_budget
from training.requests import JobRequest
from training.rows.schema.schema import schema_of

if TYPE_CHECKING:
    from training.learners.base.private_learner import PrivateLearner
    from training.rows.schema.schema import Schema


def publish(learner: PrivateLearner, folder: Path, dataset: str, model: str | None) -> dict[str, Any]:
    """Train a learner's job on a dataset of a home, as `dpserve train` does."""
    home = Home.open({**os.environ, "DPSERVE_HOME": str(folder)})
    user = this_user()
    access = access_of(home.ledger, user, operator=True)
    access.require("train", dataset=dataset)
    there, target = schema_of(home, home.ledger.dataset(dataset)), None
    if hasattr(learner, "schema_"):
        target = target_of_fit(learner.schema_, there)
    defaults = type(learner)().get_params()
    given = {name: value for name, value in learner.get_params().items() if value != defaults[name]}
    budget = read_budget(learner.epsilon, learner.delta)
    request = JobRequest(
        dataset=dataset,
        learner=learner.name,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        target=target if len(there.targets) > 1 else None,
        parameters={name: value for name, value in given.items() if name not in OWN},
        model=model,
    )
    job.recover(home)
    return job.train(home, request, by=user, promotes=access.may("promote", model=model or dataset))


def target_of_fit(here: Schema, there: Schema) -> str | None:
    """Return the name of the dataset's target that a fit learnt; None where several are like it and none has its name.

    Raises InputError where the fit read columns otherwise, or learnt another answer, than the dataset declares.
    """
    declared = {feature.name: feature for feature in there.features}
    fitted = {feature.name: feature for feature in here.features}
    others = sorted(name for name in declared.keys() | fitted.keys() if declared.get(name) != fitted.get(name))
    if others:
        raise InputError(
            f"schema: the dataset declares {', '.join(others[:20])} otherwise than this fit; fit by the schema file "
            "that the dataset was registered with"
        )
    bounds = [schema.weight and (schema.weight.most, schema.weight.clips) for schema in (here, there)]
    if bounds[0] != bounds[1]:
        raise InputError(
            "schema: the dataset declares `weight` otherwise than this fit; fit by the schema file that it was "
            "registered with"
        )
    learnt = here.only
    alike = [
        target.name for target in there.targets if (target.classes, target.range) == (learnt.classes, learnt.range)
    ]
    if not alike:
        raise InputError("schema: the dataset declares no target with these classes or this range")
    return alike[0] if len(alike) == 1 else learnt.name if learnt.name in alike else None
