"""How many processors there are for us: by the real scheduler, and by files such as Linux shows them in a container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from small_home import ROOT

from accountant.system.processors import processors

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


def test_pinned_process_has_as_many_as_it_may_run_on():
    """A process of its own, for the engine's threads are counted when it is imported."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from accountant.system.processors import processors; from training.rows.partitions import threads\n"
        "print(processors(), threads.THREADS, threads._POOL._max_workers)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["1", "1", "1"]
