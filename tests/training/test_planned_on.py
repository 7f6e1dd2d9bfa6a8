"""What a plan was made on is what it is reserved on, for every kind of job; what a campaign asks is charged once."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from ledgers import EXAMPLES, SMALL_ROWS, hexes, plan

from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict
from accountant.home import Home
from accountant.ledger import ledger as ledgers_of
from accountant.ledger.families.records import Request
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Gaussian
from local.institution.contribution_steps import ContributionRequest, ContributionSteps, charged
from training.datasets.growing.append import append
from training.jobs import job
from training.measuring.answers.answers import QueryRequest
from training.measuring.profile.profile import ProfileRequest
from training.measuring.worth.evaluate import EvaluationRequest
from training.requests import JobRequest

ASKED = ContributionRequest(
    "adult", "ebm", Budget.of("0.5", "0.000001"), {"campaign": "c", "population": "p", "institution": 0},
    hexes("definition"), Decimal(1), plan(Gaussian(Decimal(40)), 3),
)  # fmt: skip


def contribute(home: Home, by: str = "cli:ana", **changes) -> int:
    asked = replace(ASKED, **changes)
    return ContributionSteps.submit(home, asked, by=by, key=None, queued=False, promotes=False).seq


def charges(home: Home) -> int:
    return sum(entry.value["type"] == "reserved" for entry in home.ledger.log.entries())


@pytest.mark.home("trained")
def test_every_planner_says_which_registration_its_plan_was_made_on(home, monkeypatch):
    """The ledger compares it when the job is reserved, and a window of blocks beside it."""
    planned: list[Request] = []

    def refuse(self, request, *about, evaluation=None, **more):
        planned.extend([request, *([evaluation[0]] if evaluation else [])])
        raise InputError("planned, and no more")

    monkeypatch.setattr(ledgers_of.Ledger, "reserve", refuse)
    for asked in (
        JobRequest("adult", "lazybb", "0.1"),
        ProfileRequest("adult", "0.1", columns=("age",)),
        QueryRequest("adult", "select count(*) from adult", "0.1"),
        EvaluationRequest("adult", "adult", "0.1", part="training"),
    ):
        with pytest.raises(InputError, match="planned"):
            job.submit(home, asked, by="cli:ana")
    with pytest.raises(InputError, match="planned"):
        contribute(home)
    assert [request.registered for request in planned] == [home.ledger.dataset("adult").seq] * 5


@pytest.mark.home("prepared")
def test_a_campaign_is_paid_for_once_in_a_home_whoever_answers_it(home):
    """And not at a delta above the dataset's, whatever its policy allows."""
    with pytest.raises(InputError, match="delta=0.00001: dataset adult has 0.000001 in all"):
        contribute(home, budget=Budget.of("0.5", "0.00001"))
    assert charges(home) == 0
    first = contribute(home)
    assert contribute(home) == contribute(home, by="cli:bob") == first
    for changes in ({"parameters": {**ASKED.parameters, "institution": 1}}, {"budget": Budget.of("0.4", "0.000001")}):
        for by in ("cli:ana", "cli:bob"):
            with pytest.raises(IdempotencyConflict, match=f"as job {first}, with another dataset or as another inst"):
                contribute(home, by, **changes)
    assert charges(home) == 1
    contribute(home, by="cli:bob", definition=hexes("another campaign"))
    assert charges(home) == 2
    assert audit_home(home).ok


@pytest.mark.home("prepared")
def test_a_dataset_that_grew_answers_with_every_block_and_a_campaign_from_before_with_the_first(home, tmp_path):
    before = contribute(home)
    rows = pq.read_table(EXAMPLES / "adult_train.parquet").slice(SMALL_ROWS, SMALL_ROWS)
    pq.write_table(rows, tmp_path / "more.parquet")
    append(home, "adult", tmp_path / "more.parquet", "steward", SMALL_ROWS)
    assert contribute(home) == before
    after = contribute(home, definition=hexes("another campaign"))
    assert [len(charged(home, seq).dataset.commitments) for seq in (before, after)] == [1, 2]
    assert home.ledger.reservation(after).value["window"] == [1, 2]
    assert audit_home(home).ok
