"""The study behind `auto` (training/learners/choice.py): every learner by its defaults on many datasets with two
classes, which of them is best where, what the rule loses against the best one, and, for every dataset, what the others
alone would have chosen and what that loses on it. And how far their probabilities mean what they say.

    python -m studies.defaults.auto --data DIR --out choice.jsonl.gz    # fits; goes on where a file ends
    python -m studies.defaults.auto --out choice.jsonl.gz --report      # the tables; fits nothing

Every fit is a real one: exact samplers, add/remove, delta 1e-6, random 80/20 splits, figures on the held-out fifth.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from statistics import mean
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from benchmarks.utility import calibration
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import share_of_categories
from training.learners import LEARNERS
from training.learners.choice import choose
from training.rows.schema.schema import parse_schema
from training.session.session import Public

SETS = (
    *("adult", "bank", "telco", "mushroom", "codrna", "creditcardsmall", "page_blocks", "cardiotocography", "banknote"),
    *("firmteacher", "eeg", "yeast", "breast_wisconsin", "transfusion", "qsar", "ionosphere", "sonar", "mice"),
    *("german", "coil2000", "attrition", "affairs", "compas", "hmda", "krkp", "lendingclub", "nhefs_death"),
    *("remote_work", "ui_benefits"),
)
ABOVE = {  # sets whose target is a number: whether it is above
    **{"ames": 200_000, "california": 250_000, "diamonds": 5_000, "elevators": 0, "pol": 0},
    **{"wine_quality": 6, "abalone_rings": 10},
}
NAMES = ("ebm", "lazybb", "lazybb-tree")
EPSILONS = ("0.1", "0.25", "0.5", "1", "2", "4", "8")
FEW_OF = (0.0, 200.0, 1000.0)  # constants that a rule may have
CATEGORIES_OF, UP_TO_OF = (0.25, 0.4, 0.5), (0.0, 25.0, 50.0, 1e12)
BANDS = (0.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 1e12)
SHOWN = ("adult", "bank", "telco")
FEWEST = 2000  # records from which no log loss shall be above the constant's
Line = dict[str, Any]
Floats = NDArray[np.float64]


def load(name: str, folder: str | None) -> datasets.Dataset:
    """Return a dataset of two classes; of a number, whether it is above."""
    data = datasets.load(name, folder)
    if name not in ABOVE:
        return data
    above = pc.greater(data.table[data.target], ABOVE[name]).cast(pa.int64())
    place = data.table.column_names.index(data.target)
    return replace(data, table=data.table.set_column(place, data.target, above), schema_bytes=schema_of(name))


@lru_cache
def schema_of(name: str) -> bytes:
    """Return the schema of a dataset of two classes."""
    schema = datasets.schema_of(name)
    changed, times = re.subn(rb"(?m)^target: .*$", b"target: {name: target, classes: [0, 1]}", schema)
    return changed if name in ABOVE and times == 1 else schema


def log_loss(truth: NDArray[np.bool_], chance: Floats) -> float:
    held = np.clip(np.where(truth, chance, 1 - chance), 1e-6, 1)
    return float(-np.log(held).mean())


def fit(data: datasets.Dataset, learner: str | type[Any], epsilon: str, seed: int, **parameters: Any) -> Line:
    """One fit of a learner, or of one by its name, and what it reached; by defaults where no parameters are given."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    kind = LEARNERS[learner] if isinstance(learner, str) else learner
    model = kind(schema=schema, epsilon=epsilon, **parameters)
    start = process_time()
    model.fit(X, y)
    cpu = process_time() - start
    truth = y_test == model.classes_[1]
    chance = model.predict_proba(X_test)[:, 1]
    slope, error = calibration(truth, chance)
    base = np.full(truth.size, (y == model.classes_[1]).mean())
    found = {
        "auroc": float(roc_auc_score(truth, model.decision_function(X_test))),
        "accuracy": float(((chance > 0.5) == truth).mean()),
        "log_loss": log_loss(truth, chance),
        "constant": log_loss(truth, base),
        "slope": slope,
        "ece": error,
        "cpu": cpu,
    }
    about = {"records": len(y), "features": len(schema.features)}
    return about | {key: round(value, 5) for key, value in found.items()}


