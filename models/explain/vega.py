"""Draws a Vega-Lite specification: inside vl-convert, with no browser and no address outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.system.lazy_import import later
from models.explain.vega_parts import Spec

if TYPE_CHECKING:
    import vl_convert
else:
    vl_convert = later("vl_convert")

VEGA_LITE = "5.21"


def to_svg(spec: Spec) -> str:
    """Return the drawing as an SVG file."""
    return str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE))
