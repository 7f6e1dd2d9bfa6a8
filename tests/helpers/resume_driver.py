"""As crash_driver.py, of jobs whose answers are kept. What is drawn is noted beside the home, before it is drawn and
after: a line of JSON with the position in the plan, and then what came.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import crash_driver
import ledgers

from accountant.home import Home
from training.jobs import draw_journal, job


def note(file: Path) -> None:
    """Every draw of this process, in `file`."""
    original = draw_journal.DrawJournal.next

    def written(line: dict) -> None:
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def noted(self, draw):
        at = self._next

        def drawn():
            written({"draw": at, "by": os.getpid()})
            answer = draw()
            written({"answer": at, **draw_journal._encode(answer)})
            return answer

        return original(self, drawn)

    draw_journal.DrawJournal.next = noted


def train(home: Path, files: Path) -> None:
    note(home.parent / "made")
    job.train(Home.open(ledgers.place(home)), crash_driver.ASKED, by="test")


def recover(home: Path, files: Path) -> None:
    note(home.parent / "made")
    job.recover(Home.open(ledgers.place(home)))


if __name__ == "__main__":
    crash_driver.TASKS |= {"train": train, "recover": recover}
    ledgers.play_a_job()
    print("ready", flush=True)
    crash_driver.serve()
