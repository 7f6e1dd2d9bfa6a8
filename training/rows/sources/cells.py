"""Texts of a file in their declared form -> typed columns, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError
from models.features.column_law import Misfit, is_text, read_column, read_texts, told_row
from models.features.features import BooleanFeature, CalendarFeature, CategoricalFeature, Feature, NumericFeature
from models.features.written import USUAL, Written


def misfit_error(name: str, misfit: Misfit, start: int = 0) -> DataError:
    """Return the error for a column of a table; `start`: the data row of the column's first."""
    if misfit.row is None:
        return DataError(f"column {name!r}: {misfit.problem}", column=name)
    row = start + misfit.row
    return DataError(f"{name}, {told_row(row)}: {misfit.problem}", row=row, column=name)


def read_as_written(feature: Feature, column: pa.Array, written: Written, start: int = 0) -> pa.Array:
    """Return a column in its declared form as the numbers, truth values, dates, times or texts that it holds, null
    where missing; one that is written as usual as it is. The first cell that does not fit raises DataError.
    """
    try:
        if isinstance(feature, CategoricalFeature):
            return column if written == USUAL else read_texts(feature.values, column, written)
        if written == USUAL and not isinstance(feature, CalendarFeature | NumericFeature):
            return column
        if not is_text(column.type) and not written.missing_numbers:
            return column
        numbers = read_column(feature, column, written)
    except Misfit as misfit:
        raise misfit_error(feature.name, misfit, start) from None
    return typed_column(feature, numbers)


def typed_column(feature: Feature, numbers: NDArray[np.float64]) -> pa.Array:
    """Return what a feature that is no category reads (n,) as the days, times, truth values or numbers that it is of,
    null where missing.
    """
    missing = np.isnan(numbers)
    if isinstance(feature, CalendarFeature):
        micros = np.where(missing, 0, numbers if feature.kind == "date" else np.rint(numbers * 1_000_000))
        kind = {"date": pa.date32(), "datetime": pa.timestamp("us"), "time": pa.time64("us")}[feature.kind]
        integers = micros.astype(np.int32 if feature.kind == "date" else np.int64)
        return pa.array(integers, mask=missing).cast(kind)
    if isinstance(feature, BooleanFeature):
        return pa.array(numbers == 1, mask=missing)
    return pa.array(numbers, mask=missing)


def as_written(feature: Feature, column: pa.Array, written: Written) -> pa.Array:
    """Write what `read_as_written` reads: dates by the first declared pattern, numbers with the declared mark; others
    as they are.
    """
    if isinstance(feature, CalendarFeature) and feature.kind != "time":
        day = written.dates[0].replace("YYYY", "%Y").replace("YY", "%y").replace("MON", "%b")
        day = day.replace("MM", "%m").replace("DD", "%d")
        clock = "" if feature.kind == "date" else " %H:%M:%S"
        return pc.strftime(column.cast(pa.timestamp("s")), format=f"{day}{clock}")
    if isinstance(feature, NumericFeature) and not isinstance(feature, CalendarFeature) and written.decimal == ",":
        return pc.replace_substring(column.cast(pa.string()), ".", ",")
    return column
