"""A thousand useless columns beside Adult's: what they cost in AUROC at epsilon 1, and how long a fit takes.

    python -m studies.speed.useless_columns --columns 1000 --seeds 3 --learners auto lazybb
    python -m studies.speed.useless_columns --first 0.25 --epsilon 0.878    # of a total of 1

The columns are uniform in [0, 1], each with 32 bins, and say nothing. Trained on Adult's own training file and scored
on its test file; delta 1e-6. A fit is in memory, with one of the same kind before it. One line of JSON a fit. With
`--first`, a model of lazybb at that epsilon comes before each, which reads the FEW features whose votes weigh
most in it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from sklearn.metrics import roc_auc_score

from benchmarks.speed import ADULT
from models.features.reading import ALL
from training.learners import LEARNERS
from training.rows.schema.schema import Schema, parse_schema

BINS, DELTA = 32, "0.000001"
FEW = 12
CHOSEN = ("auto", "lazybb", "lazybb-tree", "ebm")


def with_columns(columns: int) -> tuple[bytes, pa.Table, pa.Table]:
    """Adult's schema, training and test rows with so many columns more."""
    schema = yaml.safe_load((ADULT / "adult.schema.yaml").read_text())
    names = [f"useless_{number}" for number in range(columns)]
    schema["features"] |= {name: {"type": "numeric", "range": [0, 1], "bins": BINS} for name in names}
    tables = []
    for number, part in enumerate(("train", "test")):
        table = pq.read_table(ADULT / f"adult_{part}.parquet")
        random = np.random.default_rng(number)  # not private: any generator will do
        for name in names:
            table = table.append_column(name, pa.array(random.random(len(table))))
        tables.append(table)
    return yaml.safe_dump(schema, sort_keys=False).encode(), *tables


def heaviest(epsilon: str, about: Schema, train: pa.Table) -> list[str]:
    """The features whose votes weigh most in a model of lazybb: what it released, so to look costs nothing more."""
    found = LEARNERS["lazybb"](schema=about, epsilon=epsilon, delta=DELTA)
    ensemble = found.fit(train.drop_columns([about.target]), train[about.target]).ensemble_
    weights = Counter[str]()
    for vote in ensemble.votes:
        weights[about.features[vote.feature].name] += 0 if vote.test == "always" else abs(vote.weight)
    return [name for name, _ in weights.most_common(FEW)]


def one(
    learner: str, schema: bytes, train: pa.Table, test: pa.Table, epsilon: str, first: str | None
) -> dict[str, float]:
    """Processor and clock seconds of a fit, and the AUROC of its model."""
    about = parse_schema(schema)
    read = heaviest(first, about, train) if first else ALL
    made = LEARNERS[learner](schema=about, epsilon=epsilon, delta=DELTA, features=read)
    clock, processor = time.perf_counter(), time.process_time()
    made.fit(train.drop_columns([about.target]), train[about.target])
    seconds, cpu = time.perf_counter() - clock, time.process_time() - processor
    truth = np.array(test[about.target].to_pylist()) == made.classes_[-1]
    chances = made.predict_proba(test.drop_columns([about.target]))[:, -1]
    return {"seconds": seconds, "cpu": cpu, "auroc": float(roc_auc_score(truth, chances))}


def main() -> None:
    """Fit by fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3, help="fits of each")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(CHOSEN))
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--first", help="epsilon of a model before each, by which FEW features are chosen")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for columns in (asked.columns,) if asked.first else (0, asked.columns):
        rows = with_columns(columns)
        for learner in asked.learners:
            for _ in range(asked.seeds):
                found = one(learner, *rows, asked.epsilon, asked.first)
                line = {"learner": learner, "columns": columns, **found, "load": os.getloadavg()[0]}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
