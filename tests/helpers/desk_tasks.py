"""What tests/serving/process/test_prices.py has the price desk do: it must find the same functions."""

from __future__ import annotations

import os
import signal
import time

from accountant.errors import BudgetRefused
from serving.process.workers.price_desk import BOUNDS


def wait(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def refuse() -> None:
    raise BudgetRefused("too much", reason="budget", asked={"epsilon": "9"})


def too_large() -> int:
    return len(bytes(BOUNDS.memory + (256 << 20)))  # what it began with may have been freed since


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
