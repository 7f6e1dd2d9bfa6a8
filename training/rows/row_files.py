"""Tables named on the command line: records to predict, predictions to write, columns to draft a schema from.

Files of rows are opened in this room alone. Errors name the column and the place in the file, never a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from accountant.errors import DataError, InputError
from accountant.files import replacing
from models.answers import ClassLabel
from models.features import Feature, NumericFeature, RawColumns
from training.rows.data import BATCH_ROWS, has_quotes, public_part, raw_values
from training.rows.people import NULLS
from training.rows.unit_question import names_people, words_of

NUMERIC = "{type: numeric, range: [FILL-IN, FILL-IN], bins: 32}"
# What stands in rows and names no column: nothing, a missing value, a number with its sign and unit, a date, a time.
NO_NAME = re.compile(r"\s*(na|n/a|nan|null|none|true|false|[-+<>=$€£%.,:/\s\d]*(e[-+]?)?[\d%$€£]*)\s*", re.IGNORECASE)
ID_WORDS = frozenset(["id", "ids", "uuid", "guid", "uid", "key", "hash"])
TIME_WORDS = frozenset(["date", "time", "datetime", "timestamp", "birthday", "datum", "zeit"])
TEXT_WORDS = frozenset(["comment", "comments", "text", "note", "notes", "description", "remark", "remarks", "freetext"])
CATEGORICAL = "{type: categorical, values: FILL-IN}"
HEAD = """\
# Draft from the column names and types of {name}. No value was read, and dpserve never fills this in from rows.
# Replace every FILL-IN by what is publicly known: ranges from the meaning of a column, categories from the code book.
target: {{name: FILL-IN, classes: FILL-IN}} # the column to predict (delete it below), its classes: ["no", "yes"]
# (to predict a number, its public range stands in place of the classes: range: [low, high])
# (several questions about the same people, on one budget: in place of target,
#  targets: {{NAME: {{classes: [...]}}, NAME: {{range: [low, high]}}}}; a job then says which: --target NAME)
records: FILL-IN # replace-one: the public count; add-remove: a public guess
features:
"""


def read_columns(path: Path, features: Sequence[Feature]) -> Iterator[RawColumns]:
    """Batches of raw columns, one per feature, in the file's order. Columns that are no features are passed over."""
    start = 0
    for batch in file_batches(path, features):
        yield {feature.name: _column(feature, batch[feature.name], start) for feature in features}
        start += batch.num_rows


def _column(feature: Feature, column: pa.Array, start: int) -> NDArray[Any]:
    try:
        return raw_values(feature, column)
    except DataError as error:
        row = error.details.get("row")
        where = "" if row is None else f" (counted from data row {start})"
        raise DataError(f"{error.message}{where}", **error.details) from None


def file_batches(path: Path, features: Sequence[Feature]) -> Iterator[pa.RecordBatch]:
    """Batches of these columns as they stand in the file. DataError where it lacks one, or cannot be read."""
    names = [feature.name for feature in features]
    try:
        absent = sorted(set(names) - set(column_types(path)))
        if absent:
            raise DataError(f"columns {absent}: the model reads them, and {path.name} has them not")
        if path.suffix == ".parquet":
            yield from pyarrow.parquet.ParquetFile(path).iter_batches(BATCH_ROWS, columns=names)
        else:
            types = {f.name: pa.float64() if isinstance(f, NumericFeature) else pa.string() for f in features}
            convert = pyarrow.csv.ConvertOptions(
                column_types=types, null_values=NULLS, strings_can_be_null=False, include_columns=names
            )
            parse = pyarrow.csv.ParseOptions(newlines_in_values=has_quotes(path))
            yield from pyarrow.csv.open_csv(path, convert_options=convert, parse_options=parse)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def column_types(path: Path) -> dict[str, pa.DataType | None]:
    """Names and types of the columns, from the file's own head: a .csv says no types (None)."""
    try:
        if path.suffix == ".parquet":
            found = pyarrow.parquet.read_schema(path)
            return dict(zip(found.names, found.types, strict=True))
        if path.suffix != ".csv":
            raise DataError(f"data={path.name}: must end in .parquet or .csv")
        with path.open(encoding="utf-8") as file:
            header = file.readline()
        if not header.strip():
            raise DataError(f"data={path.name}: the file is empty")
        columns = pyarrow.csv.read_csv(pa.py_buffer(header.encode())).column_names
        if len(set(columns)) < len(columns):
            raise DataError(f"data={path.name}: the first line must be a header that names each column once")
        return dict.fromkeys(columns)
    except FileNotFoundError:
        raise DataError(f"data={path}: no such file") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"data={path.name}: cannot be read as {path.suffix[1:]}: {public_part(error)}")


