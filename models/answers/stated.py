"""The table of a query from a verified statement alone: what somebody without the schema or the home makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import CertificateInvalid, InputError
from models.answers.question import Condition
from models.answers.sql import read_question
from models.answers.table import Released, Table, best_answer, released_by
from models.features.features import BooleanFeature, NumericFeature
from models.profile.columns import Column, number_kind


def table_of(stated: Stated[Any], select: str) -> Table:
    """Return the table of a query that follows from a verified answer or profile. InputError where it does not follow,
    CertificateInvalid where the statement is not of its form.
    """
    released = released_by(stated)
    columns, ends = _columns(released), _ends(released)
    question = read_question(select, stated.form.rows.dataset, columns, lambda column: ends[column.name])
    table = best_answer(released, question)
    if table is None:
        raise InputError("select: does not follow from the statement")
    return table


def check_table(stated: Stated[Any], select: str, rows: Sequence[Any]) -> None:
    """Raise CertificateInvalid where rows of a table are not what follows from the statement."""
    if table_of(stated, select).to_json()["rows"] != [*rows]:
        raise CertificateInvalid("rows: do not follow from the sums that are stated")


def _columns(released: Sequence[Released]) -> dict[str, Column]:
    """Return what the statement says of columns; of those that are only counted, that they are there."""
    columns: dict[str, Column] = {}
    for each in released:
        for measure in each.measures:
            if measure.column is not None and measure.ends is not None:
                columns[measure.column] = Column(
                    number_kind(measure.calendar)(measure.column, ()), "feature", measure.ends
                )
            elif measure.column is not None and measure.column not in columns:
                columns[measure.column] = Column(BooleanFeature(measure.column), "feature")
    for each in released:
        columns |= {condition.column.name: condition.column for condition in _conditions(each)}
        columns |= {column.name: column for column in each.by}
    return columns


def _ends(released: Sequence[Released]) -> dict[str, list[float]]:
    """Return, of each number, where its bins end, and where the statement's conditions do."""
    ends: dict[str, set[float]] = {name: set() for name in _columns(released)}
    conditions = [condition for each in released for condition in _conditions(each)]
    for column in [*(each.column for each in conditions), *(column for each in released for column in each.by)]:
        if isinstance(column.feature, NumericFeature):
            ends[column.name] |= {*column.feature.edges}
    for condition in conditions:
        ends[condition.column.name] |= {end for end in (condition.above, condition.upto) if end is not None}
    return {name: sorted(each) for name, each in ends.items()}


def _conditions(released: Released) -> list[Condition]:
    return [*released.where, *(condition for measure in released.measures for condition in measure.where)]