def wanted(lines: Iterable[Line], asked: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    done = {(line["data"], line["learner"], line["epsilon"], line["seed"]) for line in lines}
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    every = ((d, n, e, seed) for seed in seeds for d in asked.sets for e in asked.epsilons for n in asked.names)
    return (each for each in every if each not in done)


def play(asked: argparse.Namespace) -> None:
    held = {name: load(name, asked.data) for name in asked.sets}
    todo = list(wanted(read_lines(asked.out), asked))
    for done, (data, name, epsilon, seed) in enumerate(todo):
        line = {"data": data, "learner": name, "epsilon": epsilon, "seed": seed}
        line |= fit(held[data], name, epsilon, seed)
        append_lines(asked.out, line)
        print(f"{done + 1}/{len(todo)} {data} {name} {epsilon}: {line['auroc']:.4f}", file=sys.stderr, flush=True)


Cell = tuple[str, str]  # dataset, epsilon
Means = dict[Cell, dict[str, Line]]  # learner -> the means of its figures
FAIR = "fair"  # among a cell's figures, beside the learners: what `fair` says


def means(lines: Iterable[Line]) -> Means:
    sums: dict[Cell, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        sums[line["data"], line["epsilon"]][line["learner"]].append(line)
    found: Means = {}
    for cell, by in sums.items():
        if by.keys() >= set(NAMES):
            found[cell] = {name: _mean(several) for name, several in by.items()}
            reached = {name: {line["seed"]: line["auroc"] for line in by[name]} for name in NAMES}
            found[cell][FAIR] = found[cell][NAMES[0]] | {"auroc": fair(reached)}
    return found


def fair(reached: Mapping[str, Mapping[int, float]]) -> float:
    """The AUROC of a rule that knows which learner is best in this cell, but not how the draws fall: of every split
    that of the learner whose mean over the other splits is the highest. `reached`: learner -> split -> AUROC, two
    splits at least. The best mean, chosen afterwards, is above what any rule reaches; this is a little below the best
    one's, for it is told by fewer splits.
    """
    splits = sorted(set.intersection(*map(set, reached.values())))
    held = np.array([[by[split] for split in splits] for by in reached.values()])
    others = held.sum(axis=1, keepdims=True) - held
    return float(held[others.argmax(axis=0), range(len(splits))].mean())


def _mean(lines: list[Line]) -> Line:
    kinds = ("auroc", "accuracy", "log_loss", "constant", "slope", "ece", "cpu", "records")
    return {kind: mean(line[kind] for line in lines) for kind in kinds}


def strength(cell: Cell, found: Means) -> float:
    return float(next(iter(found[cell].values()))["records"] * float(cell[1]))


def regret(cell: Cell, name: str, found: Means, of: str = "") -> float:
    """How far below the best of our own learners, by AUROC, or below `of`."""
    most = found[cell][of]["auroc"] if of else max(found[cell][each]["auroc"] for each in NAMES)
    return float(most - found[cell][name]["auroc"])


Rule = tuple[float, float, float]  # FEW, CATEGORIES_FROM and CURVES_UP_TO of training/learners/choice.py


def rules() -> list[Rule]:
    """List the rules that the datasets may choose among: those of the form of `auto`, with other constants."""
    return list(product(FEW_OF, CATEGORIES_OF, UP_TO_OF))


def by_rule(rule: Rule, cell: Cell, found: Means) -> str:
    """Return the learner of such a rule."""
    (few, least, most), (features, categories) = rule, shape(cell[0])
    if strength(cell, found) < few * features**0.5:
        return "lazybb"
    return "ebm" if categories >= least and features <= most else "lazybb-tree"


@lru_cache
def shape(data: str) -> tuple[int, float]:
    """Return how many features a dataset has, and which share of them are categories."""
    features = parse_schema(schema_of(data)).features
    return len(features), share_of_categories(features)


def by_auto(cell: Cell, found: Means) -> str:
    """What the rule itself takes, of public facts alone."""
    records = round(next(iter(found[cell].values()))["records"])
    schema = parse_schema(datasets.with_records(schema_of(cell[0]), records))
    return choose(Public.of(schema, Relation.ADD_REMOVE, Budget.of(cell[1], "0.000001"), False)).learner


def words(rule: Rule) -> str:
    few, least, most = rule
    return f"{few:,.0f}, {100 * least:.0f} %, {most:.0f}" if most < 1e12 else f"{few:,.0f}, {100 * least:.0f} %, any"


def chosen(cells: Iterable[Cell], found: Means) -> Rule:
    """Return the rule of the smallest mean regret on these cells."""
    lost = {cell: {name: regret(cell, name, found) for name in NAMES} for cell in cells}
    return min(rules(), key=lambda rule: sum(by[by_rule(rule, cell, found)] for cell, by in lost.items()))


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows)]


