"""Whose a model's name is: bound by the first job, asked for before anything is charged, and judged by the auditor."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace

import ledgers
import pytest

from accountant.access import grants, tokens
from accountant.audit.audit import audit_home
from accountant.errors import Forbidden
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats import canonical
from models.store.bundle import ModelStore
from training.jobs import job
from training.planning import plans
from training.planning.job_views import job_to_json
from training.requests import JobRequest

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8}, model="mine")


@pytest.fixture
def home(tmp_path):
    """With two principals whose tokens may train, and one whose token is an admin's."""
    opened = Home.open(ledgers.place(ledgers.copy(ledgers.prepared(), tmp_path / "home")))
    for name, scope in (("shop", "train"), ("lab", "train"), ("boss", "admin")):
        tokens.create(opened.ledger, name, (scope,), hashlib.sha256(secrets.token_bytes(32)).hexdigest())
    return opened


def reserve(home, by, asked=ASKED, **more):
    planned = plans.plan(home, asked)
    return home.ledger.reserve(planned.request, planned.recipe.unit, planned.recipe.plan, by=by, **more)


def test_the_first_job_binds_a_name_and_another_principal_is_refused_before_anything_is_charged(home):
    first = reserve(home, "token:shop")
    size, used = home.ledger.log.size(), home.ledger.dataset("adult").most_used.used
    with pytest.raises(Forbidden, match="model=mine: belongs to another principal") as caught:
        reserve(home, "token:lab")
    assert caught.value.details["would_fit"] == {"model": "mine-adult"}
    assert caught.value.exit_code == 3
    with pytest.raises(Forbidden):
        plans.plan(home, ASKED, "token:lab")
    assert (home.ledger.log.size(), home.ledger.dataset("adult").most_used.used) == (size, used)
    assert reserve(home, "token:lab", replace(ASKED, model="mine-adult"))
    again = reserve(home, "token:shop")
    assert [home.ledger.reservation(each.seq).value["bound"] for each in (first, again)] == [first.seq] * 2
    other = reserve(home, "token:boss")  # holds promote, as admin
    assert home.ledger.reservation(other.seq).value["bound"] == first.seq
    with pytest.raises(Forbidden):  # the door knows of less than the principal's tokens together
        reserve(home, "token:boss", promotes=False)
    (granted,) = grants.add(home.ledger, [grants.Grant("token:lab", "promote", "model", "mine")], "cli:steward")
    assert home.ledger.reservation(reserve(home, "token:lab").seq).value["bound"] == first.seq
    grants.revoke(home.ledger, granted.index, Why("cli:steward", "the quarter is over"))
    with pytest.raises(Forbidden):
        reserve(home, "token:lab")
    tokens.revoke(home.ledger, "boss")
    with pytest.raises(Forbidden):
        reserve(home, "token:boss")
    assert audit_home(home).problems == ()


def test_a_name_of_which_nothing_came_is_free_again(home):
    home.ledger.release(reserve(home, "token:shop").seq)
    bound = reserve(home, "token:lab")
    assert home.ledger.reservation(bound.seq).value["bound"] == bound.seq
    with pytest.raises(Forbidden):
        reserve(home, "token:shop")
    assert audit_home(home).problems == ()


def test_only_who_may_promote_asks_for_a_champion_of_a_name_that_has_one(home):
    asked = replace(ASKED, promote=True)
    made = job.train(home, asked, by="token:shop")  # the first of its own name needs nothing
    assert (made["version"], made["version_state"]) == (1, "champion")
    with pytest.raises(Forbidden, match="without it the new version is a candidate"):
        job.train(home, asked, by="token:shop")
    made = job.train(home, ASKED, by="token:shop")
    assert (made["version"], made["version_state"], made["replaces"]) == (2, "candidate", None)
    assert ModelStore(home.models).champion("mine") == 1
    waits = job.submit(home, asked, by="token:boss")
    assert job_to_json(home, waits)["replaces"] == "mine@1"
    job.run(home, waits.seq)
    told = job_to_json(home, home.ledger.job(waits.seq))
    assert (told["version"], told["version_state"], told["replaces"]) == (3, "champion", None)
    assert audit_home(home, ledgers.bundles(home.path)).problems == ()


def test_the_first_version_by_another_is_a_candidate(home):
    """The owner's job is on its way; who may promote on the name is faster, and did not ask for it."""
    own = reserve(home, "token:shop")
    job.run(home, job.submit(home, ASKED, by="token:boss").seq)
    assert ModelStore(home.models).champion("mine") is None
    job.run(home, own.seq)
    assert ModelStore(home.models).champion("mine") is None  # not the first: somebody promotes on purpose


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"bound": 0}, "bound=0: must be"),
        ({"bound": True}, "bound: must be the index"),
        ({"bound": None}, "bound: must stand"),
        ({"by": "token:lab"}, "token:lab may not promote it"),
    ],
)
def test_a_forged_reservation_is_named(home, fields, problem):
    first = reserve(home, "token:shop")
    replay = Replay(home.trust)
    for entry in home.ledger.log.entries():
        replay.read(entry.seq, entry.body)
    asked = json.loads(reserved_by(home, fields.get("by", "token:shop")))
    forged = {**named(asked, "mine"), "bound": first.seq, **fields}
    if forged["bound"] is None:
        del forged["bound"]
    body = canonical.encode(forged)
    if not problem:
        assert replay.read(home.ledger.log.size() - 1, body)["bound"] == first.seq
        return
    with pytest.raises(LedgerInvalid, match=problem):
        replay.read(home.ledger.log.size() - 1, body)


def reserved_by(home, by):
    """The bytes of an entry of another name by this principal."""
    asked = replace(ASKED, model=f"own-{by.partition(':')[2]}" if by != "token:shop" else "mine")
    return home.ledger.reservation(reserve(home, by, asked).seq).body


def named(entry, model):
    """The same request under another model's name."""
    asked = {**entry, "model": model}
    keys = ("dataset", "learner", "parameters", "model", "epsilon", "delta")
    digest = hashlib.sha256(canonical.spell({key: asked[key] for key in keys})).hexdigest()
    return {**asked, "request": digest}
