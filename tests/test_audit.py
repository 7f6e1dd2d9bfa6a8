"""The audit against everybody who may want to deceive it, from a shell on the database to the holder of the log's key.

The ledger under attack holds every type of entry (`ledgers.fill`). Each attack names the first entry that is wrong.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from ledgers import bodies, changed, copy, filled, place, plan, raw, request, reserve, rewrite

from accountant import canonical, merkle, notes
from accountant.audit import audit, audit_home, audit_models, audit_place
from accountant.budget import NANO
from accountant.canonical import encode_base64
from accountant.definitions import renyi
from accountant.errors import InputError, KeyInvalid, LedgerInvalid
from accountant.events import BoundedRange, Gaussian, Plan, PureDp
from accountant.export import audit_export, export
from accountant.home import Home
from accountant.keys import KeyStore, PublicKeys, public_pem
from accountant.prices import claim, rdp_nano
from accountant.rebuild import Report, Tree

LEAVES = bodies(filled())
COUNT = len(LEAVES)
KINDS = [json.loads(leaf)["type"] for leaf in LEAVES]


@pytest.fixture
def home(tmp_path) -> Path:
    return copy(filled(), tmp_path / "home")


def report(home: Path, **options) -> Report:
    return audit_place(place(home), **options)


def trust(home: Path) -> PublicKeys:
    return PublicKeys.from_json((home / "trust.json").read_bytes())


def test_the_ledger_holds_every_type_of_entry_and_is_sound(home):
    assert set(KINDS) == {
        *("genesis", "dataset-registered", "reserved", "started", "committed", "burned", "released", "issued"),
        *("token-created", "token-revoked"),
    }
    opened = Home.open(place(home))
    assert audit_home(opened) == report(home)
    found = report(home).to_json()
    root = notes.parse_checkpoint(opened.ledger.log.checkpoint()).root
    assert found == {"entries": COUNT, "root": encode_base64(root), "ok": True, "problems": []}


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


INDEX = [
    ("UPDATE dataset SET used = reserved WHERE name = 'adult'", "dataset adult"),
    ("UPDATE dataset SET used = 'x' WHERE name = 'adult'", "dataset adult"),
    ("UPDATE dataset SET seq = 2 WHERE name = 'adult'", "dataset adult"),
    ("DELETE FROM dataset WHERE name = 'pure'", "dataset pure"),
    ("INSERT INTO dataset SELECT 'more', seq, used, reserved FROM dataset WHERE name = 'pure'", "dataset more"),
    ("UPDATE job SET state = 'reserved' WHERE seq = 4", "job 4"),
    ("UPDATE job SET state = 'released' WHERE state = 'burned'", "job"),
    ("UPDATE job SET issued = NULL WHERE issued IS NOT NULL", "job"),
    ("UPDATE job SET committed = committed + 1 WHERE committed IS NOT NULL", "job"),
    ("UPDATE job SET total = total - 1 WHERE seq = 3", "job 3"),
    ("UPDATE job SET idempotency_key = 'other' WHERE seq = 3", "job 3"),
    ("UPDATE job SET model = 'other' WHERE seq = 3", "job 3"),
    ("UPDATE job SET dataset = 'pure' WHERE seq = 3", "job 3"),
    ("DELETE FROM job WHERE seq = 3", "job 3"),
    ("DELETE FROM job", "job 3"),
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


def test_the_mark_is_read(home):
    mark = home / "keys" / "high-water.json"
    value = json.loads(mark.read_bytes())
    for text, problem in (
        (None, "high-water mark: is gone"),
        (b"{", "damaged high-water mark"),
        (canonical.encode({**value, "size": COUNT + 1}), f"entry {COUNT}: missing"),
        (canonical.encode({**value, "root": encode_base64(bytes(32))}), "high-water mark has another root"),
    ):
        mark.unlink() if text is None else mark.write_bytes(text)
        assert any(problem in each for each in report(home).problems)


def test_an_older_mark_is_fine(home):
    """A crash between commit and mark leaves it behind; it says less, and nothing wrong."""
    for size in (0, 1, 5):
        tree = Tree()
        for leaf in LEAVES[:size]:
            tree.append(leaf)
        text = canonical.encode({"root": encode_base64(tree.root()), "size": size})
        (home / "keys" / "high-water.json").write_bytes(text)
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


# What the holder of the log's key can do: sign anything. The entries must make sense by themselves.


def first_of(kind: str, **fields) -> int:
    values = [json.loads(leaf) for leaf in LEAVES]
    found = (seq for seq, each in enumerate(values) if each["type"] == kind and fields.items() <= each.items())
    return next(found)


RESERVED, STARTED, ISSUED = first_of("reserved"), first_of("started"), first_of("issued")
VALUE = json.loads(LEAVES[RESERVED])
CHEAPER = {**VALUE["price"], "pure": "0.4"}
FLAT = {**VALUE["price"], "rdp": dict.fromkeys(VALUE["price"]["rdp"], "0.000000001")}
ONE_LESS = {
    **VALUE["price"],
    "rdp": {order: str(Decimal(figure) - Decimal("1e-9")) for order, figure in VALUE["price"]["rdp"].items()},
}
UNKNOWN_EVENT = [{**VALUE["plan"][0], "event": {"type": "free", "epsilon": "1"}}]
FORGERIES = [
    ("dataset-registered", {"filter": []}, "filter"),
    ("dataset-registered", {"budget": {"epsilon": "30", "delta": "0.000001"}}, "filter"),
    ("dataset-registered", {"relation": "none"}, "relation"),
    ("dataset-registered", {"records": 1_000_000}, "delta"),
    ("dataset-registered", {"commitment": "0"}, "commitment"),
    ("reserved", {"price": CHEAPER}, "price"),
    ("reserved", {"price": FLAT}, "price"),
    ("reserved", {"price": ONE_LESS}, "price"),
    ("reserved", {"claim": {**VALUE["claim"], "epsilon": "0.1"}}, "claim"),
    ("reserved", {"claim": {**VALUE["claim"], "delta": "0"}}, "claim"),
    ("reserved", {"plan": []}, "plan"),
    ("reserved", {"plan": UNKNOWN_EVENT}, "not on the closed list"),
    ("reserved", {"plan": [{**VALUE["plan"][0], "sensitivity": "01"}]}, "decimal"),
    ("reserved", {"plan": [{**VALUE["plan"][0], "count": 0}]}, "count"),
    ("reserved", {"plan": [VALUE["plan"][0]] * 2}, "price"),
    ("reserved", {"dataset": "absent"}, "never registered"),
    ("reserved", {"learner": "other"}, "request"),
    ("reserved", {"epsilon": "NaN"}, "decimal"),
    ("reserved", {"epsilon": "0.6"}, "request"),
    ("reserved", {"idempotency_key": 5}, "idempotency_key"),
    ("reserved", {"extra": 1}, "exactly the fields"),
    ("reserved", {"type": "gift"}, "not a type of entry"),
    ("reserved", {"time": "yesterday"}, "time"),
    ("reserved", {"time": 5}, "form"),
    ("started", {"reservation": COUNT}, "no such reservation"),
    ("started", {"reservation": True}, "no such reservation"),
    ("started", {"reservation": 1}, "no such reservation"),
    ("committed", {"released": "x"}, "released"),
    ("committed", {"type": "burned"}, "exactly the fields"),
    ("issued", {"name": "other"}, "name"),
    ("issued", {"model": "x"}, "model"),
    ("token-created", {"scopes": ["all"]}, "scopes"),
    ("token-created", {"scopes": []}, "scopes"),
    ("token-revoked", {"hash": "0" * 64}, "no such token"),
]


@pytest.mark.parametrize(("kind", "fields", "problem"), FORGERIES)
def test_a_signed_forgery_is_named(home, kind, fields, problem):
    seq = first_of(kind)
    rewrite(home, [changed(leaf, **fields) if index == seq else leaf for index, leaf in enumerate(LEAVES)])
    found = report(home)
    assert found.first == seq
    assert problem in found.problems[0]


def entry(kind: str, **fields) -> bytes:
    return canonical.encode({"type": kind, "time": "2026-01-01T00:00:00Z", **fields})


def job_in(state: str) -> int:
    """The reservation of the job that ledgers.fill brought to `state`."""
    return first_of("reserved", idempotency_key=f"key {ledgers.STATES.index(state)}")


MORE = {
    "a second genesis": LEAVES[0],
    "a dataset again": LEAVES[1],
    "a key again": LEAVES[RESERVED],
    "a token again": LEAVES[first_of("token-created")],
    "a token revoked again": LEAVES[first_of("token-revoked")],
    "not JSON": b"\xff",
    "nothing": b"",
    "a list": b"[]",
    "a float": b'{"time":"2026-01-01T00:00:00Z","type":"started","reservation":3.0}',
    "not canonical": LEAVES[STARTED].replace(b",", b", ", 1),
    "a key twice": LEAVES[STARTED].replace(b"{", b'{"reservation":3,', 1),
    "trailing bytes": LEAVES[STARTED] + b" ",
}
ILLEGAL = [
    *(("started", state, {}) for state in ledgers.STATES if state != "reserved"),
    *(("committed", state, {"released": "0" * 64}) for state in ledgers.STATES if state != "started"),
    *(("burned", state, {"reason": "failed"}) for state in ledgers.STATES if state != "started"),
    *(("released", state, {}) for state in ledgers.STATES if state != "reserved"),
]


@pytest.mark.parametrize("what", MORE)
def test_one_signed_entry_too_many_is_named(home, what):
    rewrite(home, [*LEAVES, MORE[what]])
    assert report(home).first == COUNT


@pytest.mark.parametrize(("kind", "state", "fields"), ILLEGAL)
def test_an_illegal_transition_is_named(home, kind, state, fields):
    rewrite(home, [*LEAVES, entry(kind, reservation=job_in(state), **fields)])
    found = report(home)
    assert found.first == COUNT
    assert "must be" in found.problems[0]


@pytest.mark.parametrize("state", [state for state in ledgers.STATES if state != "committed"])
def test_a_certificate_is_issued_once_and_for_committed_jobs(home, state):
    digests = {"statement": "0" * 64, "model": "0" * 64, "name": "adult"}
    rewrite(home, [*LEAVES, entry("issued", reservation=job_in(state), **digests)])
    assert report(home).first == COUNT


def test_admission_is_run_again(home):
    """Signed by the log's key, priced rightly, and beyond the budget: no forged index and no key helps."""
    source = copy(filled(), home.parent / "source")
    opened = Home.open(place(source))
    reserve(opened.ledger, request("pure", "0.5", "0"), plan(PureDp(Decimal("0.05")), 10))
    opened.ledger.log.database.close()
    leaves = bodies(source)
    rewrite(home, [*leaves, leaves[-1]])
    found = report(home)
    assert found.first == COUNT + 1
    assert "admission" in found.problems[0]


