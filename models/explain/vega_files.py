"""Where pictures go: .png, .svg or .html."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from accountant.system.lazy_import import later
from accountant.system.outputs import writing
from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    import vl_convert
else:
    vl_convert = later("vl_convert")

ENDINGS = (".png", ".svg", ".html")
SVG, NO_LETTER = "http://www.w3.org/2000/svg", "\ue000"  # which is left to private use
SHARP = 2  # pixels of a PNG for one of the drawing


def check_ending(path: Path) -> None:
    """Raise InputError unless it is one that a picture can have."""
    if path.suffix not in ENDINGS:
        raise InputError(f"out={path.name}: must end in .png, .svg or .html")


def write_drawing(path: Path, svg: Callable[[], str], page: Callable[[], str]) -> None:
    """Write the drawing as it is, as pixels, or the page, by the ending; InputError for another."""
    check_ending(path)
    if path.suffix == ".html":
        content = page().encode()
    elif path.suffix == ".svg":
        content = svg().encode()
    else:
        drawn = svg()
        check_letters(path, drawn)
        content = vl_convert.svg_to_png(drawn, scale=SHARP)
    with writing(path):
        path.write_bytes(content)


def check_letters(path: Path, drawn: str) -> None:
    """Raise InputError where no font of this machine has some letter of a drawing: it would be an empty box."""

    def pixels(letter: str) -> bytes:
        text = f'<text x="4" y="30" font-family="sans-serif" font-size="20">{letter}</text>'
        return bytes(vl_convert.svg_to_png(f'<svg xmlns="{SVG}" width="40" height="40">{text}</svg>'))

    written = html.unescape(re.sub("<[^>]*>", " ", drawn))
    box = pixels(NO_LETTER)
    without = sorted(letter for letter in {*written} if letter > "\x7f" and letter.isalpha() and pixels(letter) == box)
    if without:
        raise InputError(
            f"out={path.name}: no font of this machine has {', '.join(without[:5])}; name an .svg or .html, which are "
            "drawn where they are read, or install one (on Debian: fonts-noto, fonts-noto-cjk)"
        )
