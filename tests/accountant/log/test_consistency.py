"""Proofs that the ledger only grew and that an entry is in it: any tree, any forgery, and the commands for them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import ledgers
import pytest
from histories import copied, grown, new_home, pinned, rewritten
from hypothesis import given
from hypothesis import strategies as st

from accountant.home import Home
from accountant.log import stored_proofs
from accountant.log.stored_proofs import path_to
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import ENTRY_LIMIT, decode_base64, encode_base64
from dpserve_verify.formats.merkle import (
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from dpserve_verify.log.notes import NOTE_LIMIT, parse_checkpoint
from dpserve_verify.log.proofs import PROOF_LIMIT, parse_proof, verify_proof
from serving.cli.app import run

SIZE = 40
LARGEST = 1500


@pytest.fixture
def home(tmp_path) -> Home:
    return copied(SIZE, tmp_path / "home")


@pytest.fixture
def said(home, capsys, monkeypatch):
    """Runs a command on the home with --json; code and document."""
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))

    def command(*words: object) -> tuple[int, dict]:
        code = run([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return command


# Any tree


@lru_cache
def tree() -> dict[tuple[int, int], bytes]:
    nodes: dict[tuple[int, int], bytes] = {}
    for number in range(LARGEST):
        for level, index, digest in merkle.new_nodes(number, leaf_hash(b"%d" % number), lambda *at: nodes[at]):
            nodes[level, index] = digest
    return nodes


def read(level: int, index: int) -> bytes:
    return tree()[level, index]


SIZES = st.integers(1, LARGEST).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


@given(SIZES)
def test_every_tree_continues_every_smaller_one(sizes):
    m, n = sizes
    path = consistency_proof(m, n, read)
    verify_consistency(m, n, path, merkle.root(m, read), merkle.root(n, read))
    assert len(path) <= (n - 1).bit_length() + 1
    if m < n:
        with pytest.raises(LedgerInvalid):  # proofs do not run backwards
            verify_consistency(m, n, path, merkle.root(n, read), merkle.root(m, read))


@given(SIZES, st.data())
def test_no_other_proof_does(sizes, data):
    m, n = sizes
    path, roots = consistency_proof(m, n, read), (merkle.root(m, read), merkle.root(n, read))
    forged = data.draw(st.permutations(path) | st.lists(st.sampled_from([*path, *roots, bytes(32)]), max_size=12))
    if forged != path:
        with pytest.raises(LedgerInvalid):
            verify_consistency(m, n, forged, *roots)


@given(SIZES, st.integers(0, LARGEST - 1), st.binary(max_size=20))
def test_a_changed_leaf_changes_every_later_root(sizes, at, other):
    """Two trees that differ in one leaf agree on no size above it."""
    _, n = sizes
    leaf, path = leaf_hash(other), inclusion_proof(at % n, n, read)
    if other == b"%d" % (at % n):
        return
    with pytest.raises(LedgerInvalid):
        verify_inclusion(at % n, n, leaf, path, merkle.root(n, read))


def test_proofs_of_millions_of_hashes_are_refused_at_once():
    endless = [bytes(32)] * 300_000
    for m, n in ((1, 2), (2**62, 2**63 - 1)):
        with pytest.raises(LedgerInvalid):
            verify_consistency(m, n, endless, bytes(32), bytes(32))
        with pytest.raises(LedgerInvalid):
            verify_inclusion(m, n, bytes(32), endless, bytes(32))


def test_proof_files_of_ten_megabytes_are_refused(home):
    proof = home.ledger.log.proof(3)
    line = proof.split("\n")[3]
    head, _, note = proof.partition("\n\n")
    for text in (
        proof.replace(line, "\n".join([line] * 230_000)),
        proof.replace(f"{line}\n", f"{line}\n" * 64),
        head + "\n\n" + note + note.split("\n")[-2] * 100_000 + "\n",
        proof.replace("extra ", "extra " + "A" * 10_000_000),
        proof.replace("extra ", "extra " + "A" * 4 * (ENTRY_LIMIT // 3 + 1)),
        proof.replace("index 3", "index " + "3" * 10_000_000),
        "\n" * 10_000_000,
        "\u2014" * PROOF_LIMIT,
        head + "\n\n" + note.replace("\n\n", "\n" * (NOTE_LIMIT // 2) + "\n"),
    ):
        with pytest.raises(LedgerInvalid):
            verify_proof(parse_proof(text), b"", home.ledger.log.origin, pinned(home).log_key_at(SIZE))


# The ledger


def test_proofs_between_all_sizes(home):
    database = home.ledger.log.database
    roots = {}
    with database.reading() as connection:
        from accountant.store.store import checkpoints

        for size, note in checkpoints(connection):
            roots[size] = parse_checkpoint(note).root
    for earlier in (1, 2, 3, 16, 39, 40):
        for later in range(earlier, SIZE + 1):
            found = stored_proofs.consistency(database, earlier, later)
            assert (found.earlier_root, found.later_root) == (roots[earlier], roots[later])
            verify_consistency(earlier, later, found.hashes, roots[earlier], roots[later])
    assert stored_proofs.consistency(database, 0).hashes == ()
    assert stored_proofs.consistency(database, 7).later == SIZE
    for earlier, later in ((-1, 5), (6, 5), (0, SIZE + 1), (SIZE + 1, None), (2**70, None)):
        with pytest.raises(InputError, match="0 <= from <= to <= 40"):
            stored_proofs.consistency(database, earlier, later)


def test_a_damaged_tree_gives_no_proof(home):
    """What is printed was verified before."""
    with ledgers.raw(home.path) as connection:
        connection.execute("UPDATE node SET hash = zeroblob(32) WHERE level = 0 AND idx = 3")
    database = home.ledger.log.database
    with database.reading() as connection, pytest.raises(LedgerInvalid, match="leaf 2 is not in the tree"):
        stored_proofs.inclusion(connection, 2, home.ledger.log.checkpoint())
    with pytest.raises(LedgerInvalid, match="does not begin with"):
        stored_proofs.continues(database, pinned(home), checkpoint_of(home, 3))
    with ledgers.raw(home.path) as connection:
        connection.execute("UPDATE node SET hash = zeroblob(32) WHERE level = 5")
    with pytest.raises(LedgerInvalid, match="the stored tree of 40 entries is not the one that was signed"):
        stored_proofs.consistency(database, 0)


def checkpoint_of(home: Home, size: int) -> str:
    from accountant.store.store import checkpoints

    with home.ledger.log.database.reading() as connection:
        return dict(checkpoints(connection))[size]


def test_a_kept_checkpoint(home, tmp_path):
    database, trust = home.ledger.log.database, pinned(home)
    seen = checkpoint_of(home, 17)
    assert stored_proofs.continues(database, trust, seen).to_json()["from"] == 17
    for bad, message in (
        (seen.replace("\n17\n", "\n18\n"), "does not verify"),
        (new_home(tmp_path / "stranger").ledger.log.checkpoint(), "pinned key"),
        ("", "note: must be text"),
        ("x" * 10_000_000, "note: must be at most"),
    ):
        with pytest.raises(LedgerInvalid, match=message):
            stored_proofs.continues(database, trust, bad)
    with pytest.raises(InputError, match="from=17, to=16"):
        stored_proofs.continues(database, trust, seen, 16)
    later = grown(Home.open(ledgers.place(ledgers.copy(home.path, tmp_path / "later"))), 45).ledger.log.checkpoint()
    with pytest.raises(LedgerInvalid, match="has 40 entries, the checkpoint kept from before signs 45: it was rolled"):
        stored_proofs.continues(database, trust, later)
    home = rewritten(home, 5)
    stored_proofs.continues(home.ledger.log.database, trust, home.ledger.log.checkpoint())
    with pytest.raises(LedgerInvalid, match="does not begin with the tree of size 17"):
        stored_proofs.continues(home.ledger.log.database, trust, seen)


# The commands


def test_the_checkpoint_command_spells_the_root_as_the_audit_does(said):
    _, checkpoint = said("ledger", "checkpoint")
    _, report = said("ledger", "audit")
    assert (checkpoint["size"], checkpoint["root"]) == (SIZE, report["root"])
    assert checkpoint["checkpoint"].split("\n")[1:3] == [str(SIZE), report["root"]]


def test_the_consistency_command(home, said, tmp_path, capsys):
    code, found = said("ledger", "consistency", "--from", 7)
    assert code == 0
    hashes = [decode_base64(each) for each in found["hashes"]]
    verify_consistency(7, SIZE, hashes, decode_base64(found["from_root"]), decode_base64(found["to_root"]))
    assert (found["from"], found["to"]) == (7, SIZE)
    seen = tmp_path / "checkpoint.txt"
    seen.write_text(checkpoint_of(home, 7))
    assert said("ledger", "consistency", "--seen", seen)[1] == found
    assert said("ledger", "consistency", "--from", 7, "--to", 9)[1]["to"] == 9
    assert run(["ledger", "consistency", "--seen", str(seen)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [*found["hashes"], "the first 7 of 40 entries are as they were"]
    for words in ([], ["--from", 7, "--seen", seen], ["--from", 50], ["--from", -1], ["--seen", tmp_path / "none"]):
        assert said("ledger", "consistency", *words)[0] == 2
    kept = seen.read_text()
    seen.write_text(kept.replace("\n7\n", "\n8\n"))
    assert said("ledger", "consistency", "--seen", seen)[0] == 4
    rewritten(home, 2)
    seen.write_text(kept)
    assert said("ledger", "consistency", "--seen", seen)[0] == 4


def test_the_proof_command(home, said, tmp_path, capsys):
    trust = pinned(home)
    code, found = said("ledger", "proof", "--leaf", 3)
    assert (code, found["leaf"], found["proof"]) == (0, 3, home.ledger.log.proof(3))
    out = tmp_path / "3.tlog-proof"
    assert run(["ledger", "proof", "--leaf", "3", "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    proof = parse_proof(out.read_text())
    assert verify_proof(proof, ledgers.bodies(home.path)[3], trust.origin, trust.log_key_at(SIZE)).size == SIZE
    assert run(["ledger", "proof", "--leaf", "3"]) == 0
    assert capsys.readouterr().out == out.read_text()
    for leaf in (SIZE, -1, 2**70):
        assert said("ledger", "proof", "--leaf", leaf)[0] == 2


def test_the_path_in_a_tree_of_some_size(home, said, tmp_path, capsys):
    code, found = said("ledger", "proof", "--leaf", 3, "--size", 9)
    assert (code, found) == (0, path_to(home.ledger.log.database, 3, 9))
    path = [decode_base64(each) for each in found["hashes"]]
    with home.ledger.log.database.reading() as connection:
        from accountant.store.store import node_reader

        root = merkle.root(9, node_reader(connection))
    verify_inclusion(3, 9, leaf_hash(ledgers.bodies(home.path)[3]), path, root)
    assert encode_base64(root) == said("ledger", "consistency", "--from", 9)[1]["from_root"]
    assert run(["ledger", "proof", "--leaf", "3", "--size", "9", "--out", str(tmp_path / "path.json")]) == 0
    assert json.loads((tmp_path / "path.json").read_text()) == found
    capsys.readouterr()
    for words in (["--leaf", 9, "--size", 9], ["--leaf", 3, "--size", SIZE + 1], ["--leaf", -1, "--size", 3]):
        assert said("ledger", "proof", *words)[0] == 2


def test_out_that_cannot_be_written(said, tmp_path):
    code, body = said("ledger", "proof", "--leaf", 3, "--out", Path(tmp_path) / "none" / "x")
    assert code != 0
    assert "none" in body["error"]["message"]
