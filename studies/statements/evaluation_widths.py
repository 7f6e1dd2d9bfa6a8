"""How wide are the intervals of real evaluations, beside what was said before they were paid? evaluation_widths.md.

    python -m studies.statements.evaluation_widths [--homes 4] [--out FOLDER]

Homes with a dataset each, a fifth of it kept aside, and a model of it: loans of a bank, made up, of which one
client may have several, and Adult's shipped rows, alone or three to a person. In each home the model is evaluated
at five epsilons, as `dpserve evaluate` does it, after `dpserve evaluate --plan` said how wide the intervals would
be. The truth is the model's own figure on rows that nobody registered.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn import metrics as known

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from models.parts.answers import probabilities_of
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.worth import evaluate
from training.requests import EvaluationRequest, JobRequest
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

EPSILONS = ("0.1", "0.25", "0.5", "1", "2.5")
FIGURES = "auroc", "brier", "log_loss_of_bins"
DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
LOANS = """\
target: {name: default, classes: ["no", "yes"]}
records: 3200
features:
  income: {type: numeric, range: [0, 10000], bins: 32}
  amount: {type: numeric, range: [0, 30000], bins: 32}
  months: {type: numeric, range: [6, 96], bins: 32}
  rate: {type: numeric, range: [0, 12], bins: 32}
  work: {type: categorical, values: [manager, worker, clerk, craft, retired, student, none]}
ignore: [client]
"""


@dataclass(frozen=True)
class Population:
    """Rows to register, the schema's text, the column that names people with its bound, and rows that stay outside."""

    name: str
    rows: pa.Table
    schema: str
    unit: str
    contributions: int
    fresh: pa.Table


def loans(count: int, people: int, seed: int) -> pa.Table:
    """Loans of clients of whom some have several: one in four is not paid back, and it shows."""
    random = np.random.default_rng(seed)
    incomes, works = np.maximum(600, random.normal(2300, 900, people)), random.integers(0, 7, people)
    client = random.integers(0, people, count)
    amount = random.choice([1000, 2500, 5000, 8000, 12000, 20000], count) * random.uniform(0.8, 1.2, count)
    months, rate = random.choice([12, 24, 36, 48, 60, 84], count), random.normal(4.5, 1.2, count)
    out_of_work = works[client] >= 5
    score = 1.1 * (amount / months / incomes[client] * 10 - 1) + 0.5 * out_of_work + 0.3 * (rate - 4.5)
    late = score - 1.9 + random.normal(0, 0.8, count) > -0.6
    names = np.array(["manager", "worker", "clerk", "craft", "retired", "student", "none"])
    return pa.table(
        {
            "client": [f"C{number:06d}" for number in client], "income": incomes[client], "amount": amount,
            "months": months.astype(float), "rate": rate, "work": names[works[client]],
            "default": np.where(late, "yes", "no"),
        }
    )  # fmt: skip


def populations(seed: int) -> Iterator[Population]:
    """Loans, and two sizes of Adult, each once with one row of a person and once with three."""
    adult, test = (pq.read_table(DATA / f"adult_{part}.parquet") for part in ("train", "test"))
    text, order = (DATA / "adult.schema.yaml").read_text("utf-8"), np.random.default_rng(seed).permutation(len(adult))
    for contributions in (1, 3):
        yield Population(
            "loans", loans(3200, 2400, seed), LOANS, "client", contributions, loans(60_000, 45_000, 1000 + seed)
        )
        for size in (2_000, 15_000):
            rows = adult.take(order[:size])
            people = np.arange(size) // contributions
            rows = rows.append_column("person", pa.array([f"P{number:06d}" for number in people]))
            schema = text.replace("records: 32561", f"records: {size}") + "ignore: [person]\n"
            yield Population(f"Adult, {size:,}", rows, schema, "person", contributions, test)


