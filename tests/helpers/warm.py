"""Commands as forks of one warm process: the real program in a process of its own, which only need not import again.

`python()` is a command that stands for the interpreter: `[*python(), "-m", "serving.cli", "init"]`. It hands its
arguments, folder, environment and streams to a process that has imported what most commands need, which forks; it
passes signals on and ends as the fork ends. `Popen` is the fork itself. What is claimed of imports, or of the start of
a process, must use `sys.executable`.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import warm_command
from warm_command import STREAMS

if TYPE_CHECKING:
    import pytest  # the warm process itself needs none

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds
MODULES = (
    "accountant.audit.audit",
    "accountant.store.postgres_timeout",
    "alembic.command",
    "serving.cli.datasets",
    "serving.cli.backends.home.jobs",
    "serving.cli.server",
    "serving.cli.train",
    "training.measuring.worth.public_rows",
    "training.jobs.job",
    "training.datasets.one_file",
    "training.rows.tables.row_files",
    # What a server imports beside.
    *("jinja2", "markdown_it", "pydantic_settings", "rich.console", "starlette.applications", "uvicorn.config"),
    *("dpserve_platform.outside.queries", "dpserve_platform.replay", "local.campaign.campaigns", "local.turns.so_far"),
    *("models.explain.compare", "serving.pages.parts.ui", "training.datasets.drafts.public_answers"),
    *("training.datasets.growing.append", "training.requests.registration", "uvicorn.protocols.http.httptools_impl"),
)


WORK_SECONDS = "WARM_WORK_SECONDS"  # in the environment: how long a server works for a request; its own time if not
SHARED = "WARM_PROCESS"  # in the environment: the socket of one that another process began


def begin_one() -> Path:
    """Begin a warm process, which ends with this one; the socket that is there once it is ready."""
    folder = Path(tempfile.mkdtemp(prefix="dpserve-warm-"))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    command = [sys.executable, __file__, str(folder / "socket")]
    # Its stdin ends with this process, however that ends.
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, stdin=subprocess.PIPE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.terminate)
    return folder / "socket"


def share() -> None:
    """Begin one for all processes that this one will start."""
    os.environ[SHARED] = str(begin_one())


@cache
def python() -> list[str]:
    """The command that stands for the interpreter: a fork of the process that is shared, or of one of our own."""
    place = Path(os.environ.get(SHARED) or begin_one())
    end = time.monotonic() + PATIENCE
    while not place.exists():
        assert time.monotonic() < end, "the warm process is not ready"
        time.sleep(0.01)
    return [sys.executable, "-IS", warm_command.__file__, str(place)]


class Popen:
    """As `subprocess.Popen` of a command that begins with `sys.executable`, with the fork's own number."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], stdout: BinaryIO, stderr: BinaryIO) -> None:
        assert command[0] == sys.executable
        place = python()[-1]
        with open(os.devnull) as nothing:
            streams = (nothing.fileno(), stdout.fileno(), stderr.fileno())
            self._answers = warm_command.begun(place, command[1:], str(cwd), env, streams)
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or a signal's number below 0. TimeoutExpired when it lives on for longer."""
        if self.returncode is None:
            answered = select.poll()  # select() itself ends at the thousandth open file
            answered.register(self._answers, select.POLLIN)
            if not answered.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._answers.readline()))
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        """As `wait`; None while it lives."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """None where it ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)


def read_files_by_forks(patch: pytest.MonkeyPatch) -> None:
    """Have files that are sent to a server of this process read by forks: the same program, seal and limits, whose
    start takes up to a second of a processor. What is claimed of that start must not ask for it.
    """
    from serving.wire import file_tables

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[:3] == [sys.executable, "-I", str(file_tables.PROGRAM)]
        return subprocess.run([*python(), *command[2:]], **more)

    patch.setattr(file_tables, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))


# ---- the warm process ------------------------------------------------------------------------------------------------


def import_rooms() -> None:
    """What commands import, at once or in their work: the learners, what a job loads and compiles, and the templates of
    pages. No BentoML and no prometheus_client, which read the environment as they are imported.
    """
    for name in MODULES:
        import_module(name)
    from ledgers import play_a_job

    from training.learners import LEARNERS

    assert all(LEARNERS.values())  # which imports them
    play_a_job()
    templates = vars(import_module("serving.pages.parts.ui"))["TEMPLATES"]
    for name in templates.list_templates():  # each serving process would compile them: a second
        templates.get_template(name)
    too_early = {"bentoml", "prometheus_client"} & sys.modules.keys()
    assert not too_early, f"they read the environment as they are imported: {too_early}"


def wait_for_work(place: str) -> list[str]:
    """Returns in forks alone, each with its arguments, folder, environment and streams."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by a file that can be read once the fork ended
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{place}.new")
        door.listen(64)
        os.rename(f"{place}.new", place)
        while True:
            ready = select.select([door, sys.stdin, *running], [], [])[0]
            if sys.stdin in ready:
                os._exit(0)
            for ended in running.keys() & {each for each in ready if isinstance(each, int)}:
                pid, answer = running.pop(ended)
                os.close(ended)
                tell(answer, os.waitpid(pid, 0)[1])
                answer.close()
            if door in ready:
                answer, _ = door.accept()
                try:
                    length, streams, *_ = socket.recv_fds(answer, 4, len(STREAMS))
                    asked = read(answer, int.from_bytes(length or b"\1", "big"))
                except OSError:  # whoever asked was killed
                    answer.close()
                    continue
                if not (pid := os.fork()):
                    for each in (door, answer, *(other for _, other in running.values())):
                        each.close()
                    return begin(*marshal.loads(asked), streams)
                for stream in streams:
                    os.close(stream)
                running[os.pidfd_open(pid)] = pid, answer
                tell(answer, pid)


def tell(answer: socket.socket, number: int) -> None:
    with suppress(OSError):  # whoever asked was killed
        answer.sendall(f"{number}\n".encode())


def begin(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> list[str]:
    """In a fork: as if it had been started so."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have begun us deaf to it, in its background
    os.setsid()
    for number, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    seconds = environment.pop(WORK_SECONDS, None)
    os.environ.clear()
    os.environ.update(environment)
    if seconds is not None:
        work_time = vars(import_module("serving.wire.work_time"))
        work_time["WORK_SECONDS"] = work_time["PRICES_SECONDS"] = float(seconds)
    return arguments


def read(answer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += (more := answer.recv(count - len(found)))
        if not more:
            raise ConnectionError("it hung up")
    return found


def work(arguments: list[str]) -> int:
    """As `python ARGUMENTS` does, for `-m module`, `-c code` or a script; its exit code."""
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    gc.disable()
    import_rooms()
    gc.freeze()  # or each fork would look through it, and so copy it
    gc.enable()
    status = 1
    try:
        status = work(wait_for_work(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
    finally:  # what an interpreter does at its end, but for threads, which are not in a fork: they are not waited for
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
