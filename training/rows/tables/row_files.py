"""Tables named on the command line: records to predict, predictions to write, columns to draft a schema from.

Files of rows are opened in this room alone. Errors name the column and the place in the file, never a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from accountant.errors import DataError
from accountant.system.lazy_import import later
from accountant.system.outputs import writing
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import replacing
from dpserve_verify.system.printable import uncomputed
from models.features.column_law import is_text
from models.features.features import CategoricalFeature, Feature, RawColumns
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.written import PLAIN, Form
from models.parts.answers import ClassLabel
from models.parts.beside import ENDS, Columns
from training.rows.sources.cells import typed_column
from training.rows.sources.folders import open_table
from training.rows.tables.data import raw_values, reading, require_columns, written_batches

if TYPE_CHECKING:
    from training.rows.schema import schema
    from training.rows.tables import file_check
else:  # which look at a file that does not fit
    schema, file_check = later("training.rows.schema.schema"), later("training.rows.tables.file_check")

Declared: TypeAlias = "schema.Schema | TableFormat | None"  # what says how a file is written; None: as usual
TOLD = ("value", "low", "high")  # of a figure


def read_columns(path: Path, features: Sequence[Feature], form: Declared = None) -> Iterator[RawColumns]:
    """Read batches of raw columns, one per feature, in the file's order. Columns that are no features are skipped.
    `form`: how the file is written; None: as usual.
    """
    form = form or USUAL_FORMAT
    start, form = 0, form if isinstance(form, TableFormat) else form.format
    column_types(path, form.form)  # raises what no look at the rows explains
    try:
        for batch in file_batches(path, features, form):
            yield {feature.name: raw_values(feature, batch[feature.name], start) for feature in features}
            start += batch.num_rows
    except DataError as error:
        others = column_types(path, form.form).keys() - {feature.name for feature in features}
        names_in_file = schema.Schema((), 1, tuple(features), tuple(others), "", form=form.form, written=form.columns)
        raise file_check.explained(error, names_in_file, path) from None


def as_arrow(feature: Feature, column: Any) -> pa.Array:
    """Return a column as the server takes it: texts, booleans, days and times, or numbers; NaN and the empty text are
    missing.
    """
    if isinstance(feature, CategoricalFeature):
        return pa.array(np.asarray(column).tolist(), pa.string())
    return typed_column(feature, np.asarray(column))


def file_batches(path: Path, features: Sequence[Feature], form: Declared = None) -> Iterator[pa.RecordBatch]:
    """Read batches of these columns, as `form` says that they are written. DataError where the file lacks one, or
    cannot be read.
    """
    names = [feature.name for feature in features]
    with reading(path):
        table = open_table(path, form.form if form else PLAIN)
        require_columns(names, table.types(), f"the model reads them, and {path.name} has them not")
        yield from written_batches(table, features, form, names, {}, {})


def column_types(data: Path, form: Form = PLAIN) -> dict[str, pa.DataType | None]:
    """Return names and types of the columns, from the files' own heads: a .csv says no types (None)."""
    with reading(data):
        return open_table(data, form).types()


# Labels or values (n,), probabilities (n, classes), and notes, and the columns beside, where they are wanted.
Answer = tuple[NDArray[Any], NDArray[np.float32], Sequence[str] | None, Columns | None]


class KeptColumns:
    """Columns of a file that go with its predictions as they stand, each batch as many rows as are asked for."""

    def __init__(self, path: Path, names: Sequence[str], form: Declared = None) -> None:
        """Open the file, written as `form` says. DataError where it lacks a column, or one holds lists or bytes."""
        cut = form.form if form else PLAIN
        types = column_types(path, cut)
        if absent := sorted(set(names) - types.keys()):
            raise DataError(f"keep {absent}: {path.name} has no such column; it has {sorted(types)}")
        kinds = {name: _kept_type(name, types[name] or pa.string()) for name in dict.fromkeys(names)}
        self.schema = pa.schema(list(kinds.items()))
        self._rows = self._batches(path, cut)
        self._left = self.schema.empty_table()

    def take(self, count: int) -> list[pa.ChunkedArray]:
        """Return the next `count` rows, by column. DataError where the file has fewer."""
        while len(self._left) < count:
            batch = next(self._rows, None)
            if batch is None:
                raise DataError("data: it was changed while it was read")
            self._left = pa.concat_tables([self._left, batch])
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        return list(taken.columns)

    def _batches(self, path: Path, form: Form) -> Iterator[pa.Table]:
        with reading(path):
            texts = {name: pa.string() for name in self.schema.names}
            for batch in open_table(path, form).batches(self.schema.names, texts):
                yield pa.Table.from_batches([batch]).select(self.schema.names).cast(self.schema)


