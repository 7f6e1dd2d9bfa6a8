"""Grants: who may do what, on what, until when; and what tokens from before them keep."""

from __future__ import annotations

import pytest
from ledgers import advance, place, registration, request, reserve
from sqlalchemy import update

from accountant.access import grants
from accountant.access.grants import Access, Grant, access_of
from accountant.access.tokens import SCOPES
from accountant.audit.audit import audit_home
from accountant.errors import Forbidden, UnknownName
from accountant.home import Home
from accountant.ledger.families.records import Why
from accountant.store.tables import grant_table
from dpserve_verify.errors import InputError
from serving.process.tokens import new_token, rights


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home.init(place(tmp_path / "home"))
    for name in ("adult", "bank"):
        home.ledger.register(registration(name))
    home.ledger.register(registration("adult-2027", budget=None, families=("adult",)))
    return home


def grant(home: Home, scope: str, kind: str = "everything", name: str = "", to: str = "ann", **more) -> Grant:
    return grants.add(home.ledger, [Grant(to, scope, kind, name, **more)], "test")[0]


def access(home: Home, principal: str = "ann") -> Access:
    return access_of(home.ledger, principal)


def test_a_grant_is_an_entry_and_covers_what_it_names(home):
    assert access(home).scopes == ()
    added = grant(home, "train", "dataset", "adult")
    value = home.ledger.log.entry(added.index).value
    assert (value["type"], value["on"], value["by"]) == ("grant-added", {"dataset": "adult"}, "test")
    held = access(home)
    assert held.may("train", dataset="adult")
    for scope, on in (("train", {"dataset": "bank"}), ("predict", {"dataset": "adult"}), ("train", {})):
        assert not held.may(scope, **on)
    assert held.by_which("train", dataset="adult").index == added.index
    assert held.has("train")
    assert not held.has("audit", "promote")
    assert not access(home, "bob").has(*SCOPES)
    assert audit_home(home).ok


def test_a_family_covers_its_datasets_and_admin_everything(home):
    grant(home, "train", "family", "adult")
    grant(home, "admin", to="root")
    held = access(home)
    assert [held.may("train", dataset=name) for name in ("adult", "adult-2027", "bank", "none")] == [
        True,
        True,
        False,
        False,
    ]
    assert held.may("train", family="adult")
    assert all(access(home, "root").may(scope, dataset="bank") for scope in SCOPES)


def test_rows_of_two_families_need_both(home):
    both = Access("ann", (Grant("ann", "train", "family", "adult"),), lambda name: frozenset({"adult", "bank"}))
    assert not both.may("train", dataset="joined")


def test_revoked_and_expired_grants_give_nothing(home):
    added = grant(home, "train")
    grant(home, "audit", expires="2020-01-01T00:00:00Z")
    assert access(home).scopes == ("train",)
    ended = grants.revoke(home.ledger, added.index, Why("test", "left the team"))
    assert home.ledger.log.entry(ended.revoked).value["reason"] == "left the team"
    assert access(home).scopes == ()
    size = home.ledger.log.size()
    assert grants.revoke(home.ledger, added.index, Why("test", "again")) == ended
    assert home.ledger.log.size() == size
    with pytest.raises(UnknownName):
        grants.revoke(home.ledger, 0, Why("test", "no grant"))
    assert audit_home(home).ok


def test_the_same_grant_is_entered_once(home):
    added, size = grant(home, "train", "dataset", "adult"), home.ledger.log.size()
    assert grant(home, "train", "dataset", "adult") == added
    assert home.ledger.log.size() == size
    assert grant(home, "train", "dataset", "adult", expires="2099-01-01T00:00:00Z") != added
    grants.revoke(home.ledger, added.index, Why("test", "left"))
    assert grant(home, "train", "dataset", "adult").index > added.index


