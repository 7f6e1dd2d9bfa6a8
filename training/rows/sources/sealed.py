"""Foreign bytes are read behind the seal: by a fork that has the one open file, no other, no network, and bounds on its
memory and time. A program of its own, begun where the first such file is read, loads the readers and forks for each
file; it ends with the process that began it.

The readers are `training.rows.sources.cell_readers`. Where no seal is known, which is where there is no Linux, they run
in this process.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
from pyarrow import ipc

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # for it is run alone

from accountant.errors import DataError
from accountant.system.confined import end_with_parent, memory_of_one
from accountant.system.seal import NO_THREADS, seal
from dpserve_verify.errors import InputError
from training.rows.sources.cell_readers import READERS

FIRST_SECONDS, BYTES_PER_SECOND = 60, 50_000  # of a processor: for any file, and how much more for its bytes
CLOCK_SECONDS = 1800
MEMORY = 8 << 30  # bytes
LONGEST = 1 << 26  # bytes of a line of facts
# Alphabets of files of statistics programs: the C library opens a file for each, which it cannot behind the seal.
ALPHABETS = (
    *(f"WINDOWS-{page}" for page in range(1250, 1259)), *(f"ISO-8859-{part}" for part in range(1, 17)),
    *(f"CP{page}" for page in (437, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866, 869, 874)),
    "MACINTOSH", "CP932", "CP936", "CP949", "CP950", "GB18030", "BIG5", "BIG5-HKSCS", "SHIFT_JIS", "EUC-KR", "EUC-JP",
    "EUC-CN", "KOI8-R", "TIS-620", "UTF-16LE", "UTF-16BE", "UTF-8", "US-ASCII",
)  # fmt: skip


class NoRoom(DataError, MemoryError):
    """A file that takes more memory to read than there is."""


def reading_seconds(size: int) -> int:
    """Return how much time of a processor a file of so many bytes may take, whatever it unpacks to."""
    return FIRST_SECONDS + size // BYTES_PER_SECOND


def read_sealed(path: Path, reader: str, asked: dict[str, Any]) -> tuple[dict[str, Any], pa.Table]:
    """Return what a reader of `READERS` makes of a file: facts and a table. DataError where it refuses, or is ended, by
    a fault of its own or by its bounds, NoRoom by that of memory; InputError where this system cannot seal a process.
    """
    asked = {**asked, "reader": reader, "name": path.name}
    with path.open("rb") as file:
        if sys.platform != "linux":
            return _refusing(file, asked)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                _FORKING.send(file.fileno(), theirs.fileno())
            return _receive(ours, asked)


def _receive(wire: socket.socket, asked: dict[str, Any]) -> tuple[dict[str, Any], pa.Table]:
    """Send what is asked of it to a fork, and read its answer, which is believed as little as the file is."""
    wire.settimeout(CLOCK_SECONDS)
    try:
        wire.sendall(json.dumps(asked).encode() + b"\n")
        with wire.makefile("rb", 1 << 20) as source:
            said = json.loads(source.readline(LONGEST))
            if "rows" in said:
                table = ipc.open_stream(source).read_all()
                table.validate(full=True)
                if table.num_rows == said["rows"]:
                    return said["facts"], table
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):  # it ended before its answer did
        said = {}
    said = said if isinstance(said, dict) else {}
    if said.get("memory"):
        raise NoRoom(f"data={asked['name']}: takes more memory to read than there is room for; save it as .csv")
    if "unsealed" in said:
        raise InputError(
            f"data={asked['name']}: this system cannot seal a process ({said['unsealed']!r:.200}), which reads such "
            "files; save it as .csv"
        )
    ended = f"data={asked['name']}: harms who reads it, or takes too much memory or time to read; save it as .csv"
    raise DataError(str(said.get("refused", ended)), **({"remedies": said["remedies"]} if said.get("remedies") else {}))


class _Forking:
    """The program that forks for each file; it begins with the first."""

    _door: socket.socket | None = None
    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let go of it, which ends where nobody else holds its door: a fork of this process begins one of its own."""
        if self._door is not None:
            self._door.close()
        self._door, self._process, self._lock = None, None, Lock()

    def send(self, file: int, wire: int) -> None:
        """Have it fork for an open file. The answer comes by the wire."""
        with self._lock:
            if self._door is None or self._process is None or self._process.poll() is not None:
                self._door, theirs = socket.socketpair()
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-I", __file__], stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, cwd="/", env=NO_THREADS,
                    )  # fmt: skip
            socket.send_fds(self._door, [b"\0"], [file, wire])


_FORKING = _Forking()
os.register_at_fork(after_in_child=_FORKING.forget)


def _refusing(file: BinaryIO, asked: dict[str, Any]) -> tuple[dict[str, Any], pa.Table]:
    """Read a file. DataError for whatever its reader raises."""
    try:
        return READERS[asked["reader"]](file, asked)
    except (DataError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise DataError(f"data={asked['name']}: {asked['fails'].format(type(error).__name__)}") from None


def _answer(file: int, wire: int) -> NoReturn:
    """Read the file behind the seal and send what it holds. Runs in a fork, and ends it."""
    try:
        with os.fdopen(wire, "rb") as into, os.fdopen(os.dup(wire), "wb") as out, os.fdopen(file, "rb") as source:
            said, table = _read(source, json.loads(into.readline()))
            out.write(json.dumps(said).encode() + b"\n")
            if table is not None:
                with ipc.new_stream(pa.PythonFile(out, "w"), table.schema) as writer:
                    writer.write_table(table)
    finally:
        os._exit(0)


def _read(source: BinaryIO, asked: dict[str, Any]) -> tuple[dict[str, Any], pa.Table | None]:
    """Seal this process, read, and return what is said of it, and the table."""
    signal.alarm(CLOCK_SECONDS)
    try:
        seal(min(MEMORY, memory_of_one()), reading_seconds(os.fstat(source.fileno()).st_size))
        facts, table = _refusing(source, asked)
        return {"rows": table.num_rows, "facts": facts}, table
    except MemoryError:
        return {"memory": True}, None
    except DataError as error:
        return {"refused": error.message, "remedies": error.details.get("remedies")}, None
    except OSError as error:
        return {"unsealed": str(error)}, None


def main() -> None:
    """Load the readers, and fork for each file that comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts us both; who asked closes our input
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in ("encodings.cp437", "encodings.utf_16_le", "python_calamine", "pyreadstat"):
        with suppress(ImportError):
            import_module(name)
    for name in ALPHABETS:
        ctypes.CDLL(None).iconv_open(b"UTF-8", name.encode())
    door, reader = socket.socket(fileno=0), os.getpid()
    while True:
        asked, places, *_ = socket.recv_fds(door, 1, 2)
        if not asked:
            return
        if not os.fork():
            end_with_parent(reader)
            door.close()
            _answer(*places)
        for place in places:
            os.close(place)


if __name__ == "__main__":
    main()
