"""Every learner, evaluation and profile, recorded and played on neighbours: the same questions, moved by no more than
is declared. NEIGHBOURS=1000 plays many.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from toy_learners import Toy, asking

from dpserve_platform.replay import subjects
from dpserve_platform.replay.report import Report, check
from dpserve_platform.replay.tapes import moved, share_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.worth.scored import ScoredLayout
from models.worth.stated import layout_of, paired_layout_of
from training.learners import LEARNERS
from training.learners.parameters import defaults_of, learner_of
from training.measuring.profile.choosing import ChoosingProfiler
from training.measuring.profile.counts import Profiler, TableCounts
from training.measuring.profile.profile import columns_of
from training.measuring.worth.histogram import CellCounts, Evaluator, PairedCounts
from training.rows.schema.schema import Schema, parse_schema
from training.session.session import Public, Rehearsal
from training.tuning.selecting import CorrectRows

NEIGHBOURS = int(os.environ.get("NEIGHBOURS", "14"))  # each shape of row, of each of two classes
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
TARGETS = {"two": 'classes: ["no", "yes"]', "three": "classes: [a, b, c]", "number": "range: [-3, 50]"}
FEW = {"rounds": 8, "epochs": 2, "trees": 3}


def schema_of(target: str, more: str = "") -> Schema:
    text = subjects.SCHEMA.decode().replace('classes: ["no", "yes"]', TARGETS[target] + more)
    return parse_schema(text.encode()).question(None)


def public_of(schema: Schema, relation=ADD, delta="0.000001", contributions=1, epsilon="2") -> Public:
    return Public.of(schema, relation, Budget.of(epsilon, delta), delta == "0", contributions)


@dataclass(frozen=True)
class Case:
    learner: str
    target: str = "two"
    relation: Relation = ADD
    delta: str = "0.000001"
    contributions: int = 1
    parameters: tuple[tuple[str, Any], ...] = ()
    more: str = ""

    def __str__(self) -> str:
        odd = f"{self.target} {self.relation.value} {self.delta} {self.contributions} {self.more}"
        return " ".join((self.learner, odd, *(f"{key}={value}" for key, value in self.parameters)))

    def check(self, neighbours: int = NEIGHBOURS) -> Report:
        schema = schema_of(self.target, self.more)
        public = public_of(schema, self.relation, self.delta, self.contributions)
        of_numbers = {"trees"} if self.learner == "ebm-trees" and self.target != "number" else set()
        known = defaults_of(self.learner).keys() - of_numbers
        parameters = {key: count for key, count in FEW.items() if key in known} | dict(self.parameters)
        return check(lambda: learner_of(self.learner, parameters), schema, public, neighbours)


def every() -> list[Case]:
    """Each learner under either relation, with a delta and without, of one row and of three; then its variants."""
    found = []
    for name in LEARNERS:
        if name == "auto":
            continue  # one of the others, by a public rule
        found += [
            Case(name, relation=relation, delta=delta) for relation in (ADD, REPLACE) for delta in ("0.000001", "0")
        ]
        found += [Case(name, contributions=3), Case(name, more=", prevalence: [0.9, 0.1]")]
    found += [Case(name, "three", relation) for name in ("lazybb", "ebm") for relation in (ADD, REPLACE)]
    found += [Case("ebm", "number", relation) for relation in (ADD, REPLACE)] + [Case("ebm", "number", contributions=2)]
    found += [Case("ebm-trees", "number", relation) for relation in (ADD, REPLACE)]
    found += [Case("ebm-trees", "number", delta="0"), Case("ebm-trees", "number", contributions=2)]
    found += [Case("ebm", "three", delta="0"), Case("ebm", "number", delta="0"), Case("lazybb", "three", delta="0")]
    return found + [Case(*each) for each in VARIANTS]


def variant(name: str, target: str = "two", **parameters: Any) -> tuple[Any, ...]:
    return name, target, ADD, "0.000001", 1, tuple(parameters.items())


VARIANTS = [
    variant("lazybb", cuts="found", order="found"),
    variant("lazybb", reweighting="projected"),
    variant("lazybb", weighting="logistic"),
    variant("lazybb-tree", cuts="found", order="found"),
    variant("lazybb-tree", criterion="gini"),
    variant("lazybb-tree", growth="best-first"),
    variant("lazybb-tree", leaf="vote"),
    variant("ebm", cuts="found"),
    variant("ebm", engine="convex"),
    variant("ebm", engine="epochs"),
    variant("ebm", pairs=2),
    variant("ebm", "three", pairs=2),
    variant("ebm", "number", pairs=2, engine="epochs"),
    variant("ebm-trees", "number", loss="absolute"),
    variant("ebm-trees", "number", loss="quantile", quantile=0.9),
    variant("forest", leaf="label"),
    variant("forest", leaf="residuals"),
]


@pytest.mark.parametrize("case", every(), ids=str)
def test_every_learner_keeps_its_promise_on_neighbours(case):
    report = case.check()
    assert report.ok, report.to_json()
    assert report.neighbours == NEIGHBOURS
    assert report.releases >= 3
    assert max(report.reached.values()) > 0.9  # its sensitivities are tight, so half of them would be seen


def statements() -> dict[str, tuple[Schema, Any]]:
    """What is asked of rows besides: evaluations, of groups of scores and of two models, profiles, and what tuning
    asks. Each with the schema of its rows.
    """
    found: dict[str, tuple[Schema, Any]] = {}
    for target in TARGETS:
        schema = schema_of(target)
        name = "lazybb" if target != "number" else "ebm"
        learner = learner_of(name, {key: count for key, count in FEW.items() if key in defaults_of(name)})
        public = public_of(schema)
        one = learner.learn(Rehearsal(public, public.budget.epsilon))
        other = replace(one, base=1) if hasattr(one, "base") else one
        found[f"evaluate {target}"] = schema, Evaluator(CellCounts(one, layout_of(one)))
        found[f"compare {target}"] = schema, Evaluator(PairedCounts((one, other), paired_layout_of(one, other)))
        if target == "two":
            found["evaluate scores"] = schema, Evaluator(CellCounts(one, ScoredLayout(layout_of(one))))
            found["tune"] = schema, asking(CorrectRows(one, "l1"))()
    schema = schema_of("two")
    columns = tuple(columns_of(schema)[:4])
    for name, norm, parents in (("l1", "l1", 1), ("l2", "l2", 1), ("parents", "l2", 2), ("persons", "l2", 2)):
        found[f"synthesize {name}"] = schema, ChoosingProfiler(columns, 2, 4, norm, parents)  # around four values
    widths = tuple(feature.bins for feature in schema.features)
    for norm in ("l1", "l2"):
        found[f"profile {norm}"] = schema, Profiler(TableCounts(widths, ((0, 1), (2, 3)), norm))
    return found


STATEMENTS = cache(statements)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("name", [
    *(f"{verb} {target}" for verb in ("evaluate", "compare") for target in TARGETS), "evaluate scores", "tune",
    "profile l1", "profile l2",
    "synthesize l1", "synthesize l2", "synthesize parents", "synthesize persons",
])  # fmt: skip
def test_every_statement_keeps_its_promise_on_neighbours(name, relation):
    schema, asked = STATEMENTS()[name]
    public = public_of(schema, relation, contributions=3 if name.endswith("persons") else 1)
    report = check(lambda: asked, schema, public, 2 * NEIGHBOURS)
    assert report.ok, report.to_json()
    if not name.startswith("compare"):  # two models that know nothing are right and wrong alike
        assert max(report.reached.values()) > (0.7 if name == "profile l2" or relation is REPLACE else 0.98)


def test_every_statement_is_among_them():
    assert len(STATEMENTS()) == 14


def test_a_toy_that_is_right_is_let_through():
    schema = schema_of("two")
    report = check(Toy, schema, public_of(schema), 100)
    assert report.ok, report.to_json()
    assert set(report.reached.values()) == {1.0}


@pytest.mark.parametrize("contributions", [1, 4])
def test_rows_of_one_person_are_added_together(contributions):
    schema = schema_of("two")
    report = check(Toy, schema, public_of(schema, contributions=contributions), 42)
    assert report.ok
    assert max(report.reached.values()) == 1.0


def test_distances_are_those_of_the_norms():
    one, other = np.array([[1, 5], [9, 2]]), np.array([[2, 3], [9, 6]])
    assert moved(one, other, "l1") == 7
    assert moved(one, other, "l2") == 21
    assert moved(one, other, "range") == 3 + 4
    low, high = np.array([-(1 << 63)]), np.array([(1 << 63) - 1])
    assert moved(low, high, "l1") == (1 << 64) - 1
    assert share_of((1 << 80) + 1, "l1", 1 << 80) > 1 >= share_of(1 << 80, "l1", 1 << 80)
    assert share_of((1 << 80) + 1, "l2", 1 << 40) > 1


@pytest.mark.parametrize(("bad", "words"), [({"neighbours": 0}, "neighbours"), ({"rows": 1}, "rows=1")])
def test_what_cannot_be_checked_is_refused(bad, words):
    schema = schema_of("two")
    with pytest.raises(InputError, match=words):
        check(Toy, schema, public_of(schema), **{"neighbours": 10, **bad})
