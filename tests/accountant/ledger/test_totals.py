"""What a total says: it admits one job of its own size, which closes it, and it is named for what it ever was."""

from __future__ import annotations

import json
from decimal import Decimal

import ledgers
import pytest
from audited import report, trust
from ledgers import (
    advance,
    bodies,
    bundles,
    changed,
    copy,
    place,
    plan,
    prepared,
    registration,
    request,
    reserve,
    rewrite,
)

from accountant.audit.audit import audit_home
from accountant.certificates import statement
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import Unit
from accountant.privacy.claims import claim
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import PureDp
from serving.cli.app import run
from serving.pages.parts.entry_text import describe
from training.finish.release import finish
from training.jobs import job
from training.jobs.draw_journal import DrawJournal
from training.kinds import job_steps
from training.kinds.registry import steps_of
from training.planning.job_views import job_to_json
from training.planning.plans import CLOSES
from training.planning.plans import plan as planned
from training.requests import JobRequest

DELTA = Decimal("0.000001")
PEOPLE = Unit("person", "name")
WHOLE, SMALL = plan(), plan(count=1)
TOTAL = Budget(claim(WHOLE, DELTA).epsilon, DELTA)  # what the job claims, to the last digit


@pytest.fixture
def home(begun) -> Home:
    return begun(registration("d", TOTAL, unit=PEOPLE))


def take(home: Home, name: str = "d", what=WHOLE, **options) -> int:
    return reserve(home.ledger, request(name, "3"), what, **options).seq


def family(home: Home, name: str = "d"):
    return home.ledger.dataset(name).families[0]


def sound(home: Home) -> bool:
    return audit_home(home).problems == ()


def test_a_total_admits_one_job_of_its_own_size(home):
    dataset = home.ledger.dataset("d")
    assert dataset.refusing(dataset.costs(WHOLE))  # the filter adds up Renyi, and more comes out
    assert dataset.jobs_left(dataset.costs(WHOLE), claim(WHOLE, DELTA)) == 1
    seq = take(home)
    entry = home.ledger.reservation(seq)
    assert entry.value["whole"] is True
    assert "takes the whole total" in describe(entry).words
    summary = describe_budget(home.ledger.dataset("d"))
    assert summary["closed_by"] == seq
    assert summary["reserved"]["epsilon"] == str(TOTAL.epsilon)
    assert summary["left"] == summary["left"] | {"epsilon": "0", "share": "0.000000", "one_job": None}
    assert sound(home)


@pytest.mark.parametrize("state", ["reserved", "started", "committed", "burned", "issued"])
def test_it_closes_the_family_for_good(home, state):
    seq = take(home)
    advance(home.ledger, seq, state)
    home.ledger.change_budget("d", Decimal(90), "more", "steward")
    for what in (WHOLE, SMALL):
        with pytest.raises(BudgetRefused, match=f"closed by job {seq}, which took the whole total"):
            take(home, what=what)
    dataset = home.ledger.dataset("d")
    assert dataset.jobs_left(dataset.costs(SMALL), claim(SMALL, DELTA)) == 0
    left = describe_budget(dataset)["left"]
    assert left == left | {"epsilon": "0", "share": "0.000000", "one_job": None}
    assert left["binding"]["words"] == f"family d, closed by job {seq}"
    assert sound(home)


def test_given_back_before_its_start_it_opens_the_family_again(home):
    home.ledger.release(take(home))
    assert family(home).whole is None
    take(home, what=SMALL)
    with pytest.raises(BudgetRefused):
        take(home)
    assert sound(home)


@pytest.mark.parametrize("state", ["reserved", "started", "burned", "committed"])
def test_a_touched_family_does_not_give_the_whole(home, state):
    advance(home.ledger, take(home, what=SMALL), state)
    with pytest.raises(BudgetRefused):
        take(home)
    assert sound(home)


def test_neither_does_one_that_is_smaller_than_the_claim(home):
    home.ledger.change_budget("d", TOTAL.epsilon - Decimal("0.000001"), "less", "steward")
    with pytest.raises(BudgetRefused):
        take(home)


def test_a_quota_of_less_than_all_refuses_it(home):
    home.ledger.set_quota("d", "test", Decimal("0.999"), "a test", "steward")
    with pytest.raises(BudgetRefused):
        take(home)
    home.ledger.set_quota("d", "test", Decimal(1), "a test", "steward")
    take(home)
    assert sound(home)


def test_joined_rows_take_the_whole_of_every_family(home):
    for name in ("e", "f"):
        home.ledger.register(registration(name, TOTAL, unit=PEOPLE))
    for name, others in (("de", ("d", "e")), ("ef", ("e", "f"))):
        home.ledger.register(registration(name, None, families=others, unit=PEOPLE))
    small = take(home, "f", SMALL)
    with pytest.raises(BudgetRefused):  # one of them is touched
        take(home, "ef")
    home.ledger.release(small)
    seq = take(home, "ef")
    for name in ("e", "f", "ef", "de"):
        with pytest.raises(BudgetRefused, match=f"closed by job {seq}"):
            take(home, name)
    assert take(home, "d")
    assert sound(home)


