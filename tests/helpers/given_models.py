"""Learners that spend a little on nothing and return what a test wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from training.learners import PrivateClassifier


@dataclass(frozen=True)
class Nothing:
    """Two candidates that look at no row."""

    purpose: ClassVar[str] = "select a 1-rule by weighted agreement"
    norm: ClassVar[str] = "range"
    size: ClassVar[int] = 2

    def sensitivity(self, relation):
        return 1

    def __call__(self, rows):
        return np.zeros(2, np.int64)


class Given(PrivateClassifier):
    """`ensemble(public)` is what it returns; a test says which."""

    name: ClassVar[str] = "given"

    def check(self, public):
        return

    def rounds_for(self, public):
        return 1

    def learn(self, session):
        session.release(Nothing(), session.public.selection(session.unit))
        return self.ensemble(session.public)
