"""How tables that are brought to a model are written: as those of its dataset, for every door the same.

It is part of the public schema; a certificate carries it, so that a model needs nothing else to be asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from dpserve_verify.errors import InputError
from models.features.written import ISO_DATE, PLAIN, USUAL, Form, Written

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_WAYS = 16  # in which the columns of one file have their days: each takes time to tell from others
LONGEST = 1 << 17  # characters of the text that a certificate carries


@dataclass(frozen=True)
class TableFormat:
    """How a file is cut into cells (`form`), and each column that is not written as usual."""

    form: Form = PLAIN
    columns: Mapping[str, Written] = field(default_factory=dict)

    def written_as(self, name: str) -> Written:
        """Return how a column is written."""
        return self.columns.get(name, USUAL)

    def to_json(self, names: Collection[str]) -> dict[str, Any] | None:
        """Return what differs from a usual table, of the columns of these `names`; None where nothing does."""
        form = _differences(self.form, PLAIN)
        columns = {name: _differences(written, USUAL) for name, written in self.columns.items() if name in names}
        columns = {name: written for name, written in columns.items() if written}
        return ({"form": form} if form else {}) | ({"columns": columns} if columns else {}) or None

    def to_text(self, names: Collection[str]) -> str | None:
        """Return the same as a certificate carries it: JSON as a text, each way of writing once beside the names of its
        columns; "" of a usual table, None where the text is longer than LONGEST.
        """
        body = self.to_json(names)
        if body is None:
            return ""
        alike: dict[str, list[str]] = {}
        for name, written in body.get("columns", {}).items():
            alike.setdefault(json.dumps(written, sort_keys=True), []).append(name)
        listed = [{"names": same, **json.loads(written)} for written, same in alike.items()]
        text = json.dumps({**body, **({"columns": listed} if listed else {})}, ensure_ascii=False)
        return text if len(text) <= LONGEST else None

    @cached_property
    def of_json(self) -> TableFormat:
        """Return how values are written where texts are the only dates there are, as in JSON: as in a file, or by ISO
        8601; where one may be taken for the other no text is a date.
        """
        columns = {}
        for name, written in self.columns.items():
            also = written if ISO_DATE in written.dates else replace(written, dates=(*written.dates, ISO_DATE))
            columns[name] = replace(written, dates=(), first_year=None) if also.problem() else also
        return replace(self, columns=columns)


USUAL_FORMAT = TableFormat()


@cache
def format_reader() -> TypeAdapter[TableFormat]:
    """Return what reads JSON as a format; made once, and not where all tables are usual."""
    from pydantic import TypeAdapter

    return TypeAdapter(TableFormat)


def format_from_json(body: Any) -> TableFormat:
    """Read what `to_json` gives, or a part of it; null is a usual table. Raises InputError."""
    if body is None:
        return USUAL_FORMAT
    try:
        read = format_reader().validate_python(body)
        columns = body.get("columns", {}).values()
        parts = ((body, TableFormat), (body.get("form", {}), Form), *((part, Written) for part in columns))
        known = all({*part} <= {each.name for each in fields(kind)} for part, kind in parts)
    except ValueError:  # of which pydantic's is one
        known = False
    if not known:  # whoever wrote it meant something
        raise InputError("format: is none that this version of dpserve reads; name a schema with --schema")
    if len({written.dates for written in read.columns.values()}) > MOST_WAYS:
        raise InputError(f"format: days in more than {MOST_WAYS} ways; write the columns of one file alike")
    for name, written in read.columns.items():
        if problem := written.problem():
            raise InputError(f"format: {name[:80]}: {problem}")
    return read


def format_from_text(text: str) -> TableFormat:
    """Read what `to_text` gives. Raises InputError."""
    if not text:
        return USUAL_FORMAT
    try:
        body = json.loads(text)
        listed = [(part.pop("names"), part) for part in body.pop("columns", ())]
        columns = {name: part for names, part in listed for name in names}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise InputError("format: is no text of a certificate") from None
    return format_from_json({**body, "columns": columns})


def _differences(one: Form | Written, usual: Form | Written) -> dict[str, Any]:
    """Return the fields that differ from the usual ones, as JSON has them."""
    values = {each.name: getattr(one, each.name) for each in fields(one)}
    different = {name: value for name, value in values.items() if value != getattr(usual, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in different.items()}
