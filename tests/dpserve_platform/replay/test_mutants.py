"""Mutants: our learners and small ones, each with one fault that privacy does not survive. The check refuses them all.

`python tests/dpserve_platform/replay/test_mutants.py` prints the table of docs/privacy/others.md.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / "helpers"), str(Path(__file__).parents[3])]
from toy_learners import AFTERWARDS, COUNTING, WHOLE, Lying, asking, spying

from dpserve_platform.replay import subjects
from dpserve_platform.replay.report import KINDS, Report, check
from dpserve_verify.privacy.budget import Budget, Relation
from training.learners.parameters import learner_of
from training.rows.schema.schema import parse_schema
from training.session.session import Public

NEIGHBOURS = 300  # at most: a check ends at the first fault
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
LEARNERS = "training.learners."
# Query, learner, its parameters, the target: its sensitivity is halved, or its answer doubled where it is 1.
OURS = {
    "boosting.lazybb:WeightedAgreement": ("lazybb", {"rounds": 4}, "two"),
    "boosting.lazybb:VoteScores": ("lazybb", {"rounds": 4}, "two"),
    "base.cut_points:CellCounts": ("lazybb", {"rounds": 4, "cuts": "found"}, "two"),
    "base.orders:ClassCounts": ("lazybb", {"rounds": 4, "order": "found"}, "two"),
    "boosting.tree_queries:LeafRules": ("lazybb-tree", {"rounds": 4}, "two"),
    "boosting.tree_queries:SplitGains": ("lazybb-tree", {"rounds": 4, "criterion": "gini"}, "two"),
    "boosting.tree_queries:LeafVotes": ("lazybb-tree", {"rounds": 4, "leaf": "vote"}, "two"),
    "boosting.noisy_leaves:ClassWeights": ("forest", {"trees": 3}, "two"),
    "boosting.noisy_leaves:LeafLabels": ("forest", {"trees": 3, "leaf": "label"}, "two"),
    "boosting.bdpe:SplitRisks": ("bdpe", {"rounds": 4}, "two"),
    "ebm.queries:BinCounts": ("ebm", {"epochs": 2}, "two"),
    "ebm.queries:LeafSums": ("ebm", {"epochs": 2}, "two"),
    "ebm.queries:JointCounts": ("ebm", {"epochs": 2, "pairs": 2}, "two"),
    "ebm.queries:PairScores": ("ebm", {"epochs": 2, "pairs": 2}, "two"),
    "ebm.queries:SquareSum": ("ebm", {"epochs": 2}, "number"),
    "ebm.convex:ConvexLoss": ("ebm", {"engine": "convex"}, "two"),
    "ebm.queries:LeafSums of vectors": ("ebm", {"epochs": 2}, "three"),
    "ebm.queries:PairScores of vectors": ("ebm", {"epochs": 2, "pairs": 2}, "three"),
}
TARGETS = {"two": 'classes: ["no", "yes"]', "three": "classes: [a, b, c]", "number": "range: [-3, 50]"}
KIND = {"noise of its own": "mechanism", "floats": "answer", "as many answers as values there are": "answer"}
TOYS = {
    **{name: spying(after) for name, after in AFTERWARDS.items()},
    **{fault: asking(Lying(fault=fault)) for fault in COUNTING},
    **WHOLE,
}


def judged(make: Any, target: str = "two", relation: Relation = ADD, contributions: int = 1, delta="0") -> Report:
    schema = parse_schema(subjects.SCHEMA.replace(TARGETS["two"].encode(), TARGETS[target].encode())).question(None)
    public = Public.of(schema, relation, Budget.of("2", delta), delta == "0", contributions)
    return check(make, schema, public, NEIGHBOURS)


def halved(name: str) -> Report:
    """The report on a learner of ours, with one query's sensitivity halved, or its answer doubled."""
    module, _, kind = name.partition(":")
    query = getattr(import_module(LEARNERS + module), kind.split()[0])
    learner, parameters, target = OURS[name]
    says, answers = query.sensitivity, query.__call__
    half = lambda self, relation: max(1, says(self, relation) // 2)  # noqa: E731
    twice = lambda self, rows: answers(self, rows) * (2 if says(self, ADD) == 1 else 1)  # noqa: E731
    more = {} if kind == "ConvexLoss" else {"__call__": twice}
    with patch.multiple(query, sensitivity=half, **more):
        return judged(
            lambda: learner_of(learner, parameters), target, delta="0.000001" if kind != "SplitRisks" else "0"
        )


def both_relations() -> Report:
    return judged(asking(Lying(fault="a constant for both relations")), relation=REPLACE)


def one_row_of_many() -> Report:
    """A person's rows are many, and the sensitivity is that of one."""
    with patch("training.session.session.sensitivity_of", lambda query, public: query.sensitivity(public.relation)):
        return judged(asking(Lying()), contributions=4)


def table() -> list[tuple[str, Report]]:
    """Every mutant, in words, and what the check said."""
    made = [(f"{OURS[name][0]}: half of the sensitivity of {name.partition(':')[2]}", halved(name)) for name in OURS]
    made += [(f"small: {name}", judged(kind)) for name, kind in TOYS.items()]
    made.append(("small: one sensitivity for both relations", both_relations()))
    return [*made, ("small: a person's rows are priced as one", one_row_of_many())]


@pytest.mark.parametrize("name", OURS)
def test_half_of_a_sensitivity_of_ours_is_refused(name):
    report = halved(name)
    assert [fault.kind for fault in report.faults] == ["sensitivity"], report.to_json()


@pytest.mark.parametrize("name", TOYS)
def test_a_fault_of_a_published_kind_is_refused(name):
    report = judged(TOYS[name])
    assert not report.ok, report.to_json()
    assert report.faults[0].kind == KIND.get(name, report.faults[0].kind)
    assert report.faults[0].kind in KINDS


def test_a_person_and_a_replaced_row_are_not_one_row_more():
    assert both_relations().faults[0].kind == one_row_of_many().faults[0].kind == "sensitivity"


def test_there_are_many():
    assert len(OURS) + len(TOYS) + 2 >= 50


if __name__ == "__main__":
    print("| mutant | refused for | neighbours |\n|---|---|---|")
    for words, report in table():
        kind = report.faults[0].kind if report.faults else "**nothing**"
        print(f"| {words} | {kind} | {report.neighbours} |")
