"""Numba kernels over packed bins, `votes`, `trees`, `additive`, `convex`, `softmax`, `joined`, over values, `cells`,
`words` and `people`, and over the bytes of a file, `quotes`. Each module is loaded when a kernel of it is first asked
for, and numba with it: who lists datasets or plans a job computes nothing on rows.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.rows.kernels import additive, cells, convex, joined, people, quotes, softmax, trees, votes, words

__all__ = ["additive", "cells", "convex", "joined", "people", "quotes", "softmax", "trees", "votes", "words"]
FRACTION = 20  # binary digits behind the point of what a number's residual is multiplied by


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"{__name__} has no {name}")
    return import_module(f"{__name__}.{name}")
