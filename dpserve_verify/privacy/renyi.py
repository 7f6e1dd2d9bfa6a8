"""What the releases of a plan cost together: pure and Renyi prices, which add up, and what Renyi DP converts to.

Integers in nano-units; prices round up. Both sums hold for adaptive and concurrent releases (PRIVACY section 2), which
is what makes them valid filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, log, log1p

from dpserve_verify.privacy.budget import NANO, nano
from dpserve_verify.privacy.events import Event

Events = Sequence[tuple[Event, int]]
GRID: tuple[float, ...] = (
    *(1 + j / 10 for j in range(1, 90)),
    *(10 + j / 2 for j in range(109)),
    *(64 * 1.08**j for j in range(1, 55)),
)


@lru_cache(maxsize=65536)
def rdp_nano(event: Event, order: float) -> int:
    """Return the event's Renyi price at `order`, rounded up, with one nano-unit for the last digits of floating
    point.
    """
    return ceil(event.rdp(order) * NANO) + 1


def compose_rdp(events: Events, order: float) -> int:
    """Compute the Renyi price of the whole sequence at one order: a plain sum, whatever the order of the releases."""
    return sum(count * rdp_nano(event, order) for event, count in events)


@lru_cache(maxsize=4096)
def _grid_nano(event: Event) -> tuple[int, ...]:
    return tuple(ceil(event.rdp(order) * NANO) + 1 for order in GRID)


def compose_grid(events: Events) -> list[tuple[float, float]]:
    """Return (order, Renyi price) of the whole sequence at every order of GRID."""
    counts: Counter[Event] = Counter()
    for event, count in events:  # few kinds: a plan may take turns between them hundreds of times
        counts[event] += count
    totals = [0] * len(GRID)
    for event, count in counts.items():
        totals = [total + count * price for total, price in zip(totals, _grid_nano(event), strict=True)]
    return [(order, total / NANO) for order, total in zip(GRID, totals, strict=True)]


def compose_pure(events: Events) -> int | None:
    """Sum of the pure prices in nano-units, or None where one of them is infinite."""
    total = 0
    for event, count in events:
        if event.pure is None:
            return None
        total += count * nano(event.pure)
    return total


def epsilon_at(order: float, rdp: float, delta: float) -> float:
    """Return the epsilon of (epsilon, delta)-DP from Renyi DP at one order: Canonne, Kamath and Steinke 2020,
    Proposition 12.
    """
    return rdp + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1)