def test_what_was_not_released_cannot_be_spent_twice(home):
    """Leaving out a `burned` or `started` entry does not give its price back; a forged `released` is illegal."""
    rewrite(home, [leaf for index, leaf in enumerate(LEAVES) if index != STARTED])
    assert report(home).first is not None


def test_a_history_rewritten_and_signed_anew_is_found_by_a_checkpoint_kept_from_before(home):
    """The one thing that the ledger alone cannot show: hence checkpoints are to be kept elsewhere."""
    kept = Home.open(place(home)).ledger.log.checkpoint()
    registered = copy(filled(), home.parent / "source")
    rewrite(registered, LEAVES[:3])
    connection = raw(registered)
    for table in ("job", "token"):
        connection.execute(f"DELETE FROM {table}")
    nothing = {"pure": "0", "rdp": dict.fromkeys(VALUE["price"]["rdp"], "0"), "unbounded": 0}
    for name, figures in (("adult", nothing), ("pure", {"pure": "0", "rdp": {}, "unbounded": 0})):
        text = json.dumps(figures)
        connection.execute("UPDATE dataset SET used = ?, reserved = ? WHERE name = ?", (text, text, name))
    assert report(registered).ok  # sound in itself
    found = report(registered, seen=[kept])
    assert (found.ok, found.first) == (False, 3)
    assert "kept from before" in found.problems[0]
    later = changed(LEAVES[3], time="2020-01-01T00:00:00Z")
    rewrite(home, [*LEAVES[:3], later, *LEAVES[4:]])
    assert report(home).ok
    assert report(home, seen=[kept]).first == 0  # a kept checkpoint covers all entries below it at once
    older = raw(copy(filled(), home.parent / "third")).execute("SELECT note FROM checkpoint WHERE size = 3")
    assert report(home, seen=[*older.fetchone(), kept]).first == 3


