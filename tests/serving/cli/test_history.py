"""Whoever verifies, or asks a server, keeps the last checkpoint; another history of the same ledger is exit code 4."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from ledgers import copy, place, prepared
from offices import Office, cosigned, cosigner

from accountant.home import Home
from dpserve import ServiceError
from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable, OtherHistory
from dpserve_verify.log.notes import parse_checkpoint
from serving.cli.app import run
from serving.cli.backends.choice import server_address
from serving.cli.backends.server.pins import TRIES, Pins
from serving.cli.terminal import note
from training.jobs import job
from training.requests import JobRequest


def ledger(entries, fork=None):
    made = Office()
    for number in range(1, entries):
        made.append("token-revoked", name=f"token {number}{'' if fork is None or number < fork else ' of B'}")
    return made


class Service:
    """What a client of a server answers, by the checkpoint that it is at."""

    def __init__(self, office, size, proves=True):
        self.office, self.size, self.proves, self.asked = office, size, proves, 0

    def trust(self):
        return self.office.trust.to_json()

    def checkpoint(self, witnessed=False):
        self.asked += 1
        note = self.office.checkpoint(self.size)
        return cosigned(note, 31) if witnessed else note

    def consistency(self, earlier, later):
        from test_seen_checkpoints import growth

        if not self.proves:
            raise ServiceError(404, "not_found", "there is no such door", {})
        from dpserve_verify.formats.canonical import encode_base64

        hashes = [encode_base64(each) for each in growth(self.office, earlier, later).hashes]
        return {"from": earlier, "to": later, "hashes": hashes, "from_root": "", "to_root": ""}


@pytest.fixture
def laptop(tmp_path, monkeypatch):
    monkeypatch.delenv("DPSERVE_HOME")
    monkeypatch.setenv("DPSERVE_URL", "https://dp.example")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "dpserve"


def pins(**named):
    """What a new command knows of the server that the environment names."""
    return Pins(replace(server_address(), **named), note)


@pytest.fixture(autouse=True)
def _helpers(monkeypatch):
    monkeypatch.syspath_prepend("tests/accountant/log")


def test_a_server_must_continue_what_was_seen_of_it(laptop, capsys):
    office, other = ledger(20), ledger(20, fork=5)
    pins().check(Service(office, 8))
    assert "was not seen here before; its checkpoint of 8 entries is kept" in capsys.readouterr().err
    same = Service(office, 8)
    command = pins()
    command.check(same)
    command.check(same)
    assert same.asked == 1  # one command, one question
    pins().check(Service(office, 13))
    for liar in (Service(office, 8), Service(other, 13), Service(other, 20), Service(office, 20, proves=False)):
        with pytest.raises(OtherHistory):
            pins().check(liar)
    kept = pins().seen_checkpoints().read(office.trust)
    assert (kept.head.size, kept.note) == (13, office.checkpoint(13))
    pins().check(Service(office, 20))
    assert laptop.stat().st_mode & 0o077 == 0


def test_witnesses_that_are_named_are_asked_for(laptop, tmp_path, monkeypatch):
    office = ledger(20)
    policies = {}
    for number in (31, 32):
        policies[number] = tmp_path / f"{number}.policy"
        policies[number].write_text(f"witness w {cosigner(number)}\nquorum w\n")
    with pytest.raises(LedgerInvalid, match="quorum"):
        pins(witnesses=policies[32]).check(Service(office, 8))
    pins(witnesses=policies[31]).check(Service(office, 8))
    monkeypatch.setenv("DPSERVE_WITNESS_POLICY", str(policies[32]))
    with pytest.raises(LedgerInvalid, match="quorum"):
        pins().check(Service(office, 8))
    monkeypatch.setenv("DPSERVE_WITNESS_POLICY", str(policies[31]))
    pins().check(Service(office, 13))
    pins().check(Service(office, 9))  # witnesses may be behind what was seen, if it is the same history
    assert pins().seen_checkpoints().read(office.trust).head.size == 13
    with pytest.raises(OtherHistory):
        pins().check(Service(ledger(20, fork=3), 9))


def test_a_ledger_that_always_grows_is_asked_again_and_not_for_ever(laptop, monkeypatch):
    office = ledger(40)
    pins().check(Service(office, 8))

    class Racing(Service):
        def checkpoint(self, witnessed=False):
            self.asked += 1
            self.size += 1
            pins().seen_checkpoints().advance(
                office.checkpoint(self.size + 1), office.trust, self.between(self.size + 1)
            )
            return office.checkpoint(self.size)

        def between(self, later):
            from dpserve_verify.log.seen_checkpoints import read_growth

            return read_growth(self.consistency(pins().seen_checkpoints().read(office.trust).head.size, later))

    racing = Racing(office, 8)
    with pytest.raises(LedgerUnavailable, match="grew at each"):
        pins().check(racing)
    assert racing.asked == TRIES


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """A home, and a copy of it that goes on otherwise; models of both, exported."""
    folder = tmp_path_factory.mktemp("forked")
    asked = JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 5})
    first = Home.open(place(copy(prepared(), folder / "a")))
    job.train(first, asked, by="test")
    shutil.copytree(folder / "a", folder / "b")
    second = Home.open(place(folder / "b"))
    for home in (first, second, second):
        job.train(home, asked, by="test")
    return first, second


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "nowhere"))

    def say(*words):
        code = run([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return say


def version(home, number):
    return home.models / "adult" / str(number)


def test_verify_keeps_a_checkpoint_and_finds_the_other_history(forked, said, tmp_path, capsys, monkeypatch):
    first, second = forked
    trust = ("--trust", first.path / "trust.json")
    size = {at: parse_checkpoint(text.partition("\n\n")[2]).size for at, text in (
        (at, (version(home, number) / "model.onnx.tlog-proof").read_text())
        for at, home, number in (("old", first, 1), ("a", first, 2), ("b", second, 2), ("b3", second, 3))
    )}  # fmt: skip
    assert size["old"] < size["a"] == size["b"] < size["b3"]
    code, body = said("verify", version(first, 2), *trust)
    assert (code, body["history"]["seen"], body["history"]["size"]) == (0, "first", size["a"])
    assert said("verify", version(first, 2), *trust)[1]["history"]["seen"] == "same"
    code, body = said("verify", version(second, 2), *trust)  # every signature holds
    assert (code, body["ok"]) == (4, False)
    assert "two different ledgers" in body["problems"][0]
    # An older or a newer one is no fault; what is not proved is said.
    code, body = said("verify", version(first, 1), *trust)
    assert (code, body["history"]["seen"]) == (0, "older")
    assert run(["verify", str(version(second, 3)), *map(str, trust)]) == 0
    out = capsys.readouterr().out
    assert f"has {size['b3']} entries, and {size['a']} were seen here" in out
    assert "not proved" in out
    # By a proof, from who runs it, it is no longer open.
    proofs = {}
    for name, home, ends in (("old", first, (size["old"], size["a"])), ("b", second, (size["a"], size["b3"]))):
        monkeypatch.setenv("DPSERVE_HOME", str(home.path))
        proofs[name] = tmp_path / f"{name}.json"
        proofs[name].write_text(json.dumps(said("ledger", "consistency", "--from", ends[0], "--to", ends[1])[1]))
    given = ("--consistency", proofs["old"])
    assert said("verify", version(first, 1), *trust, *given)[1]["history"]["seen"] == "beginning"
    code, body = said("verify", version(second, 3), *trust, "--consistency", proofs["b"])
    assert (code, body["ok"]) == (4, False)
    assert "does not continue" in body["problems"][0]
    assert said("verify", version(second, 3), *trust, *given)[0] == 2  # of other sizes: nobody is accused
    assert said("verify", version(first, 2), *trust)[1]["history"]["seen"] == "same"


def test_a_home_proves_it_by_itself(forked, said, monkeypatch):
    first, second = forked
    monkeypatch.setenv("DPSERVE_HOME", str(second.path))
    stands = [said("verify", version(second, number))[1]["history"]["seen"] for number in (1, 2, 1, 3)]
    assert stands == ["first", "continues", "beginning", "continues"]
    monkeypatch.setenv("DPSERVE_HOME", str(first.path))
    code, body = said("verify", version(first, 2))
    assert (code, body["history"]["seen"]) == (0, "older")  # its own ledger has not so many entries: not proved


def test_a_folder_that_cannot_be_written_is_said(forked, said, tmp_path):
    first, _ = forked
    (tmp_path / "config").write_text("a file")
    code, body = said("verify", version(first, 2), "--trust", first.path / "trust.json")
    assert (code, body["ok"], body["history"]["seen"]) == (0, True, "unkept")


def test_witnesses_of_verify(forked, said, tmp_path):
    first, _ = forked
    policy = tmp_path / "w.policy"
    policy.write_text(f"witness w {cosigner(31)}\nquorum w\n")
    code, body = said("verify", version(first, 2), "--trust", first.path / "trust.json", "--witnesses", policy)
    assert (code, body["ok"]) == (4, False)
    assert "quorum" in body["problems"][0]
