"""The page of tokens: made and shown once, ended permanently, by admins alone."""

from __future__ import annotations

import re

import ledgers
import pytest
from in_process import BASE
from pages_in_process import pages_at, words

from accountant.access import tokens
from accountant.access.tokens import Limits
from serving.process.tokens import digest

SECRET = re.compile(r"dps_[A-Za-z0-9_-]{43}")


@pytest.fixture
def pages(tmp_path):
    with pages_at(ledgers.copy(ledgers.filled(), tmp_path / "home")) as found:
        yield found


def good(pages):
    return {each.name: each for each in tokens.tokens(pages.home.ledger) if each.revoked is None}


def test_token_is_shown_once_and_works(pages):
    response = pages.send("/ui/tokens", name="alice", train="yes", audit="yes", per_second="5", per_day="1000")
    secret = SECRET.search(response.text)[0]
    assert response.headers["cache-control"] == "no-store"
    made = good(pages)["alice"]
    assert (made.scopes, made.digest, made.limits) == (("train", "audit"), digest(secret), Limits(5, 1000))
    assert secret not in pages.page("/ui/tokens").text
    assert f"/ui/ledger/{made.created}" in pages.page("/ui/tokens").text
    pages.look()
    assert pages.bear(secret, "GET", "/ui/ledger").status_code == 200
    assert pages.bear(secret, "GET", "/ui/tokens").status_code == 403


def test_ledger_says_what_the_form_said(pages):
    pages.send("/ui/tokens", name="alice", predict="yes", per_day="1000")
    entry = pages.home.ledger.log.entry(good(pages)["alice"].created)
    assert (entry.value["scopes"], entry.value["limits"]) == (["predict"], {"per_day": 1000})
    assert "alice was made, for predict, at most 1,000 a day" in words(pages.page(f"/ui/ledger/{entry.seq}"))


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"name": "alice"}, 400, "choose what the token is for"),
        ({"name": "", "train": "yes"}, 400, "name=''"),
        ({"name": "Alice!", "train": "yes"}, 400, "a-z"),
        ({"name": "alice", "train": "yes", "per_second": "many"}, 400, "whole number"),
        ({"name": "alice", "train": "yes", "per_second": "0"}, 400, "per_second=0"),
        ({"name": "auditor", "train": "yes"}, 409, "there is a token of that name"),
        ({"name": "alice", "root": "yes"}, 400, "is not a field"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(pages, fields, status, says):
    before = pages.home.ledger.log.size()
    response = pages.send("/ui/tokens", **fields)
    assert (response.status_code, pages.home.ledger.log.size()) == (status, before)
    assert says in words(response)
    assert not SECRET.search(response.text)


def test_what_was_typed_stays_in_a_refused_form(pages):
    text = pages.send("/ui/tokens", name="auditor", train="yes", per_day="7").text
    assert 'value="auditor"' in text
    assert re.search(r'name="train" value="yes" checked', text)
    assert 'name="per_day" value="7"' in text


def test_token_is_ended_for_ever(pages):
    assert pages.page("/ui/ledger", "audit").status_code == 200
    response = pages.send("/ui/tokens/the-audit/revoke")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/tokens")
    pages.look()
    assert pages.page("/ui/ledger", "audit").status_code == 303  # to the login
    assert "the-audit" not in good(pages)
    again = pages.send("/ui/tokens/the-audit/revoke")
    assert again.status_code == 404
    assert "no token of that name is good" in words(again)
    assert "the-audit: audit, from" in words(pages.page("/ui/tokens"))


@pytest.mark.parametrize("scope", ["predict", "train", "audit"])
def test_page_is_for_admins(pages, scope):
    size = pages.home.ledger.log.size()
    assert pages.page("/ui/tokens", scope).status_code == 403
    assert pages.send("/ui/tokens", scope, name="alice", train="yes").status_code == 403
    assert pages.send("/ui/tokens/the-admin/revoke", scope).status_code == 403
    assert pages.home.ledger.log.size() == size


def test_page_of_another_site_cannot_make_or_end_tokens(pages):
    size = pages.home.ledger.log.size()
    for origin in ("http://elsewhere.example", "null", f"{BASE}.evil.example"):
        assert pages.send("/ui/tokens", origin=origin, name="alice", admin="yes").status_code == 403
        assert pages.send("/ui/tokens/the-admin/revoke", origin=origin).status_code == 403
    assert pages.home.ledger.log.size() == size
