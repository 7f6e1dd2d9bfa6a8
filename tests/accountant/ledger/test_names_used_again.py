"""A name that is used again names another: nothing of what the earlier one had is the later one's."""

from __future__ import annotations

import json
from contextlib import closing
from decimal import Decimal

import pytest
from ledgers import UNJUDGED, begun, hexes, place, raw, registration, request, reserve

from accountant.access import grants, tokens
from accountant.access.grants import Grant, access_of
from accountant.access.token_end import end_token
from accountant.audit.audit import audit_home
from accountant.errors import Forbidden, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import model_names
from serving.cli.app import run
from serving.process.tokens import new_token, rights


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    return begun(tmp_path / "home", registration())


def make(home: Home, name: str = "shop", *scopes: str, principal: str | None = None) -> str:
    return new_token(home, name, list(scopes or ("train",)), principal=principal)[1].principal


def give(home: Home, principal: str, scope: str = "admin") -> Grant:
    return grants.add(home.ledger, [Grant(principal, scope)], "steward")[0]


def test_a_later_token_has_nothing_of_an_earlier_one_of_its_name(home):
    """Grants, jobs, idempotency keys, quotas and model names are the principal's, which is another."""
    first = make(home)
    give(home, "token:shop")
    home.ledger.set_quota("adult", first, Decimal("0.9"), "a test", "steward")
    home.ledger.set_quota("adult", "*", Decimal("0.01"), "a test", "steward")
    job = reserve(home.ledger, by=first, key="k")
    tokens.revoke(home.ledger, "shop")
    second = make(home, "shop", "predict")
    assert (first, second) == ("token:shop", f"token:shop#{home.ledger.log.size() - 1}")
    (bearer,) = rights(home).bearers.values()
    assert (bearer.access.principal, bearer.access.scopes) == (second, ("predict",))
    assert not bearer.access.owns(job.by)
    assert not bearer.access.may_see(job)
    assert home.ledger.find(second, "k", request()) is None
    assert home.ledger.find(first, "k", request()).seq == job.seq
    with pytest.raises(Forbidden, match="belongs to another principal"), home.ledger.log.signed() as signed:
        model_names.allow(signed.connection, request(), second, False, signed)
    assert home.ledger.dataset("adult", first).families[0].quota.share == Decimal("0.9")
    assert home.ledger.dataset("adult", second).families[0].quota.share == Decimal("0.01")
    tokens.revoke(home.ledger, "shop")
    assert make(home) == f"token:shop#{home.ledger.log.size() - 1}" != second
    report = audit_home(home)
    assert (report.problems, report.notes) == ((), ())


def test_without_its_row_a_name_is_still_known_as_used(home):
    """Whoever writes the database and has no key gains nothing for a token that is still to come."""
    give(home, make(home))
    tokens.revoke(home.ledger, "shop")
    with closing(raw(home.path)) as connection:
        connection.execute("DELETE FROM token")
    (home.path / "keys" / "newest.bin").unlink()
    home = Home.open(place(home.path))
    assert make(home) != "token:shop"
    assert access_of(home.ledger, "token:shop").has("admin")
    assert not next(iter(rights(home).bearers.values())).access.has("admin")


def test_a_name_with_several_holders_is_the_living_one(home):
    assert give(home, "token:shop").principal == "token:shop"  # before there is one
    first = make(home)
    tokens.revoke(home.ledger, "shop")
    with pytest.raises(WrongState, match="was revoked by entry 4, .*dpserve token create --name shop"):
        give(home, "token:shop")
    second = make(home)
    assert give(home, "token:shop", "audit").principal == give(home, second, "audit").principal == second
    with pytest.raises(UnknownName, match="no token was made by that entry"):
        give(home, "token:shop#1")  # which registered a dataset
    tokens.revoke(home.ledger, "shop")
    third = make(home)
    with pytest.raises(WrongState, match=f"the good one of that name acts for {third}"):
        give(home, second)
    heir = make(home, "heir", principal=first)  # of an ended one, where it is named
    assert heir == third  # of a living one, where there is one
    assert make(home, "other", principal=second) == second
    assert give(home, second, "predict").principal == second


def test_who_goes_on_with_what_another_had_says_so_and_the_audit_notes_it(home):
    first = make(home)
    give(home, first)
    tokens.revoke(home.ledger, "shop")
    assert make(home, "shop", "predict", principal=first) == first
    assert next(iter(rights(home).bearers.values())).access.has("admin")
    report = audit_home(home)
    assert report.ok
    assert [note for note in report.notes if "has what that one was granted" in note]


def test_the_audit_knows_whose_entry_a_principal_names(home, monkeypatch):
    monkeypatch.setattr(*UNJUDGED)
    monkeypatch.setattr(tokens, "living_principal", lambda signed, text, **more: text)
    tokens.create(home.ledger, "shop", ["train"], hexes("token"), principal="token:shop#1")
    assert any("principal='token:shop#1': must be of this entry" in each for each in audit_home(home).problems)


def test_a_token_that_is_revoked_says_what_ends_with_it(home, capsys):
    first = make(home)
    given, job = give(home, first), reserve(home.ledger, by=first)
    assert run(["token", "revoke", "--name", "shop", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["stops"] == {"grants": [given.index], "schedules": [], "jobs": [job.seq]}
    assert f"Its grants end with it ({given.index})" in err
    assert f"go on: job {job.seq} (dpserve job cancel)" in err
    make(home, "one", principal="team")
    make(home, "two", principal="team")
    give(home, "team")
    assert end_token(home.ledger, "one").grants == ()
    assert end_token(home.ledger, "two").grants == ()  # whoever acts for the team next has it


def test_the_command_line_follows_the_living_one(home, capsys):
    """A token that is narrow is made with its grants at once; short names, lists and quotas mean the good one."""
    tokens.create(home.ledger, "shop", ["train"], hexes("first"))
    tokens.revoke(home.ledger, "shop")

    def say(*words: str) -> dict:
        assert run([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    made = say("token", "create", "--name", "shop", "--scope", "train", "--dataset", "adult")
    principal = made["principal"]
    assert principal == f"token:shop#{made['created']}"
    assert [each["principal"] for each in made["grants"]] == [principal]
    for text in ("shop", "token:shop", principal):
        (given,) = say("grant", "add", "--principal", text, "--scope", "audit")["grants"]
        assert given["principal"] == principal
    assert len(say("grant", "list", "--principal", "shop")["grants"]) == 2
    words = ("--analyst", "token:shop", "--share", "0.5", "--reason", "half")
    assert say("dataset", "quota", "adult", *words)["quotas"][0]["analyst"] == principal
    size = home.ledger.log.size()
    assert run(["token", "create", "--name", "narrow", "--scope", "train", "--dataset", "none"]) == 2
    assert home.ledger.log.size() == size  # both or none
