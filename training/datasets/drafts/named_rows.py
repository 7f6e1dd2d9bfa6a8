"""Rows on the server that a steward named by their path: opened without following a link at any step, and read from
what was opened.

Who may write to a folder that an operator allowed may put a link there at any moment, between a look and a reading too.
So the way is walked from the root of the file system by descriptors of its folders, and every file is opened once; what
readers are given is a private folder of the same names, which lead to these open files and nowhere else.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpserve_verify.errors import InputError

MOST_FILES = 10_000  # of a folder that is named
SPARE_FILES = 200  # that a process opens besides
OPEN = Path("/proc/self/fd")
VIEW = "named"  # the private folder
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_rows(path: Path) -> None:
    """Raise InputError unless a file, or a folder of MOST_FILES files at most, is at this absolute path, with no link
    in it or on the way to it.
    """
    with _told():
        for _, name, folder in _files(path):
            _check_file(os.stat(name, dir_fd=folder, follow_symlinks=False))


@contextmanager
def hold_rows(path: Path, within: Path) -> Iterator[Path]:
    """Open the file, or every file below the folder, at `path`, and yield a path of the same name that readers may
    open, in a private folder in `within`, while the body runs. InputError as for `check_rows`. Files and folders whose
    names begin with a point or `_` are left out, as they hold no rows.
    """
    if not OPEN.is_dir():
        raise InputError("path: rows on the server are read on Linux alone; upload the file")
    view = within / VIEW
    shutil.rmtree(view, ignore_errors=True)  # of a process that was killed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES + SPARE_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted if hard < 0 else min(wanted, hard)), hard))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, view, ignore_errors=True)
        view.mkdir(mode=0o700)
        with _told():
            for below, name, folder in _files(path):
                fd = os.open(name, _FILE, dir_fd=folder)
                stack.callback(os.close, fd)
                _check_file(os.fstat(fd))
                place = view / below / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(OPEN / str(fd))
        if not any(view.iterdir()):
            (view / path.name).mkdir()
        yield view / path.name


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = {
            errno.ELOOP: "there is a link in it, or on the way to it; name where the rows lie",
            errno.ENOTDIR: "there is a link in it, or on the way to it; name where the rows lie",
            errno.ENOENT: "there is no such file",
            errno.EMFILE: "it holds more files than the server may open at once",
        }.get(error.errno or 0, f"cannot be read by the server ({error.strerror})")
        raise InputError(f"path: {problem}") from None


def _check_file(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "link")
    if not stat.S_ISREG(status.st_mode):
        raise InputError("path: must be a file, or a folder of files alone")


def _files(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the files at or below an absolute path, in the order of their names: the folders that they lie in from its
    last part on, their names, and a descriptor of their folder, which is open until the next one is asked for.
    """
    with ExitStack() as stack:
        at = -1
        for part in path.parts[:-1]:
            at = os.open(part, _WAY, dir_fd=None if at < 0 else at)
            stack.callback(os.close, at)
        if not stat.S_ISDIR(os.stat(path.name, dir_fd=at, follow_symlinks=False).st_mode):
            yield "", path.name, at
            return
        for count, file in enumerate(_below(path.name, at, "")):
            if count >= MOST_FILES:
                raise InputError(f"path: holds more than {MOST_FILES} files")
            yield file


def _below(name: str, at: int, above: str) -> Iterator[tuple[str, str, int]]:
    folder, way = os.open(name, _FOLDER, dir_fd=at), f"{above}{name}/"
    try:
        for entry in sorted(os.listdir(folder)):
            if entry[:1] in "._":
                continue
            if stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode):
                yield from _below(entry, folder, way)
            else:
                yield way, entry, folder
    finally:
        os.close(folder)
