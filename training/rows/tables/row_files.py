"""Tables named on the command line: records to predict, predictions to write, columns to draft a schema from.

Files of rows are opened in this room alone. Errors name the column and the place in the file, never a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import yaml
from numpy.typing import NDArray

from accountant.errors import DataError, InputError
from accountant.system.files import replacing
from models.features.features import Feature, RawColumns
from models.parts.answers import ClassLabel
from training.rows.people.id_words import names_people, words_of
from training.rows.schema.schema import Schema
from training.rows.schema.schema_text import FILL_IN
from training.rows.schema.written import ISO_DATE, PLAIN, Form
from training.rows.sources.files import CsvTable, Table
from training.rows.sources.folders import FolderTable, open_table
from training.rows.sources.sniff import NO, YES, Column, form_of
from training.rows.tables.data import raw_values, reading, written_batches
from training.rows.tables.file_check import explaining

TOLD = ("value", "low", "high")  # of a figure
NUMERIC = "{type: numeric, range: [FILL-IN, FILL-IN], bins: 32}"
# What stands in rows and names no column: nothing, a missing value, a number with its sign and unit, a date, a time.
NO_NAME = re.compile(r"\s*(na|n/a|nan|null|none|true|false|[-+<>=$€£%.,:/\s\d]*(e[-+]?)?[\d%$€£]*)\s*", re.IGNORECASE)
ID_WORDS = frozenset(["id", "ids", "uuid", "guid", "uid", "key", "hash"])
TIME_WORDS = frozenset(["date", "time", "datetime", "timestamp", "birthday", "datum", "zeit"])
TEXT_WORDS = frozenset(["comment", "comments", "text", "note", "notes", "description", "remark", "remarks", "freetext"])
CATEGORICAL = "{type: categorical, values: FILL-IN}"
UNSEEN = "No value was read, and dpserve never fills this in from rows."
LOOKED_AT = 100_000
LOOKED = f"""Cells were looked at for how they are written,
# in the first {LOOKED_AT} rows, and for nothing else: dpserve never fills in ranges or categories from rows."""
HEAD = """\
# Draft from the column names and types of {name}. {looked}
# Replace every FILL-IN by what is publicly known: ranges from the meaning of a column, categories from the code book.
target: {{name: FILL-IN, classes: FILL-IN}} # the column to predict (delete it below), its classes: ["no", "yes"]
# (where a class is rare, say about how rare, from public knowledge: prevalence: 0.02, of the last of two classes)
# (to predict a number, its public range stands in place of the classes: range: [low, high])
# (several questions about the same people, on one budget: in place of target,
#  targets: {{NAME: {{classes: [...]}}, NAME: {{range: [low, high]}}}}; a job then says which: --target NAME)
records: FILL-IN # replace-one: the public count; add-remove: a public guess
features:
"""


def read_columns(path: Path, features: Sequence[Feature], schema: Schema | None = None) -> Iterator[RawColumns]:
    """Batches of raw columns, one per feature, in the file's order. Columns that are no features are passed over.
    `schema`: says how the file is written; None: as usual.
    """
    start, named = 0, {feature.name for feature in features}
    form, written = (schema.form, schema.written) if schema else (PLAIN, {})
    others = tuple(name for name in column_types(path, form) if name not in named)
    with explaining(Schema((), 1, tuple(features), others, "", form=form, written=written), path):
        for batch in file_batches(path, features, schema):
            yield {feature.name: _column(feature, batch[feature.name], start) for feature in features}
            start += batch.num_rows


def _column(feature: Feature, column: pa.Array, start: int) -> NDArray[Any]:
    try:
        return raw_values(feature, column)
    except DataError as error:
        row = error.details.get("row")
        where = "" if row is None else f" (counted from data row {start})"
        raise DataError(f"{error.message}{where}", **error.details) from None


