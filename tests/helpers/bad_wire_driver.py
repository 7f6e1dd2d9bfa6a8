"""Submits and runs jobs for so many seconds, whatever becomes of its database, as a server and its worker would.

Arguments: home, file of draws, seconds. What it prints in the end: {"issued", "unavailable"}.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import crash_driver
import ledgers

from accountant.errors import JobFailed
from accountant.home import Home
from accountant.store import postgres_timeout
from dpserve_verify.errors import BudgetRefused, LedgerUnavailable
from training.finish.lease import Lease
from training.jobs import job, queue


def main(home: Path, draws: Path, seconds: float) -> None:
    crash_driver.note_draws(draws)
    Lease.SECONDS = 2.0
    postgres_timeout.ANSWER_SECONDS = 1.0
    postgres_timeout.REACHED["connect_timeout"] = 2
    came_to, end, opened = Counter(), time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            opened = opened or Home.open(ledgers.place(home))
            job.recover(opened)
            job.submit(opened, crash_driver.ASKED, by="test")
            queue.work_once(opened)
            came_to["tried"] += 1
        except LedgerUnavailable:
            came_to["unavailable"] += 1
        except (BudgetRefused, JobFailed) as error:
            came_to[error.code] += 1
    print(json.dumps(came_to))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