def test_a_kept_checkpoint_must_be_signed(home, tmp_path):
    kept = Home.open(place(home)).ledger.log.checkpoint()
    assert report(home, seen=[kept]).ok
    other = KeyStore.create(tmp_path / "other")
    forged = notes.sign_checkpoint(trust(home).origin, 1, bytes(32), other.signer("log"))
    for note in (forged, "", kept.replace("dpserve", "d")):
        assert not report(home, seen=[note]).ok


def test_problems_are_counted_but_not_without_end(home):
    rewrite(home, [LEAVES[0], *[b"{}"] * 300])
    found = report(home)
    assert found.entries == 301
    assert found.first == 1
    assert len(found.problems) == 100


# Prices, twice.

DECIMALS = st.integers(1, 20 * NANO).map(lambda nanos: Decimal(nanos) / NANO)
ORDERS = st.floats(1.1, 5000)


@pytest.mark.parametrize("kind", [BoundedRange, PureDp, Gaussian])
@given(value=DECIMALS, order=ORDERS)
def test_definitions_and_closed_forms_agree(kind, value, order):
    """The searched worst case is the accountant's closed form, and the stored price covers it by one to two units."""
    own, event = renyi(kind(value), order), kind(value)
    assert math.isclose(own, event.rdp(order), rel_tol=1e-12, abs_tol=1e-12)
    if own < 1000:  # a price beyond any budget has no room for single units in a float
        assert own * NANO < rdp_nano(event, order) <= own * NANO + 3


