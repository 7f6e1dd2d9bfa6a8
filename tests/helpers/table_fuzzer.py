"""Tables and schemas as people have them, and worse: made by a seed and a number, so that each can be made again."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from models.features.written import list_encodings

NAMES = [
    "age", "y", "", " ", "a b", "value", "label", "probabilities", "constructor", "0", "12", "a.b", "a[0]", "a\nb",
    '"', "'", "ä", "Город", "性别", "العمر", "😀", "id", "patient_id", "NA", "null", "true", "1.5", "2024-01-01",
    "p_yes", "records", "features", "{{x}}", "<b>", "a,b", "a;b", "#", "x" * 300, "\u00a0", "e\u0301", "=1+1",
    "other", "missing", "__proto__", "a:b", "- a", "\u200f",
]  # fmt: skip
WORDS = [
    "yes", "no", "a", "b", "", " a", "a ", "ä", "Москва", "北京", "NA", "null", "None", "?", ".", "-", "1", "1.0",
    "010", "1e3", "1_0", "0x10", "1:30", "true", "TRUE", "ja", "нет", "T", "😀", "=1+1", '"', "a,b", "a;b", "a\nb",
    "a\rb", "x" * 500, "\u00a0", "e\u0301", "other", "\x00", "\x07",
]  # fmt: skip
NUMBERS = [
    "1", "-1", "0", "1.5", "1,5", "1,234", "1.234,5", "1 234", "1\u00a0234", "1'234", "1e5", "1e400", "-0", "nan",
    "inf", "-inf", "NA", "", " 3 ", "7 mg", "5%", "$3", "१२", "0x1", "1_000", "9" * 30, "-9", "7777", "+4", ".5",
    "5.", "#N/A", "1e-400", "00012", "5-", "(5)", "($ 5.00)", "- 5", "1,23,456.00", "-5 %",
]  # fmt: skip
DATES = [
    "2024-01-31", "31.01.2024", "01/31/2024", "31/01/2024", "2024/01/31", "20240131", "2024-02-30", "0001-01-01",
    "9999-12-31", "2024-01-31T12:00:00", "2024-01-31 12:00:00.123456789", "2024-01-31T23:59:59+14:00",
    "9999-12-31T23:59:59-05:00", "12:30", "24:00", "12:30:61", "14-Mar-2014", "", "NaT", "01/02/14",
    "03042021", "31-JAN-24 12.30.00.000000 PM", "31JAN2024:12:30:00", "3 lutego 2021", "3 февраля 2021 г.",
]  # fmt: skip
TYPES = [
    pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(),
    pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()), pa.decimal128(10, 2), pa.decimal256(50, 3), pa.date32(), pa.date64(),
    pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "America/New_York"),
    pa.time32("s"), pa.time64("ns"), pa.duration("s"), pa.null(), pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.binary(3), pa.month_day_nano_interval(),
    pa.uuid(), pa.bool8(), pa.json_(), pa.binary_view(), pa.large_list(pa.string()),
    pa.run_end_encoded(pa.int32(), pa.string()), pa.decimal32(5, 1),
]  # fmt: skip
ODD = [
    None, True, False, 0, 1, -1, 1.5, float("inf"), float("nan"), 10**30, "", "x", "FILL-IN", [], {}, [None],
    [1, 2], ["a", "a"], ["a", 1], [[1]], {"a": 1}, "1" * 5000, "\ud800", "\x00", "2024-01-01", ["no", "yes"],
    [0, 1], [1, 0], [0.1, 0.2], -1e308,
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A file or folder of rows, and a schema for it, which may fit."""

    data: Path
    schema: Path
    unit: str  # of privacy: mostly each record


