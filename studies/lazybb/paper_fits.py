"""Fits of the paper's experiments: a cell is a set, a variant, a budget and a setting; its record, lists over fits.

With n rows, tau rounds, density kappa, `eta` multiplies the normalised weighted agreement in the exponent, and eps_b is
the paper's share of a round: epsilon / tau where delta is 0, else by its advanced composition. The variants are:

- theorem     Theorem 4.2: exponential mechanism, eta = eps_b kappa n / 4.
- corrected   the same at the proved price of a round, 2 eta zeta: eta = eps_b kappa n / 2.
- as coded    corrected, with the n of all rows in every fold of a cross-validation, and ties for the last class.
- dpserve     our learner under replace-one: the corrected price, sharper zeta in the first rounds, permute-and-flip
              (delta 0) or the certified adaptive composition (delta above 0).
- lambda      dpserve at the paper's lambda as it is printed. All others have half of it: see HALF.
- cut points  dpserve over our public schema's 1-rules in place of the one-hot columns.
- scheduled   our scheduled reweighting, which needs no n, under add/remove.
- defaults    our learner with none of its parameters given, fitted as the product fits it, over our public schema: cut
              points are then found by noisy counts where its rule says so; replace-one.
- no noise    the corrected form with a noise that vanishes. Not private: the limit of the setting.
- paper's trees  trees of three splits, chosen one by one over all leaves by Gini, half of the budget for the votes.
- level trees    depth 2, level by level, by Gini, an eighth for the votes: one price for all leaves of a level.
- rule trees     `lazybb-tree` as it is: depth 2, splits by weighted error, 1-rules in the leaves.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.claims import claim
from benchmarks.datasets import with_records
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Plan
from models.forms.trees import TreeEnsemble
from models.parts.trees import Leaf, Tree, route
from studies import digests
from studies.lazybb.paper_published import RECORDS, Setting
from studies.lazybb.paper_sets import Coded, coded, made_up, sources
from training.calibration.calibrate import calibrate, rehearse
from training.learners import LazyBB
from training.learners.base.private_learner import PrivateClassifier
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Session

THEOREM, CORRECTED, CODED, OURS, PRINTED, CUTS, SCHEDULED, DEFAULTS, LIMIT = VARIANTS = (
    *("theorem", "corrected", "as coded", "dpserve", "lambda", "cut points", "scheduled", "defaults", "no noise"),
)
TREES: dict[str, dict[str, Any]] = {
    "paper's trees": {"criterion": "gini", "leaf": "vote", "growth": "best-first", "leaves": 4, "label_share": 0.5},
    "level trees": {"criterion": "gini", "leaf": "vote", "label_share": 0.125},
    "rule trees": {},
}
UNSHARPENED = (THEOREM, CORRECTED, CODED, LIMIT)
HALF = 0.5  # the authors' code adds 1 to a margin for a right vote and 0 for a wrong one: exp(-lambda m / 2) in +-1
THE_PAPERS = {"decay": 0, "weighting": "exponential", "order": "none"}  # equal votes, exponential weights
SLOPE = 0.1  # of the schedule
VANISHING = Decimal(100)  # epsilon of one round
Indices = NDArray[np.intp]
Planned = tuple[PrivateClassifier, Public, Decimal, Plan]


@dataclass(frozen=True)
class Cell:
    """`setting` as the paper prints it; None: the learner's defaults. `protocol` "own": the publisher's test file, or
    folds where there is none; "folds": five-fold cross-validation over the training rows."""

    part: str
    set: str
    variant: str
    epsilon: str
    delta: str = "0"
    setting: Setting | None = None
    protocol: str = "own"

    @property
    def key(self) -> str:
        at = (self.setting.density, self.setting.rate, self.setting.rounds) if self.setting else ()
        return "|".join(map(str, (self.part, self.set, self.variant, self.epsilon, self.delta, *at, self.protocol)))

    @property
    def rate(self) -> float:
        """Lambda as it is run."""
        assert self.setting is not None
        return self.setting.rate * (1 if self.variant == PRINTED else HALF)

    @property
    def encoding(self) -> str:
        return "schema" if self.variant == CUTS else "paper"

    @property
    def relation(self) -> Relation:
        """The projected weights of add/remove are the paper's, unsharpened: zeta = 1 / (kappa n) in every round."""
        return Relation.ADD_REMOVE if self.variant in (*UNSHARPENED, SCHEDULED) else Relation.REPLACE_ONE

    @property
    def pure(self) -> bool:
        """Whether permute-and-flip selects; else the exponential mechanism, which is the paper's."""
        return self.delta == "0" and self.variant not in UNSHARPENED


