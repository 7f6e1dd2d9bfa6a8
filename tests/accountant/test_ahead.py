"""Numbers drawn ahead are handed out once, whoever asks, and have the law of those that are drawn when asked for."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from decimal import Decimal
from itertools import count
from threading import Lock

import numpy as np
import pytest

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from accountant.noise.noise_buffer import MAX_BUFFER, NoiseBuffer

MECHANISMS = pytest.mark.parametrize("mechanism", [DiscreteGaussian(Decimal(3)), DiscreteLaplace(Decimal("0.25"))])


class Counted:
    """Draws 0, 1, 2, ..: what is handed out twice is seen. `sizes`: of each draw."""

    def __init__(self) -> None:
        self.numbers, self.lock, self.sizes = count(), Lock(), []

    def __call__(self, many: int) -> np.ndarray:
        with self.lock:
            self.sizes.append(many)
            return np.array([next(self.numbers) for _ in range(many)], np.int64)


def test_each_number_is_handed_out_once_and_many_are_drawn_at_a_time():
    ahead, draw, sizes = NoiseBuffer(), Counted(), np.random.default_rng(0).integers(0, 40, 1000)
    taken = [ahead.take(int(size), 1.0, draw) for size in sizes]
    assert [some.size for some in taken] == sizes.tolist()
    found = np.concatenate(taken)
    assert np.unique(found).size == found.size
    assert len(draw.sizes) < 20
    assert draw.sizes[0] == sizes[0]  # who asks once draws no more than that
    assert max(draw.sizes) == MAX_BUFFER
    assert ahead.take(3 * MAX_BUFFER, 1.0, draw).size == 3 * MAX_BUFFER


def test_no_number_of_another_scale_is_handed_out():
    ahead, drawn = NoiseBuffer(), []
    for turn in range(60):
        scale = float(1 + turn // 20 % 2)
        found = ahead.take(5, scale, lambda many, scale=scale: drawn.append(scale) or np.full(many, int(scale)))
        assert (found == scale).all()
    assert drawn.count(2.0) < 20  # though it is drawn ahead


def test_threads_are_never_handed_the_same():
    ahead, draw = NoiseBuffer(), Counted()
    with ThreadPoolExecutor(8) as pool:
        found = np.concatenate(list(pool.map(lambda size: ahead.take(size % 9, 1.0, draw), range(4000))))
    assert np.unique(found).size == found.size


FORKED = """
import os, sys
import numpy as np
from accountant.noise import noise_buffer as ahead
kept = ahead.NoiseBuffer()
draw = lambda many: np.frombuffer(os.urandom(8 * many), np.int64)
for _ in range(9):
    kept.take(4, 1.0, draw)
reading, writing = os.pipe()
if os.fork() == 0:
    if sys.argv[1] == "unseen":
        ahead.FORKS.clear()
    os.write(writing, kept.take(4, 1.0, draw).tobytes())
    os._exit(0)
os.wait()
print(np.frombuffer(os.read(reading, 32), np.int64).tolist() == kept.take(4, 1.0, draw).tolist())
"""


@pytest.mark.parametrize("fork", ["seen", "unseen"])
def test_a_process_that_was_forked_off_finds_none(fork):
    """It would draw the noise of the other once more; were the fork not seen, it did."""
    found = subprocess.run([sys.executable, "-c", FORKED, fork], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(fork == "unseen")


@MECHANISMS
@pytest.mark.parametrize("twin_of", [copy, deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_of_a_mechanism_draw_numbers_of_their_own(mechanism, twin_of):
    zeros, wide = np.zeros(4, np.int64), 1 << 40
    for _ in range(9):
        mechanism.draw(zeros, wide)
    twin = twin_of(mechanism)
    assert twin == mechanism
    assert hash(twin) == hash(mechanism)
    drawn = np.concatenate([each.draw(zeros, wide) for _ in range(50) for each in (mechanism, twin)])
    assert np.unique(drawn).size == drawn.size  # of two of 400 at this scale: 1e-7
