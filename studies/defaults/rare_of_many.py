"""The study behind class weights where three classes or more have a rare one: real targets of shared datasets, their
shares declared, `lazybb` with class weights and without. Tables: studies/defaults/rare.md.

    python -m studies.defaults.rare_of_many --data DIR --out rare-of-many.jsonl.gz    # goes on where a file ends
    python -m studies.defaults.rare_of_many --out rare-of-many.jsonl.gz --report      # the tables; fits nothing

Add/remove, delta 1e-6, exact samplers, random 80/20 splits of at most MOST rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults.auto import Line, options, table
from training.learners import LazyBB
from training.learners.base.class_weights import ENOUGH, FEWEST, RARE
from training.rows.schema.schema import parse_schema

MARKS = {"wine_quality": (4, 5, 6, 7), "abalone_rings": (5, 8, 10, 13, 17)}  # upper ends of classes but the last
COLUMNS = {"bank": "poutcome", "adult": "relationship", "adult_race": "race", "mushroom": "habitat"}
SETS = (*MARKS, *COLUMNS)
EPSILONS = ("0.25", "1", "4")
BALANCES = (0.0, 0.5, 1.0)
MOST = 12_000
RULE, NEVER = (FEWEST, ENOUGH), (0.0, 0.0)
RULES = (NEVER, *((start, end) for start in (0.0, FEWEST) for end in (ENOUGH, 4 * ENOUGH, 1e12)))
KEYS = ("data", "epsilon", "seed")
Key = tuple[str, str, int]
Cells = dict[tuple[str, str], list[dict[float, Line]]]


def task(name: str, folder: str | None) -> tuple[Any, NDArray[np.str_], dict[str, Any]]:
    """Features, labels and the schema's body, the target put in: what a table's own column says, or groups of marks."""
    data = datasets.load(name.partition("_")[0] if name.startswith("adult") else name, folder)
    body = yaml.safe_load(data.schema_bytes)
    features = data.table.drop([data.target])
    if name in MARKS:
        labels = np.searchsorted(MARKS[name], np.asarray(data.table[data.target])).astype(str)
    else:
        labels = np.asarray(features[COLUMNS[name]]).astype(str)
        features, body["features"] = features.drop([COLUMNS[name]]), dict(body["features"])
        del body["features"][COLUMNS[name]]
    return features, labels, body


def fit(name: str, folder: str | None, epsilon: str, seed: int, balance: float, most: int = MOST) -> Line:
    """One fit and what it reached: AUROC of every class against the rest and of the rare ones, log loss over that of
    the shares alone, and the rare classes' mean chance over their share."""
    features, labels, body = task(name, folder)
    order = np.random.default_rng(seed).permutation(labels.size)[:most]
    train, test = np.split(order, [int(0.8 * order.size)])
    classes, counts = np.unique(labels, return_counts=True)
    shares = np.round(counts / counts.sum(), 3)
    target = {"name": "target", "classes": classes.tolist(), "prevalence": (shares / shares.sum()).tolist()}
    body |= {"target": target, "records": int(train.size)}
    model = LazyBB(balance=balance).set_params(schema=parse_schema(yaml.safe_dump(body).encode()), epsilon=epsilon)
    model.fit(features.take(train), labels[train])
    chance = np.clip(model.predict_proba(features.take(test)), 1e-9, 1)
    order_of = [list(model.classes_).index(label) for label in classes]
    chance, truth = chance[:, order_of], np.searchsorted(classes, labels[test])
    kinds = [k for k in range(classes.size) if (truth == k).any()]
    areas = {k: roc_auc_score(truth == k, chance[:, k]) for k in kinds}
    rare = [k for k in kinds if shares[k] < RARE]
    found = {
        "auroc": mean(areas.values()),
        "rare": mean(areas[k] for k in rare),
        "log_loss": -np.log(chance[np.arange(truth.size), truth]).mean() / -(shares * np.log(shares)).sum(),
        "mean": chance[:, rare].sum() / (truth.size * shares[rare].sum()),
        "accuracy": (chance.argmax(axis=1) == truth).mean(),
    }
    rarest = float(min(shares) * train.size)
    about = {"records": int(train.size), "classes": len(classes), "rarest": rarest, "share": float(min(shares))}
    return about | {key: round(float(value), 5) for key, value in found.items()}


