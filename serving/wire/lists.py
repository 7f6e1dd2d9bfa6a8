"""Lists at the doors: which part of one a query asks for, and a page's list as a file, CSV or JSON.

The page itself answers, to `form` in its query: so a file holds what whoever asks may see on the page.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from serving.wire.errors import json_response
from serving.wire.list_parts import MAX_LIMIT, Part
from serving.wire.request_bodies import known_query, query_flag, query_int, query_text

FORM, FORMS = "form", ("csv", "json")
MAX_LINES, PART_LINES = 10_000, 500  # lines of a list that pages show in parts, and in how large parts a file is read
Line: TypeAlias = dict[str, Any]


PART: Mapping[str, Any] = {
    "q": {"type": "string", "maxLength": 200, "description": "only lines whose name holds this text"},
    "after": {"type": "string", "maxLength": 200, "description": "the `next` of the part before"},
    "limit": {
        "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "lines of a part; all if left out",
    },
}  # fmt: skip
ARCHIVED: Mapping[str, Any] = {
    **PART, "archived": {"type": "boolean", "description": "true: also what is archived"},
}  # fmt: skip
ON_A_PAGE = 50  # lines of a list that a page shows


def part_of(request: Request, *others: str) -> Part:
    """Return the part of a list that the query asks for. InputError where it has a name that is none of `PART` and
    `others`, or a value that is none.
    """
    known_query(request, *PART, *others)
    limit, archived = query_int(request, "limit", 0, 1, MAX_LIMIT), query_flag(request, "archived")
    q, after = (query_text(request, "q") or "").strip()[:200], query_text(request, "after")
    return Part(q, after, limit or None, archived)


def page_part(request: Request, *others: str) -> Part:
    """Return the same for a page, of ON_A_PAGE lines; all of them where it is asked for as a file."""
    part = part_of(request, *others, FORM)
    return replace(part, limit=None if FORM in request.query_params else part.limit or ON_A_PAGE)


def pager(path: str, part: Part, following: str | None) -> tuple[str | None, str | None]:
    """Return the addresses of the first page of this list and of the next one; None where this is it, or there is
    none.
    """
    asked = ({"q": part.q} if part.q else {}) | ({"archived": "true"} if part.archived else {})
    first = None if part.after is None else _address(path, asked)
    return first, None if following is None else _address(path, asked | {"after": following})


def _address(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


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
    """Return a value as a cell that no spreadsheet computes (`uncomputed`). A list becomes one text, and so does an
    object: its names and values.
    """
    if isinstance(value, Mapping):
        value = [each for pair in value.items() if pair[1] is not None for each in pair]
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return uncomputed(value) if isinstance(value, str) else value


def attachment_header(name: str) -> dict[str, str]:
    """Return the header by which a browser saves the answer as `name`, plain ASCII without quotes."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
