"""The study behind `auto` of three classes or more: `ebm` and `lazybb` by their defaults on real targets of 3 to 10
classes, beside scikit-learn's HistGradientBoosting, which protects nobody. Tables: studies/defaults/classes.md.

    python -m studies.defaults.classes --data DIR --out classes.jsonl    # goes on where a file ends
    python -m studies.defaults.classes --out classes.jsonl --report      # the tables; fits nothing

Add/remove, delta 1e-6, exact samplers, random 80/20 splits. Ranges and categories are public: of diamonds those that
the publisher's help page states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from time import process_time
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OrdinalEncoder

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults import rare_of_many
from studies.defaults.auto import Line, options, table
from training.learners import LEARNERS
from training.learners.choice import MANY_CLASSES_FROM
from training.rows.schema.schema import parse_schema

DIAMONDS = {
    "carat": [0.2, 5.01], "depth": [43, 79], "table": [43, 95], "x": [0, 10.74], "y": [0, 58.9], "z": [0, 31.8],
    "target": [326, 18823],
}  # fmt: skip
GRADES = {"color": [*"DEFGHIJ"], "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]}
SETS = ("diamonds_cut", "wine", "abalone", "mnist5k", "splice", *rare_of_many.SETS)
EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1", "4")
NAMES = ("ebm", "lazybb")
FREE = "not private"
KEYS = ("data", "epsilon", "seed", "learner")
STARTS = (0.0, 1_000.0, 2_000.0, MANY_CLASSES_FROM, 8_000.0, 16_000.0, 1e12)


def task(name: str, folder: str | None) -> tuple[Any, NDArray[np.str_], dict[str, Any]]:
    """Features, labels and the schema's body."""
    if name in rare_of_many.SETS:
        return rare_of_many.task(name, folder)
    if name == "diamonds_cut":
        place = datasets.folder_of(folder)
        if place is None:
            raise FileNotFoundError("diamonds: not shipped; name its folder (--data or DPSERVE_DATA)")
        rows = pq.read_table(place / "diamonds.parquet")
        features: dict[str, Any] = {key: {"type": "numeric", "range": ends} for key, ends in DIAMONDS.items()}
        features |= {key: {"type": "categorical", "values": values} for key, values in GRADES.items()}
        return rows.drop(["cut"]), np.asarray(rows["cut"]).astype(str), {"features": features}
    data = datasets.load(name, folder)
    body = yaml.safe_load(data.schema_bytes)
    return data.table.drop([data.target]), np.asarray(data.table[data.target]).astype(str), body


def fit(name: str, folder: str | None, epsilon: str, seed: int, learner: str) -> Line:
    """One fit, what it reached on held-out rows, and its processor time."""
    features, labels, body = task(name, folder)
    train, test = np.split(np.random.default_rng(seed).permutation(labels.size), [int(0.8 * labels.size)])
    classes = np.unique(labels).tolist()
    start = process_time()
    if learner == FREE:
        columns = [_numbers(features[column]) for column in features.column_names]
        matrix = np.column_stack(columns)
        model = HistGradientBoostingClassifier(random_state=0).fit(matrix[train], labels[train])
        chance = model.predict_proba(matrix[test])
    else:
        about = body | {"target": {"name": "label", "classes": classes}, "records": int(train.size)}
        model = LEARNERS[learner]().set_params(schema=parse_schema(yaml.safe_dump(about).encode()), epsilon=epsilon)
        model.fit(features.take(train), labels[train])
        chance = model.predict_proba(features.take(test))
    seconds = process_time() - start
    chance = np.clip(chance[:, [list(model.classes_).index(label) for label in classes]], 1e-9, 1)
    truth = np.searchsorted(classes, labels[test])
    found = {
        "auroc": mean(roc_auc_score(truth == k, chance[:, k]) for k in np.unique(truth)),
        "log_loss": log_loss(truth, chance, labels=range(len(classes))),
        "accuracy": (chance.argmax(axis=1) == truth).mean(),
        "seconds": seconds,
    }
    return {"records": int(train.size), "classes": len(classes)} | {k: round(float(v), 4) for k, v in found.items()}


