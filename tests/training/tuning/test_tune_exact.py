"""Private tuning against exact laws: whole selections over small data, ceilings over every order, and the number of
runs that nobody is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from exact_laws import log_sum, neighbours, public_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from selection_laws import law_of_one_run, law_of_the_best

from accountant.errors import PlanMismatch
from dpserve_verify.privacy.budget import NANO, Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.renyi import compose_pure, compose_rdp
from dpserve_verify.privacy.selection import Poisson, logarithmic
from training.learners.boosting.lazybb import WeightedAgreement
from training.requests import TuningRequest
from training.session.session import Rehearsal, Session
from training.tuning import selecting
from training.tuning.ceilings import Ceiling
from training.tuning.selecting import CorrectRows, Outcome, most_runs
from training.tuning.tune import Tuned, tuned_of

pytestmark = pytest.mark.slow

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
SIZES = {ADD: range(1, 4), REPLACE: [3]}
SLACK = 1e-6
ORDERS = (1.01, 1.5, 2, 4, 8.9, 17.8, 35.6, 64, 500, 4000)
FIXED = {"threshold": False, "rate": "0.1", "reweighting": "scheduled"}
DATA = [(0, 0), (0, 1), (1, 1), (1, 1)]


def tuned(pure: bool, runs: int | str = 5, grid=None) -> Tuned:
    return tuned_of("lazybb", FIXED, TuningRequest(grid or {"rounds": [1, 2]}, runs), pure)


def public(relation: Relation, pure: bool, epsilon: str = "2"):
    return replace(public_of(relation, 4, pure), budget=Budget.of(epsilon, "0" if pure else "0.01"))


# ---- the exact law of the whole job ----------------------------------------------------------------------------------


def worst(relation: Relation, pure: bool, runs: int, best_of=law_of_the_best) -> tuple[float, float, float]:
    """Over all neighbours: the largest loss, and the pure prices of one run and of all, which it may not exceed; with
    delta > 0 the same pairs are held against the claim and against the Renyi price."""
    job, about = tuned(pure, runs), public(relation, pure)
    recipe = job.recipe(about)
    best, event = job.best_of(about, recipe.unit), recipe.plan[0].event

    @cache
    def law(data):
        return best_of(job.distribution, law_of_one_run(best, rows_of(data), 5)[0])

    most = 0.0
    for size in SIZES[relation]:
        for pair in neighbours(relation, size):
            p, q = (law(tuple(sorted(data))) for data in pair)
            held = np.isfinite(p) & np.isfinite(q)
            most = max(most, float(np.abs(p[held] - q[held]).max()))
            for one, other in ((p, q), (q, p)):
                check(one[held], other[held], recipe.claim, event)
    once = compose_pure(event.runs)
    return most, once / NANO if once else 0.0, float(event.pure or 0)


def check(p, q, claim, event) -> None:
    delta = float(np.maximum(np.exp(p) - np.exp(float(claim.epsilon) + q), 0).sum())
    assert delta <= float(claim.delta) + 1e-12, f"delta {delta}, claimed {claim.delta}"
    for order in (1.5, 4, 16):
        found = log_sum(order * p + (1 - order) * q) / (order - 1)
        assert found <= event.rdp(order), f"Renyi {found} at {order}, claimed {event.rdp(order)}"


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("runs", [1, 5, 64])
def test_no_loss_exceeds_the_pure_claim(relation, runs):
    loss, once, whole = worst(relation, True, runs)
    assert whole == pytest.approx(2 * once, abs=1e-6)
    assert 0.85 * once <= loss <= whole + SLACK
    if runs == 1:  # the law that always runs once: its loss is that of a run
        assert loss <= once + SLACK


@pytest.mark.parametrize("runs", [1, 8])
def test_no_delta_exceeds_the_approximate_claim(runs):
    worst(ADD, False, runs)


def fixed_number(count: int):
    """The bug that random numbers of runs are there for: as many runs each time."""

    def law(distribution, run):
        levels = np.exp(log_sum(run))
        reached = np.cumsum(levels)
        below = reached - levels
        chance = sum(reached**j * below ** (count - 1 - j) for j in range(count))  # (r^n - b^n) / (r - b)
        with np.errstate(divide="ignore"):
            return (run + np.log(chance)).ravel()

    return law


def test_a_fixed_number_of_runs_breaks_the_claim():
    with pytest.raises(AssertionError, match="claimed"):
        worst(REPLACE, True, 64, fixed_number(64))


def test_half_the_sensitivity_breaks_what_a_run_is_charged(monkeypatch):
    true = WeightedAgreement.sensitivity
    monkeypatch.setattr(WeightedAgreement, "sensitivity", lambda *arguments: true(*arguments) / 2)
    with pytest.raises(AssertionError, match="claimed"):
        worst(ADD, True, 1)  # the law halves what the query says; prices never read it


def test_a_score_of_half_the_noise_breaks_the_score_s_price(monkeypatch):
    """A run that releases nothing but its score."""
    ceiling = Ceiling(PureDp(Decimal(1)), 1)
    for sensitivity, holds in ((1, True), (0.5, False)):
        monkeypatch.setattr(CorrectRows, "sensitivity", lambda self, relation, s=sensitivity: s)
        query, losses = CorrectRows(tuned(True).learners[0].learn(rehearsal(ADD)), "l1"), []
        mechanism = ceiling.score(Fraction(1, 2))
        for one, other in neighbours(ADD, 3):
            moved = abs(int(query(rows_of(one))[0]) - int(query(rows_of(other))[0]))
            losses.append(moved * float(mechanism.epsilon) / query.sensitivity(ADD))
        assert (max(losses) <= float(mechanism.event.epsilon)) is holds


def rehearsal(relation: Relation) -> Rehearsal:
    return Rehearsal(public_of(relation), Decimal(1))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_row_moves_the_score_by_at_most_one(relation):
    for votes in range(4):
        query = CorrectRows(tuned(True, grid={"rounds": [1, votes + 2]}).learners[1].learn(rehearsal(relation)), "l1")
        moves = {
            abs(int(query(rows_of(one))[0]) - int(query(rows_of(other))[0])) for one, other in neighbours(relation, 3)
        }
        assert moves == {0, 1}


def test_the_score_counts_what_the_ensemble_tells_right():
    ensemble = tuned(True).learners[1].learn(rehearsal(ADD))
    data = [(0, 0)] * 3 + [(1, 0)] * 2 + [(0, 1)] + [(1, 1)] * 5 + [(2, 1)] * 2
    told = ensemble.predict({"x": [[0.0, 1.0, np.nan][code] for code, _ in data]})
    expected = sum(answer == ("no", "yes")[label] for answer, (_, label) in zip(told, data, strict=True))
    assert CorrectRows(ensemble, "l1")(rows_of(data)).tolist() == [expected]


# ---- what the code draws ---------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_what_is_played_follows_the_exact_law(monkeypatch):
    """False alarm: 2e-6. Which setting, and how high a score, of 1,000 jobs, without the runs that are forgotten."""
    monkeypatch.setattr(selecting, "most_runs", lambda law: 1)
    job, about, draws = tuned(False, 2), public(ADD, False), 1000
    best, rows = job.best_of(about, job.recipe(about).unit), rows_of(DATA)
    run, owners, first = law_of_one_run(best, rows, len(DATA))
    law = np.exp(law_of_the_best(job.distribution, run))
    none, law = law[0], law[1:].reshape(run.shape)
    seen = [best.play(rows, lambda done, total: None) for _ in range(draws)]
    counts = Counter(outcome.setting for outcome in seen)
    chances = np.array([none, *(law[owners == index].sum() for index in (0, 1))])
    assert chisquare([counts[key] for key in (None, 0, 1)], chances / chances.sum() * draws).pvalue > 1e-6
    reached = np.cumsum(law.sum(axis=0)) / law.sum()
    cuts = [int(np.searchsorted(reached, share)) for share in (0.2, 0.4, 0.6, 0.8)]
    bins = np.digitize([outcome.score - first for outcome in seen if outcome.setting is not None], cuts, right=True)
    expected = np.diff([0.0, *(reached[cut] for cut in cuts), 1.0]) * len(bins)
    assert chisquare(np.bincount(bins, minlength=5), expected).pvalue > 1e-6


class Drawn:
    """A selection whose runs are made up: their scores are told, and how many were made is noted."""

    def __init__(self, monkeypatch, runs: int, scores) -> None:
        about = public(ADD, False)
        job = tuned(False, 2)
        self.best, self.made, self.told = job.best_of(about, job.recipe(about).unit), [], []
        monkeypatch.setattr(selecting, "draw_runs", lambda distribution: runs)
        monkeypatch.setattr(selecting.BestOf, "_run", lambda *_: self.made.append(1) or next(scores))
        self.outcome = self.best.play(rows_of(DATA), lambda done, total: self.told.append((done, total)))


@pytest.mark.parametrize("runs", [0, 1, 3, 15, 40])
def test_the_best_of_the_runs_drawn_is_kept_and_nothing_else_depends_on_their_number(monkeypatch, runs):
    """The higher scores come later: a run too many would show."""
    outcomes = [Outcome(0, None, score) for score in (5, 2, 7, 7, 6, *range(8, 100))]
    found = Drawn(monkeypatch, runs, iter(outcomes))
    expected = max(outcomes[:runs], key=lambda each: each.score) if runs else None
    assert found.outcome is expected if runs else found.outcome.setting is None
    most = found.best.most
    assert 3 < most < 40
    assert len(found.made) == max(runs, most)
    assert found.told == [(most, most)]  # nobody is told when a run ends


def test_of_equal_scores_the_first_stands(monkeypatch):
    outcomes = [Outcome(0, None, 3), Outcome(1, None, 3)]
    assert Drawn(monkeypatch, 2, iter(outcomes + outcomes * 50)).outcome is outcomes[0]


@pytest.mark.parametrize(
    "law", [Poisson(Decimal(1)), Poisson(Decimal(8)), Poisson(Decimal(64)), logarithmic(Decimal("0.05"))]
)
def test_more_runs_than_are_made_are_rare(law):
    """By the definition of each law: beyond `most` at most 1e-9, beyond one less more than that."""
    if isinstance(law, Poisson):
        from scipy.stats import poisson

        after = lambda count: poisson.sf(count, float(law.mean))  # noqa: E731
    else:
        from scipy.stats import logser

        after = lambda count: logser.sf(count, float(1 - law.gamma))  # noqa: E731
    assert after(most_runs(law)) < 1e-9 <= after(most_runs(law) - 1)


def test_every_setting_is_drawn_alike():
    counts = Counter(selecting.FAIR.draw(np.zeros(3, np.int64), 1) for _ in range(3000))
    assert chisquare([counts[index] for index in range(3)]).pvalue > 1e-6


# ---- ceilings --------------------------------------------------------------------------------------------------------


def plan_of(*events) -> Plan:
    return Plan(tuple((Release("x", "m", "n", 1, event), count) for event, count in events))


sizes = st.integers(1, 2 * 10**9).map(lambda nano: Decimal(nano) / NANO)
bounded = st.tuples(st.builds(BoundedRange, sizes), st.integers(1, 300))
pure = st.tuples(st.builds(PureDp, sizes), st.integers(1, 300))
normal = st.tuples(st.builds(Gaussian, sizes.map(lambda size: size + Decimal("0.1"))), st.integers(1, 300))
plans = st.lists(st.one_of(bounded, pure, normal), min_size=1, max_size=4).map(lambda events: plan_of(*events))
ceilings = st.one_of(bounded, pure.map(lambda pair: (pair[0], 1)), normal).map(lambda pair: Ceiling(*pair))


@settings(max_examples=400)
@given(plans, ceilings)
def test_what_is_below_a_ceiling_costs_less_at_every_order(plan, ceiling):
    if ceiling.load(plan) <= 1:
        held(plan, ceiling)


def held(plan: Plan, ceiling: Ceiling) -> None:
    for order in ORDERS:
        found = sum(count * event.rdp(order) for event, count in plan.events)
        assert found <= ceiling.count * ceiling.event.rdp(order) * (1 + 1e-9) + 1e-11  # figures are right to 1e-13 each
    known, most = compose_pure(plan.events), compose_pure([(ceiling.event, ceiling.count)])
    assert most is None or (known is not None and known <= most)


@pytest.mark.parametrize("order", [1.01, 2, 17.8, 500])
def test_wide_intervals_cost_less_for_their_square(order):
    """The lemma: Renyi figure / width^2 falls with the width, for bounded range and for pure DP."""
    widths = [Decimal(j) / 50 for j in range(1, 300, 7)]
    for kind in (BoundedRange, PureDp):
        figures = [kind(width).rdp(order) / float(width) ** 2 for width in widths]
        assert all(a >= b * (1 - 1e-9) for a, b in pairwise(figures))


def test_a_plan_above_the_ceiling_costs_more_somewhere():
    """So the test above could fail: half as many releases of twice the width have twice the square."""
    ceiling, plan = Ceiling(BoundedRange(Decimal("0.1")), 10), plan_of((BoundedRange(Decimal("0.2")), 5))
    assert ceiling.load(plan) == 2
    assert compose_rdp(plan.events, 2) > compose_rdp([(ceiling.event, ceiling.count)], 2)
    assert Ceiling(BoundedRange(Decimal("0.1")), 10).load(plan_of((BoundedRange(Decimal("0.01")), 11))) > 1
    assert ceiling.load(plan_of((Gaussian(Decimal(1000)), 1))) == float("inf")


# ---- settings and sessions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize(
    "grid", [{"rounds": [1, 2, 50]}, {"rate": ["0.1", "1"]}, {"threshold": ["true", "false"], "rounds": [3, 30]}]
)
def test_every_setting_is_below_what_a_run_is_charged_and_near_it(pure, grid):
    fixed = {key: value for key, value in FIXED.items() if key not in grid}
    job, about = tuned_of("lazybb", fixed, TuningRequest(grid), pure), public(ADD, pure)
    recipe = job.recipe(about)
    best = job.best_of(about, recipe.unit)
    for setting in best.settings:
        *learnt, score = (setting.plan[index] for index in range(len(setting.plan)))
        assert score.event == best.score.event
        assert score.purpose == CorrectRows.purpose
        assert 0.97 <= best.ceiling.load(Plan.of(learnt)) <= 1
    charged = recipe.plan[0].event.runs
    assert charged[0] == (best.ceiling.event, best.ceiling.count)
    assert charged[-1][0] == best.score.event
    assert 0.999 * float(about.budget.epsilon) <= float(recipe.claim.epsilon) <= float(about.budget.epsilon)


def test_contributions_of_a_person_widen_the_score(monkeypatch):
    about = replace(public(ADD, False), contributions=3)
    job = tuned(False)
    best = job.best_of(about, job.recipe(about).unit)
    assert {setting.plan[len(setting.plan) - 1].sensitivity for setting in best.settings} == {3}


def test_a_selection_off_the_plan_raises_before_anything_is_drawn(monkeypatch):
    about, job = public(ADD, False), tuned(False)
    recipe = job.recipe(about)
    monkeypatch.setattr(selecting, "draw_runs", lambda *_: pytest.fail("drawn"))
    session = Session(about, recipe.unit * 2, recipe.plan, rows_of(DATA))
    with pytest.raises(PlanMismatch):
        job.learn(session)
    assert session.spent == Plan(())


def test_a_run_off_its_plan_gives_nothing(monkeypatch):
    """A learner that asks for other releases in play than in the rehearsal ends the job."""
    about, job = public(ADD, False), tuned(False, 2)
    recipe = job.recipe(about)
    best = job.best_of(about, recipe.unit)
    assert best.settings
    job.learners[0].rounds = 3
    with pytest.raises(PlanMismatch):
        best.play(rows_of(DATA), lambda done, total: None)


def test_spent_is_what_was_rehearsed():
    about, job = public(ADD, False), tuned(False, 2)
    recipe = job.recipe(about)
    session = Session(about, recipe.unit, recipe.plan, rows_of(DATA))
    assert isinstance(job.learn(session), Outcome)
    assert session.close() == recipe.plan == session.spent
    assert len(recipe.plan) == 1
