"""The query of an evaluation: a record moves it by what is charged, no less and no more; too little noise is caught."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from accountant.budget import Budget, Relation
from accountant.mechanisms import DiscreteLaplace
from models.features import CategoricalFeature
from models.forms.additive import AdditiveEnsemble
from models.worth.layout import Layout
from training.calibrate import rehearse
from training.evaluation.histogram import CellCounts, Evaluator
from training.rows.rows import TARGET_GRID, Rows
from training.session import Public, Session

FEATURE = CategoricalFeature("x", ("a", "b", "c"))
WIDTH = FEATURE.bins


def model(kind: str) -> AdditiveEnsemble:
    classes = ("no", "yes") if kind == "binary" else ()
    terms = (tuple(7 * code - 9 for code in range(WIDTH)),)
    span = (0.0, 4.0) if kind == "number" else None
    return AdditiveEnsemble((FEATURE,), "y", classes, span, 0.1, 0, terms, (), ())


def rows(kind: str, codes, answers) -> Rows:
    bins = np.array([codes], np.uint8).reshape(1, -1)
    if kind == "number":
        return Rows(bins, np.array(answers, np.int32), [WIDTH], 0)
    return Rows(bins, np.array(answers, np.uint8), [WIDTH], 2)


ANSWERS = {"binary": [0, 1], "number": [-TARGET_GRID, 0, 12345, TARGET_GRID]}
KINDS = ["binary", "number"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", list(Relation))
def test_a_record_moves_the_counts_by_what_is_charged(kind, relation):
    """Every record that there can be, on every rest: at most the sensitivity, which is attained."""
    ensemble = model(kind)
    query = CellCounts(ensemble, Layout(ensemble.classes, ensemble.link, ensemble.target_range))
    records = [(code, answer) for code in range(WIDTH) for answer in ANSWERS[kind]]
    rest = [(0, ANSWERS[kind][0]), (2, ANSWERS[kind][-1]), (1, ANSWERS[kind][0])]

    def counts(held):
        return query(rows(kind, [code for code, _ in held], [answer for _, answer in held]))

    if relation is Relation.ADD_REMOVE:
        moved = [np.abs(counts([*rest, each]) - counts(rest)).sum() for each in records]
        assert set(moved) == {query.sensitivity(relation)}
    else:
        moved = [np.abs(counts([*rest, a]) - counts([*rest, b])).sum() for a in records for b in records]
        assert max(moved) == query.sensitivity(relation)
    assert counts(rest).sum() == len(rest) * query.layout.counted
    assert counts([]).sum() == 0


def played(unit: Decimal, count: int, contributions: int, present: int):
    """`count` releases on a table without the person or with all their rows, in the cell where these fall."""
    ensemble = model("binary")
    evaluator = Evaluator(ensemble, Layout(ensemble.classes, ensemble.link))
    public = Public((FEATURE,), "y", ensemble.classes, 100, Relation.ADD_REMOVE, Budget.of("1"), True, contributions)
    held = rows("binary", [2] * present, [1] * present)
    at = int(evaluator.query(rows("binary", [2], [1])).argmax())
    plan = rehearse(evaluator, public, unit)
    return np.array([evaluator.learn(Session(public, unit, plan, held))[at] for _ in range(count)])


def loss(with_it, without) -> float:
    """The least log-ratio that the frequencies of a count above the middle allow for, at 1e-4 each."""
    from scipy.stats import beta

    above, below = int((with_it > 1).sum()), int((without > 1).sum())
    low = beta.ppf(1e-4, above, len(with_it) - above + 1)
    high = beta.ppf(1 - 1e-4, below + 1, len(without) - below)
    return float(np.log(low / high))


@pytest.mark.statistical
@pytest.mark.parametrize("contributions", [1, 3])
def test_the_black_box_keeps_its_promise_and_a_factor_of_two_is_caught(contributions, monkeypatch):
    count, unit = 3000, Decimal(1)
    honest = played(unit, count, contributions, contributions), played(unit, count, contributions, 0)
    assert loss(*honest) <= 1
    drawn = DiscreteLaplace.draw
    halved = lambda self, values, size: drawn(DiscreteLaplace(2 * self.epsilon), values, size)  # noqa: E731
    monkeypatch.setattr(DiscreteLaplace, "draw", halved)
    broken = played(unit, count, contributions, contributions), played(unit, count, contributions, 0)
    assert loss(*broken) > 1
