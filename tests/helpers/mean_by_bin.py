"""A learner of a number that is as small as can be: noisy sums and counts per code of the first feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.forms.additive import AdditiveEnsemble
from training.learners.base.private_learner import PrivateRegressor
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.session.session import Public, Releaser


@dataclass(frozen=True)
class Sums:
    """Per code of the first feature, the sum of the targets, or with `most` 1 the number of rows."""

    size: int
    most: int
    purpose: ClassVar[str] = "sum residuals per leaf"
    norm: ClassVar[str] = "l1"

    def sensitivity(self, relation: Relation) -> int:
        return self.most * (1 if relation is Relation.ADD_REMOVE else 2)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        values = np.ones(rows.size, np.int64) if self.most == 1 else rows.targets.astype(np.int64)
        sums = np.zeros(self.size, np.int64)
        np.add.at(sums, rows.bins[0], values)
        return sums


class MeanByBin(PrivateRegressor):
    """One step: mean per code of the first feature, nothing of the others."""

    name: ClassVar[str] = "mean-by-bin"

    def check(self, public: Public) -> None:
        if public.target_range is None:
            raise InputError("classes: this learner wants a target that is a number")

    def rounds_for(self, public: Public) -> int:
        return 2

    def learn(self, session: Releaser) -> AdditiveEnsemble:
        public = session.public
        self.check(public)
        assert public.target_range is not None
        size, noise = public.features[0].bins, DiscreteLaplace(session.unit)
        sums = session.release(Sums(size, TARGET_GRID), noise)
        counts = np.maximum(session.release(Sums(size, 1), noise), 10)
        low, high = public.target_range
        terms = (tuple((sums // counts).tolist()), *((0,) * feature.bins for feature in public.features[1:]))
        link = (high / 2 - low / 2) / TARGET_GRID
        return AdditiveEnsemble(public.features, public.target, (), public.target_range, link, 0, terms)
