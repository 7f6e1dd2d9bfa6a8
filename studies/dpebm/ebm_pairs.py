"""What pairs of features add to `ebm`: held-out figures without pairs, by the public rule, and with a number of them.

    python -m studies.dpebm.ebm_pairs [--data DIR] [--datasets made adult ..] [--epsilons 1 4] [--pairs 0 auto 3]

One line of a table for each dataset and epsilon: AUROC of two classes, R^2 of a number; in brackets how many pairs were
kept. `made` is drawn here: ten numbers, of which two say something alone and six in three pairs. Benchmark rows are
public, and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import yaml
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks import datasets
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor

MADE, ROWS = "made", 26_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=[MADE, "adult"])
    parser.add_argument("--epsilons", nargs="+", default=["1", "4"])
    parser.add_argument("--pairs", nargs="+", default=["0", "auto"])
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    print(f"| | epsilon | {' | '.join(asked.pairs)} |")
    print("|---" * (2 + len(asked.pairs)) + "|")
    for name in asked.datasets:
        data = made() if name == MADE else datasets.load(name, asked.data)
        for epsilon in asked.epsilons:
            print(f"| {name} | {epsilon} | {' | '.join(cells(data, epsilon, asked.pairs, asked.seeds))} |", flush=True)


def cells(data: datasets.Dataset, epsilon: str, pairs: list[str], seeds: int) -> Iterator[str]:
    """The mean figure over splits, and the largest number of pairs that were kept."""
    for many in pairs:
        found = [figure(data, epsilon, many, seed) for seed in range(seeds)]
        kept = max(each[1] for each in found)
        yield f"{np.mean([each[0] for each in found]):.4f}" + (f" ({kept})" if kept else "")


def figure(data: datasets.Dataset, epsilon: str, pairs: str, seed: int) -> tuple[float, int]:
    """AUROC or R^2 of a fifth of the rows, and how many pairs the model has."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    if schema.classes is None:
        number = DPEBMRegressor(schema=schema, epsilon=epsilon, pairs=pairs).fit(X, y.astype(float))
        return float(r2_score(y_test.astype(float), number.predict(X_test))), len(number.ensemble_.pairs)
    model = DPEBMClassifier(schema=schema, epsilon=epsilon, pairs=pairs).fit(X, y)
    truth = y_test == model.classes_[1]
    return float(roc_auc_score(truth, model.decision_function(X_test))), len(model.ensemble_.pairs)


def made() -> datasets.Dataset:
    """Two numbers that say something alone, three pairs that say something together, and two that say nothing."""
    random = np.random.default_rng(7)
    x = random.uniform(size=(10, ROWS))
    score = 1.5 * np.sin(6 * x[0]) + 2 * x[1] + 1.5 * np.sign((x[2] - 0.5) * (x[3] - 0.5))
    score += 6 * (x[4] - 0.5) * (x[5] - 0.5) + 1.2 * ((x[6] > 0.7) & (x[7] < 0.4))
    yes = random.logistic(size=ROWS) < 1.3 * (score - np.median(score))
    columns = {f"x{at}": each for at, each in enumerate(x)}
    number = {"type": "numeric", "range": [0, 1], "bins": 32}
    target = {"name": "target", "classes": ["no", "yes"]}
    schema = {"target": target, "records": ROWS, "features": {name: dict(number) for name in columns}}
    table = pa.table({**columns, "target": np.where(yes, "yes", "no")})
    return datasets.Dataset(MADE, table, "target", yaml.safe_dump(schema).encode())


if __name__ == "__main__":
    main()