def test_the_definitions_notice_a_wrong_closed_form(home, monkeypatch):
    """Were the ledger's own formula wrong, the audit would still know: here it gives half the price."""
    honest = BoundedRange.rdp
    monkeypatch.setattr(BoundedRange, "rdp", lambda self, order: honest(self, order) / 2)
    opened = Home.init(place(home.parent / "other"))
    opened.ledger.register(ledgers.registration())
    seq = reserve(opened.ledger, request(epsilon="0.5"), plan(BoundedRange(Decimal("0.0217")), 25)).seq
    found = audit_home(opened)
    assert found.first == seq
    assert "definitions" in found.problems[0]


# Exports.


@pytest.fixture
def exported(home) -> Path:
    opened = Home.open(place(home))
    assert export(opened, home.parent / "export") == COUNT
    return home.parent / "export"


def test_an_export_is_judged_like_the_ledger(home, exported):
    assert audit_export(exported, trust(home)) == report(home)
    assert (exported / "entries.jsonl").read_bytes() == b"".join(leaf + b"\n" for leaf in LEAVES)
    assert PublicKeys.from_json((exported / "trust.json").read_bytes()) == trust(home)
    with pytest.raises(InputError, match="must be a new folder"):
        export(Home.open(place(home)), exported)


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
    with pytest.raises(InputError, match="not an export"):
        audit_export(exported, trust(home))


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
    from training import job

    ways = [Home.open(place(served)), Home.open(place(fork))]
    for opened, epsilon in zip(ways, ("0.1", "0.2"), strict=True):
        job.train(opened, job.Asked("adult", "lazybb", epsilon, parameters={"rounds": 8}), by="test")
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


# The walk-through for an auditor who has none of our code.

PAGE = (ledgers.ROOT / "docs" / "audit.md").read_text()
COMMANDS = "set -eu\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S))


@pytest.fixture
def desk(served) -> Path:
    """What the auditor is given: a bundle, an export, and the keys by another way."""
    desk = served.parent / "desk"
    desk.mkdir()
    opened = Home.open(place(served))
    export(opened, desk / "ledger")
    shutil.copytree(served / "models" / "adult" / "1", desk / "bundle")
    (desk / "trust.json").write_bytes(opened.trust.to_json())
    return desk


