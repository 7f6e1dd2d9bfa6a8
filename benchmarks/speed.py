"""Fit time and peak memory of LazyBB beside a non-private peer, on the same rows, in one run. Ratios are what counts.

    python benchmarks/speed.py [--rows 30000 1000000] [--repeat 5]

Each figure comes from a process of its own: wall seconds of the fit alone (median), and the largest resident size.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FEATURES, BINS, ROUNDS = 20, 32, 50
LEARNERS = ("lazybb", "hist-gradient-boosting")


def make(rows: int) -> tuple[Any, Any]:
    """Made rows: 20 coded features, a label that depends on some of them. Not private, so any generator will do."""
    import numpy as np

    rng = np.random.default_rng(rows)
    bins = rng.integers(0, BINS, size=(FEATURES, rows), dtype=np.uint8)
    noise = rng.normal(size=rows).astype(np.float32) * 12
    return bins, (bins[:5].sum(axis=0, dtype=np.float32) - 2.5 * BINS + noise > 0).astype(np.uint8)


def lazybb(bins: Any, labels: Any) -> float:
    from accountant.budget import Budget, Relation
    from models.features import NumericFeature
    from training.engine import Rows
    from training.learners import LazyBB
    from training.session import Public, Session

    features = tuple(NumericFeature(f"x{f}", tuple(float(cut) for cut in range(BINS - 1))) for f in range(FEATURES))
    public = Public(features, "y", (0, 1), labels.size, Relation.ADD_REMOVE, Budget.of("0.5", "1e-9"), False)
    learner = LazyBB(rounds=ROUNDS)
    began = time.perf_counter()
    recipe = learner.recipe(public)
    rows = Rows(bins, labels, [feature.bins for feature in features])
    learner._fit(Session(public, recipe.unit, recipe.plan, rows))
    return time.perf_counter() - began


def hist_gradient_boosting(bins: Any, labels: Any) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=ROUNDS, max_leaf_nodes=2, early_stopping=False)
    table = bins.T.astype("float32")
    began = time.perf_counter()
    model.fit(table, labels)
    return time.perf_counter() - began


def one(name: str, rows: int) -> dict[str, float]:
    bins, labels = make(rows)
    fit = {"lazybb": lazybb, "hist-gradient-boosting": hist_gradient_boosting}[name]
    fit(*make(1000))  # compiled code and imports are not what is measured
    seconds = fit(bins, labels)
    return {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(name: str, rows: int, repeat: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, "--rows", str(rows)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeat)]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[30_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", choices=LEARNERS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one, asked.rows[0])))
        return
    print(f"{FEATURES} features, {ROUNDS} rounds; the peer boosts stumps; medians of {asked.repeat}")
    for rows in asked.rows:
        found = {name: measure(name, rows, asked.repeat) for name in LEARNERS}
        ratio = found["lazybb"]["seconds"] / found["hist-gradient-boosting"]["seconds"]
        bins = rows * FEATURES / 2**20
        for name, figures in found.items():
            print(f"{rows:>11,} rows  {name:<24}{figures['seconds']:8.3f} s  {figures['megabytes']:7.0f} MB")
        print(f"{'':>11} lazybb / peer: {ratio:.2f}; packed bins: {bins:.0f} MB")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
