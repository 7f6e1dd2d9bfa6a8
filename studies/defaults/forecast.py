"""What public facts tell of a model before it is trained: the constants of training/learners/expected.py, and how often
they are right about datasets that no constant was fitted on. studies/defaults/forecast.md.

    python -m studies.defaults.forecast [--out FOLDER]    # reads the study's lines; fits no model
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np

from benchmarks import headline
from benchmarks.lines import read_lines
from training.learners.expected import (
    FROM,
    GUESS,
    LEAST_MEASURED,
    RATIOS,
    REACHED,
    WEAKER,
    Measured,
    log_odds,
    narrow,
    power,
)

HERE = Path(__file__).parent
CLASSES = {"abalone": 3, "wine": 3}  # of the studied sets; the others have two
LEARNERS = ("lazybb", "lazybb-tree", "ebm")
HALVES = (0.02, 0.04, 0.08)  # of an earlier evaluation's interval
BORDER = 300.0  # strength below which it is a question at all


@dataclass(frozen=True)
class Cell:
    """A learner by its defaults on a dataset at an epsilon: the mean AUROC over splits."""

    data: str
    learner: str
    power: float
    auroc: float


def cells() -> list[Cell]:
    """Of studies/accuracy/utility.jsonl.gz and auto.jsonl.gz; where both have one, of the latter."""
    found: dict[tuple[str, str, float], tuple[float, dict[int, float]]] = {}
    for file, name, learner, records in (
        (headline.RESULTS, "dataset", "method", "rows"),
        (HERE / "auto.jsonl.gz", "data", "learner", "records"),
    ):
        fresh: dict[tuple[str, str, float], tuple[float, dict[int, float]]] = defaultdict(lambda: (0.0, {}))
        for line in read_lines(file):
            if line.get(learner) in LEARNERS:
                key = line[name], line[learner], float(line["epsilon"])
                fresh[key] = power(line[records], key[2], CLASSES.get(key[0], 2)), fresh[key][1]
                fresh[key][1][line["seed"]] = line["auroc"]
        found |= fresh
    return [
        Cell(key[0], key[1], strength, float(np.mean(list(splits.values()))))
        for key, (strength, splits) in sorted(found.items())
    ]


def least(known: list[Cell]) -> float:
    """The strength that tells best which cells are better than guessing, both kinds counted alike; two digits."""
    powers = sorted({cell.power for cell in known})
    cuts = [(low * high) ** 0.5 for low, high in pairwise(powers) if high <= 10 * BORDER]
    truth = np.array([cell.auroc >= GUESS for cell in known])

    def wrong(cut: float) -> float:
        told = np.array([cell.power >= cut for cell in known])
        return float((told & ~truth).sum() / max((~truth).sum(), 1) + (~told & truth).sum() / max(truth.sum(), 1))

    return float(f"{min(cuts, key=wrong):.2g}") if cuts else 0.0


def reached(known: list[Cell]) -> list[tuple[float, float, float]]:
    """By band of strength: three quantiles of what was reached there; of a band without cells, that of the next one."""
    bands: list[tuple[float, float, float]] = []
    for low, high in zip(reversed(FROM), (np.inf, *reversed(FROM[1:])), strict=True):
        inside = [cell.auroc for cell in known if low <= cell.power < high]
        one, two, three = np.quantile(inside, (0.05, 0.5, 0.95)) if inside else bands[-1]
        bands.append((round(float(one), 3), round(float(two), 3), round(float(three), 3)))
    return bands[::-1]


def band(power: float) -> int:
    """Which one."""
    return int(np.searchsorted(FROM, power, side="right")) - 1


def shifts(known: list[Cell]) -> tuple[tuple[tuple[float, float], ...], ...]:
    """By the ratio of two strengths and the weaker of them: by how much the log odds of the AUROC of one model of a
    dataset are above those of another, all but a twentieth on either side; learners need not be the same.
    """
    moved: dict[tuple[int, int], list[float]] = defaultdict(list)
    for first, second in permutations(known, 2):
        if first.data == second.data and first.power >= LEAST_MEASURED:
            place = (
                bisect_right(RATIOS, second.power / first.power),
                bisect_right(WEAKER, min(first.power, second.power)),
            )
            moved[place].append(log_odds(second.auroc) - log_odds(first.auroc))
    return tuple(
        tuple(_ends(moved[ratio, weaker]) for weaker in range(len(WEAKER) + 1)) for ratio in range(len(RATIOS) + 1)
    )


def _ends(found: list[float]) -> tuple[float, float]:
    low, high = np.quantile(found, (0.05, 0.95))
    return round(float(low), 3), round(float(high), 3)


def narrowed() -> str:
    """How often the AUROC of a dataset that was left out lies inside what is told by an earlier model of it, and how
    wide that is, by the interval that the earlier model's evaluation had: its middle is off by chance as it would be.
    """
    every, law, rows = cells(), np.random.default_rng(7), []
    told: dict[float, list[tuple[float, float, bool, bool]]] = defaultdict(list)
    for data in sorted({cell.data for cell in every}):
        others, own = ([cell for cell in every if (cell.data == data) is mine] for mine in (False, True))
        far = shifts(others)
        for learner in LEARNERS:
            bands = reached([cell for cell in others if cell.learner == learner])
            for first, second in permutations(own, 2):
                if second.learner != learner or first.power < LEAST_MEASURED:
                    continue
                before = bands[band(second.power)]
                for half in HALVES:
                    middle = first.auroc + half / 1.96 * law.normal()
                    measured = Measured(first.power, max(middle - half, 0.0), min(middle + half, 1.0))
                    after = narrow(before, second.power, measured, far)
                    after = min(before, after, key=lambda ends: ends[2] - ends[0])
                    insides = [ends[0] <= second.auroc <= ends[2] for ends in (before, after)]
                    told[half].append((before[2] - before[0], after[2] - after[0], insides[0], insides[1]))
    for half, found in told.items():
        wide, narrow_, inside, inside_after = np.mean(found, axis=0)
        rows.append(
            f"| {half} | {wide:.3f} | {narrow_:.3f} | {100 * inside:.1f} | {100 * inside_after:.1f} | {len(found)} |"
        )
    return "\n".join(rows)


def rare() -> str:
    """Of rare.jsonl.gz: how often the AUROC lies inside, by all rows and by twice the rarer class's."""
    found: dict[tuple[str, str, float, float, int], list[float]] = defaultdict(list)
    for line in read_lines(HERE / "rare.jsonl.gz"):
        if line["learner"] in LEARNERS and not line["balance"]:
            cell = line["data"], line["learner"], float(line["epsilon"]), line["share"], line["records"]
            found[cell].append(line["auroc"])
    inside: dict[str, list[bool]] = defaultdict(list)
    for (_, learner, epsilon, share, records), several in found.items():
        for name, told in (("all rows", 1.0), ("twice the rarer class's", 2 * share)):
            low, _, high = REACHED[learner][band(records * epsilon * told)]
            inside[name].append(low <= float(np.mean(several)) <= high)
    return "\n".join(f"| {name} | {100 * np.mean(each):.1f} | {len(each)} |" for name, each in inside.items())


