"""An owner who is killed at one step of its answer: `owner_crash.py STEP SETTINGS CAMPAIGN INVITATION`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from local.owner import own_ledger, program
from local.owner.settings import read_settings

STEPS = ("fetched", "drawn", "inserted", "committed", "delivered")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Make the step the last thing that this process does."""
    really_ask, really_draw, really_lines = program.ask, program.body_of, own_ledger._lines
    if step == "fetched":
        own_ledger.OwnLedger.report = die
    elif step == "drawn":
        program.body_of = lambda *given: (really_draw(*given), die())[0]
    elif step == "inserted":  # the ledger reads its lines again after it has inserted one
        seen: list[int] = []
        own_ledger._lines = lambda connection: (
            seen.append(1),
            die() if len(seen) > 1 else None,
            really_lines(connection),
        )[2]
    elif step == "committed":
        program.ask = lambda own, method, *rest: die() if method == "POST" else really_ask(own, method, *rest)
    elif step == "delivered":
        program.ask = lambda own, method, *rest: (really_ask(own, method, *rest), die() if method == "POST" else None)[
            0
        ]


if __name__ == "__main__":
    arm(sys.argv[1])
    print(program.number_of_report(program.answer(read_settings(Path(sys.argv[2])), *sys.argv[3:])))
