"""Every learner that the benchmark compares, behind one call: a Task in, probabilities and the cost of the fit out.

A method's name may carry parameters: `dp-ebm:max_rounds=50,max_leaves=2`. Peers run as published, on the same public
schema; what they read from the rows without paying for it is not charged to them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks import plain
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature, Feature, NumericFeature
from training.learners import LEARNERS
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import columns_of, encode_labels
from training.session.session import Public

Numbers = NDArray[np.float64]
Family = Literal["ours", "peer", "open"]
# Found by an open search on Adult and Telco (benchmarks/report.md says how): epsilons below the first number.
INTERPRET_BEST = (
    (0.2, {"max_rounds": 60, "learning_rate": 0.1, "max_bins": 8}),
    (0.4, {"max_rounds": 60, "learning_rate": 0.2, "max_bins": 24}),
    (0.8, {"max_rounds": 150, "learning_rate": 0.1, "max_bins": 24}),
    (float("inf"), {"max_rounds": 150, "learning_rate": 0.2, "max_bins": 64}),
)


@dataclass(frozen=True)
class Task:
    """One split of one dataset and one budget. `schema_bytes`: public, its `records` the split's public size."""

    schema_bytes: bytes
    train: pa.Table
    test: pa.Table
    epsilon: str
    delta: str
    seed: int

    @cached_property
    def schema(self) -> Schema:
        return parse_schema(self.schema_bytes)

    @property
    def public(self) -> Public:
        """What a learner of ours may know before anything is released."""
        schema, budget = self.schema, Budget.of(self.epsilon, self.delta)
        named = (schema.features, schema.target, schema.classes, schema.records)
        return Public(*named, Relation.ADD_REMOVE, budget, budget.delta == 0)

    @property
    def classes(self) -> int:
        return len(self.schema.classes or ())

    def labels(self, table: pa.Table) -> NDArray[np.uint8]:
        return encode_labels(self.schema, table[self.schema.target].combine_chunks())

    @cached_property
    def matrices(self) -> tuple[Numbers, Numbers]:
        """Train and test for learners that want numbers: public bounds to [0, 1], one column per public category."""
        return _matrix(self, self.train), _matrix(self, self.test)


@dataclass(frozen=True)
class Answer:
    """`probabilities` (test rows, classes) in the schema's order; seconds of the fit alone, by clock and processor."""

    probabilities: Numbers
    seconds: float
    cpu: float


Parameters = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """`family`: ours, a private peer, or one that is open about its rows. `fits(task)`: whether it takes the task."""

    family: Family
    run: Callable[[Task, Parameters], Answer]
    fits: Callable[[Task], bool] = lambda task: True
    title: str = ""


def timed(fit: Callable[[], object]) -> tuple[float, float]:
    """Clock and processor seconds of `fit`. The pools of OpenMP and BLAS get one thread: idle ones spin and count."""
    clock, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        fit()
    return time.perf_counter() - clock, time.process_time() - processor


@cache
def bounds_of(schema_bytes: bytes) -> dict[str, tuple[float, float]]:
    """Public low and high of every numeric feature: the schema's range, or its first and last cut point."""
    features = yaml.safe_load(schema_bytes)["features"]
    found = {name: body.get("range") or body["edges"] for name, body in features.items() if body["type"] == "numeric"}
    return {name: (float(ends[0]), float(ends[-1])) for name, ends in found.items()}


def _matrix(task: Task, table: pa.Table) -> Numbers:
    columns, bounds = columns_of(task.schema, table), bounds_of(task.schema_bytes)
    return np.column_stack([_block(f, columns[f.name], bounds.get(f.name, (0, 1))) for f in task.schema.features])


def _block(feature: Feature, values: Any, bounds: tuple[float, float]) -> Numbers:
    if isinstance(feature, CategoricalFeature):
        return np.eye(feature.bins, dtype=np.float64)[feature.encode(values)]
    scaled = (np.asarray(values, dtype=np.float64) - bounds[0]) / (bounds[1] - bounds[0])
    return np.nan_to_num(np.clip(scaled, 0, 1), nan=0.5)[:, None]


