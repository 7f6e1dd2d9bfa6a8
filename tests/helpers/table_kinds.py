"""One made-up table in every kind of file, as people would write it there, each with the `format` that says how."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from pyarrow import ipc
from workbooks import write_ods, write_workbook

from models.features.written import Form
from training.rows.sources.sql import spool_query

TOWNS = ["Bonn", "Köln", "São Paulo", "a, b", 'say "x"', "two\nlines", "7"]
NAMES = ["lab", "count", "ill", "town", "born", "seen", "at", "note", "2024", "y"]
SCHEMA = {
    "target": {"name": "y", "classes": ["no", "yes"]},
    "features": {
        "lab": {"type": "numeric", "range": [-50, 50], "bins": 60},
        "count": {"type": "numeric", "range": [0, 1000], "bins": 100},
        "ill": {"type": "boolean"},
        "town": {"type": "categorical", "values": TOWNS},
        "born": {"type": "date", "range": ["1950-01-01", "2020-01-01"], "bins": 50},
        "seen": {"type": "datetime", "range": ["2024-01-01T00:00:00", "2024-12-31T00:00:00"], "bins": 50},
        "at": {"type": "time", "range": ["00:00", "23:59"], "bins": 24},
        "2024": {"type": "numeric", "range": [0, 1], "bins": 10},
    },
    "ignore": ["note"],
}
Row = list[Any]
World = tuple[Path, dict[str, Any]]  # where it lies, and its `format`


def make_rows(seed: int) -> list[Row]:
    """Rows of cells of Python, a tenth of them None."""
    draw = random.Random(seed)
    makers: list[Callable[[], Any]] = [
        lambda: round(draw.gauss(0, 20), draw.choice([0, 1, 3])), lambda: draw.randint(0, 999),
        lambda: draw.random() < 0.5, lambda: draw.choice(TOWNS),
        lambda: date(1950, 1, 1) + timedelta(draw.randint(0, 25_000)),
        lambda: datetime(2024, 1, 1) + timedelta(seconds=draw.randint(0, 31_000_000)),
        lambda: time(draw.randint(0, 23), draw.randint(0, 59), draw.randint(0, 59)),
        lambda: draw.choice(["seen twice", "", "0", "x" * 50]), lambda: draw.choice([0, 0.25, 1]),
    ]  # fmt: skip
    return [
        [*(None if draw.random() < 0.1 else make() for make in makers), draw.choice(["no", "yes"])]
        for _ in range(draw.choice([1, 3, 40]))
    ]


def write_kinds(seed: int, folder: Path) -> Iterator[World]:
    """Write the table of a seed in every kind of file, each in a folder of its own."""
    draw, rows = random.Random(f"kinds {seed}"), make_rows(seed)
    for at, write in enumerate((*_TYPED, *_texts(draw))):
        place = folder / str(at)
        place.mkdir(parents=True)
        yield write(place, rows)


def _parquet(place: Path, rows: Sequence[Row]) -> World:
    pq.write_table(_table(rows), place / "rows.parquet", row_group_size=7)
    return place / "rows.parquet", {}


def _feather(place: Path, rows: Sequence[Row]) -> World:
    pyarrow.feather.write_feather(_table(rows), str(place / "rows.feather"))
    return place / "rows.feather", {}


def _stream(place: Path, rows: Sequence[Row]) -> World:
    with ipc.new_stream(place / "rows.arrow", _table(rows).schema) as writer:
        writer.write_table(_table(rows), max_chunksize=5)
    return place / "rows.arrow", {}


def _drifting(place: Path, rows: Sequence[Row]) -> World:
    """A folder of two files, of which each column has the type that pandas or Spark would take for its part."""
    table = _table(rows)
    kinds = {"count": pa.float64(), "town": pa.dictionary(pa.int32(), pa.string()), "seen": pa.timestamp("ns")}
    kinds |= {"2024": pa.decimal128(5, 2)}
    drifted = table
    for name, kind in kinds.items():
        at = drifted.schema.get_field_index(name)
        column = pa.array(drifted[name].to_pylist(), kind.value_type if pa.types.is_dictionary(kind) else None)
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        drifted = drifted.set_column(at, name, column)
    cut = len(rows) // 2
    pq.write_table(table.slice(0, cut), place / "0.parquet")
    pq.write_table(drifted.slice(cut), place / "1.parquet")
    return place, {}


def _workbook(place: Path, rows: Sequence[Row]) -> World:
    cells = [[*map(_of_sheet, row)] for row in rows]
    return write_workbook(place / "rows.xlsx", {"notes": [], "rows": [NAMES, *cells]}), {}


def _titled_workbook(place: Path, rows: Sequence[Row]) -> World:
    cells = [[*map(_of_sheet, row)] for row in rows]
    titles = [["A title"], [None], NAMES]
    path = write_workbook(place / "rows.xlsm", {"a": [[1]], "b": [*titles, *cells, ["Total", 1]]})
    return path, {"sheet": "b", "skip": 2, "skip_rows": ["Total"]}


def _opendocument(place: Path, rows: Sequence[Row]) -> World:
    cells = [[*map(_of_sheet, row)] for row in rows]
    return write_ods(place / "rows.ods", {"notes": [], "rows": [[None], [f"{NAMES[0]}\n", *NAMES[1:]], *cells]}), {
        "skip": 1
    }


def _of_sheet(cell: Any) -> Any:
    return cell if cell != "" else None


def _lines(place: Path, rows: Sequence[Row]) -> World:
    (place / "rows.jsonl").write_bytes(_json_lines(rows))
    return place / "rows.jsonl", {}


def _packed_lines(place: Path, rows: Sequence[Row]) -> World:
    (place / "rows.ndjson.gz").write_bytes(gzip.compress(_json_lines(rows, absent=True)))
    return place / "rows.ndjson.gz", {}


def _list(place: Path, rows: Sequence[Row]) -> World:
    listed = [json.loads(line) for line in _json_lines(rows).splitlines()]
    (place / "rows.json").write_text(json.dumps(listed, indent=2, ensure_ascii=False), "utf-8")
    return place / "rows.json", {}


def _json_lines(rows: Sequence[Row], absent: bool = False) -> bytes:
    records = [dict(zip(NAMES, map(_text_of_day, row), strict=True)) for row in rows]
    if absent:  # a field that is not there is missing; of the first the names are known
        records = [*records[:1], *({k: v for k, v in record.items() if v is not None} for record in records[1:])]
    return "".join(json.dumps(record, ensure_ascii=absent) + "\n" for record in records).encode()


def _database(place: Path, rows: Sequence[Row]) -> World:
    _sqlite(place, rows)
    return (place / "rows.sqlite").rename(place / "rows"), {}


def _sqlite(place: Path, rows: Sequence[Row]) -> World:
    listed = ", ".join(f'"{name}"' for name in NAMES)
    with closing(sqlite3.connect(place / "rows.sqlite")) as base:
        base.execute(f"create table seen ({listed})")
        marks = ", ".join("?" * len(NAMES))
        base.executemany(f"insert into seen values ({marks})", [[*map(_text_of_day, row)] for row in rows])
        base.execute("alter table seen add column picture blob")
        base.execute("update seen set picture = x'00ff'")
        base.commit()
    url, ignored = f"sqlite:///{place / 'rows.sqlite'}", {"note", "picture"}
    with spool_query(url, None, "seen", Form(), place / "spool", ignores=ignored.__contains__) as path:
        (place / "answer.csv").write_bytes(path.read_bytes())
    return place / "answer.csv", {}


_TYPED = (
    _parquet, _feather, _stream, _drifting, _workbook, _titled_workbook, _opendocument, _lines, _packed_lines, _list,
    _sqlite, _database,
)  # fmt: skip


def _texts(draw: random.Random) -> Iterator[Callable[[Path, Sequence[Row]], World]]:
    """Writers of text as it may be cut: three by chance, one of each way of packing, whatever the name says."""
    for ending, pack in (
        (".csv", lambda raw: raw), (".txt.gz", gzip.compress), (".zip", _zip), (".csv.zst", _zstd),
        (draw.choice([".csv", ".csv.gz", ".data"]), draw.choice([_zip, gzip.compress, _zstd, lambda raw: raw])),
    ):  # fmt: skip
        form = {
            "delimiter": draw.choice(["comma", "semicolon", "tab", "pipe"]),
            "encoding": draw.choice(["utf-8", "utf-16", "cp1252"]), "skip": draw.choice([0, 0, 2]),
            "decimal": draw.choice([".", ","]), "dates": [draw.choice(["YYYY-MM-DD", "DD.MM.YYYY"])],
        }  # fmt: skip
        end = draw.choice(["\n", "\r\n"])

        def write(place: Path, rows: Sequence[Row], ending=ending, pack=pack, form=form, end=end) -> World:  # type: ignore[no-untyped-def]
            out = io.StringIO(newline="")
            mark = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}[form["delimiter"]]
            out.write(("A title" + end) * form["skip"])
            writer = csv.writer(out, delimiter=mark, lineterminator=end)
            writer.writerows([[f" {name}\u200b" if name == "lab" else name for name in NAMES]])
            writer.writerows([[_text(cell, form) for cell in row] for row in rows])
            path = place / f"rows{ending}"
            path.write_bytes(pack(out.getvalue().replace("\u200b", "" if form["encoding"] == "cp1252" else "\u200b")
                                  .encode(form["encoding"])))  # fmt: skip
            return path, form

        yield write


def _zip(raw: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a folder/", b"")
        archive.writestr("__MACOSX/._rows.csv", b"\0")
        archive.writestr("a folder/rows.csv", raw)
    return out.getvalue()


def _zstd(raw: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(raw).to_pybytes())


def _text(cell: Any, form: dict[str, Any]) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return repr(cell).replace(".", form["decimal"])
    if isinstance(cell, date):
        day = cell.strftime("%d.%m.%Y" if form["dates"] == ["DD.MM.YYYY"] else "%Y-%m-%d")
        return f"{day} {cell:%H:%M:%S}" if isinstance(cell, datetime) else day
    return str(cell)


def _text_of_day(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, date | time) else cell


def _table(rows: Sequence[Row]) -> pa.Table:
    kinds = [pa.float64(), pa.int64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.time64("us"),
             pa.string(), pa.float64(), pa.string()]  # fmt: skip
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(column, k) for n, column, k in zip(NAMES, columns, kinds, strict=True)})
