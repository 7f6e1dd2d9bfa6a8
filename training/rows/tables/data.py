"""Rows come in here: Parquet and CSV through pyarrow, straight into packed integer bins. Only the steward sees these
errors.

Reading happens once, at registration, in batches: no Python per row, memory bounded by the packed bins. Errors name
the column and the place in the file, never a value.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError
from dpserve_verify.privacy.budget import Relation
from models.features.column_law import (
    Misfit,
    places_in,
    read_class_texts,
    read_column,
    read_numbers,
    read_texts,
    told_row,
)
from models.features.features import (
    BooleanFeature,
    CalendarFeature,
    CategoricalFeature,
    Codes,
    Feature,
    NumericFeature,
    RawColumns,
)
from models.features.table_format import TableFormat
from models.features.written import PLAIN, USUAL, Form, Written
from training.rows import kernels
from training.rows.packed.cells import Cells, Span, declared_ranges, grid_of
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows, order_by_weight
from training.rows.people.people import missing_texts
from training.rows.sources.cells import misfit_error, read_as_written
from training.rows.sources.files import ending, no_such_file
from training.rows.sources.folders import Table, open_table
from training.rows.sources.tables import BATCH_ROWS, Kinds, OtherNumbers
from training.rows.tables.column_counts import ColumnCount, weight_faults
from training.rows.tables.remedies import describe_remedies

if TYPE_CHECKING:  # a file that is predicted has none
    from training.rows.schema.row_weight import RowWeight
    from training.rows.schema.schema import Schema, Target

Counts: TypeAlias = Mapping[str, ColumnCount]
NO_CLASS = np.uint8(255)  # stored in place of an answer that is missing; there are at most 255 classes, from 0
NO_NUMBER = np.int32(-(1 << 31))  # the same, far below -TARGET_GRID
ABSENT_WEIGHT = "says what a row weighs, and is not in X; a fit may have it as sample_weight=..."
ANSWER_BINS = 32
_ANSWER_CUTS = tuple(2 * at / ANSWER_BINS - 1 for at in range(1, ANSWER_BINS))  # in halves of the range


def bin_dtype(features: Sequence[Feature]) -> type[np.uint8] | type[np.uint16]:
    """Return the smallest integers that hold every bin of these features."""
    return np.uint8 if max(feature.bins for feature in features) <= 256 else np.uint16


def read_batches(
    data: Path, schema: Schema, also: Sequence[str] = (), unit: str | None = None, counts: Counts | None = None
) -> Iterator[pa.RecordBatch]:
    """Read batches with the schema's columns (and `also`), each read as the schema says that it is written, after
    checking names: the column of the `unit` is the one that the schema need not speak of. `counts` see the cells as
    they stand there. DataError on anything else.
    """
    wanted = [*dict.fromkeys((*(feature.name for feature in schema.stored), *schema.target_names, *also))]
    described = [
        *schema.stored,
        *(NumericFeature(target.name, ()) for target in schema.targets if target.classes is None),
    ]
    texts = dict.fromkeys(schema.target_names, pa.string()) | dict.fromkeys(also, pa.binary())  # ids: in any encoding
    with reading(data):
        table = open_table(data, schema.form)
        types = table.types()
        if None in types.values():  # then the first line may be a row: nothing of it is repeated
            header = f"a header with the columns' names, parted by {schema.form.delimiter!r}"
            lacks = f"in the schema but not in the first line of {table.name}, which must be {header}"
            require_columns(wanted, types, f"{lacks} as the schema's `format` says")
        check_names([*types], schema, [unit] if unit else [])
        yield from written_batches(table, described, schema, wanted, texts, counts or {})


def written_batches(
    table: Table,
    features: Sequence[Feature],
    form: Schema | TableFormat | None,
    wanted: Sequence[str],
    kinds: Kinds,
    counts: Counts,
) -> Iterator[pa.RecordBatch]:
    """Read batches of the `wanted` columns; the `features` among them as `form` says that they are written, or as
    usual where it is None. `kinds`: the types of the others, where the file has no types. `counts` see the cells of
    these columns as they stand there.
    """
    plain = {column.name: column for column in features}
    forms = {name: form.written_as(name) if form else USUAL for name in plain}
    special = {
        name: column for name, column in plain.items() if forms[name] != USUAL or isinstance(column, CalendarFeature)
    }
    numbers = {column.name for column in features if isinstance(column, NumericFeature)} - special.keys()
    kinds = {**kinds, **{name: pa.float64() if name in numbers else pa.string() for name in plain}}
    start = 0
    commas = {name for name, form in forms.items() if form.decimal == ","}
    table = replace(table, parts=[part.spelling(commas) for part in table.parts])
    while True:
        skip = start
        try:
            for batch in table.batches(wanted, kinds):
                batch, skip = batch.slice(min(skip, len(batch))), max(0, skip - len(batch))
                for name, count in counts.items() if len(batch) else ():
                    if name in special or isinstance(plain.get(name), BooleanFeature):
                        count.see(batch[name], forms[name])
                for name, feature in special.items() if len(batch) else ():
                    place = batch.schema.get_field_index(name)
                    batch = batch.set_column(place, name, read_as_written(feature, batch[name], forms[name], start))
                if len(batch) or not start:
                    yield batch
                start += len(batch)
            return
        except OtherNumbers as error:  # the quick reader knows fewer forms of numbers than the law, which goes on
            special[error.column], kinds[error.column] = plain[error.column], pa.string()


def require_used(data: Path, form: Form) -> dict[str, pa.DataType | None]:
    """Return names and types of the columns. DataError where `format` says what files of this kind have not: it would
    be passed over.
    """
    with reading(data):
        table = open_table(data, form)
        types = table.types()
    for part in table.parts:
        if unused := part.unused_keys():
            keys, remedy = ", ".join(f"`{key}`" for key in unused), {"place": "format", "leave_out": True}
            said = f"{keys} under `format` is of other kinds of files than {ending(part.path)}, and would not be used"
            remedies = [{**remedy, "say": dict.fromkeys(unused, "")}]
            raise DataError(f"data={data.name}: {said}; leave it out of the schema", remedies=remedies)
    return types


def require_declared_encoding(data: Path, form: Form) -> None:
    """Raise DataError where a .csv is UTF-8 and declared to be another encoding, which would read other letters."""
    with reading(data):
        if any(part.is_utf8_after_all() for part in open_table(data, form).parts):
            name = form.encoding.upper()
            raise DataError(f"data={data.name}: text that is not {name}; say `encoding: utf-8` under `format`")


@contextmanager
def reading(data: Path) -> Iterator[None]:
    """Turn what a reader raises into a DataError that names the file, and quotes nothing of it."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(no_such_file(str(data))) from None
    except (pa.ArrowException, OSError, UnicodeError, csv.Error) as error:
        kind = ending(data).lstrip(".") or "rows"
        raise DataError(f"data={data.name}: cannot be read as {kind} with this schema: {public_part(error)}") from None


