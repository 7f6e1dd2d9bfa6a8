"""What the order of a category's values gains: held-out AUROC with and without it, of columns as they are and with one
of 500 values that shifts log-odds by 1.2 in the standard deviation.

    python -m studies.defaults.orders [--data DIR] [--datasets adult adult+500 ..] [--epsilons 1 4] [--learner lazybb]

One line of a table for each dataset and epsilon, in the mean over splits, with its standard error. Benchmark rows are
public, and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache

import numpy as np
import pyarrow as pa
import yaml
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from studies.dpebm.ebm_walks import cell, load
from training.learners import LEARNERS

MADE, VALUES, EFFECT = "+500", 500, 1.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=["adult+500", "adult", "bank", "coil2000", "telco"])
    parser.add_argument("--epsilons", nargs="+", default=["0.25", "1", "4"])
    parser.add_argument("--learner", default="lazybb-tree")
    parser.add_argument("--seeds", type=int, default=3)
    choices = parser.parse_args()
    print(f"| {choices.learner} | epsilon | none | auto |\n|---|---|---|---|")
    for name in choices.datasets:
        data = with_column(name, choices.data) if name.endswith(MADE) else load(name, choices.data)
        for epsilon in choices.epsilons:
            sides = [
                cell([figure(data, choices.learner, epsilon, order, seed) for seed in range(choices.seeds)])
                for order in ("none", "auto")
            ]
            print(f"| {name} | {epsilon} | {' | '.join(sides)} |", flush=True)


@lru_cache(maxsize=1)
def with_column(name: str, folder: str | None) -> datasets.Dataset:
    """A dataset of two classes with one column more, of which values are drawn by the row's class."""
    data = load(name.removesuffix(MADE), folder)
    schema, random = yaml.safe_load(data.schema_bytes), np.random.default_rng(3)
    last = np.array(
        [str(label) == str(schema["target"]["classes"][1]) for label in data.table[data.target].to_pylist()]
    )
    effect, common = random.normal(0, EFFECT, VALUES), 1 / (np.arange(VALUES) + 10.0)
    drawn = []
    for sign in (-0.5, 0.5):
        shares = common * np.exp(sign * effect)
        drawn.append(random.choice(VALUES, last.size, p=shares / shares.sum()))
    towns = [f"town {at}" for at in np.where(last, drawn[1], drawn[0])]
    schema["features"]["town"] = {"type": "categorical", "values": [f"town {at}" for at in range(VALUES)]}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in schema.items())
    return datasets.Dataset(name, data.table.append_column("town", pa.array(towns)), data.target, lines.encode())


def figure(data: datasets.Dataset, learner: str, epsilon: str, order: str, seed: int) -> float:
    """AUROC on a fifth of the rows."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    model = LEARNERS[learner](schema=schema, epsilon=epsilon, order=order).fit(X, y)
    return float(roc_auc_score(y_test == model.classes_[1], model.decision_function(X_test)))


if __name__ == "__main__":
    main()