def test_a_total_that_fell_refuses_the_start_and_gives_the_job_back(home):
    seq = take(home)
    home.ledger.change_budget("d", TOTAL.epsilon / 2, "less", "steward")
    with pytest.raises(BudgetRefused, match="is given back, no row was read"):
        home.ledger.start(seq, "owner:1:1", 60.0)
    assert home.ledger.job(seq).state == "released"
    assert family(home).whole is None
    assert family(home).used == family(home).filter.nothing()
    assert sound(home)


def test_those_that_wait_are_judged_one_after_the_other(home):
    home.ledger.register(registration("pure", Budget.of("1")))
    first, second = (
        reserve(home.ledger, request("pure", "0.5", "0"), plan(PureDp(Decimal("0.5")), 1)).seq for _ in "ab"
    )
    home.ledger.change_budget("pure", Decimal("0.5"), "less", "steward")
    home.ledger.start(first, "owner:1:1", 60.0)
    with pytest.raises(BudgetRefused, match="beside the 0.5 that is spent"):
        home.ledger.start(second, "owner:1:1", 60.0)
    home.ledger.change_budget("pure", Decimal("0.2"), "less", "steward")
    summary = describe_budget(home.ledger.dataset("pure"))
    assert (summary["spent"]["epsilon"], summary["total"]["epsilon"], summary["largest"]) == ("0.5", "0.2", "1")
    assert summary["left"] == summary["left"] | {"epsilon": "0", "share": "0.000000", "one_job": None}
    assert sound(home)


# What the auditor finds by the entries alone.


def forged(
    home: Home, tmp_path, kind: str, nth: int = 0, more: tuple[bytes, ...] = (), drop: str = "", **fields
) -> str:
    """The first problem of a copy in which an entry says something else, or where others follow."""
    home.ledger.log.database.close()
    leaves = bodies(home.path)
    at = [seq for seq, leaf in enumerate(leaves) if json.loads(leaf)["type"] == kind][nth]
    value = json.loads(leaves[at])
    value.pop(drop, None)
    leaves[at] = changed(json.dumps(value).encode(), **fields)
    other = copy(home.path, tmp_path / "forged")
    rewrite(other, [*leaves, *more])
    return report(other).problems[0]


@pytest.fixture
def local(tmp_path) -> Home:
    home = Home.init(place(tmp_path / "local"))
    home.ledger.register(registration("d", TOTAL, unit=PEOPLE))
    return home


def test_the_whole_without_the_word_is_found(local, tmp_path):
    take(local)
    assert "exceeded" in forged(local, tmp_path, "reserved", drop="whole")


def test_a_job_after_the_whole_is_found(local, tmp_path):
    small = take(local, what=SMALL)
    entry = bodies(local.path)[small]
    local.ledger.release(small)
    take(local)
    assert "closed by job 4" in forged(local, tmp_path, "genesis", more=(entry,))


def test_the_whole_of_a_touched_family_is_found(local, tmp_path):
    seq = take(local)
    whole = bodies(local.path)[seq]
    local.ledger.release(seq)
    take(local, what=SMALL)
    assert "whole: the family must be untouched" in forged(local, tmp_path, "genesis", more=(whole,))


def test_the_word_on_a_job_that_fits_or_with_a_claim_that_is_larger_is_found(local, tmp_path):
    take(local, what=SMALL)
    assert "whole: the job fits beside others" in forged(local, tmp_path, "reserved", whole=True)


def test_a_whole_that_is_larger_than_the_total_is_found(local, tmp_path):
    seq = take(local)
    whole = bodies(local.path)[seq]
    local.ledger.release(seq)
    local.ledger.change_budget("d", TOTAL.epsilon / 2, "less", "steward")
    assert "is above the family's total" in forged(local, tmp_path, "genesis", more=(whole,))


def test_another_largest_total_is_found(local, tmp_path):
    local.ledger.change_budget("d", Decimal("0.1"), "less", "steward")
    assert "largest: must be" in forged(local, tmp_path, "budget-changed", largest="0.1")


def test_a_start_under_a_lowered_total_is_found(local, tmp_path):
    seq = take(local)
    local.ledger.start(seq, "owner:1:1", 60.0)
    started = bodies(local.path)[-1]
    for what in (WHOLE, SMALL):
        place_of = tmp_path / str(len(what))
        home = Home.init(place(place_of))
        home.ledger.register(registration("d", TOTAL, unit=PEOPLE))
        assert take(home, what=what) == seq
        home.ledger.change_budget("d", Decimal("0.0001"), "less", "steward")
        assert "lowered since, is exceeded" in forged(home, place_of / "more", "genesis", more=(started,))


