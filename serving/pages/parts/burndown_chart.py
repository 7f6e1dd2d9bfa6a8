"""Where a burn-down's line runs: path data in a square of 1000 by 1000, which the page stretches; words beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SIDE = 1000
LABELS = 4


@dataclass(frozen=True)
class Chart:
    """`line`, `area`, `dots`: SVG path data, a staircase: a budget falls at once and then stays. `times`: what stands
    under it, evenly from its beginning to its end.
    """

    line: str
    area: str
    dots: str
    times: tuple[str, ...]


def staircase(points: Sequence[tuple[str, float]], now: datetime) -> Chart:
    """Return a chart of `points` (time of an entry, share left 0..1), oldest first, at least one. The line goes on to
    `now`.
    """
    times = [datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for time, _ in points]
    start, end = times[0], max(now, times[-1], times[0] + timedelta(seconds=1))
    at = [
        (round(SIDE * ((time - start) / (end - start))), round(SIDE * (1 - min(1.0, max(0.0, left)))))
        for time, (_, left) in zip(times, points, strict=True)
    ]
    line = f"M{at[0][0]},{at[0][1]}" + "".join(f"H{x}V{y}" for x, y in at[1:]) + f"H{SIDE}"
    dots = "".join(f"M{x},{y}h0" for x, y in at)
    return Chart(line, f"{line}V{SIDE}H0Z", dots, tuple(_labels(start, end)))


def _labels(start: datetime, end: datetime) -> list[str]:
    step = (end - start) / (LABELS - 1)
    words = "%H:%M:%S" if step < timedelta(minutes=2) else "%H:%M" if end - start < timedelta(days=1) else "%-d %b"
    words = words if end - start < timedelta(days=300) else "%b %Y"
    return [f"{start + step * at:{words}}" for at in range(LABELS)]
