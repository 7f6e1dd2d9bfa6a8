"""The rule of a notebook's columns, and what it proposes for a frame: a text with blanks to fill in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from models.features.column_law import is_text
from training.datasets.drafts.proposal import MAX_ROWS, SchemaProposal
from training.rows.schema import column_rules
from training.rows.schema.schema_text import FILL_IN
from training.rows.tables.form_search import TYPED, Cells, ColumnForm, find_forms
from training.rows.tables.frames import frame_table


class Columns(column_rules.Columns):
    """A public rule that makes a schema from the names of columns alone (training.rows.schema.column_rules)."""

    @classmethod
    def of(cls, frame: Any, target: str | None = None) -> Columns:
        """Propose a rule for a frame by its columns' names and types, and by how the cells of texts are written (days,
        numbers, yes and no), as a draft of a file does; for ranges and categories no value is read. What it shows is
        the text to put into a cell, with `...` wherever a person must say what is publicly known. A fit refuses it
        until then.

        target: a column that is the answer, and none of X.
        """
        table = frame_table(frame)
        kind = table[target].type if target in table.column_names else None
        table = table if kind is None else table.drop_columns([target])
        cells = dict[str, Cells]()
        for name in table.column_names:
            if is_text(table[name].type):
                cells[name] = Cells()
                for chunk in table[name].slice(0, MAX_ROWS).chunks:
                    cells[name].add(chunk)
        forms = {
            name: form
            for name, form in find_forms(cells).items()
            if form.kind != "boolean" or ("true_words" in form.declared) == ("false_words" in form.declared)
        }  # what says yes in two words, and never no, may be two names
        seen = dict.fromkeys(table.column_names, ColumnForm(TYPED)) | forms
        proposal = SchemaProposal.of_types({column.name: column.type for column in table.schema}, seen)
        columns = {name: _with_blanks(dict(declared)) for name, declared in proposal.features.items()}
        is_number = kind is not None and (pa.types.is_floating(kind) or pa.types.is_decimal(kind))
        classes: Any = [False, True] if kind is not None and pa.types.is_boolean(kind) else ...
        answers: Any = {"target_range": (..., ...)} if is_number else {"classes": classes}
        return cls(**answers, columns=columns, ignore=tuple(proposal.ignore))


def _with_blanks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_blanks(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_blanks(part) for part in value]
    return ... if value == FILL_IN else value
