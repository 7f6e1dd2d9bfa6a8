"""Tokens: what the ledger knows of them, and which header counts."""

from __future__ import annotations

import json

import pytest

from accountant.access import grants, tokens
from accountant.access.grants import Access
from accountant.errors import NameTaken, UnknownName
from dpserve_verify.errors import InputError
from serving.operations.grants import TokenAnswer
from serving.process.tokens import bearer, digest, new_token, rights


def test_token_is_known_by_its_hash_alone(home):
    secret, token = new_token(home, "shop", ["predict"])
    assert secret.startswith("dps_")
    assert len(secret) > 40
    entry = home.ledger.log.entry(token.created)
    assert entry.value["type"] == "token-created"
    assert (entry.value["name"], entry.value["scopes"], entry.value["hash"]) == ("shop", ["predict"], digest(secret))
    assert all(secret.encode() not in file.read_bytes() for file in home.path.rglob("*") if file.is_file())


def test_two_tokens_are_never_the_same(home):
    assert new_token(home, "one", ["predict"])[0] != new_token(home, "two", ["predict"])[0]


def test_revoking_is_an_entry_and_for_ever(home):
    secret, token = new_token(home, "shop", ["predict"])
    assert rights(home).bearers.keys() == {digest(secret)}
    revoked = tokens.revoke(home.ledger, "shop")
    assert home.ledger.log.entry(revoked.revoked).value["type"] == "token-revoked"
    assert home.ledger.log.entry(revoked.revoked).value["hash"] == token.digest
    assert rights(home).bearers == {}
    with pytest.raises(UnknownName):
        tokens.revoke(home.ledger, "shop")


def test_name_is_free_again_once_revoked(home):
    new_token(home, "shop", ["predict"])
    with pytest.raises(NameTaken):
        new_token(home, "shop", ["train"])
    tokens.revoke(home.ledger, "shop")
    _, second = new_token(home, "shop", ["train"])
    assert [(t.name, t.scopes, t.revoked is None) for t in tokens.tokens(home.ledger)] == [
        ("shop", ("predict",), False),
        ("shop", ("train",), True),
    ]
    assert second.scopes == ("train",)


@pytest.mark.parametrize("scopes", [[], ["root"], ["predict", "all"]])
def test_scopes_are_those_that_there_are(home, scopes):
    with pytest.raises(InputError, match="scope"):
        new_token(home, "shop", scopes)


@pytest.mark.parametrize("name", ["", "Shop", "a b", "../x", "x" * 65])
def test_name_is_narrow(home, name):
    with pytest.raises(InputError, match="name="):
        new_token(home, name, ["predict"])


def test_hash_is_a_sha256(home):
    with pytest.raises(InputError, match="hash"):
        tokens.create(home.ledger, "shop", ["predict"], "ab")


def test_ledger_refuses_whole_or_not_at_all(home):
    size = home.ledger.log.size()
    new_token(home, "shop", ["predict"])
    with pytest.raises(NameTaken):
        new_token(home, "shop", ["predict"])
    assert home.ledger.log.size() == size + 1


@pytest.mark.parametrize(
    ("scopes", "asked", "may"),
    [
        (("predict",), ("predict",), True),
        (("predict",), ("train", "audit"), False),
        (("train", "audit"), ("audit",), True),
        (("admin",), ("predict",), True),
        (("predict",), (), False),
    ],
)
def test_admin_is_enough_for_everything(scopes, asked, may):
    held = tuple(grants.of_token(tokens.Token("x", scopes, "0" * 64, 1)))
    assert Access("token:x", held, lambda name: frozenset()).may(*asked) is may


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b"Bearer dps_abc"], b"dps_abc"),
        ([b"bearer dps_abc"], b"dps_abc"),
        ([b"Bearer abc"], None),
        ([b"Basic dps_abc"], None),
        ([b"dps_abc"], None),
        ([b""], None),
        ([], None),
        ([b"Bearer dps_abc", b"Bearer dps_abc"], None),
    ],
)
def test_one_header_of_one_form_counts(values, found):
    assert bearer([(b"host", b"x"), *((b"authorization", value) for value in values)]) == found


def test_json_holds_no_secret(home):
    secret, token = new_token(home, "shop", ["audit", "predict"])
    body = json.dumps(TokenAnswer.of_token(token).to_json())
    assert secret not in body
    assert json.loads(body)["scopes"] == ["predict", "audit"]
