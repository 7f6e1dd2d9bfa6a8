"""What `plan` expects: constants of the study alone, right about most datasets left out, said for nothing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import ledgers
import pyarrow.parquet as pq
import pytest
from small_home import write_files

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature
from models.parts.forecast import Forecast
from training.datasets.datasets import register
from training.jobs import job
from training.learners.expected import Measured, expected
from training.planning import plans
from training.requests import JobRequest
from training.session.session import Public

FEATURES = (BooleanFeature("x"),)


def public(records: int, epsilon: str, **more) -> Public:
    base = Public(FEATURES, "y", ("a", "b"), records, Relation.ADD_REMOVE, Budget.of(epsilon, "1e-6"), False)
    return replace(base, **more)


def ends(forecast: Forecast) -> tuple[float, float, float]:
    return tuple(forecast.figures["auroc"].values())


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
    assert ends(strong)[0] > 0.7
    for changed in ({"relation": Relation.REPLACE_ONE}, {"contributions": 2}):
        halved = expected(public(200, "0.1", **changed), "lazybb")
        assert halved.least == pytest.approx(2 * weak.least, rel=0.05)
    assert expected(public(200, "0.1", classes=("a", "b", "c", "d")), "lazybb").least == pytest.approx(
        4 * weak.least, rel=0.05
    )


def test_of_what_no_study_tells_nothing_is_known_and_it_is_said_what_others_reach_and_of_numbers_nothing():
    """Of learners of others, and at delta 0: what the study's reach stands beside it, by the rows that count."""
    assert expected(public(1000, "1", classes=None, target_range=(0.0, 1.0)), "ebm") is None
    studied = [expected(public(1000, "1"), name) for name in ("lazybb", "lazybb-tree", "ebm")]
    for learner, more in (("outside", {}), ("bdpe", {}), ("ebm", {"budget": Budget.of("1", "0")})):
        told = expected(public(1000, "1", **more), learner)
        assert told.figures["auroc"]["low"] == 0.0
        assert told.figures["auroc"]["high"] == max(ends(each)[2] for each in studied)
        assert told.to_json()["short"] == f"not known {'at delta 0' if more else f'of {learner}'}"
        assert told.says == (
            f"{told.expects}, of which no study tells; lazybb, lazybb-tree, ebm at a delta above 0 reach AUROC "
            f"{min(ends(each)[0] for each in studied):.2f} to 0.99 on most other tables of this size (as much as 1,000 "
            "rows)"
        )
        few = expected(public(1000, "1", contributions=5, **more), learner)
        assert "(as much as 200 rows)" in few.says
        weak = expected(public(60, "1", **more), learner)
        assert not weak.better
        assert weak.least == min(expected(public(60, "1"), name).least for name in ("lazybb", "lazybb-tree", "ebm"))


def test_a_model_that_was_measured_narrows_it():
    """At the strength of the earlier model it is about that; of more, more; what tells nothing changes nothing."""
    asked = public(3000, "1")
    before = expected(asked, "lazybb")
    at = [expected(asked, "lazybb", [Measured(strength, 0.84, 0.86)]) for strength in (12_000.0, 3000.0, 750.0)]
    first, *found = [ends(each) for each in (before, *at)]
    assert all(each[2] - each[0] < first[2] - first[0] for each in found)
    assert all(first[0] <= each[0] < each[2] <= first[2] for each in found)
    assert found[0] < found[1] < found[2]
    assert found[1][0] < 0.84 < 0.86 < found[1][2]
    assert at[1].says.endswith("by what an earlier model here was measured at")
    for nothing in ([], [Measured(99.0, 0.84, 0.86)], [Measured(3000.0, 0.0, 1.0)]):
        assert expected(asked, "lazybb", nothing) == before
    both = [Measured(3000.0, 0.7, 0.9), Measured(3000.0, 0.84, 0.86)]
    assert expected(asked, "lazybb", both) == at[1]


def test_a_plan_is_narrowed_by_an_evaluation_that_stands_and_by_no_other(tmp_path, monkeypatch):
    """After a model was measured the next plan says less widely what to expect, for nothing, and is not wrong about the
    model that comes; of another dataset of the same home it says what it said.
    """
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    home, files = Home.init(), write_files(tmp_path / "files")
    for name, rows in (("adult", slice(0, 1500)), ("others", slice(1500, 2000))):
        table = pq.read_table(files / "rows.parquet").take([*range(2000)][rows])
        pq.write_table(table, tmp_path / f"{name}.parquet")
        text = (files / "schema.yaml").read_text().replace("records: 2000", f"records: {len(table)}")
        (tmp_path / f"{name}.yaml").write_text(text)
        about = (tmp_path / f"{name}.parquet", tmp_path / f"{name}.yaml", Budget.of("40", "1e-6"))
        register(home, name, *about, Relation.ADD_REMOVE, "record", holdout=Decimal("0.4"))

    def hope(dataset: str, epsilon: str) -> dict[str, Any]:
        return plans.plan(home, JobRequest(dataset, "lazybb", epsilon)).to_json()["expected"]

    before = {name: hope(name, "2") for name in ("adult", "others")}
    job.train(home, JobRequest("adult", "lazybb", "1", evaluate="8"), by="test")
    spent = home.ledger.dataset("adult").families[0].used
    after = hope("adult", "2")
    assert hope("others", "2") == before["others"]
    assert home.ledger.dataset("adult").families[0].used == spent
    width = [each["auroc"]["high"] - each["auroc"]["low"] for each in (before["adult"], after)]
    assert width[1] < 0.8 * width[0], (before, after)
    done = job.train(home, JobRequest("adult", "lazybb", "2", evaluate="8"), by="test")
    (found,) = [each for each in done["evaluated"]["worth"]["metrics"] if each["metric"] == "auroc"]
    assert float(found["low"]) <= after["auroc"]["high"]
    assert after["auroc"]["low"] <= float(found["high"])


def test_a_plan_says_it(tmp_path):
    home = Home.open(ledgers.place(ledgers.copy(ledgers.prepared(), tmp_path / "home")))
    for learner, words in (("lazybb", "AUROC 0."), ("forest", "not known of forest")):
        found = plans.plan(home, JobRequest("adult", learner, "0.5")).to_json()["expected"]
        assert found["short"].startswith(words)
