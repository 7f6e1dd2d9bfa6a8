"""What of a machine is for us: by the real scheduler, and by files such as Linux shows them in a container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from small_home import ROOT

from accountant.system.machine import memory, processors

USABLE = len(os.sched_getaffinity(0))


def files(root, texts):
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


TWO, ONE = {"proc/self/cgroup": "0::/a/b\n"}, {"proc/self/cgroup": "3:cpu,cpuacct:/a\n2:memory:/z\n"}
ALONE = {"proc/self/cgroup": "0::/\n"}


def one(folder, quota):
    """Files of version 1."""
    place = f"sys/fs/cgroup/{folder}/cpu.cfs_"
    return {**ONE, f"{place}quota_us": f"{quota}\n", f"{place}period_us": "100000\n"}


@pytest.mark.parametrize(
    ("texts", "most"),
    [
        ({}, None),  # no Linux
        ({**ALONE, "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({**ALONE, "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
        ({**ALONE, "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1),  # a fifth of one is one thread
        ({**ALONE, "sys/fs/cgroup/cpu.max": "110000 100000\n"}, 2),
        ({**TWO, "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"}, 1),
        ({**TWO, "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),  # the way of the host, seen from a container
        ({**TWO, "sys/fs/cgroup/c/cpu.max": "100000 100000\n"}, None),  # another's
        (one("cpu,cpuacct/a", "50000"), 1),
        (one("cpu", "100000"), 1),
        (one("cpu/a", "-1"), None),
        ({**ALONE, "sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
        ({**ALONE, "sys/fs/cgroup/cpu.max": "900000000 100000\n"}, None),  # more than there are
    ],
)  # fmt: skip
def test_a_control_group_limits(texts, most, tmp_path):
    assert processors(files(tmp_path, texts)) == min(USABLE, most or USABLE)


WHOLE, HALF_A_GIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 1 << 29


@pytest.mark.parametrize(
    ("texts", "most"),
    [
        ({}, WHOLE),
        ({**ALONE, "sys/fs/cgroup/memory.max": "max\n"}, WHOLE),
        ({**ALONE, "sys/fs/cgroup/memory.max": f"{HALF_A_GIB}\n"}, HALF_A_GIB),
        ({**TWO, "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": f"{HALF_A_GIB}\n"}, HALF_A_GIB),
        ({**TWO, "sys/fs/cgroup/c/memory.max": f"{HALF_A_GIB}\n"}, WHOLE),  # another's
        ({**ONE, "sys/fs/cgroup/memory/z/memory.limit_in_bytes": f"{HALF_A_GIB}\n"}, HALF_A_GIB),
        ({**ONE, "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{HALF_A_GIB}\n"}, HALF_A_GIB),
        ({**ONE, "sys/fs/cgroup/memory/z/memory.limit_in_bytes": "9223372036854771712\n"}, WHOLE),
        ({**ONE, "sys/fs/cgroup/cpu,cpuacct/a/memory.limit_in_bytes": f"{HALF_A_GIB}\n"}, WHOLE),
        ({**ALONE, "sys/fs/cgroup/memory.max": "nonsense\n"}, WHOLE),
    ],
)  # fmt: skip
def test_a_control_group_bounds_memory(texts, most, tmp_path):
    assert memory(files(tmp_path, texts)) == most


def test_pinned_process_has_as_many_as_it_may_run_on():
    """A process of its own, for the engine's threads are counted when it is imported."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from accountant.system.machine import processors; from training.rows.partitions import threads\n"
        "print(processors(), threads.THREADS, threads._POOL._max_workers)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["1", "1", "1"]
