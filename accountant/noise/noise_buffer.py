"""Buffers of pre-drawn noise: a few numbers take as long to draw as hundreds. They are independent of the values that
they are added to, so their law is the same whenever they are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Draw = Callable[[int], Integers]
MAX_BUFFER = 1 << 12  # numbers drawn ahead
MAX_INT64 = 2**63 - 1  # of 64 bits
FORKS: list[None] = []  # as many as led to this process

os.register_at_fork(after_in_child=lambda: FORKS.append(None))


class NoiseBuffer:
    """Buffer of pre-drawn numbers. Each is handed out once: a caller takes the whole buffer in one step and puts the
    rest back; after a fork it is empty, and so is a copy.
    """

    def __init__(self) -> None:
        self._left: list[tuple[tuple[int, float], Integers]] = []
        self._drawn = 0

    def take(self, count: int, scale: float, draw: Draw) -> Integers:
        """Return `count` numbers of this scale; where too few are left, `draw` as many as were ever drawn."""
        key = len(FORKS), scale
        try:
            drawn, numbers = self._left.pop()
        except IndexError:
            drawn, numbers = key, np.empty(0, np.int64)
        if drawn != key or numbers.size < count:
            numbers = draw(max(count, min(MAX_BUFFER, self._drawn)))
            self._drawn += numbers.size
        self._left.append((key, numbers[count:]))
        return numbers[:count]

    def __reduce__(self) -> tuple[type[NoiseBuffer], tuple[()]]:
        """Copy and pickle as an empty buffer: no number is ever used twice."""
        return NoiseBuffer, ()


class Adding:
    """Mixin of mechanisms that add noise: a buffer of pre-drawn noise."""

    @cached_property
    def ahead(self) -> NoiseBuffer:
        """Make its own buffer: no other mechanism takes from it."""
        return NoiseBuffer()

    def add_noise(self, values: Integers, scale: float, draw: Draw) -> Integers:
        """Return `values` plus noise of this scale, clamped to 64 bits."""
        noise = self.ahead.take(values.size, scale, draw)
        total = values + noise
        wrapped = ((values ^ total) & (noise ^ total)) < 0
        return np.where(wrapped, np.where(noise > 0, MAX_INT64, -MAX_INT64 - 1), total) if wrapped.any() else total
