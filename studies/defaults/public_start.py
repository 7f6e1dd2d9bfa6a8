"""What a public score to begin from is worth: how well `auto` does on held-out rows, the public model alone, private
rounds that begin from it, and rounds that begin from a wrong one.

    python -m studies.defaults.public_start [--data DIR] [--seeds 2] [--out public-start.jsonl]
    python -m studies.defaults.public_start --report

Public rows are of a shifted population, the others of all: women, one wine, one half of California. Two wrong starts:
learnt from the same public rows with permuted answers, and the good one with every term turned (of three classes or
more, each said of the next). AUROC of classes, of three or more each against the others; of a number the share of its
spread that is explained, 1 - RMSE / standard deviation. One line for each split and epsilon. Benchmark rows are public,
and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import datasets
from benchmarks.lines import read_lines
from studies.dpebm.ebm_walks import rule_of
from training.learners import LEARNERS
from training.learners.ebm.ebm import DPEBM, DPEBMClassifier, DPEBMRegressor
from training.planning.starts import learn_openly, score_of
from training.rows.schema.schema import Schema, parse_schema
from training.session.session import Public, Start

LINES = Path(__file__).with_name("public-start.jsonl")
OPEN_ROWS = 2000
DIGEST = "0" * 64
RECORDS = (300, 1000, 5000)
EPSILONS = ("0.1", "0.5", "1")
WORDS = ("auto", "alone", "begun", "permuted", "turned")


@dataclass(frozen=True)
class Task:
    """A file, its target, and the column and values that part the public population from all."""

    file: str
    target: str
    column: str
    values: Callable[[Any], Any]
    is_number: bool = False


TASKS = {
    "adult": Task("adult", "income", "sex", lambda sex: sex == "Female"),
    "bank": Task("bank", "target", "marital", lambda status: status == "married"),
    "telco": Task("telco", "target", "internet_service", lambda service: service == "Fiber optic"),
    "credit card": Task("creditcardsmall", "target", "sex", lambda sex: sex == 2),
    "codrna": Task("codrna", "target", "length", lambda length: length > 90),
    "diamonds, cut": Task("diamonds", "cut", "target", lambda price: price > 2400),
    "wine, grade": Task("wine", "target", "is_red", lambda red: red == 0),
    "california": Task("california", "target", "latitude", lambda latitude: latitude > 36, True),
    "diamonds, price": Task("diamonds", "target", "color", lambda color: color < "G", True),
    "abalone": Task("abalone", "target", "sex", lambda sex: sex != "M", True),
}


class BegunClassifier(DPEBMClassifier):
    """The learner with a start at hand, as the platform gives it one."""

    given: Start

    def public_facts(self, schema: Schema | None = None) -> Public:
        """Return what may be known, the start with it."""
        return replace(super().public_facts(schema), start=self.given)


class BegunRegressor(DPEBMRegressor):
    """The same of a number."""

    given: Start

    def public_facts(self, schema: Schema | None = None) -> Public:
        """Return what may be known, the start with it."""
        return replace(super().public_facts(schema), start=self.given)


@lru_cache(maxsize=1)
def load(name: str, folder: str | None) -> tuple[pa.Table, bytes]:
    """Return rows and a schema that says of each column what the whole file has, which is public."""
    task = TASKS[name]
    if task.file == "adult":
        loaded = datasets.load("adult")
        return loaded.table, loaded.schema_bytes
    table = pq.read_table(Path(str(datasets.folder_of(folder))) / f"{task.file}.parquet")
    answers = np.asarray(table[task.target])
    if task.file == "wine":
        answers = np.digitize(answers, (6, 7))  # poor, middling, good
    if task.is_number:
        target: dict[str, Any] = {"name": task.target, "range": [float(answers.min()), float(answers.max())]}
    else:
        answers = answers.astype(str)
        target = {"name": task.target, "classes": np.unique(answers).tolist()}
    table = table.set_column(table.column_names.index(task.target), task.target, pa.array(answers))
    features = {column: rule_of(table[column]) for column in table.column_names if column != task.target}
    body = {"target": target, "records": len(table), "missing": "own-bin", "features": features}
    return table, "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items()).encode()


def figures(model: Any, rows: pa.Table, answers: Any, is_number: bool) -> tuple[float, float]:
    """Return how good a model's predictions are, and its log loss; of a number its root mean squared error."""
    if is_number:
        error = float(np.sqrt(np.mean((model.predict(rows) - answers) ** 2)))
        return round(1 - error / float(np.std(answers)), 4), round(error, 4)
    chances, classes = model.predict_proba(rows), list(model.classes_)
    seen = chances[:, 1] if len(classes) == 2 else chances / chances.sum(axis=1, keepdims=True)
    auroc = roc_auc_score(answers, seen, multi_class="ovr")
    return round(float(auroc), 4), round(float(log_loss(answers, chances, labels=classes)), 4)


