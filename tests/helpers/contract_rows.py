"""Two hundred rows of three features for the contract that every learner keeps, and a learner over them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROWS = 200
SCHEMA = b"""
target: {name: y, classes: ["no", "yes"]}
records: 200
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""


def table(rows: int = ROWS, seed: int = 0):
    random = np.random.default_rng(seed)
    age = random.uniform(0, 100, rows)
    X = pa.table(
        {
            "age": age,
            "colour": random.choice(["red", "green", "blue"], rows),
            "member": random.random(rows) < 0.5,
        }
    )
    return X, np.where(age + random.normal(0, 10, rows) > 50, "yes", "no")


def schema_of(records: int, features: str = "  age: {type: numeric, range: [0, 100], bins: 8}\n") -> bytes:
    return f'target: {{name: y, classes: ["no", "yes"]}}\nrecords: {records}\nfeatures:\n{features}'.encode()


def make(kind, **parameters):
    return kind(**{"schema": SCHEMA, "epsilon": "1", "delta": "0.000001", **parameters})
