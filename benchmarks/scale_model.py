"""What rows and requests beyond one machine would take: a formula of measured constants, judged by a simulation.

    python -m benchmarks.scale_model

The formula is what benchmarks/results/scale_model.md explains. The simulation knows no formula: it hands tasks one by
one to processors of unequal speed, and requests to queues, and says when all are done.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from math import ceil

CELL_SECONDS = 0.45 / (1e8 * 20)  # a round of lazybb at 1e8 x 20, one core
ROW_SECONDS = 0.645e-6  # to register one of 1e8: read, bin, write, authenticate (benchmarks/results/scale.md)
ROUND_SECONDS = 0.010  # of a distributed round, whatever is in it
TASK_SECONDS = 0.002  # to hand out one task; the driver does so one after another
REQUEST_SECONDS = 114e-6  # of a processor, for one record (benchmarks/results/serving.md)
PARTITION = 1 << 26  # rows
UNEVEN = 0.1  # standard deviation of how long the same task takes
BUSY = 0.6  # share of their time that serving processors work


@dataclass(frozen=True)
class Training:
    """So many rounds over so many rows of `features` bytes, on `workers` processors."""

    rows: float
    features: int
    workers: int
    rounds: int = 400

    @property
    def partitions(self) -> int:
        """Two a processor, so that a slow one holds up little; more where one would be too large."""
        return max(2 * self.workers, ceil(self.rows / PARTITION))

    @property
    def task(self) -> float:
        """Seconds of one task, on average."""
        return self.rows * self.features * CELL_SECONDS / self.partitions

    def formula(self) -> float:
        """Seconds of a round: the larger of handing out and working, with half a task for the last one."""
        works = self.partitions / self.workers * self.task + self.task / 2
        return ROUND_SECONDS + max(self.partitions * TASK_SECONDS + self.task, works)

    def simulated(self, rounds: int = 20, seed: int = 1) -> float:
        """Seconds of a round, on average."""
        chance, total = random.Random(seed), 0.0
        for _ in range(rounds):
            free = [0.0] * self.workers
            for number in range(self.partitions):
                start = max(heapq.heappop(free), (number + 1) * TASK_SECONDS)
                heapq.heappush(free, start + self.task * max(0.5, chance.gauss(1, UNEVEN)))
            total += ROUND_SECONDS + max(free)
        return total / rounds


def serving_processors(rate: float) -> int:
    """Processors that answer `rate` requests a second, each of one record, with time to spare."""
    return ceil(rate * REQUEST_SECONDS / BUSY)


def slowest(processors: int, rate: float, requests: int = 100_000, seed: int = 1) -> float:
    """Seconds that 99 of 100 requests take at most, where each goes to a processor by lot and waits its turn."""
    chance, now, took = random.Random(seed), 0.0, []
    free = [0.0] * processors
    for _ in range(requests):
        now += chance.expovariate(rate)
        at = chance.randrange(processors)
        free[at] = max(free[at], now) + REQUEST_SECONDS * chance.uniform(0.5, 1.5)
        took.append(free[at] - now)
    return sorted(took)[int(0.99 * requests)]


def page() -> str:
    """The two tables of benchmarks/results/scale_model.md."""
    lines = ["| rows | processors | disk | registered in | a round | simulated | 400 rounds | processor hours |"]
    lines.append("|" + "---|" * 8)
    for rows, workers in ((1e9, 16), (1e10, 64), (1e11, 512), (1e12, 2048)):
        job = Training(rows, 20, workers)
        each, found = job.formula(), job.simulated()
        lines.append(
            f"| {rows:.0e} | {workers:,} | {rows * 20 / 1e12:.2g} TB | {rows * ROW_SECONDS / workers / 60:.1f} min "
            f"| {each:.2f} s | {found:.2f} s | {each * job.rounds / 60:.0f} min "
            f"| {rows * 20 * CELL_SECONDS * job.rounds / 3600:,.1f} |"
        )
    lines += ["", "| requests a second | processors | 99 of 100 answered in, simulated |", "|---|---|---|"]
    for rate in (1e3, 1e4, 1e5):
        count = serving_processors(rate)
        lines.append(f"| {rate:,.0f} | {count} | {slowest(count, rate) * 1000:.1f} ms |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
