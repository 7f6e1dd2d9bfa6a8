"""No process of somebody else's text outlives who started it, whatever the text does and however that ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import psutil
import warm
from small_home import PATIENCE, until

HANGS = """
import _thread
class Learner:
    def learn(self, session):
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire()
"""
# Forks that each wait for a sealed process, as those of the price desk do; each then ends in one of three ways.
FORKS = """
import json, os, signal, sys, threading, time
from dpserve_platform.outside import process
from dpserve_platform.outside.process import SealedProcess
process.SECONDS = {seconds}
text, ways = {text!r}, {ways!r}
told = []
for way in ways:
    received, sent = os.pipe()
    if os.fork():
        told.append(received)
        os.close(sent)
        continue
    with SealedProcess() as sealed:
        sealed.send({{"source": text, "kind": "Learner", "parameters": {{}}, "public": {{"features": []}}}})
        os.write(sent, str(sealed._child.pid).encode())
        time.sleep(1)
        if way == "clock":
            os.kill(os.getpid(), signal.SIGSTOP)
        if way == "thread":
            threading.Thread(target=os._exit, args=(1,)).start()
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps([int(os.read(each, 20)) for each in told]), flush=True)
os.waitpid(-1, 0)
"""


def begin(ways: list[str], seconds: float = 600.0) -> tuple[list[psutil.Process], subprocess.Popen]:
    code = FORKS.format(text=HANGS, ways=ways, seconds=seconds)
    process = subprocess.Popen([*warm.python(), "-c", code], stdout=subprocess.PIPE, text=True)
    sealed = [psutil.Process(each) for each in json.loads(process.stdout.readline())]
    return sealed, process


def test_sealed_processes_end_with_who_started_them():
    sealed, process = begin(["killed", "thread"] * 3)
    with process:
        assert len(sealed) == 6
        _, alive = psutil.wait_procs(sealed, timeout=PATIENCE)
        assert alive == []


def test_a_sealed_process_ends_by_its_own_clock_where_nobody_looks():
    (sealed,), process = begin(["clock"], 3.0)
    with process:
        waits = sealed.parent()
        until(lambda: sealed.status() == psutil.STATUS_ZOMBIE, "it ends")
        os.kill(waits.pid, signal.SIGKILL)
