"""The exported model at work: ONNX Runtime over checked bytes, and records of JSON turned into its inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from math import isfinite
from operator import itemgetter
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import ModelProto, TensorProto

from accountant.errors import RecordError
from accountant.system.quiet import import_quietly
from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import MISSING_TEXT, CalendarFeature, CategoricalFeature, Feature, RawColumns, encodable
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.text_numbers import NO_TEXTS, Numbers
from models.features.written import USUAL, Written
from models.onnx.check import check_graph
from models.onnx.export import BASE, CLASSES, CONTRIBUTIONS, LABEL, NUMBER, feature_name, input_name
from models.onnx.texts import numbers_of_texts
from models.parts.answers import ClassLabel

Record = Mapping[str, Any]
Feed = Mapping[str, NDArray[Any]]
TYPES = {  # of inputs, as ONNX Runtime spells them
    getattr(TensorProto, name.upper()): f"tensor({name})" for name in ("double", "float", "string", "int64", "bool")
}
FLOAT = np.dtype(np.float32)
_LARGEST = int(np.finfo(np.float64).max)
FATAL = 4  # ONNX Runtime's own log stays silent: what goes wrong is raised


class OnnxModel:
    """A checked model, ready to answer from any thread. Bytes that fail a check raise ModelInvalid.

    ONNX Runtime computes every output of a graph, asked for or not, and copies every input, read or not. So what
    predicts is a session of the same bytes without the nodes that lead to `contributions` alone and without inputs that
    no other node reads, and without the nodes that look texts up (`texts`); the whole graph is opened when
    contributions are first asked for.
    """

    def __init__(self, model_bytes: bytes) -> None:
        check_graph(model_bytes)
        self._bytes = model_bytes
        model = ModelProto.FromString(model_bytes)
        quick = _without(model, CONTRIBUTIONS)
        self.texts = {feature_name(name): numbers for name, numbers in numbers_of_texts(quick).items()}
        self._session = _session(quick.SerializeToString(deterministic=True))
        try:
            self.inputs: dict[str, str] = {
                feature_name(each.name): TYPES[each.type.tensor_type.elem_type] for each in model.graph.input
            }
            self._reads = {feature_name(each.name): each.name for each in self._session.get_inputs()}
            self.reads: list[str] = [*self._reads]
            self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
            outputs = [each.name for each in self._session.get_outputs()]
        except UnicodeDecodeError as error:
            raise ModelInvalid(f"model.onnx: names and metadata must be UTF-8 ({error})") from error
        self.classes = _classes(self.metadata)
        self._base = _base(self.metadata)
        self._outputs = list(LABEL if self.classes else NUMBER)
        if outputs != self._outputs:
            raise ModelInvalid(f"model.onnx: outputs must be {self._outputs}")

    def predict(self, columns: RawColumns) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Predict from raw columns, one per input, (n,) each: labels (n,) and probabilities (n, classes). None and NaN
        are missing.

        A model of a number has no classes: values (n,), float64, and probabilities (n, 0).
        """
        return self.infer(self._feed(columns))

    def infer(self, columns: Feed) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Predict as `predict` does, without looking at the values. For each input that it `reads`, `columns` holds
        numbers of any type or texts, which are either objects that are all str, or of fixed width, or the numbers that
        they have in `texts`.

        That is what `columns_from_records` makes.
        """
        feed = {place: columns[name][:, np.newaxis] for name, place in self._reads.items()}
        for name, numbers in self.texts.items():
            if columns[name].dtype != FLOAT:
                feed[self._reads[name]] = numbers.of(columns[name])[:, np.newaxis]
        label, *probabilities = self._session.run(self._outputs, feed)
        return (label, probabilities[0]) if self.classes else (label[:, 0], np.empty((len(label), 0), np.float32))

    def contributions(self, columns: RawColumns) -> NDArray[np.float32]:
        """Return what each feature, and each pair, adds: (n, features and pairs), in logits, or in units of the target.
        With `base` a row adds up to the logit before it bends, or to the value before it is clipped. InputError where
        the model does not tell.
        """
        feed = {input_name(name): column.reshape(-1, 1) for name, column in self._feed(columns).items()}
        [found] = self._accounts.run([CONTRIBUTIONS], feed)
        return np.asarray(found, np.float32)

    @property
    def base(self) -> float:
        """Return what contributions start from; InputError where the model does not tell what each feature adds."""
        if self._base is None:
            raise InputError("model: does not tell what each feature adds; additive ones do")
        return self._base

    @cached_property
    def _accounts(self) -> Any:
        self.base  # noqa: B018 - InputError
        session = _session(self._bytes)
        if CONTRIBUTIONS not in [each.name for each in session.get_outputs()]:
            raise ModelInvalid(f"model.onnx: has a {BASE} and no {CONTRIBUTIONS}")
        return session

    def _feed(self, columns: RawColumns) -> Feed:
        absent = self.inputs.keys() - columns.keys()
        if absent:
            raise InputError(f"columns: missing {sorted(absent)}")
        return {name: _ready(columns[name], kind) for name, kind in self.inputs.items()}


def _without(whole: ModelProto, output: str) -> ModelProto:
    """Return the same model without one of its outputs, and without the nodes and constants that lead to it alone, and
    the inputs that nothing reads then; the first input stays: it tells how many records there are.
    """
    model = ModelProto()
    model.CopyFrom(whole)
    graph = model.graph
    needed = {each.name for each in graph.output} - {output}
    kept = []
    for node in reversed(graph.node):  # in order: what a node reads stands before it
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    outputs = [each for each in graph.output if each.name != output]
    constants = [each for each in graph.initializer if each.name in needed]
    read = [each for each in graph.input if each.name in needed] or list(graph.input)[:1]
    for name in ("node", "output", "initializer", "input"):
        graph.ClearField(name)
    graph.input.extend(read)
    graph.node.extend(kept[::-1])
    graph.output.extend(outputs)
    graph.initializer.extend(constants)
    return model


def columns_from_records(
    features: Sequence[Feature],
    records: Sequence[Record],
    limit: int,
    texts: Mapping[str, Numbers] = NO_TEXTS,
    form: TableFormat = USUAL_FORMAT,
) -> dict[str, NDArray[Any]]:
    """Turn JSON records into columns (n,) for `OnnxModel.infer`, the ensemble and explanations alike. The features in
    `texts`, which belongs to one model, become the numbers that this model makes of their texts.

    Every record has exactly the features as keys; null is missing. A cell is read as the law of columns reads one of
    its type (`models.features.column_law`): of a number a finite one, of a category the text; and where `form` says how
    the column is written, as that. Raises RecordError naming the first record and field that do not fit, and with more
    than `limit` records.
    """
    if len(records) > limit:
        raise RecordError(f"records: {len(records)} are too many; at most {limit}", records=len(records), limit=limit)
    if form.columns:
        return _by_law(features, records, texts, form.of_json)
    try:
        if len(records) == 1 and len(records[0]) == len(features):
            return _columns_of_one(features, records[0], texts)
        cells = {feature.name: list(map(itemgetter(feature.name), records)) for feature in features}
        if set(map(len, records)) <= {len(features)}:
            return {f.name: _column(f, cells[f.name], texts.get(f.name)) for f in features}
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    return _by_law(features, records, texts, form)


_TYPES: dict[str, set[type]] = {
    "numeric": {int, float, type(None)},
    "boolean": {bool, type(None)},
    "categorical": {str, type(None)},
    "date": {str, type(None)},
    "datetime": {str, type(None)},
    "time": {str, type(None)},
}


def _columns_of_one(
    features: Sequence[Feature], record: Record, texts: Mapping[str, Numbers]
) -> dict[str, NDArray[Any]]:
    """Make the columns of one record, as `_column` makes them, with all numbers at once: NumPy takes as long for one as
    for a hundred.
    """
    found: dict[str, NDArray[Any]] = {}
    names, numbers = [], []
    for feature in features:
        name, kind = feature.name, feature.kind
        cell = record[name]
        if type(cell) not in _TYPES[kind]:
            raise ValueError(name)
        if kind == "categorical":
            text = cell or MISSING_TEXT
            if not text.isascii():
                text.encode()  # UnicodeEncodeError on a lone surrogate
            found[name] = texts[name].of_one(text) if name in texts else np.array([text], dtype=object)
        elif isinstance(feature, CalendarFeature):
            found[name] = feature.numbers([cell])
        elif cell is None or isfinite(cell):
            names.append(name)
            numbers.append(cell)
        else:
            raise ValueError(name)
    found.update(zip(names, np.array(numbers, np.float64).reshape(-1, 1), strict=True))
    return found


def _column(feature: Feature, cells: list[Any], known: Numbers | None) -> NDArray[Any]:
    """Return one column, checked as a whole: a look at each value alone would cost more than the model."""
    kinds = set(map(type, cells))
    if not kinds <= _TYPES[feature.kind]:
        raise ValueError(feature.name)
    some_null = type(None) in kinds
    if isinstance(feature, CategoricalFeature):
        texts = [cell or MISSING_TEXT for cell in cells] if some_null else cells
        "".join(texts).encode()  # UnicodeEncodeError (a ValueError) on a lone surrogate
        if known is None:
            return np.array(texts, dtype=object)
        return np.fromiter(map(known.known.get, texts, repeat(known.other)), np.float32, len(texts))
    if isinstance(feature, CalendarFeature):
        return feature.numbers(cells)
    numbers = np.array(cells, dtype=np.float64)
    if np.count_nonzero(np.isfinite(numbers)) != len(cells) - (cells.count(None) if some_null else 0):
        raise ValueError(feature.name)
    return numbers


def _by_law(
    features: Sequence[Feature], records: Sequence[Record], texts: Mapping[str, Numbers], form: TableFormat
) -> dict[str, NDArray[Any]]:
    """Return the columns of records with cells of other types than usual, or written in another form, as the law of
    columns reads them. Raises RecordError for the first record and field that do not fit.
    """
    odd = next((at for at, record in enumerate(records) if _odd_keys(features, record)), len(records))
    problems, columns = [], {}
    for feature in features:
        try:
            cells = [record[feature.name] for record in records[:odd]]
            columns[feature.name] = _any_column(feature, cells, texts.get(feature.name), form.written_as(feature.name))
        except RecordError as error:
            problems.append(error)
    if problems:
        raise min(problems, key=lambda error: int(error.details["record"]))
    if odd < len(records):
        raise _error(odd, *_odd_keys(features, records[odd]))
    return columns


def _any_column(feature: Feature, cells: list[Any], known: Numbers | None, written: Written) -> NDArray[Any]:
    if written == USUAL:
        with suppress(TypeError, ValueError, OverflowError):
            return _column(feature, cells, known)
    column = _read_cells(feature, cells, written)
    return column if known is None else known.of(column)


def _odd_keys(features: Sequence[Feature], record: Any) -> tuple[str, ...]:
    """Return what is wrong with a record's keys: field, value and words; () where nothing is."""
    if not isinstance(record, Mapping):
        return "", f"={short(record)}", "must be an object"
    known = {feature.name for feature in features}
    for name in sorted(known - record.keys()):
        return name, "", "is missing (null says that a value is not known)"
    for name in record.keys() - known:
        return name, "", "is not a field of this model"
    return ()


