"""Forks of a server: whole processes of their own, that draw what no other draws."""

from __future__ import annotations

import json
import os
import subprocess

import psutil
import pytest
import warm
from small_home import until

HEAD = """
import json, os, signal, sys, threading, time
from serving.process.workers.forks import fork
def ended(process):
    process.join(60)
    return process.exitcode
"""
ITSELF = """
def tell():
    masked, own = signal.pthread_sigmask(signal.SIG_BLOCK, ()), open("/proc/self/comm").read().strip()
    print(json.dumps([os.getsid(0) == os.getpid(), own, signal.getsignal(signal.SIGTERM).name, sorted(masked)]))
    sys.exit(3)
def wait():
    time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: None)
told = ended(fork("dpserve-one", tell))
waits = fork("dpserve-two", wait)
waits.terminate()
print(told, ended(waits))
"""
THREADS = """
gate = threading.Event()
threading.Thread(target=gate.wait, daemon=True).start()
try:
    fork("dpserve-one", gate.set)
except RuntimeError as error:
    print(error)
"""
STILL = """
from functools import partial
from accountant.system.life import LIFE
from serving.answering import beat_unless_lost
from serving.process.workers.restarted import RestartedProcess, TICK_SECONDS
from serving.wire.work_time import MOST_OVERDUE, Overdue
begun, began = os.pipe()
def beats(heartbeat):
    heartbeat.beat()
    heartbeat.beat_in_a_thread(time.monotonic)
    os.write(began, b".")
    time.sleep(60)
def hangs(heartbeat):
    heartbeat.beat_in_a_thread(LIFE.last)  # a thread of its own that goes on
    time.sleep(60)
def works(lost, heartbeat):
    now = [0.0]
    overdue = Overdue(lambda: now[0])
    for _ in range(lost):
        threading.Thread(target=overdue.watch, args=(time.sleep, 60), daemon=True).start()
    while overdue.count(-1000) < lost:
        time.sleep(0.01)
    now[0] = 1000.0
    heartbeat.beat()
    for _ in range(1000):
        beat_unless_lost(heartbeat, overdue)
        time.sleep(0.05)
def look(kept, holds):
    end = time.monotonic() + 50
    while not holds() and time.monotonic() < end:
        time.sleep(TICK_SECONDS)
        for each in kept:
            each.look()
    return holds()
kept = [RestartedProcess(each.__name__, "dpserve-one", each, 2.0) for each in (beats, beats, hangs)]
kept += [RestartedProcess("works", "dpserve-one", partial(works, MOST_OVERDUE - at), 2.0) for at in (1, 0)]
well, stopped, hung, late, lost = kept
pids = [each.process.pid for each in kept]
for _ in range(2):
    os.read(begun, 1)
os.kill(pids[1], signal.SIGSTOP)
replaced = look(kept, lambda: all(kept[at].process.pid != pids[at] for at in (1, 2, 4)))
look(kept, lambda: all(each.process.is_alive() for each in (stopped, hung, lost)))
whole = [kept[at].process.pid == pids[at] for at in (0, 3)]
print(json.dumps([replaced, stopped.process.is_alive(), *whole]))
for each in kept:
    each.process.kill()
"""
SOON = """
from serving.process.workers import restarted
restarted.RESTART_SECONDS = 1e9
waits = restarted.RestartedProcess("wait", "dpserve-one", lambda heartbeat: time.sleep(60))
pids = []
for _ in range(3):
    pids.append(waits.process.pid)
    waits.process.kill()
    ended(waits.process)
    waits.look()
print(json.dumps([len(set(pids)), waits.process.exitcode]))
"""
ORPHANS = """
def wait():
    time.sleep(60)
waits = fork("dpserve-one", wait)
print(waits.pid, flush=True)
raise ValueError("what nobody foresaw")
"""
KILLED = """
begun, began = os.pipe()
def wait():
    os.write(began, b".")
    time.sleep(60)
waits = fork("dpserve-one", wait)
print(waits.pid, flush=True)
os.read(begun, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
DRAWS = """
import numpy as np
from decimal import Decimal
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialSelection, PermuteAndFlip
COUNT, FEW = 64, Decimal("0.001")
MECHANISMS = {
    DiscreteGaussian(Decimal(50)): np.zeros(COUNT, np.int64),
    DiscreteLaplace(FEW): np.zeros(COUNT, np.int64),
    ExponentialSelection(FEW): np.zeros(1 << 15, np.int64),
    PermuteAndFlip(FEW): np.zeros(1 << 15, np.int64),
}
def draws():
    return {type(each).__name__: np.ravel([each.draw(values, 1000) for _ in range(4)]).tolist()
        for each, values in MECHANISMS.items()}
def tell():
    print(json.dumps(draws()), flush=True)
print(json.dumps(draws()), flush=True)
for _ in range(2):
    assert ended(fork("dpserve-train", tell)) == 0
"""


def run(code, stderr=subprocess.STDOUT):
    """Its lines; a fork prints among the errors of who started it."""
    return subprocess.run([*warm.python(), "-c", HEAD + code], stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_a_fork_is_a_process_of_its_own():
    """Its session, name and signals are its own; a signal that comes at once stops it, whoever it was forked from."""
    first, last = run(ITSELF).stdout.splitlines()
    assert json.loads(first) == [True, "dpserve-one", "SIG_DFL", []]
    assert last == "3 -15"


def test_none_of_a_process_with_threads():
    assert run(THREADS).stdout == "dpserve-one: cannot be forked from a process of 2 threads\n"


def test_one_that_ends_is_started_again_at_once_and_then_waits():
    """The second start comes however soon after the first; the third not within RESTART_SECONDS of the first."""
    assert json.loads(run(SOON, subprocess.PIPE).stdout) == [2, -9]


def test_forks_end_with_who_fails():
    found = run(ORPHANS, subprocess.PIPE)
    assert "what nobody foresaw" in found.stderr
    assert found.returncode == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(found.stdout), 0)


def test_forks_end_at_once_where_who_forked_them_is_killed():
    found = int(run(KILLED, subprocess.DEVNULL).stdout)
    until(lambda: not psutil.pid_exists(found) or psutil.Process(found).status() == psutil.STATUS_ZOMBIE, "it ends", 30)


def test_no_fork_draws_what_another_drew():
    """Also where their parent has drawn before: that the same comes twice has less chance than 1e-17 in each."""
    found = [json.loads(line) for line in run(DRAWS).stdout.splitlines()]
    assert len(found) == 3
    for name in found[0]:
        assert len({tuple(each[name]) for each in found}) == 3, name


@pytest.mark.slow
def test_what_stands_still_is_ended_and_started_again():
    """Stopped by a signal, or hung where it beats; what beats is left alone."""
    found = run(STILL, subprocess.PIPE)
    assert json.loads(found.stdout) == [True, True, True, True], found.stderr
    assert found.stderr.count("has stood still for 2 s") >= 3, found.stderr
