"""Compile what training computes with, before anybody waits: `python -m training.jobs.compile_ahead [--portable]`.

`make install` does it, and an image is built with it. numba compiles a kernel for the types that it is
called with, so this registers made-up rows in a home of its own and trains every learner on them; a new kernel that a
learner uses is compiled with the others. `--portable`: for any processor of the last ten years, not only this one.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.jobs.job import run, submit
from training.learners import LEARNERS, DPEBMRegressor
from training.requests import EvaluationRequest, JobRequest, ProfileRequest

# Of x86-64-v3, as LLVM writes them: what every server has had since 2015.
COMMON = "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+popcnt,+sahf,+sse"
COMMON += ",+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave"
TARGETS: dict[str, dict[str, Any]] = {
    "two": {"classes": ["no", "yes"]},
    "three": {"classes": ["low", "middle", "high"]},
    "number": {"range": [0, 100]},
}
ROWS = 600


def made_rows() -> pa.Table:
    """Make rows up, of all kinds of columns: two of each person, answers to every target."""
    numbers = [i * 7919 % 1000 for i in range(ROWS)]
    columns = {
        "person": [f"person, {i // 2}" for i in range(ROWS)],  # in quotes, which are followed
        "size": [None if i % 9 == 0 else float(n) for i, n in enumerate(numbers)],
        "share": [n / 1000 for n in numbers],
        "city": [f"city {i % 9}" for i in range(ROWS)],
        "new": [i % 2 == 0 for i in range(ROWS)],
        "two": [("no", "yes")[n > 400] for n in numbers],
        "three": [("low", "middle", "high")[3 * n // 1000] for n in numbers],
        "number": [n / 10 for n in numbers],
    }
    return pa.table(columns)


def made_schema(bins: int, **answers: Any) -> bytes:
    """Write the schema of those rows; `bins`: of one column, which decides whether codes need one byte or two."""
    features = {
        "size": {"type": "numeric", "range": [0, 1000], "bins": bins},
        "share": {"type": "numeric", "range": [0, 1], "bins": 32},
        "city": {"type": "categorical", "values": [f"city {i}" for i in range(9)]},
        "new": {"type": "boolean"},
    }
    return json.dumps({**answers, "records": ROWS, "features": features, "ignore": ["person"]}).encode()


def compile_kernels(say: Callable[[str], object]) -> None:
    """Register the rows, and train every learner on every kind of target, in homes that are gone afterwards; and fit in
    memory, as notebooks do.
    """
    for unit, bins, times in (("person", 32, 2), ("record", 300, 1)):
        with TemporaryDirectory() as folder:
            run_jobs(Path(folder), bins, unit, times, say)
        for learner, target in [*product(LEARNERS.values(), TARGETS), (DPEBMRegressor, "number")]:
            schema = made_schema(bins, target={"name": target, **TARGETS[target]})
            with suppress(InputError):  # no learner for every target
                learner(schema=schema, epsilon=4).fit(rows := made_rows(), rows[target].to_numpy(False))
            say(".")


def run_jobs(folder: Path, bins: int, unit: str, times: int, say: Callable[[str], object]) -> None:
    """Run a job of every kind on the rows, registered from a file that names persons by text."""
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    data, schema, rows = folder / "rows.csv", folder / "schema.json", made_rows().to_pydict()
    schema.write_bytes(made_schema(bins, targets=TARGETS))
    with data.open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([rows, *zip(*rows.values(), strict=True)])
    total, holdout = Budget.of(100, "0.0001"), Decimal("0.2")
    register(home, "made", data, schema, total, Relation.ADD_REMOVE, unit, times, holdout=holdout)
    job = partial(JobRequest, dataset="made", epsilon="4", delta="0.0000001")
    requests: list[Any] = [
        job(learner=each, model=target, target=target) for target, each in product(TARGETS, LEARNERS)
    ]
    requests += [job(learner="ebm", model="pairs", target=target, parameters={"pairs": 2}) for target in TARGETS]
    requests += [
        job(learner="ebm", model="convex", target=target, parameters={"engine": "convex"}) for target in TARGETS
    ]
    requests += [EvaluationRequest(model=target, dataset="made", epsilon="4") for target in TARGETS]
    for request in [*requests, ProfileRequest(dataset="made", epsilon="4", delta="0")]:
        with suppress(InputError):
            run(home, submit(home, request, by="installation", queued=False).seq)
        say(".")


def main() -> None:
    """Compile, and let everybody read what was compiled: it is public, and an image runs as another user."""
    if "--portable" in sys.argv[1:] and platform.machine() in ("x86_64", "AMD64"):
        os.environ.update(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=COMMON)
    from accountant.system.numba_cache import FOLDER

    if FOLDER is None:
        sys.exit("compile_ahead: no folder to keep compiled code in; set NUMBA_CACHE_DIR to one that is yours alone")
    compile_kernels(lambda words: print(words, end="", flush=True))
    FOLDER.chmod(0o755)
    print()


if __name__ == "__main__":
    main()