def follow(desk: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", "-c", COMMANDS], cwd=desk, capture_output=True, text=True)


@pytest.mark.system("openssl", "jq")
def test_the_walk_through_verifies_what_is_sound(desk):
    found = follow(desk)
    assert found.returncode == 0, found.stdout[-500:] + found.stderr
    assert found.stdout.count("Signature Verified Successfully") == 4
    figures = json.loads((desk / "epsilon.json").read_text())
    assert figures["stated"] - 1e-5 < figures["computed"] <= figures["stated"] <= 0.5
    assert [budget["dataset"] for budget in json.loads((desk / "budgets.json").read_text())] == ["adult"]


def swap(desk: Path, name: str, old: bytes, new: bytes) -> None:
    before = (desk / name).read_bytes()
    assert old in before
    (desk / name).write_bytes(before.replace(old, new, 1))


ATTACKS = {
    "the model": lambda desk, other: swap(desk, "bundle/model.onnx", b"adult", b"adul_"),
    "the certificate": lambda desk, other: shutil.copy(other / "model.onnx.dsse.json", desk / "bundle"),
    "the proof": lambda desk, other: shutil.copy(other / "model.onnx.tlog-proof", desk / "bundle"),
    "an entry": lambda desk, other: swap(desk, "ledger/entries.jsonl", b'"by":"test"', b'"by":"tess"'),
    "one entry less": lambda desk, other: swap(desk, "ledger/entries.jsonl", b"\n", b""),
    "a size": lambda desk, other: swap(desk, "ledger/checkpoint", b"\n10\n", b"\n9\n"),
    "the log key": lambda desk, other: (desk / "trust.json").write_bytes(foreign(desk, "log")),
    "the issuer key": lambda desk, other: (desk / "trust.json").write_bytes(foreign(desk, "issuer")),
}


def foreign(desk: Path, role: str) -> bytes:
    value = json.loads((desk / "trust.json").read_bytes())
    pem = public_pem(Ed25519PrivateKey.generate().public_key())
    (value["log"] if role == "log" else value["issuers"][0])["pem"] = pem
    return json.dumps(value).encode()


@pytest.mark.system("openssl", "jq")
@pytest.mark.parametrize("what", ATTACKS)
def test_the_walk_through_stops_at_what_is_not(desk, served, what):
    ATTACKS[what](desk, served / "models" / "adult" / "2")
    assert follow(desk).returncode != 0


def said(tmp_path: Path, what: Plan, delta: str, lowered: Decimal = Decimal(0)) -> dict:
    """What the page's jq program makes of a claim about `what`."""
    (program,) = re.findall(r"^cat > epsilon\.jq <<'END'\n(.*?)^END$", PAGE, re.M | re.S)
    found = claim(what, Decimal(delta))
    order = None if found.order is None else str(found.order)
    stated = {"epsilon": str(found.epsilon - lowered), "delta": delta, "order": order}
    statement = {"predicate": {"claim": stated, "mechanisms": what.to_json()}}
    command = ["jq", program]
    done = subprocess.run(
        command, input=json.dumps(statement), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    return json.loads(done.stdout)


PLANS = [
    plan(BoundedRange(Decimal("0.02")), 25),
    plan(BoundedRange(Decimal("0.0001")), 3000),
    plan(BoundedRange(Decimal("5")), 2),
    plan(PureDp(Decimal("0.01")), 200),
    plan(Gaussian(Decimal("8.9957")), 7),
    Plan((*plan(Gaussian(Decimal("30")), 9).runs, *plan(PureDp(Decimal("0.1")), 2).runs, *plan().runs)),
]


@pytest.mark.system("jq")
@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("delta", ["0.000001", "0.0000000001", "0"])
def test_the_walk_through_recomputes_epsilon(tmp_path, what, delta):
    if delta == "0" and any(isinstance(event, Gaussian) for event, _ in what.events):
        what = plan(PureDp(Decimal("0.3")), 4)
    assert said(tmp_path, what, delta)["holds"] is True
    assert said(tmp_path, what, delta, lowered=Decimal("0.000011"))["holds"] is False
