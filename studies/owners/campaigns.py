"""What campaigns were forecast to be worth before anybody answered, beside what real rows then gave.

    python -m studies.owners.campaigns --data DIR --out FILE [--half 0]     # a line of JSON for each campaign: minutes
    python -m studies.owners.campaigns --out FILE --judge                   # writes the page beside the lines

Sixty campaigns: six learners, five campaigns each on sets that the constants of made-up rows were chosen by (half 0),
and five each on other sets (half 1). How many owners there are and epsilon are drawn by a fixed seed, from a few dozen
owners to all rows of the set. Owners have one row each, 20 with `local-lr`; of `ebm` the unit is a record, and "owners"
are records. Real rows are played as the other studies play them, on 20 splits; the forecast is of the definition alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.ledger.families.records import Unit
from accountant.noise.mechanisms import DiscreteGaussian
from benchmarks import datasets
from benchmarks.lines import read_lines
from dpserve_verify.privacy.budget import Budget, Relation
from local.campaign.defining import ROUNDS
from local.forecast.made_up import auroc_of, worth_of_errors
from local.forecast.simulating import forecast_of
from local.reports.corners import corners
from local.reports.definition import Definition
from local.reports.forecast import BAR
from local.reports.groups import Groups
from local.reports.learning import CANDIDATES, coordinates_for, favoured_for, learn_from_reports
from local.reports.question import Question
from local.reports.shared import SharedDefinition, multiplier_for
from local.reports.shared_learning import groups_for, learn_shared
from local.reports.statistics import own_vectors
from local.rounds import playing
from local.rounds.definition import PATIENCE, RoundsDefinition
from local.turns.definition import BoostedDefinition
from models.features.features import encode_columns
from studies.owners.institutions import TwoNoises
from studies.owners.local import simulate as reports_of
from studies.owners.local_turns import WHOM, defined
from studies.owners.local_turns import simulate as play_turns
from training.jobs.draw_journal import code
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import columns_of, rows_of

LEARNERS = ("local-linear", "local-lr", "local-ncc", "local-stump", "shared-additive", "ebm")
CLASSES = (
    ("adult", "telco", "wine", "eeg", "abalone"),
    ("bank", "mushroom", "codrna", "creditcardsmall", "page_blocks"),
)
NUMBERS = (("california", "pol"), ("elevators", "wine_quality"))
EPSILONS, DELTA, PUBLIC, RUNS, OF_LR, FEWEST = ("0.25", "0.5", "1", "2", "5"), "0.000001", 500, 20, 20, 30


@dataclass(frozen=True)
class Cell:
    """One campaign. `public`: whether there are public rows."""

    half: int
    learner: str
    data: str
    owners: int
    epsilon: str
    public: bool


@dataclass(frozen=True, eq=False)
class Table:
    """A set. `answers` (n, wide): corners, or places in [-1, 1]; `labels` (n,)."""

    schema: Schema
    data: datasets.Dataset
    codes: list[NDArray[Any]]
    answers: NDArray[np.float64]
    labels: NDArray[np.int64]


def table_of(name: str, folder: str | None) -> Table:
    """Read a set."""
    data = datasets.load(name, folder)
    schema, values = parse_schema(data.schema_bytes), data.table[data.target].to_pylist()
    codes = [np.asarray(each) for each in encode_columns(schema.features, columns_of(schema, data.table))]
    if schema.target_range is not None:
        low, high = schema.target_range
        places = np.clip((np.array(values, np.float64) - low) / (high - low) * 2 - 1, -1, 1)[:, np.newaxis]
        return Table(schema, data, codes, places, np.zeros(len(places), np.int64))
    words = [str(label) for label in schema.classes or ()]
    labels = np.array([words.index(str(value)) for value in values])
    return Table(schema, data, codes, corners(len(words))[labels], labels)


def cells(half: int, sizes: dict[str, int]) -> Iterator[Cell]:
    """Yield the campaigns of a half."""
    for kind, learner in enumerate(LEARNERS):
        rng = np.random.default_rng([half, kind])
        several = (*CLASSES[half][:3], *NUMBERS[half]) if kind > 3 else CLASSES[half]
        for at, name in enumerate(several):
            most = (sizes[name] * 4 // 5 - PUBLIC) // (OF_LR if learner == "local-lr" else 1)
            owners = round(np.exp(rng.uniform(np.log(FEWEST), np.log(most))))
            epsilon = EPSILONS[rng.integers(len(EPSILONS))]
            yield Cell(half, learner, name, owners, epsilon, learner in LEARNERS[:2] or at % 2 == 0)


def definition_of(cell: Cell, table: Table, public: list[NDArray[Any]]) -> Question:
    """Define a campaign, but for names and digests."""
    schema, n, epsilon = table.schema, cell.owners, float(cell.epsilon)
    classes, budget = tuple(map(str, schema.classes or ())), Budget.of(cell.epsilon, DELTA)
    head = ("simulated", "owners", "model", cell.learner, budget.epsilon, n, n, schema.target, classes, schema.features)
    if cell.learner == "ebm":
        text = datasets.with_records(table.data.schema_bytes, n)
        found = playing.rehearse(parse_schema(text), "ebm", {}, budget, 1)
        return RoundsDefinition(
            "simulated", "owners", "model", "ebm", budget.epsilon, 3, 2, schema.target, classes, schema.features,
            budget.delta, text.decode(), Unit("record"), "",
            found.settings, found.recipe.plan, found.recipe.unit, found.numbers, PATIENCE, code(), WHOM,
        )  # fmt: skip
    if cell.learner == "shared-additive":
        groups = groups_for(n, epsilon)
        multiplier = multiplier_for(Groups(schema.features, groups, max(1, len(classes) - 1)), budget)
        return SharedDefinition(*head, budget.delta, groups, multiplier, schema.target_range, WHOM)
    if cell.learner in ("local-ncc", "local-stump"):
        rounds, shown = max(1, min(ROUNDS[cell.learner], n // 8)), public if cell.public else None
        turns = defined(cell.learner, schema.features, shown, epsilon, n, rounds, classes)
        return replace(turns, public_rows="0" * 64 if cell.public else "", seed="1" * 64)
    coordinates = coordinates_for(schema.features, public, n, epsilon)
    favoured = favoured_for(coordinates, epsilon, len(classes))
    return Definition(*head, coordinates, "0" * 64, "1" * 64, CANDIDATES, favoured)


def play(asked: Question, table: Table, held: NDArray[np.int64]) -> Any:
    """Play a campaign on real rows; None where there is no model."""
    codes, answers = [code[held] for code in table.codes], table.answers[held]
    match asked:
        case Definition():
            each = OF_LR if asked.learner == "local-lr" else 1
            own = own_vectors(asked.learner, asked.coordinates.of(codes), answers, np.full(asked.owners, each))
            return learn_from_reports(asked, np.arange(asked.owners), reports_of(asked, own))
        case BoostedDefinition():
            try:
                return play_turns(asked, codes, answers, 1)
            except Exception:  # no voter was left
                return None
        case SharedDefinition():
            layout = asked.layout
            total = sum(layout.statistic([c[[at]] for c in codes], answers[[at]]) for at in range(len(answers)))
            for _ in WHOM:
                total = DiscreteGaussian(asked.noise_multiplier).draw(np.asarray(total), layout.sensitivity)
            return learn_shared(asked, np.asarray(total), asked.owners)
        case RoundsDefinition():
            schema, raw = playing.schema_in(asked), table.data.table.take(held)
            rows = rows_of(schema, raw, raw[table.data.target], Relation.ADD_REMOVE)
            public = playing.public_of(schema, Budget(asked.epsilon, asked.delta), 1)
            return playing.learner_in(asked).learn(TwoNoises(public, asked.standard, asked.plan, rows))
    raise ValueError(asked.learner)


def worth_of(model: Any, table: Table, test: NDArray[np.int64]) -> float:
    """Judge a model on rows held out, by the figure that a forecast has."""
    codes = [code[test] for code in table.codes]
    if model is not None and model.features != table.schema.features:  # by cut points of its own
        raw = columns_of(table.schema, table.data.table.take(test))
        codes = [np.asarray(code) for code in encode_columns(model.features, raw)]
    if table.schema.target_range is None:
        classes = len(table.schema.classes or ())
        return 0.5 if model is None else auroc_of(model.coded_scores(codes), table.labels[test], classes)
    low, high = table.schema.target_range
    told = (model.values_of(model.coded_scores(codes)) - low) / (high - low) * 2 - 1
    truth = table.answers[test, 0]
    return worth_of_errors(told - truth, truth)


def line_of(cell: Cell, table: Table) -> dict[str, Any]:
    """Forecast one campaign, and play it on real rows."""
    found, forecast = [], None
    for run in range(RUNS):
        order = np.random.default_rng(run).permutation(len(table.labels))
        cut = len(order) // 5
        test, public, owned = order[:cut], order[cut : cut + PUBLIC], order[cut + PUBLIC :]
        asked = definition_of(cell, table, [code[public] for code in table.codes])
        forecast = forecast or forecast_of(asked)
        held = owned[: cell.owners * (OF_LR if cell.learner == "local-lr" else 1)]
        model = play(asked, table, held)
        found.append(worth_of(model, table, test))
    assert forecast is not None
    figures = {"mean": round(float(np.mean(found)), 3), "spread": round(float(np.std(found, ddof=1)), 3)}
    return {**vars(cell), **figures, "forecast": [str(forecast.mean), str(forecast.spread)]}


def better(mean: float | str, spread: float | str) -> bool:
    """Tell whether figures are better than guessing, by the bar of campaigns."""
    return Decimal(str(mean)) - Decimal(str(spread)) >= BAR


HEAD = """\
# What campaigns were forecast to be worth, and what came