def report(lines: list[Line]) -> str:
    found = means(lines)
    auto = {cell: by_auto(cell, found) for cell in found}
    sets = sorted({data for data, _ in found})
    ruled = {data: chosen([cell for cell in found if cell[0] != data], found) for data in sets}
    taken = {"`auto`": auto, "chosen by the other sets": {cell: by_rule(ruled[cell[0]], cell, found) for cell in found}}
    taken |= {f"`{name}`": dict.fromkeys(found, name) for name in NAMES}
    out = ["AUROC below the best of our own learners in the same cell, chosen afterwards, mean over cells:", ""]
    out += by_strength(found, taken | {"the best on the other splits": dict.fromkeys(found, FAIR)}, "")
    out += ["", "The same below what the best of them on the other splits reaches on each:", ""]
    out += by_strength(found, taken, FAIR)
    out += [
        "",
        "Each dataset: the rule that all the others choose, and what is lost by it and by others in the mean over",
    ]
    out += ["epsilon, below the best chosen afterwards and, in brackets, below the best on the other splits:", ""]
    rows = []
    for data in sets:
        cells = [cell for cell in found if cell[0] == data]
        lost = [
            " ".join(
                shown.format(mean(regret(cell, by[cell], found, of) for cell in cells))
                for of, shown in (("", "{:.4f}"), (FAIR, "({:.4f})"))
            )
            for by in taken.values()
        ]
        rows.append([data, words(ruled[data]), lost[1], lost[0], *lost[2:]])
    head = ["left out", "chosen by the others", "its regret", *(name for name in taken if name[0] == "`")]
    out += table(head, rows)
    return "\n".join([*out, "", *calibrated(found, auto), *probabilities(found)]) + "\n"


def by_strength(found: Means, taken: Mapping[str, Mapping[Cell, str]], of: str) -> list[str]:
    """Regret of what each rule takes, by bands of strength, over all cells, and its standard error over datasets."""
    bands = list(pairwise(BANDS))
    names = [f"{low:,.0f} to {high:,.0f}" if high < 1e12 else f"from {low:,.0f}" for low, high in bands]
    rows = []
    for name, by in taken.items():
        lost = {cell: regret(cell, by[cell], found, of) for cell in found}
        row = [[lost[cell] for cell in found if low <= strength(cell, found) < high] for low, high in bands]
        means_of = [mean(lost[cell] for cell in found if cell[0] == data) for data in {data for data, _ in found}]
        spread = np.std(means_of, ddof=1) / len(means_of) ** 0.5 if len(means_of) > 1 else 0.0
        every = f"{mean(lost.values()):.4f} ± {spread:.4f}"
        rows.append([name, *(f"{mean(those):.4f}" if those else "" for those in row), every])
    return table(["learner", *names, "all"], rows)


def calibrated(found: Means, auto: dict[Cell, str]) -> list[str]:
    """`auto` on the sets that the bounds speak of."""
    out = ["Calibration of `auto`: slope, expected calibration error, log loss (and that of the base rate alone):", ""]
    rows = []
    for data in SHOWN:
        for epsilon in EPSILONS:
            if (data, epsilon) in found:
                at = found[data, epsilon][auto[data, epsilon]]
                figures = [f"{at[kind]:.3f}" for kind in ("slope", "ece", "log_loss", "constant")]
                rows.append([data, epsilon, f"`{auto[data, epsilon]}`", *figures])
    return out + table(["dataset", "epsilon", "learner", "slope", "error", "log loss", "base rate"], rows) + [""]


def probabilities(found: Means) -> list[str]:
    """How each learner's probabilities stand, over all cells from epsilon .25 with enough records."""
    out = [f"Probabilities, over all cells from epsilon .25 with {FEWEST:,} records or more:", ""]
    cells = [c for c in found if float(c[1]) >= 0.25 and next(iter(found[c].values()))["records"] >= FEWEST]
    rows = []
    for name in NAMES:
        those = [found[cell][name] for cell in cells]
        worse = [f"{d} at {e}" for d, e in cells if found[d, e][name]["log_loss"] > found[d, e][name]["constant"]]
        near = sum(0.9 <= each["slope"] <= 1.1 for each in those)
        loss, error = (mean(each[kind] for each in those) for kind in ("log_loss", "ece"))
        rows.append([f"`{name}`", f"{loss:.4f}", f"{error:.4f}", f"{near} of {len(those)}", ", ".join(worse) or "none"])
    head = ["learner", "log loss", "calibration error", "slope in .9 to 1.1", "log loss above the base rate's"]
    return out + table(head, rows)


def options(what: str | None, seeds: int) -> argparse.ArgumentParser:
    """Of a study, which `what` describes: it fits into a file, then prints tables of what that holds."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines of the fits")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--report", action="store_true", help="print the tables of what the file holds; fits nothing")
    return parser


def main() -> None:
    parser = options(__doc__, 2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sets", type=lambda text: tuple(text.split(",")), default=(*SETS, *ABOVE))
    parser.add_argument("--names", type=lambda text: tuple(text.split(",")), default=NAMES)
    parser.add_argument("--epsilons", type=lambda text: tuple(text.split(",")), default=EPSILONS)
    asked = parser.parse_args()
    if not asked.report:
        play(asked)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
