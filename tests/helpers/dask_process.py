"""`dask_process.py PARENT WORDS`: `dask WORDS`, which the system kills when the process PARENT ends, however that ends.

A nanny starts its workers by running this file once more, as `multiprocessing` does with any main module: so each of
them dies with its nanny, also one that is stopped and could not see by itself that it is alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def die_with_parent() -> None:
    """From now on."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ in ("__main__", "__mp_main__") and sys.platform == "linux":
    die_with_parent()

if __name__ == "__main__":
    if os.getppid() != int(sys.argv.pop(1)):  # it ended before that
        sys.exit("nobody waits for this any more")
    from dask.cli import run_cli

    run_cli()
