"""Lists as files: what a page lists, filtered and sorted as it is there, to be saved as CSV or JSON.

The page itself answers, to `form` in its query: so a file holds what whoever asks may see on the page.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from serving.wire.errors import json_response

FORM, FORMS = "form", ("csv", "json")
MOST, AT_ONCE = 10_000, 500  # lines of a list that pages show in parts, and in how large parts a file is read
Line: TypeAlias = dict[str, Any]
_COMPUTED = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet may take for a formula begins so
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)


def form_of(request: Request) -> str | None:
    """As what file the list is asked for; None where it is asked for as a page."""
    form = request.query_params.get(FORM)
    if form is not None and form not in FORMS:
        raise InputError(f"{FORM}={form[:40]!r}: must be one of {[*FORMS]}")
    return form


def every(part: Callable[[int | None], tuple[list[Line], int | None]]) -> list[Line]:
    """The parts of a list together, up to MOST lines. `part`: the lines from a place on, None the beginning, and the
    place of the next part, None where there is none.
    """
    found, after = part(None)
    while after is not None and len(found) < MOST:
        more, after = part(after)
        found = [*found, *more]
    return found[:MOST]


def as_file(form: str, name: str, columns: Sequence[str], lines: Iterable[Line]) -> Response:
    """These columns of the lines, to be saved as `name`; what a line does not say is empty."""
    rows = [{column: line.get(column) for column in columns} for line in lines]
    headers = {**attached(f"{name}.{form}"), "Cache-Control": "no-store", "Vary": "Cookie"}
    if form == "json":
        return json_response({name: rows}, headers=headers)
    out = io.StringIO()
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    writer.writerows({column: cell(value) for column, value in row.items()} for row in rows)
    return Response(out.getvalue(), media_type="text/csv", headers=headers)


def cell(value: Any) -> Any:
    """As a cell of a spreadsheet, which shows it and computes nothing: a text that may be taken for a formula, and is
    no number, stands behind an apostrophe. Several are one text.
    """
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str) and value.startswith(_COMPUTED) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def attached(name: str) -> dict[str, str]:
    """The header that has a browser save the answer under a plain ASCII name without quotes."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
