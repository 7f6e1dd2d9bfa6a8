"""What this process may use of its machine: processors and memory, as the scheduler and its control groups leave it;
and how it lets others go first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def processors(root: Path = Path("/")) -> int:
    """Return the number of processors, at least 1: those that this process may run on (`taskset`, cpusets), and no more
    than the processor time that its control group, or one above it, may take (the limit of a container; part of a
    processor counts as one).

    `root`: where /proc and /sys are.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([usable, *(math.ceil(share) for share in _shares(root))]))


def memory(root: Path = Path("/")) -> int:
    """Return bytes of memory: the machine's, and no more than its control group, or one above it, may take."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([whole, *_memory_limits(root)])


def give_way(by: int) -> None:
    """Let others go first, by so many steps (1 to 19) of niceness, and whatever this process begins. Linux shares a
    processor among sessions first, where it does so by itself (autogroup), and a process's niceness says nothing to
    those of another: then the session that this process leads gives way as a whole.
    """
    os.nice(by)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # another system, or one that does not
            Path("/proc/self/autogroup").write_text(str(by))


def _shares(root: Path) -> Iterator[float]:
    """Yield, for every group that limits us, processor seconds a second."""
    for folder in _groups(root, "cpu"):
        version_2, version_1 = _words(folder / "cpu.max"), _words(folder / "cpu.cfs_quota_us")
        quota = version_2 or [*version_1, *_words(folder / "cpu.cfs_period_us")]
        if len(quota) == 2 and all(word.isdigit() for word in quota) and int(quota[1]):  # else "max", or -1
            yield int(quota[0]) / int(quota[1])


def _memory_limits(root: Path) -> Iterator[int]:
    """Yield bytes, for every group that limits us."""
    for folder in _groups(root, "memory"):
        limit = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        if len(limit) == 1 and limit[0].isdigit() and int(limit[0]):  # else "max"; version 1 has no limit as 2^63
            yield int(limit[0])


def _groups(root: Path, kind: str) -> Iterator[Path]:
    """Yield the folders of our control groups of a kind, of version 2 and 1, from our own to the outermost. In a
    container the outermost is its own, and the way that /proc tells may lead nowhere.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, way = line.split(":", 2)
        if number == "0":
            top = root / "sys/fs/cgroup"
        elif kind in kinds.split(","):
            both = root / "sys/fs/cgroup" / kinds  # cpu,cpuacct: one folder, to which `cpu` mostly leads as well
            top = both if both.is_dir() else root / "sys/fs/cgroup" / kind
        else:
            continue
        group = top / way.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
