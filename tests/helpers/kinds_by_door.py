"""One table in every kind of file that people bring, and what each door makes of it.

    PYTHONPATH=.:tests/helpers python tests/helpers/kinds_by_door.py

prints kind by door: `read` as meant, `asked` where a person chooses first, `refused`, or WRONG. All doors read by what
the draft of the file alone proposes, filled in with what is publicly known.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import yaml
from pyarrow import ipc
from workbooks import Formula, write_ods, write_workbook

from dpserve_verify.errors import DpserveError
from serving.wire import csv_tables
from training.datasets import one_file
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import columns_of
from training.rows.tables.row_files import read_columns

NAMES, TOWNS, ROWS = ["amount", "ill", "town", "day", "y"], ["Ulm", "Köln", "Bern"], 24
FIRST, AMOUNTS = date(2019, 1, 28), [-1234.5, 12.25, 7.5, 0.5, 98765.25, 1050.75, 3.0, -20.25]
TABLE = [
    (AMOUNTS[at % 8] + at // 8, at % 3 == 0, TOWNS[at % 3], FIRST + timedelta(17 * at), ["no", "yes"][at % 2])
    for at in range(ROWS)
]  # fmt: skip
PUBLIC: Mapping[str, Mapping[str, Any]] = {
    "amount": {"type": "numeric", "range": [-100_000, 100_000]}, "ill": {"type": "boolean"},
    "town": {"type": "categorical", "values": TOWNS}, "day": {"type": "date", "range": ["2000-01-01", "2030-01-01"]},
}  # fmt: skip
Says = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Kind:
    """A file. `chosen`: by column, what a person answers where the draft asks; `absent`: by column, in which row is
    nothing; `refused`: no door reads it.
    """

    name: str
    raw: bytes
    chosen: Says = field(default_factory=dict)
    absent: Mapping[str, int] = field(default_factory=dict)
    refused: bool = False


def text(
    delimiter: str = ",", end: str = "\n", quote: str = "", head: Sequence[str] = NAMES, before: str = "",
    after: str = "", encoding: str = "utf-8", **spell: Callable[[Any], str],
) -> bytes:  # fmt: skip
    """Write the table as a text; `spell`: how cells of a column are written."""
    usual = {"ill": lambda ill: "true" if ill else "false"}
    lines = [
        head,
        *([(spell.get(n) or usual.get(n, str))(c) for n, c in zip(NAMES, row, strict=True)] for row in TABLE),
    ]
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=delimiter[0], lineterminator=end, quoting=quoting).writerows(lines)
    body = out.getvalue().replace(delimiter[0], delimiter) if len(delimiter) > 1 else out.getvalue()
    return (before + body + after).encode(encoding)


def number(
    mark: str = ".", between: str = "", unit: str = "", first: bool = False, minus: str = "-{}"
) -> Callable[[float], str]:
    """Return what writes numbers with a mark before the fraction, between thousands, and a unit."""

    def write(value: float) -> str:
        plain = f"{abs(value):,.2f}".replace(".", "\0").replace(",", between).replace("\0", mark)
        plain = f"{unit}{plain}" if first else f"{plain}{unit}"
        return minus.format(plain) if value < 0 else plain

    return write


def words(yes: str, no: str) -> Callable[[bool], str]:
    return lambda ill: yes if ill else no


def days(pattern: str) -> Callable[[date], str]:
    return lambda day: day.strftime(pattern)


def without(column: str, word: str, row: int = 3) -> Callable[[Any], str]:
    """Return what writes a word for nothing in one row."""
    value, at = TABLE[row][NAMES.index(column)], []

    def write(cell: Any) -> str:
        at.append(cell)
        return word if len(at) == row + 1 and cell == value else str(cell)

    return write


def month(day: date) -> str:
    names = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
    return f"{day.day} {names.split()[day.month - 1]} {day.year}"


def digits(zero: str) -> Callable[[Any], str]:
    return lambda cell: str(cell).translate({ord("0") + at: chr(ord(zero) + at) for at in range(10)})


def typed(**more: pa.Array) -> pa.Table:
    return pa.table({**{name: [*cells] for name, cells in zip(NAMES, zip(*TABLE, strict=True), strict=True)}, **more})


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(table: pa.Table, new: Any = ipc.new_file) -> bytes:
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def records(wrap: bool = False, **more: Any) -> bytes:
    listed = [{**dict(zip(NAMES, row, strict=True)), "day": row[3].isoformat(), **more} for row in TABLE]
    return json.dumps(listed).encode() if wrap else "".join(json.dumps(each) + "\n" for each in listed).encode()


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, raw in members.items():
            file.writestr(name, raw)
    return out.getvalue()


def book(write: Any, ending: str, *above: Sequence[Any], odd: Any = None, sheets: int = 1) -> bytes:
    rows = [*above, NAMES, *map(list, TABLE)]
    rows[-1][0] = rows[-1][0] if odd is None else odd
    with tempfile.TemporaryDirectory() as folder:
        return Path(write(Path(folder) / f"a{ending}", {f"s{at}": rows for at in range(sheets)})).read_bytes()


def database(*tables: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as base:
        for name in tables:
            base.execute(f'create table "{name}" (amount real, ill int, town text, day text, y text, pic blob)')
            rows = [(row[0], row[1], row[2], row[3].isoformat(), row[4], b"\0") for row in TABLE]
            base.executemany(f'insert into "{name}" values (?, ?, ?, ?, ?, ?)', rows)
        base.commit()
        return base.serialize()


def zstd(raw: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(raw).to_pybytes())


def feather() -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.feather.write_feather(typed(), sink)
    return sink.getvalue().to_pybytes()


LONG = [*NAMES[:4], "y", "note"]
HEADED = ["", *NAMES]


def indexed(delimiter: str = ",") -> bytes:
    return "".join(
        f"{at or ''}{delimiter}{line}\n" for at, line in enumerate(text(delimiter).decode().splitlines())
    ).encode()


NOTE = {"missing_words": ["(1)"]}
DAY_FIRST = {"written": ["DD/MM/YYYY"]}
KINDS: dict[str, Kind] = {
    # cut in other ways
    "commas": Kind("a.csv", text()),
    "semicolons": Kind("a.csv", text(";")),
    "tabs": Kind("a.tsv", text("\t")),
    "pipes": Kind("a.txt", text("|")),
    "a comma and a blank": Kind("adult.data", text(", ")),
    "blanks": Kind("a.txt", text(" ", town=lambda town: town)),
    "all in quotes": Kind("a.csv", text(quote='"')),
    "sep= of Excel": Kind("a.csv", text(";", before="sep=;\n")),
    "ends of Windows": Kind("a.csv", text(end="\r\n")),
    "ends of an old Mac": Kind("a.csv", text(end="\r")),
    "no last end": Kind("a.csv", text().rstrip(b"\n")),
    "an index without a name": Kind("a.csv", indexed()),
    "a comma at each end": Kind("a.csv", text(end=",\n")),
    "a title above": Kind("a.csv", text(before="Visits of 2019,,,,\n,,,,\n")),
    "empty lines between": Kind("a.csv", text(end="\n\n")),
    "a mark of bytes": Kind("a.csv", text(encoding="utf-8-sig")),
    "UTF-16": Kind("a.csv", text(encoding="utf-16")),
    "UTF-16 without a mark": Kind("a.csv", text(encoding="utf-16-le")),
    "Windows' letters": Kind("a.csv", text(encoding="cp1252")),
    "China's letters": Kind("a.csv", text(encoding="gb18030"), {"": {"encoding": "gb18030"}}),
    "a line's end in a name": Kind("a.csv", text(head=["amount", "ill", '"town"'.strip('"'), "day\n", "y"])),
    # other names, and packed
    "adult.test": Kind("adult.test", text()),
    "no ending": Kind("rows", text()),
    "gzip": Kind("a.csv.gz", gzip.compress(text())),
    "gzip called .csv": Kind("a.csv", gzip.compress(text())),
    "zstd": Kind("a.csv.zst", zstd(text())),
    "zip": Kind("a.zip", archive(**{"b.csv": text()})),
    "text called .csv.gz": Kind("a.csv.gz", text()),
    "Parquet called .csv": Kind("a.csv", parquet(typed())),
    "a workbook called .csv": Kind("a.csv", book(write_workbook, ".xlsx")),
    # numbers
    "a comma before the fraction": Kind("a.csv", text(";", amount=number(","))),
    "a comma between thousands": Kind("a.csv", text(";", amount=number(".", ","))),
    "a point between thousands": Kind("a.csv", text(";", amount=number(",", "."))),
    "blanks between thousands": Kind("a.csv", text(";", amount=number(",", "\u202f"))),
    "apostrophes between thousands": Kind("a.csv", text(amount=number(".", "'"))),
    "per cents": Kind("a.csv", text(amount=number(unit=" %"))),
    "euros behind": Kind("a.csv", text(";", amount=number(",", ".", " €"))),
    "dollars before": Kind("a.csv", text(amount=number(".", ",", "$", True))),
    "kilograms": Kind("a.csv", text(amount=number(unit=" kg"))),
    "a true minus": Kind("a.csv", text(amount=number(minus="\u2212{}"))),
    "a minus behind": Kind("a.csv", text(amount=number(minus="{}-"))),
    "brackets of accounts": Kind("a.csv", text(amount=number(minus="({})"))),
    "a minus apart": Kind("a.csv", text(amount=number(minus="- {}"))),
    "Arabic digits": Kind("a.csv", text(amount=digits("٠"))),
    "digits of full width": Kind("a.csv", text(amount=digits("０"))),
    "Hindi digits": Kind("a.csv", text(amount=digits("०"))),
    "powers of ten": Kind("a.csv", text(amount=lambda v: f"{v:.6e}")),
    "a note of the foot": Kind("a.csv", text(amount=without("amount", "(1)")), {"amount": NOTE}, {"amount": 3}),
    # days
    "days with points": Kind("a.csv", text(day=days("%d.%m.%Y"))),
    "the day first": Kind("a.csv", text(day=days("%d/%m/%Y"))),
    "the month first": Kind("a.csv", text(day=days("%m/%d/%Y"))),
    "months by name": Kind("a.csv", text(day=days("%d-%b-%Y"))),
    "French months": Kind("a.csv", text(day=month)),
    "days in digits alone": Kind("a.csv", text(day=days("%Y%m%d")), {"day": {"written": ["YYYYMMDD"]}}),
    "years of two digits": Kind(
        "a.csv", text(day=days("%d.%m.%y")), {"day": {"written": ["DD.MM.YY"], "first_year": 1950}}
    ),
    "days with a time": Kind("a.csv", text(day=days("%Y-%m-%d 00:00:00"))),
    "days in Arabic digits": Kind("a.csv", text(day=digits("٠"))),
    "either may be the day": Kind(
        "a.csv", text(day=lambda day: f"0{day.day % 9 + 1}/0{day.month % 9 + 1}/2020"), {"day": DAY_FIRST}, {"day": -1}
    ),
    # yes and no
    **{
        f"{yes} and {no}": Kind("a.csv", text(ill=words(yes, no)))
        for yes, no in (
            ("T", "F"),
            ("Y", "N"),
            ("ja", "nein"),
            ("oui", "non"),
            ("sí", "no"),
            ("да", "нет"),
            ("WAHR", "FALSCH"),
            ("是", "否"),
            ("1", "0"),
            ("١", "٠"),
        )
    },
    "a third answer": Kind(
        "a.csv",
        text(ill=without("ill", "N")).replace(b"True", b"T").replace(b"False", b"F"),
        {"ill": {"type": "boolean", "true_words": ["T"], "false_words": ["F"], "missing_words": ["N"]}},
        {"ill": 3},
    ),
    # nothing
    **{
        f"{word or 'nothing'} for nothing": Kind("a.csv", text(amount=without("amount", word)), {}, {"amount": 3})
        for word in ("", "NA", "?", "-", "n/a", "NULL", "nan", "unbekannt")
    },
    # typed
    "Parquet": Kind("a.parquet", parquet(typed())),
    "Parquet by zstd in parts": Kind("a.parquet", parquet(typed(), compression="zstd", row_group_size=5)),
    "Parquet of dictionaries": Kind(
        "a.parquet", parquet(typed(town=typed()["town"].combine_chunks().dictionary_encode()))
    ),
    "Parquet of decimals": Kind("a.parquet", parquet(typed(amount=typed()["amount"].cast(pa.decimal128(12, 2))))),
    "Parquet of moments": Kind("a.parquet", parquet(typed(day=typed()["day"].cast(pa.timestamp("ns"))))),
    "Parquet with a list beside": Kind("a.parquet", parquet(typed(more=[[1]] * ROWS))),
    "Parquet with bytes beside": Kind("a.parquet", parquet(typed(more=[b"\0"] * ROWS))),
    "Arrow": Kind("a.arrow", arrow(typed())),
    "a stream of Arrow": Kind("a.arrow", arrow(typed(), ipc.new_stream)),
    "Feather": Kind("a.feather", feather()),
    "lines of JSON": Kind("a.jsonl", records()),
    "a list of JSON": Kind("a.json", records(True)),
    "packed lines of JSON": Kind("a.jsonl.gz", gzip.compress(records())),
    "a workbook": Kind("a.xlsx", book(write_workbook, ".xlsx")),
    "a workbook with titles": Kind("a.xlsx", book(write_workbook, ".xlsx", ["Visits"], [])),
    "OpenDocument": Kind("a.ods", book(write_ods, ".ods")),
    "SQLite": Kind("a.db", database("visits"), {"ill": {"type": "boolean"}}),
    "one table of two": Kind("a.db#visits", database("visits", "b"), {"ill": {"type": "boolean"}}),
    # of no use to any door
    "two tables of SQLite": Kind("a.db", database("a", "b"), refused=True),
    "two sheets": Kind("a.xlsx", book(write_workbook, ".xlsx", sheets=2), refused=True),
    "formulas that nobody computed": Kind("a.xlsx", book(write_workbook, ".xlsx", odd=Formula()), refused=True),
    "a quote that stays open": Kind("a.csv", text(after='1,true,Ulm,2019-01-01,"no\n'), refused=True),
    "a row too short": Kind("a.csv", text(after="1,true\n"), refused=True),
    "a total": Kind("a.csv", text(after="Total,,,,\n"), refused=True),
    "nested Parquet": Kind("a.parquet", parquet(typed(amount=[{"x": 1.0}] * ROWS)), refused=True),
    "nested JSON": Kind("a.jsonl", records(amount={"x": 1}), refused=True),
    "two files in an archive": Kind("a.zip", archive(a=text(), b=text()), refused=True),
    "gzip that was cut": Kind("a.csv.gz", gzip.compress(text())[:-9], refused=True),
    "Parquet that was cut": Kind("a.parquet", parquet(typed())[:-9], refused=True),
    "nothing at all": Kind("a.csv", b"", refused=True),
    "DuckDB's own": Kind("a.duckdb", bytes(8) + b"DUCK" + bytes(99), refused=True),
    "a program": Kind("a.exe", bytes(range(256)) * 9, refused=True),
}


def wanted_of(kind: Kind) -> dict[str, list[Any]]:
    """Return what is meant, as models read it."""
    columns: dict[str, list[Any]] = dict(
        zip(NAMES[:4], map(list, zip(*(row[:4] for row in TABLE), strict=True)), strict=True)
    )
    if kind.absent.get("day") == -1:  # other days than the table's
        columns["day"] = [date(2020, day.month % 9 + 1, day.day % 9 + 1) for day in columns["day"]]
    columns["day"] = [float((day - date(1970, 1, 1)).days) for day in columns["day"]]
    columns["ill"] = [float(ill) for ill in columns["ill"]]
    for name, row in kind.absent.items():
        if row >= 0:
            columns[name][row] = None
    return columns


def propose(kind: Kind, path: Path) -> tuple[bytes, bool]:
    """Return the draft's schema, filled in with what is public, and whether a person was asked."""
    proposal = SchemaProposal.of_file(path)
    features, asked = {}, bool(proposal.questions.keys() & kind.chosen.keys())
    for name in PUBLIC:
        drafted = {key: value for key, value in proposal.features.get(name, {}).items() if "FILL-IN" not in str(value)}
        public = PUBLIC[name] if drafted.get("type") in (None, PUBLIC[name]["type"], "datetime") else {}
        features[name] = {**drafted, **public, **kind.chosen.get(name, {})}
        features[name].pop("bins", None)
    body = {
        "target": {"name": "y", "classes": ["no", "yes"]}, "records": ROWS, "features": features,
        "ignore": [name for name in (*proposal.features, *proposal.ignore) if name not in NAMES],
        "format": {**proposal.format, **kind.chosen.get("", {})},
    }  # fmt: skip
    return yaml.safe_dump(body, allow_unicode=True).encode(), asked


