"""The learners. Being listed here gives a learner the command line, REST, the dashboard and every contract test."""

from __future__ import annotations

from training.learners.base import PrivateClassifier
from training.learners.bdpe import CalibratedBoostingClassifier
from training.learners.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.forest import DPRandomForestClassifier
from training.learners.lazybb import LazyBB
from training.learners.lazybb_tree import LazyBBTree

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