def _read_cells(feature: Feature, cells: list[Any], written: Written) -> NDArray[Any]:
    """Return one column, of JSON cells of any types: those of each type are read at once. RecordError names the first
    cell that does not fit.
    """
    from models.features.column_law import Misfit, read_column  # here alone: records of the usual types need none of it

    is_text = isinstance(feature, CategoricalFeature)
    column: NDArray[Any] = np.full(len(cells), MISSING_TEXT, object) if is_text else np.full(len(cells), np.nan)
    misfits: dict[int, str] = {}
    for kind in dict.fromkeys(map(type, cells)):
        places = [at for at, cell in enumerate(cells) if type(cell) is kind and cell is not None]
        try:
            values = read_column(feature, _cells_of_one_type(kind, [cells[at] for at in places]), written)
            column[places] = [MISSING_TEXT if text is None else text for text in values] if is_text else values
        except Misfit as misfit:
            misfits[places[misfit.row or 0]] = misfit.problem
    if misfits:
        at = min(misfits)
        raise _error(at, feature.name, f"={short(cells[at])}", misfits[at])
    return column


def _cells_of_one_type(kind: type, cells: list[Any]) -> Any:
    """Return JSON cells as an Arrow column. Raises Misfit for what no column holds."""
    import pyarrow as pa

    from models.features.column_law import Misfit

    for at, cell in enumerate(cells):
        if kind not in (str, int, float, bool):
            raise Misfit("must be a text, a number, true, false or null", at)
        if kind is str and not (cell == MISSING_TEXT or encodable(cell)):
            raise Misfit("must be Unicode", at)
        if (kind is float and not isfinite(cell)) or (kind is int and abs(cell) > _LARGEST):
            raise Misfit("must be finite", at)
    if kind is int and any(abs(cell) >= 1 << 63 for cell in cells):
        cells = [float(cell) for cell in cells]
    return pa.array(cells)


