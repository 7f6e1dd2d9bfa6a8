"""An aggregator that is killed at one step of its answer: `aggregator_crash.py STEP FOLDER CAMPAIGN TOKEN`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from local.aggregator import program, store
from local.aggregator.settings import read_settings

STEPS = ("collected", "held", "drawn", "committed", "entered", "delivered")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Make the step the last thing that this process does."""
    own = store.AggregatorStore
    really_noisy, really_hold = program.noisy, own.hold
    if step == "collected":
        own.hold = die
    elif step == "held":
        own.hold = lambda *given: (really_hold(*given), die())[0]
    elif step == "drawn":  # within the transaction, after the noise was drawn
        program.noisy = lambda *given: (really_noisy(*given), die())[0]
    elif step in ("committed", "entered"):  # before its digest is told of; once that stands in the log
        really_tell, last = program.tell_other, {"committed": "digest", "entered": "sum"}[step]
        program.tell_other = lambda own, name, what, *rest: (
            die() if what == last else really_tell(own, name, what, *rest)
        )
    elif step == "delivered":
        own.confirm = die


if __name__ == "__main__":
    arm(sys.argv[1])
    line = program.answer(read_settings(Path(sys.argv[2])), *sys.argv[3:], 30.0)
    print(line.owners)
