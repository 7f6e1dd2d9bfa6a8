"""No process outlives the `dpserve serve` that started it, however that ended: a port that is still held would keep the
next one from starting.
"""

from __future__ import annotations

import logging
import os
import signal

LOG = logging.getLogger("dpserve.serving")
PARENT = "DPSERVE_WORKER_PARENT"


def is_orphan() -> bool:
    """Whether `dpserve serve` started this server and is gone."""
    parent = os.environ.get(PARENT, "")
    if not parent.isdigit():
        return False
    try:
        os.kill(int(parent), 0)
    except OSError:  # none of this number, or somebody else's that was given it since
        return True
    return False


def stop_server() -> None:
    """End the whole server from a serving process: its supervisor, or where that is gone too, this process."""
    LOG.error("dpserve serve is gone; stopping")
    supervisor = os.getppid()
    os.kill(supervisor if supervisor > 1 else os.getpid(), signal.SIGTERM)
