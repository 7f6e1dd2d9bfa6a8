"""Whatever is admitted also ends, exports, verifies and answers; whatever is refused is refused before a charge.

Random schemas, rows and requests. `ADMITTED_EXAMPLES=2000` looks further than the few of every run.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accountant.home import Home
from dpserve_verify.certificates import certificate
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import load_verified
from training.datasets.datasets import register
from training.jobs import job
from training.learners import LEARNERS
from training.learners.parameters import defaults_of
from training.requests import JobRequest, TuningRequest
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

EXAMPLES = int(os.environ.get("ADMITTED_EXAMPLES", "25"))
MOST = 4_000_000  # options by classes: of five times as many a fit takes minutes, and its choices are tested themselves
GREAT = (0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 123.456, 2.0**53)
VALUES: dict[str, Any] = {  # of parameters: in range, at its ends, and out of it
    "rounds": [1, 2, 3, 7, 40, 0],
    "epochs": [1, 2, 3, 0],
    "trees": [1, 2, 5, 100, 1000, 1001],
    "depth": [1, 2, 3, 4, 6, 8, 9],
    "leaves": [0, 1, 2, 3, 16, 32, 65_536],
    "rate": [1e-9, 0.1, 1.0, 10.0, 0.0],
    "reweighting": ["scheduled", "projected"],
    "weighting": ["exponential", "logistic"],
    "criterion": ["error", "gini", "public"],
    "leaf": ["rule", "vote", "counts", "label"],
    "growth": ["level", "best-first"],
    "slope": [0.0, 0.5, 1.0, 2.0],
    "decay": [0.0, 0.35, 1.0],
    "density": [1e-9, 0.5, 1.0, 0.0],
    "threshold": [True, False],
    "label_share": [0.05, 0.125, 0.5, 0.6],
    "alpha": [0.01, 0.3, 1.0, 0.0],
    "calibration": [1e-9, 0.1, 1.0],
    "split_share": [0.05, 0.5, 0.95],
    "clamp": [1e-9, 10.0, 100.0],
    "values": [0, 1, 10, 65_536],
    "ridge": [0.0, 1.0, 1000.0],
    "share": [0.001, 0.025, 0.5],
    "clip": [0.001, 0.4, 1.0],
    "mass": [0.0, 0.7, 1.0],
    "spread": [0.0, 2.0, 100.0],
    "doubt": [0.0, 2.5, 1000.0],
}


@st.composite
def ranges(draw) -> list[float]:
    """Two ends, hardly ever in the wrong order or the same."""
    ends = [draw(st.sampled_from(GREAT)), draw(st.sampled_from(GREAT))]
    return ends if draw(st.integers(0, 19)) == 0 or ends[0] == ends[1] else sorted(ends)


@st.composite
def features(draw) -> dict[str, dict[str, Any]]:
    """A few features of every kind, now and then many of one."""
    kinds = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["range", "edges", "text", "flag"]))
        if kind == "flag":
            kinds.append({"type": "boolean"})
        elif kind == "text":
            size = draw(st.sampled_from([1, 2, 5, 5, 300, 2000]))
            kinds.append({"type": "categorical", "values": [str(value) for value in range(size)]})
        elif kind == "edges":
            edges = sorted(set(draw(st.lists(st.sampled_from(GREAT), min_size=1, max_size=5))))
            kinds.append({"type": "numeric", "edges": edges})
        else:
            low, high = draw(ranges())
            scale, bins = draw(st.sampled_from(["linear", "log"])), draw(st.sampled_from([2, 3, 32, 300]))
            kinds.append({"type": "numeric", "range": [low, high], "bins": bins, "scale": scale})
    times = draw(st.sampled_from([1, 1, 1, 1, 1, 1, 40]))
    return {f"f{i}": dict(kinds[i % len(kinds)]) for i in range(len(kinds) * times)}


@st.composite
def targets(draw) -> dict[str, Any]:
    """Two classes, several, or a number."""
    kind = draw(st.sampled_from(["two", "two", "several", "number"]))
    if kind == "number":
        return {"range": draw(ranges())}
    return {"classes": list(range(2 if kind == "two" else draw(st.sampled_from([3, 9, 255]))))}


def column(kind: dict[str, Any], rows: int, random: np.random.Generator) -> pa.Array:
    """Ordinary values, the ends, missing ones, or one value throughout."""
    constant = random.random() < 0.3
    if kind["type"] == "boolean":
        values: list[Any] = [True, False, None]
    elif kind["type"] == "categorical":
        values = [str(value) for value in kind["values"][:20]] + ["elsewhere", None]
    else:
        ends = [*kind.get("edges", ()), *kind.get("range", ())]
        values = [*ends, *(end / 2 for end in ends), float("inf"), float("nan"), None]
    found = [values[0]] * rows if constant else [values[i] for i in random.integers(0, len(values), rows)]
    return pa.array(found, {"boolean": pa.bool_(), "categorical": pa.string()}.get(kind["type"], pa.float64()))


def answers(target: dict[str, Any], rows: int, random: np.random.Generator) -> pa.Array:
    """Some of the classes, or only one; numbers at the ends and beyond."""
    known = target.get("classes") or [*target["range"], 0.0, 1e308, float("-inf")]
    known = [known[random.integers(len(known))]] if random.random() < 0.3 else known
    found = [known[i] for i in random.integers(0, len(known), rows)]
    return pa.array([str(each) for each in found]) if "classes" in target else pa.array(found, pa.float64())


@st.composite
def cases(draw) -> dict[str, Any]:
    """A dataset and three requests for it."""
    budget = st.sampled_from(["0.5"] * 4 + ["1", "3"] * 4 + ["0.000001", "0.01", "50.5", "60", "99", "100", "101", "0"])
    delta = st.sampled_from(["0", "1e-6", "1e-9", "1e-13", "1e-30", "0.01"])
    rows = draw(st.sampled_from([1, 3, 40, 200]))
    records = draw(st.sampled_from([*[rows] * 6, 1, 1000, 10**6, 2**39 + 1, 10**12, 2**53]))
    relation = draw(st.sampled_from(list(Relation)))
    fits = st.sampled_from(["0", "1e-30", "1e-13", "1e-9", "1e-6"][: 5 if records < 10**6 else 3])
    jobs = []
    for _ in range(3):
        learner = draw(st.sampled_from(sorted(LEARNERS)))
        names = [name for name in sorted(defaults_of(learner)) if name in VALUES]
        chosen = draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if names else []
        given_ = {name: draw(st.sampled_from(VALUES[name])) for name in chosen}
        grid = None
        if names and draw(st.integers(0, 4)) == 0:
            tuned = draw(st.sampled_from(names))
            given_.pop(tuned, None)
            grid = {tuned: draw(st.lists(st.sampled_from(VALUES[tuned]), min_size=2, max_size=3, unique=True))}
        jobs.append(
            {
                "learner": learner,
                "epsilon": draw(budget),
                "delta": draw(st.none() | st.none() | fits | delta),
                "parameters": given_,
                "tuning": None if grid is None else TuningRequest(grid, draw(st.sampled_from([None, 1, 2]))),
            }
        )
    return {
        "features": draw(features()),
        "target": draw(targets()),
        "rows": rows,
        "records": records if relation is Relation.ADD_REMOVE or draw(st.integers(0, 9)) == 0 else rows,
        "relation": relation,
        "contributions": draw(st.sampled_from([None, None, 1, 3, 100, 10**4, 10**6])),
        "total": (draw(st.sampled_from(["3", "50.5", "100"]) | budget), draw(fits | fits | delta)),
        "seed": draw(st.integers(0, 1000)),
        "jobs": jobs,
    }


def registered(home: Home, folder: Path, case: dict[str, Any]) -> pa.Table | None:
    """The rows as dataset `d`; None where they were refused, which leaves no dataset."""
    random, rows, person = np.random.default_rng(case["seed"]), case["rows"], case["contributions"] is not None
    columns = {name: column(kind, rows, random) for name, kind in case["features"].items()}
    people = {"person": pa.array(random.integers(0, 1 + rows // 3, rows))} if person else {}
    table = pa.table({**columns, **people, "y": answers(case["target"], rows, random)})
    pq.write_table(table, folder / "rows.parquet")
    target = {"name": "y", **case["target"]}
    body = {"target": target, "records": case["records"], "features": case["features"], "ignore": list(people)}
    (folder / "schema.yaml").write_text(json.dumps(body))
    paths = folder / "rows.parquet", folder / "schema.yaml"
    unit = ("person", case["contributions"]) if person else ("record", 1)
    try:
        register(home, "d", *paths, Budget.of(*case["total"]), case["relation"], *unit)
    except InputError:
        assert not home.ledger.datasets()
        return None
    return table


def check(case: dict[str, Any]) -> list[str]:
    """What became of each job: issued, or the error that refused it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="admitted-") as name, warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        folder = Path(name)
        home = Home.init({"DPSERVE_HOME": str(folder / "home")})
        table = registered(home, folder, case)
        for number, asked in enumerate(case["jobs"]) if table is not None else ():
            before = home.ledger.log.size(), home.ledger.dataset("d").most_used.used
            try:
                answer = job.train(home, JobRequest("d", **asked, model=f"m{number}"), by="test")
            except (InputError, BudgetRefused) as error:  # JobFailed is neither
                found.append(error.code)
                unchanged(home, before)
                continue
            assert answer["state"] == "issued"
            assert home.ledger.dataset("d").most_used.used != before[1]
            answers_as_released(home, folder, f"m{number}", table)
            found.append("issued")
    return found


