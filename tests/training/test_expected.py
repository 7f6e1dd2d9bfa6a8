"""What `plan` expects: constants of the study alone, right about most datasets left out, said for nothing."""

from __future__ import annotations

from dataclasses import replace

import ledgers
import pytest

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature
from training.learners.expected import expected
from training.planning import plans
from training.requests import JobRequest
from training.session.session import Public

FEATURES = (BooleanFeature("x"),)


def public(records: int, epsilon: str, **more) -> Public:
    base = Public(FEATURES, "y", ("a", "b"), records, Relation.ADD_REMOVE, Budget.of(epsilon, "1e-6"), False)
    return replace(base, **more)


def test_what_is_too_weak_is_called_so_with_an_epsilon_at_which_it_is_not():
    weak = expected(public(200, "0.1"), "lazybb")
    assert not weak.better
    assert weak.says.startswith("no better than guessing")
    assert f"epsilon {weak.least:g}" in weak.says
    assert expected(public(200, str(1.05 * weak.least)), "lazybb").better
    rare = expected(public(200, "0.1", prevalence=(0.99, 0.01)), "lazybb")
    assert rare.least == pytest.approx(50 * weak.least, rel=0.05)
    assert expected(public(200, "0.1", prevalence=(0.5, 0.5)), "lazybb") == weak
    strong = expected(public(30_000, "0.1"), "lazybb")
    assert strong.better
    assert strong.auroc[0] > 0.7
    for changed in ({"relation": Relation.REPLACE_ONE}, {"contributions": 2}):
        halved = expected(public(200, "0.1", **changed), "lazybb")
        assert halved.least == pytest.approx(2 * weak.least, rel=0.05)
    assert expected(public(200, "0.1", classes=("a", "b", "c", "d")), "lazybb").least == pytest.approx(
        4 * weak.least, rel=0.05
    )


@pytest.mark.parametrize("changed", [{"classes": None, "target_range": (0.0, 1.0)}, {"budget": Budget.of("1", "0")}])
def test_what_the_study_does_not_tell_is_not_said(changed):
    assert expected(public(1000, "1", **changed), "ebm") is None
    assert expected(public(1000, "1"), "bdpe") is None


def test_a_plan_says_it(tmp_path):
    home = Home.open(ledgers.place(ledgers.copy(ledgers.prepared(), tmp_path / "home")))
    for learner, told in (("lazybb", True), ("forest", False)):
        found = plans.plan(home, JobRequest("adult", learner, "0.5")).to_json()["expected"]
        assert (found is not None) is told
