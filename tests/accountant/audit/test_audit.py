"""The audit against who has a shell on the database, or the folder beside it, and not the log's key.

The ledger under attack holds every type of entry (`ledgers.fill`). Each attack names the first entry that is wrong.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import ledgers
import pytest
from audited import COUNT, KINDS, LEAVES, report, trust
from ledgers import bundles, changed, copy, place, prepared, raw

from accountant.audit.audit import audit_home, audit_place
from accountant.certificates import statement as statements
from accountant.home import Home
from accountant.keys.private_keys import KeyStore
from accountant.log.last_seen import HighWater
from dpserve_verify.audit.audit import audit
from dpserve_verify.audit.tree_of_entries import Tree
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import KeyInvalid, LedgerInvalid
from dpserve_verify.formats import canonical, merkle
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.log import notes
from models.store import placing
from models.store.bundle import ModelStore
from models.store.standing import entry_of
from models.store.versions import champions
from serving.cli.app import run
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.home("filled", folder=True)


def test_the_ledger_holds_every_type_of_entry_and_is_sound(home):
    assert set(KINDS) == {
        *("genesis", "dataset-registered", "reserved", "started", "committed", "burned", "released", "issued"),
        *("token-created", "token-revoked", "dataset-joined", "quota-set", "budget-changed"),
    }
    opened = Home.open(place(home))
    assert audit_home(opened) == report(home)
    found = report(home).to_json()
    root = notes.parse_checkpoint(opened.ledger.log.checkpoint()).root
    whole = {"entries": COUNT, "root": encode_base64(root), "ok": True, "problems": [], "first": None, "notes": []}
    assert found == {**whole, "lost": ["models/adult: 1 of 1 certified versions"]}  # the home has no files of it


def test_a_new_home_is_sound_and_an_empty_ledger_is_not(tmp_path):
    assert audit_home(Home.init(place(tmp_path / "home"))).ok
    found = audit([], [], trust(tmp_path / "home"))
    assert (found.ok, found.first, found.root) == (False, 0, encode_base64(merkle.EMPTY_ROOT))


def test_the_rebuilt_tree_is_rfc_6962s():
    tree, nodes = Tree(), {}

    def read(level, index):
        return nodes[level, index]

    for size in range(1, 130):
        leaf = str(size).encode()
        written = merkle.new_nodes(size - 1, merkle.leaf_hash(leaf), read)
        nodes |= {(level, index): digest for level, index, digest in written}
        assert tree.append(leaf) == written
        assert tree.root() == merkle.root(size, read)
        assert len(tree._complete) == size.bit_count()  # all that is kept


# What a shell on the database can do.


@pytest.mark.parametrize("seq", range(COUNT))
def test_a_changed_entry_is_named(home, seq):
    body = changed(LEAVES[seq], time="2020-01-01T00:00:00Z")
    raw(home).execute("UPDATE entry SET body = ? WHERE seq = ?", (body, seq))
    assert report(home).first == seq


@pytest.mark.parametrize("seq", range(COUNT))
def test_a_deleted_entry_is_named(home, seq):
    raw(home).execute("DELETE FROM entry WHERE seq = ?", (seq,))
    found = report(home)
    assert found.first == seq
    assert f"entry {seq}: missing" in found.problems[0]


@pytest.mark.parametrize("seq", range(COUNT))
def test_a_duplicated_entry_is_named(home, seq):
    connection = raw(home)
    for later in range(COUNT, seq, -1):
        connection.execute("INSERT OR REPLACE INTO entry VALUES (?, ?)", (later, LEAVES[later - 1]))
    assert report(home).first == seq + 1


@pytest.mark.parametrize("seq", range(COUNT - 1))
def test_exchanged_entries_are_named(home, seq):
    connection = raw(home)
    for to, body in ((seq, LEAVES[seq + 1]), (seq + 1, LEAVES[seq])):
        connection.execute("UPDATE entry SET body = ? WHERE seq = ?", (body, to))
    assert report(home).first == seq


@pytest.mark.parametrize("left", range(COUNT))
def test_a_ledger_cut_short_is_found_by_the_mark(home, left):
    connection = raw(home)
    connection.execute("DELETE FROM entry WHERE seq >= ?", (left,))
    connection.execute("DELETE FROM checkpoint WHERE size > ?", (left,))
    connection.execute("DELETE FROM node WHERE (idx + 1) << level > ?", (left,))
    found = report(home)
    assert found.first == left
    assert any("high-water mark signs" in problem for problem in found.problems)


def test_an_entry_added_without_the_log_key_stands_under_no_checkpoint(home):
    body = canonical.encode({"type": "token-revoked", "time": "2026-01-01T00:00:00Z"})
    connection = raw(home)
    connection.execute("INSERT INTO entry VALUES (?, ?)", (COUNT, body))
    assert report(home).first == COUNT
    level = 0
    for level, index, digest in merkle.new_nodes(COUNT, merkle.leaf_hash(body), _reader(connection)):
        connection.execute("INSERT INTO node VALUES (?, ?, ?)", (level, index, digest))
    assert any("stands under no signed checkpoint" in problem for problem in report(home).problems)


def _reader(connection):
    query = "SELECT hash FROM node WHERE level = ? AND idx = ?"
    return lambda level, index: connection.execute(query, (level, index)).fetchone()[0]


@pytest.mark.parametrize("seq", range(COUNT))
def test_a_changed_entry_with_its_tree_rebuilt_contradicts_a_checkpoint(home, seq):
    connection = raw(home)
    connection.execute("DELETE FROM node")
    tree = Tree()
    for index, leaf in enumerate(LEAVES):
        body = changed(leaf, time="2020-01-01T00:00:00Z") if index == seq else leaf
        connection.execute("UPDATE entry SET body = ? WHERE seq = ?", (body, index))
        connection.executemany("INSERT INTO node VALUES (?, ?, ?)", tree.append(body))
    found = report(home)
    assert found.first == seq
    assert "the checkpoint" in found.problems[0]


@pytest.mark.slow
def test_every_stored_subtree_is_compared(home):
    rows = raw(home).execute("SELECT level, idx FROM node").fetchall()
    for level, index in rows:
        attacked = copy(home, home.parent / f"{level}-{index}")
        raw(attacked).execute("UPDATE node SET hash = zeroblob(32) WHERE level = ? AND idx = ?", (level, index))
        assert report(attacked).first == ((index + 1) << level) - 1
    for statement in ("DELETE FROM node WHERE level = 1 AND idx = 3", "DELETE FROM node WHERE level = 0 AND idx = 7"):
        attacked = copy(home, home.parent / statement[-1])
        raw(attacked).execute(statement)
        assert report(attacked).first == 7
    for row in ((0, COUNT), (2, 999), (9, 0)):
        attacked = copy(home, home.parent / f"more-{row[0]}")
        raw(attacked).execute("INSERT INTO node VALUES (?, ?, zeroblob(32))", row)
        assert "no entry gives" in report(attacked).problems[0]


CHECKPOINTS = [
    ("UPDATE checkpoint SET note = replace(note, 'dpserve', 'dpsrve') WHERE size = 5", 4),
    ("UPDATE checkpoint SET note = substr(note, 1, 40) WHERE size = 5", 4),
    ("UPDATE checkpoint SET note = '' WHERE size = 5", 4),
    ("UPDATE checkpoint SET note = (SELECT note FROM checkpoint WHERE size = 6) WHERE size = 5", 4),
    (f"DELETE FROM checkpoint WHERE size = {COUNT}", None),
    (f"UPDATE checkpoint SET size = {COUNT + 5} WHERE size = {COUNT}", COUNT + 4),
    ("UPDATE checkpoint SET size = -3 WHERE size = 4", 0),
]


@pytest.mark.parametrize(("statement", "first"), CHECKPOINTS)
def test_checkpoints_are_judged_one_by_one(home, statement, first):
    raw(home).execute(statement)
    found = report(home)
    if first is None:  # the mark beside the keys covers what the lost checkpoint covered
        assert found.ok
        (home / "keys" / "high-water.json").unlink()
        assert report(home).first == COUNT - 1
    else:
        assert found.first == first


def test_checkpoints_signed_by_another_key_are_refused(home, tmp_path):
    other = KeyStore.create(tmp_path / "other")
    origin, connection = trust(home).origin, raw(home)
    for size, note in connection.execute("SELECT size, note FROM checkpoint").fetchall():
        forged = notes.sign_checkpoint(origin, size, notes.parse_checkpoint(note).root, other.signer("log"))
        connection.execute("UPDATE checkpoint SET note = ? WHERE size = ?", (forged, size))
    found = report(home)
    assert found.first == 0
    assert "no signature by the pinned key" in found.problems[0]


PURE = "(SELECT families ->> 0 FROM dataset WHERE name = 'pure')"
INDEX = [
    ("UPDATE dataset SET seq = 2 WHERE name = 'adult'", "dataset adult"),
    ("UPDATE dataset SET commitment = 'x' WHERE name = 'adult'", "dataset adult"),
    (f"UPDATE dataset SET families = json_array({PURE}) WHERE name = 'copy'", "dataset copy"),
    ("DELETE FROM dataset WHERE name = 'pure'", "dataset pure"),
    (
        "INSERT INTO dataset SELECT 'more', seq, families, 'x', last, dropped FROM dataset WHERE name = 'pure'",
        "dataset more",
    ),
    ("UPDATE family SET used = reserved WHERE seq = 1", "family"),
    ("UPDATE family SET used = 'x' WHERE seq = 1", "family"),
    ("UPDATE family SET reserved = used WHERE seq = 1", "family"),
    ("UPDATE family SET changed = NULL WHERE seq = 2", "family"),
    ("DELETE FROM family WHERE seq = 2", "family"),
    ("INSERT INTO family SELECT 'more', seq, changed, used, reserved FROM family WHERE seq = 2", "family more"),
    ("UPDATE analyst SET used = (SELECT reserved FROM family WHERE seq = 2)", "analyst"),
    ("UPDATE analyst SET share = NULL", "analyst"),
    ("UPDATE analyst SET share = '1' WHERE share IS NOT NULL", "analyst"),
    ("DELETE FROM analyst", "analyst"),
    ("UPDATE job SET state = 'reserved' WHERE seq = 4", "job 4"),
    ("UPDATE job SET state = 'released' WHERE state = 'burned'", "job"),
    ("UPDATE job SET issued = NULL WHERE issued IS NOT NULL", "job"),
    ("UPDATE job SET committed = committed + 1 WHERE committed IS NOT NULL", "job"),
    ("UPDATE job SET total = total - 1 WHERE seq = 3", "job 3"),
    ("UPDATE job SET idempotency_key = 'other' WHERE seq = 3", "job 3"),
    ("UPDATE job SET model = 'other' WHERE seq = 3", "job 3"),
    ("UPDATE job SET dataset = 'pure' WHERE seq = 3", "job 3"),
    ("UPDATE job SET analyst = 'other' WHERE seq = 3", "job 3"),
    ("DELETE FROM job WHERE seq = 3", "job 3"),
    ("UPDATE job SET queued = 0 WHERE state = 'reserved'", "job 3"),
    ("UPDATE job SET queued = 2 WHERE state = 'issued' OR committed IS NOT NULL", "job"),
    ("UPDATE job SET owner = 'x' WHERE state = 'reserved'", "job 3"),
    ("UPDATE job SET owner = 'x', queued = 0, expires = 9e18 WHERE state = 'reserved'", "job 3"),
    ("UPDATE job SET expires = 1 WHERE state = 'reserved'", "job 3"),
    ("UPDATE job SET owner = NULL, expires = NULL WHERE state = 'started'", "job"),
    ("UPDATE job SET owner = 'x', expires = 1 WHERE state = 'burned'", "job"),
    ("UPDATE job SET done = -1", "job"),
    ("DELETE FROM job", "job 3"),
    ("UPDATE signing_key SET until = 3 WHERE role = 'log'", "key"),
    ("UPDATE signing_key SET pem = 'x' WHERE role = 'issuer'", "key"),
    ("DELETE FROM signing_key WHERE role = 'issuer'", "key"),
    ("INSERT INTO revoked VALUES (3, 4)", "revocation 3"),
    ("UPDATE token SET revoked = NULL", "token"),
    ("UPDATE token SET scopes = 'admin' WHERE revoked IS NULL", "token"),
    ("DELETE FROM token", "token"),
]


@pytest.mark.parametrize(("statement", "named"), INDEX)
def test_the_derived_index_must_say_what_the_entries_give(home, statement, named):
    assert raw(home).execute(statement).rowcount > 0
    found = report(home)
    assert found.first is None
    assert any(f"index: {named}" in problem for problem in found.problems)


def test_a_column_of_another_type_is_refused(home):
    raw(home).execute("UPDATE entry SET body = 'text' WHERE seq = 3")
    with pytest.raises(LedgerInvalid, match="another type"):
        report(home)


# What stands beside the database.


def marked(home: Path, size: int, root: bytes) -> None:
    """Put another mark in the place of the home's."""
    (home / "keys" / "high-water.json").unlink()
    HighWater(home / "keys" / "high-water.json").advance(size, root)