def most_rows(data: Path, form: Form = PLAIN) -> int:
    """Return as many rows as there are, or, of a .csv, may be: the ends of its lines."""
    with reading(data):
        return open_table(data, form).most_rows()


def require_columns(wanted: Iterable[str], there: Collection[str], lacks: str) -> None:
    """Raise DataError with those of the `wanted` columns that are not there, and what the table `lacks` by that."""
    if absent := sorted({*wanted}.difference(there)):
        raise DataError(f"columns {absent}: {lacks}")


def check_names(names: Sequence[str], schema: Schema, also: Sequence[str] = ()) -> None:
    """Check that every column of the schema is there, and no column is there that the schema does not speak of."""
    wanted = {feature.name for feature in schema.stored} | {*schema.target_names, *also}
    require_columns(wanted, names, f"in the schema but not in the data, which has {sorted(names)}")
    unknown = {name for name in names if name not in wanted and not schema.ignores(name)}
    if twice := schema.twice(names):
        raise DataError(
            f"columns {twice}: stand twice in the data; name each column once, in the file, or by `columns` and `skip` "
            "under `format`"
        )
    if unknown:
        raise DataError(
            f"columns {sorted(unknown)}: in the data but not in the schema; add them to `features` or to `ignore`"
        )
    if len(set(names)) != len(names):
        raise DataError("columns: a name stands there twice")


def check_left_out(schema: Schema, relation: Relation) -> None:
    """Raise DataError where rows without an answer are left out under replace-one: the number of rows is public there,
    and would tell how many lack an answer.
    """
    for target in schema.targets:
        if target.leave_out and relation is Relation.REPLACE_ONE:
            raise DataError(f"{target.name}: `missing: leave-out` needs add-remove: how many are left out is private")