def unchanged(home: Home, before: tuple[int, Any]) -> None:
    assert (home.ledger.log.size(), home.ledger.dataset("d").most_used.used) == before


def answers_as_released(home: Home, folder: Path, name: str, table: pa.Table) -> None:
    """Bundle, certificate and graph hold, and the graph tells what the released numbers tell."""
    model = load_verified(home.models / name / "1", home.trust)
    bundle = model.bundle
    assert certificate.verify(bundle.envelope, bundle.proof.decode(), bundle.onnx, home.trust).model == name
    columns = columns_of(parse_schema((folder / "schema.yaml").read_bytes()), table)
    told, chances = model.runtime.predict(columns)
    wanted = model.ensemble.predict(columns)
    if model.ensemble.classes:
        assert (told == wanted).all()
        assert np.abs(chances - model.ensemble.probabilities(columns)).max() <= 1e-5
    else:
        low, high = model.ensemble.target_range or (0.0, 0.0)
        assert np.abs(told / 2 - wanted / 2).max() <= 1e-6 * (high / 2 - low / 2)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(cases())
def test_whatever_is_admitted_ends_and_whatever_is_refused_costs_nothing(case):
    options = sum(len(kind.get("values", ())) for kind in case["features"].values())
    assume(options * len(case["target"].get("classes", ())) <= MOST)
    check(case)


