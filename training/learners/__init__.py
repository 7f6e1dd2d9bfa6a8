"""The learners. Being listed here gives a learner the command line, REST, the dashboard and every contract test.

A learner's module is loaded when it is first looked up: who lists datasets or asks for help needs the names alone.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.learners.auto import AutoClassifier, AutoRegressor
    from training.learners.base.private_learner import PrivateClassifier
    from training.learners.boosting.bdpe import CalibratedBoostingClassifier
    from training.learners.boosting.lazybb import LazyBB
    from training.learners.boosting.lazybb_tree import LazyBBTree
    from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
    from training.learners.ebm.trees_beside import DPEBMTreesClassifier, DPEBMTreesRegressor
    from training.learners.forest import DPRandomForestClassifier

__all__ = [
    "LEARNERS",
    "AutoClassifier",
    "AutoRegressor",
    "CalibratedBoostingClassifier",
    "DPEBMClassifier",
    "DPEBMRegressor",
    "DPEBMTreesClassifier",
    "DPEBMTreesRegressor",
    "DPRandomForestClassifier",
    "LazyBB",
    "LazyBBTree",
    "PrivateClassifier",
]

MODULES = {
    "AutoClassifier": "training.learners.auto",
    "AutoRegressor": "training.learners.auto",
    "CalibratedBoostingClassifier": "training.learners.boosting.bdpe",
    "DPEBMClassifier": "training.learners.ebm.ebm",
    "DPEBMRegressor": "training.learners.ebm.ebm",
    "DPEBMTreesClassifier": "training.learners.ebm.trees_beside",
    "DPEBMTreesRegressor": "training.learners.ebm.trees_beside",
    "DPRandomForestClassifier": "training.learners.forest",
    "LazyBB": "training.learners.boosting.lazybb",
    "LazyBBTree": "training.learners.boosting.lazybb_tree",
    "PrivateClassifier": "training.learners.base.private_learner",
}


def __dir__() -> list[str]:
    """List what is here, loaded or not: completion in a notebook asks."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Return an estimator of this package, from its module."""
    if name not in MODULES:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(MODULES[name]), name)


class Learners(UserDict[str, Any]):
    """Estimators by the name that a job asks for; one given as the name of its class is loaded when looked up."""

    def __getitem__(self, name: str) -> type[PrivateClassifier]:
        learner: type[PrivateClassifier] | str = super().__getitem__(name)
        return __getattr__(learner) if isinstance(learner, str) else learner


LEARNERS = Learners(
    {
        "auto": "AutoClassifier",
        "lazybb": "LazyBB",
        "lazybb-tree": "LazyBBTree",
        "ebm": "DPEBMClassifier",
        "ebm-trees": "DPEBMTreesClassifier",
        "bdpe": "CalibratedBoostingClassifier",
        "forest": "DPRandomForestClassifier",
    }
)
