"""The high-water mark's file: two slots written in turn, of which a crash can tear one."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest

from accountant.log import last_seen
from accountant.log.last_seen import BLANK, SLOT, HighWater
from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats.merkle import EMPTY_ROOT


def root_at(size: int) -> bytes:
    return bytes([size % 256]) * 32


@pytest.fixture
def mark(tmp_path) -> HighWater:
    return HighWater(tmp_path / "high-water.json")


def raised(mark: HighWater, size: int) -> HighWater:
    """Raised by ones, from where it is."""
    for each in range((mark.read() or (0, b""))[0] + 1, size + 1):
        mark.advance(each, root_at(each))
    return mark


def test_the_slots_are_lines_of_json_written_in_turn(mark):
    for size in range(1, 6):
        mark.advance(size, root_at(size))
        lines = [line.strip() for line in mark.path.read_text().splitlines()]
        sizes = [json.loads(line)["size"] if line else None for line in lines]
        assert sorted(sizes, key=lambda each: each or 0) == [size - 1 or None, size]
        assert len(mark.path.read_bytes()) == 2 * SLOT
        assert mark.read() == (size, root_at(size))
    assert stat.S_IMODE(mark.path.stat().st_mode) == 0o600
    assert {path.name for path in mark.path.parent.iterdir()} == {mark.path.name, mark.path.name + ".lock"}


def test_the_file_is_written_in_place(mark):
    raised(mark, 1)
    before = mark.path.stat().st_ino
    raised(mark, 9)
    assert mark.path.stat().st_ino == before


@pytest.mark.parametrize("size", [2, 3])
def test_a_torn_slot_leaves_the_mark_before(mark, size):
    """Cut the newest slot's write at every byte: what stands there is the old slot, the new one, or neither."""
    older = raised(mark, size - 1).path.read_bytes()
    raised(mark, size)
    newer = mark.path.read_bytes()
    seen = set()
    for cut in (at for at in range(2 * SLOT + 1) if at % SLOT < 200 or at % 89 == 0):
        mark.path.write_bytes(newer[:cut] + older[cut:])
        found = mark.read()
        assert found in {(size - 1, root_at(size - 1)), (size, root_at(size))}
        seen.add(found)
    assert len(seen) == 2
    mark.path.write_bytes(older)
    mark.advance(size + 1, root_at(size + 1))
    assert mark.read() == (size + 1, root_at(size + 1))


def test_a_changed_byte_is_never_believed(mark):
    raw = bytearray(raised(mark, 4).path.read_bytes())
    line = raw.index(b'"size":4')
    start = line // SLOT * SLOT
    for at in (*range(start, start + 200), start + 1000, start + SLOT - 1):
        mark.path.write_bytes(bytes(raw[:at]) + bytes([raw[at] ^ 1]) + bytes(raw[at + 1 :]))
        assert mark.read() == (3, root_at(3))


def test_the_slot_after_a_torn_one_is_the_torn_one(mark):
    """The whole slot is kept until the other one is whole again."""
    raw = raised(mark, 4).path.read_bytes()
    whole = raw.index(b'"size":3') // SLOT
    torn = raw[:SLOT] + BLANK if whole == 0 else BLANK + raw[SLOT:]
    mark.path.write_bytes(torn)
    mark.advance(7, root_at(7))
    after = mark.path.read_bytes()
    assert after[whole * SLOT :][:SLOT] == torn[whole * SLOT :][:SLOT]
    assert mark.read() == (7, root_at(7))


@pytest.mark.parametrize("raw", [BLANK + BLANK, bytes(2 * SLOT), b"x" * 2 * SLOT, BLANK, BLANK * 3, b"", b"{"])
def test_no_whole_slot_is_an_error(mark, raw):
    mark.path.write_bytes(raw)
    for call in (mark.read, lambda: mark.advance(9, root_at(9))):
        with pytest.raises(LedgerInvalid, match="damaged high-water mark"):
            call()
    assert mark.path.read_bytes() == raw


def test_what_is_no_slot_of_ours_is_refused(mark):
    """Two slots that say what no slot of ours can: another key, a float, a size that is no number."""
    for line in ('{"root":"A","sha256":"","size":1}', '{"size":1}', '{"root":"x","sha256":"y","size":-1}'):
        mark.path.write_bytes(line.encode().ljust(SLOT - 1) + b"\n" + BLANK)
        with pytest.raises(LedgerInvalid, match="neither of its slots"):
            mark.read()


def test_sizes_to_the_largest(mark):
    for size in (0, 1, 2**31, 2**53, 2**63 - 1):
        mark.advance(size, EMPTY_ROOT)
        assert mark.read() == (size, EMPTY_ROOT)


def failing(*_arguments):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "open"])
def test_a_mark_that_cannot_be_raised_says_so(mark, monkeypatch, call):
    """The slot that stood is the mark, whatever became of the other one."""
    raised(mark, 3)
    with mark.locked() as held, monkeypatch.context() as patch:
        patch.setattr(last_seen.os, call, failing)
        with pytest.raises(LedgerUnavailable, match="No space left"):
            held.advance(4, root_at(4))
    assert mark.read() in {(3, root_at(3)), (4, root_at(4))}
    mark.advance(5, root_at(5))
    assert mark.read() == (5, root_at(5))


def test_a_short_write_is_not_taken_for_a_whole_one(mark, monkeypatch):
    raised(mark, 3)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, content, offset: write(fd, content[:100], offset))
    with pytest.raises(LedgerUnavailable, match="cannot be raised"):
        mark.advance(4, root_at(4))
    assert mark.read() == (3, root_at(3))


def test_reading_while_others_write(mark):
    """A reader without the lock sees only marks that were, and never one older than it saw before."""
    raised(mark, 2)
    done, seen = threading.Event(), []

    def read():
        while not done.is_set():
            seen.append(mark.read())

    reader = threading.Thread(target=read)
    reader.start()
    for size in range(3, 300):
        mark.advance(size, root_at(size))
    done.set()
    reader.join()
    assert all(found == (found[0], root_at(found[0])) for found in seen)
