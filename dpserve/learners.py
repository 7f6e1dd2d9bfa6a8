"""The learners, for notebooks and programs, and what they need there; each is loaded when it is first named.

    from dpserve.learners import Account, Columns, LazyBB

    account = Account(epsilon=3)
    model = LazyBB(schema=Columns(low=0, high=1, classes=["no", "yes"]), epsilon="0.5", account=account)
    model.fit(X, y)

They are scikit-learn estimators. The whole distribution must be installed: the client alone brings none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.learners import (
        AutoClassifier,
        AutoRegressor,
        CalibratedBoostingClassifier,
        DPEBMClassifier,
        DPEBMRegressor,
        DPEBMTreesClassifier,
        DPEBMTreesRegressor,
        DPRandomForestClassifier,
        LazyBB,
        LazyBBTree,
    )
    from training.notebook import (
        CHECKS,
        CHECKS_OF_MANY,
        CHECKS_OF_NUMBERS,
        Account,
        Columns,
        PublicWarning,
        RowFolds,
        Schema,
        SpendWarning,
        draft,
        uniform_schema,
    )

__all__ = [
    "CHECKS",
    "CHECKS_OF_MANY",
    "CHECKS_OF_NUMBERS",
    "Account",
    "AutoClassifier",
    "AutoRegressor",
    "CalibratedBoostingClassifier",
    "Columns",
    "DPEBMClassifier",
    "DPEBMRegressor",
    "DPEBMTreesClassifier",
    "DPEBMTreesRegressor",
    "DPRandomForestClassifier",
    "LazyBB",
    "LazyBBTree",
    "PublicWarning",
    "RowFolds",
    "Schema",
    "SpendWarning",
    "draft",
    "uniform_schema",
]


def __dir__() -> list[str]:
    """List what is here, loaded or not: completion in a notebook asks."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Return a learner, or what a notebook needs beside it, from its module."""
    if name not in __all__:
        raise AttributeError(f"{__name__} has no {name}")
    notebook = import_module("training.notebook")  # also of a learner alone: its `publish` is from there
    return getattr(notebook if name in notebook.__all__ else import_module("training.learners"), name)
