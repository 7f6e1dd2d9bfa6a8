"""Work that is done in a confined fork, and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from accountant.system.confined import Bounds, ConfinedFork


def run_confined(bounds: Bounds, deadline: float, work: Callable[[], object]) -> bool:
    """Wait for a `ConfinedFork`; whether it is done."""
    fork = ConfinedFork(bounds, deadline, work)
    while not fork.has_ended():
        time.sleep(0.02)
    return fork.is_done
