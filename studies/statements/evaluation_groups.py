"""Do intervals by group, and those of several classes' scores, hold? Parts of studies/statements/evaluation.md.

    python -m studies.statements.evaluation_groups [--runs 1000]

Groups: normal scores of two classes, in groups of which one is small and one is empty. Scores: of three and six
classes. Each run draws records, counts them in the cells, adds discrete Laplace noise and takes the intervals.
"""

from __future__ import annotations

import argparse

import numpy as np

from models.worth.groups import GroupedLayout, grouped_metrics
from models.worth.intervals import Noise
from models.worth.layout import BINS, Layout
from models.worth.scored import ScoredLayout, scored_metrics

EPSILONS = (0.1, 0.25, 0.5)
NAMES = ("large", "middle", "small", "empty")
SIZES = (8000, 3000, 400, 0)
FIGURES = (
    "accuracy", "selection_rate", "true_positive_rate", "false_positive_rate", "precision", "prevalence", "auroc"
)  # fmt: skip
POPULATION = 200_000


def group_rows(count: int) -> list[str]:
    """Lines of the table by figure and epsilon."""
    layout = GroupedLayout(Layout(("no", "yes"), 0.01), "group", NAMES)
    random, laws = np.random.default_rng(0), []
    for share, shift in ((0.3, 2.0), (0.45, 1.5), (0.2, 1.0), (0.5, 1.0)):
        true = random.random(POPULATION) < share
        scores = np.rint(100 * (random.normal(size=POPULATION) + shift * (true - 0.5) - 0.5)).astype(np.int64)[:, None]
        laws.append(np.bincount(layout.own.cells(scores, true.astype(np.uint8))[0], minlength=2 * BINS) / POPULATION)
    whole = grouped_metrics(layout, (np.stack(laws) * 1e9).ravel().round().astype(int).tolist(), Noise(0.0))
    truth = {(each.name, each.group): each.found.value for each in whole if each.group}
    lines = []
    for epsilon in EPSILONS:
        ratio = float(np.exp(-epsilon))
        noise, shape = Noise(2 * ratio / (1 - ratio) ** 2), (len(NAMES), 2 * BINS)
        held, gaps, half = (np.zeros(len(FIGURES)) for _ in range(3))
        for _ in range(count):
            drawn = np.stack([random.multinomial(n, law) for n, law in zip(SIZES, laws, strict=True)])
            counts = drawn + random.geometric(1 - ratio, shape) - random.geometric(1 - ratio, shape)
            found = grouped_metrics(layout, counts.ravel().tolist(), noise)
            own = {(each.name, each.group): each.found for each in found if each.group}
            of_all = {each.name.removesuffix("_gap"): each for each in found if each.groups}
            for place, name in enumerate(FIGURES):
                held[place] += all(
                    own[name, who].low <= (truth[name, who] or 0.0) <= own[name, who].high for who in NAMES[:3]
                )
                gap = of_all.get(name)
                values = [] if gap is None else [truth[name, who] or 0.0 for who in gap.groups]
                gaps[place] += gap is None or gap.found.low <= max(values) - min(values) <= gap.found.high
                half[place] += 1.0 if gap is None else (gap.found.high - gap.found.low) / 2
        for place, name in enumerate(FIGURES):
            told = 100 * held[place] / count, 100 * gaps[place] / count, half[place] / count
            lines.append(f"| {name} | {epsilon:g} | {told[0]:.1f} | {told[1]:.1f} | {told[2]:.4f} |")
    return lines


def score_rows(count: int) -> list[str]:
    """Lines of the table by number of classes, figure and epsilon."""
    lines = []
    for classes, records in ((3, 10_000), (6, 10_000), (3, 200)):
        random, layout = np.random.default_rng(classes), ScoredLayout(Layout(tuple("abcdef"[:classes]), 0.02))
        shares = 0.6 ** np.arange(classes)
        answers = random.choice(classes, POPULATION, p=shares / shares.sum())
        scores = 60 * random.normal(size=(POPULATION, classes)) + 80 * np.eye(classes)[answers]
        scores = np.rint(scores).astype(np.int64)
        whole = scored_metrics(layout, layout.count(scores, answers).tolist(), Noise(0.0))
        named = {"accuracy": None, "auroc": None, "log_loss": None}
        truth = {each.name: each.found.value or 0.0 for each in whole if each.name in named and each.of is None}
        for epsilon in EPSILONS:
            ratio = float(np.exp(-epsilon / layout.counted))
            noise, held, half = Noise(2 * ratio / (1 - ratio) ** 2), dict.fromkeys(named, 0), dict.fromkeys(named, 0.0)
            for _ in range(count):
                drawn = random.integers(0, POPULATION, records)
                counts = layout.count(scores[drawn], answers[drawn])
                counts += random.geometric(1 - ratio, layout.size) - random.geometric(1 - ratio, layout.size)
                for each in scored_metrics(layout, counts.tolist(), noise):
                    if each.name in named and each.of is None:
                        held[each.name] += each.found.low <= truth[each.name] <= each.found.high
                        half[each.name] += (each.found.high - each.found.low) / 2 / count
            for name in named:
                told = f"{truth[name]:.4f} | {100 * held[name] / count:.1f} | {half[name]:.4f}"
                lines.append(f"| {classes} classes, {records} records | {name} | {epsilon:g} | {told} |")
    return lines


def section(count: int) -> str:
    """Both parts."""
    by_group, of_scores = "\n".join(group_rows(count)), "\n".join(score_rows(max(1, count // 2)))
    return SECTION.format(
        runs=count, fewer=max(1, count // 2), sizes=", ".join(map(str, SIZES)), groups=by_group, scores=of_scores
    )


SECTION = """\
## By group

Made by `studies/statements/evaluation_groups.py`: {runs} evaluations by four groups of {sizes} records. The intervals
of a figure are to hold in all groups at once; a gap's is what they leave it among the groups that are shown to have
records.

| figure | epsilon | holds in all groups, % | gap holds, % | half of the gap's width |
|---|---|---|---|---|
{groups}

## What the scores of several classes say

{fewer} evaluations with `--scores` of each. `auroc` is the mean over the classes, each against the rest; its interval
is the mean of theirs, as wide as if all erred together: it holds more often than it promises.

| law | figure | epsilon | truth | holds, % | half of its width |
|---|---|---|---|---|---|
{scores}
"""


def main(arguments: list[str] | None = None) -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(prog="python -m studies.statements.evaluation_groups")
    parser.add_argument("--runs", type=int, default=1000)
    print(section(parser.parse_args(arguments).runs))


if __name__ == "__main__":
    main()
