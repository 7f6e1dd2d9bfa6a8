"""Which version answers to a name: written by the ledger before it happens, and judged by the auditor."""

from __future__ import annotations

import pytest
from small_home import write_files

from accountant.access.key_life import revoke
from accountant.audit.audit import audit_home
from accountant.errors import UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.model_names import PROMOTED, RETIRED, record
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import CertificateRevoked, InputError, LedgerInvalid, VerificationError
from dpserve_verify.formats.canonical import encode
from dpserve_verify.privacy.budget import Budget, Relation
from models.store import placing
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    found = Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("placed") / "home")})
    data, schema = files / "rows.parquet", files / "schema.yaml"
    register(found, "adult", data, schema, Budget.of(5, "1e-5"), Relation.ADD_REMOVE, None)
    for model in ("adult", "adult", "other"):
        job.train(
            found, JobRequest("adult", "lazybb", "0.3", parameters={"rounds": 5}, model=model, promote=True), by="test"
        )
    return found


def issued(home, name, version):
    return load_of_home(home, home.models / name / str(version), name).certificate.issued


@pytest.mark.slow
def test_each_move_is_an_entry_and_a_fact(home):
    store = ModelStore(home.models)
    moved = placing.promote(home, "adult@1", "review", "me")
    assert (store.champion("adult"), moved.champion) == (1, 1)
    with pytest.raises(WrongState, match="is the champion already"):
        placing.promote(home, "adult@1", "again", "me")
    with pytest.raises(InputError, match="say which version"):
        placing.promote(home, "adult", "again", "me")
    gone = placing.retire(home, "adult@1", "old", "me")
    assert (gone.champion, gone.serves, gone.offer) == (1, None, "adult@2")
    assert gone.command == "dpserve model promote adult@2"
    assert placing.restore(home, "adult@1", "needed", "me").serves == "adult@1"
    assert placing.retire(home, "adult@2", "old", "me").retired == store.retired("adult") == [2]
    with pytest.raises(InputError, match="is retired"):
        placing.promote(home, "adult@2", "again", "me")
    assert placing.restore(home, "adult@2", "asked for", "me").retired == store.retired("adult") == []
    assert placing.promote(home, "adult@2", "again", "me").to_json()["champion"] == 2
    entry = home.ledger.log.entry(moved.entry).value
    assert {**entry, "time": ""} == {
        **{"type": "model-promoted", "time": "", "name": "adult", "version": 1, "issued": issued(home, "adult", 1)},
        **{"reason": "review", "by": "me", "replaces": 2},
    }
    assert (moved.replaces, moved.serves, moved.offer) == ("adult@2", "adult@1", None)
    assert audit_home(home).problems == ()


def test_nothing_is_written_of_what_cannot_be(home):
    size, first = home.ledger.log.size(), issued(home, "adult", 1)
    for act, error in (
        (lambda: placing.promote(home, "adult@9", "x", "me"), UnknownName),
        (lambda: placing.retire(home, "nope", "x", "me"), UnknownName),
        (lambda: placing.retire(home, "../adult@1", "x", "me"), InputError),
        (lambda: placing.retire(home, "adult@1", " ", "me"), InputError),
        (lambda: record(home.ledger, PROMOTED, "other", 1, first, "x", "me"), InputError),
        (lambda: record(home.ledger, PROMOTED, "adult", 1, 1, "x", "me"), InputError),
        (lambda: record(home.ledger, PROMOTED, "adult", 1, 10**6, "x", "me"), InputError),
    ):
        with pytest.raises(error):
            act()
    assert home.ledger.log.size() == size


def test_what_does_not_verify_and_what_was_revoked_is_not_promoted(home):
    (home.models / "other" / "champion").unlink()
    path = home.models / "other" / "1" / "model.onnx"
    good = path.read_bytes()
    path.write_bytes(good + b" ")
    with pytest.raises(VerificationError):
        placing.promote(home, "other@1", "x", "me")
    path.write_bytes(good)
    entry = issued(home, "other", 1)
    revoke(home, entry, "me", "the rows were wrong")
    with pytest.raises(CertificateRevoked):
        placing.promote(home, "other@1", "x", "me")
    with pytest.raises(WrongState):
        record(home.ledger, PROMOTED, "other", 1, entry, "x", "me")
    assert record(home.ledger, RETIRED, "other", 1, entry, "it was revoked", "me")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"issued": 1}, "does not certify"),
        ({"issued": True}, "issued: must be the index"),
        ({"issued": 10**6}, "does not certify"),
        ({"version": 0}, "version"),
        ({"version": "1"}, "version"),
        ({"name": "../x"}, "name"),
        ({"reason": " "}, "reason"),
        ({"by": ""}, "by"),
        ({"more": 1}, "exactly the fields"),
        ({"replaces": 1}, "replaces|exactly the fields"),
        ({"replaces": "2"}, "replaces|exactly the fields"),
    ],
)
@pytest.mark.parametrize("kind", ["model-promoted", "model-retired", "model-restored"])
def test_a_forged_entry_is_named(home, kind, fields, problem):
    replay = Replay(home.trust)
    entries = home.ledger.log.entries()
    for entry in entries:
        replay.read(entry.seq, entry.body)
    good = {"type": kind, "time": entries[0].value["time"], "name": "adult", "version": 1, "reason": "x", "by": "me"}
    body = encode({**good, "issued": issued(home, "adult", 1), **fields})
    if not problem:
        assert replay.read(len(entries), body)["type"] == kind
        return
    with pytest.raises(LedgerInvalid, match=problem):
        replay.read(len(entries), body)