def _spread(found: Numbers, seen: Any, classes: int) -> Numbers:
    """Probabilities over all classes, from those over the classes that a learner has seen."""
    full = np.zeros((len(found), classes))
    full[:, np.asarray(seen, dtype=int)] = found
    return full


def _ours(name: str) -> Method:
    def learner(task: Task, parameters: Parameters) -> Any:
        budget = {"epsilon": task.epsilon, "delta": task.delta, "relation": "add-remove"}
        return LEARNERS[name](**{"schema": task.schema, **budget, **parameters})

    def run(task: Task, parameters: Parameters) -> Answer:
        model = learner(task, parameters)
        rows, labels = task.train.drop_columns([task.schema.target]), task.train[task.schema.target]
        cost = timed(lambda: model.fit(rows, labels))
        found = np.asarray(model.predict_proba(task.test.drop_columns([task.schema.target])), dtype=np.float64)
        return Answer(found, *cost)

    def fits(task: Task) -> bool:
        try:
            learner(task, {}).check(task.public)
        except InputError:
            return False
        return True

    return Method("ours", run, fits)


def _frame(task: Task, table: pa.Table) -> Any:
    """As interpret takes it: numbers inside public bounds, categories as words."""
    columns, bounds = columns_of(task.schema, table), bounds_of(task.schema_bytes)
    shown = {
        f.name: _filled(columns[f.name], bounds[f.name]) if f.name in bounds else _words(columns[f.name])
        for f in task.schema.features
    }
    return pa.table(shown).to_pandas()


def _interpret(settings: Sequence[tuple[float, Parameters]]) -> Callable[[Task, Parameters], Answer]:
    def run(task: Task, parameters: Parameters) -> Answer:
        from interpret.privacy import DPExplainableBoostingClassifier  # type: ignore[import-not-found]

        asked = {"epsilon": float(task.epsilon), "delta": float(task.delta)}
        asked |= {"privacy_bounds": bounds_of(task.schema_bytes)}
        best = next(found for below, found in settings if float(task.epsilon) < below)
        return _additive(task, DPExplainableBoostingClassifier, asked | best | parameters)

    return run


def _open_ebm(task: Task, parameters: Parameters) -> Answer:
    from interpret.glassbox import ExplainableBoostingClassifier  # type: ignore[import-not-found]

    return _additive(task, ExplainableBoostingClassifier, parameters)


def _additive(task: Task, kind: Callable[..., Any], asked: Parameters) -> Answer:
    numeric = [isinstance(feature, NumericFeature) for feature in task.schema.features]
    types = ["continuous" if n else "nominal" for n in numeric]
    model = kind(**({"feature_types": types, "random_state": task.seed, "n_jobs": 1} | asked))
    rows, labels, held = _frame(task, task.train), task.labels(task.train), _frame(task, task.test)
    cost = timed(lambda: model.fit(rows, labels))
    return Answer(_spread(model.predict_proba(held), model.classes_, task.classes), *cost)


def _filled(values: Any, bounds: tuple[float, float]) -> Numbers:
    """Numbers, the missing ones in the middle of the public range: private binning takes none."""
    return np.nan_to_num(np.asarray(values, dtype=np.float64), nan=sum(bounds) / 2)


def _words(values: Any) -> Any:
    """Category names for interpret: booleans as 0 and 1, nothing as a word of its own."""
    return np.array(["missing" if v is None or v != v else str(v) for v in values], dtype=object)


def _logistic(task: Task, parameters: Parameters) -> Answer:
    from sklearn.linear_model import LogisticRegression

    model, (train, test) = LogisticRegression(**({"C": 1.0, "max_iter": 1000} | parameters)), task.matrices
    cost = timed(lambda: model.fit(train, task.labels(task.train)))
    return Answer(_spread(model.predict_proba(test), model.classes_, task.classes), *cost)


