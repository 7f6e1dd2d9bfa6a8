"""Files that a user named to be written: where one cannot be, the error says which and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpserve_verify.errors import InputError


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Raise InputError where the body meets an error of the file system: `out` cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"out={out}: cannot be written ({error.strerror})") from None