Made by `studies/owners/campaigns.py` from the lines of `campaigns.jsonl`; forecasts at fd609917,
the real runs at 91149fe8, of `ebm` at 1da093f9
(2026-11-28). Six learners, ten campaigns each: how many owners and epsilon are drawn by a fixed seed, from 30 owners
to all rows of the set. Owners have one row each, 20 with `local-lr`; of `ebm`, of institutions, the unit is a record,
and "owners" are records. The forecast is simulated from the definition on made-up rows; what came is the mean and the
deviation of 20 campaigns on real rows: by AUROC on rows held out (of more than two classes the mean of each against
the others), or, of a number, half of 1 and the root of the share of the variance that is explained. Right: both are
better than guessing, or neither is; that is a mean less its deviation of .55 or more. The constants of made-up rows
were set before any campaign was played, and never changed; how numbers are judged was changed after the first half
was seen, before the sets of the second were.
"""


def report(lines: list[dict[str, Any]]) -> str:
    """Write the page: both figures of each campaign, and how many forecasts were right."""
    parts, every = [HEAD], [line | {"right": _is_right(line)} for line in lines]
    for half in (0, 1):
        some = [line for line in every if line["half"] == half]
        right = sum(line["right"] for line in some)
        parts.append(f"## Sets of half {half}: right {right} of {len(some)}\n\n{_table(some)}\n")
    right = sum(line["right"] for line in every)
    parts.append(f"## In all\n\nRight: {right} of {len(every)}, {right / len(every):.0%}.\n")
    return "\n".join(parts)


def _is_right(line: dict[str, Any]) -> bool:
    return better(*line["forecast"]) == better(line["mean"], line["spread"])


def _table(lines: list[dict[str, Any]]) -> str:
    rows = ["| learner | set | owners | epsilon | forecast | came | right |", "|---|---|---:|---:|---:|---:|---|"]
    for line in lines:
        told, came = (f"{float(a):.2f} ± {float(b):.2f}" for a, b in (line["forecast"], (line["mean"], line["spread"])))
        public = "" if line["public"] or line["learner"] in LEARNERS[4:] else ", no public rows"
        rows.append(
            f"| `{line['learner']}`{public} | {line['data']} | {line['owners']:,} | {line['epsilon']} | {told} "
            f"| {came} | {'yes' if line['right'] else 'no'} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Append a line for each campaign, or judge those that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--judge", action="store_true")
    asked = parser.parse_args()
    if asked.judge:
        asked.out.with_suffix(".md").write_text(report(read_lines(asked.out)), "utf-8")
        return
    for half in (0, 1) if asked.half is None else (asked.half,):
        tables = {name: table_of(name, asked.data) for name in (*CLASSES[half], *NUMBERS[half])}
        for cell in cells(half, {name: len(table.labels) for name, table in tables.items()}):
            with asked.out.open("a") as file:
                file.write(json.dumps(line_of(cell, tables[cell.data])) + "\n")


if __name__ == "__main__":
    main()
