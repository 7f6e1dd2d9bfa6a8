"""What `ebm` reaches beside categories: the held-out error of each dataset, by the rule of today or with one setting.

    python -m studies.dpebm.ebm_walks [--data DIR] [--datasets ames pol ..] [--epsilons 1 4] [--set doubt=0 ridge=4.7]
    python -m studies.dpebm.ebm_walks --trees [--data DIR] ..        # of `ebm-trees`: trees.md

One line of a table for each dataset: of a number the root mean squared error over its spread, of two classes AUROC, in
the mean over splits, and its standard error. Datasets without a schema in benchmarks/schemas have one that is made of
their own rows here, ends and categories: nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor
from training.learners.ebm.trees_beside import DPEBMTreesRegressor

NUMBERS = ("ames", "diamonds", "abalone_rings", "california", "elevators", "hotel_price", "pol", "wine_quality")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=NUMBERS)
    parser.add_argument("--epsilons", nargs="+", default=["0.25", "0.5", "1", "2", "4", "8"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--set", nargs="*", default=[], help="parameters of the learner, name=number")
    parser.add_argument("--trees", action="store_true")
    choices = parser.parse_args()
    number = DPEBMTreesRegressor if choices.trees else DPEBMRegressor
    given = {name: float(value) for name, value in (each.split("=") for each in choices.set)}
    print(f"| | {' | '.join(choices.epsilons)} |")
    print("|---" * (1 + len(choices.epsilons)) + "|")
    for name in choices.datasets:
        data = load(name, choices.data)
        cells = [
            cell([figure(data, epsilon, seed, given, number) for seed in range(choices.seeds)])
            for epsilon in choices.epsilons
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def cell(figures: list[float]) -> str:
    """The mean and its standard error."""
    return f"{np.mean(figures):.3f} ± {np.std(figures) / max(1, len(figures) - 1) ** 0.5:.3f}"


@lru_cache(maxsize=1)
def load(name: str, folder: str | None) -> datasets.Dataset:
    """A dataset of the benchmarks, or a Parquet file with a schema of its own rows."""
    if name in (*datasets.names(), *datasets.regressions()):
        return datasets.load(name, folder)
    place = datasets.folder_of(folder)
    if place is None:
        raise FileNotFoundError(f"dataset={name}: not shipped; name its folder (--data or DPSERVE_DATA)")
    table = pq.read_table(place / f"{name}.parquet")
    answers = np.asarray(table["target"])
    ends = {"range": [float(answers.min()), float(answers.max())]}
    target = {"name": "target", **({"classes": [0, 1]} if np.unique(answers).size == 2 else ends)}
    features = {column: rule_of(table[column]) for column in table.column_names if column != "target"}
    schema = {"target": target, "features": features, "missing": "own-bin"}
    return datasets.Dataset(name, table, "target", b"records: 1\n" + _lines(schema))


def rule_of(column: pa.ChunkedArray) -> dict[str, Any]:
    """What the schema says of a column: its categories, or the ends of its range."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return {"type": "categorical", "values": sorted(text for text in pc.unique(column).to_pylist() if text)}
    ends = pc.min_max(column).as_py()
    low, high = float(ends["min"]), float(ends["max"])
    return {"type": "numeric", "range": [low, high if high > low else low + 1], "bins": 32}


def _lines(schema: dict[str, Any]) -> bytes:
    """The schema as YAML, whose values are JSON."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in schema.items()).encode()


def figure(
    data: datasets.Dataset, epsilon: str, seed: int, given: dict[str, float], learner: type = DPEBMRegressor
) -> float:
    """The error, or AUROC, on a fifth of the rows."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    if schema.classes is None:
        number = learner(schema=schema, epsilon=epsilon, **given).fit(X, y.astype(float))
        left = number.predict(X_test) - y_test
        return float(np.sqrt(np.mean(left**2)) / np.asarray(data.table[data.target]).astype(float).std())
    model = DPEBMClassifier(schema=schema, epsilon=epsilon, **given).fit(X, y)
    return float(roc_auc_score(y_test == model.classes_[1], model.decision_function(X_test)))


if __name__ == "__main__":
    main()