def known(**parameters: object) -> dict[str, Any]:
    """Of these parameters, those that the learner has."""
    names = inspect.signature(LazyBB).parameters
    return {name: value for name, value in parameters.items() if name in names}


def learner_of(cell: Cell) -> PrivateClassifier:
    assert cell.setting is not None
    if cell.variant in TREES:
        return tree_learner(cell.setting, TREES[cell.variant])
    at, kind = cell.setting, "scheduled" if cell.variant == SCHEDULED else "projected"
    fixed = {"reweighting": kind, "slope": SLOPE, "density": at.density, "threshold": False, **THE_PAPERS}
    return LazyBB(**known(rounds=at.rounds, rate=cell.rate, **fixed))


def tree_learner(at: Setting, form: dict[str, Any]) -> PrivateClassifier:
    from training.learners.boosting.lazybb_tree import LazyBBTree

    fixed: dict[str, Any] = {"reweighting": "projected", "density": at.density, "threshold": False, "order": "none"}
    return LazyBBTree(rounds=at.rounds, rate=at.rate * HALF, depth=2, **fixed, **form)


def public_of(cell: Cell, data: Coded, records: int) -> Public:
    budget = Budget.of(cell.epsilon, cell.delta)
    return Public(data.features, data.target, data.classes, records, cell.relation, budget, cell.pure)


def paper_round(epsilon: str, delta: str, rounds: int) -> float:
    """eps_b that the paper gives a round (Theorems 2.8 and 3.1)."""
    if delta == "0":
        return float(epsilon) / rounds

    def total(each: float) -> float:
        return sqrt(2 * rounds * log(1 / float(delta))) * each + rounds * each * (exp(each) - 1)

    low, high = 0.0, float(epsilon)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) <= float(epsilon) else (low, middle)
    return low


def unit_of(cell: Cell, learner: PrivateClassifier, public: Public) -> Decimal:
    """Range of a round's exponents over neighbours: 2 eta / (kappa n). In nano-units, rounded down."""
    if cell.variant == LIMIT:
        return VANISHING
    if cell.variant not in UNSHARPENED:
        return calibrated(cell, learner, public)
    assert cell.setting is not None
    each = paper_round(cell.epsilon, cell.delta, cell.setting.rounds)
    if cell.variant == CODED:
        each *= RECORDS[cell.set.partition(",")[0]] / public.records
    return Decimal(int(each * (0.5 if cell.variant == THEOREM else 1) * 1e9)).scaleb(-9)


_UNITS: dict[object, Decimal] = {}


def calibrated(cell: Cell, learner: PrivateClassifier, public: Public) -> Decimal:
    """The learner's own unit. It depends on the budget, the kind of releases and their number, not on rows."""
    kind = cell.variant if cell.variant in TREES else ""
    key = (kind, learner.rounds_for(public), public.budget, public.pure)
    if key not in _UNITS:
        _UNITS[key] = calibrate(learner, public, public.budget).unit
    return _UNITS[key]


def plan_of(cell: Cell, data: Coded, records: int) -> Planned:
    learner, public = learner_of(cell), public_of(cell, data, records)
    learner.check(public)
    unit = unit_of(cell, learner, public)
    return learner, public, unit, rehearse(learner, public, unit)


@lru_cache(maxsize=2)
def planner(cell: Cell, folder: str | Path | None) -> Any:
    data = coded(cell.set, cell.encoding, folder)
    return cache(lambda records: plan_of(cell, data, records))


