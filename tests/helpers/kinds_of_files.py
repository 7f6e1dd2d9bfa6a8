"""Kinds of files that people bring to a model: datasets whose schemas say how they are written, and files of each."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc
from workbooks import write_workbook

ROWS = 120
Cells = Sequence[Any]


@dataclass(frozen=True)
class Brought:
    """A file: its ending, its columns by the names that dpserve gives them, and what writes it."""

    ending: str
    columns: dict[str, list[Any]]
    write: Callable[[Path, list[str], list[list[Any]]], None]
    header: tuple[str, ...] | None = None  # as the file has it, where that is not the names
    refused: str | None = None  # the column that no door reads


@dataclass(frozen=True)
class Told:
    """A dataset: what its schema says of each column and of its files; the first of its files is registered."""

    features: str
    files: dict[str, Brought]
    format: str = "{}"
    target: str = '{name: y, classes: ["no", "yes"]}'
    ignore: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        ignored = ", ".join(f'"{name}"' for name in self.ignore)
        begin = f"target: {self.target}\nrecords: {ROWS}\nfeatures:\n{self.features}"
        return f"{begin}ignore: [{ignored}]\nformat: {self.format}\n"


@dataclass
class Drawn:
    """Values that everything is written from. The answer follows from each of them: x > 0 is yes."""

    x: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = Random(11)
        self.x = [round(random.uniform(-5000, 5000), 2) for _ in range(ROWS)]

    def each(self, write: Callable[[float], Any]) -> list[Any]:
        return [write(x) for x in self.x]


X = Drawn()
Y = X.each(lambda x: "yes" if x > 0 else "no")
U = X.each(lambda x: round((x + 5000) / 10_000, 3))


def text_file(
    mark: str = ",", encoding: str = "utf-8", first: str = "", has_header: bool = True, end: str = "\n"
) -> Any:
    def write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=mark[0], lineterminator=end)
        writer.writerows([names, *rows] if has_header else rows)
        raw = (first + out.getvalue().replace(mark[0], mark)).encode(encoding)
        path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)

    return write


def workbook(sheet: str = "A", beside: bool = False) -> Any:
    def write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
        write_workbook(path, {**({"notes": [["x"], ["y"]]} if beside else {}), sheet: [names, *rows]})

    return write


def typed(kinds: dict[str, pa.DataType] | None = None) -> Any:
    def write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
        columns = {
            name: pa.array(cells, (kinds or {}).get(name))
            for name, cells in zip(names, zip(*rows, strict=True), strict=True)
        }
        table = pa.table(columns)
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            with ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)

    return write


def thousands(mark: str, decimal: str) -> Callable[[float], str]:
    return lambda x: f"{x:,.2f}".replace(",", "\0").replace(".", decimal).replace("\0", mark)


def marked(decimal: str) -> Callable[[float], str]:
    return lambda x: f"{x:.2f}".replace(".", decimal)


def gap(write: Callable[[float], Any], word: Any, at: int = 7) -> list[Any]:
    """Cells of which every seventh is missing, and says so by a word."""
    return [word if place % at == 3 else write(x) for place, x in enumerate(X.x)]


def day_of(x: float) -> date:
    return date.fromordinal(date(2020, 1, 1).toordinal() + int(x / 4))


RUSSIAN = "янв. февраля марта апр. мая июня июля авг. сент. окт. ноября дек."
POLISH = "stycznia lut. marca kwi. maja czerwca lip. sierpnia wrz. paź. listopada gru."
NUMBER = "  s: {type: numeric, range: [-5000, 5000]}\n"
SHARE = "  u: {type: numeric, range: [0, 1]}\n"
PLAIN = X.each(lambda x: x)
TOWNS = X.each(lambda x: "Köln" if x > 0 else "Ulm")
TRUTHS = X.each(lambda x: x > 0)
DAYS, MOMENTS = X.each(day_of), X.each(lambda x: datetime.combine(day_of(x), time(14, 30)))
OFTEN = {"s": PLAIN, "c": TOWNS, "y": Y}
USUAL = NUMBER + "  c: {type: categorical, values: [Köln, Ulm]}\n"
DATED = "  d: {type: date, range: [2016-01-01, 2023-12-31], written: [DD.MM.YYYY]}\n"
MISSING = "  s: {type: numeric, range: [-5000, 5000], missing_values: [9999]}\n"
WORDS = "  s: {type: numeric, range: [-5000, 5000]}\n  c: {type: categorical, values: [Köln, Ulm]}\n"

DATASETS: dict[str, Told] = {
    "usual": Told(
        USUAL,
        {
            "csv": Brought(".csv", {"id": X.each(lambda x: 'a "note",\nin two lines'), **OFTEN}, text_file()),
            "packed": Brought(".csv.gz", OFTEN, text_file()),
            "sep": Brought(".csv", OFTEN, text_file(first="sep=,\n")),
            "windows": Brought(".csv", OFTEN, text_file(first="\ufeff", end="\r\n")),
            "parquet": Brought(".parquet", OFTEN, typed()),
            "dictionary": Brought(".parquet", OFTEN, typed({"c": pa.dictionary(pa.int8(), pa.string())})),
            "arrow": Brought(".arrow", OFTEN, typed()),
            "book": Brought(".xlsx", OFTEN, workbook()),
            "decimals": Brought(
                ".parquet", {**OFTEN, "s": X.each(lambda x: Decimal(f"{x:.2f}"))}, typed({"s": pa.decimal128(9, 2)})
            ),
            "comma": Brought(".csv", {**OFTEN, "s": X.each(marked(","))}, text_file(), refused="s"),
        },
        ignore=("id",),
    ),
    "mix": Told(
        '  s: {type: numeric, range: [-5000, 5000], decimal: ","}\n' + SHARE,
        {
            "csv": Brought(".csv", {"s": X.each(marked(",")), "u": U, "y": Y}, text_file(";")),
            "texts": Brought(".parquet", {"s": X.each(marked(",")), "u": U, "y": Y}, typed()),
            "book": Brought(".xlsx", {"s": PLAIN, "u": U, "y": Y}, workbook()),
            "points": Brought(".csv", {"s": X.each(marked(".")), "u": U, "y": Y}, text_file(";"), refused="s"),
        },
        "{delimiter: semicolon}",
    ),
    "french": Told(
        NUMBER + SHARE,
        {
            "csv": Brought(
                ".csv",
                {"s": X.each(thousands("\u202f", ",")), "u": [str(u).replace(".", ",") for u in U], "y": Y},
                text_file(";"),
            ),
            "book": Brought(".xlsx", {"s": PLAIN, "u": U, "y": Y}, workbook()),
        },
        '{delimiter: semicolon, decimal: ",", thousands: " "}',
    ),
    "german": Told(
        '  w: {type: numeric, range: [0, 10000000], decimal: ",", thousands: "."}\n',
        {
            "texts": Brought(
                ".parquet", {"w": [f"{int(u * 9_000_000) + 1000:,}".replace(",", ".") for u in U], "y": Y}, typed()
            ),
            "west": Brought(
                ".csv",
                {"w": [thousands(".", ",")(u * 9e6) for u in U], "é": ["ä"] * ROWS, "y": Y},
                text_file(encoding="cp1252"),
            ),
        },
        "{encoding: cp1252}",
        ignore=("é",),
    ),
    "either": Told(
        "  s: {type: numeric, range: [-5000, 5000], decimal: either}\n",
        {"csv": Brought(".csv", {"s": [marked(".,"[at % 2])(x) for at, x in enumerate(X.x)], "y": Y}, text_file(";"))},
        "{delimiter: semicolon}",
    ),
    "swiss": Told(
        '  s: {type: numeric, range: [-5000, 5000], thousands: "\'", unit_mark: CHF}\n',
        {"tsv": Brought(".tsv", {"s": X.each(lambda x: f"{thousands('’', '.')(x)} CHF"), "y": Y}, text_file("\t"))},
        "{delimiter: tab}",
    ),
    "missing": Told(
        MISSING + SHARE,
        {
            name: Brought(ending, {"s": gap(lambda x: x, 9999.0), "u": [0.5] * ROWS, "y": Y}, write)
            for name, ending, write in (
                ("parquet", ".parquet", typed()),
                ("arrow", ".arrow", typed()),
                ("csv", ".csv", text_file()),
                ("book", ".xlsx", workbook()),
            )
        },
    ),
    "words": Told(
        WORDS,
        {
            "csv": Brought(
                ".csv",
                {"s": gap(lambda x: x, "k.A."), "c": gap(lambda x: "Köln" if x > 0 else "Ulm", " k.A."), "y": Y},
                text_file(),
            ),
            "book": Brought(".xlsx", {"s": gap(lambda x: x, "k.A."), "c": TOWNS, "y": Y}, workbook()),
        },
        "{missing_words: [k.A.]}",
    ),
    "truths": Told(
        "  b: {type: boolean, true_words: [ja], false_words: [nein]}\n",
        {
            "csv": Brought(".csv", {"b": X.each(lambda x: "Ja" if x > 0 else "nein"), "y": Y}, text_file()),
            "parquet": Brought(".parquet", {"b": TRUTHS, "y": Y}, typed()),
            "texts": Brought(".parquet", {"b": X.each(lambda x: "ja" if x > 0 else None), "y": Y}, typed()),
            "book": Brought(".xlsx", {"b": TRUTHS, "y": Y}, workbook()),
            "other": Brought(
                ".csv", {"b": X.each(lambda x: "oui" if x > 0 else "non"), "y": Y}, text_file(), refused="b"
            ),
        },
    ),
    "days": Told(
        DATED,
        {
            "csv": Brought(".csv", {"d": [day.strftime("%d.%m.%Y") for day in DAYS], "y": Y}, text_file()),
            "parquet": Brought(".parquet", {"d": DAYS, "y": Y}, typed()),
            "book": Brought(".xlsx", {"d": DAYS, "y": Y}, workbook()),
            "american": Brought(
                ".csv", {"d": [day.strftime("%m/%d/%Y") for day in DAYS], "y": Y}, text_file(), refused="d"
            ),
        },
    ),
    "moments": Told(
        '  m: {type: datetime, range: ["2016-01-01T00:00:00", "2023-12-31T00:00:00"], written: [DD-MON-YY], '
        "first_year: 1950}\n"
        '  t: {type: time, range: ["00:00", "23:59"]}\n',
        {
            "csv": Brought(
                ".csv",
                {
                    "m": [at.strftime("%d-%b-%y %H:%M") for at in MOMENTS],
                    "t": X.each(lambda x: f"{int(x + 5000) // 420:02}:30"),
                    "y": Y,
                },
                text_file(),
            ),
            "parquet": Brought(
                ".parquet", {"m": MOMENTS, "t": X.each(lambda x: time(int(x + 5000) // 420, 30)), "y": Y}, typed()
            ),
        },
    ),
    "forms": Told(
        '  s: {type: numeric, range: [-5000, 5000], unit_mark: $, thousands: ","}\n  b: {type: boolean}\n'
        "  d: {type: date, range: [2016-01-01, 2023-12-31], written: [DD MON YYYY]}\n"
        '  m: {type: datetime, range: ["2016-01-01T00:00:00", "2023-12-31T00:00:00"], written: [DDMONYYYY]}\n',
        {
            "csv": Brought(
                ".csv",
                {
                    "s": X.each(lambda x: f"$ {x:,.2f}" if x > 0 else f"($ {-x:,.2f})"),
                    "b": X.each(lambda x: "Да" if x > 0 else "нет"),
                    "d": [f"{day.day} {RUSSIAN.split()[day.month - 1]} {day.year} г." for day in DAYS],
                    "m": [at.strftime("%d%b%Y:%H:%M:%S").upper() for at in MOMENTS],
                    "y": Y,
                },
                text_file(),
            ),
            "other": Brought(
                ".csv",
                {
                    "s": X.each(lambda x: f"{abs(x):,.2f}$" + ("" if x > 0 else "-")),
                    "b": X.each(lambda x: "1.0" if x > 0 else "0.0"),
                    "d": [f"{day.day} {POLISH.split()[day.month - 1]} {day.year}" for day in DAYS],
                    "m": [at.strftime("%d%b%Y %I.%M.%S.000000 %p") for at in MOMENTS],
                    "y": Y,
                },
                text_file(),
            ),
            "typed": Brought(".parquet", {"s": PLAIN, "b": TRUTHS, "d": DAYS, "m": MOMENTS, "y": Y}, typed()),
        },
    ),
    "unnamed": Told(
        NUMBER + '  "column 2": {type: numeric, range: [0, 1]}\n',
        {"csv": Brought(".csv", {"s": PLAIN, "column 2": U, "y": Y}, text_file(), ("s", "", "y"))},
    ),
    "doubled": Told(
        '  u: {type: numeric, range: [-5000, 5000]}\n  "u (2)": {type: numeric, range: [0, 1]}\n',
        {
            "csv": Brought(".csv", {"u": PLAIN, "u (2)": U, "y": Y}, text_file(), ("u", " u ", "y")),
            "book": Brought(".xlsx", {"u": PLAIN, "u (2)": U, "y": Y}, workbook(), ("u", "u", "y")),
        },
    ),
    "headless": Told(
        NUMBER,
        {
            "data": Brought(
                ".data",
                {"id": [*map(str, range(ROWS))], "s": PLAIN, "y": Y},
                text_file(first="A title\n", has_header=False),
            )
        },
        "{columns: [id, s, y], skip: 1}",
        ignore=("id",),
    ),
    "blanks": Told(
        NUMBER,
        {"txt": Brought(".txt", {"s": PLAIN, "y": Y}, text_file("    "))},
        "{delimiter: blanks}",
    ),
    "wide": Told(
        "  c: {type: categorical, values: [Köln, Ulm]}\n",
        {
            "csv": Brought(
                ".csv",
                {"c": X.each(lambda x: " Köln  " if x > 0 else "Ulm\u00a0"), "y": Y},
                text_file(encoding="utf-16"),
            )
        },
        "{encoding: utf-16, trim: true}",
    ),
    "cyrillic": Told(
        "  c: {type: categorical, values: [Омск, Тула]}\n",
        {
            "csv": Brought(
                ".csv", {"c": X.each(lambda x: "Омск" if x > 0 else "Тула"), "y": Y}, text_file("; ", "cp1251")
            )
        },
        "{encoding: cp1251, delimiter: semicolon and blank}",
    ),
    "codes": Told(
        '  c: {type: categorical, values: ["001", "020"]}\n',
        {
            "csv": Brought(".csv", {"c": X.each(lambda x: "001" if x > 0 else "020"), "y": Y}, text_file()),
            "parquet": Brought(".parquet", {"c": X.each(lambda x: 1 if x > 0 else 20), "y": Y}, typed()),
            "book": Brought(".xlsx", {"c": X.each(lambda x: 1 if x > 0 else 20), "y": Y}, workbook()),
        },
    ),
    "sheets": Told(
        NUMBER, {"book": Brought(".xlsx", {"s": PLAIN, "y": Y}, workbook("rows", beside=True))}, "{sheet: rows}"
    ),
    "amounts": Told(
        '  s: {type: numeric, range: [-5000, 5000], decimal: ","}\n',
        {"csv": Brought(".csv", {"s": X.each(marked(",")), "y": X.each(marked(","))}, text_file(";"))},
        "{delimiter: semicolon}",
        '{name: y, range: [-5000, 5000], decimal: ","}',
    ),
}


def write_all(folder: Path) -> dict[tuple[str, str], Path]:
    """Write a schema of each dataset, `NAME.yaml`, and all files; return the files by dataset and kind."""
    paths = {}
    for name, told in DATASETS.items():
        (folder / f"{name}.yaml").write_text(told.schema, "utf-8")
        for kind, file in told.files.items():
            path = paths[name, kind] = folder / f"{name}-{kind}{file.ending}"
            rows = [list(row) for row in zip(*file.columns.values(), strict=True)]
            file.write(path, [*(file.header or file.columns)], rows)
    return paths