FIXED: dict[str, dict[str, Any]] = {
    "three rows": {"rows": 3},
    "one row": {"rows": 1, "seed": 2},
    "constant features": {"features": {"f0": {"type": "categorical", "values": ["only"]}}},
    "a range of 1e300": {"features": {"f0": {"type": "numeric", "range": [-1e300, 1e300]}}},
    "classes that never occur": {"target": {"classes": list(range(255))}, "seed": 3},
    "many rows of a person": {"contributions": 100},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXED)
def test_odd_rows_are_learnt_from_by_every_learner_for_classes(name):
    base: dict[str, Any] = {
        "features": {"f0": {"type": "numeric", "range": [0, 1]}, "f1": {"type": "boolean"}},
        "target": {"classes": ["0", "1"]},
        "rows": 40,
        "records": 40,
        "relation": Relation.ADD_REMOVE,
        "contributions": None,
        "total": ("3", "1e-6"),
        "seed": 1,
    }
    job_of = {"epsilon": "0.1", "delta": None, "parameters": {}, "tuning": None}
    case = {**base, **FIXED[name], "jobs": [{**job_of, "learner": learner} for learner in sorted(LEARNERS)]}
    several = len(case["target"]["classes"]) > 2
    taken = ("auto", "ebm", "ebm-trees", "lazybb") if several else tuple(LEARNERS)
    assert check(case) == ["issued" if each in taken else "bad_input" for each in sorted(LEARNERS)]
