"""Commands as forks of one warm process: the real program in a process of its own, which only need not import again.

`python()` is a command that stands for the interpreter: `[*python(), "-m", "serving.cli", "init"]`. It hands its
arguments, folder, environment and streams to a process that has imported what most commands need, which forks; it
passes signals on and ends as the fork ends. `Popen` is the fork itself. What is claimed of imports, or of the start of
a process, must use `sys.executable`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, TextIO

ROOT = Path(__file__).resolve().parents[2]
STREAMS = (0, 1, 2)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MODULES = (
    "accountant.audit.audit",
    "alembic.command",
    "serving.cli.datasets",
    "serving.cli.here.train",
    "serving.cli.train",
    "training.job",
)


@cache
def python() -> list[str]:
    """The command that stands for the interpreter; the warm process ends with the process of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="dpserve-warm-"))
    place = folder / "socket"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    command = [sys.executable, __file__, str(place)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # stdin ends with this process, however it ends
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.terminate)
    assert process.stdout.readline() == b"ready\n"
    return [sys.executable, "-IS", __file__, str(place)]


class Popen:
    """As `subprocess.Popen` of a command that begins with `sys.executable`, with the fork's own number."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], stdout: BinaryIO, stderr: BinaryIO) -> None:
        assert command[0] == sys.executable
        place = python()[-1]
        with open(os.devnull) as nothing:
            streams = (nothing.fileno(), stdout.fileno(), stderr.fileno())
            self._answers = begun(place, command[1:], str(cwd), env, streams)
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or a signal's number below 0. TimeoutExpired when it lives on for longer."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
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


# ---- what takes the place of the command: nothing but the standard library, and little of it -------------------------


def ask(place: str, arguments: list[str]) -> int:
    """Have the arguments run; the wait status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until it is known to whom
    with begun(place, arguments, os.getcwd(), dict(os.environ), STREAMS) as answers:
        pid = int(answers.readline())

        def pass_on(number: int, frame: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        return int(answers.readline())


def begun(
    place: str, arguments: list[str], folder: str, environment: dict[str, str], streams: tuple[int, ...]
) -> TextIO:
    """What comes of it: a line with the fork's number, and once it ended a line with its wait status."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(place)
        asked = json.dumps({"arguments": arguments, "folder": folder, "environment": environment}).encode()
        socket.send_fds(door, [len(asked).to_bytes(4, "big")], streams)
        door.sendall(asked)
        return door.makefile("r")


def end_as(status: int) -> None:
    """End this process in the way that the other ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


# ---- the warm process ------------------------------------------------------------------------------------------------


def import_rooms() -> None:
    """What commands import, at once or in their work: the learners, and what a job loads and compiles. No BentoML and
    no prometheus_client, which read the environment as they are imported.
    """
    for name in MODULES:
        import_module(name)
    from ledgers import play_a_job

    from training.learners import LEARNERS

    assert all(LEARNERS.values())  # which imports them
    play_a_job()
    too_early = {"bentoml", "prometheus_client"} & sys.modules.keys()
    assert not too_early, f"they read the environment as they are imported: {too_early}"


def wait_for_work(place: str) -> list[str]:
    """Returns in forks alone, each with its arguments, folder, environment and streams."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen(64)
        print("ready", flush=True)
        while True:
            if sys.stdin in select.select([door, sys.stdin], [], [])[0]:
                os._exit(0)
            answer, _ = door.accept()
            if not os.fork():
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return begin(answer)
            answer.close()


def begin(answer: socket.socket) -> list[str]:
    """Returns in the fork that is to work; this process tells what becomes of it."""
    length, streams, *_ = socket.recv_fds(answer, 4, len(STREAMS))
    asked = json.loads(read(answer, int.from_bytes(length, "big")))
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        answer.sendall(f"{pid}\n".encode())
        answer.sendall(f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    answer.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have begun us deaf to it, in its background
    os.setsid()
    for number, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["arguments"]


def read(answer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += answer.recv(count - len(found))
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
    if sys.flags.isolated:
        end_as(ask(sys.argv[1], sys.argv[2:]))
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
