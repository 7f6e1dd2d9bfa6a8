"""Reports of a model's worth, written to a file."""

from __future__ import annotations

from pathlib import Path

from models.worth import report
from models.worth.report import Report


def write_report(found: Report, out: Path) -> None:
    """By the file's ending: a page, for programs, or a table."""
    if out.suffix == ".parquet":
        from training.rows.tables.row_files import write_figures  # loads what writes tables

        write_figures(out, found.metrics)
    else:
        report.write(found, out)
