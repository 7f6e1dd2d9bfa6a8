"""What tests/serving/process/test_prices.py has the price desk do: it must find the same functions."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module

from dpserve_verify.errors import BudgetRefused
from serving.process.workers.price_desk import BOUNDS, MODULES


def wait(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def load() -> list[str]:
    """Load all whose functions may be asked for; return the modules that were not there before."""
    before = set(sys.modules)
    for name in MODULES:
        import_module(name)
    return sorted(set(sys.modules) - before)


def refuse() -> None:
    raise BudgetRefused("too much", reason="budget", asked={"epsilon": "9"})


def too_large() -> int:
    return len(bytes(BOUNDS.memory + (256 << 20)))  # what it began with may have been freed since


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
