"""A question that ends who answers it, as the kernel does where memory is out."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fatal:
    """No answer, ever."""

    def __call__(self, part: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Unanswerable:
    """Refused by every piece."""

    def __call__(self, part: Any) -> Any:
        raise ArithmeticError
