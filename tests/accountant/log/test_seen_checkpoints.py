"""Checkpoints that were kept of somebody else's ledger: what continues them is believed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
from offices import ORIGIN, Office, cosigned, witness_policy

from dpserve_verify.errors import InputError, KeyInvalid, LedgerInvalid, LedgerUnavailable, OtherHistory
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.formats.merkle import leaf_hash
from dpserve_verify.log import notes, seen_checkpoints
from dpserve_verify.log.notes import parse_checkpoint as parse
from dpserve_verify.log.seen_checkpoints import Growth, SeenCheckpoints, Standing, read_growth


def ledger(entries: int, fork: int | None = None) -> Office:
    """A ledger of so many entries; from entry `fork` on it says something else."""
    made = Office()
    for number in range(1, entries):
        made.append("token-revoked", name=f"token {number}{'' if fork is None or number < fork else ' of B'}")
    return made


def growth(of: Office, earlier: int, later: int) -> Growth:
    hashes = [leaf_hash(leaf) for leaf in of.leaves]

    def read(level: int, index: int) -> bytes:
        first = index << level
        if level == 0:
            return hashes[first]
        return merkle.node_hash(read(level - 1, 2 * index), read(level - 1, 2 * index + 1))

    return Growth(earlier, tuple(merkle.consistency_proof(earlier, later, read)))


@pytest.fixture
def seen(tmp_path) -> SeenCheckpoints:
    return SeenCheckpoints(tmp_path / "checkpoints")


def test_what_continues_is_believed_and_kept(seen):
    office = ledger(20)
    assert seen.read(office.trust) is None
    for earlier, later in pairwise([None, 3, 3, 4, 8, 11, 20]):
        proof = None if earlier in (None, later) else growth(office, earlier, later)
        assert seen.advance(office.checkpoint(later), office.trust, proof).size == later
        kept = seen.read(office.trust)
        assert (kept.note, kept.head.size) == (office.checkpoint(later), later)
    assert kept.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("size", [9, 12, 13, 17])
def test_a_rollback_a_fork_and_a_missing_proof_are_refused(seen, size):
    office, other = ledger(20), ledger(20, fork=5)
    seen.advance(office.checkpoint(12), office.trust)
    wrong = {"another history": (other.checkpoint(size), growth(other, min(size, 12), max(size, 12)))}
    if size < 12:
        wrong["rolled back"] = office.checkpoint(size), None
    if size > 12:
        good = growth(office, 12, size)
        wrong["no proof"] = office.checkpoint(size), None
        wrong["of another size"] = office.checkpoint(size), growth(office, 11, size)
        wrong["said of another size"] = office.checkpoint(size), Growth(11, good.hashes)
        wrong["a hash less"] = office.checkpoint(size), Growth(12, good.hashes[:-1])
        wrong["a hash more"] = office.checkpoint(size), Growth(12, (*good.hashes, bytes(32)))
        wrong["a hash changed"] = office.checkpoint(size), Growth(12, (bytes(32), *good.hashes[1:]))
    for name, (note, proof) in wrong.items():
        with pytest.raises(OtherHistory, match="Seen here on 20") as error:
            seen.advance(note, office.trust, proof)
        assert error.value.exit_code == 4, name
        assert (error.value.details["seen"]["size"], error.value.details["shown"]["size"]) == (12, size), name
        kept = seen.read(office.trust)
        assert kept.note == office.checkpoint(12), name
        assert kept.path.with_suffix(".refused").read_text() == note, name  # the two together convict the signer
    if size > 12:
        assert seen.advance(office.checkpoint(size), office.trust, growth(office, 12, size)).size == size


def test_only_what_the_log_signs_is_looked_at(seen):
    office = ledger(9)
    for note in ("", "nothing", office.checkpoint(9, log=7), ledger(9).checkpoint(9).replace("\n9\n", "\n8\n")):
        with pytest.raises((LedgerInvalid, KeyInvalid)):
            seen.advance(note, office.trust)
    assert seen.read(office.trust) is None
    stranger = Office(origin="other.example/ledger")
    with pytest.raises(LedgerInvalid):
        seen.advance(stranger.checkpoint(), office.trust)
    seen.advance(stranger.checkpoint(), stranger.trust)  # each ledger has a file of its own
    assert seen.path(ORIGIN) != seen.path(stranger.origin)


@pytest.mark.parametrize("content", [b"", b"\xff", b"x" * 300_000, b"log\n12\nAAAA\n", b'{"size": 12}'])
def test_a_file_that_holds_anything_else_is_refused_and_stays(seen, content):
    office = ledger(12)
    seen.advance(office.checkpoint(9), office.trust)
    seen.path(ORIGIN).write_bytes(content)
    for act in (lambda: seen.read(office.trust), lambda: seen.advance(office.checkpoint(12), office.trust)):
        with pytest.raises(LedgerInvalid, match="put back a copy"):
            act()
    assert seen.path(ORIGIN).read_bytes() == content
    seen.path(ORIGIN).write_text(office.checkpoint(9, log=7))  # signed by nobody whom this one pins
    with pytest.raises(LedgerInvalid, match="no key of"):
        seen.read(office.trust)


def test_a_folder_that_cannot_be_written_believes_nothing(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    office = ledger(9)
    with pytest.raises(LedgerUnavailable, match="nothing was believed"):
        SeenCheckpoints(tmp_path / "checkpoints").advance(office.checkpoint(), office.trust)


def test_witnesses_are_asked_for_at_the_first_look_too(tmp_path):
    office, policy = ledger(12), witness_policy(31, 32)
    seen = SeenCheckpoints(tmp_path / "checkpoints", policy)
    for note in (office.checkpoint(9), cosigned(office.checkpoint(9), 31)):
        with pytest.raises(LedgerInvalid, match="quorum"):
            seen.advance(note, office.trust)
        assert seen.read(office.trust) is None
    note = cosigned(cosigned(office.checkpoint(9), 31), 32)
    assert seen.advance(note, office.trust).size == 9
    assert seen.read(office.trust).note == note
    with pytest.raises(LedgerInvalid, match="quorum"):
        seen.advance(office.checkpoint(12), office.trust, growth(office, 9, 12))
    seen.advance(cosigned(cosigned(office.checkpoint(12), 31), 32), office.trust, growth(office, 9, 12))


def test_many_at_once_keep_one_line_of_history(seen):
    """Half of them are shown another history: whoever comes first, the file stays one of the two."""
    office, other = ledger(40), ledger(40, fork=2)
    seen.advance(office.checkpoint(1), office.trust)

    def contact(number: int) -> str:
        of = office if number % 2 else other
        kept = seen.read(of.trust)
        later = min(40, kept.head.size + 1 + number % 5)
        try:
            seen.advance(of.checkpoint(later), of.trust, growth(of, kept.head.size, later))
        except OtherHistory:
            return "refused"
        return of.checkpoint(later)

    with ThreadPoolExecutor(8) as pool:
        believed = [note for note in pool.map(contact, range(120)) if note != "refused"]
    last = seen.read(office.trust)
    heads = [notes.parse_checkpoint(note) for note in believed]
    ours = office if last.note == office.checkpoint(last.head.size) else other
    past_the_fork = [head for head in heads if head.size > 2]
    assert past_the_fork
    assert last.head.size > 2
    for head in past_the_fork:
        assert head.root == notes.parse_checkpoint(ours.checkpoint(head.size)).root


def test_consistency_as_a_server_writes_it_is_read_strictly():
    good = {"from": 3, "to": 9, "hashes": [encode_base64(bytes(32))], "from_root": "", "to_root": ""}
    assert read_growth(good) == Growth(3, (bytes(32),), 9)
    assert read_growth(None) is None
    bad = (
        [], "", 7, {}, {**good, "more": 1}, {**good, "from": -1}, {**good, "from": True}, {**good, "from": "3"},
        {**good, "hashes": "x"}, {**good, "hashes": [7]}, {**good, "hashes": ["=="]},
        {**good, "hashes": good["hashes"] * 64},
    )  # fmt: skip
    for value in bad:
        with pytest.raises(LedgerInvalid):
            read_growth(value)


def test_who_keeps_checkpoints_loads_nothing_that_stores_a_ledger():
    loaded = "print([m for m in ('sqlalchemy', 'numpy') if m in sys.modules])"
    code = f"import sys, dpserve_verify.log.seen_checkpoints; {loaded}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_policy_about_another_log_is_said(tmp_path):
    from dpserve_verify.keys.verifier_keys import verifier_key

    office, other = ledger(9), Office(log=5, origin="other.example/ledger")
    from dpserve_verify.log.witness_policy import parse_policy

    vkey = verifier_key(other.origin, other.trust.log_key)
    policy = parse_policy(f"log {vkey}\nquorum none\n".encode())
    with pytest.raises(InputError, match="none of its log lines"):
        SeenCheckpoints(tmp_path, policy).advance(office.checkpoint(), office.trust)


def test_what_is_handed_over_is_held_against_what_was_seen(seen):
    """Nobody is asked: an older or a newer one may be honest, and two roots for one size are found when they come."""
    office, other = ledger(30), ledger(30, fork=5)
    prove = lambda earlier, later: replace(growth(office, earlier, later), later=later)  # noqa: E731
    steps = (
        (office, 12, None, Standing.FIRST, 12),
        (office, 12, None, Standing.SAME, 12),
        (office, 9, None, Standing.OLDER, 12),
        (office, 9, prove, Standing.BEGINNING, 12),
        (office, 20, None, Standing.NEWER, 12),
        (office, 17, prove, Standing.CONTINUES, 12),
        (office, 20, None, Standing.NEWER, 17),
        (other, 21, None, Standing.NEWER, 17),  # nothing gives it away yet
        (other, 8, lambda *_: None, Standing.OLDER, 17),
    )
    for of, size, by, standing, kept in steps:
        head, found, known = seen.compare(of.checkpoint(size), of.trust, by)
        assert (head.size, found, known) == (size, standing, kept)
    assert seen.read(office.trust).head.size == 17
    assert {parse(note).size for note in seen.unproved(office.trust)} == {9, 20, 21, 8}
    for of, size in ((other, 17), (other, 20), (office, 21), (office, 8)):  # a second root for a size that came before
        with pytest.raises(OtherHistory, match="two different ledgers"):
            seen.compare(of.checkpoint(size), of.trust)
    with pytest.raises(OtherHistory, match="does not continue"):
        seen.compare(other.checkpoint(21), other.trust, prove)
    with pytest.raises(InputError, match="must be between 17 and 25"):
        seen.compare(office.checkpoint(25), office.trust, lambda earlier, later: prove(earlier, later - 1))
    seen.forget_unproved(office.trust)
    assert seen.unproved(office.trust) == []
    for size in range(1, 30):
        seen.compare(office.checkpoint(size), office.trust)
    assert len(seen.unproved(office.trust)) == 28


def test_what_was_handed_over_is_not_kept_without_end(seen, monkeypatch):
    monkeypatch.setattr(seen_checkpoints, "MOST_UNPROVED", 4)
    office = ledger(30)
    for size in (20, *range(1, 15)):
        seen.compare(office.checkpoint(size), office.trust)
    assert len(seen.unproved(office.trust)) == 4
