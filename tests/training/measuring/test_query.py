"""The query of an evaluation: a record moves it by what is charged, no less and no more; too little noise is caught."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from draws import drawn, loss

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote
from models.worth.cover import CoverLayout
from models.worth.layout import BINS
from models.worth.paired import OTHERS, PARTS, SIZES, STEPS, share_between_steps
from models.worth.scored import ScoredLayout
from models.worth.stated import by_group, layout_of, paired_layout_of
from training.calibration.calibrate import rehearse
from training.measuring.worth.histogram import CellCounts, Evaluator, PairedCounts
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.session.session import Public, Session

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


GROUP = CategoricalFeature("g", ("m", "f"))


def query_of(kind: str, paired: bool) -> CellCounts | PairedCounts:
    """Of a model, alone or beside one that answers otherwise; `few`: in fewer bins."""
    bins, kind = (8, "binary") if kind == "few" else (BINS, kind)
    ensemble = model(kind)
    other = replace(ensemble, terms=(tuple(9 - 5 * code for code in range(WIDTH)),))
    if paired:
        return PairedCounts((ensemble, other), paired_layout_of(ensemble, other))
    return CellCounts(ensemble, layout_of(ensemble, bins))


@pytest.mark.parametrize(("kind", "paired"), [*product(KINDS, (False, True)), ("few", False)])
@pytest.mark.parametrize("relation", list(Relation))
def test_a_record_moves_the_counts_by_what_is_charged(kind, relation, paired):
    """Every record that there can be, on every rest: at most the sensitivity, which is attained."""
    query = query_of(kind, paired)
    kind = "binary" if kind == "few" else kind
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
    assert counts(rest).sum() == len(rest) * query.layout.cells_per_record
    assert counts([]).sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", list(Relation))
def test_groups_cost_nothing_more(kind, relation):
    """Every record of every group on every rest: what is charged without groups, attained; and rows that were opened
    without their groups are not counted at all.
    """
    ensemble = model(kind)
    query = CellCounts(ensemble, by_group(layout_of(ensemble), GROUP))
    alone = CellCounts(ensemble, layout_of(ensemble))
    assert query.sensitivity(relation) == alone.sensitivity(relation)
    every = [(code, answer, group) for code in range(WIDTH) for answer in ANSWERS[kind] for group in range(GROUP.bins)]

    def counts(held):
        codes, answers, groups = ([each[at] for each in held] for at in range(3))
        found = rows(kind, codes, answers)
        return query(
            Rows(
                found.bins,
                found.labels if found.classes else found.targets,
                [WIDTH],
                found.classes,
                np.array(groups, np.uint8),
            )
        )

    rest = [every[0], every[-1], every[7]]
    if relation is Relation.ADD_REMOVE:
        moved = {int(np.abs(counts([*rest, each]) - counts(rest)).sum()) for each in every}
        assert moved == {query.sensitivity(relation)}
    else:
        moved = {int(np.abs(counts([*rest, a]) - counts([*rest, b])).sum()) for a in every for b in every}
        assert max(moved) == query.sensitivity(relation)
    whole = rows(kind, [each[0] for each in every], [each[1] for each in every])
    tables = query.layout.table(counts(every))
    assert tables.sum(axis=0).tolist() == alone(whole).tolist()
    assert tables.sum(axis=1).tolist() == [len(every) // 4 * alone.layout.cells_per_record * n for n in (1, 1, 2)]
    with pytest.raises(PlanMismatch, match="without their groups"):
        query(whole)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("of", [ScoredLayout, CoverLayout])
def test_what_scores_say_is_counted_in_as_many_parts_whatever_the_record_is(relation, of):
    """Every record that there can be, on a rest: what is charged, attained."""
    votes = tuple(Vote("is", 0, code, 40 * code + 7, code % 3) for code in range(WIDTH))
    ensemble = VotingEnsemble((FEATURE,), "y", ("a", "b", "c"), votes, 0.02)
    query = CellCounts(ensemble, of(layout_of(ensemble)))

    def counts(held):
        bins = np.array([[code for code, _ in held]], np.uint8).reshape(1, -1)
        return query(Rows(bins, np.array([answer for _, answer in held], np.uint8), [WIDTH], 3))

    every, rest = [(code, answer) for code in range(WIDTH) for answer in range(3)], [(0, 1), (2, 2)]
    if relation is Relation.ADD_REMOVE:
        assert {int(np.abs(counts([*rest, each]) - counts(rest)).sum()) for each in every} == {
            query.sensitivity(relation)
        }
    else:
        moved = [int(np.abs(counts([*rest, a]) - counts([*rest, b])).sum()) for a in every for b in every]
        assert max(moved) <= query.sensitivity(relation)
    assert counts([]).sum() == 0


def test_a_record_is_shared_out_so_that_its_mean_stays():
    """Whatever its value, its parts are all there, in cells beside each other."""
    for steps, parts in ((STEPS, PARTS), (SIZES, OTHERS)):
        for value in (*steps, *np.linspace(steps[0], 1, 1001)):
            counts = share_between_steps(np.array([value]), steps, parts)
            assert counts.sum() == parts
            assert counts.min() >= 0
            assert np.ptp(np.flatnonzero(counts)) <= 1
            assert steps @ counts / parts == pytest.approx(value, abs=1 / parts)


def played(unit: Decimal, count: int, contributions: int, present: int, paired: str):
    """Of `count` releases on a table without the person, or with all their rows: whether every cell where these fall
    has as many as they add, which their presence makes e^epsilon times as likely."""
    kind = paired if paired in KINDS else "binary"
    evaluator, ensemble = Evaluator(query_of(paired or kind, paired in KINDS)), model(kind)
    classes, span, answer = ensemble.classes or None, ensemble.target_range, ANSWERS[kind][-1]
    public = Public(
        (FEATURE,), "y", classes, 100, Relation.ADD_REMOVE, Budget.of("1"), True, contributions, target_range=span
    )
    held = rows(kind, [2] * present, [answer] * present)
    added = evaluator.query(rows(kind, [2], [answer])) * contributions
    plan = rehearse(evaluator, public, unit)
    moved = added > 0
    released = drawn(lambda: evaluator.learn(Session(public, unit, plan, held)), DiscreteLaplace, count, moved)
    return (released >= added[moved]).all(axis=1)


@pytest.mark.statistical
@pytest.mark.parametrize(("contributions", "paired"), [(1, ""), (3, ""), (2, "few"), (1, "binary"), (3, "number")])
def test_the_black_box_keeps_its_promise_and_a_factor_of_two_is_caught(contributions, paired, monkeypatch):
    count, unit = 3000, Decimal(1)
    honest = played(unit, count, contributions, contributions, paired), played(unit, count, contributions, 0, paired)
    assert loss(*honest) <= 1
    draw = DiscreteLaplace.draw
    halved = lambda self, values, size: draw(DiscreteLaplace(2 * self.epsilon), values, size)  # noqa: E731
    monkeypatch.setattr(DiscreteLaplace, "draw", halved)
    broken = played(unit, count, contributions, contributions, paired), played(unit, count, contributions, 0, paired)
    assert loss(*broken) > 1
