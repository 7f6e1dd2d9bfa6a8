"""Files: written whole or not at all, locked, and read no further than a limit. The only writer of small files we have.

On disk when it returns: `write_new` (its name once the folder is synced), `replace_file`, `sync_directory`. Whole but
not synced, so that a power cut may lose it: `replace_unsynced`, `replacing`. All of them let OSError through.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE, PUBLIC = 0o600, 0o666  # modes of new files: the umask may take rights away, never add any


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, synced. FileExistsError where anything has that name."""
    write_chunks(path, [content], mode)


def write_chunks(path: Path, chunks: Iterable[bytes], mode: int) -> int:
    """Write a new file as `write_new` does, one chunk after the other, for what is too large to be held. Return their
    number.
    """
    count = 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        for chunk in chunks:
            file.write(chunk)
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def replace_file(path: Path, content: bytes, mode: int, *, alone: bool = False, sync_folder: bool = True) -> None:
    """Put `content` in the place of what stands at `path`: a crash at any point leaves the old file or the new one.

    `alone`: as for `replacing`. `sync_folder=False`: the caller syncs the folder, after this and other files."""
    with replacing(path, alone=alone) as partial:
        write_new(partial, content, mode)
    if sync_folder:
        sync_directory(path.parent)


def replace_unsynced(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as `replace_file` does, without syncing: for what can be made again or done without."""
    with replacing(path) as partial:
        partial.touch(mode, exist_ok=False)
        partial.write_bytes(content)


@contextmanager
def replacing(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """Yield a name beside `path` for the body to write to; at its end, that file takes the place of `path` in one step.

    Nothing is synced here. An error leaves nothing behind; what a crash leaves is cleared away by the next to write
    where `alone` says that nobody else writes at the same time (a lock is held), and stays otherwise.
    """
    partial = partial_of(path) if alone else path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
    partial.unlink(missing_ok=True)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def partial_of(path: Path) -> Path:
    """Return the name beside `path` that is written to under `alone`: what a cut writer leaves."""
    return path.with_name(f".{path.name}.partial")


def sync_file(path: Path) -> None:
    """Flush the content of a file that a library has written to the disk (fsync)."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Flush the names in a folder to the disk (fsync): a new file or a rename is durable once its folder is."""
    fd = open_directory(directory)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_directory(directory: Path, flags: int = 0) -> int:
    """Open a folder. Return its descriptor."""
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a file, made where there is none, against every other thread and process of this host. Not re-entrant.
    Without `wait`, BlockingIOError where another holds it.
    """
    with holding(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE), wait):
        yield


@contextmanager
def holding(fd: int, wait: bool = True) -> Iterator[None]:
    """Lock an open file or folder as `locked` does, and close it at the end. The system frees the lock of a killed
    process.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(fd)


def open_no_link(name: str, directory_fd: int | None) -> int:
    """Open a file in that folder to read from; OSError for a symbolic link. A pipe does not make us wait."""
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd)


def read_beginning(path: Path, limit: int) -> bytes:
    """Read the content where it has at most `limit` bytes; one byte more than `limit` where there are more."""
    with path.open("rb") as file:
        return file.read(limit + 1)
