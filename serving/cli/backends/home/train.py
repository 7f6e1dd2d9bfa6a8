"""Plans and training with a home: rehearsed, charged and learnt in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accountant.home import Home
from models.store.bundle import ModelStore
from serving.cli.terminal import allowed, awaits, this_user
from training.planning import plans
from training.planning.plans import Asked
from training.tuning.tune import Tuning


def planned(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A job's price; spends nothing."""
    job_asked, home = _asked(asked), Home.open()
    plan = plans.plan(home, job_asked, this_user(), _promotes(home, job_asked))
    if job_asked.evaluate is None:
        return plan.to_json()
    from training.measuring.worth.evaluate import price_following  # as below

    return plan.to_json() | price_following(home, plan.request, job_asked.evaluate, this_user())


def trained(asked: Mapping[str, Any], key: str | None, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """A job to its end. The same key gives the same job, and spends once."""
    from training.jobs import job  # loads what fits and certifies, which a plan does without

    job_asked, home = _asked(asked), Home.open()
    promotes = _promotes(home, job_asked)
    job.recover(home)
    awaits(asked)
    return job.train(home, job_asked, by=this_user(), key=key, progress=progress, promotes=promotes)


def champion(model: str) -> int | None:
    """The version that answers to a model's name; None where none does."""
    return ModelStore(Home.open().models).champion(model)


def _asked(asked: Mapping[str, Any]) -> Asked:
    tuning = asked.get("tuning")
    return Asked(**{**asked, "tuning": None if tuning is None else Tuning(tuning["grid"], tuning["runs"])})


def _promotes(home: Home, asked: Asked) -> bool:
    """Whether who sits here may promote versions of the model; Forbidden where they may not train it."""
    return allowed(home, "train", dataset=asked.dataset).may("promote", model=asked.model or asked.dataset)
