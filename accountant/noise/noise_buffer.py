"""Noise that is drawn before it is asked for, many numbers at a time: a few take as long as hundreds do. They are
independent and have nothing to do with what they are added to: their law is the same whenever they are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Draw = Callable[[int], Integers]
MOST = 1 << 12  # numbers drawn ahead
LARGEST = 2**63 - 1  # of 64 bits
FORKS: list[None] = []  # as many as led to this process

os.register_at_fork(after_in_child=lambda: FORKS.append(None))


class Ahead:
    """What is left of the last numbers drawn. Each is handed out once: whoever takes some takes all that is left in
    one step, and lays back the rest; a process that was forked off finds none, and a copy holds none.
    """

    def __init__(self) -> None:
        self._left: list[tuple[tuple[int, float], Integers]] = []
        self._drawn = 0

    def take(self, count: int, scale: float, draw: Draw) -> Integers:
        """So many numbers of this scale; `draw` gives more, where too few are left, as many as it ever gave."""
        here = len(FORKS), scale
        try:
            drawn, left = self._left.pop()
        except IndexError:
            drawn, left = here, np.empty(0, np.int64)
        if drawn != here or left.size < count:
            left = draw(max(count, min(MOST, self._drawn)))
            self._drawn += left.size
        self._left.append((here, left[count:]))
        return left[:count]

    def __reduce__(self) -> tuple[type[Ahead], tuple[()]]:
        """A copy, or what another process unpickles, has none of these numbers."""
        return Ahead, ()


class Adding:
    """Of mechanisms that add noise: what they drew ahead, for as long as they are there."""

    @cached_property
    def ahead(self) -> Ahead:
        """Its own: no other mechanism takes from it."""
        return Ahead()

    def added(self, values: Integers, scale: float, draw: Draw) -> Integers:
        """`values` and noise of this scale, clamped: what is made of a release."""
        noise = self.ahead.take(values.size, scale, draw)
        total = values + noise
        wrapped = ((values ^ total) & (noise ^ total)) < 0
        return np.where(wrapped, np.where(noise > 0, LARGEST, -LARGEST - 1), total) if wrapped.any() else total
