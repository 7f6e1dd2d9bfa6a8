"""Exports under attack: forged, truncated, reordered, duplicated, rolled back, huge. Each is found or refused."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import ledgers
import pytest
from histories import copied, grown, log_vkey, new_home, pinned, reopened, rewritten
from stores import at
from witness_server import Witness

from accountant.access import key_life
from accountant.audit.export import export
from accountant.audit.export_tiles import export_tiles
from accountant.home import Home
from accountant.log import stored_proofs
from accountant.log.collect import cosign
from dpserve_verify.audit.exports import CHECKPOINTS, ENTRIES, audit_export, vouching
from dpserve_verify.audit.tile_check import audit_tiles
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid
from dpserve_verify.formats.canonical import ENTRY_LIMIT
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import NOTE_LIMIT
from dpserve_verify.log.tiles import CHECKPOINT
from dpserve_verify.log.witness_policy import parse_policy
from dpserve_verify.log.witnessed import judge

SIZE = 40


@lru_cache
def _exported() -> tuple[Path, PublicKeys]:
    home = copied(SIZE, ledgers.scratch() / "home of the export")
    export(home, ledgers.scratch() / "export")
    return ledgers.scratch() / "export", pinned(home)


@pytest.fixture
def files(tmp_path) -> Path:
    return ledgers.copy(_exported()[0], tmp_path / "files")


def audited(folder: Path, **options) -> Report:
    return audit_export(folder, _exported()[1], **options)


def unsound(folder: Path, **options) -> str:
    """What is wrong with it, said by the report or by the refusal to read it."""
    try:
        found = audited(folder, **options)
    except DpserveError as error:
        return error.message
    assert not found.ok
    return found.problems[0]


def lines(folder: Path, name: str) -> list[bytes]:
    return (folder / name).read_bytes().splitlines(keepends=True)


def write(folder: Path, name: str, content: list[bytes]) -> None:
    (folder / name).write_bytes(b"".join(content))


def test_what_is_sound(files):
    found = audited(files)
    assert (found.ok, found.entries) == (True, SIZE)
    assert sorted(each.name for each in files.iterdir()) == [CHECKPOINT, CHECKPOINTS, ENTRIES, "trust.json"]
    assert vouching(files) == [(files / CHECKPOINT).read_text()]


ENTRY_ATTACKS = {
    "the last cut off": (lambda all: all[:-1], 39),
    "the first cut off": (lambda all: all[1:], 0),
    "one left out": (lambda all: [*all[:20], *all[21:]], 20),
    "one twice": (lambda all: [*all[:21], *all[20:]], 21),
    "the last twice": (lambda all: [*all, all[-1]], 40),
    "two swapped": (lambda all: [*all[:20], all[21], all[20], *all[22:]], 20),
    "backwards": (lambda all: all[::-1], 0),
    "all twice": (lambda all: all * 2, 40),
    "a blank in one": (lambda all: [*all[:20], all[20].replace(b",", b", ", 1), *all[21:]], 20),
    "another type": (lambda all: [*all[:20], b'{"type":"gift"}\n', *all[21:]], 20),
    "an empty line": (lambda all: [*all[:20], b"\n", *all[20:]], 20),
    "carriage returns": (lambda all: [each.replace(b"\n", b"\r\n") for each in all], 0),
}


@pytest.mark.parametrize("what", ENTRY_ATTACKS)
def test_entries_that_are_not_those_signed(files, what):
    attack, first = ENTRY_ATTACKS[what]
    write(files, ENTRIES, attack(lines(files, ENTRIES)))
    found = audited(files)
    assert not found.ok
    assert found.first == first
    assert found.problems[0].startswith(f"entry {first}")


BROKEN = {
    "no last newline": lambda raw: raw[:-1],
    "cut in a line": lambda raw: raw[: len(raw) // 2],
    "nothing": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
    "a line without end": lambda raw: raw + b"x" * 3_000_000,
    "ten megabytes of braces": lambda raw: b"{" * 10_000_000,
    "no text": lambda raw: b"\xff\xfe" * 100 + b"\n",
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("name", [ENTRIES, CHECKPOINTS, CHECKPOINT])
def test_files_that_are_broken(files, name, what):
    raw = (files / name).read_bytes()
    (files / name).write_bytes(BROKEN[what](raw))
    if (name, what) == (CHECKPOINTS, "nothing"):
        assert audited(files).ok  # the newest one vouches for all
    else:
        assert unsound(files)


def test_files_of_gigabytes(files):
    for name in (ENTRIES, CHECKPOINTS, CHECKPOINT):
        folder = ledgers.copy(files, files.with_name(f"huge {name}"))
        with (folder / name).open("ab") as file:
            file.truncate(4_000_000_000)  # sparse
        assert "too long" in unsound(folder) or "must be at most" in unsound(folder)


def test_a_line_at_the_limits(files):
    write(files, ENTRIES, [*lines(files, ENTRIES), b"x" * (2 * ENTRY_LIMIT) + b"\n"])
    assert "entry 40" in unsound(files)
    write(files, CHECKPOINTS, [*lines(files, CHECKPOINTS), b"x" * (2 * NOTE_LIMIT) + b"\n"])
    assert "line 41" in unsound(files)


CHECKPOINT_ATTACKS = {
    "one left out": (lambda all: [*all[:20], *all[21:]], True),  # fewer witnesses of the same history
    "one twice": (lambda all: [*all[:21], *all[20:]], False),
    "two swapped": (lambda all: [*all[:20], all[21], all[20], *all[22:]], False),
    "another size": (lambda all: [*all[:20], all[20].replace(b'"size":21', b'"size":22'), *all[21:]], False),
    "a field more": (lambda all: [*all[:20], all[20].replace(b'"size"', b'"a":1,"size"'), *all[21:]], False),
    "a float": (lambda all: [*all[:20], all[20].replace(b'"size":21', b'"size":21.0'), *all[21:]], False),
    "a key twice": (lambda all: [*all[:20], all[20].replace(b'"size"', b'"size":1,"size"'), *all[21:]], False),
}


@pytest.mark.parametrize("what", CHECKPOINT_ATTACKS)
def test_checkpoints_that_are_out_of_place(files, what):
    attack, sound = CHECKPOINT_ATTACKS[what]
    write(files, CHECKPOINTS, attack(lines(files, CHECKPOINTS)))
    assert audited(files).ok if sound else unsound(files)


def test_missing_files(files, tmp_path):
    for name in (ENTRIES, CHECKPOINTS, CHECKPOINT):
        folder = ledgers.copy(files, tmp_path / f"without {name}")
        (folder / name).unlink()
        with pytest.raises(InputError):
            audited(folder)
    with pytest.raises(InputError, match="must be a new folder"):
        export(new_home(tmp_path / "home"), files)


def test_a_rolled_back_export_needs_a_kept_checkpoint(tmp_path):
    home = new_home(tmp_path / "home", 10)
    export(home, tmp_path / "older")
    newer = grown(home, 12).ledger.log.checkpoint()
    assert audit_export(tmp_path / "older", pinned(home)).ok
    found = audit_export(tmp_path / "older", pinned(home), seen=[newer])
    assert (found.ok, found.first) == (False, 10)


def test_two_exports_of_a_fork_convict_each_other(tmp_path):
    """Each is sound alone; the checkpoint of one is evidence against the other, in either form."""
    home = new_home(tmp_path / "home", 20)
    other = rewritten(Home.open(ledgers.place(ledgers.copy(home.path, tmp_path / "other"))), 7)
    shown = {}
    for name, fork in (("one", home), ("two", other)):
        export(fork, tmp_path / name)
        export_tiles(fork, tmp_path / f"{name} tiles")
        shown[name] = (tmp_path / f"{name} tiles" / CHECKPOINT).read_text()
        assert audit_export(tmp_path / name, pinned(home)).ok
    for name, elsewhere in (("one", "two"), ("two", "one")):
        found = audit_export(tmp_path / name, pinned(home), seen=[shown[elsewhere]])
        assert (found.ok, found.first) == (False, 0)
        assert "kept from before has another root" in found.problems[0]


def test_who_rewrites_without_the_key_is_found_at_the_entry(files, tmp_path):
    """All the hashes can be made anew, the signatures cannot."""
    entries = lines(files, ENTRIES)
    entries[9] = json.dumps(json.loads(entries[9]) | {"time": "2020-01-01T00:00:00Z"}, sort_keys=True).encode()
    entries[9] = entries[9].replace(b", ", b",").replace(b": ", b":") + b"\n"
    write(files, ENTRIES, entries)
    assert unsound(files).startswith("entry 9:")


def test_the_export_is_one_moment(tmp_path):
    """An export of an open ledger holds as many entries as its checkpoint says."""
    home = new_home(tmp_path / "home", 5)
    assert export(home, tmp_path / "a") == 5
    assert export(grown(reopened(home), 7), tmp_path / "b") == 7
    for name in ("a", "b"):
        assert audit_export(tmp_path / name, pinned(home)).ok
    with pytest.raises(LedgerInvalid, match="signs 7 entries"):
        raise LedgerInvalid(audit_export(tmp_path / "a", pinned(home), seen=vouching(tmp_path / "b")).problems[0])


# Either database, and a log whose key was changed


@pytest.fixture
def anywhere(ledger_url, tmp_path) -> Home:
    return grown(Home.init(at(tmp_path / "home", ledger_url)), 300)


@pytest.mark.slow
def test_from_either_database(anywhere, tmp_path):
    home, trust = anywhere, pinned(anywhere)
    assert export(home, tmp_path / "files") == export_tiles(home, tmp_path / "tiles") == 300
    seen = (tmp_path / "files" / CHECKPOINT).read_text()
    assert export_tiles(grown(home, 310), tmp_path / "tiles") == 310
    assert stored_proofs.continues(home.ledger.log.database, trust, seen).later == 310
    with Witness("w", tmp_path, [log_vkey(home)]) as witness:
        rule = parse_policy(f"{witness.line()}quorum w\n".encode())
        for size in (310, 312):
            assert cosign(grown(home, size).ledger.log.database, trust, rule).size == size
        assert witness.asked == [200, 409, 200]
    assert audit_export(tmp_path / "files", trust).ok
    assert audit_tiles(tmp_path / "tiles", trust, seen=[seen]).problems == ()
    home.ledger.log.database.close()


def test_across_a_change_of_the_logs_key(tmp_path):
    """Each checkpoint is judged by the key of its size; a witness and a policy that know both keys go on."""
    home = new_home(tmp_path / "home", 10)
    export(home, tmp_path / "older")
    first, seen = log_vkey(home), home.ledger.log.checkpoint()
    key_life.rotate(home, "log", "test", "a drill")
    home = grown(reopened(home), 20)
    trust, second = pinned(home), log_vkey(home)
    assert first != second
    policy = f"log {first}\nlog {second}\n"
    assert export(home, tmp_path / "files") == export_tiles(home, tmp_path / "tiles") == 20
    for found in (
        audit_export(tmp_path / "older", trust),
        audit_export(tmp_path / "files", trust, seen=[seen]),
        audit_tiles(tmp_path / "tiles", trust, seen=[seen]),
    ):
        assert found.problems == ()
    assert stored_proofs.continues(home.ledger.log.database, trust, seen).earlier == 10
    with Witness("w", tmp_path, [second]) as witness:
        rule = parse_policy(f"{policy}{witness.line()}quorum w\n".encode())
        note = cosign(home.ledger.log.database, trust, rule).note
        assert judge([note], rule, trust).size == 20
        old = parse_policy(f"log {first}\n{witness.line()}quorum w\n".encode())
        with pytest.raises(InputError, match="none of its log lines"):
            cosign(home.ledger.log.database, trust, old)
    export_tiles(grown(home, 25), tmp_path / "tiles")
    assert audit_tiles(tmp_path / "tiles", trust).ok


def test_tiles_that_a_compromised_key_signed_go_on(tmp_path):
    """The folder's checkpoint counts no more; that its tree is the ledger's is seen from the tree."""
    home = new_home(tmp_path / "home", 10)
    export_tiles(home, tmp_path / "tiles")
    key_life.mark_compromised(home, home.keys.key("log").keyid, 4, "test", "a drill")
    home = grown(reopened(home), 14)
    assert export_tiles(home, tmp_path / "tiles") == 14
    assert audit_tiles(tmp_path / "tiles", home.trust).problems == ()
