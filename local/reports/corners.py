"""Classes as the corners of a regular simplex: what a label is in an owner's vector, and in an owner's share.

Of K classes the K - 1 numbers of any two corners have the product -1 / (K - 1): no class is nearer to another one than
to a third, and of two classes they are -1 and 1. A label is of length 1 whatever K is, so what bounds an owner's vector
does not depend on K.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError

Floats = NDArray[np.float64]
MAX_CLASSES = 32


@lru_cache(maxsize=MAX_CLASSES)
def corners(classes: int) -> Floats:
    """Return unit vectors (K, K - 1) whose sum is 0, in the classes' order. Not to be written to."""
    vectors = np.zeros((classes, classes - 1))
    for at in range(classes - 1):
        after = classes - 1 - at
        height = sqrt(classes * after / ((classes - 1) * (after + 1)))
        vectors[at, at], vectors[at + 1 :, at] = -height, height / after
    vectors.setflags(write=False)
    return vectors


def check_classes(learner: str, classes: Sequence[object]) -> None:
    """Raise InputError unless owners can be asked to tell so many apart."""
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise InputError(f"classes={list(classes)!s:.200}: {learner} tells from 2 to {MAX_CLASSES} classes apart")


def multiply_by_corners(values: Floats, y: Floats) -> Floats:
    """Multiply every number of `values` (n, D) times every number of a label's corner (n, K - 1): (n, D (K - 1))."""
    return np.asarray((values[:, :, np.newaxis] * y[:, np.newaxis, :]).reshape(len(values), -1))


def as_corners(y: Floats) -> Floats:
    """Return labels as corners (n, K - 1); of two classes (n,) will do."""
    return y.reshape(len(y), -1)
