"""Reports for people: a page, JSON, or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accountant.system.outputs import writing
from dpserve_verify.errors import InputError

SUFFIXES = (".html", ".json", ".csv")


def write_report(
    out: Path, body: Mapping[str, Any], to_html: Callable[[], str], to_rows: Callable[[], Iterable[Sequence[str]]]
) -> None:
    """Write a report in the format of the file's suffix: a page, `body` as JSON, or rows as CSV; InputError for
    another.
    """
    if out.suffix == ".html":
        text = to_html()
    elif out.suffix == ".json":
        text = json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    elif out.suffix == ".csv":
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(to_rows())
        text = lines.getvalue()
    else:
        raise InputError(f"out={out.name}: must end in {', '.join(SUFFIXES)}")
    with writing(out):
        out.write_text(text, "utf-8")
