"""AIM and MST as published (the folder `mechanisms` of private-pgm), in an environment of their own, of
benchmarks/requirements-synthetic.txt. It imports nothing of the project, so that it runs there.

    python studies/statements/synthetic_peers.py aim FOLDER TASK.npz EPSILON SEED [MODEL_SIZE]

A line of JSON: AUROC of scikit-learn's HistGradientBoosting on bins, learnt from the synthetic rows and judged on
held-out ones; the mean total variation of all pairs of columns; seconds, and the most memory. A fit is given up after
600 seconds of a processor.
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
from typing import Any

import numpy as np

LIMIT = 600
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


def pair_distance(one: Any, other: Any, widths: list[int]) -> float:
    """The mean total variation of all pairs of columns, in bins."""
    found = []
    for a, b in itertools.combinations(range(len(widths)), 2):
        size = widths[a] * widths[b]
        shares = [np.bincount(rows[:, a] * widths[b] + rows[:, b], minlength=size) / len(rows) for rows in (one, other)]
        found.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(found))


def judge(task: Any, rows: Any, seed: int) -> dict[str, float]:
    """AUROC and distance of synthetic rows in bins, the label last."""
    widths, classes = [int(each) for each in task["widths"]], int(task["classes"])
    chances = boosted(rows[:, :-1], rows[:, -1], task["test"], task["named"], widths, classes, seed)
    real = np.column_stack([task["train"], task["labels"]]).astype(int)
    distance = pair_distance(real, rows, [*widths, classes])
    return {"auroc": round(auroc(task["answers"], chances), 5), "pairs": round(distance, 5)}


def synthetic(kind: str, task: Any, epsilon: float, size: float) -> Any:
    """The synthetic rows of AIM or MST, by their own defaults but for `size`, the megabytes of AIM's model."""
    import pandas as pd
    from mbi import Dataset, Domain

    widths = [*(int(each) for each in task["widths"]), int(task["classes"])]
    names = [f"c{at}" for at in range(len(widths))]
    frame = pd.DataFrame(np.column_stack([task["train"], task["labels"]]).astype(int), columns=names)
    data = Dataset(frame, Domain(names, widths))
    if kind == "mst":
        from mst import MST

        made = MST(data, epsilon, DELTA)
    else:
        from aim import AIM

        workload = [pair for pair in itertools.combinations(data.domain, 2) if data.domain.size(pair) <= 10_000]
        _, made = AIM(epsilon, DELTA, max_model_size=size).run(data, [(pair, 1.0) for pair in workload])
    return made.df[names].to_numpy().astype(int)


def main(kind: str, folder: str, path: str, epsilon: str, seed: str, size: str = "80") -> None:
    sys.path.insert(0, folder)
    task = np.load(path)
    np.random.seed(1000 * int(seed) + int(10 * float(epsilon)))

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {LIMIT} s of a processor")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
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
