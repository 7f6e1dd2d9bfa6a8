"""Made additive models: of two classes and of a number, with and without counts and errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble

FEATURES = (
    NumericFeature("age", (18.0, 27.5, 65.0)),
    CategoricalFeature("work <b>", ("Private", "State & co")),
    BooleanFeature("owner"),
    NumericFeature("idle", (1.0,)),
)
TERMS = ((-100, 0, 300, 200, 50), (40, -40, 8, -300), (10, -30, 0), (7, 7, 7))
COUNTS = ((10, 20, 30, 40, -5), (60, 40, 0, -9), (50, 50, 0), (1, 2, 3))
ERRORS = ((8.0, 4.0, 4.0, 4.0, 80.0), (4.0, 4.0, 90.0, 90.0), (4.0, 4.0, 90.0), (1.0, 1.0, 1.0))
LINK = 0.01
CLASSES = AdditiveEnsemble(FEATURES, "income", ("<=50K", ">50K"), None, LINK, -20, TERMS, COUNTS, ERRORS)
NUMBER = replace(CLASSES, target="price", classes=(), target_range=(100.0, 500.0), link=0.5)
BARE = replace(CLASSES, counts=(), errors=())
RECORDS = [
    {"age": 30.0, "work <b>": "Private", "owner": True, "idle": 0.0},
    {"age": None, "work <b>": "never heard of", "owner": None, "idle": None},
    {"age": 99.0, "work <b>": None, "owner": False, "idle": 2.0},
]
COLUMNS = {
    "age": [30.0, float("nan"), 99.0],
    "work <b>": ["Private", "never heard of", ""],
    "owner": [1.0, float("nan"), 0.0],
    "idle": [0.0, float("nan"), 2.0],
}


THREE = ("low", "middle", "high")


def records(seed: int, count: int = 500) -> dict[str, np.ndarray]:
    """Columns of FEATURES, values on edges, unknown texts and missing ones among them."""
    rng = np.random.default_rng(seed)
    return {
        "age": np.where(rng.random(count) < 0.1, np.nan, rng.choice([10.0, 18.0, 27.5, 30.0, 65.0, 70.0], count)),
        "work <b>": rng.choice(["Private", "State & co", "never heard of", ""], count),
        "owner": np.where(rng.random(count) < 0.2, np.nan, rng.integers(0, 2, count).astype(float)),
        "idle": rng.choice([0.0, 1.0, 2.0, np.nan], count),
    }