class TableFuzzer:
    """Cases by their numbers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def case(self, number: int, folder: Path) -> Case:
        """Write the case of this number into a folder of its own."""
        draw = random.Random(f"{self.seed}:{number}")
        folder.mkdir()
        calm = draw.random() < 0.5  # what is refused at once finds little
        columns = _columns(draw, calm)
        typed = draw.random() < 0.3
        data, form = _typed_file(draw, columns, folder), {}
        if not typed:
            shutil.rmtree(folder)
            folder.mkdir()
            data, form = _text_file(draw, columns, folder, calm)
        if draw.random() < 0.1 and data.is_file() and not calm:
            data.write_bytes(_harmed(draw, data.read_bytes()))
        schema = folder / "schema.yaml"
        body = _schema(draw, columns, form if calm or draw.random() < 0.5 else None)
        for _ in range(0 if calm else draw.choice([0, 1, 1, 3])):
            _change(draw, body)
        raw = json.dumps(body, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1])).encode(
            "utf-8", "surrogatepass"
        )
        schema.write_bytes(_harmed(draw, raw) if draw.random() < 0.1 and not calm else raw)
        unit = draw.choice(columns).name.strip() if draw.random() < 0.1 else ""
        return Case(data, schema, unit or "record")


@dataclass(frozen=True)
class _Column:
    name: str
    kind: str  # numeric, categorical, boolean, date, or y: what decides
    words: Sequence[str]
    cells: Sequence[str]


def _columns(draw: random.Random, calm: bool) -> list[_Column]:
    """Some columns, the last one the answer; in a calm table whatever is printable may be a name, and the cells fit."""
    rows, columns = draw.choice([30, 200] if calm else [0, 1, 2, 30, 30, 200]), []
    odd = 0 if calm else draw.choice([0, 0, 0.02, 0.5])
    names, listed = NAMES, WORDS
    if calm:
        names, listed = ([word for word in words if _is_calm(word)] for words in (NAMES, WORDS))
        names = draw.sample(names, 6)
    for _ in range(draw.randint(1, 5)):
        kind = draw.choice(["numeric", "categorical", "boolean", "date"])
        name = names.pop() if calm else draw.choice(names)
        name = name if draw.random() < 0.3 else draw.choice("abcdefgh") + str(draw.randint(0, 9999))
        words = draw.sample(listed, draw.randint(1, 4)) if draw.random() < 0.5 else ["low", "mid", "high"]
        sound: Callable[[], str] = {
            "numeric": lambda: str(draw.randint(0, 100)),
            "categorical": lambda words=words: draw.choice(words),  # type: ignore[misc]
            "boolean": lambda: draw.choice(["true", "false"]),
            "date": lambda: f"2024-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        }[kind]
        pool = {"numeric": NUMBERS, "date": DATES}.get(kind, WORDS)
        cells = [draw.choice(pool) if draw.random() < odd else sound() for _ in range(rows)]
        columns.append(_Column(name, kind, words, cells))
    classes = draw.choice([["no", "yes"], ["no", "yes"], ["0", "1"], draw.sample(listed, 3)])
    answers = [draw.choice(classes) for _ in range(rows)]
    return [*columns, _Column("y" if draw.random() < 0.2 else names[0], "y", classes, answers)]


def _is_calm(word: str) -> bool:
    return word.isprintable() and 0 < len(word) < 100 and word == word.strip() and not word.startswith("/")


def _text_file(
    draw: random.Random, columns: Sequence[_Column], folder: Path, calm: bool
) -> tuple[Path, dict[str, str]]:
    """A .csv, packed or not, or a folder of two; and what `format` says of it."""
    delimiter = draw.choice([*(",,;\t|" if calm else ",,,,;\t| :")])
    end = draw.choice(["\n", "\n", "\r\n", "\r"])
    quotes = calm or draw.random() < 0.7

    def line(cells: Sequence[str]) -> str:
        shown = [
            '"' + cell.replace('"', '""') + '"' if quotes and any(c in cell for c in f'{delimiter}"\r\n') else cell
            for cell in cells
        ]
        blank = " " if draw.random() < 0.02 and not calm else ""
        return (delimiter + blank).join(shown) + (delimiter if draw.random() < 0.002 and not calm else "") + end

    head = line([column.name for column in columns]) if calm or draw.random() < 0.9 else ""
    lines = [line(row) for row in zip(*(column.cells for column in columns), strict=True)]
    if draw.random() < 0.05 and not calm:
        lines.insert(draw.randint(0, len(lines)), draw.choice([end, "x" + end, '"' + end, f"sep={delimiter}" + end]))
    encoding = draw.choice([*["utf-8"] * 8, "utf-8-sig", "cp1252", "utf-16", *draw.sample(list_encodings(), 2)])
    raw = (head + "".join(lines)).encode(encoding, "replace")
    declared = {"delimiter": delimiter if delimiter in ",;\t|" else ",", "encoding": encoding}
    form = draw.choice([".csv"] * 15 + [".csv.gz", ".csv.zst", "folder", ".tsv", ".txt", ".data", ".CSV"])
    if form == "folder":
        (folder / "rows").mkdir()
        (folder / "rows" / "1.csv").write_bytes(raw)
        (folder / "rows" / "2.csv").write_bytes(
            head.encode(draw.choice([encoding, "utf-8"]), "replace") + raw[len(raw) // 2 :]
        )
        return folder / "rows", declared
    packed = {".csv.gz": gzip.compress, ".csv.zst": lambda raw: pa.Codec("zstd").compress(raw).to_pybytes()}.get(form)
    path = folder / f"rows{form}"
    path.write_bytes(packed(raw) if packed else raw)
    return path, declared


def _typed_file(draw: random.Random, columns: Sequence[_Column], folder: Path) -> Path:
    """Parquet or Arrow, each column as texts or in any type."""
    arrays, names = [], []
    for column in columns:
        kind = draw.choice(TYPES) if draw.random() < 0.4 else pa.string()
        if column.kind == "numeric" and draw.random() < 0.8:
            kind = pa.float64()
        arrays.append(array_of(draw, kind, column.cells))
        names.append(column.name)
    table = pa.Table.from_arrays(arrays, names=names)
    form = draw.choice([".parquet", ".parquet", ".arrow", ".feather", ".ipc"])
    path = folder / f"rows{form}"
    if form == ".parquet":
        try:
            pq.write_table(table, path)
            return path
        except (pa.ArrowException, NotImplementedError):
            path = folder / "rows.arrow"
    writer = draw.choice([ipc.new_stream, ipc.new_file])
    with writer(path, table.schema) as out:
        out.write_table(table)
    return path


def array_of(draw: random.Random, kind: pa.DataType, cells: Sequence[str]) -> pa.Array:
    """The cells in this type, where they can be, or else others."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.array([None if draw.random() < 0.05 else cell for cell in cells], pa.string()).cast(kind)
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return pa.array(cells, pa.string()).dictionary_encode().cast(kind) if len(set(cells)) < 100 else pa.array(cells)
    values = [_value(draw, kind) for _ in cells]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.nulls(len(cells), kind)


