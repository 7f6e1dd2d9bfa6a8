"""A home with a model of three classes, `kin`: who lives alone, is a husband, or a child, from real rows."""

from __future__ import annotations

import json
from pathlib import Path

import ledgers
import pyarrow.parquet as pq

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation

KIN = ("Husband", "Not-in-family", "Own-child")
ROWS = 1500


def write(folder: Path) -> tuple[Path, Path]:
    """rows and schema."""
    rows = pq.read_table(
        ledgers.EXAMPLES / "adult_train.parquet",
        columns=["age", "education", "sex", "relationship"],
        filters=[("relationship", "in", KIN)],
    ).slice(0, ROWS)
    pq.write_table(rows, folder / "kin.parquet")
    schools = ["Bachelors", "HS-grad", "Masters", "Some-college"]
    features = {
        "age": {"type": "numeric", "range": [17, 90], "bins": 16},
        "education": {"type": "categorical", "values": schools},
        "sex": {"type": "categorical", "values": ["Female", "Male"]},
    }
    schema = {"target": {"name": "relationship", "classes": list(KIN)}, "records": ROWS, "features": features}
    (folder / "kin.yaml").write_text(json.dumps(schema))
    return folder / "kin.parquet", folder / "kin.yaml"


def train(home: Home, folder: Path) -> None:
    """Registers the rows as `kin` and trains its model."""
    from training.datasets.datasets import register
    from training.jobs import job
    from training.requests import JobRequest

    register(home, "kin", *write(folder), Budget.of(8, "1e-5"), Relation.ADD_REMOVE, None)
    job.train(home, JobRequest("kin", "lazybb", "4", parameters={"rounds": 24}), by="test")