def measured(population: Population, home: Home, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what was said and what came of each epsilon."""
    (folder / "rows").mkdir()
    pq.write_table(population.rows, folder / "rows" / "rows.parquet")
    (folder / "rows" / "schema.yaml").write_text(population.schema, "utf-8")
    files = folder / "rows" / "rows.parquet", folder / "rows" / "schema.yaml"
    budget, unit = Budget.of("9", "0.00001"), (population.unit, population.contributions)
    register(home, "rows", *files, budget, Relation.ADD_REMOVE, *unit, holdout=Decimal("0.2"))
    job.train(home, JobRequest("rows", epsilon="2"), by="study")
    truth = _truth(population, home)
    for epsilon in EPSILONS:
        asked = EvaluationRequest(model="rows", dataset="rows", epsilon=epsilon)
        planned = evaluate.plan(home, asked)
        said = planned.to_json()["expected"]
        worth = job.measure(home, asked, by="study")["worth"]
        found = {metric["metric"]: metric for metric in worth["metrics"]}
        for figure in said["figures"]:
            ends = [float(found[figure["metric"]][end]) for end in ("low", "high")]
            yield {
                "data": population.name, "contributions": population.contributions, "epsilon": epsilon,
                "bins": worth["histogram"]["columns"], "records": planned.measurement.records, **figure,
                "half": (ends[1] - ends[0]) / 2, "drowned": found[figure["metric"]]["value"] is None,
                "holds": ends[0] <= truth[figure["metric"]] <= ends[1],
            }  # fmt: skip


def _truth(population: Population, home: Home) -> dict[str, float]:
    ensemble = evaluate.open_model(home, "rows").ensemble
    schema = parse_schema(population.schema.encode())
    scores = ensemble.scores(columns_of(schema, population.fresh))
    chance = probabilities_of(scores, ensemble.link, ensemble.bends)[:, 1]
    answers = np.array(population.fresh[schema.target].to_pylist()) == (schema.classes or ())[1]
    return {
        "auroc": float(known.roc_auc_score(answers, scores[:, 0])),
        "brier": float(np.mean((chance - answers) ** 2)),
        "log_loss_of_bins": float(known.log_loss(answers, np.clip(chance, 1 / 800, 1 - 1 / 800))),
    }


def is_as_said(line: dict[str, Any]) -> bool:
    """Return whether the interval is as wide as was said, or drowned where that was said."""
    return bool(0.95 * line["low"] <= line["half"] <= 1.05 * line["high"])


def page(lines: list[dict[str, Any]], homes: int) -> str:
    """Return the page."""
    rows = []
    keys = dict.fromkeys((line["data"], line["contributions"], line["epsilon"]) for line in lines)
    for key in keys:
        cell = [line for line in lines if (line["data"], line["contributions"], line["epsilon"]) == key]
        first = [line for line in cell if line["metric"] == "auroc"]
        said = first[0]
        middle = "no result" if said["half_width"] is None else f"± {said['half_width']:g}"
        halves = ", ".join("none" if line["drowned"] else f"{line['half']:.3f}" for line in first)
        others = [line for line in cell if line["metric"] != "auroc"]
        rows.append(
            f"| {key[0]} | {key[1]} | {said['records']:,} | {key[2]} | {said['bins']} | {middle} | {said['low']:g} to "
            f"{said['high']:g} | {halves} | {sum(map(is_as_said, first))} of {len(first)} | "
            f"{sum(map(is_as_said, others))} of {len(others)} |"
        )
    names = [(name, [line for line in lines if line["metric"] == name]) for name in FIGURES]
    held = [
        f"| {name} | {_share(map(is_as_said, found))} | {_share(line['holds'] for line in found)} |"
        for name, found in names
    ]
    return PAGE.format(homes=homes, rows="\n".join(rows), held="\n".join(held), epsilons=", ".join(EPSILONS))


def _share(of: Any) -> str:
    found = [*of]
    return f"{100 * np.mean(found):.0f} % of {len(found)}"


PAGE = """\
# The width of an evaluation, as it was said and as it came

Made by `studies/statements/evaluation_widths.py`: {homes} homes of each dataset, a fifth of its people kept
aside, one model in each, evaluated at epsilon {epsilons} by the code that `dpserve evaluate` runs, in discrete
Laplace noise of the real source. `aside`: the public guess of rows kept aside, or of people, of whom one row
each is measured; it is all that the forecast knows: of the loans with one row of a client about half as many
are used. `said`: half of the interval of the AUROC, in the middle and for nine of ten made-up models. `came`:
half of it, in each home. `as said`: within those ends, 5 % beyond them admitted; the last column is of the
Brier score and the log loss of bins.

| data | rows of one person | aside | epsilon | bins | said | from, to | came | as said | others |
|---|---:|---:|---:|---:|---|---|---|---|---|
{rows}

| figure | the width was as said | the interval holds the truth |
|---|---|---|
{held}

The truth is that of fresh rows, by the scores themselves and not by their bins.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run all of it and write the page."""
    parser = argparse.ArgumentParser(prog="python -m studies.statements.evaluation_widths")
    parser.add_argument("--homes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args(arguments)
    lines: list[dict[str, Any]] = []
    for seed in range(given.homes):
        for population in populations(seed):
            with tempfile.TemporaryDirectory() as folder:
                home = Home.init({"DPSERVE_HOME": str(Path(folder) / "home")})
                lines += measured(population, home, Path(folder))
                print(population.name, population.contributions, seed, flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "evaluation_widths.md").write_text(page(lines, given.homes), "utf-8")


if __name__ == "__main__":
    main()
