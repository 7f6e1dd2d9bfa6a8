"""One process that trains, recovers or works beside others; see test_alive.

`alive_driver.py TASK HOME OPTIONS`: JSON of {"apart", "lease", "grace", "pause", "shift", "seconds", "first"}.
`apart`: in a process namespace of its own; `pause`: seconds before each release, so that there is time to stop the
process; `shift`: how many seconds its clock is ahead; `seconds`: how long to look for what can be recovered; `first`:
until something is found, however long it takes. Draws are written down, a byte each, in `draws` beside the home; the
last line of stdout says what came of it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import ledgers

from accountant.home import Home
from accountant.noise.mechanisms import ExponentialSelection
from dpserve_verify.errors import DpserveError
from training.finish import lease
from training.jobs import job, queue
from training.requests import JobRequest
from training.session.session import Session

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 20})


CLONE_NEWNS, CLONE_NEWPID = 0x20000, 0x20000000  # of <sched.h>
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # of <sys/mount.h>
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def go_apart() -> None:
    """As `unshare --pid --fork --mount-proc --kill-child`: returns in the first process of a namespace of its own; this
    one ends as that ends.
    """
    system = ctypes.CDLL(None, use_errno=True)

    def done(status: int) -> None:
        if status:
            raise OSError(ctypes.get_errno(), "no namespace")

    done(system.unshare(CLONE_NEWPID | CLONE_NEWNS))
    if first := os.fork():
        os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])))
    done(system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    done(system.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    done(system.mount(b"proc", b"/proc", b"proc", 0, None))
    assert os.getpid() == 1


def slow(home: Path, pause: float) -> None:
    """Note every draw, and wait before each release."""
    release, draw = Session.release, ExponentialSelection.draw

    def noted(self, *arguments):
        with (home.parent / "draws").open("ab") as file:
            file.write(b".")
        return draw(self, *arguments)

    def waited(self, query, mechanism):
        time.sleep(pause)
        return release(self, query, mechanism)

    ExponentialSelection.draw, Session.release = noted, waited


def train(home: Home, options: dict) -> object:
    slow(home.path, options["pause"])
    return job.train(home, ASKED, by="test")["state"]


def recover(home: Home, options: dict) -> object:
    """Look again and again; every job that was burned or given back."""
    until, found = time.monotonic() + (300 if options.get("first") else options["seconds"]), []
    while time.monotonic() < until and not (found and options.get("first")):
        settled = job.recover(home)
        found += settled["burned"] + settled["released"]
        time.sleep(0.1)
    return found


def work(home: Home, options: dict) -> object:
    return queue.work_once(home)


def main() -> None:
    task, place, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    if options["apart"]:
        go_apart()
    lease.Lease.SECONDS = options.get("lease", lease.Lease.SECONDS)
    lease.Lease.FRESH = min(lease.Lease.FRESH, lease.Lease.SECONDS / 2)
    lease.GRACE_SECONDS = options.get("grace", lease.GRACE_SECONDS)
    true = time.time
    time.time = lambda: true() + options.get("shift", 0)
    home = Home.open(ledgers.place(place))
    print("ready", flush=True)
    try:
        answer = {"train": train, "recover": recover, "work": work}[task](home, options)
    except DpserveError as error:
        answer = error.to_json()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
