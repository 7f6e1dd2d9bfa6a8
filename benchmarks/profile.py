"""Do the intervals of profiles hold, how long do they take, and where do they pay? docs/results/profile.md.

python -m benchmarks.profile [--runs 1000] [--out docs/results]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.features import CategoricalFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import LEVELS, Noise, table

GRID = 64
Floats = NDArray[np.float64]


def laws() -> dict[str, tuple[float, float, Floats]]:
    """Name -> declared range, values."""
    random = np.random.default_rng(0)
    return {
        "ages, 20,000 rows": (0, 120, np.clip(random.normal(45, 18, 20_000), 0, 120)),
        "incomes, heavy tail": (0, 1e6, random.lognormal(10.5, 0.9, 20_000)),
        "range ten times too wide": (-500, 700, np.clip(random.normal(45, 18, 20_000), 0, 120)),
        "nine in ten are 0": (0, 100, np.where(random.random(20_000) < 0.9, 0, random.gamma(2, 9, 20_000))),
        "500 rows": (0, 120, np.clip(random.normal(45, 18, 500), 0, 120)),
    }


def coverage(runs: int) -> list[tuple[str, str, str, list[float]]]:
    """Per law, noise and its size: how often the intervals of each figure held, in per cent."""
    found, random = [], np.random.default_rng(1)
    for name, (low, high, values) in laws().items():
        number = Column(
            NumericFeature("x", tuple(low + (high - low) * j / 32 for j in range(32))), "feature", (low, high)
        )
        town = Column(CategoricalFeature("y", ("a", "b", "c")), "feature")
        towns = random.choice(5, len(values), p=[0.7, 0.2, 0.05, 0.03, 0.02])
        exact = [
            np.bincount(number.feature.encode(values), minlength=number.bins).astype(float),
            np.bincount(towns, minlength=town.bins).astype(float),
        ]
        clipped = np.clip(values, low, high)
        truth = [float(len(values)), float((towns == 0).mean()), float((towns == 2).mean()), float(clipped.mean())]
        truth += [float(np.quantile(clipped, float(level), method="inverted_cdf")) for level in LEVELS]
        for laplace in (True, False):
            for spread in (5.0, 60.0):
                held = np.zeros(len(truth))
                for _ in range(runs):
                    noisy = [
                        own
                        + (
                            random.laplace(0, spread / 2**0.5, len(own))
                            if laplace
                            else random.normal(0, spread, len(own))
                        )
                        for own in exact
                    ]
                    told = table([number, town], noisy, {}, Noise(spread**2, laplace), None, GRID)
                    x, y = told["columns"]
                    said = [told["records"], y["shares"][0], y["shares"][2], x["mean"], *x["quantiles"]]
                    held += [float(a) <= t <= float(b) for (_, a, b), t in zip(said, truth, strict=True)]
                found.append((name, "laplace" if laplace else "gaussian", f"{spread:g}", (100 * held / runs).tolist()))
    return found


def speed(rows: int = 1_000_000, columns: int = 20) -> list[tuple[str, float]]:
    """Seconds of processor time: counting, drawing, figures and pictures of a table of numbers."""
    from accountant.budget import Budget, Relation
    from models.profile.stated import figures, noise_of
    from training.calibrate import rehearse
    from training.profiles.counts import Profiler, TableCounts
    from training.rows.rows import Rows
    from training.session import Public, Session

    found = Column(NumericFeature("x", tuple(range(32))), "feature", (0.0, 32.0))
    each = [Column(NumericFeature(f"x{at}", tuple(range(32))), "feature", (0.0, 32.0)) for at in range(columns)]
    random = np.random.default_rng(2)
    codes = random.integers(0, found.bins, (columns, rows)).astype(np.uint8)
    held = Rows(codes, np.zeros(rows, np.uint8), [found.bins] * columns)
    budget = Budget.of("0.2", "0.000001")
    public = Public((found.feature,), "y", ("a", "b"), rows, Relation.ADD_REMOVE, budget, False)
    profiler = Profiler(TableCounts((found.bins,) * columns, (), "l2"))
    start = time.process_time()
    recipe = profiler.recipe(public)
    planned = time.process_time()
    assert rehearse(profiler, public, recipe.unit) == recipe.plan
    counts = profiler.learn(Session(public, recipe.unit, recipe.plan, held))
    counted = time.process_time()
    figures(each, (), counts.tolist(), noise_of(recipe.plan, GRID), None, GRID)
    told = time.process_time()
    return [("plan", planned - start), ("count and draw", counted - planned), ("figures", told - counted)]


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    heads = ["records", "share .7", "share .05", "mean", *(f"quantile {level}" for level in LEVELS)]
    lines = [
        f"| {name} | {law} | {spread} | {' | '.join(f'{each:.1f}' for each in held)} |"
        for name, law, spread, held in coverage(asked.runs)
    ]
    table_of = [
        f"| rows | noise | its deviation | {' | '.join(heads)} |",
        "|---|---|---|" + "---:|" * len(heads),
        *lines,
    ]
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in speed())
    text = PAGE.read_text("utf-8")
    for mark, body in (("coverage", "\n".join(table_of)), ("speed", f"Processor time: {times}.")):
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(start)
        text = before + start + body + "\n" + end + rest.partition(end)[2]
    (asked.out / PAGE.name).write_text(text, "utf-8")


PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "profile.md"

if __name__ == "__main__":
    main()