def _error(index: int, field: str, value: str, problem: str) -> RecordError:
    if not field:
        return RecordError(f"records[{index}]{value}: {problem}", record=index)
    return RecordError(f"records[{index}].{field}{value}: {problem}", record=index, field=field)


def _session(model_bytes: bytes) -> Any:
    onnxruntime = import_quietly("onnxruntime")  # with the first model: who makes or lists models runs none
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # workers, not threads, share the cores
    options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    try:
        return onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no base class, and come from a file: none may pass as another failure
        raise ModelInvalid(f"model.onnx: ONNX Runtime refuses it ({error})") from error


def _classes(metadata: Mapping[str, str]) -> tuple[ClassLabel, ...]:
    try:
        classes = json.loads(metadata[CLASSES])
    except (KeyError, ValueError) as error:
        raise ModelInvalid(f"model.onnx: metadata {CLASSES!r} must be a JSON list") from error
    if not isinstance(classes, list) or not all(isinstance(each, str | int) for each in classes):
        raise ModelInvalid(f"model.onnx: metadata {CLASSES}={short(classes)} must be a JSON list of texts or integers")
    return tuple(classes)


def _base(metadata: Mapping[str, str]) -> float | None:
    if BASE not in metadata:
        return None
    try:
        base = float(metadata[BASE])
    except ValueError as error:
        raise ModelInvalid(f"model.onnx: metadata {BASE}={short(metadata[BASE])} must be a number") from error
    if not isfinite(base):
        raise ModelInvalid(f"model.onnx: metadata {BASE}={base}: must be finite")
    return base


def _ready(values: ArrayLike, kind: str) -> NDArray[Any]:
    if kind != "tensor(string)":
        return np.asarray(values, dtype=np.float64)
    texts = np.asarray(values, dtype=object)
    if set(map(type, texts.tolist())) <= {str}:
        return texts
    return np.array([MISSING_TEXT if text is None or text != text else str(text) for text in texts], dtype=object)
