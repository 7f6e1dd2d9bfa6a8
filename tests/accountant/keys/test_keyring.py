"""Keys over a ledger's life: what each change leaves in the ledger, the trust file and the folder, whatever cuts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ledgers
import pytest
import warm
from ledgers import ROOT, copy, hexes, place
from stores import at
from trusts import followed

from accountant.access import key_life, tokens
from accountant.errors import UnknownName, WrongState
from accountant.home import Home
from accountant.keys import key_exchange, key_rows, opening
from accountant.keys.key_files import PASSPHRASE_VARIABLE
from accountant.ledger.ledger import Ledger
from accountant.log import entries as log
from accountant.store import store, tables
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.entries.keys import KeyRing
from dpserve_verify.entries.kinds import read_form
from dpserve_verify.errors import CertificateInvalid, InputError, KeyInvalid, LedgerInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import IssuerKey, PublicKeys
from dpserve_verify.log import notes
from dpserve_verify.log.proofs import parse_proof
from models.store.bundle import ModelStore
from models.store.renewal import renew_proofs

WHY = ("test", "a drill")
ROLES = ("issuer", "log")


@pytest.fixture
def trained(tmp_path) -> Home:
    """With two certified models."""
    return Home.open(place(copy(ledgers.trained(), tmp_path / "trained")))


def again(home: Home) -> Home:
    """As another process finds it."""
    return Home.open(place(home.path))


def keyid(home: Home, role: str) -> str:
    return home.keys.key(role).keyid


def used(home: Home) -> None:
    """Anything that appends."""
    tokens.create(home.ledger, f"token-{home.ledger.log.size()}", ["audit"], hexes(str(home.ledger.log.size())))


def follow(home: Home, pinned: PublicKeys) -> PublicKeys:
    """What an auditor does who pinned `pinned`: judge the entries about keys, and hold every stored checkpoint against
    the key of its size and that of the one before it. The trust file that follows."""
    ring, issued = KeyRing(pinned), set()
    readers = {
        "key-added": ring.judge_added,
        "key-retired": ring.judge_retired,
        "key-compromised": ring.judge_compromised,
    }
    readers["genesis"] = ring.judge_genesis
    entries = home.ledger.log.entries(limit=10**6)
    for entry in entries:
        kind = entry.value["type"]
        form = read_form(kind, entry.value)
        if kind == "revoked":
            ring.judge_revoked(entry.seq, form, issued)
        if kind == "issued":
            issued.add(entry.seq)
        if kind in readers:
            readers[kind](entry.seq, form)
    with home.ledger.log.database.reading() as connection:
        before = 0
        for size, note in store.checkpoints(connection):
            for at in (before, size):
                notes.verify_checkpoint(note, pinned.origin, ring.log_key_at(at))
            before = size
        rows = {row.keyid: row for row in key_rows.rows(connection)}
    ring.end(len(entries))
    assert {name: (row.role, row.pem, row.added, row.until, row.ended) for name, row in rows.items()} == {
        name: (key.role, key.pem, key.added, key.until, key.ended) for name, key in ring.keys.items()
    }
    return followed(ring)


def trust_file(home: Home) -> PublicKeys:
    return PublicKeys.from_json((home.path / "trust.json").read_bytes())


def lines(note: str) -> int:
    return len(notes.parse_note(note).signatures)


@pytest.mark.parametrize("role", ROLES)
def test_a_rotation(home, role):
    pinned, before, other = home.trust, keyid(home, role), keyid(home, ROLES[role == "issuer"])
    private = (home.path / "keys" / f"{role}.pem").read_bytes()
    row = key_life.rotate(home, role, *WHY)
    for found in (home, again(home)):
        assert keyid(found, role) == row.keyid != before
        assert keyid(found, ROLES[role == "issuer"]) == other
        used(found)
        assert found.trust == trust_file(found) == follow(found, pinned) == follow(found, found.trust)
        assert found.trust.continues(pinned)
    kinds = [(entry.value["type"], entry.value.get("reason")) for entry in home.ledger.log.entries(1, 2)]
    assert kinds == [("key-added", "a drill"), ("key-retired", "a drill")]
    folder = home.path / "keys"
    assert private not in [file.read_bytes() for file in folder.iterdir()]
    assert not list(folder.glob("*.next.*"))
    assert stat.S_IMODE((folder / f"{role}.pem").stat().st_mode) == 0o600


def test_both_keys_sign_at_a_rotation_of_the_log_and_the_new_one_alone_after_it(home):
    old = home.trust.log_key
    key_life.rotate(home, "log", *WHY)
    handover = home.ledger.log.checkpoint()
    assert lines(handover) == 2
    for key in (old, home.trust.log_key):
        assert notes.verify_checkpoint(handover, home.trust.origin, key).size == 3
    used(home)
    assert lines(home.ledger.log.checkpoint()) == 1
    with pytest.raises(LedgerInvalid, match="no signature by the pinned key"):
        notes.verify_checkpoint(home.ledger.log.checkpoint(), home.trust.origin, old)


def test_who_takes_the_database_but_not_the_old_log_key_cannot_hand_it_over(home):
    """A key of their own, added and signed with by themselves: whoever pinned the old key does not follow."""
    pinned = home.trust
    key_life.rotate(home, "log", *WHY)
    used(home)
    note = home.ledger.log.checkpoint()
    with ledgers.raw(home.path) as connection:
        (stored,) = connection.execute("SELECT note FROM checkpoint WHERE size = 3").fetchone()
        text, signatures = stored.split("\n\n")
        alone = f"{text}\n\n{signatures.splitlines()[1]}\n"
        connection.execute("UPDATE checkpoint SET note = ? WHERE size = 3", (alone,))
    notes.verify_checkpoint(note, pinned.origin, home.trust.log_key)
    with pytest.raises(LedgerInvalid, match="no signature by the pinned key"):
        follow(home, pinned)


def test_many_rotations(home):
    pinned = home.trust
    for number in range(6):
        key_life.rotate(home, ROLES[number % 2], *WHY)
        home = again(home)
    assert [len(home.trust.issuers), len(home.trust.logs)] == [4, 4]
    assert home.trust == follow(home, pinned)
    assert home.trust.log_key_at(home.ledger.log.size()) == home.trust.log_key


def test_a_running_process_goes_on_with_keys_that_another_has_changed(home):
    running = again(home)
    for role in ROLES:
        key_life.rotate(home, role, *WHY)
        assert keyid(running, role) != keyid(home, role)
        used(running)
        assert keyid(running, role) == keyid(home, role)
    assert running.trust == home.trust == follow(running, home.trust)


def test_a_running_process_finds_a_new_key_that_is_not_in_its_place_yet(home, monkeypatch):
    """Between the entry and the files."""
    running = again(home)
    monkeypatch.setattr(key_life, "_put_in_place", lambda *_: None)
    key_life.rotate(home, "log", *WHY)
    assert (home.path / "keys" / "log.next.pem").exists()
    used(running)
    used(again(home))
    assert not (home.path / "keys" / "log.next.pem").exists()


def test_a_stale_copy_of_the_keys_signs_nothing(home, tmp_path):
    """As on a second host, whose key folder is a copy from before."""
    copied = copy(home.path, tmp_path / "second")
    elsewhere = place(copied) | {"DPSERVE_LEDGER_URL": f"sqlite:///{home.path / 'ledger.db'}"}
    running = Home.open(elsewhere)
    key_life.rotate(home, "log", *WHY)
    size = home.ledger.log.size()
    with pytest.raises(KeyInvalid, match="another log key"):
        used(running)
    with pytest.raises(LedgerInvalid, match="another log key"):
        Home.open(elsewhere)
    assert home.ledger.log.size() == size


def test_a_stale_issuer_key_signs_no_certificate_but_the_ledger_goes_on(home, tmp_path):
    copied = copy(home.path, tmp_path / "second")
    elsewhere = place(copied) | {"DPSERVE_LEDGER_URL": f"sqlite:///{home.path / 'ledger.db'}"}
    running = Home.open(elsewhere)
    key_life.rotate(home, "issuer", *WHY)
    used(running)
    with pytest.raises(KeyInvalid, match="restart"):
        running.keys.signer("issuer")
    with pytest.raises(KeyInvalid, match="not the ledger's issuer key"):
        Home.open(elsewhere)


def test_overlap_and_retire(home, tmp_path):
    copied = copy(home.path, tmp_path / "second")
    elsewhere = place(copied) | {"DPSERVE_LEDGER_URL": f"sqlite:///{home.path / 'ledger.db'}"}
    pinned, old = home.trust, keyid(home, "issuer")
    new = key_life.rotate(home, "issuer", *WHY, overlap=True).keyid
    assert (keyid(again(home), "issuer"), keyid(Home.open(elsewhere), "issuer")) == (new, old)
    assert home.trust.issuer_keys(home.ledger.log.size()).keys() == {old, new}
    key_life.retire(home, old, *WHY)
    with pytest.raises(KeyInvalid, match="not the ledger's issuer key"):
        Home.open(elsewhere)
    assert home.trust.issuer_keys(home.ledger.log.size()).keys() == {new}
    assert home.trust == follow(home, pinned)


def test_what_must_not_end(home):
    for role in ROLES:
        with pytest.raises(WrongState, match=f"the only good {role} key"):
            key_life.retire(home, keyid(home, role), *WHY)
    old = keyid(home, "issuer")
    key_life.rotate(home, "issuer", *WHY)
    with pytest.raises(WrongState, match="was retired before"):
        key_life.retire(home, old, *WHY)
    for call in (key_life.retire, lambda home, name, *why: key_life.mark_compromised(home, name, 0, *why)):
        with pytest.raises(UnknownName, match="no key of this ledger"):
            call(home, "SHA256:other", *WHY)
    with pytest.raises(InputError, match="one key at a time"):
        key_life.rotate(home, "log", *WHY, overlap=True)
    assert home.ledger.log.size() == 3


@pytest.mark.parametrize("why", [("", "a drill"), ("test", ""), ("test", " "), ("test", "a\nb"), ("test", "x" * 501)])
def test_a_reason_is_one_line_that_says_something(home, why):
    with pytest.raises(InputError, match="must be one line"):
        key_life.rotate(home, "issuer", *why)
    assert not list((home.path / "keys").glob("*.next.*"))
    assert home.ledger.log.size() == 1


def test_every_change_in_either_database(ledger_url, tmp_path):
    environment = at(tmp_path / "home", ledger_url)
    home = Home.init(environment)
    pinned, first = home.trust, {role: keyid(home, role) for role in ROLES}
    seq = ledgers.fill(home).ledger.job(max(job.seq for job in home.ledger.jobs() if job.issued)).issued
    running = Home.open(environment)
    for role in ROLES:
        key_life.rotate(home, role, *WHY)
        key_life.mark_compromised(Home.open(environment), first[role], 2, *WHY)
    key_life.rotate(home, "issuer", *WHY, overlap=True)
    key_life.retire(
        home, sorted(home.trust.issuer_keys(home.ledger.log.size()).keys() - {keyid(home, "issuer")})[0], *WHY
    )
    key_life.revoke(home, seq, *WHY)
    used(running)
    assert Home.open(environment).trust == follow(running, pinned) == trust_file(home)
    assert home.trust.revoked == {seq}


@pytest.mark.parametrize("role", ROLES)
def test_a_compromised_key_gives_way_to_a_new_one(home, role):
    pinned, old = home.trust, keyid(home, role)
    for _ in range(3):
        used(home)
    row = key_life.mark_compromised(home, old, 1, *WHY)
    assert row is not None
    assert keyid(again(home), role) == row.keyid == keyid(home, role) != old
    used(home)
    trust = home.trust
    assert trust == follow(home, pinned) == trust_file(home)
    if role == "issuer":
        assert trust.issuers == (replace(pinned.issuers[0], until_index=2), IssuerKey(row.pem, 4))
    else:
        assert [(key.from_size, key.until_size) for key in trust.logs] == [(0, 3), (5, None)]
        with pytest.raises(KeyInvalid, match="speaks for size 4"):
            trust.log_key_at(4)


def test_a_retired_key_turns_out_compromised(home):
    pinned, old = home.trust, keyid(home, "issuer")
    used(home)
    key_life.rotate(home, "issuer", *WHY)
    assert key_life.mark_compromised(home, old, 0, *WHY) is None
    assert home.trust.issuers[0].until_index == 1
    with pytest.raises(WrongState, match="speaks for nothing"):
        key_life.mark_compromised(home, old, 1, *WHY)
    assert home.trust == follow(home, pinned)


@pytest.mark.parametrize("after", [-1, 1, 99])
def test_compromised_after_an_entry_that_is_not_there(home, after):
    with pytest.raises(InputError, match="after="):
        key_life.mark_compromised(home, keyid(home, "issuer"), after, *WHY)
    assert home.ledger.log.size() == 1
    used(again(home))
    assert keyid(again(home), "issuer") == keyid(home, "issuer")


# Certificates


def checked(home: Home, trust: PublicKeys | None = None) -> list[str]:
    """Which of the two models verify now."""
    good = []
    for name, envelope, proof, onnx in ledgers.bundles(home.path):
        try:
            verify(envelope, proof.decode(), onnx, trust or home.trust)
        except (CertificateInvalid, KeyInvalid):
            continue
        good.append(name)
    return good


def issued(home: Home) -> list[int]:
    return [parse_proof(proof.decode()).index for _, _, proof, _ in ledgers.bundles(home.path)]


BOTH = ["adult@1", "adult@2"]


@pytest.mark.slow
def test_rotation_leaves_certificates_good(trained):
    old = trained.trust
    for role in ("issuer", "log", "issuer", "log"):
        key_life.rotate(trained, role, *WHY)
    assert checked(trained) == BOTH
    assert checked(trained, old) == BOTH  # as does a file from before: it knows the keys of that time
    assert checked(trained, follow(trained, old)) == BOTH


def test_a_certificate_by_a_key_that_was_retired_before_it_is_refused(trained):
    """The old key, kept by a thief, over a statement that the ledger holds: it came too late."""
    thief = trained.keys.signer("issuer")
    key_life.rotate(trained, "issuer", *WHY)
    seq = ledgers.reserve(trained.ledger, ledgers.request("adult", "0.25")).seq
    ledgers.advance(trained.ledger, seq, "committed")
    payload = b'{"any":"statement"}'
    index = trained.ledger.issue(seq, hexes(payload.decode()), hexes("model"))
    with pytest.raises(CertificateInvalid, match="pinned issuer key"):
        dsse.verify(dsse.sign(payload, thief), trained.trust.issuer_keys(index))
    dsse.verify(dsse.sign(payload, trained.keys.signer("issuer")), trained.trust.issuer_keys(index))


def test_certificates_by_a_compromised_issuer_count_up_to_the_entry(trained):
    first, second = issued(trained)
    assert first < second
    key_life.mark_compromised(trained, keyid(trained, "issuer"), first, *WHY)
    assert checked(trained) == ["adult@1"]
    key_life.mark_compromised(trained, trained.trust.issuers[0].keyid, 0, *WHY)
    assert checked(trained) == []


def test_a_certificate_by_a_foreign_key_is_refused(trained, tmp_path):
    other = Home.init(place(tmp_path / "other"))
    _, envelope, proof, onnx = ledgers.bundles(trained.path)[0]
    forged = dsse.sign(dsse.parse(envelope).payload, other.keys.signer("issuer"))
    with pytest.raises(CertificateInvalid, match="pinned issuer key"):
        verify(forged, proof.decode(), onnx, trained.trust)


def test_a_revoked_certificate_is_refused(trained):
    first, _ = issued(trained)
    old = trained.trust
    seq = key_life.revoke(trained, first, *WHY)
    assert trained.ledger.log.entry(seq).value["issued"] == first
    assert (
        opening.revoked_certificates(trained.ledger.log.database)
        == trained.trust.revoked
        == trust_file(trained).revoked
        == {first}
    )
    assert checked(trained) == ["adult@2"]
    assert checked(trained, follow(trained, old)) == ["adult@2"]
    with pytest.raises(WrongState, match="was revoked before"):
        key_life.revoke(trained, first, *WHY)
    for index in (0, first - 1, 10**6):
        with pytest.raises(UnknownName, match="no certificate"):
            key_life.revoke(trained, index, *WHY)
    with pytest.raises(InputError, match="issued"):
        key_life.revoke(trained, -1, *WHY)


def test_what_a_compromised_log_key_signed_is_proved_anew(trained):
    key_life.mark_compromised(trained, keyid(trained, "log"), 0, *WHY)
    assert checked(trained) == []
    models = ModelStore(trained.models)
    assert renew_proofs(models, trained.trust, trained.ledger.log.proof) == BOTH
    assert checked(trained) == BOTH
    assert renew_proofs(models, trained.trust, trained.ledger.log.proof) == []
    key_life.rotate(trained, "log", *WHY)
    assert renew_proofs(models, trained.trust, trained.ledger.log.proof) == []


def test_a_clock_that_is_set_back_changes_nothing(trained, monkeypatch):
    first, _ = issued(trained)

    class Back(log.datetime):
        @classmethod
        def now(cls, zone=None):
            return cls(1999, 1, 1, tzinfo=zone)

    monkeypatch.setattr(log, "datetime", Back)
    pinned = trained.trust
    key_life.rotate(trained, "issuer", *WHY)
    key_life.rotate(trained, "log", *WHY)
    key_life.mark_compromised(trained, pinned.issuers[0].keyid, first, *WHY)
    assert trained.ledger.log.entry(trained.ledger.log.size() - 1).value["time"].startswith("1999")
    assert checked(trained) == ["adult@1"]
    assert follow(trained, pinned) == trained.trust


# Files


def test_rotation_keeps_keys_encrypted(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "correct horse")
    home = Home.init(place(tmp_path / "home"))
    for role in ROLES:
        key_life.rotate(home, role, *WHY)
        assert "ENCRYPTED" in (home.path / "keys" / f"{role}.pem").read_text()
    used(again(home))
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    with pytest.raises(KeyInvalid, match=PASSPHRASE_VARIABLE):
        again(home)


def passwords(home: Home) -> list[bytes | None]:
    """Which of three passphrases opens the keys."""
    good = []
    for secret in (None, b"first", b"second"):
        with pytest.MonkeyPatch.context() as patch:
            if secret is not None:
                patch.setenv(PASSPHRASE_VARIABLE, secret.decode())
            try:
                used(again(home))
            except KeyInvalid:
                continue
            good.append(secret)
    return good


def test_another_passphrase(home, monkeypatch):
    pinned = home.trust
    key_life.change_passphrase(home, b"first")
    assert passwords(home) == [b"first"]
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "first")
    key_life.change_passphrase(again(home), b"second")
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    assert passwords(home) == [b"second"]
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "second")
    key_life.change_passphrase(again(home), None)
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    assert passwords(home) == [None]
    assert home.trust == pinned
    with pytest.raises(InputError, match="must not be empty"):
        key_life.change_passphrase(home, b"")


@pytest.mark.parametrize("step", range(6))
def test_a_cut_while_the_passphrase_is_changed_leaves_one_of_the_two(home, step, monkeypatch):
    class Cut(Exception):
        pass

    steps = []

    def counted(original):
        def call(*arguments):
            if len(steps) == step:
                raise Cut
            steps.append(original)
            return original(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(key_exchange, "write_new", counted(key_exchange.write_new))
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(key_exchange, "sync_directory", counted(key_exchange.sync_directory))
        with pytest.raises(Cut):
            key_life.change_passphrase(home, b"first")
    assert passwords(home) == ([None] if step <= 3 else [b"first"])


def test_a_trust_file_that_lags_is_brought_up_to_date_and_another_is_left(home, tmp_path):
    raw = (home.path / "trust.json").read_bytes()
    key_life.rotate(home, "issuer", *WHY)
    (home.path / "trust.json").write_bytes(raw)
    assert trust_file(again(home)) == home.trust
    other = Home.init(place(tmp_path / "other")).trust
    (home.path / "trust.json").write_bytes(other.to_json())
    assert trust_file(again(home)) == other


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("left", [b"", b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw", None])
def test_a_staged_key_that_the_ledger_never_heard_of_is_discarded(home, role, left, tmp_path):
    """Cut in the middle of its file, or after it."""
    other = Home.init(place(tmp_path / "other"))
    place_of = home.path / "keys" / f"{role}.next.pem"
    place_of.write_bytes((other.path / "keys" / "log.pem").read_bytes() if left is None else left)
    place_of.chmod(0o600)
    before = keyid(home, role)
    assert keyid(again(home), role) == before
    assert not place_of.exists()
    place_of.write_bytes(b"again")
    key_life.rotate(home, role, *WHY)
    assert keyid(again(home), role) != before


def test_neither_file_is_the_ledgers(home, tmp_path):
    other = Home.init(place(tmp_path / "other"))
    for name in ("log.pem", "log.pub.pem"):
        shutil.copy(other.path / "keys" / name, home.path / "keys" / name)
    with pytest.raises(LedgerInvalid, match="another log key"):
        again(home)
    shutil.copy(other.path / "keys" / "issuer.pem", home.path / "keys" / "log.next.pem")
    with pytest.raises(KeyInvalid, match="neither log.pem nor log.next.pem"):
        again(home)
    assert (home.path / "keys" / "log.next.pem").exists()


def test_a_key_is_not_used_twice(home, tmp_path, monkeypatch):
    """One file, named twice."""
    (tmp_path / "issuer.pem").write_bytes((home.path / "keys" / "issuer.pem").read_bytes())
    (tmp_path / "issuer.pem").chmod(0o600)
    with pytest.raises(WrongState, match="was a key of this ledger before"):
        key_life.rotate(home, "issuer", *WHY, issuer_key=f"file:{tmp_path / 'issuer.pem'}")
    assert home.ledger.log.size() == 1


def test_the_index_has_a_row_for_every_key(home):
    with home.ledger.log.database.reading() as connection:
        rows = connection.execute(tables.key_table.select()).all()
    assert sorted((row.role, row.added, row.until, row.ended) for row in rows) == [
        ("issuer", 0, None, None),
        ("log", 0, None, None),
    ]


# Several processes

APPENDS = """
import sys
import ledgers
from accountant.access import key_life, tokens
from accountant.home import Home
from pathlib import Path
home = Home.open(ledgers.place(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
for number in range(12):
    if sys.argv[2] in ("issuer", "log"):
        key_life.rotate(home, sys.argv[2], "test", "a drill")
    else:
        tokens.create(home.ledger, f"{sys.argv[2]}-{number}", ["audit"], ledgers.hexes(f"{sys.argv[2]} {number}"))
"""


@pytest.mark.slow
def test_processes_append_while_others_rotate_every_key(home):
    """Nobody is refused, no entry is lost, and an auditor who pinned the first keys follows."""
    pinned, names = home.trust, ("a", "b", "issuer", "issuer", "log")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}"}
    command = [*warm.python(), "-c", APPENDS, str(home.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    running = [subprocess.Popen([*command, name], **pipes) for name in names]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert home.ledger.log.size() == 1 + 2 * 12 + 3 * 24
    found = again(home)
    used(found)
    assert [len(found.trust.issuers), len(found.trust.logs)] == [25, 13]
    assert found.trust == follow(found, pinned) == trust_file(found)
    assert not list((home.path / "keys").glob("*.next.*"))


# A kill at every step


class Driver:
    """tests/helpers/key_crashes.py in a process of its own."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}"}
        command = [sys.executable, str(ROOT / "tests" / "helpers" / "key_crashes.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout.readline() == "ready\n"

    def killed(self, task: str, home: Path, point: str) -> bool:
        request = {"task": task, "home": str(home), "files": "", "point": point, "delay": None}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()


POINTS = {
    # where the process dies -> whether the new key is in force then
    "accountant.keys.key_exchange:stage:before:1": False,
    "accountant.keys.private_keys:write_new:before:1": False,
    "accountant.keys.private_keys:write_new:after:1": False,
    "accountant.keys.key_exchange:sync_directory:after:1": False,
    "accountant.keys.key_exchange:stage:after:1": False,
    "accountant.store.store:Tree.append:before:1": False,
    "accountant.store.store:Tree.append:after:1": False,
    "accountant.keys.key_rows:add:after:1": False,
    "accountant.store.store:Tree.append:after:2": False,
    "accountant.keys.key_rows:finish:after:1": False,
    "dpserve_verify.log.notes:sign_checkpoint:after:1": False,
    "sqlalchemy:Connection.commit:before:1": False,
    "sqlalchemy:Connection.commit:after:1": True,
    "accountant.log.last_seen:LockedMark.advance:before:1": True,
    "accountant.log.last_seen:LockedMark.advance:after:1": True,
    "accountant.keys.key_exchange:put_in_place:before:1": True,
    "dpserve_verify.system.files:write_new:before:1": True,
    "dpserve_verify.system.files:write_new:after:1": True,
    "pathlib:Path.replace:before:1": True,
    "pathlib:Path.replace:after:1": True,
    "pathlib:Path.replace:before:2": True,
    "pathlib:Path.replace:after:2": True,
    "accountant.keys.key_exchange:put_in_place:after:1": True,
    "accountant.home:Home.write_trust:before:1": True,
    "dpserve_verify.system.files:write_new:after:2": True,
    "pathlib:Path.replace:before:3": True,
    "accountant.home:Home.write_trust:after:1": True,
}


BORDERS = [f"sqlalchemy:Connection.commit:{when}:1" for when in ("before", "after")]
KILLS = [(f"rotate {role}", point) for role in ROLES for point in POINTS]
KILLS += [(f"compromise {role}", point) for role in ROLES for point in BORDERS]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "point"), KILLS)
def test_a_kill_leaves_the_old_key_in_force_or_the_new_one(driver, home, task, point):
    pinned, role = home.trust, task.split()[1]
    before = {each: keyid(home, each) for each in ROLES}
    home.ledger.log.database.close()
    assert driver.killed(task, home.path, point)
    for _ in range(2):  # the first time may have something to make good
        found = again(home)
        after = {each: keyid(found, each) for each in ROLES}
        assert {each for each in ROLES if after[each] != before[each]} == ({role} if POINTS[point] else set())
        used(found)
        assert found.trust == trust_file(found) == follow(found, pinned)
        assert len(found.trust.issuers) + len(found.trust.logs) == 2 + POINTS[point]
    names = {file.name for file in (home.path / "keys").iterdir()}
    assert not {name for name in names if ".next." in name}
    key_life.rotate(found, role, *WHY)
    assert again(home).trust == follow(found, pinned)


# While a job is finished


def asked(**parameters):
    from training.requests import JobRequest

    return JobRequest("adult", "lazybb", "0.25", parameters={"rounds": 8, **parameters})


@pytest.fixture
def prepared(tmp_path) -> Home:
    return Home.open(place(copy(ledgers.prepared(), tmp_path / "prepared")))


def only_model(home: Home) -> str:
    """The keyid that signed the one model, which verifies."""
    ((_, envelope, proof, onnx),) = ledgers.bundles(home.path)
    verify(envelope, proof.decode(), onnx, home.trust)
    return key_life.signed_by(envelope)


def test_a_rotation_while_a_job_runs(prepared, monkeypatch):
    """The running process signs the certificate by the key that another has put in force."""
    from training.jobs import job
    from training.kinds import training_steps

    kept = training_steps.keep

    def rotate(*released):
        key_life.rotate(again(prepared), "issuer", *WHY)
        return kept(*released)

    monkeypatch.setattr(training_steps, "keep", rotate)
    before = keyid(prepared, "issuer")
    job.train(prepared, asked(), by="test")
    assert only_model(prepared) == keyid(again(prepared), "issuer") != before


@pytest.mark.slow
@pytest.mark.parametrize("change", ["rotate", "compromise"])
def test_a_key_that_ends_between_signature_and_entry(prepared, monkeypatch, change):
    """Nothing is issued by a key that has ended: the job waits, and its statement is signed anew."""
    from training.jobs import job

    original, signed = Ledger.issue, []

    def late(ledger, seq, statement, onnx, signer):
        signed.append(statement)
        if len(signed) == 1:
            other, old = again(prepared), keyid(prepared, "issuer")
            if change == "rotate":
                key_life.rotate(other, "issuer", *WHY)
            else:
                key_life.mark_compromised(other, old, 0, *WHY)
        return original(ledger, seq, statement, onnx, signer)

    monkeypatch.setattr(Ledger, "issue", late)
    with pytest.raises(KeyInvalid, match="not the ledger's issuer key"):
        job.train(prepared, asked(), by="test")
    assert ledgers.bundles(prepared.path) == []
    job.recover(again(prepared))
    assert only_model(prepared) == keyid(again(prepared), "issuer")
    assert signed[0] == signed[1]