def encode_column(feature: Feature, column: pa.Array, start: int = 0, count: ColumnCount | None = None) -> Codes:
    """Return the codes of an Arrow column, by the feature's own law; `count` counts them."""
    with _columns_of(feature.name, start):
        return read_codes(feature, column, count=count)


def read_codes(feature: Feature, column: pa.Array, written: Written = USUAL, count: ColumnCount | None = None) -> Codes:
    """Return the codes of an Arrow column by the law of columns; `count` counts them. Texts are looked up once per
    distinct value. Raises Misfit.
    """
    if isinstance(feature, NumericFeature):
        numbers = read_column(feature, column, written)
        if count is not None:
            count.add_numbers(numbers)
        if len(feature.edges) > kernels.votes.FEW_EDGES:
            return feature.encode(numbers)
        return kernels.votes.encode_numbers(numbers, np.array(feature.edges, float), feature.missing)
    if isinstance(feature, CategoricalFeature):
        words = read_texts(feature.values, column, written)
        words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
        listed = feature.encode(np.asarray(words.dictionary.to_pylist(), dtype=object))
        places = places_in(words)
        codes = np.append(listed, np.uint16(feature.missing))[places]
        if count is not None and (unlisted := np.flatnonzero(listed == len(feature.values))).size:
            times = np.bincount(places, minlength=len(listed) + 1)[unlisted]
            texts = words.dictionary.take(pa.array(unlisted)).to_pylist()
            count.add_misses(zip(texts, times.tolist(), strict=True))
    else:
        codes = feature.encode(read_column(feature, column, written))
    if count is not None:
        count.add_codes(codes)
    return codes


@contextmanager
def _columns_of(name: str, start: int) -> Iterator[None]:
    """Turn a Misfit within into the DataError of this column, whose first row is the data row `start`."""
    try:
        yield
    except Misfit as misfit:
        raise misfit_error(name, misfit, start) from None
    except UnicodeError:
        raise misfit_error(name, Misfit("holds texts that are not UTF-8; write it anew")) from None


def encode_weights(weight: RowWeight, column: pa.Array, start: int = 0, count: ColumnCount | None = None) -> Codes:
    """Return what each row weighs, in PARTS of the most. DataError names the first row whose weight is none."""
    numbers = raw_values(weight.feature, column, start)
    for wrong, found, remedies in weight_faults(weight, numbers):
        if wrong.any():
            row = start + int(wrong.argmax())
            said = f"{weight.column}, {told_row(row)}: {found}; {describe_remedies(remedies)}"
            raise DataError(said, row=row, column=weight.column)
    if count is not None:
        count.add_numbers(numbers)
    return weight.encode(numbers)


def encode_finely(
    feature: NumericFeature, span: Span, column: pa.Array, start: int = 0, count: ColumnCount | None = None
) -> tuple[Codes, Codes]:
    """Return the codes of a column of numbers as `encode_column` gives them, and those of its fine cells."""
    grid, numbers = grid_of(feature, span), raw_values(feature, column, start)
    if count is not None:
        count.add_numbers(numbers)
    fine, table = grid.encode(numbers), grid.declared.astype(bin_dtype([feature]))
    codes = np.empty(len(fine), table.dtype)
    kernels.cells.merge(fine, table, codes)
    return codes, fine


def read_classes(target: Target, column: pa.Array, written: Written = USUAL) -> NDArray[np.int64]:
    """Return the place of each label in `classes`, -1 where it is missing, -2 where it is none of them. Raises
    Misfit.
    """
    labels = [str(label) for label in target.classes or ()]
    words = read_class_texts(labels, column, written)
    index = pc.index_in(words.dictionary, value_set=pa.array(labels, pa.large_string()))
    none = pc.if_else(missing_texts(words.dictionary), pa.scalar(-1, pa.int32()), pa.scalar(-2, pa.int32()))
    places = np.append(np.asarray(pc.coalesce(index, none), np.int64), -1)
    result: NDArray[np.int64] = places[places_in(words)]
    return result