def _histogram(task: Task, parameters: Parameters) -> Answer:
    from sklearn.ensemble import HistGradientBoostingClassifier

    features = task.schema.features
    named = [isinstance(f, CategoricalFeature) and f.bins <= 255 for f in features]
    model = HistGradientBoostingClassifier(categorical_features=named, random_state=task.seed, **parameters)

    def matrix(table: pa.Table) -> Numbers:
        columns = columns_of(task.schema, table)
        picked = [
            f.encode(columns[f.name]) if isinstance(f, CategoricalFeature) else np.asarray(columns[f.name], float)
            for f in features
        ]
        return np.column_stack(picked).astype(np.float64)

    train, test = matrix(task.train), matrix(task.test)
    cost = timed(lambda: model.fit(train, task.labels(task.train)))
    return Answer(_spread(model.predict_proba(test), model.classes_, task.classes), *cost)


def _most_frequent(task: Task, parameters: Parameters) -> Answer:
    share = np.bincount(task.labels(task.train), minlength=task.classes) / len(task.train)
    return Answer(np.tile(share, (len(task.test), 1)), 0.0, 0.0)


def _diffprivlib(kind: str) -> Callable[[Task, Parameters], Answer]:
    def run(task: Task, parameters: Parameters) -> Answer:
        from benchmarks.apart import ask

        names = len(task.schema.features)
        found, seen, seconds, cpu = ask(
            {"kind": kind, "epsilon": float(task.epsilon), "seed": task.seed, "norm": names**0.5}
            | {"classes": task.classes, "parameters": parameters},
            {"train": task.matrices[0], "labels": task.labels(task.train), "test": task.matrices[1]},
        )
        return Answer(_spread(found, seen, task.classes), seconds, cpu)

    return run


def _plain(fit: Callable[..., Numbers]) -> Callable[[Task, Parameters], Answer]:
    def run(task: Task, parameters: Parameters) -> Answer:
        train, test = (plain.with_constant(matrix) for matrix in task.matrices)
        labels, draw = task.labels(task.train).astype(np.float64), np.random.default_rng(task.seed)
        weights: list[Numbers] = []
        budget, records = (float(task.epsilon), float(task.delta)), task.schema.records
        cost = timed(lambda: weights.append(fit(train, labels, *budget, draw, records)))
        chance = expit(test @ weights[0])
        return Answer(np.column_stack([1 - chance, chance]), *cost)

    return run


def _two(task: Task) -> bool:
    return task.classes == 2


METHODS: dict[str, Method] = {
    **{name: _ours(name) for name in LEARNERS},
    "dp-ebm": Method("peer", _interpret([(float("inf"), {})]), _two, "DP-EBM (interpret), as shipped"),
    "dp-ebm-best": Method("peer", _interpret(INTERPRET_BEST), _two, "DP-EBM (interpret), best setting found"),
    "plain-descent": Method("peer", _plain(plain.descend), _two, "logistic regression by noisy gradients, 10 lines"),
    "plain-objective": Method(
        "peer", _plain(plain.perturb), _two, "logistic regression by a noisy objective, 10 lines"
    ),
    "diffprivlib-lr": Method("peer", _diffprivlib("logistic"), title="diffprivlib, logistic regression, C = .1"),
    "diffprivlib-rf": Method("peer", _diffprivlib("forest"), title="diffprivlib, random forest"),
    "hist-gradient-boosting": Method("open", _histogram, title="HistGradientBoosting, not private"),
    "open-ebm": Method("open", _open_ebm, title="EBM (interpret), not private"),
    "logistic": Method("open", _logistic, title="logistic regression, not private"),
    "most-frequent": Method("open", _most_frequent, title="most frequent class"),
}


def parse(name: str) -> tuple[Method, Parameters]:
    """`dp-ebm:max_rounds=50` -> the method and its parameters. Raises KeyError for an unknown method."""
    head, _, tail = name.partition(":")
    if head not in METHODS:
        raise KeyError(f"method={head}: none of {', '.join(METHODS)}")
    pairs = [pair.partition("=") for pair in tail.split(",") if pair]
    return METHODS[head], {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