def lines_of(name: str, private: int, seed: int, epsilons: tuple[str, ...], folder: str | None) -> Iterator[Any]:
    """Yield a line for each epsilon of one split."""
    task, (table, raw) = TASKS[name], load(name, folder)
    order = np.random.default_rng(seed).permutation(table.num_rows)
    test, rest = order[: table.num_rows // 5], order[table.num_rows // 5 :]
    shifted = np.asarray(task.values(np.asarray(table[task.column])), bool)
    others = rest[shifted[rest]][-OPEN_ROWS:]
    mine = np.setdiff1d(rest, others, assume_unique=True)
    mine = np.random.default_rng(seed).permutation(mine)[:private]
    schema, open_rows = parse_schema(datasets.with_records(raw, len(mine))), table.take(others)
    mixed = open_rows.set_column(
        open_rows.column_names.index(task.target),
        task.target,
        open_rows[task.target].take(np.random.default_rng(seed).permutation(len(open_rows))),
    )
    features, answers = table.drop([task.target]), np.asarray(table[task.target])
    begun = BegunRegressor if task.is_number else BegunClassifier
    plain: Any = LEARNERS["auto"] if not task.is_number else DPEBMRegressor
    openly = learn_openly(schema, open_rows)
    public = (DPEBMRegressor if task.is_number else DPEBMClassifier)(schema=schema, epsilon="1").public_facts()
    good = score_of(openly, public, DIGEST)
    starts = {"begun": good, "permuted": score_of(learn_openly(schema, mixed), public, DIGEST), "turned": turned(good)}
    held, held_answers = features.take(test), answers[test]
    if not task.is_number:
        held_answers = held_answers.astype(str)

    def fitted(model: DPEBM | Any) -> tuple[float, float]:
        given = answers[mine] if task.is_number else answers[mine].astype(str)
        return figures(model.fit(features.take(mine), given), held, held_answers, task.is_number)

    for epsilon in epsilons:
        line: dict[str, Any] = {"data": name, "records": len(mine), "open": len(others), "seed": seed}
        line |= {"epsilon": epsilon, "auto": fitted(plain(schema=schema, epsilon=epsilon))}
        for word, start in starts.items():
            model = begun(schema=schema, epsilon=epsilon, start=DIGEST)
            model.given = start
            line[word] = fitted(model)
        model.ensemble_ = openly
        yield line | {"alone": figures(model, held, held_answers, task.is_number)}


def turned(start: Start) -> Start:
    """Return a start that says the opposite about its constant, or of three classes or more each of the next."""

    def turn(numbers: tuple[float, ...]) -> tuple[float, ...]:
        return (-numbers[0],) if len(numbers) == 1 else (*numbers[1:], numbers[0])

    return replace(start, terms=tuple(tuple(map(turn, term)) for term in start.terms))


def table_of(lines: list[dict[str, Any]]) -> str:
    """Return the page's table: means over splits, of each epsilon in turn."""
    rows = [f"| | records | {' | '.join(WORDS)} |", "|---" * (2 + len(WORDS)) + "|"]
    cells: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cells[line["data"], line["records"]][line["epsilon"]].append(line)
    for (name, records), own in cells.items():
        texts = [" ".join(f"{np.mean([each[word][0] for each in of]):.2f}" for of in own.values()) for word in WORDS]
        texts[WORDS.index("alone")] = texts[WORDS.index("alone")].split()[0]  # whatever epsilon is
        rows.append(f"| {name} | {records:,} | {' | '.join(texts)} |")
    return "\n".join([*rows, "", *summary([of for own in cells.values() for of in own.values()])])


def summary(cells: list[list[dict[str, Any]]]) -> list[str]:
    """Return how cells' means differ, over all of them; `auto` is taken to be no worse than a guess."""
    means = [{word: float(np.mean([each[word][0] for each in own])) for word in WORDS} for own in cells]
    for cell, own in zip(means, cells, strict=True):
        cell["auto"] = max(cell["auto"], 0.0 if TASKS[own[0]["data"]].is_number else 0.5)
    lines = []
    for word, others in (("begun", ("auto", "alone")), ("permuted", ("auto",)), ("turned", ("auto",))):
        for other in others:
            by = np.array([each[word] - each[other] for each in means])
            behind = f"{(by < -0.01).sum()} of {by.size} cells behind by more than .01, the worst by {-by.min():.3f}"
            lines.append(f"{word} less {other}: {by.mean():+.3f} in the mean, {behind}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--sets", nargs="+", default=list(TASKS))
    parser.add_argument("--records", nargs="+", type=int, default=list(RECORDS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=LINES)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        with asked.out.open("a") as file:
            for seed in range(asked.seeds):
                for name in asked.sets:
                    for records in asked.records:
                        for line in lines_of(name, records, seed, EPSILONS, asked.data):
                            file.write(json.dumps(line) + "\n")
                            file.flush()
    print(table_of(read_lines(asked.out)))


if __name__ == "__main__":
    main()