def encode_labels(
    schema: Schema, column: pa.Array, start: int = 0, count: ColumnCount | None = None
) -> NDArray[np.uint8]:
    """Encode class labels as their index in `classes`. A label that is missing or not listed raises DataError, naming
    its row; where the target leaves out rows without an answer, a missing one is NO_CLASS, and only one that is not
    listed raises.
    """
    target = schema.only
    assert target.classes is not None
    with _columns_of(target.name, start):
        places = read_classes(target, column, schema.written_as(target.name))
    wrong = places < (-1 if target.leave_out else 0)
    if wrong.any():
        row = start + int(wrong.argmax())
        raise DataError(
            f"{target.name}, {told_row(row)}: missing, or not one of the classes {list(target.classes)}", row=row
        )
    if count is not None:
        count.add(len(places), int(np.count_nonzero(places < 0)))
    return np.where(places < 0, NO_CLASS, places).astype(np.uint8)


def encode_targets(
    schema: Schema, column: pa.Array, start: int = 0, count: ColumnCount | None = None
) -> NDArray[np.int32]:
    """Return numbers to predict as int32 in -TARGET_GRID..TARGET_GRID: clipped to the public range, centred on its
    middle, on a grid of half the range / TARGET_GRID. [100, 101] thus behaves as [0, 1]. Infinities lie beyond the
    range. A missing target raises, naming its row, or is NO_NUMBER where such rows are left out.
    """
    target = schema.only
    assert target.range is not None
    with _columns_of(target.name, start):
        numbers, (low, high) = read_numbers(column), target.range
    if count is not None:
        count.add_numbers(numbers)
    missing = np.isnan(numbers)
    if missing.any() and not target.leave_out:
        row = start + int(missing.argmax())
        raise DataError(f"{target.name}, {told_row(row)}: missing; every row needs a number to learn from", row=row)
    middle, half = low / 2 + high / 2, high / 2 - low / 2  # halves first: the difference of two floats may overflow
    steps = np.rint((np.clip(np.where(missing, middle, numbers), low, high) - middle) / half * TARGET_GRID)
    steps = np.clip(steps, -TARGET_GRID, TARGET_GRID).astype(np.int32)
    return np.where(missing, NO_NUMBER, steps)


def encode_answers(schema: Schema, column: pa.Array, start: int = 0, count: ColumnCount | None = None) -> NDArray[Any]:
    """Return what is to be learnt, as `Rows` holds it: class indices uint8, or a number's targets int32. `count` counts
    them.
    """
    encode = encode_targets if schema.classes is None else encode_labels
    return encode(schema, column, start, count)


