"""The audit of exported ledgers, and of the models beside them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import ledgers
import pytest
from audited import COUNT, LEAVES, report, trust
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledgers import bodies, changed, copy, place, raw, rewrite
from trusts import audit_models

from accountant.audit.audit import audit_home
from accountant.audit.export import export
from accountant.home import Home
from accountant.keys.private_keys import KeyStore
from dpserve_verify.audit.exports import audit_export
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decode
from dpserve_verify.keys.trust import PublicKeys, public_pem

pytestmark = pytest.mark.home("filled", folder=True)


@pytest.fixture
def exported(home) -> Path:
    opened = Home.open(place(home))
    assert export(opened, home.parent / "export") == COUNT
    return home.parent / "export"


def test_an_export_is_judged_like_the_ledger(home, exported):
    assert audit_export(exported, trust(home)) == replace(report(home), lost=())
    assert (exported / "entries.jsonl").read_bytes() == b"".join(leaf + b"\n" for leaf in LEAVES)
    assert PublicKeys.from_json((exported / "trust.json").read_bytes()) == trust(home)
    with pytest.raises(InputError, match="must be a new folder"):
        export(Home.open(place(home)), exported)


@pytest.mark.slow
@pytest.mark.parametrize("seq", range(COUNT))
def test_changed_lines_of_an_export_are_named(home, exported, seq):
    for lines, first in (
        ([*LEAVES[:seq], changed(LEAVES[seq], time="2020-01-01T00:00:00Z"), *LEAVES[seq + 1 :]], seq),
        ([*LEAVES[:seq], *LEAVES[seq + 1 :]], seq),
        ([*LEAVES[: seq + 1], *LEAVES[seq:]], seq + 1),
        (LEAVES[:seq], seq),
    ):
        (exported / "entries.jsonl").write_bytes(b"".join(leaf + b"\n" for leaf in lines))
        assert audit_export(exported, trust(home)).first == first


def test_an_export_cut_or_malformed_is_refused(home, exported):
    for name, content, error in (
        ("entries.jsonl", b"".join(leaf + b"\n" for leaf in LEAVES)[:-1], "entries.jsonl, line"),
        ("entries.jsonl", b"x" * 1_000_000, "entries.jsonl, line 1: is cut short or too long"),
        ("checkpoints.jsonl", b"{}\n", "checkpoints.jsonl, line 1"),
        ("checkpoints.jsonl", b'{"note":"x","size":1.0}\n', "checkpoints.jsonl, line 1"),
        ("checkpoint", b"\xff", "checkpoint: must be text"),
    ):
        before = (exported / name).read_bytes()
        (exported / name).write_bytes(content)
        with pytest.raises(LedgerInvalid, match=error):
            audit_export(exported, trust(home))
        (exported / name).write_bytes(before)
    (exported / "checkpoint").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        audit_export(exported, trust(home))


def test_an_export_without_its_checkpoints_is_not_sound_in_silence(home, exported):
    """The newest one vouches for every entry; that the others are gone is said."""
    whole, listed = audit_export(exported, trust(home)), (exported / "checkpoints.jsonl").read_bytes()
    for kept, ends in ((b"", 0), (listed[: listed.index(b"\n") + 1], decode(listed.splitlines()[0])["size"])):
        (exported / "checkpoints.jsonl").write_bytes(kept)
        report = audit_export(exported, trust(home))
        assert (report.ok, report.root) == (True, whole.root)
        (note,) = set(report.notes) - set(whole.notes)
        assert note.startswith(f"checkpoints.jsonl: ends at size {ends}, and the newest checkpoint is of {COUNT}")


def test_a_damaged_ledger_is_not_exported_as_a_sound_one(home):
    raw(home).execute("UPDATE entry SET body = x'ff0a' WHERE seq = 3")
    with pytest.raises(LedgerInvalid, match="entry 3"):
        export(Home.open(place(home)), home.parent / "export")


# Models.


@pytest.fixture
def served(tmp_path) -> Path:
    return copy(ledgers.trained(), tmp_path / "served")


def test_certificates_belong_to_the_ledger(served):
    found = ledgers.bundles(served)
    assert len(found) == 2
    assert audit_models(found, trust(served)) == ()
    assert report(served, bundles=found).ok
    (one, envelope, proof, model), other = found
    for bad in (
        (one, envelope, proof, other[3]),
        (one, envelope, other[2], model),
        (one, other[1], proof, model),
        (one, envelope, b"\xff", model),
        (one, b"{}", proof, model),
    ):
        assert audit_models([bad], trust(served))
        assert [f"model {one}" in problem for problem in report(served, bundles=[bad, other]).problems] == [True]


def test_a_certificate_of_another_history_shows_the_fork(served, tmp_path):
    """Two copies of a home go two ways under one log key; each is sound, and a model of one convicts the other."""
    fork = copy(served, tmp_path / "fork")
    from training.jobs import job
    from training.requests import JobRequest

    ways = [Home.open(place(served)), Home.open(place(fork))]
    for opened, epsilon in zip(ways, ("0.1", "0.2"), strict=True):
        job.train(opened, JobRequest("adult", "lazybb", epsilon, parameters={"rounds": 8}), by="test")
        assert audit_home(opened, ledgers.bundles(opened.path)).ok
        opened.ledger.log.database.close()
    stranger = ledgers.bundles(fork)[-1]
    assert audit_models([stranger], trust(served)) == ()  # signed, in a signed log: nothing wrong with it alone
    assert not report(served, bundles=[stranger]).ok


def test_a_certificate_for_less_than_was_reserved_is_found(served):
    """The ledger is cut back and continued by its own keys: the old model's certificate no longer belongs to it."""
    found = ledgers.bundles(served)
    rewrite(served, bodies(served)[:3])
    problems = report(served, bundles=found).problems
    assert all(any(name in problem for problem in problems) for name, *_ in found)


def test_a_foreign_key_of_the_same_form_is_no_trust(served):
    keys = trust(served)
    foreign = Ed25519PrivateKey.generate().public_key()
    other = PublicKeys(keys.origin, keys.issuers, public_pem(foreign))
    assert audit_models(ledgers.bundles(served), other)


def test_ledgers_of_other_keys_do_not_open(home):
    shutil.rmtree(home / "keys")
    KeyStore.create(home / "keys")
    with pytest.raises(LedgerInvalid, match="another log key"):
        Home.open(place(home))