def test_the_mark_is_read(home):
    root = HighWater(home / "keys" / "high-water.json").read()[1]
    marked(home, COUNT + 1, root)
    assert any(f"entry {COUNT}: missing" in each for each in report(home).problems)
    marked(home, COUNT, bytes(32))
    assert any("high-water mark has another root" in each for each in report(home).problems)
    (home / "keys" / "high-water.json").write_bytes(b"{")
    assert any("damaged high-water mark" in each for each in report(home).problems)
    (home / "keys" / "high-water.json").unlink()
    assert any("high-water mark: is gone" in each for each in report(home).problems)


def test_an_older_mark_is_fine(home):
    """A crash between commit and mark leaves it behind; it says less, and nothing wrong."""
    for size in (0, 1, 5):
        tree = Tree()
        for leaf in LEAVES[:size]:
            tree.append(leaf)
        marked(home, size, tree.root())
        assert report(home).ok


def test_the_pinned_keys_decide(home, tmp_path):
    other = Home.init(place(tmp_path / "other"))
    opened = Home.open(place(home))
    (home / "trust.json").write_bytes(other.trust.to_json())
    assert report(home).first == 0
    assert "trust.json: names other keys than those in use" in audit_home(opened).problems
    (home / "trust.json").unlink()
    assert "trust.json: cannot be read" in audit_home(opened).problems[0]
    with pytest.raises(KeyInvalid, match=r"trust\.json: cannot be read"):
        report(home)


