"""diffprivlib in an environment of its own: it needs an older scikit-learn than everything else here.

Run as a program, this file is the other side: a JSON line in, a JSON line out, arrays through files. It imports nothing
of the project, so that it runs there.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PINNED = Path(__file__).parent / "requirements-diffprivlib.txt"


def environment() -> Path:
    """The other Python, made from the pinned file inside this environment if it is not there yet."""
    home = Path(sys.prefix) / "diffprivlib"
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (home / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, "--require-hashes", "-r", str(PINNED)], check=True)
        (home / "made").touch()
    return python


@cache
def _worker() -> subprocess.Popen[str]:
    running = subprocess.Popen([environment(), __file__], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(running.kill)
    return running


def ask(question: dict[str, Any], arrays: dict[str, Any]) -> tuple[Any, Any, float, float]:
    """Probabilities (rows, classes seen), classes seen, clock and processor seconds of the fit."""
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "in.npz"), **arrays)
        worker.stdin.write(json.dumps(question | {"folder": folder}) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"diffprivlib: its process ended (exit code {worker.wait()})")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"diffprivlib: {answer['error']}")
        return np.load(Path(folder, "out.npy")), answer["seen"], answer["seconds"], answer["cpu"]


def _model(question: dict[str, Any], columns: int) -> Any:
    from diffprivlib.models import LogisticRegression, RandomForestClassifier  # type: ignore[import-not-found]

    common = {"epsilon": question["epsilon"], "random_state": question["seed"]}
    if question["kind"] == "logistic":
        return LogisticRegression(**({"data_norm": question["norm"], "C": 0.1} | common | question["parameters"]))
    bounds = (np.zeros(columns), np.ones(columns))
    classes = list(range(question["classes"]))
    return RandomForestClassifier(**({"bounds": bounds, "classes": classes} | common | question["parameters"]))


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    rows = np.load(Path(question["folder"], "in.npz"))
    train, labels, test = rows["train"], rows["labels"], rows["test"]
    model = _model(question, train.shape[1])
    clock, processor = time.perf_counter(), time.process_time()
    model.fit(train, labels)
    cost = time.perf_counter() - clock, time.process_time() - processor
    np.save(Path(question["folder"], "out.npy"), model.predict_proba(test))
    return {"seen": [int(label) for label in model.classes_], "seconds": cost[0], "cpu": cost[1]}


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    warnings.simplefilter("ignore")
    threadpool_limits(1)  # as on this side: see peers.timed
    for asked in sys.stdin:
        try:
            print(json.dumps(_answer(json.loads(asked))), flush=True)
        except ValueError as error:  # what its models say to data that they cannot take
            print(json.dumps({"error": str(error)}), flush=True)
