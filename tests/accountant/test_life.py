"""Signs of life: work that goes on says so, or takes a processor; a process that waits gives none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from accountant.system.life import COMPUTES_SECONDS, READS_BLOCKS, Life, blocks_read

BYTES = Path(__file__).parents[1] / "data" / "home-0.3.0.tar.xz"


def test_waiting_is_no_sign_and_computing_is():
    life = Life()
    first = life.last()
    time.sleep(0.05)
    assert life.last() == first
    end = time.process_time() + COMPUTES_SECONDS
    while time.process_time() < end:
        pass
    computed = life.last()
    assert computed > first
    time.sleep(0.05)
    assert life.last() == computed
    life.show()
    assert life.last() > computed
    assert not life.stands_still


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_what_a_disk_gives_is_a_sign_and_what_lies_in_memory_is_none(share):
    """However little of a processor it takes: a slow disk is no dead one. The system says what came from a disk."""
    with BYTES.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # reads nothing ahead
        life = Life()
        first, before = life.last(), blocks_read()
        time.sleep(0.05)
        file.read(int(share * READS_BLOCKS * 512))
        life._taken = time.process_time()  # what is computed meanwhile is another test's
        from_disk = blocks_read() - before
        assert from_disk < 2 * READS_BLOCKS
        assert (life.last() > first) == (from_disk >= READS_BLOCKS) == (share == 1.0 and from_disk > 0)
        seen = life.last()
        file.seek(0)
        file.read(int(share * READS_BLOCKS * 512))
        assert life.last() == seen
