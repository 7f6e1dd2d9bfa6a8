"""From a notebook to the ledger: the same job on a dataset that a home has."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.access.grants import access_of
from accountant.home import Home
from dpserve_verify.errors import InputError
from training.jobs import job
from training.learners.base.checks import OWN
from training.requests import JobRequest
from training.rows.schema.schema import schema_of

if TYPE_CHECKING:
    from training.learners.base.private_learner import PrivateLearner
    from training.rows.schema.schema import Schema


def publish(learner: PrivateLearner, folder: Path, dataset: str, model: str | None) -> dict[str, Any]:
    """Train a learner's job on a dataset of a home, as `dpserve train` does."""
    home = Home.open({**os.environ, "DPSERVE_HOME": str(folder)})
    user = f"cli:{getpass.getuser()}"
    access = access_of(home.ledger, user, operator=True)
    access.require("train", dataset=dataset)
    if hasattr(learner, "schema_"):
        check_same_declared(learner.schema_, schema_of(home, home.ledger.dataset(dataset)))
    defaults = type(learner)().get_params()
    given = {name: value for name, value in learner.get_params().items() if value != defaults[name]}
    request = JobRequest(
        dataset=dataset,
        learner=learner.name,
        epsilon=str(learner.epsilon),
        delta=str(learner.delta),
        parameters={name: value for name, value in given.items() if name not in OWN},
        model=model,
    )
    job.recover(home)
    return job.train(home, request, by=user, promotes=access.may("promote", model=model or dataset))


def check_same_declared(here: Schema, there: Schema) -> None:
    """Raise InputError where a fit read columns otherwise, or learnt another answer, than the dataset declares."""
    declared = {feature.name: feature for feature in there.features}
    fitted = {feature.name: feature for feature in here.features}
    others = sorted(name for name in declared.keys() | fitted.keys() if declared.get(name) != fitted.get(name))
    if others:
        raise InputError(
            f"schema: the dataset declares {', '.join(others[:20])} otherwise than this fit; fit by the schema file "
            "that the dataset was registered with"
        )
    answers = [(target.classes, target.range) for target in there.targets]
    if (here.only.classes, here.only.range) not in answers:
        raise InputError("schema: the dataset declares no target with these classes or this range")
