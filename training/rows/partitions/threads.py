"""Partitions on this host, asked by as many threads as it gives us."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol, TypeVar

from accountant.system.machine import processors
from dpserve_verify.errors import InputError
from models.features.features import Feature
from training.rows.partitions.partition import Integers, Partition, Question

PARTITION = 1 << 26  # rows, at most: what is kept of each is never larger
PARALLEL_CELLS = 4_000_000  # of fewer a thread more costs as much as it saves
THREADS = min(processors(), 8)
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="engine")
One = TypeVar("One")
Other = TypeVar("Other")


def each(function: Callable[[One], Other], some: Iterable[One]) -> Iterator[Other]:
    """Yield the function of each item, in order, by as many threads as this host gives; not to be asked by one of
    them.
    """
    return _POOL.map(function, some)


def cuts(size: int, features: int) -> Iterable[tuple[int, int]]:
    """Return where rows are cut into partitions: (first, last + 1). Whole numbers add up to the same, wherever."""
    count = max(1, -(-size // PARTITION))
    if size * features >= PARALLEL_CELLS:
        count = -(-count // THREADS) * THREADS
    return pairwise(size * at // count for at in range(count + 1))


class Engine(Protocol):
    """Who holds partitions, on this host or on others, and adds up what they answer. `is_weighed`: whether rows have
    weights.
    """

    widths: tuple[int, ...]
    classes: int
    outputs: int
    is_weighed: bool

    @property
    def size(self) -> int:
        """Count the rows of all partitions. Private under add/remove."""

    @property
    def parts(self) -> Sequence[Partition]:
        """Return the partitions. InputError where they lie elsewhere."""

    def ask(self, question: Question) -> Integers:
        """Return the sum of what every partition answers."""

    def check_binned(self, features: tuple[Feature, ...]) -> None:
        """Raise InputError where the rows do not stand in the bins of these features."""

    def fresh(self) -> Engine:
        """Return the same rows, with nothing derived from them or from released values."""

    def close(self) -> None:
        """Free what the engine holds."""


class Threads:
    """The partitions, and their answers added up. InputError where they are of other widths or classes."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self.parts: Sequence[Partition] = tuple(parts)
        first, *later_parts = self.parts
        for part in later_parts:
            if (part.widths, part.classes) != (first.widths, first.classes):
                raise InputError("rows: parts of them have other bins or classes")
        self.widths, self.classes, self.outputs = first.widths, first.classes, first.outputs
        self.is_weighed = any(part.weight != 1 for part in self.parts)
        self._are_few = self.is_weighed and self.size * len(self.widths) < PARALLEL_CELLS
        self._fits: tuple[Feature, ...] = ()  # the bins that rows were last found to stand in

    @property
    def size(self) -> int:
        """Count the rows of all partitions. Private under add/remove."""
        return sum(part.size for part in self.parts)

    def ask(self, question: Question) -> Integers:
        """Return the sum of what every partition answers, as many times as its rows weigh."""

        def answer_by_weight(part: Partition) -> Integers:
            answer = question(part)
            return answer if part.weight == 1 else answer * part.weight

        alone = len(self.parts) == 1 or self._are_few
        answers = iter(map(answer_by_weight, self.parts) if alone else _POOL.map(answer_by_weight, self.parts))
        total = next(answers)
        for answer in answers:
            total = total + answer
        return total

    def check_binned(self, features: tuple[Feature, ...]) -> None:
        """Raise InputError where the rows do not stand in the bins of these features."""
        if features != self._fits:  # looking takes longer than a round of few rows
            for part in self.parts:
                part.check_binned(features)
            self._fits = features

    def fresh(self) -> Threads:
        """Return the same rows, with nothing derived from them or from released values."""
        return Threads([part.fresh() for part in self.parts])

    def close(self) -> None:
        """Free what the engine holds."""
