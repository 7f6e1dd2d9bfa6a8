"""What a notebook holds (arrays, lists, frames, mappings of columns) as a pyarrow Table, and labels as a column.

Frames are read by the names of their columns; arrays by position, with scikit-learn's own checks. Errors here are also
ValueErrors, which is what scikit-learn's tools look for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError
from accountant.system.lazy_import import load
from dpserve_verify.errors import InputError
from models.features.column_law import plain_column
from models.features.features import CalendarFeature, CategoricalFeature
from training.rows.schema.column_rules import Columns, array_names
from training.rows.schema.schema import Schema
from training.rows.tables.data import table_of

CHECKS = "sklearn.utils.validation"


class BadData(DataError, ValueError):
    """X or y does not fit the schema."""


def unfitted_error(message: str) -> InputError:
    """Make the error of predicting before `fit`: an InputError that is scikit-learn's NotFittedError as well."""
    if find_spec("sklearn") is None:
        return InputError(message)
    known = load("sklearn.exceptions")  # as in all of this file: what only plans needs none of it
    error: InputError = type("Unfitted", (InputError, known.NotFittedError), {})(message)
    return error


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise a DataError within as a ValueError too."""
    try:
        yield
    except DataError as error:
        raise error if isinstance(error, BadData) else BadData(error.message, **error.details) from None


def is_frame(X: Any) -> bool:
    """Return whether X names its columns. (One of SciPy's sparse arrays is a dict as well, of places.)"""
    return (isinstance(X, dict) and not hasattr(X, "shape")) or hasattr(X, "__arrow_c_stream__")


def frame_table(X: Any) -> pa.Table:
    """Return a frame as a Table: no column for the index of pandas, no name twice, no texts as views."""
    own_names = None if isinstance(X, pa.Table | dict) else getattr(X, "columns", None)
    names = list(map(str, table_of(X).column_names if own_names is None else own_names))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadData(f"columns {twice}: stand there twice")
    table = table_of(X)
    columns = {name: table[name] for name in names}
    for name, column in columns.items():
        if getattr(column.type, "extension_name", "") == "pandas.period":  # 2024-03, 2024Q1: the moment it begins at
            columns[name] = pa.chunked_array([pa.array(column.to_pandas().dt.to_timestamp(), from_pandas=True)])
    views = [name for name, column in columns.items() if pa.types.is_string_view(column.type)]
    return pa.table(columns | {name: columns[name].cast(pa.large_string()) for name in views})


def table_from(X: Any, rule: Schema | Columns, who: str) -> pa.Table:
    """Read X as a Table, for the estimator called `who`. DataError or scikit-learn's ValueError and TypeError where it
    is none, or an array that does not have as many columns as the schema.
    """
    if is_frame(X):
        return frame_table(X)
    if isinstance(rule, Schema):
        texts = any(isinstance(feature, CategoricalFeature | CalendarFeature) for feature in rule.features)
        return array_table(X, [feature.name for feature in rule.features], not texts, who)
    return array_table(
        X, None, all(declared.get("type") in ("numeric", "boolean") for declared in rule.columns.values()), who
    )


def array_table(X: Any, names: Sequence[str] | None, numbers: bool, who: str) -> pa.Table:
    """Return an array (n, features) as a Table with `names` (None: x0, x1, ...). `numbers`: the schema holds no texts.

    NaN is a missing value; infinities lie beyond the range, and are clipped as everywhere.
    """
    dtype = "numeric" if numbers else None
    array = load(CHECKS).check_array(X, dtype=dtype, ensure_all_finite=False, estimator=who, input_name="X")
    if names is not None and len(names) != array.shape[1]:
        raise BadData(f"X has {array.shape[1]} features, but {who} is expecting {len(names)} features as input")
    names = array_names(array.shape[1]) if names is None else names
    return pa.table({name: array_column(column) for name, column in zip(names, array.T, strict=True)})


def array_column(column: NDArray[Any]) -> pa.Array:
    """Return one column of an array; in one of objects, None and NaN are missing."""
    if column.dtype.kind in "biuf":
        return pa.array(np.asarray(column, dtype=np.float64))
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadData(f"X: a column does not hold one type ({type(error).__name__})") from None


def weighed_table(table: pa.Table, sample_weight: Any, schema: Schema) -> pa.Table:
    """Return a table with what each row weighs in the column of the schema's `weight`, where that is said beside the
    rows. InputError where the schema bounds no weight, or the rows have their own.
    """
    if sample_weight is None:
        return table
    if schema.weight is None:
        raise InputError(
            "sample_weight: nothing says how much one row may weigh at most. Say it from public knowledge, never from "
            'these rows, by which it would tell of the heaviest: Columns(..., weight={"most": 10}), or in a schema '
            "file `weight: {column: w, most: 10}`"
        )
    if schema.weight.column in table.column_names:
        raise InputError(
            f"sample_weight: X has what a row weighs in its column {schema.weight.column!r}; leave one of them out"
        )
    weights = _arrow(load(CHECKS).column_or_1d(sample_weight), "numbers", "sample_weight")
    if len(weights) != len(table):
        raise BadData(f"sample_weight: {len(weights)} weights for {len(table)} rows; one for each row")
    return table.append_column(schema.weight.column, weights)


def label_column(y: Any, schema: Schema, who: str) -> pa.Array:
    """Return labels as a column. Whole floats are whole numbers; what is continuous, or no column, raises."""
    if y is None:
        raise BadData(f"y: {who} requires y to be passed, but the target y is None")
    labels = plain_column(_labels(y, schema))
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    if schema.classes is not None and len(schema.classes) == 2 < pc.count_distinct(labels).as_py():
        raise BadData(f"y: Only binary classification is supported. The classes are {list(schema.classes)}")
    return labels


def target_column(y: Any, who: str) -> pa.Array:
    """Return numbers to predict, as a column. Texts, truth values and what is no column raise; infinities are clipped
    later, to the public range.
    """
    if y is None:
        raise BadData(f"y: {who} requires y to be passed, but the target y is None")
    if isinstance(y, pa.ChunkedArray | pa.Array):
        return _labels(y)
    numbers = load(CHECKS).column_or_1d(y, warn=True)
    if numbers.dtype.kind not in "iufO":
        raise BadData(f"y: holds {numbers.dtype}; {who} wants numbers")
    return _arrow(numbers, "numbers")


def _labels(y: Any, schema: Schema | None = None) -> pa.Array:
    if isinstance(y, pa.ChunkedArray | pa.Array):
        return y.combine_chunks() if isinstance(y, pa.ChunkedArray) else y
    labels = load(CHECKS).column_or_1d(y, warn=True)
    if labels.dtype.kind == "f" and schema is not None:
        _require_whole(labels, schema)
    if labels.dtype.kind == "O" and {type(label) for label in labels} >= {str, int}:  # as `[1, 2, "3+"]` in a frame
        labels = np.array([str(label) if type(label) is int else label for label in labels], object)
    return _arrow(labels, "labels")


def _arrow(values: NDArray[Any], what: str, whose: str = "y") -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadData(f"{whose}: not a column of {what} of one type ({type(error).__name__})") from None


def _require_whole(labels: NDArray[Any], schema: Schema) -> None:
    """Raise BadData where floats are no labels: one is missing that may not be, or all classes are whole and one is
    not.
    """
    missing = np.isnan(labels)
    if np.isinf(labels).any() or (missing.any() and not schema.only.leave_out):
        raise BadData("y: holds NaN or infinity; every row needs one of the classes")
    fractions = any("." in str(label) for label in schema.classes or ())
    if not fractions and (labels[~missing] != np.floor(labels[~missing])).any():
        raise BadData("y: Unknown label type: continuous; labels are texts or whole numbers")