def test_what_a_revocation_would_stop(home):
    wide, narrow = grant(home, "train"), grant(home, "train", "family", "adult")
    new_token(home, "night", [], principal="ann")
    new_token(home, "own", ["train"], principal="ann")
    new_token(home, "other", ["train"])
    mine = reserve(home.ledger, request("adult-2027"), by="ann").seq
    reserve(home.ledger, request("bank"), by="bob")
    over = reserve(home.ledger, request("adult"), by="ann").seq
    home.ledger.release(over)
    found = grants.stops(home.ledger, narrow.index)
    assert (found.tokens, found.still, found.jobs) == ((), wide.index, (mine,))
    grants.revoke(home.ledger, wide.index, Why("test", "left"))
    found = grants.stops(home.ledger, narrow.index)
    assert (found.tokens, found.still, found.jobs) == (("night",), None, (mine,))
    assert grants.stops(home.ledger, wide.index).tokens == ()  # it is over


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Grant("ann", "root"), InputError),
        (Grant("", "train"), InputError),
        (Grant("*", "train"), InputError),
        (Grant("two\nlines", "train"), InputError),
        (Grant("ann", "train", "dataset", "none"), UnknownName),
        (Grant("ann", "train", "family", "none"), UnknownName),
        (Grant("ann", "train", "model", "../x"), InputError),
    ],
)
def test_what_is_no_grant_is_refused_and_changes_nothing(home, wanted, error):
    size = home.ledger.log.size()
    with pytest.raises(error):
        grants.add(home.ledger, [Grant("ann", "train"), wanted], "test")
    assert home.ledger.log.size() == size
    assert grants.grants(home.ledger) == []


@pytest.mark.parametrize("text", ["tomorrow", "2020-01-01", "2031-13-01", "2031-1-1", "", "2031-01-01T00:00:00"])
def test_a_time_is_one_of_two_forms_and_to_come(text):
    with pytest.raises(InputError, match="expires"):
        grants.time_of(text)


def test_refusal_names_scope_object_and_how_it_is_granted(home):
    with pytest.raises(Forbidden) as caught:
        access(home).require("train", dataset="adult")
    assert caught.value.details == {"needs": ["train"], "on": {"dataset": "adult"}}
    assert "dpserve grant add --principal ann --scope train --dataset adult" in caught.value.message


def test_tokens_act_for_principals_and_have_their_own_scopes_on_everything(home):
    new_token(home, "shop", ["predict"])
    new_token(home, "night", [], principal="ann")
    new_token(home, "day", ["audit"], principal="ann")
    grant(home, "train", "dataset", "adult")
    held = {bearer.token.name: bearer.access for bearer in rights(home).bearers.values()}
    assert held["shop"].principal == "token:shop"
    assert held["shop"].scopes == ("predict",)
    assert (held["night"].scopes, held["day"].scopes) == (("train",), ("train", "audit"))
    assert access(home).scopes == ("train", "audit")  # whoever acts for her
    with pytest.raises(InputError):
        new_token(home, "none", [])
    assert audit_home(home).ok


def test_jobs_are_seen_and_cancelled_by_who_asked_and_by_whom_a_grant_names(home):
    own, others = (reserve(home.ledger, request("adult"), by=by) for by in ("ann", "bob"))
    new_token(home, "ann", ["train"], principal="ann")
    held = access(home)
    assert [held.may_see(job) for job in (own, others)] == [True, False]
    assert [held.may_cancel(job) for job in (own, others)] == [True, False]
    grant(home, "audit", "dataset", "adult")
    held = access(home)
    assert [held.may_see(others), held.may_cancel(others)] == [True, False]
    grant(home, "train", "family", "adult")
    assert access(home).may_cancel(others)


def test_whoever_sits_with_the_keys_may_do_all_until_a_grant_names_them(home):
    assert access_of(home.ledger, "cli:ann", operator=True).may("admin")
    assert not access_of(home.ledger, "cli:ann").has(*SCOPES)
    added = grant(home, "train", to="cli:ann")
    assert access_of(home.ledger, "cli:ann", operator=True).scopes == ("train",)
    grants.revoke(home.ledger, added.index, Why("test", "left"))
    assert access_of(home.ledger, "cli:ann", operator=True).scopes == ()


def test_the_audit_names_a_row_that_the_entries_do_not_give(home):
    added = grant(home, "predict", "dataset", "adult")
    advance(home.ledger, reserve(home.ledger).seq, "issued")
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(grant_table).values(scope="admin", kind="everything", name=""))
    assert any(f"grant {added.index}" in problem for problem in audit_home(home).problems)
