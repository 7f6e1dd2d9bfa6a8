"""What the load runs of benchmarks/serving.py serve, and what they send: Adult by JSON, NumPy's form and Arrow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent.parent / "examples" / "data"
JSON, NPY, ARROW = "application/json", "application/x-npy", "application/vnd.apache.arrow.stream"
BATCH = 1000  # rows of the larger request


@dataclass(frozen=True)
class Body:
    """What is posted: its bytes in a file, its kind, and what follows the path."""

    file: Path
    kind: str = JSON
    query: str = ""


def make_home(folder: Path) -> str:
    """A home with Adult and a model by its defaults -> a token that predicts."""
    from accountant.home import Home
    from dpserve_verify.privacy.budget import Budget, Relation
    from serving.process.tokens import new_token
    from training.datasets.datasets import register
    from training.jobs import job
    from training.requests import JobRequest

    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    data, schema = DATA / "adult_train.parquet", DATA / "adult.schema.yaml"
    register(home, "adult", data, schema, Budget.of(2, "1e-5"), Relation.ADD_REMOVE, None)
    job.train(home, JobRequest("adult", "lazybb", "1", model="adult"), by="benchmark")
    secret, _ = new_token(home, "bench", ["predict"])
    home.ledger.log.database.close()
    return secret


def rows(count: int) -> pa.Table:
    return pq.read_table(DATA / "adult_test.parquet").slice(0, count).drop_columns(["income"])


def bodies(folder: Path) -> dict[str, Body]:
    """One row and BATCH rows, in each form."""
    found = {}
    for name, count in (("one", 1), ("batch", BATCH)):
        table = rows(count)
        found[name] = _write(folder / f"{name}.json", json.dumps({"model": "adult", "records": table.to_pylist()}))
        found[f"{name}-v2"] = _write(folder / f"{name}-v2.json", json.dumps({"inputs": v2(table)}))
    table, query = rows(BATCH), "?model=adult"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found["arrow"] = Body(_write(folder / "batch.arrow", sink.getvalue().to_pybytes()).file, ARROW, query)
    np.save(folder / "batch.npy", structured(table), allow_pickle=False)
    return {**found, "npy": Body(folder / "batch.npy", NPY, query)}


def _write(path: Path, content: str | bytes) -> Body:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Body(path)


def v2(table: pa.Table) -> list[dict[str, Any]]:
    """The open inference protocol: one tensor for each feature."""
    texts = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in table.schema.types]
    return [
        {"name": name, "shape": [len(table), 1], "datatype": "BYTES" if text else "FP64", "data": column.to_pylist()}
        for name, text, column in zip(table.column_names, texts, table.columns, strict=True)
    ]


def structured(table: pa.Table) -> np.ndarray[Any, Any]:
    """One field for each feature: texts of fixed width, numbers as float64."""
    columns = {}
    for name in table.column_names:
        values = table[name].to_numpy()
        columns[name] = values.astype(str) if values.dtype == object else values.astype(np.float64)
    found = np.empty(len(table), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        found[name] = column
    return found
