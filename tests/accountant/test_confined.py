"""What is read of strangers is bounded by the operating system, and ends where it may take no more."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
from confined_work import run_confined

from accountant.system.confined import Bounds, bound_memory, confine
from dpserve_verify.errors import TooMuch

MB = 1 << 20


def burn():
    while True:
        sum(range(1000))


def take():
    bytearray(200 * MB)


def swallow():
    """Code that takes every error for its own and goes on."""
    while True:
        try:
            burn()
        except TooMuch:
            continue


@pytest.mark.parametrize("work", [burn, take, swallow])
def test_what_takes_too_much_is_ended(work):
    assert not run_confined(Bounds(100 * MB, 0), 60.0, work)


def test_what_waits_is_ended_too():
    assert not run_confined(Bounds(100 * MB, 0), 0.1, lambda: time.sleep(600))


def test_what_is_honest_is_done(tmp_path):
    def work():
        (tmp_path / "limits").write_text(repr([resource.getrlimit(kind) for kind in (resource.RLIMIT_CORE,)]))

    assert run_confined(Bounds(100 * MB, 0), 60.0, work)
    assert (tmp_path / "limits").read_text() == "[(0, 0)]"
    assert run_confined(Bounds(300 * MB, 1), 60.0, take)


def test_who_may_not_write_does_not(tmp_path):
    run_confined(Bounds(100 * MB, 1, writes=False), 60.0, lambda: (tmp_path / "x").write_text("x"))
    assert (tmp_path / "x").read_text() == ""


def test_bounds_only_become_narrower():
    def work():
        confine(Bounds(2000 * MB, 100))
        take()

    assert not run_confined(Bounds(100 * MB, 0), 60.0, work)


def test_it_ends_with_who_started_it(tmp_path):
    """A stop of the process that waits stops the work as well."""
    place = tmp_path / "process"

    def work():
        place.write_text(str(os.getpid()))
        time.sleep(600)

    process = os.fork()
    if not process:
        run_confined(Bounds(100 * MB, 0), 600.0, work)
        os._exit(0)
    while not place.exists() or not place.read_text():
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    child = int(place.read_text())
    for _ in range(500):
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    raise AssertionError(child)


def test_a_command_has_no_more_memory_than_it_may():
    def work():
        bound_memory(int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize() + 100 * MB)
        with pytest.raises(MemoryError):
            take()

    assert run_confined(Bounds(1000 * MB, 5, maps=True), 60.0, work)


def test_time_that_is_over_is_a_refusal():
    """Which whoever works can still answer, where code of Python runs."""

    def work():
        with pytest.raises(TooMuch):
            burn()

    assert run_confined(Bounds(100 * MB, 0), 60.0, work)
