"""The local paper's tables and figures again, as printed and strict, beside the project's learners: local-paper.md.

    python -m studies.owners.local_paper --data DIR [--sets "synthetic 56" ...] [--parts tables boosted ours] [--runs 5]
    python -m studies.owners.local_paper --report

DIR (or DPSERVE_DATA) has Fashion and the sample of MNIST as Parquet; the synthetic sets are made. What a part of a set
came to is one JSON line of local-paper.jsonl.gz, which replaces the line that was there; --report only writes
the page and its pictures. One process; nothing here is certified, and nothing is released.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from accountant.noise.mechanisms import DiscreteGaussian
from accountant.noise.one_of_k import OneOfK
from benchmarks.datasets import folder_of
from benchmarks.lines import read_lines, write_lines
from studies import digests
from studies.owners import local_boosting as boosting
from studies.owners import local_mechanisms as mechanisms
from studies.owners import local_ours as ours
from studies.owners.local_boosting import Boosted, boost, on_sphere
from studies.owners.local_mechanisms import Mechanism
from studies.owners.local_paper_report import RESULTS, write
from studies.owners.local_sets import LocalSet, digits, fashion, synthetic

Record = dict[str, Any]
SEEDS = (56, 18, 767)
SETS = (*(f"synthetic {seed}" for seed in SEEDS), "fashion", "mnist")
TABLE_EPSILONS = (1.0, 3.0, 5.0, 7.0, 9.0)
EPSILONS = (0.5, 1.0, 2.0, 5.0, 7.0)
FIGURES = {"mnist": (5.0, 7.0), "fashion": (7.0, 9.0)}  # epsilons of Figures 4 and 7; synthetic sets: 5 and 7
ALONE = (200, 500, 2000)
OURS = ("local-linear", "local-lr")
MOST_GROUPS = 30  # of owners, as printed: a round that says nothing is asked again; strict: as many as rounds
FEW_OWNERS = (100, 200, 400, 600, 800, 1000)  # Figure 3

PIECEWISE = mechanisms.sampled(mechanisms.piecewise)
PRINTED: dict[str, Mechanism] = {"Laplace": mechanisms.laplace, "Duchi": mechanisms.duchi, "PM": PIECEWISE}
SPHERES: dict[str, Mechanism] = {"PrivUnit": mechanisms.privunit, "one of 64": mechanisms.one_of_k}


def exactly(x: ours.Floats, epsilon: float) -> ours.Floats:
    """No noise."""
    return x


def load(name: str, folder: Path | None) -> LocalSet:
    """One of SETS. FileNotFoundError where its file is not in the folder."""
    if name.startswith("synthetic "):
        return synthetic(int(name.partition(" ")[2]))
    if folder is None:
        raise FileNotFoundError(f"set={name}: name its folder (--data or DPSERVE_DATA)")
    return (fashion if name == "fashion" else digits)(folder)


def tables(data: LocalSet, runs: int) -> Record:
    """Tables II to IV and Figures 2, 3, 6 and 9: one base learner, unweighted, of one group of owners a run."""
    found: Record = {}

    def note(key: str, **numbers: float) -> None:
        for name, number in numbers.items():
            found.setdefault(key, {}).setdefault(name, []).append(float(number))

    for run in range(runs):
        rng = np.random.default_rng(run)
        groups = {learner: _group(data, learner, rng) for learner in ("ncc", "stump", "lr")}
        sums, size = boosting.table_vectors(groups["stump"]), boosting.size_of(data)
        true = boosting.printed_centroids(groups["ncc"], exactly, 0)
        impurity = np.abs(sums.mean(axis=0)).reshape(2, -1).sum(axis=0)
        between = np.abs(impurity[:, np.newaxis] - impurity).sum() / (len(impurity) * (len(impurity) - 1))
        own = boosting.clipped_parameters(groups["lr"], size)
        theta = size * own.mean(axis=0)
        for kind, epsilon, mechanism in _cells():
            of = f"{kind} {epsilon:g}"
            note(f"ncc {of}", **_centroids(data, groups["ncc"], mechanism, epsilon), apart=_distance(*true))
            noisy = np.abs(mechanism(sums, epsilon).mean(axis=0)).reshape(2, -1).sum(axis=0)
            right = _accuracy(data, boosting.printed_stump(groups["stump"], mechanism, epsilon))
            note(f"stump {of}", moved=((noisy - impurity) ** 2).mean(), apart=between, accuracy=right)
            drawn = size * mechanism(own, epsilon).mean(axis=0)
            right = _accuracy(data, boosting.Linear(drawn, 0.0))
            note(f"lr {of}", moved=((drawn - theta) ** 2).mean(), apart=np.abs(theta).mean(), accuracy=right)
        for owners in FEW_OWNERS if data.name == "mnist" else ():
            for kind in ("Duchi", "PM"):
                few = _group(data, "ncc", rng, owners)
                note(f"owners {kind} {owners}", **_centroids(data, few, PRINTED[kind], 5.0))
    return found


def _cells() -> Iterator[tuple[str, float, Mechanism]]:
    for epsilon in TABLE_EPSILONS:
        for kind, mechanism in PRINTED.items():
            yield kind, epsilon, mechanism
    yield "none", 0.0, exactly


def _centroids(data: LocalSet, group: boosting.Group, mechanism: Mechanism, epsilon: float) -> dict[str, float]:
    """How far noise moves the two centroids, and how good they are."""
    noisy, true = (boosting.printed_centroids(group, each, epsilon) for each in (mechanism, exactly))
    moved = (_distance(noisy[0], true[0]) + _distance(noisy[1], true[1])) / 2
    return {"moved": moved, "accuracy": _accuracy(data, boosting.centroid_line(*noisy))}


def _distance(one: ours.Floats, other: ours.Floats) -> float:
    return float(np.linalg.norm(one - other))


def _group(data: LocalSet, learner: str, rng: np.random.Generator, owners: int | None = None) -> boosting.Group:
    """One group of owners with even weights."""
    shape, (X, y) = data.shapes[learner], data.owners
    owners = min(owners or shape.owners, len(y) // shape.rows)
    held = rng.permutation(len(y))[: owners * shape.rows]
    cube = X[held].reshape(owners, shape.rows, -1).astype(np.float64)
    labels = y[held].reshape(owners, shape.rows).astype(np.float64)
    return boosting.Group(cube, labels, np.full(labels.shape, 1 / shape.rows), data.thresholds, 1.0)


def _accuracy(data: LocalSet, model: Callable[[ours.Floats], ours.Floats]) -> float:
    return float(np.mean(model(data.test[0]) == data.test[1]))


def boosted(data: LocalSet, runs: int) -> Record:
    """Errors of ten rounds, as printed and strict, and what Figures 4, 5, 7 and 8 show."""
    found: Record = {}
    reach = {
        "ncc": boosting.reach_of(data, data.shapes["ncc"], boosting.ncc_vectors),
        "stump": boosting.reach_of(data, data.shapes["stump"], boosting.stump_vectors),
    }
    variants: list[tuple[str, str, boosting.Learner, Mechanism]] = [
        ("printed", "ncc", boosting.printed_ncc, PIECEWISE),
        ("printed", "stump", boosting.printed_stump, PIECEWISE),
    ]
    for name, mechanism in {"PM": PIECEWISE, **SPHERES}.items():
        for kind, learner in (("ncc", boosting.strict_ncc), ("stump", boosting.strict_stump)):
            used = mechanism if name == "PM" else on_sphere(mechanism, reach[kind])
            variants.append((f"strict {name}", kind, learner, used))
    epsilons = sorted({*EPSILONS, *FIGURES.get(data.name, ())})
    for form, kind, learner, mechanism in variants:
        for epsilon in epsilons:
            most = MOST_GROUPS if form == "printed" else None
            found[f"{kind} {form} {epsilon:g}"] = _boosted(data, kind, learner, mechanism, epsilon, runs, most=most)
    for kind, learner in (("ncc", boosting.printed_ncc), ("stump", boosting.printed_stump)):
        found[f"{kind} none 0"] = _boosted(data, kind, learner, exactly, 0.0, runs)
    size = boosting.size_of(data)
    for epsilon in (0.0, *epsilons):
        mechanism = PIECEWISE if epsilon else exactly
        found[f"lr {'printed' if epsilon else 'none'} {epsilon:g}"] = _boosted(
            data, "lr", boosting.printed_lr, mechanism, epsilon, runs, size
        )
    return found


def _boosted(
    data: LocalSet, kind: str, learner: boosting.Learner, mechanism: Mechanism, epsilon: float, runs: int,
    reach: float = 1.0, most: int | None = None,
) -> Record:  # fmt: skip
    shape, seeds = data.shapes[kind], map(np.random.default_rng, range(runs))
    all_runs: list[Boosted] = [boost(data, shape, learner, mechanism, epsilon, rng, reach, most) for rng in seeds]
    longest = max(len(each.errors) for each in all_runs)
    path = [float(np.mean([each.errors[min(at, len(each.errors) - 1)] for each in all_runs])) for at in range(longest)]
    return {
        "errors": [each.errors[-1] for each in all_runs],
        "path": path,
        "alphas": _means([each.alphas for each in all_runs]),
        "base_errors": _means([each.base_errors for each in all_runs]),
        "groups": [each.groups for each in all_runs],
        "rounds": [len(each.alphas) for each in all_runs],
    }


def _means(paths: list[list[float]]) -> list[float]:
    """Of each place, over the runs that got there."""
    longest = max(map(len, paths))
    return [float(np.mean([path[at] for path in paths if len(path) > at])) for at in range(longest)]


def project(data: LocalSet, runs: int) -> Record:
    """Errors of the project's learners, of the user alone, and of central training without privacy."""
    shape, found = data.shapes["ncc"], Record()
    rows = shape.owners * shape.rows * shape.rounds
    many = data.shapes["lr"].owners * data.shapes["lr"].rows if data.name.startswith("synthetic") else rows
    plans = {"local-linear": (rows, 4), "local-lr": (many, 80 if many > rows else 20)}
    rngs = lambda: [np.random.default_rng(run) for run in range(runs)]  # noqa: E731
    for learner, (asked, each) in plans.items():
        found[f"{learner} owners"] = [asked // each, each]
        for epsilon in EPSILONS:
            found[f"{learner} {epsilon:g}"] = [
                ours.one_round(data, learner, asked, each, epsilon, rng) for rng in rngs()
            ]
    two = [ours.TwoAggregators(data, rows, 4, rng) for rng in rngs()]
    for epsilon in EPSILONS:
        found[f"shared-additive {epsilon:g}"] = [each.error(epsilon) for each in two]
    for labelled in (*ALONE, len(data.user[1])):
        found[f"alone {labelled}"] = [ours.alone(data, labelled, rng) for rng in rngs()]
    found["central"] = [ours.central(data, rows, rng) for rng in rngs()]
    return found


PARTS: dict[str, Callable[[LocalSet, int], Record]] = {"tables": tables, "boosted": boosted, "ours": project}


def measure(data: LocalSet, part: str, runs: int) -> Record:
    """One line: what was measured, of how many runs, and the processor's time."""
    mechanisms.RNG = np.random.default_rng(7)
    start = time.process_time()
    asked = 2 * runs if part == "tables" else runs
    found = PARTS[part](data, asked)
    took = round(time.process_time() - start, 1)
    about = {
        "tests": len(data.test[1]),
        "user": len(data.user[1]),
        "rows": len(data.owners[1]),
        "d": data.features,
    }
    return {
        "set": data.name,
        "title": data.title,
        "part": part,
        "digest": digest_of(part),
        "runs": asked,
        "seconds": took,
        "about": about,
        "found": found,
    }


@cache
def digest_of(part: str) -> str:
    """Digest of what a part runs, on a small synthetic set. Seeds fix the mechanisms of the study; one of 64 sends the
    best of an owner's candidates, and aggregators add no noise."""
    data, rng = synthetic(SEEDS[0], rows=4_000), np.random.default_rng(0)
    mechanisms.RNG, group = np.random.default_rng(7), _group(data, "ncc", rng)
    found: list[float] = []
    with (
        patch.object(OneOfK, "draw", lambda self, scores: np.asarray(scores).argmax(axis=1)),
        patch.object(DiscreteGaussian, "draw", lambda self, values, sensitivity: values),
        patch.object(np.random, "bytes", bytes),
    ):
        if part == "ours":
            found += [ours.one_round(data, learner, 400, 4, 2.0, rng) for learner in OURS]
            found += [ours.TwoAggregators(data, 400, 4, rng).error(2.0)]
        else:
            learners = [boosting.printed_ncc, boosting.printed_stump, boosting.printed_lr]
            kinds = list(PRINTED.values())
            if part == "boosted":
                learners, kinds = [*learners, boosting.strict_ncc, boosting.strict_stump], [*kinds, *SPHERES.values()]
                found += boost(data, data.shapes["ncc"], boosting.printed_ncc, PIECEWISE, 5.0, rng, 1.0, 4).errors
            found += [_accuracy(data, learner(group, each, 5.0)) for learner in learners for each in kinds]
    return digests.join(f"{one:.4g}" for one in found)


def today(line: Mapping[str, Any]) -> str:
    return digest_of(line["part"])


def read(file: Path) -> dict[tuple[str, str], Record]:
    """Every line by its set and part."""
    return {(line["set"], line["part"]): line for line in read_lines(file)}


def keep(file: Path, record: Record) -> None:
    """This line in place of what was there of its set and part; numbers of six digits."""
    rounded = json.loads(json.dumps(record), parse_float=lambda text: float(f"{float(text):.6g}"))
    records = {**read(file), (record["set"], record["part"]): rounded}
    ordered = sorted(records, key=lambda key: ([*SETS, key[0]].index(key[0]), [*PARTS, key[1]].index(key[1])))
    write_lines(file, (records[key] for key in ordered))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=tuple(PARTS))
    parser.add_argument("--runs", type=int, default=5, help="of each cell; twice as many of the tables")
    parser.add_argument("--report", action="store_true", help="only write the page")
    asked = parser.parse_args()
    file = RESULTS / "local-paper.jsonl.gz"
    for name in [] if asked.report else asked.sets:
        data = load(name, folder_of(asked.data))
        for part in asked.parts:
            record = measure(data, part, asked.runs)
            keep(file, record)
            print(f"{name}: {part}: {record['seconds']} s", flush=True)
    write(read(file), RESULTS)


if __name__ == "__main__":
    main()
