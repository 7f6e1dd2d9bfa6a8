"""An ensemble as a picture: PNG, SVG, or one HTML file. Drawn inside vl-convert: no browser, no address outside."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from models.explain.page import record_page, record_svg
from models.explain.vega_files import check_ending, write_drawing
from models.features.features import RawColumns
from models.parts.released import Released


class Drawn(Released, Protocol):
    """A released model that draws itself."""

    def svg(self, claim: str) -> str:
        """Return the whole model as one drawing."""

    def page(self, claim: str) -> str:
        """Return the whole model as one page."""

    def sections(self) -> list[str]:
        """Return HTML of the model's own that stands below the account of a record."""


def picture(ensemble: Drawn, certificate_line: str, path: Path, record: RawColumns | None = None) -> None:
    """Write `path`, a .png, .svg or self-contained .html; any other ending raises InputError. `record`: columns of one
    record, whose account is drawn instead, or above all else; InputError for what is no sum over features."""
    check_ending(path)
    if record is None:
        return write_drawing(path, lambda: ensemble.svg(certificate_line), lambda: ensemble.page(certificate_line))
    write_drawing(
        path,
        lambda: record_svg(ensemble, certificate_line, record),
        lambda: record_page(ensemble, certificate_line, record, ensemble.sections()),
    )
