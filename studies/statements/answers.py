"""A day of 100 queries of one analyst: how many are answered for nothing, and how often intervals hold the truth.

`python studies/statements/answers.py` writes answers.md beside it. The queries are drawn from templates by a seed,
before anything is answered: groups by one or two columns, or none, conditions on one or two others, counts and means.
Each is first asked without a price; where nothing answers it, at epsilon .02.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.answers import answers
from training.requests import ProfileRequest, QueryRequest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data"
EPSILON, QUERIES, SEEDS = "0.02", 100, 3
COLUMNS = ["sex", "education", "race", "workclass", "marital_status", "relationship", "income", "occupation"]
VALUES = {
    "sex": ["Male", "Female"], "income": ["<=50K", ">50K"], "race": ["White", "Black"],
    "education": ["HS-grad", "Bachelors", "Masters"], "workclass": ["Private", "State-gov"],
    "marital_status": ["Divorced", "Never-married"], "relationship": ["Wife", "Husband"],
    "occupation": ["Sales", "Tech-support"],
}  # fmt: skip
FIGURES = ["count(*)", "count(*)", "count(*), avg(age)", "count(*), avg(hours_per_week)"]


def queries(seed: int) -> list[str]:
    """Return the day's queries: an analyst comes back to few columns and drills down, so each is drawn from four."""
    draw = random.Random(seed)
    texts = []
    for _ in range(QUERIES):
        columns = draw.sample(COLUMNS[:4] if draw.random() < 0.7 else COLUMNS, 3)
        groups = columns[: draw.choice([0, 1, 1, 2])]
        conditions = [
            f"{name} = '{draw.choice(VALUES[name])}'" for name in columns[len(groups) :][: draw.choice([0, 1, 1, 2])]
        ]
        text = f"select {', '.join([*groups, draw.choice(FIGURES)])} from adult"
        text += f" where {' and '.join(conditions)}" if conditions else ""
        texts.append(text + (f" group by {', '.join(groups)}" if groups else ""))
    return texts


def day(seed: int, profiled: bool) -> dict[str, float]:
    """Return what a day came to."""
    table, within, figures, paid = pq.read_table(DATA / "adult_train.parquet"), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as truth:
        truth.register("adult", table)
        home = Home.init({"DPSERVE_HOME": str(Path(folder, "home"))})
        files = DATA / "adult_train.parquet", DATA / "adult.schema.yaml"
        register(home, "adult", *files, Budget.of("10", "0.00001"), Relation.ADD_REMOVE, "record")
        if profiled:
            pairs = [(a, b) for at, a in enumerate(COLUMNS[:4]) for b in COLUMNS[at + 1 : 4]]
            job.measure(home, ProfileRequest("adult", "0.2", pairs=tuple(pairs)), by="study")
        for text in queries(seed):
            try:
                number = job.measure(home, QueryRequest("adult", text), by="study")["job"]
            except InputError:
                number, paid = job.measure(home, QueryRequest("adult", text, EPSILON), by="study")["job"], paid + 1
            answer = answers.answer_of(home, number, text)[3]
            names, groups = answer["question"]["figures"], len(answer["question"]["by"])
            true = {tuple(row[:groups]): row[groups:] for row in truth.sql(text).fetchall()}
            for row in answer["rows"]:
                exact = true.get(tuple(row["group"]))
                for name, value in zip(names, exact or (), strict=False):
                    if value is None:  # a mean of no rows
                        continue
                    figures += 1
                    within += float(row[name][1]) - 1e-3 <= value <= float(row[name][2]) + 1e-3
        spent = home.ledger.dataset("adult")
        left = float(answers.left(spent, spent.delta).share)
        home.ledger.log.database.close()
    return {"free": QUERIES - paid, "spent": 1 - left, "within": within / figures, "figures": figures}


def main() -> None:
    """Write the page."""
    rows = []
    for profiled in (False, True):
        for seed in range(SEEDS):
            results = day(seed, profiled)
            rows.append(
                f"| {'a profile at .2 first' if profiled else 'nothing before'} | {seed} | {results['free']} | "
                f"{results['spent']:.1%} | {results['within']:.1%} of {results['figures']} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
    page = Path(__file__).with_suffix(".md")
    head = page.read_text().split("| before |")[0]
    table = "| before | seed | of 100 answered for nothing | of the total (10) used | truth within the interval |\n"
    page.write_text(head + table + "|---|---|---|---|---|\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