# Certificates.


@pytest.fixture
def adult(tmp_path) -> Home:
    return Home.open(place(copy(prepared(), tmp_path / "adult")))


def queued(home: Home, epsilon: str) -> int:
    return job.submit(home, JobRequest("adult", "lazybb", epsilon, parameters={"rounds": 8}), by="test").seq


def lowered_meanwhile(home: Home) -> None:
    """A job of epsilon 1 that had begun when the total of 3 became .2."""
    started = home.ledger.start(queued(home, "1"), "owner:1:1", 60.0)
    with DrawJournal(home, started.seq, False) as kept:
        released = job._play(
            steps_of(home, started.seq), started, "owner:1:1", lambda done, total: None, lambda: None, kept
        )
    home.ledger.change_budget("adult", Decimal("0.2"), "less", "steward")
    home.ledger.commit(started.seq, released)
    finish(home, started.seq)


def told_of(home: Home) -> dict:
    from dpserve_verify.certificates.certificate import verify

    ((_, envelope, proof, model),) = bundles(home.path)
    found = verify(envelope, proof.decode(), model, trust(home.path))
    return found.statement["predicate"]["dataset"] | {"epsilon": found.epsilon, "certificate": found}


def test_a_certificate_names_the_largest_total_and_caps_nothing(adult):
    from dpserve_verify.certificates.plain_words import plain
    from dpserve_verify.certificates.written_page import to_text

    lowered_meanwhile(adult)
    said = told_of(adult)
    assert (said["budget"]["epsilon"], said["largest"]) == ("0.2", "3")
    assert Decimal(said["after"]["epsilon"]) >= said["epsilon"] > Decimal("0.9")
    assert said["after"]["left"] == "0"
    text = " ".join(to_text(plain(said["certificate"])).split())
    assert "total epsilon 0.2 at delta 1e-6 (the largest ever in force: 3)" in text
    assert audit_home(adult, bundles(adult.path)).problems == ()


@pytest.mark.parametrize(
    "lie", [{"largest": "0.2"}, {"budget": {"epsilon": "3", "delta": "0.000001"}}, {"epsilon": "0.2"}, {"whole": True}]
)
def test_the_audit_recomputes_what_a_certificate_says_of_its_budget(adult, monkeypatch, lie):
    real = statement._account

    def lying(family):
        found = real(family)
        if "epsilon" in lie:
            return found | {"after": found["after"] | lie}
        return found | lie

    with monkeypatch.context() as patch:
        patch.setattr(statement, "_account", lying)
        lowered_meanwhile(adult)
    (problem,) = audit_home(adult, bundles(adult.path)).problems
    assert "its certificate's budget is not what the entries give" in problem


def test_a_queued_job_that_a_lowered_total_refuses_reads_no_row(adult, monkeypatch):
    seq = queued(adult, "1")
    adult.ledger.change_budget("adult", Decimal("0.2"), "less", "steward")
    monkeypatch.setattr(job_steps, "open_rows", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(BudgetRefused, match="lowered to epsilon 0.2") as refused:
        job.run(adult, seq)
    assert refused.value.exit_code == 3
    assert adult.ledger.job(seq).state == "released"
    assert describe_budget(adult.ledger.dataset("adult"))["left"]["share"] == "1.000000"
    assert audit_home(adult).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["lazybb", "ebm", "bdpe", "forest"])
def test_training_at_the_total_ends_and_verifies(tmp_path, learner, monkeypatch, capsys):
    """Also where the claim comes out a little below what was asked."""
    from training.datasets.datasets import register

    prepared()
    files = ledgers.scratch() / "files"
    home = Home.init(place(tmp_path / "home"))
    budget, who = Budget.of("0.1", "0.000001"), ledgers.Relation.ADD_REMOVE
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", budget, who, None)
    with pytest.raises(BudgetRefused, match=r"up to epsilon 0\.1$"):
        planned(home, JobRequest("adult", learner, "0.2"))
    found = planned(home, JobRequest("adult", learner, "0.1"))
    assert CLOSES in found.warnings
    left = found.to_json()["left"]
    assert left == left | {"epsilon": "0", "share": "0.000000", "one_job": None, "jobs": 0}
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    assert run(["train", "adult", "--learner", learner, "--epsilon", "0.1"]) == 0
    assert f"closes  {CLOSES}" in capsys.readouterr().out
    made = job_to_json(home, *home.ledger.jobs())
    assert (made["state"], made["whole"]) == ("issued", True)
    said = told_of(home)
    assert said["whole"] is True
    assert said["after"]["epsilon"] == str(said["epsilon"])
    assert said["after"]["left"] == "0"
    with pytest.raises(BudgetRefused, match="closed by job"):
        planned(home, JobRequest("adult", learner, "0.01"))
    assert audit_home(home, bundles(home.path)).problems == ()
