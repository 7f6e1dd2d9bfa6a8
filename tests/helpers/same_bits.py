"""Every learner once, on small rows and with the same noise every time: a hash of every exact answer, and the model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from accountant.noise.mechanisms import DiscreteLaplace
from training.learners import LEARNERS, DPEBMRegressor
from training.rows.partitions.rows import Rows
from training.session.session import Public
from training.tuning.selecting import CorrectRows

SIZE = 150
SCHEMA = """
target: {name: y, ANSWER}
records: 150
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""
CLASSES, NUMBER = 'classes: ["no", "yes"]', "range: [0, 100]"
GIVEN = {
    "lazybb": {"rounds": 6, "cuts": "found"},
    "lazybb-tree": {"rounds": 3, "criterion": "gini", "cuts": "even", "bins": 20},
    "bdpe": {"rounds": 2},
    "forest": {},
    "ebm": {"epochs": 3},
}
KINDS = {name: (LEARNERS[name](**given), CLASSES) for name, given in GIVEN.items()} | {
    "projected": (LEARNERS["lazybb"](rounds=6, reweighting="projected"), CLASSES),
    "number": (DPEBMRegressor(epochs=3), NUMBER),
}


def table(answer: str) -> pa.Table:
    """The rows, for either kind of answer."""
    random = np.random.default_rng(4)
    age = random.uniform(-3, 103, SIZE)
    columns = {"age": age, "colour": random.choice(["red", "green", "blue"], SIZE), "member": random.random(SIZE) < 0.5}
    y = np.where(age + random.normal(0, 20, SIZE) > 50, "yes", "no") if answer == CLASSES else age
    return pa.table({**columns, "y": y})


class Noted:
    """A releaser with the same noise every time, which keeps a hash of every exact answer. `before`: told of each, by
    its number, before it is asked.
    """

    def __init__(self, public: Public, unit: Decimal, rows: Rows, before: Callable[[int], Any]) -> None:
        self.public, self.unit, self.answers, self._rows = public, unit, hashlib.sha256(), rows
        self._before, self._asked = before, 0
        self._random = np.random.default_rng(9)

    def release(self, query: Any, mechanism: Any) -> Any:
        self._before(self._asked)
        self._asked += 1
        exact = query(self._rows)
        assert exact.dtype == np.int64
        self.answers.update(f"{exact.shape}".encode() + exact.tobytes())
        noise = self._random.normal(0, 0.3 * query.sensitivity(self.public.relation), exact.shape).astype(np.int64)
        if mechanism.norm != "range":
            return exact + noise
        found = (exact + noise).argmax(axis=-1)
        return int(found) if exact.ndim == 1 else found


def learnt(
    kind: str, public: Public, rows: Rows, before: Callable[[int], Any] = lambda number: None
) -> tuple[str, str]:
    """A hash of every exact answer, and the model."""
    learner, answer = KINDS[kind]
    session = Noted(public, learner.recipe(public).unit, rows, before)
    ensemble = learner.learn(session)
    if answer == CLASSES:
        session.release(CorrectRows(ensemble, "l1"), DiscreteLaplace(Decimal(1)))
    return session.answers.hexdigest(), repr(ensemble)
