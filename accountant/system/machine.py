"""How many processors this process may use: what the scheduler leaves it, and what a container was given."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


def processors(root: Path = Path("/")) -> int:
    """Return the number of processors, at least 1: those that this process may run on (`taskset`, cpusets), and no more
    than the processor time that its control group, or one above it, may take (the limit of a container; part of a
    processor counts as one).

    `root`: where /proc and /sys are.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([usable, *(math.ceil(share) for share in _shares(root))]))


def _shares(root: Path) -> Iterator[float]:
    """Yield, for every group that limits us, processor seconds a second."""
    for folder in _groups(root):
        version_2, version_1 = _words(folder / "cpu.max"), _words(folder / "cpu.cfs_quota_us")
        quota = version_2 or [*version_1, *_words(folder / "cpu.cfs_period_us")]
        if len(quota) == 2 and all(word.isdigit() for word in quota) and int(quota[1]):  # else "max", or -1
            yield int(quota[0]) / int(quota[1])


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of our control groups, of version 2 and 1, from our own to the outermost. In a container the
    outermost is its own, and the way that /proc tells may lead nowhere.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, way = line.split(":", 2)
        if number == "0":
            top = root / "sys/fs/cgroup"
        elif "cpu" in kinds.split(","):
            both = root / "sys/fs/cgroup" / kinds  # cpu,cpuacct: one folder, to which `cpu` mostly leads as well
            top = both if both.is_dir() else root / "sys/fs/cgroup/cpu"
        else:
            continue
        group = top / way.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
