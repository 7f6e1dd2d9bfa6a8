"""What trees beside curves gain by a loss of their own: `ebm-trees` by each loss, judged by what that loss is of.

    python -m studies.dpebm.tree_losses --data DIR --datasets hotel_price california abalone_rings --out FILE

A line of JSON for each fit: root mean square, mean absolute error and pinball loss at .9 on a held-out fifth, also of
not private boosting by the same losses and of ridge regression.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, mean_pinball_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from benchmarks import datasets
from dpserve_verify.privacy.budget import Budget, Relation
from training.learners.ebm.trees_beside import DPEBMTreesRegressor
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of, rows_of
from training.session.session import Public, Session

Floats = NDArray[np.float64]
DELTA = "0.000001"
LOSSES: dict[str, dict[str, object]] = {
    "squared": {}, "absolute": {"loss": "absolute"}, "quantile": {"loss": "quantile", "quantile": 0.9},
}  # fmt: skip


def figures(truth: Floats, predicted: Floats) -> dict[str, float]:
    """Each loss of a prediction."""
    found = {
        "rmse": float(np.sqrt(np.mean((truth - predicted) ** 2))),
        "absolute": mean_absolute_error(truth, predicted),
        "quantile": mean_pinball_loss(truth, predicted, alpha=0.9),
    }
    return {name: round(float(value), 5) for name, value in found.items()}


def main() -> None:
    """Append a line for each fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=["hotel_price"])
    parser.add_argument("--epsilons", nargs="+", default=["1", "4"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for name in asked.datasets:
        found = datasets.load(name, asked.data)
        order = np.random.default_rng(asked.seed).permutation(len(found.table))
        cut = len(order) * 4 // 5
        train, test = found.table.take(order[:cut]), found.table.take(order[cut:])
        schema = parse_schema(datasets.with_records(found.schema_bytes, cut))
        truth = np.asarray(test[found.target].to_pylist(), float)

        def note(about: dict[str, object], told: Floats, truth: Floats = truth, name: str = name) -> None:
            line = {"dataset": name, "seed": asked.seed, **about, **figures(truth, told)}
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")

        rows = rows_of(schema, train, train[found.target], Relation.ADD_REMOVE)
        for epsilon in asked.epsilons:
            public = Public.of(schema, Relation.ADD_REMOVE, Budget.of(epsilon, DELTA), False)
            for loss, more in LOSSES.items():
                learner = DPEBMTreesRegressor(**more)  # type: ignore[arg-type]
                recipe = learner.recipe(public)
                model = learner.learn(Session(public, recipe.unit, recipe.plan, rows))
                note({"epsilon": epsilon, "loss": loss}, model.predict(columns_of(schema, test)))
        held = rows_of(schema, test, test[found.target], Relation.ADD_REMOVE)
        codes = [np.asarray(part.bins, float).T for part in (rows, held)]
        known = np.asarray(train[found.target].to_pylist(), float)
        for loss in ("squared_error", "absolute_error", "quantile"):
            boosted = HistGradientBoostingRegressor(loss=loss, quantile=0.9 if loss == "quantile" else None)
            note({"not private": loss}, boosted.fit(codes[0], known).predict(codes[1]))
        ridge = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge()).fit(codes[0], known)
        note({"not private": "ridge"}, ridge.predict(codes[1]))


if __name__ == "__main__":
    main()
