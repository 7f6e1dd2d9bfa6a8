"""Write a report of a model's worth to a file."""

from __future__ import annotations

from pathlib import Path

from models.worth import report
from models.worth.report import Report


def write_report(found: Report, out: Path) -> None:
    """Write a page, JSON or a table, by the ending of `out`."""
    if out.suffix == ".parquet":
        from training.rows.tables.row_files import write_figures  # loads what writes tables

        write_figures(out, found.metrics)
    else:
        report.write(found, out)
