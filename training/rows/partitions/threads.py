"""Partitions on this host, asked by as many threads as it gives us."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from accountant.processors import processors
from models.features import Feature
from training.rows.partitions.partition import Integers, Partition, Question

PARTITION = 1 << 26  # rows, at most: what is kept of each is never larger
PARALLEL_CELLS = 4_000_000  # of fewer a thread more costs as much as it saves
THREADS = min(processors(), 8)
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="engine")


def cuts(size: int, features: int) -> Iterable[tuple[int, int]]:
    """Where rows are cut into partitions: (first, last + 1). Whole numbers add up to the same, wherever."""
    count = max(1, -(-size // PARTITION))
    if size * features >= PARALLEL_CELLS:
        count = -(-count // THREADS) * THREADS
    return pairwise(size * at // count for at in range(count + 1))


class Threads:
    """The partitions, and their answers added up."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self.parts = tuple(parts)
        self.fits: tuple[Feature, ...] = ()  # the bins that rows were last found to stand in

    @property
    def size(self) -> int:
        """Rows of all. Private under add/remove."""
        return sum(part.size for part in self.parts)

    def ask(self, question: Question) -> Integers:
        """The sum of what every partition answers."""
        answers = iter(map(question, self.parts) if len(self.parts) == 1 else _POOL.map(question, self.parts))
        total = next(answers)
        for answer in answers:
            total = total + answer
        return total

    def fresh(self) -> Threads:
        """The same rows, with nothing derived from them or from released values."""
        return Threads([part.fresh() for part in self.parts])
