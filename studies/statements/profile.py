"""Do the intervals of profiles hold, how long do they take, and where do they pay? studies/statements/profile.md.

python -m studies.statements.profile [--runs 1000] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from accountant.certificates.profile import PROFILE
from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import LEVELS, Noise, table
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.profile.refine import refine
from training.measuring.worth.evaluate import open_model
from training.measuring.worth.public_rows import evaluate_rows
from training.requests import JobRequest, ProfileRequest

GRID = 64
DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
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
    from models.profile.stated import figures, noise_of
    from training.calibration.calibrate import rehearse
    from training.measuring.profile.counts import Profiler, TableCounts
    from training.rows.partitions.rows import Rows
    from training.session.session import Public, Session

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


SHARE = Decimal("0.1")  # of the epsilon, for the profile
LEARNERS = ("lazybb", "lazybb-tree", "ebm")


def pays(epsilon: Decimal, repeats: int, folder: Path) -> list[tuple[str, str, str, float]]:
    """Mean AUROC on test rows: rows, learner, schema; the refined one is paid for from the same epsilon."""
    found, budget, own = [], Budget.of("100", "0.00001"), Relation.ADD_REMOVE
    for name, (train, test, schemas) in tables(folder).items():
        for kind, text in schemas.items():
            (folder / f"{kind}.yaml").write_text(text)
            dataset, home = f"{name}-{kind}", Home.init({"DPSERVE_HOME": str(folder / f"home-{name}-{kind}")})
            register(home, dataset, train, folder / f"{kind}.yaml", budget, own, "record")
            scores: dict[tuple[str, str], list[float]] = {}
            for run in range(repeats):
                for learner in LEARNERS:
                    scores.setdefault((learner, kind), []).append(auroc(home, dataset, learner, epsilon, test))
                if kind == "right":
                    continue
                asked = ProfileRequest(dataset, epsilon * SHARE + Decimal(run).scaleb(-6))  # each a new one
                number = job.measure(home, asked, by="benchmark")["job"]
                refined = refine(text.encode(), PROFILE.open(home, number)[2])
                (folder / "refined.yaml").write_text(refined.text)
                register(
                    home, f"{dataset}-{run}", train, folder / "refined.yaml", None, own, "record", families=[dataset]
                )
                for learner in LEARNERS:
                    rest = epsilon * (1 - SHARE)
                    figure = auroc(home, f"{dataset}-{run}", learner, rest, test)
                    scores.setdefault((learner, f"{kind}, refined"), []).append(figure)
            found += [(name, learner, how, float(np.mean(each))) for (learner, how), each in scores.items()]
    return found


def auroc(home: Home, dataset: str, learner: str, epsilon: Decimal, test: Path) -> float:
    """Of one model, on the rows of `test`."""
    trained = job.train(home, JobRequest(dataset, learner, epsilon), by="benchmark")
    verified = open_model(home, f"{trained['model']}@{trained['version']}")
    return {each["metric"]: float(each["value"]) for each in evaluate_rows(home, verified, "x", test, "us").metrics}[
        "auroc"
    ]


def tables(folder: Path) -> dict[str, tuple[Path, Path, dict[str, str]]]:
    """Name -> training rows, test rows, schemas by kind: with the right ranges, and ten times too wide."""
    body = yaml.safe_load((DATA / "adult.schema.yaml").read_text())
    wide = copy.deepcopy(body)
    for feature in wide["features"].values():
        if "range" in feature:
            low, high = feature["range"]
            feature["range"] = [low - 4.5 * (high - low), high + 4.5 * (high - low)] if low else [0, 10 * high]
    schemas = {"right": yaml.safe_dump(body, sort_keys=False), "wide": yaml.safe_dump(wide, sort_keys=False)}
    found = {"adult": (DATA / "adult_train.parquet", DATA / "adult_test.parquet", schemas)}
    random = np.random.default_rng(5)
    x = random.lognormal(8, 1.5, (30_000, 6))
    chance = 1 / (1 + np.exp(-(np.log(x) - 8) @ np.array([0.8, -0.6, 0.5, 0.4, 0.0, 0.0])))
    columns = {f"x{at}": column for at, column in enumerate(x.T)}
    rows = pa.table({**columns, "y": np.where(random.random(len(x)) < chance, "yes", "no").tolist()})
    pq.write_table(rows.slice(0, 20_000), folder / "heavy.parquet")
    pq.write_table(rows.slice(20_000), folder / "heavy-test.parquet")
    features = {name: {"type": "numeric", "range": [0, 1_000_000]} for name in columns}
    heavy = {"target": {"name": "y", "classes": ["no", "yes"]}, "records": 20_000, "features": features}
    kinds = {"declared": yaml.safe_dump(heavy, sort_keys=False)}
    return found | {"heavy-tails": (folder / "heavy.parquet", folder / "heavy-test.parquet", kinds)}


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=PAGE.parent)
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
    with tempfile.TemporaryDirectory() as folder:
        paid = pays(Decimal(1), 3, Path(folder))
    gains = ["| rows | learner | schema | AUROC |", "|---|---|---|---:|"]
    gains += [f"| {name} | {learner} | {how} | {figure:.4f} |" for name, learner, how, figure in paid]
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in speed())
    text = PAGE.read_text("utf-8")
    for mark, body in (
        ("coverage", "\n".join(table_of)),
        ("speed", f"Processor time: {times}."),
        ("pays", "\n".join(gains)),
    ):
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(start)
        text = before + start + body + "\n" + end + rest.partition(end)[2]
    (asked.out / PAGE.name).write_text(text, "utf-8")


PAGE = Path(__file__).with_name("profile.md")

if __name__ == "__main__":
    main()
