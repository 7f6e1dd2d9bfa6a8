"""What a public score to begin from is worth: held-out AUROC of `auto`, of the public model alone, of private rounds
that begin from it, and of rounds that begin from the same model with every sign turned.

    python -m studies.defaults.public_start [--data DIR] [--seeds 3] [--out public-start.jsonl]

Public rows are of a shifted population: women or men alone (Adult), or rows above the median of the first number. One
line for each fit. Benchmark rows are public, and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from benchmarks.lines import read_lines
from studies.dpebm.ebm_walks import load
from training.learners import LEARNERS
from training.learners.ebm.ebm import DPEBMClassifier
from training.planning.starts import learn_openly, score_of
from training.rows.schema.schema import Schema, parse_schema
from training.session.session import Public, Start

LINES = Path(__file__).with_name("public-start.jsonl")
# Dataset, private rows, public rows, which public rows, epsilons.
CELLS: tuple[tuple[str, int, int, str, tuple[str, ...]], ...] = (
    ("adult", 1000, 2000, "Female", ("0.05", "0.1", "0.5", "1")),
    ("adult", 1000, 2000, "Male", ("0.05", "0.1", "0.5", "1")),
    ("adult", 5000, 2000, "Female", ("0.05", "0.1", "0.5", "1")),
    ("adult", 5000, 2000, "Male", ("0.05", "0.1", "0.5", "1")),
    ("german", 600, 200, "high", ("0.1",)),
    ("coil2000", 6000, 1500, "high", ("0.1",)),
)


class Begun(DPEBMClassifier):
    """The learner with a start at hand, as the platform gives it one."""

    given: Start

    def public_facts(self, schema: Schema | None = None) -> Public:
        """Return what may be known, the start with it."""
        return replace(super().public_facts(schema), start=self.given)


def declared(name: str, folder: Path) -> datasets.Dataset:
    """Return a dataset whose schema says of each column what the whole file has, which is public."""
    table, features = pq.read_table(folder / f"{name}.parquet"), dict[str, Any]()
    for column in table.drop(["target"]).column_names:
        values = table[column].to_pylist()
        if not all(isinstance(value, int | float) for value in values):
            features[column] = {"type": "categorical", "values": sorted(set(map(str, values)))}
        elif min(values) < max(values):
            features[column] = {"type": "numeric", "range": [min(values), max(values)], "bins": 16}
    schema = {"target": {"name": "target", "classes": ["0", "1"]}, "records": len(table), "features": features}
    answers = pa.array([str(value) for value in table["target"].to_pylist()])
    table = table.select([*features]).append_column("target", answers)
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in schema.items())
    return datasets.Dataset(name, table, "target", lines.encode())


def fits(
    name: str, private: int, public: int, which: str, epsilons: tuple[str, ...], seed: int, data: str | None
) -> Iterator[dict[str, Any]]:
    """Yield a line for each fit of one split."""
    loaded = load(name, data) if name == "adult" else declared(name, Path(str(data)))
    table, first = loaded.table, parse_schema(loaded.schema_bytes)
    order = np.random.default_rng(seed).permutation(table.num_rows)
    test, rest = order[: table.num_rows // 5], order[table.num_rows // 5 :]
    if which == "high":
        number = next(feature.name for feature in first.features if feature.kind == "numeric")
        values = np.asarray(table[number].to_numpy(zero_copy_only=False), float)
        shifted = values > np.nanmedian(values)
    else:
        shifted = np.array([str(value) == which for value in table["sex"].to_pylist()])
    mine, others = rest[:private], rest[private:]
    open_rows = table.take(others[shifted[others]][:public])
    schema = parse_schema(datasets.with_records(loaded.schema_bytes, private))
    X, y = table.drop([loaded.target]), np.asarray(table[loaded.target])
    ensemble = learn_openly(schema, open_rows)
    last = str(ensemble.classes[1])
    answers = np.array([str(each) == last for each in y[test]])

    def figure(model: Any) -> float:
        return round(float(roc_auc_score(answers, model.decision_function(X.take(test)))), 4)

    start = score_of(ensemble, schema.features, "0" * 64)
    turned = replace(
        start, constant=-start.constant, terms=tuple(tuple(-each for each in term) for term in start.terms)
    )
    about = {"dataset": name, "private": private, "public": len(open_rows), "which": which, "seed": seed}
    for epsilon in epsilons:
        plain = LEARNERS["auto"](schema=schema, epsilon=epsilon, delta="1e-6").fit(X.take(mine), y[mine])
        line = {**about, "epsilon": epsilon, "auto": figure(plain)}
        for word, given in (("begun", start), ("turned", turned)):
            model = Begun(schema=schema, epsilon=epsilon, delta="1e-6", start=given.digest)
            model.given = given
            line[word] = figure(model.fit(X.take(mine), y[mine]))
        model.ensemble_ = ensemble
        yield line | {"alone": figure(model)}


def table(lines: list[dict[str, Any]]) -> str:
    """Return the page's table: means over seeds."""
    rows = ["| private rows, public rows | epsilon | auto | public alone | begun | begun from a wrong one |"]
    rows.append("|---|---|---|---|---|---|")
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault(tuple(line[key] for key in ("dataset", "private", "which", "epsilon")), []).append(line)
    for (name, private, which, epsilon), own in cells.items():
        means = (f"{np.mean([each[word] for each in own]):.3f}" for word in ("auto", "alone", "begun", "turned"))
        public = round(float(np.mean([each["public"] for each in own])))
        rows.append(f"| {name} {private:,}, {public:,} ({which}) | {epsilon} | {' | '.join(means)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=LINES)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        with asked.out.open("a") as file:
            for cell in CELLS:
                for seed in range(asked.seeds):
                    for line in fits(*cell, seed, asked.data):
                        file.write(json.dumps(line) + "\n")
                        file.flush()
    print(table(read_lines(asked.out)))


if __name__ == "__main__":
    main()
