"""Where pictures go: .png, .svg or .html."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    import vl_convert
else:
    vl_convert = later("vl_convert")

ENDINGS = (".png", ".svg", ".html")
SHARP = 2  # pixels of a PNG for one of the drawing


def check_ending(path: Path) -> None:
    """Raise InputError unless it is one that a picture can have."""
    if path.suffix not in ENDINGS:
        raise InputError(f"out={path.name}: must end in .png, .svg or .html")


def write(path: Path, content: bytes) -> None:
    """Write the whole content; InputError where it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"out={path}: cannot be written ({error.strerror})") from None


def write_drawing(path: Path, svg: Callable[[], str], page: Callable[[], str]) -> None:
    """Write the drawing as it is, as pixels, or the page, by the ending; InputError for another."""
    check_ending(path)
    if path.suffix == ".html":
        write(path, page().encode())
    elif path.suffix == ".svg":
        write(path, svg().encode())
    else:
        write(path, vl_convert.svg_to_png(svg(), scale=SHARP))
