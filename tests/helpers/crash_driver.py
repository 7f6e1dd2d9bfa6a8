"""Runs one task after the other in children of its own and kills each (SIGKILL) where it is told; see test_crash.

One JSON request a line on stdin: {"task", "home", "files", "point", "delay"}; the child's wait status on stdout.
`point` is "module:name:before|after:n": the child dies at the n-th call of that function, just before it or just after.
`delay`: the child is killed from outside after so many seconds. Children are forked, so that only this process pays for
imports. What a child draws is written down, byte by byte, before it is drawn.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import ledgers
from ledgers import ROOT

from accountant.home import Home
from models.store import placing
from training.datasets import datasets
from training.jobs import job
from training.requests import JobRequest
from training.session.session import Session

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8})


class Driver:
    """This file, or another that serves, in a process of its own."""

    def __init__(self, script: str = __file__, **more: str) -> None:
        command = [sys.executable, script]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}", **more}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        self._process = subprocess.Popen(command, **pipes)
        assert self._process.stdout.readline() == "ready\n"

    def run(self, task: str, home: Path, point: str | None = None, delay: float | None = None) -> int | None:
        """Exit status of the child, or None where it was killed."""
        request = {"task": task, "home": str(home), "files": str(files()), "point": point, "delay": delay}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return None if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else os.WEXITSTATUS(status)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def files() -> Path:
    return ledgers.prepared().parent / "files"


def die_at(point: str) -> None:
    """Make the named function deadly; after `outer>`, only from the first call of that function on."""
    if ">" in point:
        return at_call_of(*point.split(">"))
    module, name, when, count = point.split(":")
    owner, *inner, last = [importlib.import_module(module), *name.split(".")]
    for step in inner:
        owner = getattr(owner, step)
    original, calls = getattr(owner, last), []

    @functools.wraps(original)
    def deadly(*arguments, **options):
        calls.append(name)
        fatal = len(calls) == int(count)
        if fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*arguments, **options)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, last, deadly)


def at_call_of(outer: str, point: str) -> None:
    module, name = outer.split(":")
    owner = importlib.import_module(module)
    original = getattr(owner, name)

    def arm(*arguments, **options):
        die_at(point)
        return original(*arguments, **options)

    setattr(owner, name, arm)


def note_draws(file: Path) -> None:
    """One byte in `file` for every release, before it is drawn."""
    original = Session.release

    def release(self, query, mechanism):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, b".")
        os.close(descriptor)
        return original(self, query, mechanism)

    Session.release = release


def train(home: Path, files: Path) -> None:
    note_draws(home.parent / "draws")
    job.train(Home.open(ledgers.place(home)), ASKED, by="test", key=f"key of {os.getpid()}")


def promote(home: Path, files: Path) -> None:
    """A further version of a name, to be champion at once."""
    job.train(Home.open(ledgers.place(home)), replace(ASKED, promote=True), by="test")


def place(home: Path, files: Path) -> None:
    """The candidate adult@2 becomes champion."""
    placing.promote(Home.open(ledgers.place(home)), "adult@2", "reviewed", "me")


def retire(home: Path, files: Path) -> None:
    placing.retire(Home.open(ledgers.place(home)), "adult@1", "old", "me")


def recover(home: Path, files: Path) -> None:
    job.recover(Home.open(ledgers.place(home)))


def init(home: Path, files: Path) -> None:
    Home.init(ledgers.place(home))


def register(home: Path, files: Path) -> None:
    how = (ledgers.TOTAL, datasets.Relation.ADD_REMOVE, None)
    datasets.register(Home.open(ledgers.place(home)), "second", files / "rows.parquet", files / "schema.yaml", *how)


TASKS = {task.__name__: task for task in (train, promote, place, retire, recover, init, register)}


def child(request: dict) -> None:
    """Never returns."""
    status = 1
    try:
        TASKS[request["task"]](Path(request["home"]), Path(request["files"]))
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    gc.freeze()  # or each child would look through it, and so copy it
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            if request["point"]:
                die_at(request["point"])
            child(request)
        if request["delay"] is not None:
            time.sleep(request["delay"])
            os.kill(pid, signal.SIGKILL)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    ledgers.play_a_job()  # loaded and compiled once, for all children
    print("ready", flush=True)
    serve()