def _kept_type(name: str, kind: pa.DataType) -> pa.DataType:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_text(plain):
        return pa.string()
    if pa.types.is_nested(plain) or pa.types.is_binary(plain) or pa.types.is_large_binary(plain):
        raise DataError(f"keep {name!r}: holds {str(plain)[:60]}; texts, numbers, dates and truth values can be kept")
    return plain


def write_predictions(
    path: Path,
    classes: Sequence[ClassLabel],
    answers: Iterable[Answer],
    kept: KeptColumns | None = None,
    has_notes: bool = False,
    beside: Sequence[str] = (),
) -> int:
    """Write `label` and `p_<class>` for each class, in order, or `value` where there are no classes, behind the columns
    that are `kept` and before the columns `beside` and the `notes`, where these are wanted; the file appears whole or
    not at all. In a .csv no text is a formula (`uncomputed`). Returns the rows.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={path.name}: must end in .parquet or .csv")
    if not path.absolute().parent.is_dir():
        raise InputError(f"out={path}: its folder does not exist")
    answered = _schema(classes)
    answered = pa.schema(
        [*answered, *(pa.field(name, pa.float64() if name in ENDS else pa.bool_()) for name in beside)]
    )
    if has_notes:
        answered = answered.append(pa.field("notes", pa.string()))
    schema = answered if kept is None else pa.schema([*kept.schema, *answered])
    if twice := set(answered.names).intersection(kept.schema.names if kept else ()):
        raise InputError(f"keep {min(twice)!r}: a column of the predictions is called so; rename that of the file")
    count = 0
    in_csv = path.suffix == ".csv"
    kind = pyarrow.csv.CSVWriter if in_csv else pyarrow.parquet.ParquetWriter
    cells = {name: uncomputed(name) for name in classes if in_csv and isinstance(name, str)}
    with replacing(path) as partial, kind(partial, schema) as writer:  # unsynced: it can be made again
        for labels, probabilities, notes, found in answers:
            names = [cells.get(name, name) for name in labels.tolist()] if cells else labels.tolist()
            beside = [] if kept is None else [_uncomputed(column, in_csv) for column in kept.take(len(labels))]
            columns = [*beside, pa.array(names, answered[0].type), *(pa.array(column) for column in probabilities.T)]
            columns += [pa.array(column) for column in (found or {}).values()]
            if notes is not None:
                columns.append(pa.array([uncomputed(text) if in_csv else text for text in notes], pa.string()))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(labels)
    return count


def _uncomputed(column: pa.ChunkedArray, in_csv: bool) -> pa.ChunkedArray | pa.Array:
    """Return a kept column, of which no text is a formula in a .csv."""
    if not in_csv or column.type != pa.string():
        return column
    return pa.array([None if text is None else uncomputed(text) for text in column.to_pylist()], pa.string())


def write_figures(path: Path, figures: Iterable[Mapping[str, Any]]) -> None:
    """Write figures of a model's worth, as its statement or report has them, as a .parquet file: one row each, numbers
    as numbers, null where a figure is not given. InputError where the file cannot be written.
    """
    listed = list(figures)
    texts = {name: [figure.get(key) for figure in listed] for name, key in (("figure", "metric"), ("class", "class"))}
    texts |= {"group": [figure.get("group") or ", ".join(figure.get("groups", ())) or None for figure in listed]}
    numbers = {name: [None if figure.get(name) is None else float(figure[name]) for figure in listed] for name in TOLD}
    columns = [
        *(pa.array(text, pa.string()) for text in texts.values()),
        *(pa.array(column) for column in numbers.values()),
    ]
    with writing(path), replacing(path) as partial:
        pyarrow.parquet.write_table(pa.table(columns, [*texts, *numbers]), partial)


def _schema(classes: Sequence[ClassLabel]) -> pa.Schema:
    if not classes:
        return pa.schema([("value", pa.float64())])
    label = pa.string() if isinstance(classes[0], str) else pa.int64()
    return pa.schema([("label", label), *((f"p_{name}", pa.float32()) for name in classes)])
