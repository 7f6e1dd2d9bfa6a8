"""A fit, from a file much larger than its packed bins to the model, takes less than four times their size in memory:
bins are a byte, fine cells two, and bins that were merged from these another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ROWS, FEATURES = 3_000_000, 24
CONSTANT = 150 * 10**6

CHILD = """
import sys
from pathlib import Path
from dpserve_verify.privacy.budget import Budget, Relation
from accountant.home import Home
from training.jobs import job
from training.requests import JobRequest
from training.datasets.datasets import register
from training.learners.boosting.lazybb import LazyBB  # what is else loaded with the first job and the first rows
from training.rows.kernels import additive, cells, votes, words

def size(name):  # not getrusage: its maximum is inherited from the process that forked this one
    (found,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith(name)]
    return int(found) * 1024

home, folder = Home.init(), Path(sys.argv[1])
before = size("VmRSS:")
budget = Budget.of("1", "1e-9")
register(home, "big", folder / "rows.parquet", folder / "schema.yaml", budget, Relation.ADD_REMOVE, None)
job.train(home, JobRequest("big", "lazybb", "0.5", parameters={"rounds": 8}), by="test")
print(before, size("VmHWM:"))
"""


def write(folder: Path, rows: int) -> None:
    """Row groups of made numbers: 8 bytes a cell in memory, 1 byte once packed."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"x{f}" for f in range(FEATURES)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("y", pa.string())])
    with pq.ParquetWriter(folder / "rows.parquet", schema) as file:
        for _ in range(10):
            cells = rng.integers(0, 100, (FEATURES, rows // 10)).astype(float)
            labels = np.where(cells[0] > 50, "yes", "no")
            file.write_table(pa.table([*map(pa.array, cells), pa.array(labels)], schema=schema))
    features = "".join(f"  {name}: {{type: numeric, range: [0, 100]}}\n" for name in names)
    target = 'target: {name: y, classes: ["no", "yes"]}\n'
    (folder / "schema.yaml").write_text(f"{target}records: {rows}\nfeatures:\n{features}")


def fit(folder: Path, rows: int) -> list[int]:
    """Bytes of a process of its own before it, and at the most."""
    write(folder, rows)
    environment = {**os.environ, "DPSERVE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, str(folder)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return list(map(int, done.stdout.split()))


def test_a_fit_takes_less_than_four_times_the_packed_bins_and_a_constant(tmp_path):
    """The constant: compiled code, and a batch of the file. All rows as numbers would be more."""
    fit(tmp_path / "few", 100)  # compiles, where nothing has: what LLVM takes for that is not ours
    before, peak = fit(tmp_path / "all", ROWS)
    bins = ROWS * FEATURES
    assert peak - before < 4 * bins + CONSTANT, f"{(peak - before) / 1e6:.0f} MB for {bins / 1e6:.0f} MB of bins"


TEXTS = """
import resource, sys
from pathlib import Path
from dpserve_verify.privacy.budget import Budget, Relation
from accountant.home import Home
from training.datasets.datasets import register
from training.rows.kernels import votes, words

home, folder = Home.init(), Path(sys.argv[1])
(found,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize:")]
limit = int(found) * 1024 + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
how = Budget.of("1", "1e-9"), Relation.ADD_REMOVE, None
register(home, "long", folder / "rows.parquet", folder / "schema.yaml", *how)
"""


@pytest.mark.parametrize(("rows", "distinct"), [(30_000, 30_000), (65_000, 100)], ids=["all different", "repeated"])
def test_long_texts_that_are_left_out_are_read_a_few_rows_at_a_time(tmp_path, rows, distinct):
    """162 MB of them, or 350 MB once read, in one group of rows, within 550 MB of addresses; batches of 65,536 rows
    took more than 800 MB."""
    random = np.random.default_rng(0)
    texts = [random.bytes(2700).hex() for _ in range(distinct)]
    numbers = {name: random.normal(size=rows) for name in ("y", "x")}
    note = [texts[row % distinct] for row in range(rows)]
    pq.write_table(pa.table({**numbers, "note": note}), tmp_path / "rows.parquet")
    (tmp_path / "schema.yaml").write_text(
        "target: {name: y, range: [-9, 9]}\nrecords: 30000\nignore: [note]\n"
        "features:\n  x: {type: numeric, range: [-9, 9]}"
    )
    environment = {**os.environ, "DPSERVE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    environment["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the other pools reserve a gigabyte of addresses at once
    environment["MALLOC_ARENA_MAX"] = "1"  # a thread's own reserves 64 MB of them
    command = [sys.executable, "-c", TEXTS, str(tmp_path), str(550 * 10**6)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