def play(out: Path, folder: str | None, seeds: int) -> None:
    """Every fit that `out` does not hold yet."""
    done = {(*(line[key] for key in KEYS), line["balance"]) for line in read_lines(out)}
    every = ((n, e, s, b) for s in range(seeds) for n in SETS for e in EPSILONS for b in BALANCES)
    for name, epsilon, seed, balance in (each for each in every if each not in done):
        line = {"data": name, "epsilon": epsilon, "seed": seed, "balance": balance}
        line |= fit(name, folder, epsilon, seed, balance)
        append_lines(out, line)


def splits(lines: Iterable[Line]) -> dict[Key, dict[float, Line]]:
    """Fits on the same rows, by balance."""
    held: dict[Key, dict[float, Line]] = defaultdict(dict)
    for line in lines:
        held[line["data"], line["epsilon"], line["seed"]][line["balance"]] = line
    return {key: by for key, by in held.items() if by.keys() >= set(BALANCES)}


def cells_of(lines: Iterable[Line]) -> Cells:
    """The same by dataset and epsilon."""
    cells: Cells = defaultdict(list)
    for (name, epsilon, _), by in splits(lines).items():
        cells[name, epsilon].append(by)
    return cells


def report(lines: list[Line]) -> str:
    """The tables of studies/defaults/rare.md."""
    cells, rows = cells_of(lines), []
    for (name, epsilon), held in sorted(cells.items()):
        first = held[0][0.0]
        row = [f"{name}, {first['classes']}", epsilon, f"{first['rarest'] * float(epsilon):,.0f}"]
        for balance in BALANCES[1:]:
            gain = [by[balance]["rare"] - by[0.0]["rare"] for by in held]
            error = stdev(gain) / len(gain) ** 0.5 if len(gain) > 1 else 0.0
            row.append(f"{mean(gain):+.4f} ± {error:.4f}")
        row += [" → ".join(f"{mean(by[b]['auroc'] for by in held):.4f}" for b in BALANCES)]
        row += [
            " → ".join(f"{mean(by[b][kind] for by in held):.2f}" for b in BALANCES) for kind in ("log_loss", "mean")
        ]
        rows.append(row)
    head = ["target, classes", "epsilon", "rarest rows x epsilon", "AUROC of rare classes, .5", "1"]
    out = table([*head, "AUROC of all, 0 → .5 → 1", "log loss", "mean chance of rare ones"], rows)
    out += [
        "",
        "Left out, and between how many rows of the rarest class · epsilon the others would weigh:",
        "",
    ]
    rows = []
    for name in sorted({name for name, _ in cells}):
        own, others = ([held for cell, held in cells.items() if (cell[0] == name) == mine] for mine in (True, False))
        start, end = max(RULES, key=lambda rule: ruled(others, rule, "auroc"))
        said = f"{start:,.0f} to {end:,.0f}" if end < 1e12 else f"from {start:,.0f}"
        figures = [ruled(own, rule, kind) for kind in ("auroc", "log_loss") for rule in ((start, end), RULE, NEVER)]
        rows.append([name, said if end else "never", *(f"{each:.4f}" for each in figures)])
    head = ["left out", "weigh", "AUROC so", "by the rule", "never", "log loss so", "by the rule", "never"]
    return "\n".join([*out, *table(head, rows)])


def ruled(cells: Sequence[list[dict[float, Line]]], rule: tuple[float, float], kind: str) -> float:
    """Mean over cells: of balance .5 where the rarest class has as many rows x epsilon as the rule says, else of 0."""
    found = []
    for held in cells:
        told = next(by[0.0]["rarest"] * float(by[0.0]["epsilon"]) for by in held)
        found.append(mean(by[0.5 if rule[0] <= told < rule[1] else 0.0][kind] for by in held))
    return mean(found)


def main() -> None:
    """Fit, then print the tables."""
    asked = options(__doc__, 3).parse_args()
    if not asked.report:
        play(asked.out, asked.data, asked.seeds)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