def _value(draw: random.Random, kind: pa.DataType) -> Any:
    if draw.random() < 0.05:
        return None
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_float16(kind):
        return np.float16(draw.randint(0, 100))
    if pa.types.is_floating(kind):
        return draw.choice([float(draw.randint(0, 100)), draw.random(), float("nan"), float("inf"), 1e300])
    if pa.types.is_decimal(kind):
        return decimal.Decimal(draw.randint(0, 9999)) / 100
    if pa.types.is_date(kind):
        return datetime.date(draw.choice([1, 1969, 2024, 9999]), 1, 31)
    if pa.types.is_timestamp(kind):
        return datetime.datetime(draw.choice([1700, 2024, 2200]), 1, 31, 12, 30)
    if pa.types.is_time(kind):
        return datetime.time(draw.randint(0, 23), 30)
    if pa.types.is_duration(kind):
        return datetime.timedelta(draw.randint(0, 100))
    if pa.types.is_list(kind):
        return [1, 2]
    if pa.types.is_struct(kind):
        return {"a": 1}
    if pa.types.is_map(kind):
        return [("a", 1)]
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return draw.choice([b"abc", b"\xff\x00\x01"])
    return draw.choice([0, 1, 2, 100])


def _schema(draw: random.Random, columns: Sequence[_Column], form: dict[str, str] | None) -> Any:
    """A schema that fits where `form` is said; None: it declares anything."""
    answer = columns[-1]
    features: dict[str, Any] = {}
    for column in columns[:-1]:
        features[column.name] = {
            "numeric": {"type": "numeric", "range": [0, 100], "bins": draw.choice([2, 8, 32])},
            "categorical": {"type": "categorical", "values": list(column.words)},
            "boolean": {"type": "boolean"},
            "date": {"type": "date", "range": ["2024-01-01", "2024-12-31"]},
        }[column.kind]
    body: dict[str, Any] = {
        "target": {"name": answer.name, "classes": list(answer.words)},
        "records": draw.choice([30, 200, 1000]),
        "features": features,
        "missing": "own-bin",
    }
    if form:
        body["format"] = form
    elif form is None and draw.random() < 0.3:
        body["format"] = draw.choice([
            {"delimiter": draw.choice(["comma", "semicolon", "tab", "pipe"])},
            {"encoding": draw.choice(list_encodings())}, {"missing_words": ["?"]},
            {"decimal": ","}, {"decimal": "either"}, {"thousands": ","}, {"dates": ["DD.MM.YYYY"]},
            {"true_words": ["ja"], "false_words": ["nein"]},
        ])  # fmt: skip
    if draw.random() < 0.2:
        body["ignore"] = draw.sample(NAMES, 2)
    if draw.random() < 0.1:
        body["groups"] = {"g": draw.choice(list(features.values()))}
    if draw.random() < 0.1:
        body["targets"] = {body["target"].pop("name"): body.pop("target")}
    return body


def _change(draw: random.Random, body: Any) -> None:
    """Put something odd into one place, take one out, or give one another name."""
    place: Any = body
    while True:
        keys = [*place] if isinstance(place, dict) else [*range(len(place))]
        if not keys:
            return
        key = draw.choice(keys)
        deeper = place[key]
        if isinstance(deeper, dict | list) and deeper and draw.random() < 0.7:
            place = deeper
            continue
        how = draw.random()
        if how < 0.6:
            place[key] = draw.choice([*ODD, *WORDS, *NUMBERS, *DATES])
        elif how < 0.8:
            del place[key]
        elif isinstance(place, dict):
            place[draw.choice(NAMES)] = place.pop(key)
        else:
            place.append(draw.choice(ODD))
        return


def _harmed(draw: random.Random, raw: bytes) -> bytes:
    """Some bytes changed, cut off, or put in."""
    harmed = bytearray(raw)
    for _ in range(draw.randint(1, 5)):
        at = draw.randint(0, len(harmed))
        how = draw.random()
        if how < 0.4 and at < len(harmed):
            harmed[at] = draw.randrange(256)
        elif how < 0.6:
            del harmed[at:]
        elif how < 0.8:
            harmed[at:at] = draw.choice([b"\0", b"\xff", b'"', b"\n", b"\r", b",", b"\xef\xbb\xbf", b"&a ", b"*a"])
        else:
            del harmed[at : at + draw.randint(1, 20)]
    return bytes(harmed)
