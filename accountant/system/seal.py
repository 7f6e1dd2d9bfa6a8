"""The seal of a process that runs or reads what others made: after it, this process can ask for nothing but bytes of
what is open, and memory. Programs of their own import it, so it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import struct
import sys
from collections.abc import Callable

NO_THREADS = {  # variables of native libraries, whose threads the seal would not bind: numbers' and pyarrow's
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}  # fmt: skip
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
REFUSE, KILL, ALLOW = 0x00050001, 0x80000000, 0x7FFF0000  # EPERM; the end of the process
# Machine: the kernel's name for it, and the calls that remain: read, write and close of what is open, memory, signals
# of its own, locks between its threads, clocks, random bytes, and its end.
MACHINES = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 39, 60, 131, 186, 202, 219, 228, 231, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (
            57,
            62,
            63,
            64,
            80,
            93,
            94,
            98,
            113,
            124,
            128,
            132,
            134,
            135,
            139,
            172,
            178,
            214,
            215,
            216,
            222,
            226,
            233,
            278,
        ),
    ),
}


def check_alone() -> None:
    """Check that this process is one thread. OSError where a module that was loaded started another."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError("a module that was loaded started a thread")


def seal(memory: int, seconds: int) -> None:
    """Leave this process nothing but what `MACHINES` lists, for good. OSError where the system cannot do that, or a
    module started a thread, which the filter would not bind.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise OSError("no seal is known for this system")
    check_alone()
    for kind, most in (
        (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        bound = resource.getrlimit(kind)[1]  # of whoever runs it, which may be less
        least = most if bound == resource.RLIM_INFINITY else min(most, bound)
        resource.setrlimit(kind, (least, least))
    machine, calls = MACHINES[platform.machine()]
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, KILL), (0x20, 0, 0, 0)]
    for call in calls:
        steps += [(0x15, 0, 1, call), (0x06, 0, 0, ALLOW)]
    steps.append((0x06, 0, 0, REFUSE))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(held)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(SET_SECCOMP, FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the system does not seal processes")
    attempts: tuple[Callable[[], object], ...] = (
        lambda: os.open("/", os.O_RDONLY),
        socket.socket,
        os.fork,
        lambda: os.kill(os.getpid(), 0),
    )
    for attempt in attempts:
        try:
            attempt()
        except PermissionError:
            continue
        raise OSError("the seal does not hold")
