"""Signs of life: work that goes on says so, or takes a processor; a process that waits gives none."""

from __future__ import annotations

import time

from accountant.system.life import COMPUTES_SECONDS, Life


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