def has_answer(answers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows have an answer, of what `encode_answers` gave: whether one has depends on that row alone."""
    return np.asarray(answers != (NO_NUMBER if answers.dtype == np.int32 else NO_CLASS))


def answer_dtype(schema: Schema) -> type[np.int32] | type[np.uint8]:
    """Return the type of what `encode_answers` gives."""
    return np.int32 if schema.classes is None else np.uint8


def answer_feature(target: Target) -> CategoricalFeature | NumericFeature:
    """Return the public bins in which answers are counted: its classes, or ANSWER_BINS of its range, then those
    missing.
    """
    if target.classes is not None:
        return CategoricalFeature(target.name, tuple(map(str, target.classes)))
    low, high = target.range or (0.0, 0.0)
    edges = dict.fromkeys(low / 2 + high / 2 + (high / 2 - low / 2) * at for at in _ANSWER_CUTS)
    return NumericFeature(target.name, tuple(edges))


def answer_codes(target: Target, answers: NDArray[Any]) -> NDArray[Any]:
    """Encode stored answers as codes of `answer_feature`."""
    feature = answer_feature(target)
    if isinstance(feature, CategoricalFeature):
        codes = answers.astype(np.uint16)
    else:
        codes = np.searchsorted(np.array(_ANSWER_CUTS) * TARGET_GRID, answers, side="left").astype(np.uint16)
    return np.where(has_answer(answers), codes, np.uint16(feature.missing)).astype(bin_dtype([feature]))


def public_part(error: Exception) -> str:
    """Return the kind of an Arrow error and its first words: Arrow quotes values of the file after them."""
    if isinstance(error, UnicodeError):
        encoding = getattr(error, "encoding", str(error).split()[0])  # of UTF-16, where it has no mark: in words alone
        return f"not {encoding.upper()}; the schema's `format` says the encoding"
    return f"{type(error).__name__} ({str(error).split(':')[0][:80]})"


def table_of(X: Any) -> pa.Table:
    """Return a pyarrow Table from a Table, a pandas DataFrame or a mapping of columns."""
    if isinstance(X, pa.Table):
        return X
    if not isinstance(X, dict) and not hasattr(X, "__arrow_c_stream__"):
        raise DataError(f"X: {type(X).__name__}; must be a pyarrow Table, a DataFrame or a mapping of columns")
    try:
        return pa.table(X)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise DataError(f"X: not columns of one length and type each ({type(error).__name__})") from None


def _label_column(y: Any) -> pa.Array:
    if isinstance(y, pa.ChunkedArray):
        return y.combine_chunks()
    try:
        return pa.array(y)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise DataError(f"y: not a column of labels of one type ({type(error).__name__})") from None


def columns_of(schema: Schema, X: Any) -> RawColumns:
    """Read raw columns for the released ensemble's own encoder from a table. DataError where a column is absent."""
    table = table_of(X)
    require_columns([feature.name for feature in schema.features], table.column_names, "in the schema but not in X")
    columns = _columns_as_written(schema, schema.features, table)
    return {feature.name: raw_values(feature, columns[feature.name].combine_chunks()) for feature in schema.features}


def _used_in_order(schema: Schema, table: pa.Table, used: Any) -> tuple[Any, Codes | None]:
    """Return which rows are used, and what each weighs, in that order; None where they have no weights."""
    if (weight := schema.weight) is None:
        return used, None
    require_columns([weight.column], table.column_names, ABSENT_WEIGHT)
    column = _columns_as_written(schema, [weight.feature], table)[weight.column].combine_chunks()
    return order_by_weight(encode_weights(weight, column), used)


def _columns_as_written(schema: Schema, features: Sequence[Feature], table: pa.Table) -> pa.Table:
    """Return a table in memory with each column as what its cells say in the form that the schema declares."""
    for feature in features:
        if (written := schema.written_as(feature.name)) != USUAL:
            place = table.schema.get_field_index(feature.name)
            column = read_as_written(feature, table[feature.name].combine_chunks(), written)
            table = table.set_column(place, feature.name, column)
    return table


def raw_values(feature: Feature, column: pa.Array, start: int = 0) -> NDArray[Any]:
    """Return a column as the released ensemble's encoder takes it: texts or floats (n,); DataError where it is
    neither, counting rows from `start`.
    """
    with _columns_of(feature.name, start):
        return read_column(feature, column)


def rows_of(schema: Schema, X: Any, y: Any, relation: Relation) -> Rows:
    """Pack the rows of a table in memory: the notebook's way in."""
    table = table_of(X)
    require_columns([feature.name for feature in schema.features], table.column_names, "in the schema but not in X")
    answers = _label_column(y)
    if len(answers) != len(table) or not len(answers):
        raise DataError(f"y: {len(answers)} labels for {len(table)} rows; as many labels as rows, and at least one")
    if schema.classes is None:
        asked = NumericFeature(schema.only.name, ())
        answers = read_as_written(asked, answers, schema.written_as(asked.name))
    labels, table = encode_answers(schema, answers), _columns_as_written(schema, schema.features, table)
    check_left_out(schema, relation)
    if relation is Relation.REPLACE_ONE and len(labels) != schema.records:
        raise DataError(
            f"records={schema.records}: under replace-one the schema's public count must be the number of rows"
        )
    bins = np.empty((len(schema.features), len(labels)), dtype=bin_dtype(schema.features))
    present, weights = _used_in_order(schema, table, has_answer(labels) if schema.only.leave_out else slice(None))
    start = 0
    for batch in table.select([feature.name for feature in schema.features]).to_batches(max_chunksize=BATCH_ROWS):
        for codes, feature in zip(bins, schema.features, strict=True):
            codes[start : start + len(batch)] = encode_column(feature, batch[feature.name], start)
        start += len(batch)
    spans = declared_ranges(schema.features, schema.ends)

    numbers = [at for at, span in enumerate(spans) if span is not None]

    def load(number: int) -> Codes:
        feature, span = schema.features[numbers[number]], spans[numbers[number]]
        assert isinstance(feature, NumericFeature)
        assert span is not None
        fine: Codes = encode_finely(feature, span, table[feature.name].combine_chunks())[1][present]
        return fine

    cells = Cells(schema.features, spans, cache(load))
    widths = [feature.bins for feature in schema.features]
    return Rows(bins[:, present], labels[present], widths, len(schema.classes or ()), cells=cells, weights=weights)
