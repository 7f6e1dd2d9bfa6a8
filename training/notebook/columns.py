"""The rule of a notebook's columns, and what it proposes for a frame: a text with blanks to fill in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from training.datasets.drafts.proposal import SchemaProposal
from training.rows.schema import column_rules
from training.rows.schema.schema_text import FILL_IN
from training.rows.tables.frames import frame_table


class Columns(column_rules.Columns):
    """A public rule that makes a schema from the names of columns alone (training.rows.schema.column_rules)."""

    @classmethod
    def of(cls, frame: Any, target: str | None = None) -> Columns:
        """Propose a rule for a frame by its columns' names and types; no value is read. What it shows is the text to
        put into a cell, with `...` wherever a person must say what is publicly known. A fit refuses it until then.

        target: a column that is the answer, and none of X.
        """
        types = {column.name: column.type for column in frame_table(frame).schema}
        kind = types.pop(target) if target in types else None
        proposal = SchemaProposal.of_types(types)
        columns = {name: _with_blanks(dict(declared)) for name, declared in proposal.features.items()}
        is_truth = kind is not None and pa.types.is_boolean(kind)
        return cls(classes=[False, True] if is_truth else ..., columns=columns, ignore=tuple(proposal.ignore))  # type: ignore[arg-type]


def _with_blanks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_blanks(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_blanks(part) for part in value]
    return ... if value == FILL_IN else value