def report() -> str:
    """The page, with the constants."""
    every, rows, judged = cells(), [], defaultdict(list)
    for learner in LEARNERS:
        known = [cell for cell in every if cell.learner == learner]
        for data in sorted({cell.data for cell in known}):
            others = [cell for cell in known if cell.data != data]
            cut, bands = least(others), reached(others)
            for cell in (cell for cell in known if cell.data == data):
                low, _, high = bands[band(cell.power)]
                judged[learner].append((cell, (cell.power >= cut) == (cell.auroc >= GUESS), low <= cell.auroc <= high))
    for learner, found in [*judged.items(), ("all", [each for one in judged.values() for each in one])]:
        groups = (
            found,
            [each for each in found if each[0].power < BORDER],
            [each for each in found if each[0].auroc < GUESS],
        )
        right = [f"{100 * np.mean([each[1] for each in group]):.1f} ({len(group)})" for group in groups]
        inside = 100 * np.mean([each[2] for each in found])
        rows.append(f"| {learner} | {' | '.join(right)} | {inside:.1f} |")
    fitted = {learner: [cell for cell in every if cell.learner == learner] for learner in LEARNERS}
    shipped = "\n".join(f'    "{learner}": {least(known)!r},' for learner, known in fitted.items())
    each = {learner: "".join(f"        {one!r},\n" for one in reached(known)) for learner, known in fitted.items()}
    bands = "\n".join(f'    "{learner}": (\n{text}    ),' for learner, text in each.items())
    wrong = [each for one in judged.values() for each in one if not each[1]]
    missed = "\n".join(f"| {cell.data} | {cell.learner} | {cell.power:,.0f} | {cell.auroc:.3f} |" for cell, *_ in wrong)
    return PAGE.format(
        rare=rare(), rows="\n".join(rows), least=shipped, bands=bands, missed=missed, border=BORDER, guess=GUESS,
        shifts="".join(f"    {each!r},\n" for each in shifts(every)), narrowed=narrowed(),
    )  # fmt: skip


PAGE = """\
# Before money is spent: what public facts tell

Made by `studies/defaults/forecast.py` from the lines of [accuracy](../accuracy/utility.md) and [auto](auto.md): no
model is fitted. A cell is a learner by its defaults on a dataset at an epsilon. It is better than guessing where the
mean AUROC over its splits is at least {guess}. What is known beforehand is its strength: records times epsilon, halved
under replace-one, divided by the rows of a unit and by the classes where these are more than two.

## Right about datasets that were left out

For each dataset the rule is found from all others. In percent, and of how many cells; below a strength of {border:g} it
is a question at all; then those cells where the answer is no. Inside: how often the AUROC lies where all but a tenth of
the other datasets' do, a twentieth on either side: what `plan` calls about eight of ten.

| learner | right | right, below {border:g} | right, where no better | inside |
|---|---|---|---|---|
{rows}

Wrong about:

| dataset | learner | strength | AUROC |
|---|---|---|---|
{missed}

## The constants

Of `training/learners/expected.py`, from all datasets:

```python
LEAST = {{
{least}
}}
REACHED = {{
{bands}
}}
SHIFTS = (
{shifts})
```

## Where a model of the same dataset was evaluated before

That is released, and costs nothing more. What is told then follows from the interval of the earlier model's AUROC,
whatever the two epsilons, learners and sizes are: blocks that came since among them. Of datasets that were left out, in
percent and over all pairs of cells, with an evaluation that is off by chance:

| half of its interval | width before | width after | inside before | inside after | pairs |
|---|---|---|---|---|---|
{narrowed}

## Rare classes

Where a schema declares how rare one of two classes is, only twice its rows count. On [datasets made rare](rare.md),
none of which the constants saw, the AUROC lies inside, in percent, where the strength is of

| rows | inside | cells |
|---|---|---|
{rare}

## What it does not know

How hard the data are, and how rare a class is where nobody says so: private facts. Of numbers, and of learners that are
not named here, `plan` expects nothing.
"""


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m studies.defaults.forecast")
    parser.add_argument("--out", type=Path, default=HERE)
    (parser.parse_args(arguments).out / "forecast.md").write_text(report(), "utf-8")


if __name__ == "__main__":
    main()