def draft_schema(path: Path) -> str:
    """A schema file that is not accepted before a person has filled in what is public knowledge.

    DataError where the first line of a .csv holds what no column is called, so that it may be a row: nothing of it is
    repeated.
    """
    columns = column_types(path)
    if path.suffix == ".csv" and (odd := [place for place, name in enumerate(columns, 1) if NO_NAME.fullmatch(name)]):
        raise DataError(
            f"data={path.name}: the first line must be a header with the columns' names, and what stands at "
            f"{odd[:10]} (counted from 1) is a number, a date, or nothing; put a header before it"
        )
    left_out = {name: why for name, kind in columns.items() if (why := why_ignored(name, kind))}
    lines = [f"  {json.dumps(name)}: {_draft(kind)}" for name, kind in columns.items() if name not in left_out]
    ignored = [f"  - {json.dumps(name)} # {why}" for name, why in left_out.items()]
    told = ["ignore: # proposed by names and types; a column that models shall read belongs under features", *ignored]
    people = [name for name in columns if names_people(name)]
    asked = [f"# (--unit {people[0]}, when it is registered, if that names the person)"] if people else []
    return HEAD.format(name=path.name) + "\n".join([*lines, *(told if ignored else []), *asked, "missing: own-bin", ""])


def why_ignored(name: str, kind: pa.DataType | None) -> str:
    """Why a column of this name and type is no feature as it stands; empty where it may be one."""
    words = words_of(name) or [""]
    if names_people(name) or words[-1] in ID_WORDS:
        return "an id"
    if (kind is not None and pa.types.is_temporal(kind)) or TIME_WORDS.intersection(words):
        return "a date or a time: as a number it may be a feature, days since a date for instance"
    return "free text" if TEXT_WORDS.intersection(words) else ""


def _draft(kind: pa.DataType | None) -> str:
    if kind is None:
        return "{type: FILL-IN} # numeric (with range), categorical (with values) or boolean: a .csv does not say"
    if pa.types.is_boolean(kind):
        return "{type: boolean}"
    if pa.types.is_integer(kind):
        return f"{NUMERIC} # or, where the numbers are codes: {CATEGORICAL}"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMERIC
    return CATEGORICAL


Answer = tuple[NDArray[Any], NDArray[np.float32]]  # labels or values (n,), probabilities (n, classes)


def write_predictions(path: Path, classes: Sequence[ClassLabel], answers: Iterable[Answer]) -> int:
    """`label` and `p_<class>` for each class, in order, or `value` where there are no classes; the file appears whole
    or not at all. Returns the rows."""
    if path.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={path.name}: must end in .parquet or .csv")
    if not path.absolute().parent.is_dir():
        raise InputError(f"out={path}: its folder does not exist")
    schema = _schema(classes)
    count = 0
    kind = pyarrow.parquet.ParquetWriter if path.suffix == ".parquet" else pyarrow.csv.CSVWriter
    with replacing(path) as partial, kind(partial, schema) as writer:  # unsynced: it can be made again
        for labels, probabilities in answers:
            columns = [pa.array(labels.tolist(), schema[0].type), *(pa.array(column) for column in probabilities.T)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(labels)
    return count


def _schema(classes: Sequence[ClassLabel]) -> pa.Schema:
    if not classes:
        return pa.schema([("value", pa.float64())])
    label = pa.string() if isinstance(classes[0], str) else pa.int64()
    return pa.schema([("label", label), *((f"p_{name}", pa.float32()) for name in classes)])
