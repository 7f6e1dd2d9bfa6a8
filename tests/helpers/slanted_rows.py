"""Two numbers and a boolean; the answer is yes where the numbers add up to more than 1."""

from __future__ import annotations

import numpy as np

SCHEMA = b"""
target: {name: y, classes: ["no", "yes"]}
records: 400
features:
  a: {type: numeric, range: [0, 1], bins: 8}
  b: {type: numeric, range: [0, 1], bins: 8}
  c: {type: boolean}
"""


def slanted(rows: int = 400):
    random = np.random.default_rng(0)
    a, b = random.random(rows), random.random(rows)
    return {"a": a, "b": b, "c": random.random(rows) < 0.5}, np.where(a + b > 1, "yes", "no")
