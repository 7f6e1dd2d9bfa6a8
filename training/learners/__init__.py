"""The learners. Being listed here gives a learner the command line, REST, the dashboard and every contract test."""

from __future__ import annotations

from training.learners.base import PrivateClassifier
from training.learners.boosting.bdpe import CalibratedBoostingClassifier
from training.learners.boosting.lazybb import LazyBB
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.forest import DPRandomForestClassifier

LEARNERS: dict[str, type[PrivateClassifier]] = {
    learner.name: learner
    for learner in (LazyBB, LazyBBTree, DPEBMClassifier, CalibratedBoostingClassifier, DPRandomForestClassifier)
}

__all__ = [
    "LEARNERS",
    "CalibratedBoostingClassifier",
    "DPEBMClassifier",
    "DPEBMRegressor",
    "DPRandomForestClassifier",
    "LazyBB",
    "LazyBBTree",
    "PrivateClassifier",
]
