"""Does more epsilon ever hurt? The learner that `auto` takes, by its defaults, at one epsilon after the other on every
dataset: AUROC of two classes, the mean over classes against the rest of several, and of a number the RMSE as a part of
its spread; the median over splits, and where it falls behind that of a smaller epsilon.

    python -m studies.defaults.more_epsilon --data DIR --out FILE --seeds 3    # fits; goes on where a file ends
    python -m studies.defaults.more_epsilon --out FILE --report                # the table; fits nothing
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults.auto import options, table
from studies.speed.useless_columns import with_columns
from training.learners import AutoClassifier, AutoRegressor

EPSILONS = ("0.25", "0.5", "1", "2", "4", "8")
USELESS = "adult and 1,000 useless columns"
LOST = 0.01  # of AUROC, or of the spread, that a larger epsilon may be behind by chance: the median of three splits
Line = dict[str, Any]


def load(name: str, folder: str | None) -> datasets.Dataset:
    """Return a dataset; Adult's training rows with useless columns beside them where that is asked."""
    if name != USELESS:
        return datasets.load(name, folder)
    schema, rows, _ = with_columns(1000)
    return datasets.Dataset(USELESS, rows, "income", schema)


def fit(data: datasets.Dataset, epsilon: str, seed: int) -> Line:
    """Fit once, and return which learner it was and what it reached on the held-out fifth: more is better."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    learner = AutoRegressor if schema.classes is None else AutoClassifier
    model = learner(schema=schema, epsilon=epsilon).fit(X, y)
    name = model.choice_.learner
    if schema.classes is None:
        error = model.predict(X_test) - y_test
        return {"learner": name, "reached": round(1 - float(np.sqrt((error**2).mean()) / y_test.std()), 5)}
    chances, classes = model.predict_proba(X_test), model.classes_
    each = [roc_auc_score(y_test == classes[k], chances[:, k]) for k in range(len(classes))]
    return {"learner": name, "reached": round(float(np.mean(each)), 5)}


def play(choices: argparse.Namespace) -> None:
    done = {(line["data"], line["epsilon"], line["seed"]) for line in read_lines(choices.out)}
    for name in choices.sets:
        data = load(name, choices.data)
        for seed in range(choices.seeds):
            for epsilon in choices.epsilons:
                if (name, epsilon, seed) not in done:
                    about = {"data": name, "epsilon": epsilon, "seed": seed}
                    append_lines(choices.out, about | fit(data, epsilon, seed))


def report(lines: list[Line]) -> str:
    """Of each set: the median at each epsilon, and the most that one of them is behind a smaller one."""
    epsilons = sorted({line["epsilon"] for line in lines}, key=float)
    rows = []
    for name in sorted({line["data"] for line in lines}):
        at = {e: [line for line in lines if (line["data"], line["epsilon"]) == (name, e)] for e in epsilons}
        reached = {e: median(line["reached"] for line in those) for e, those in at.items() if those}
        best, lost = 0.0, 0.0
        for each in reached.values():
            best, lost = max(best, each), max(lost, best - each)
        words = [f"{reached[e]:.3f}" if e in reached else "-" for e in epsilons]
        learners = ", ".join(dict.fromkeys(line["learner"] for e in epsilons for line in at[e]))
        rows.append([name, *words, f"{lost:.3f}" + (" !" if lost > LOST else ""), learners])
    return "\n".join(table(["dataset", *epsilons, "falls by", "learners"], rows))


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--sets", nargs="*", default=(*datasets.names(), *datasets.regressions(), USELESS))
    parser.add_argument("--epsilons", nargs="*", default=EPSILONS)
    choices = parser.parse_args()
    print(report(read_lines(choices.out))) if choices.report else play(choices)


if __name__ == "__main__":
    main()
