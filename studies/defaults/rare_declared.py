"""Does a share that is declared, of a rare class, help `auto` or do nothing? Rows of the second class are left out at
random until so many are left; the learner that `auto` takes is fitted with the share declared and without.

    python -m studies.defaults.rare_declared --data DIR --out rare-declared.jsonl.gz
    python -m studies.defaults.rare_declared --out rare-declared.jsonl.gz --report
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import yaml
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from dpserve_verify.privacy.budget import Budget, Relation
from studies.defaults.auto import Line, load, log_loss, options, table
from training.learners import LEARNERS
from training.learners.base.class_weights import FEWEST, MOST
from training.learners.choice import choose
from training.rows.schema.schema import parse_schema
from training.session.session import Public

SHARES = (
    *(("lendingclub", 0.03), ("page_blocks", 0.03), ("coil2000", 0.04), ("remote_work", 0.03)),
    *(("creditcardsmall", 0.045), ("wine_quality", 0.045), ("california", 0.045), ("codrna", 0.02)),
)
EPSILONS = ("0.1", "0.5", "1", "4")
FIGURES = ("auroc", "auprc", "log_loss")
WEIGHED = {"without": 0.0, "with": 0.5}


def fits(name: str, share: float, epsilon: str, seed: int, folder: str | None) -> Line | None:
    """Fit with the share declared and weighed, and without; None where rare rows are so few that neither weighs, or
    `auto` takes curves, which weigh none."""
    data = load(name, folder)
    labels, draw = np.asarray(data.table[data.target]), np.random.default_rng(100 + seed)
    second = parse_schema(data.schema_bytes).classes[-1]  # type: ignore[index]  # it has two classes
    rare = labels.astype(str) == str(second)
    rare = rare if rare.mean() < 0.5 else ~rare
    others = np.flatnonzero(~rare)
    left = draw.permutation(np.flatnonzero(rare))[: int(others.size * share / (1 - share))]
    rows = draw.permutation(np.concatenate([others, left]))
    train, test = np.split(rows, [int(0.8 * rows.size)])
    body = yaml.safe_load(datasets.with_records(data.schema_bytes, train.size))
    is_second = str(labels[left[0]]) == str(second)
    body["target"]["prevalence"] = share if is_second else 1 - share
    schema = parse_schema(yaml.safe_dump(body, sort_keys=False).encode())
    learner = choose(Public.of(schema, Relation.ADD_REMOVE, Budget.of(epsilon, "0.000001"), False)).learner
    signal = share * train.size * float(epsilon)
    if learner == "ebm" or signal < FEWEST:
        return None
    line: Line = {"data": name, "epsilon": epsilon, "seed": seed, "learner": learner, "signal": round(signal)}
    features = data.table.drop([data.target])
    for mode, balance in WEIGHED.items():
        model = LEARNERS[learner](schema=schema, epsilon=epsilon, balance=balance)
        model.fit(features.take(train), labels[train])
        truth = labels[test] == labels[left[0]]
        chance = model.predict_proba(features.take(test))[:, int(is_second)]
        reached = roc_auc_score(truth, chance), average_precision_score(truth, chance), log_loss(truth, chance)
        line[mode] = [round(float(each), 5) for each in reached]
    return line


def play(out: Path, folder: str | None, seeds: int) -> None:
    """Every fit that `out` does not hold yet."""
    done = {(line["data"], line["epsilon"], line["seed"]) for line in read_lines(out)}
    for seed, (name, share), epsilon in product(range(seeds), SHARES, EPSILONS):
        if (name, epsilon, seed) not in done and (line := fits(name, share, epsilon, seed, folder)) is not None:
            append_lines(out, line)


def report(lines: Iterable[Line]) -> str:
    """Return the table: how much is gained by the share, by rows of the rare class x epsilon."""
    cells: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        cells[line["data"], line["epsilon"]].append(line)
    rows = []
    for low, high in pairwise((FEWEST, 100.0, MOST, 1e12)):
        held = [own for own in cells.values() if low <= own[0]["signal"] < high]
        row = [f"from {low:,.0f}", str(len(held))]
        for at in range(len(FIGURES)):
            gains = [mean(line["with"][at] - line["without"][at] for line in own) for own in held]
            row.append(f"{mean(gains):+.4f} ± {stdev(gains) / len(gains) ** 0.5:.4f}")
        rows.append(row)
    return "\n".join(table(["rare rows x epsilon", "cells", "AUROC", "AUPRC", "log loss"], rows))


def main() -> None:
    asked = options(__doc__, 3).parse_args()
    if not asked.report:
        play(asked.out, asked.data, asked.seeds)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
