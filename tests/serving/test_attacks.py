"""Attacks that worked once, against a running server: by whoever holds one token, or writes the database without a key.

They use nothing but doors, files and SQL. What one body may take of a server's memory is `wire/test_decoded_size.py`'s.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from contextlib import closing
from decimal import Decimal

import pytest
from small_home import adult_home, serving, until

from accountant.access import key_life
from accountant.audit.audit import audit_place
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.server

FEW = {"rounds": 5}
EVIL = "dps_" + "e" * 43


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One dataset of epsilon 1, and a champion that took .6 of it."""
    folder = tmp_path_factory.mktemp("attacks")
    home = adult_home(folder, 1)
    unused = sql(home.path, "SELECT used, reserved FROM family")[0]
    job.train(home, JobRequest("adult", "lazybb", "0.6", parameters=FEW), by="steward")
    with serving(home.path, workers=1, own_time=True) as found:
        found.unused = unused
        until(lambda: found.predict().status_code == 200, "the champion answers")
        yield found


def sql(path, text, *values):
    with closing(sqlite3.connect(path / "ledger.db", timeout=30, isolation_level=None)) as connection:
        return connection.execute(text, values).fetchall()


def problems(server):
    return " ".join(audit_place({"DPSERVE_HOME": str(server.path)}).problems)


def test_a_token_to_train_does_not_replace_the_champion_of_another(server):
    body = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.05", "parameters": FEW, "model": "adult"}
    answer = server.post("/v1/jobs", body, scope="train")
    if answer.status_code == 202:  # then it must come to nothing that answers
        number = answer.json()["job"]
        ends = ("issued", "burned", "released")
        until(lambda: server.get(f"/v1/jobs/{number}").json()["state"] in ends, "the job is over")
        time.sleep(2)
    found = until(
        lambda: server.predict().json().get("model"), "it answers; the test before may have had it look again"
    )
    assert found == "adult@1"
    assert answer.status_code == 403


def test_a_row_in_the_table_of_tokens_is_no_admin(server):
    values = (hashlib.sha256(EVIL.encode()).hexdigest(), 0, "evil", "admin")
    sql(server.path, "INSERT INTO token (hash, seq, name, scopes) VALUES (?, ?, ?, ?)", *values)
    try:
        for _ in range(15):
            answer = server.get("/v1/ledger", scope=None, headers={"Authorization": f"Bearer {EVIL}"})
            assert answer.status_code == 401
            time.sleep(0.2)
        assert "token" in problems(server)
    finally:
        sql(server.path, "DELETE FROM token WHERE name = 'evil'")
    assert "token" not in problems(server)


def test_sums_that_are_set_back_do_not_give_the_budget_again(server):
    now = sql(server.path, "SELECT used, reserved FROM family")[0]
    sql(server.path, "UPDATE family SET used = ?, reserved = ?", *server.unused)
    try:
        size = server.home.ledger.log.size()
        body = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.6", "parameters": FEW, "model": "mine"}
        assert server.post("/v1/jobs", body, scope="admin").status_code == 503  # whose quota no other test sets
        assert server.home.ledger.log.size() == size
        assert "family" in problems(server)
    finally:
        sql(server.path, "UPDATE family SET used = ?, reserved = ?", *now)
    assert problems(server) == ""


def test_what_an_analyst_used_does_not_come_back_with_an_older_row(server):
    """A quota that was used up is not there again because its row says so."""
    by = f"token:train-{server.port}"
    asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.15", "parameters": FEW, "model": "mine"}

    def asks(key):
        """The answer, however busy the machine is."""
        body = {**asked, "idempotency_key": key}
        late = (504, 429)
        return until(lambda: (got := server.post("/v1/jobs", body, scope="train")).status_code not in late and got, key)

    assert asks("first").status_code == 202
    (share,) = (Decimal(line["used"]) for line in server.home.ledger.quotas("adult") if line["analyst"] == by)
    server.home.ledger.set_quota("adult", by, round(share * 3 / 2, 6), "a test", "steward")
    refused = asks("second")
    assert refused.status_code == 403, refused.text
    assert refused.json()["error"]["details"]["reason"] == "quota"
    (used,) = sql(server.path, "SELECT used FROM analyst WHERE name = ?", by)[0]
    sql(server.path, "UPDATE analyst SET used = ? WHERE name = ?", server.unused[0], by)
    try:
        assert asks("third").status_code == 503
        assert "analyst" in problems(server)
    finally:
        sql(server.path, "UPDATE analyst SET used = ? WHERE name = ?", used, by)
    assert asks("fourth").status_code == 403
    assert problems(server) == ""


@pytest.mark.last
def test_a_revoked_certificate_is_not_good_again_once_its_row_is_gone(server):
    """The certificate of the only model is revoked."""
    issued = server.home.ledger.jobs()[0].issued
    key_life.revoke(server.home, issued, "steward", "a test")
    until(lambda: server.predict().status_code == 503, "it answers no more")
    row = sql(server.path, "SELECT issued, seq FROM revoked")[0]
    sql(server.path, "DELETE FROM revoked")
    try:
        for _ in range(15):
            assert server.predict().status_code == 503
            time.sleep(0.2)
        assert "revocation" in problems(server)
    finally:
        sql(server.path, "INSERT INTO revoked VALUES (?, ?)", *row)
    assert problems(server) == ""
