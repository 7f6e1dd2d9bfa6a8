"""One writer for all small files: whole, durable, with the mode asked for, and nothing left behind by an error."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ledgers import ROOT

from dpserve_verify.system import files
from dpserve_verify.system.files import (
    PRIVATE,
    PUBLIC,
    holding,
    locked,
    open_directory,
    open_no_link,
    partial_of,
    read_beginning,
    replace_file,
    replace_unsynced,
    replacing,
    write_chunks,
    write_new,
)

WRITERS = [
    lambda path, content: replace_file(path, content, PRIVATE),
    lambda path, content: replace_file(path, content, PRIVATE, alone=True),
    lambda path, content: replace_file(path, content, PRIVATE, sync_folder=False),
    lambda path, content: replace_unsynced(path, content, PRIVATE),
]


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_is_replaced_whole(tmp_path, write):
    for content in (b"first", b"", b"x" * 100_000):
        write(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert names(tmp_path) == ["file"]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == PRIVATE


@pytest.mark.parametrize("write", WRITERS)
def test_an_error_leaves_what_was(tmp_path, write, monkeypatch):
    write(tmp_path / "file", b"before")

    def fails(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "file", b"after")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_new_file_takes_nobodys_place(tmp_path):
    write_new(tmp_path / "file", b"one", PUBLIC)
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", b"two", PUBLIC)
    assert (tmp_path / "file").read_bytes() == b"one"
    assert write_chunks(tmp_path / "many", (bytes([number]) for number in range(9)), PUBLIC) == 9
    assert (tmp_path / "many").read_bytes() == bytes(range(9))
    assert write_chunks(tmp_path / "none", [], PUBLIC) == 0


def test_the_umask_takes_rights_away_and_adds_none(tmp_path):
    before = os.umask(0o027)
    try:
        for mode, left in ((PRIVATE, 0o600), (PUBLIC, 0o640), (0o644, 0o640)):
            replace_file(tmp_path / "file", b"", mode)
            assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == left
            replace_unsynced(tmp_path / "file", b"", mode)
            assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == left
    finally:
        os.umask(before)


STEPS = """
import os, sys
from pathlib import Path
from dpserve_verify.system.files import PRIVATE, replace_file

def told(name, real):
    def call(*arguments, **options):
        answer = real(*arguments, **options)
        print(name, flush=True)
        if name == sys.argv[2]:
            os._exit(9)
        return answer
    return call

for name in ("fsync", "replace"):
    setattr(os, name, told(name, getattr(os, name)))
replace_file(Path(sys.argv[1]), b"after", PRIVATE, alone=True)
"""


@pytest.mark.parametrize(
    ("end", "steps", "found"),
    [
        ("", ["fsync", "replace", "fsync"], b"after"),
        ("fsync", ["fsync"], b"before"),
        ("replace", ["fsync", "replace"], b"after"),
    ],
)
def test_content_then_name_then_folder(tmp_path, end, steps, found):
    """The order of the steps; a process that dies between them leaves the old file or the new one."""
    file = tmp_path / "file"
    file.write_bytes(b"before")
    command = [sys.executable, "-c", STEPS, str(file), end]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert (done.stdout.split(), done.returncode) == (steps, 9 if end else 0)
    assert file.read_bytes() == found
    replace_file(file, b"again", PRIVATE, alone=True)  # and what it left is cleared away
    assert names(tmp_path) == ["file"]


def test_what_is_not_synced_says_so(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    replace_unsynced(tmp_path / "file", b"x", PRIVATE)
    with replacing(tmp_path / "file") as partial:
        partial.write_bytes(b"y")
    assert synced == []
    replace_file(tmp_path / "file", b"x", PRIVATE, sync_folder=False)
    assert len(synced) == 1
    replace_file(tmp_path / "file", b"x", PRIVATE)
    assert len(synced) == 3


def test_the_partial_is_where_it_is_said_to_be(tmp_path):
    with replacing(tmp_path / "file", alone=True) as partial:
        assert partial == partial_of(tmp_path / "file")
        partial.write_bytes(b"x")
    with replacing(tmp_path / "file") as one, replacing(tmp_path / "file") as other:
        assert one != other
        one.write_bytes(b"1")
        other.write_bytes(b"2")
    assert (tmp_path / "file").read_bytes() == b"1"


@pytest.mark.parametrize("hold", [lambda path: locked(path / "lock"), lambda path: holding(open_directory(path))])
def test_one_holds_it_at_a_time(tmp_path, hold):
    waited = threading.Event()

    def second() -> None:
        with hold(tmp_path):
            waited.set()

    thread = threading.Thread(target=second)
    with hold(tmp_path):
        thread.start()
        assert not waited.wait(0.2)
    thread.join(300)
    assert waited.is_set()


def test_links_are_not_followed_and_pipes_do_not_wait(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    fd = open_directory(tmp_path)
    try:
        with pytest.raises(OSError, match="symbolic links"):
            open_no_link("link", fd)
        for name in ("file", "pipe"):
            os.close(open_no_link(name, fd))
    finally:
        os.close(fd)


@pytest.mark.parametrize(("length", "seen"), [(0, 0), (9, 9), (10, 10), (11, 11), (12, 11), (1000, 11)])
def test_no_more_is_read_than_shows_that_it_is_too_long(tmp_path, length, seen):
    (tmp_path / "file").write_bytes(b"x" * length)
    assert len(read_beginning(tmp_path / "file", 10)) == seen
    assert files.read_beginning(tmp_path / "file", 10) == b"x" * seen
