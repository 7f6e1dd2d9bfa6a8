"""Where numbers are cut: how far a row moves the counts, what the real noise tells, what becomes of it, and when."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from draws import ALARM, refuted

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_platform.replay.tapes import moved, share_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import NumericFeature
from training.learners.base.cut_points import (
    ABOVE,
    FAINT,
    MOST_ALONE,
    MOST_BINS,
    CellCounts,
    Cutting,
    InBins,
    by_rows,
    counts_noise,
    cutting,
    evenly,
    halve_bins,
    rising,
    shared_values,
    within_part,
)
from training.learners.boosting.lazybb import LazyBB, WeightedAgreement
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.boosting.leaf_rules import one_rules
from training.learners.boosting.reweighting import Scheduled
from training.learners.parameters import learner_of, stored
from training.rows.packed.cells import Cells, grid_of
from training.rows.partitions.rows import Rows
from training.session.reach import reach
from training.session.session import Public, Rehearsal, Session

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
RUNS = 2500
SPAN = (0.0, 8.0)
NUMBER = NumericFeature("a", (0.0, 2.0, 4.0, 6.0))
GRID = grid_of(NUMBER, SPAN)
VALUES = (0.5, 3.0, 7.9, np.nan)
KINDS = [(value, label) for value in VALUES for label in (0, 1)]


def public_of(relation=ADD, records=26_000, epsilon="1", numbers=1, **changes) -> Public:
    features = tuple(NumericFeature(f"a{at}", NUMBER.edges) for at in range(numbers))
    budget = Budget.of(epsilon, "0" if changes.get("pure") else "1e-6")
    fields = {"pure": False, "spans": (SPAN,) * numbers, **changes}
    return Public(features, "y", ("no", "yes"), records, relation, budget, **fields)


@lru_cache(maxsize=1024)
def rows_of(data, features=(NUMBER,)) -> Rows:
    values = np.array([value for value, _ in data], np.float64)
    labels = np.array([label for _, label in data], np.uint8)
    cells = Cells(features, (SPAN,), lambda number: GRID.encode(values))
    return Rows(features[0].encode(values).astype(np.uint8)[None], labels, [features[0].bins], 2, cells=cells)


def neighbours(relation):
    for kept in [(), *((kind,) for kind in KINDS)]:
        yield from ((kept, (*kept, more)) for more in KINDS if relation is ADD)
        yield from (((*kept, one), (*kept, other)) for one, other in combinations(KINDS, 2) if relation is REPLACE)


BINS = (NumericFeature("a", tuple(GRID.edges[[40, 1500, 1600]].tolist())),)


def queries():
    """Counts in the parts, in single cells and in one; and a round of boosting in other bins, after every vote."""
    for norm in ("l1", "l2"):
        for of in (np.append(GRID.part, GRID.part[-1] + 1), np.arange(GRID.size), np.zeros(GRID.size, np.int64)):
            yield CellCounts(0, of, norm, 64)
    rules = one_rules(BINS)
    for pick in range(0, rules.size, 3):
        agreement = WeightedAgreement(rules, Scheduled(0.4, 0.1), (rules.vote(pick, 1),), 1, 1, public_of())
        yield InBins(agreement, BINS)


def farthest(relation, fault=nullcontext) -> float:
    """By how much of what it says a query moves between neighbours, which it may not exceed; the least of a kind."""
    worst: dict[str, float] = {}
    for query in queries():
        with fault():
            limit = query.sensitivity(relation)
        for one, other in neighbours(relation):
            share = share_of(moved(query(rows_of(one)), query(rows_of(other)), query.norm), query.norm, limit)
            assert share <= 1, f"moved {share} of {limit}"
            worst[query.norm] = max(worst.get(query.norm, 0.0), share)
    return min(worst.values())


def halved_sensitivity():
    true = CellCounts.sensitivity
    return patch.object(CellCounts, "sensitivity", lambda self, relation: true(self, relation) / 2)


@pytest.mark.slow
def test_no_row_moves_an_answer_further_than_it_says():
    """Every neighbour of up to one row over all kinds of values, missing ones too; and half of it is caught."""
    for relation in Relation:
        assert farthest(relation) > 0.98
        with pytest.raises(AssertionError, match="moved"):
            farthest(relation, halved_sensitivity)


@pytest.mark.statistical
@pytest.mark.parametrize(("relation", "one", "other"), [(ADD, (0.5,), (0.5, 3.0)), (REPLACE, (0.5, 0.5), (0.5, 3.0))])
def test_the_claim_of_the_real_draw_stands_and_a_factor_of_two_is_seen(relation, one, other):
    """As a learner releases it, through a session's plan. False alarm: 1e-4."""
    of = np.append(GRID.part // 16, 9)  # few: thousands are drawn of each
    place, left = (int(of[GRID.encode(np.array([value]))[0]]) for value in (3.0, 0.5))
    public = public_of(relation)

    def seen(values, epsilon) -> int:
        rows, query, told = rows_of(tuple((value, 0) for value in values)), CellCounts(0, of), 0
        rehearsal = Rehearsal(public, Decimal(1))
        for _ in range(RUNS):
            rehearsal.release(query, DiscreteLaplace(epsilon))
        session = Session(public, Decimal(1), rehearsal.plan, rows)
        for _ in range(RUNS):
            noisy = session.release(query, DiscreteLaplace(epsilon))
            told += bool(noisy[place] >= 1 and (relation is ADD or noisy[left] <= 1))
        return told

    sides = [seen(values, Decimal(1)) for values in (other, one)]
    assert not refuted(*sides, 1.0, RUNS), f"{sides} of {RUNS}: a false alarm has probability {ALARM}"
    assert refuted(*[seen(values, Decimal(2)) for values in (other, one)], 1.0, RUNS)


@pytest.mark.parametrize(("pure", "records"), [(False, 10**6), (True, 10**6), (False, 700)])
@pytest.mark.parametrize("relation", list(Relation))
def test_the_plan_says_two_counts_of_each_number_and_what_they_cost(relation, pure, records):
    """First of all, a twentieth of the budget about, a tenth where it is faint, and the sensitivity of all rows of a
    person.
    """
    rows = 3 if relation is ADD else 1
    faint = int(FAINT) * rows * (1 if relation is ADD else 2)
    least, most = (0.03, 0.08) if records > faint else (0.08, 0.14)
    public = public_of(relation, records, numbers=3, pure=pure, contributions=rows)
    plan = LazyBB(rounds=200, cuts="found").recipe(public).plan
    counts, count = plan.runs[0]
    assert (counts.purpose, counts.mechanism, count) == ("count rows per fine cell", "discrete-laplace", 6)
    assert counts.sensitivity == rows * reach(1, 0, relation, "l1")
    prices = [(n * float(release.event.pure) if pure else n * float(release.event.squared_width))
              for release, n in plan.runs]  # fmt: skip
    assert least < prices[0] / sum(prices) < most
    without = LazyBB(rounds=200, cuts="even").recipe(public).plan
    assert "count rows per fine cell" not in [release.purpose for release, _ in without.runs]
    assert [r.purpose for r, _ in plan.runs[1:]] == [r.purpose for r, _ in without.runs]


# ---- what becomes of the counts --------------------------------------------------------------------------------------


def exact(values, noise=0.0, seed=0, grid=GRID):
    """A count of these values, with noise."""
    codes, random = grid.encode(np.asarray(values, np.float64)), np.random.default_rng(seed)

    def counted(of):
        return np.bincount(of[codes], minlength=int(of.max()) + 1) + random.laplace(0, noise, int(of.max()) + 1) * (
            noise > 0
        )

    return counted


def test_bins_have_about_as_many_rows_and_single_values_stand_alone():
    random = np.random.default_rng(1)
    values = np.concatenate([random.uniform(3, 3.2, 6000), np.full(4000, 0.0)])
    edges = np.array(by_rows(GRID, 32, exact(values), 0.0))
    assert 31 <= len(edges) <= 33
    assert (np.diff(edges) > 0).all()
    assert np.isin(edges, GRID.edges).all()
    counts = np.bincount(np.searchsorted(edges, values))
    assert counts[0] == 4000, "what is at the end of the range is told from all else"
    assert (counts[1:] > 0).sum() >= 15
    assert counts[1:].max() <= 1000


def test_noise_spoils_little_even_where_rows_fill_a_hundredth_of_the_range():
    values = np.random.default_rng(2).normal(4, 0.02, 10_000)
    for seed in range(5):
        edges = np.array(by_rows(GRID, 32, exact(values, noise=40, seed=seed), 40 * 2**0.5))
        assert np.bincount(np.searchsorted(edges, values)).max() < 2500, "eight bins at least hold the rows"


@pytest.mark.parametrize(("span", "middle", "spread"), [((1e3, 7e5), 4300, 40), ((-1e9, 1e9), -700, 300)], ids=str)
def test_a_range_that_is_much_too_wide_hides_no_rows(span, middle, spread):
    """Readings of 1e5 beside 4,300, or a range a million times too wide, which one cell or two held before."""
    number = NumericFeature("a", (span[0], (span[0] + span[1]) / 2))
    grid, values = grid_of(number, span), np.random.default_rng(5).normal(middle, spread, 12_000)
    for seed in range(3):
        edges = by_rows(grid, 32, exact(values, noise=100, seed=seed, grid=grid), 100 * 2**0.5)
        most = np.bincount(np.searchsorted(edges, values)).max()
        assert most < 2_000, "a dozen bins at least hold the rows"


def test_where_nothing_is_told_the_range_is_cut_evenly():
    """As in every rehearsal, in as many bins as there may be: whether a model fits its files is judged by these."""
    blank = by_rows(GRID, 64, lambda of: np.zeros(int(of.max()) + 1), 1.0)
    assert blank == evenly(GRID, 64 + 2 * MOST_ALONE)
    widths = np.diff([*blank, SPAN[1]])
    assert widths.max() < 3 * SPAN[1] / len(blank)
    assert by_rows(GRID, 64, lambda of: np.full(int(of.max()) + 1, -9.0), 1.0) == blank


@pytest.mark.parametrize("span", [(0.0, 5e-323), (0.0, 1e-300), (-1e305, 1e305), (0, 1)], ids=str)
def test_whatever_comes_out_is_a_feature(span):
    """Of ranges of nearly no width, and of counts of any size."""
    grid, random = grid_of(NumericFeature("a", (span[0],)), span), np.random.default_rng(3)
    for scale in (1.0, 1e6, 1e15):
        for bins, noise in ((2, scale), (32, scale), (255, scale), (2, 0.0), (255, 0.0)):
            edges = by_rows(grid, bins, lambda of: np.rint(random.normal(0, scale, int(of.max()) + 1)), noise)  # noqa: B023
            assert 1 <= len(edges) < bins + 2 * MOST_ALONE
            assert NumericFeature("a", edges).bins <= MOST_BINS + 1


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_a_value_that_many_rows_share_has_a_bin_of_its_own(noise):
    """Between smooth neighbours, in the empty, and beside one that is nearly as common; what is smooth has none."""
    random = np.random.default_rng(6)
    common = {1.5: 900, 5.25: 400, 5.5: 600, 7.0: 300}
    values = np.concatenate([random.uniform(1, 2, 20_000), *(np.full(n, value) for value, n in common.items())])
    edges = np.array(by_rows(GRID, 16, exact(values, noise / 2**0.5, seed=7), noise))
    bins = np.searchsorted(edges, values)
    for value, n in common.items():
        inside = values[bins == np.searchsorted(edges, value)]
        assert (inside == value).sum() == n
        assert inside.size < 1.1 * n + 20


def test_what_chance_among_rows_makes_does_not_stand_alone():
    random = np.random.default_rng(8)
    assert shared_values(random.laplace(0, 30, 4000), 10.0).size == MOST_ALONE, "they are never more"
    flat = [shared_values(random.poisson(200, 4000).astype(float), 5.0).size for _ in range(5)]
    assert max(flat) == 0, "three times its neighbours, not chance among rows"
    spike = np.zeros(100)
    spike[50] = ABOVE * 10
    assert shared_values(spike, 10.0).size == 0
    spike[50] += 1
    assert shared_values(spike, 10.0).tolist() == [50]


def test_whole_numbers_are_cut_once_between_two():
    """Each of nine values fills one cell among hundreds that are empty: no bin between two of them stays empty."""
    values = np.repeat(np.arange(0.0, 8.5), 500)
    edges = np.array(by_rows(GRID, 8, exact(values), 0.0))
    counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    assert sorted(counts[counts > 0]) == [500] * 9
    assert (counts == 0).sum() <= 7, "no more than the cuts of the halving"


def test_all_bins_together_are_told_apart_by_a_byte():
    values = np.repeat(GRID.edges[40:4000:130], 300)
    assert 200 < len(by_rows(GRID, MOST_BINS, exact(values, 1.0), 1.4)) < MOST_BINS


def test_of_a_part_noise_tells_nothing_and_rows_tell_where_they_are():
    random, even = np.random.default_rng(10), np.arange(1, 33) / 32
    moved = [np.abs(within_part(random.normal(10, 50, 32), 320.0, 50.0) - even).max() for _ in range(20)]
    assert np.mean(moved) < 0.15
    raw = [np.abs(within_part(random.normal(10, 50, 32), 320.0, 0.0) - even).max() for _ in range(20)]
    assert np.mean(raw) > 0.3, "as it is without the noise in mind"
    counts = np.zeros(32)
    counts[20] = 5000
    assert within_part(counts + random.normal(0, 50, 32), 5000.0, 50.0)[[19, 20]] == pytest.approx([0, 1], abs=0.06)
    assert within_part(np.zeros(4), 0.0, 1.0).tolist() == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("relation", list(Relation))
def test_the_noise_that_cuts_are_found_by_is_the_noise_of_the_draw(relation):
    """Of a person's rows too: the deviation that the arithmetic has in mind, against what a session adds."""
    query, law = CellCounts(0, np.arange(GRID.size)), DiscreteLaplace(Decimal("0.5"))
    public = public_of(relation, contributions=3 if relation is ADD else 1)
    rehearsal = Rehearsal(public, Decimal(1))
    rehearsal.release(query, law)
    noisy = Session(public, Decimal(1), rehearsal.plan, rows_of(())).release(query, law)
    assert np.std(noisy) == pytest.approx(counts_noise(public, law), rel=0.2)


def test_running_sums_never_fall():
    random = np.random.default_rng(4)
    for _ in range(50):
        found = rising(random.normal(1, 20, 64))
        assert (np.diff(found) >= 0).all()
        assert found[0] >= 0
    assert rising(np.arange(5.0)).tolist() == [0, 1, 3, 6, 10]
    assert halve_bins(np.arange(1, GRID.even.size + 1), GRID, 1, GRID.even) == ()


# ---- when ------------------------------------------------------------------------------------------------------------


def where(public, **given):
    return LazyBB(**given).cutting_of(public)


def test_the_public_rule_and_what_parameters_say():
    least = 250
    assert where(public_of(records=least - 1)) == Cutting()
    assert where(public_of(records=least)) == Cutting("found", 32)
    assert where(public_of(REPLACE, records=2 * least - 1)) == Cutting()
    assert where(public_of(records=2 * least - 1, numbers=4)) == Cutting()
    assert where(public_of(records=3 * least - 1, contributions=3)) == Cutting()
    assert where(public_of(records=16_000)) == Cutting("found", 64)
    assert where(public_of(records=9), bins=50) == Cutting("even", 50)
    assert where(public_of(records=9), cuts="found") == Cutting("found", 32)
    assert where(public_of(), cuts="declared") == where(public_of(spans=())) == Cutting()
    for given in ({"cuts": "found"}, {"cuts": "even"}, {"bins": 9}):
        with pytest.raises(InputError, match="fine cells"):
            LazyBB(**given).check(public_of(spans=()))
    for given in ({"cuts": "declared", "bins": 9}, {"cuts": "x"}, {"bins": 1}, {"bins": 256}, {"bins": True}):
        with pytest.raises(InputError):
            LazyBB(**given).check(public_of())
    assert cutting(public_of(), 1e9, 255, "auto", None) == Cutting("found", 255)


def test_a_request_of_before_is_the_same_request():
    assert not {"cuts", "bins"} & stored(learner_of("lazybb")).keys()
    assert stored(learner_of("lazybb", {"cuts": "even", "bins": 9}))["bins"] == 9
    assert stored(learner_of("lazybb", stored(learner_of("lazybb")))) == stored(learner_of("lazybb"))


@pytest.mark.parametrize("learner", [LazyBB, LazyBBTree])
def test_of_the_same_seedless_draws_the_model_is_in_the_bins_that_were_found(learner):
    """On rows that lie in a fiftieth of the range: declared cuts tell nothing, and found ones all."""
    random = np.random.default_rng(5)
    values = random.normal(4.7, 0.05, 3000)
    rows = rows_of(tuple(zip(values, (values > 4.7).astype(int), strict=True)))
    public = replace(public_of(records=3000, epsilon="8"), features=(NUMBER,))
    right = {}
    for cuts in ("declared", "found"):
        made = learner(rounds=20, cuts=cuts)
        recipe = made.recipe(public)
        session = Session(public, recipe.unit, recipe.plan, rows)
        ensemble = made.learn(session)
        assert session.close() == recipe.plan
        right[cuts] = float((ensemble.predict({"a": values}) == np.where(values > 4.7, "yes", "no")).mean())
    assert right["found"] > 0.95 > 0.7 > right["declared"], right