def _plain(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    cells = {name: [None if c is None or c != c or c == "" else c for c in column] for name, column in columns.items()}
    return {
        name: [c if c is None or isinstance(c, str) else float(c) for c in column] for name, column in cells.items()
    }


def of_command(schema: Schema, path: Path) -> dict[str, list[Any]]:
    parts = [*read_columns(path, schema.features, schema)]
    return _plain({name: [cell for part in parts for cell in part[name]] for name in PUBLIC})


def of_sent_file(schema: Schema, path: Path) -> dict[str, list[Any]]:
    features = [feature.to_json() for feature in schema.features]
    written = schema.format.to_json([*PUBLIC])
    batches = one_file.read_records(
        path, {"features": features, "format": written, "keep": "", "rows": 99, "bytes": 1 << 24}
    )
    table = pa.Table.from_batches([*batches])
    return _plain(columns_of(Schema((), 1, schema.features, (), ""), table))


def of_body(schema: Schema, path: Path) -> dict[str, list[Any]]:
    table = csv_tables.table_of(path.read_bytes(), list(schema.features), 99, schema.format, True)
    return _plain(table.read(schema.features, [*PUBLIC]))


def of_registration(schema: Schema, path: Path) -> dict[str, list[Any]]:
    """Return codes that are packed, in the place of values."""
    packed = pack(path, schema)
    return {feature.name: packed.bins[at].tolist() for at, feature in enumerate(schema.features)}


def of_check(schema: Schema, path: Path) -> dict[str, list[Any]] | None:
    check = check_file(schema, path)
    return None if check.problems else {}


def of_frame(schema: Schema, path: Path) -> dict[str, list[Any]]:
    cells = pq.read_table(path) if path.suffix == ".parquet" else None
    if cells is None:
        lines = [*csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))]
        cells = pa.table(dict(zip(lines[0], map(list, zip(*lines[1:], strict=True)), strict=True)))
    return _plain(columns_of(schema, cells))


