"""`schema check`: a registration without its last step. Every row is read as a registration reads it; only where that
refuses the file is it looked at cell by cell, for all that is wrong at once.

What depends on whose rows they are, and on what is registered already, is asked about at the registration alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from accountant.errors import DataError
from training.datasets.packing import check_counts, look_through
from training.datasets.unit_question import check_no_ids
from training.planning.first_plan import check_first_job
from training.rows.schema.schema import Schema
from training.rows.sources.folders import open_table
from training.rows.tables.column_counts import ColumnCount
from training.rows.tables.data import require_used
from training.rows.tables.file_check import FileCheck, find_problems, problem_of


def check_file(schema: Schema, data: Path) -> FileCheck:
    """Return what keeps the rows from being registered, which is nothing where a registration takes them, and what
    becomes of the cells of each column. DataError where there is no such file, InputError where no model could be
    learnt by the schema.
    """
    check_first_job(schema)
    open_table(data, schema.form)  # what is no table at all is no problem of its columns
    counts: Mapping[str, ColumnCount] = {}
    try:
        check_no_ids(schema, require_used(data, schema.form))
        counts = look_through(data, schema)
        check_counts(schema, data, counts)
    except DataError as error:
        looked = find_problems(schema, data)
        return FileCheck(looked.problems or [problem_of(error)], counts or looked.counts, schema.records)
    return FileCheck([], counts, schema.records)