def run(cell: Cell, folder: str | Path | None, repeats: int) -> dict[str, Any]:
    """Fit over and over with fresh noise; accuracy on rows that the fit has not seen, and the 1-rules it uses.

    `priced`: the epsilon that our accountant finds for the plan at the cell's delta.
    """
    data, began, found = coded(cell.set, cell.encoding, folder), time.perf_counter(), []
    for train, test in data.splits(repeats) if cell.protocol == "own" else data.folds(repeats):
        if cell.variant == DEFAULTS:
            accuracy, model, plan, unit, price = by_defaults(cell, folder, train, test)
        else:
            _, public, unit, plan = planned = planner(cell, folder)(train.size)
            model = fit(planned, data, train)
            accuracy = float(np.mean(labels_of(model, data, test, ties=cell.variant == CODED) == data.labels[test]))
            price = None if cell.variant == LIMIT else claim(plan, public.budget.delta).epsilon
        found.append((round(accuracy, 5), len(rules_of(model))))
    return {
        "key": cell.key,
        "digest": digest_of(cell.variant, cell.delta),
        "accuracy_of_fits": [accuracy for accuracy, _ in found],
        "rules_of_fits": [rules for _, rules in found],
        "releases": len(plan),
        "unit": str(unit),
        "priced": None if price is None else str(price),
        "seconds": round((time.perf_counter() - began) / len(found), 3),
    }


def by_defaults(cell: Cell, folder: str | Path | None, train: Indices, test: Indices) -> tuple[Any, ...]:
    """Accuracy of the product's own fit on the rows `train`; the ensemble, its plan, unit and price."""
    schema, table = sources(cell.set, folder)
    model = LazyBB(
        schema=with_records(schema, train.size), epsilon=cell.epsilon, delta=cell.delta, relation="replace-one"
    )
    target = parse_schema(schema).target
    features, labels = table.drop([target]), np.asarray(table[target])
    model.fit(features.take(train), labels[train])
    accuracy = float(np.mean(model.predict(features.take(test)) == labels[test]))
    recipe = model.recipe_
    return accuracy, model.ensemble_, recipe.plan, recipe.unit, recipe.claim.epsilon


@cache
def digest_of(variant: str, delta: str) -> str:
    """Digest of a variant, at every setting: on made-up rows, at one setting of the paper; of our defaults at three
    budgets. A plan without noise is fitted here as well, so the limit has one of its own."""
    if variant == DEFAULTS:
        pure = {"delta": delta, "relation": "replace-one"}
        return digests.join(digests.digest(LazyBB(epsilon=epsilon, **pure)) for epsilon in digests.BUDGETS)
    data, cell = made_up(), Cell("digest", "adult", variant, "0.5", delta, Setting(0.35, 0.5, 15))
    learner, public, unit, _ = plan_of(cell, data, digests.ROWS)
    return digests.digest_of_fit(learner, public, unit, Rows(data.bins, data.labels, data.widths))


def today(record: Mapping[str, Any]) -> str | None:
    """What the digest of a record is by today's learners; None where none of ours made it."""
    part, _, variant, *rest = (*record["key"].split("|"), "")
    if part == "peers":
        variant = OURS if variant == "rademacher" else ""
    return digest_of(variant, rest[1]) if part != "baselines" and variant else None


def fit(planned: Planned, data: Coded, train: Indices) -> Any:
    """The released ensemble of one fit on the rows `train`."""
    learner, public, unit, plan = planned
    rows = Rows(np.ascontiguousarray(data.bins[:, train]), data.labels[train], data.widths)
    return learner.learn(Session(public, unit, plan, rows))


def labels_of(model: Any, data: Coded, rows: Indices, ties: bool = False) -> NDArray[np.uint8]:
    """What the ensemble says on packed codes: (rows,) of 0 and 1; `ties` are for class 1 or for class 0."""
    codes = [each[rows] for each in data.bins]
    if isinstance(model, TreeEnsemble):
        scores = model.constant + sum(route(tree, codes, data.widths) for tree in model.trees)
    else:
        tables = [np.zeros(width, np.int64) for width in data.widths]
        for vote in model.votes:
            tables[vote.feature] += vote.table(data.widths[vote.feature])
        scores = sum(table[code] for table, code in zip(tables, codes, strict=True))
    return np.asarray(scores > (-1 if ties else 0), np.uint8)


def rules_of(model: Any) -> set[tuple[str, int, int]]:
    """The distinct 1-rules but the constant, whichever way they vote; of trees, the distinct tests."""
    if isinstance(model, TreeEnsemble):
        return {test for tree in model.trees for test in _tests(tree)}
    return {(vote.test, vote.feature, vote.code) for vote in model.votes if vote.test != "always"}


def _tests(tree: Tree) -> list[tuple[str, int, int]]:
    if isinstance(tree, Leaf):
        return []
    return [(tree.test, tree.feature, tree.code), *_tests(tree.yes), *_tests(tree.no)]