DOORS = {
    "check": of_check, "register": of_registration, "predict": of_command, "sent file": of_sent_file, "body": of_body,
    "frame": of_frame,
}  # fmt: skip


def takes(door: str, kind: Kind) -> bool:
    """Return whether such a file may come by this door at all: a body of text alone, a frame that pandas has read."""
    is_text = kind.name.endswith(".csv") and kind.raw[:4] not in (b"PAR1", b"PK\3\4") and kind.raw[:2] != b"\x1f\x8b"
    if door == "frame":
        return not kind.refused and ((is_text and _is_plain(kind.raw)) or (kind.name == "a.parquet"))
    return door != "body" or (is_text and bool(kind.raw))


def _is_plain(raw: bytes) -> bool:
    """Return whether a frame is read of it here as pandas does without being told anything."""
    try:
        lines = [*csv.reader(io.StringIO(raw.decode(), newline=""))]
    except (UnicodeDecodeError, csv.Error):
        return False
    return {len(cells) for cells in lines} == {len(NAMES)} and lines[0] == NAMES


def answers_of(kind: Kind, folder: Path) -> dict[str, str]:
    """Return what each door makes of a file."""
    path = folder / kind.name
    (folder / kind.name.partition("#")[0]).write_bytes(kind.raw)
    told = {}
    try:
        text_of_schema, asked = propose(kind, path)
        told["draft"] = "asked" if asked else "read"
    except DpserveError:
        told["draft"] = "refused"
        body = {"target": {"name": "y", "classes": ["no", "yes"]}, "records": ROWS, "features": dict(PUBLIC)}
        text_of_schema = yaml.safe_dump(body, allow_unicode=True).encode()
    for door, read in DOORS.items():
        if not takes(door, kind):
            told[door] = "-"
            continue
        try:
            schema = parse_schema(text_of_schema)
            values = read(schema, path)
            wanted = wanted_of(kind)
            if door == "register":
                features = {feature.name: feature for feature in schema.features}
                codes = {n: features[n].encode(_column(wanted[n], n)).tolist() for n in PUBLIC}
                told[door] = "read" if values == codes else "WRONG"
            else:
                told[door] = "refused" if values is None else "read" if values in ({}, wanted) else "WRONG"
        except DpserveError:
            told[door] = "refused"
        except SystemExit:
            told[door] = "refused"
        except Exception as error:
            told[door] = f"WRONG: {type(error).__name__}"
            if "-v" in sys.argv:
                traceback.print_exc()
    return told


