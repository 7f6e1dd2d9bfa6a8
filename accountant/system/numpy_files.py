"""What is parsed as a literal of Python, as the head of every file of numpy's is: by one thread at a time.

CPython counts how deep it is in a literal in one place for all threads (python/cpython#106905, 3.11 at least). Of two
that parse at once, one that is interrupted there ends in a SystemError, whatever it parsed: a piece of rows that was in
order was refused by a worker so.
"""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARSING = threading.Lock()  # held by whoever has numpy read a file
# A process that is forked off while another thread parses would wait for ever: nobody parses while one is.
os.register_at_fork(before=PARSING.acquire, after_in_parent=PARSING.release, after_in_child=PARSING.release)


def literal(text: str) -> Any:
    """Evaluate as `ast.literal_eval` does, with its errors."""
    with PARSING:
        return ast.literal_eval(text)


def map_array(path: Path) -> NDArray[Any]:
    """Map the array of a .npy file read-only; nothing pickled. OSError or ValueError where it is none."""
    with PARSING:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