def test_the_audit_needs_no_private_key(home):
    for name in ("log.pem", "issuer.pem", "commitment.key"):
        (home / "keys" / name).unlink()
    assert report(home).ok


@pytest.mark.slow
def test_a_champion_that_no_entry_made_is_named(tmp_path, monkeypatch, capsys):
    path = ledgers.copy(ledgers.trained(), tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(path))
    models = ModelStore(path / "models")
    says = "model adult: adult@{} answers to it, and by the entries the one that entry {} certified does"

    def problems() -> list[str]:
        found = audit_place(bundles=ledgers.bundles(path), champions=partial(champions, path / "models"))
        return list(found.problems)

    first, second = (entry_of(path / "models" / "adult" / str(version)) for version in (1, 2))
    assert problems() == []  # the first of its name, by its owner: no entry need say so
    models.promote("adult", 2)  # the file alone
    assert problems() == [says.format(2, first)]
    assert run(["ledger", "audit"]) == 4
    assert says.format(2, first) in capsys.readouterr().out
    models.promote("adult", 1)
    placing.promote(Home.open(), "adult@2", "better", "test")
    assert problems() == []
    models.promote("adult", 1)
    assert problems() == [says.format(1, second)]


def test_a_certificate_claims_what_its_entry_reserved(tmp_path, monkeypatch):
    """More than the mechanisms come to is sound, and verifies; that the job was reserved with another claim is found by
    the audit, which has both."""
    home, real = Home.open(place(copy(prepared(), tmp_path / "home"))), statements.claim_to_json
    monkeypatch.setattr(statements, "claim_to_json", lambda *given: real(*given) | {"epsilon": "2"})
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 8}), by="test")
    ((_, envelope, proof, model),) = bundles(home.path)
    assert verify(envelope, proof.decode(), model, home.trust).epsilon == 2
    (problem,) = audit_home(home, bundles(home.path)).problems
    assert "its certificate claims something else than entry" in problem