def _column(cells: Sequence[Any], name: str) -> Any:
    return np.array(cells, object) if name == "town" else np.array([np.nan if c is None else c for c in cells], float)


def verdict_of(kind: Kind, told: Mapping[str, str]) -> str:
    """Say in a word whether the doors agree, and do what is meant; a draft of what is refused may name its columns."""
    said = {answer for door, answer in told.items() if answer != "-" and not (door == "draft" and kind.refused)}
    asks = bool(kind.chosen.keys() - {""}) and not kind.name.startswith("a.db")
    if asks and told["draft"] != "asked":
        return "read without a question"
    if said - {"asked"} not in ({"read"}, {"refused"}):
        return "doors differ"
    if ("refused" in said) == kind.refused:
        return "as meant"
    return "read, and meant to be refused" if kind.refused else "refused by all, and meant to be read"


def print_table() -> None:
    """Print kind by door, as Markdown."""
    print(f"| kind | draft | {' | '.join(DOORS)} | together |\n|{'---|' * (len(DOORS) + 3)}")
    counts: dict[str, int] = {}
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            told = answers_of(kind, Path(folder))
        verdict = verdict_of(kind, told)
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f"| {name} | {' | '.join(told.values())} | {verdict} |", flush=True)
    print(f"\n{len(KINDS)} kinds: {counts}")


if __name__ == "__main__":
    print_table()
