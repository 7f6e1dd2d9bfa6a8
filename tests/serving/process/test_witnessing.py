"""The server sends its checkpoints to the witnesses of one setting by itself, and waits for none of them."""

from __future__ import annotations

import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from histories import copied, grown, log_vkey
from small_home import adult_home, dpserve, serving, until
from witness_server import Server, Witness, vkey

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.witnessed import read_witnessed
from serving.process.watch import witnessing

pytestmark = pytest.mark.server


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    made = copied(12, tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(made.path))
    monkeypatch.setenv("DPSERVE_WITNESS_POLICY", str(tmp_path / "policy"))
    return made


def test_a_checkpoint_is_sent_once_until_something_is_entered_or_an_hour_is_over(home, tmp_path, monkeypatch, caplog):
    with Witness("w", tmp_path, [log_vkey(home)]) as witness:
        (tmp_path / "policy").write_text(f"{witness.line()}quorum w\n")
        for _ in range(2):
            witnessing.ask_witnesses()
            assert witness.asked == [200]
        grown(home, 13)
        witnessing.ask_witnesses()
        assert witness.asked == [200, 200]
        monkeypatch.setattr(witnessing, "RENEW_SECONDS", -1)
        witnessing.ask_witnesses()
        assert witness.asked == [200] * 3
        assert parse_checkpoint(read_witnessed(home.path)).size == 13
    grown(home, 14)
    caplog.clear()
    witnessing.ask_witnesses()  # nobody answers: the ledger goes on
    assert [(each.levelname, "no answer" in each.message) for each in caplog.records] == [("ERROR", True)]
    assert parse_checkpoint(read_witnessed(home.path)).size == 13


def test_who_cannot_be_asked_is_not_and_what_cannot_be_read_is_said_before_the_start(home, tmp_path):
    with pytest.raises(InputError, match="policy"):
        witnessing.asked_policy()
    done = dpserve(home.path, "serve")
    assert (done.returncode, "policy" in done.stderr) == (2, True)
    (tmp_path / "policy").write_text(f"witness w {vkey(Ed25519PrivateKey.generate(), 'w')}\nquorum w\n")
    assert witnessing.asked_policy() is None
    witnessing.ask_witnesses()
    assert read_witnessed(home.path) is None
    assert witnessing.asked_policy({}) is None


def test_a_job_is_admitted_while_a_witness_hangs_and_the_others_still_see_it(tmp_path):
    home, asked, over = adult_home(tmp_path, 2), threading.Event(), threading.Event()
    policy = tmp_path / "witnesses.policy"
    with (
        Witness("w", tmp_path, [log_vkey(home)]) as witness,
        Server(lambda _: (asked.set(), over.wait(60))) as silent,
    ):
        other = vkey(Ed25519PrivateKey.generate(), "silent")
        policy.write_text(f"{witness.line()}witness s {other} {silent.url}\ngroup g any w s\nquorum g\n")
        with serving(home.path, workers=1, DPSERVE_WITNESS_POLICY=str(policy)) as server:
            assert asked.wait(60)
            job = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 5}}
            answer = server.post("/v1/jobs", job | {"model": "m"})
            assert answer.status_code == 202, answer.text
            until(lambda: read_witnessed(home.path) is not None, "the other one has cosigned")
            assert "witness s: did not answer in time" in server.log.read_text()
            assert server.processes("dpserve-serving")
        over.set()
    assert witness.asked == [200]