def file_batches(path: Path, features: Sequence[Feature], schema: Schema | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of these columns, read as `schema` says that they are written. DataError where the file lacks one, or
    cannot be read.
    """
    names = [feature.name for feature in features]
    with reading(path):
        table = open_table(path, schema.form if schema else PLAIN)
        absent = sorted(set(names) - set(table.types()))
        if absent:
            raise DataError(f"columns {absent}: the model reads them, and {path.name} has them not")
        yield from written_batches(table, features, schema, names, {})


def column_types(data: Path | Table, form: Form = PLAIN) -> dict[str, pa.DataType | None]:
    """Names and types of the columns, from the files' own heads: a .csv says no types (None)."""
    with reading(data):
        return (open_table(data, form) if isinstance(data, Path) else data).types()


def draft_schema(path: Path, look: bool = False) -> str:
    """A schema file that is not accepted before a person has filled in what is public knowledge. `look`: cells are
    looked at for how they are written (marks, patterns of dates, words), and for nothing else.

    DataError where the first line of a .csv holds what no column is called, so that it may be a row: nothing of it is
    repeated.
    """
    return _draft_text(path, *(_seen(path) if look else (PLAIN, {})), look)


def _draft_text(path: Path, form: Form, seen: Mapping[str, Column], look: bool) -> str:
    columns = column_types(path, form)
    if path.suffix == ".csv" and (odd := [place for place, name in enumerate(columns, 1) if NO_NAME.fullmatch(name)]):
        raise DataError(
            f"data={path.name}: the first line must be a header with the columns' names, and what stands at "
            f"{odd[:10]} (counted from 1) is a number, a date, or nothing; put a header before it"
        )
    left_out = {
        name: why for name, kind in columns.items() if (why := why_ignored(name, kind, seen[name] if look else None))
    }
    lines = [f"  {json.dumps(name)}: {_draft(kind, seen.get(name))}" for name, kind in columns.items()
             if name not in left_out]  # fmt: skip
    ignored = [f"  - {json.dumps(name)} # {why}" for name, why in left_out.items()]
    told = ["ignore: # proposed by names and types; a column that models shall read belongs under features", *ignored]
    people = [name for name in columns if names_people(name)]
    asked = [f"# (--unit {people[0]}, when it is registered, if that names the person)"] if people else []
    written = {key: said for key, said in (("delimiter", form.delimiter), ("encoding", form.encoding))
               if said != getattr(PLAIN, key)}  # fmt: skip
    head = HEAD.format(name=path.name, looked=LOOKED if look else UNSEEN)
    formats = [f"format: {json.dumps(written)}"] if written else []
    return head + "\n".join([*lines, *(told if ignored else []), *asked, *formats, "missing: own-bin", ""])


def proposal(path: Path) -> dict[str, Any]:
    """What `draft_schema` proposes of a file that was looked at: `features`, `ignore` and `format` as a schema has
    them, FILL_IN where a person must say it; and `people`, the columns that may name persons, by their names or by how
    their values repeat.
    """
    form, seen = _seen(path)
    body = yaml.safe_load(_draft_text(path, form, seen, look=True))
    ignored = dict.fromkeys(body.get("ignore") or ())
    names = [*body["features"], *ignored]
    kept = {key: body[key] for key in ("features", "format") if key in body}
    called = [name for name in names if names_people(name)]
    people = [*called, *(name for name in names if name not in called and name in seen and seen[name].like_ids)]
    return {**kept, "ignore": ignored, "people": people}


def _seen(path: Path) -> tuple[Form, dict[str, Column]]:
    """How the cells of the first LOOKED_AT rows are written."""
    with reading(path):
        table = open_table(path)
        first = table.parts[0] if isinstance(table, FolderTable) else table
        form = form_of(first) if isinstance(first, CsvTable) else PLAIN
        table = open_table(path, form)
        names, rows = [*table.types()], 0
        found = {name: Column() for name in names}
        for batch in table.batches(names, dict.fromkeys(names, pa.string())):
            for name, column in zip(names, batch.columns, strict=True):
                if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                    for cell in column.to_pylist():
                        found[name](cell or "")
            rows += len(batch)
            if rows >= LOOKED_AT:
                break
    return form, found


def why_ignored(name: str, kind: pa.DataType | None, seen: Column | None = None) -> str:
    """Why a column of this name, type and look is no feature as it stands; empty where it may be one."""
    words = words_of(name) or [""]
    if names_people(name) or words[-1] in ID_WORDS:
        return "an id"
    if seen is None and ((kind is not None and pa.types.is_temporal(kind)) or TIME_WORDS.intersection(words)):
        return "a date or a time: as a feature, {type: date, range: [first, last]}, or datetime, or time"
    text = seen is not None and seen.kind == "text" and 2 * seen.long > seen.cells
    return "free text" if text or TEXT_WORDS.intersection(words) else ""


def _draft(kind: pa.DataType | None, seen: Column | None = None) -> str:
    if seen is not None and seen.cells:
        return _as_seen(seen)
    if kind is None:
        return "{type: FILL-IN} # numeric (with range), categorical (with values) or boolean: a .csv does not say"
    if pa.types.is_temporal(kind):
        plain = "time" if pa.types.is_time(kind) else "date" if pa.types.is_date(kind) else "datetime"
        return f"{{type: {plain}, range: [FILL-IN, FILL-IN]}}"
    if pa.types.is_boolean(kind):
        return "{type: boolean}"
    if pa.types.is_integer(kind):
        return f"{NUMERIC} # or, where the numbers are codes: {CATEGORICAL}"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMERIC
    return CATEGORICAL


def _as_seen(seen: Column) -> str:
    """What the cells of a text column look like, with everything that a person must say left open."""
    if seen.kind == "boolean":
        words = {"true_words": sorted(seen.words & YES), "false_words": sorted(seen.words & NO)}
        more = "".join(f", {key}: {json.dumps(listed, ensure_ascii=False)}" for key, listed in words.items() if listed)
        return f"{{type: boolean{more}}}"
    if seen.kind == "time":
        return '{type: time, range: ["00:00", "23:59:59"]}'
    if seen.kind in ("date", "datetime"):
        written = FILL_IN if seen.dates is None else json.dumps(seen.dates)
        usual = "" if seen.dates == [ISO_DATE] else f", written: {written}"
        ask = " # which: DD/MM/YYYY or MM/DD/YYYY?" if seen.dates is None else ""
        return f"{{type: {seen.kind}, range: [FILL-IN, FILL-IN]{usual}}}{ask}"
    if seen.kind != "numeric":
        return CATEGORICAL
    mark = "" if seen.decimal == "." else f", decimal: {json.dumps(seen.decimal)}"
    whole = "" if seen.fractions else f" # or, where the numbers are codes: {CATEGORICAL}"
    return f"{NUMERIC[:-1]}{mark}}}{whole}"


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


def write_figures(path: Path, figures: Iterable[Mapping[str, Any]]) -> None:
    """Figures of a model's worth, as its statement or report has them, as a .parquet file: one row each, numbers as
    numbers, null where nothing is told.
    """
    listed = list(figures)
    texts = {name: [each.get(key) for each in listed] for name, key in (("figure", "metric"), ("class", "class"))}
    texts |= {"group": [each.get("group") or ", ".join(each.get("groups", ())) or None for each in listed]}
    told = {name: [None if each.get(name) is None else float(each[name]) for each in listed] for name in TOLD}
    columns = [*(pa.array(text, pa.string()) for text in texts.values()), *(pa.array(one) for one in told.values())]
    try:
        with replacing(path) as partial:
            pyarrow.parquet.write_table(pa.table(columns, [*texts, *told]), partial)
    except OSError as error:
        raise InputError(f"out={path}: cannot be written ({error.strerror})") from None


def _schema(classes: Sequence[ClassLabel]) -> pa.Schema:
    if not classes:
        return pa.schema([("value", pa.float64())])
    label = pa.string() if isinstance(classes[0], str) else pa.int64()
    return pa.schema([("label", label), *((f"p_{name}", pa.float32()) for name in classes)])
