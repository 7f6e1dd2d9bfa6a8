"""AIM and MST as published (the folder `mechanisms` of private-pgm), in an environment of their own, of
benchmarks/requirements-synthetic.txt. It imports nothing of the project, so that it runs there.

    python studies/statements/synthetic_peers.py aim PRIVATE_PGM TASK.npz EPSILON SEED [MODEL_SIZE] [SECONDS]

PRIVATE_PGM is a copy of its repository: at 01f02f1 it needs numpy alone, later ones the library that they name.
A line of JSON: AUROC of scikit-learn's HistGradientBoosting on bins, learnt from the synthetic rows and judged on
held-out ones; the mean total variation of all columns, pairs and triples of them; seconds, and the most memory. A fit
is given up after SECONDS of a processor. `sample` in the place of AIM draws true rows again: how far chance alone is.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import resource
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ORDERS = {"columns": 1, "pairs": 2, "triples": 3}
DELTA = 1e-6


def boosted(train: Any, labels: Any, test: Any, named: Any, widths: Any, classes: int, seed: int) -> Any:
    """Probabilities for held-out rows in bins, of which the last one of a number is for missing ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, test = train.astype(float), test.astype(float)
    for at, is_named in enumerate(named):
        if not is_named:
            for table in (train, test):
                table[table[:, at] == widths[at] - 1, at] = np.nan
    categories = [bool(each) and width <= 255 for each, width in zip(named, widths, strict=True)]
    found, seen = np.zeros((len(test), classes)), np.unique(labels)
    if len(seen) == 1:
        found[:, seen[0]] = 1
        return found
    model = HistGradientBoostingClassifier(categorical_features=categories, random_state=seed).fit(train, labels)
    found[:, model.classes_.astype(int)] = model.predict_proba(test)
    return found


def auroc(labels: Any, chances: Any) -> float:
    """Of the last of two classes; of more the mean of each against the rest."""
    from sklearn.metrics import roc_auc_score

    if chances.shape[1] == 2:
        return float(roc_auc_score(labels, chances[:, 1]))
    kinds = [k for k in range(chances.shape[1]) if 0 < (labels == k).sum() < len(labels)]
    return float(np.mean([roc_auc_score(labels == k, chances[:, k]) for k in kinds]))


def distance(one: Any, other: Any, widths: list[int], order: int) -> float:
    """The mean total variation over all so many columns together, in bins."""
    apart = []
    for places in itertools.combinations(range(len(widths)), order):
        shape = [widths[at] for at in places]
        shares = [
            np.bincount(np.ravel_multi_index(rows[:, places].T, shape), minlength=int(np.prod(shape))) / len(rows)
            for rows in (one, other)
        ]
        apart.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(apart))


def judge(task: Any, rows: Any, seed: int) -> dict[str, float]:
    """AUROC and distances of synthetic rows in bins, the label last."""
    widths, classes = [int(each) for each in task["widths"]], int(task["classes"])
    chances = boosted(rows[:, :-1], rows[:, -1], task["test"], task["named"], widths, classes, seed)
    real = np.column_stack([task["train"], task["labels"]]).astype(int)
    apart = {name: distance(real, rows, [*widths, classes], order) for name, order in ORDERS.items()}
    return {"auroc": round(auroc(task["answers"], chances), 5)} | {name: round(v, 5) for name, v in apart.items()}


def synthetic(kind: str, task: Any, epsilon: float, size: float) -> Any:
    """The synthetic rows of AIM or MST, by their own defaults but for `size`, the megabytes of AIM's model."""
    rows = np.column_stack([task["train"], task["labels"]]).astype(int)
    if kind == "sample":
        return rows[np.random.randint(0, len(rows), len(rows))]
    import pandas as pd
    from mbi import Dataset, Domain
    from scipy import sparse

    hdmm = SimpleNamespace(Identity=sparse.identity)  # what the older programs import, and do not need
    sys.modules |= {"hdmm": hdmm, "hdmm.matrix": hdmm, "autodp": SimpleNamespace(privacy_calibrator=None)}  # type: ignore[dict-item]
    widths = [*(int(each) for each in task["widths"]), int(task["classes"])]
    names = [f"c{at}" for at in range(len(widths))]
    data = Dataset(pd.DataFrame(rows, columns=names), Domain(names, widths))
    if kind == "mst":
        from mst import MST

        made = MST(data, epsilon, DELTA)
    else:
        from aim import AIM

        workload = [pair for pair in itertools.combinations(data.domain, 2) if data.domain.size(pair) <= 10_000]
        _, made = AIM(epsilon, DELTA, max_model_size=size).run(data, [(pair, 1.0) for pair in workload])
    return made.df[names].to_numpy().astype(int)


def main(
    kind: str, folder: str, path: str, epsilon: str, seed: str, size: str = "80", limit: str = "600"
) -> None:  # fmt: skip
    sys.path[:0] = [f"{folder}/src", folder, f"{folder}/mechanisms"]
    task = np.load(path)
    np.random.seed(1000 * int(seed) + int(10 * float(epsilon)))

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {limit} s of a processor")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, float(limit))
    clock, processor = time.perf_counter(), time.process_time()
    line: dict[str, Any] = {"dataset": Path(path).stem.rpartition("_")[0], "method": kind, "epsilon": epsilon}
    line |= {"seed": int(seed), "size": float(size)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            rows = synthetic(kind, task, float(epsilon), float(size))
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent = {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - processor}
        line |= judge(task, rows, int(seed)) | {name: round(value, 1) for name, value in spent.items()}
    except (TimeoutError, ValueError) as error:
        line["error"] = f"{type(error).__name__}: {error}"[:200]
    print(json.dumps(line | {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
