"""Do the intervals of differences between two models hold? The last part of studies/statements/evaluation.md.

    python -m studies.statements.evaluation_pairs [--runs 1000]

Laws of pairs: which of two models is right, and errors of two models in widths of the range. Each run draws records,
counts them in the cells, adds discrete Laplace noise and takes the intervals; the truth is that of the law.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.worth.intervals import Noise
from models.worth.layout import Layout
from models.worth.paired import MOST, OTHERS, PARTS, SIZES, STEPS, PairedLayout, paired_metrics, share_between_steps

EPSILONS = (0.1, 0.25, 0.5)
CLASSES = PairedLayout(Layout(("no", "yes"), 1.0), Layout(("no", "yes"), 1.0))
NUMBERS = PairedLayout(Layout((), 1.0, (0.0, 1.0)), Layout((), 1.0, (0.0, 1.0)))
Draw = Callable[[np.random.Generator], NDArray[np.int64]]


@dataclass(frozen=True)
class Pair:
    """`draw`: the counts of a sample; `truth`: by figure."""

    name: str
    layout: PairedLayout
    truth: dict[str, float]
    draw: Draw


def classes(name: str, records: int, none: float, other: float, one: float) -> Pair:
    """Shares of records of which no model is right, the other alone, the first alone; of the rest both are."""
    law = [none, other, one, 1 - none - other - one]
    return Pair(name, CLASSES, {"accuracy_difference": one - other}, lambda random: random.multinomial(records, law))


def numbers(name: str, records: int, errors: NDArray[np.float64]) -> Pair:
    """`errors` (2, n) of two models on a population."""
    own, other = np.minimum((errors / MOST) ** 2, 1.0)
    truth = {
        "mse_difference": float(own.mean() - other.mean()) * MOST**2,
        "rmse_difference": float(own.mean() ** 0.5 - other.mean() ** 0.5) * MOST,
    }

    def draw(random: np.random.Generator) -> NDArray[np.int64]:
        at = random.integers(0, errors.shape[1], records)
        return np.concatenate(
            [share_between_steps(own[at] - other[at], STEPS, PARTS), share_between_steps(other[at], SIZES, OTHERS)]
        )

    return Pair(name, NUMBERS, truth, draw)


def pairs() -> Iterator[Pair]:
    """Eleven of them."""
    yield classes("16,281 records, .01 apart", 16_281, 0.12, 0.03, 0.04)
    yield classes("as good, otherwise wrong", 5_000, 0.2, 0.05, 0.05)
    yield classes("nearly the same answers", 5_000, 0.2, 0.001, 0.002)
    yield classes("the same answers", 3_000, 0.2, 0.0, 0.0)
    yield classes("200 records", 200, 0.2, 0.1, 0.15)
    yield classes("200 records, far apart", 200, 0.02, 0.02, 0.9)
    random, size = np.random.default_rng(0), (2, 200_000)
    common = random.normal(size=size[1]) * 0.05
    yield numbers("alike but for noise", 2_000, common + random.normal(size=size) * [[0.02], [0.04]])
    yield numbers("heavy tails, as good", 20_000, random.standard_t(2.5, size) * 0.03)
    yield numbers("small errors", 20_000, random.normal(size=size) * [[0.01], [0.012]])
    yield numbers("the same, moved by .01", 20_000, np.stack([common, common + 0.01]))
    yield numbers("200 records, numbers", 200, random.normal(size=size) * [[0.1], [0.2]])


def lines(pair: Pair, epsilon: float, count: int, seed: int) -> Iterator[str]:
    """One row for each figure: how often its interval holds, half its width, its bias."""
    random, layout = np.random.default_rng(seed), pair.layout
    share = -np.expm1(-epsilon / layout.counted)
    noise = Noise(2 * (1 - share) / share**2)
    found: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in pair.truth}
    for _ in range(count):
        added = random.geometric(share, layout.size) - random.geometric(share, layout.size)
        for each in paired_metrics(layout, (pair.draw(random) + added).tolist(), noise):
            if each.name in found:
                true, one = pair.truth[each.name], each.found
                value = true if one.value is None else one.value
                found[each.name].append((one.low <= true <= one.high, (one.high - one.low) / 2, value - true))
    for name, true in pair.truth.items():
        held, half, bias = np.mean(found[name], axis=0)
        yield f"| {pair.name} | {name} | {epsilon:g} | {true:.5f} | {100 * held:.1f} | {half:.5f} | {bias:+.5f} |"


def section(count: int) -> str:
    """The part of the page."""
    rows = []
    for number, pair in enumerate(pairs()):
        for epsilon in EPSILONS:
            rows += lines(pair, epsilon, count, 100 * number + round(100 * epsilon))
            print(rows[-1], flush=True)
    head = "| law | figure | epsilon | truth | holds, % | half of its width | bias |\n|---|---|---|---|---|---|---|"
    return PART.format(runs=count, table="\n".join([head, *rows]))


PART = """\
## Two models on the same records

Made by `studies/statements/evaluation_pairs.py`, {runs} comparisons of each law at each epsilon. Errors are in widths
of the range. The interval of an RMSE's difference rests on two others, each of which may miss half as often: it holds
more often than it promises.

{table}
"""


def main(arguments: list[str] | None = None) -> None:
    """Print the part."""
    parser = argparse.ArgumentParser(prog="python -m studies.statements.evaluation_pairs")
    parser.add_argument("--runs", type=int, default=1000)
    print(section(parser.parse_args(arguments).runs))


if __name__ == "__main__":
    main()