def _numbers(column: Any) -> NDArray[np.float64]:
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.asarray(OrdinalEncoder().fit_transform(values.astype(str)[:, None])[:, 0])


def play(out: Path, folder: str | None, seeds: int) -> None:
    """Every fit that `out` does not hold yet."""
    done = {tuple(line[key] for key in KEYS) for line in read_lines(out)}
    every = [(n, e, s, k) for s in range(seeds) for n in SETS for e in EPSILONS for k in NAMES]
    every += [(n, "", s, FREE) for s in range(seeds) for n in SETS]
    for name, epsilon, seed, learner in (each for each in every if each not in done):
        line = dict(zip(KEYS, (name, epsilon, seed, learner), strict=True))
        append_lines(out, line | fit(name, folder, epsilon, seed, learner))


def cells_of(lines: Iterable[Line]) -> dict[tuple[str, str], dict[str, Line]]:
    """Means over splits that all learners have, by dataset and epsilon."""
    held: dict[tuple[str, str, int], dict[str, Line]] = defaultdict(dict)
    for line in lines:
        held[line["data"], line["epsilon"], line["seed"]][line["learner"]] = line
    cells: dict[tuple[str, str], dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for (name, epsilon, _), by in held.items():
        if by.keys() >= set(NAMES) or FREE in by:
            for learner, line in by.items():
                cells[name, epsilon][learner].append(line)
    figures = ("auroc", "log_loss", "accuracy", "seconds", "records", "classes")
    return {
        cell: {k: {f: mean(line[f] for line in lines) for f in figures} for k, lines in by.items()}
        for cell, by in cells.items()
    }


def strength(cell: tuple[str, str], by: dict[str, Line]) -> float:
    """Records times epsilon."""
    return float(by[NAMES[0]]["records"] * float(cell[1]))


def lost(cells: dict[tuple[str, str], dict[str, Line]], start: float, kind: str) -> float:
    """What the rule `ebm` from a strength times the classes on, else `lazybb`, loses against the better of both, mean
    over cells.
    """
    sign = -1 if kind == "log_loss" else 1
    gaps = []
    for cell, by in cells.items():
        pick = by["ebm" if strength(cell, by) * by["ebm"]["classes"] >= start else "lazybb"][kind]
        gaps.append(max(sign * by[name][kind] for name in NAMES) - sign * pick)
    return mean(gaps)


def report(lines: list[Line]) -> str:
    """The tables of studies/defaults/classes.md."""
    cells = cells_of(lines)
    free = {name: by[FREE] for (name, epsilon), by in cells.items() if not epsilon}
    private = {cell: by for cell, by in cells.items() if cell[1]}
    head = ["target, classes", "epsilon", "S", "log loss, lazybb → ebm", "not private", "AUROC", "not private"]
    rows = []
    for (name, epsilon), by in sorted(private.items(), key=lambda item: (item[0][0], float(item[0][1]))):
        row = [f"{name}, {by['ebm']['classes']:.0f}", epsilon, f"{strength((name, epsilon), by):,.0f}"]
        for kind in ("log_loss", "auroc"):
            row += [f"{by['lazybb'][kind]:.3f} → {by['ebm'][kind]:.3f}"]
            row += [f"{free[name][kind]:.3f}" if name in free else ""]
        seconds = [f"{by[each]['seconds']:.2f}" for each in ("lazybb", "ebm")]
        rows.append([*row, f"{by['lazybb']['accuracy']:.3f} → {by['ebm']['accuracy']:.3f}", " → ".join(seconds)])
    out = [*table([*head, "accuracy", "processor seconds"], rows), ""]
    said = [f"from {start:,.0f}" if start < 1e12 else "never" for start in STARTS]
    rows = [
        [where, *(f"{lost(private, start, kind):.4f}" for kind in ("log_loss", "auroc", "accuracy"))]
        for where, start in zip(said, STARTS, strict=True)
    ]
    return "\n".join([*out, *table(["`ebm`", "log loss lost", "AUROC", "accuracy"], rows)])


def main() -> None:
    asked = options(__doc__, 2).parse_args()
    if asked.report:
        print(report(list(read_lines(asked.out))))
    else:
        play(asked.out, asked.data, asked.seeds)


if __name__ == "__main__":
    main()
