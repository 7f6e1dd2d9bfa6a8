"""Lists as files: what a page lists, filtered and sorted in the same way, as CSV or JSON.

The page itself answers, to `form` in its query: so a file holds what whoever asks may see on the page.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from serving.wire.errors import json_response

FORM, FORMS = "form", ("csv", "json")
MAX_LINES, PART_LINES = 10_000, 500  # lines of a list that pages show in parts, and in how large parts a file is read
Line: TypeAlias = dict[str, Any]


def form_of(request: Request) -> str | None:
    """Return the kind of file that is asked for ("csv", "json"); None for a page."""
    form = request.query_params.get(FORM)
    if form is not None and form not in FORMS:
        raise InputError(f"{FORM}={form[:40]!r}: must be one of {[*FORMS]}")
    return form


def all_lines(part: Callable[[int | None], tuple[list[Line], int | None]]) -> list[Line]:
    """Return all parts of a list, up to MAX_LINES lines. `part(place)` returns the lines from a place on (None: the
    beginning) and the place of the next part (None: it was the last).
    """
    lines, after = part(None)
    while after is not None and len(lines) < MAX_LINES:
        next_lines, after = part(after)
        lines = [*lines, *next_lines]
    return lines[:MAX_LINES]


def as_file(form: str, name: str, columns: Sequence[str], lines: Iterable[Line]) -> Response:
    """Return these columns of the lines as a file `name`; a column that a line lacks is empty."""
    rows = [{column: line.get(column) for column in columns} for line in lines]
    headers = {**attachment_header(f"{name}.{form}"), "Cache-Control": "no-store", "Vary": "Cookie"}
    if form == "json":
        return json_response({name: rows}, headers=headers)
    out = io.StringIO()
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    writer.writerows({column: cell(value) for column, value in row.items()} for row in rows)
    return Response(out.getvalue(), media_type="text/csv", headers=headers)


def cell(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet computes (`uncomputed`). A list becomes one text."""
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return uncomputed(value) if isinstance(value, str) else value


def attachment_header(name: str) -> dict[str, str]:
    """Return the header by which a browser saves the answer as `name`, plain ASCII without quotes."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
