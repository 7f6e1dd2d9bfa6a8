"""One made-up table through every door: what `dpserve predict` reads of a file, a body of the same bytes and a client's
own table read, or all refuse it by the same column.

`python tests/serving/wire/test_one_table.py 5000` asks of so many.
"""

from __future__ import annotations

import csv
import io
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from accountant.errors import DataError, RecordError
from dpserve_verify.errors import InputError
from models.features.csv_lines import name_columns
from models.features.features import (
    BooleanFeature,
    CategoricalFeature,
    DateFeature,
    MomentFeature,
    NumericFeature,
    TimeFeature,
)
from models.features.table_format import TableFormat
from models.features.written import Form, Written
from models.onnx.runtime import columns_from_records
from serving.wire import csv_tables, file_tables, tables_in, v2_tensors, work_time
from training.rows.tables.row_files import read_columns

NAMES = ["a", "b", "c c", "dé", "g,h", "i;j", "2024", "column 2", "a (2)", "Größe", 'k"l']
WRONG = {
    "numeric": ["x", "1,2,3", "1.5.2", "5-", "(1)", "0x1", "1_0", "--1", "٣١٬٥"], "boolean": ["perhaps", "2"],
    "date": ["2024-02-30", "x", "31/12/1999."], "datetime": ["2024-02-30", "x"], "time": ["25:00", "x"],
}  # fmt: skip
BLANKS = [" ", "\u00a0", "\u202f"]


def number(r, written):
    """A number as the column is written, with every mark that it may have."""
    if r.random() < 0.1:
        said = [
            f"{missing:g}".replace(".", "," if written.decimal == "," else ".") for missing in written.missing_numbers
        ]
        return r.choice(["", "NA", " ", "-nan(ind)", "inf", *written.missing, *said])
    value = r.choice([r.randint(-9, 9), r.randint(-(10**7), 10**7), round(r.uniform(-2000, 2000), r.randint(0, 4))])
    whole, _, part = f"{abs(value)}".partition(".")
    if written.thousands and r.random() < 0.7:
        mark = r.choice(BLANKS) if written.thousands == " " else written.thousands
        whole = f"{int(whole):,}".replace(",", mark)
    mark = r.choice(".,") if written.decimal == "either" else written.decimal
    sign = r.choice("-\u2212") if value < 0 else r.choice(["", "", "+"])
    text = whole + (mark + part if part else "")
    if written.unit_mark and r.random() < 0.7:
        text = r.choice([f"{text}{written.unit_mark}", f"{text} {written.unit_mark}", written.unit_mark + text])
    return r.choice(["", " "]) + sign + text + r.choice(["", " "])


def day(r, written, kind):
    if r.random() < 0.1:
        return r.choice(["", "null", *written.missing])
    parts = {
        "YYYY": f"{r.randint(1930, 2029)}",
        "MON": "Jan",
        "MM": f"{r.randint(1, 12):02}",
        "DD": f"{r.randint(1, 28):02}",
    }
    text = r.choice(written.dates).replace("YY", parts["YYYY"][2:]) if written.first_year else r.choice(written.dates)
    for part, said in parts.items():
        text = text.replace(part, said)
    return text + ("" if kind == "date" else r.choice([" 14:30", "T01:02:03"]))


def cell(r, feature, written):
    if feature.kind == "numeric":
        return number(r, written)
    if feature.kind in ("date", "datetime"):
        return day(r, written, feature.kind)
    if feature.kind == "time":
        return r.choice(["", "14:30", "0:01", "23:59:59.5", *written.missing])
    if feature.kind == "boolean":
        return r.choice(["true", "FALSE", "1", "0", "yes", "", *written.true, *written.false, *written.missing])
    padded = [f" {word} " for word in (*feature.values, *written.missing)]
    return r.choice(
        [*feature.values, *feature.values, *padded, "", "other", "NA", "x\ny", 'q"q', " ", *written.missing]
    )


def column(r, name):
    """A feature of this name, and how its column is written."""
    kind = r.choice(["numeric"] * 3 + ["boolean", "categorical", "categorical", "date", "datetime", "time"])
    said = {"missing": tuple(r.sample(["?", "k.A.", "unknown", "n/v"], r.randint(0, 2)))}
    if kind == "numeric":
        decimal = r.choice([".", ".", ",", ",", "either"])
        marks = [""] if decimal == "either" else ["", *sorted({".", ",", " ", "'"} - {decimal})]
        said |= {"decimal": decimal, "thousands": r.choice(marks), "unit_mark": r.choice(["", "", "%", "€", "kg"])}
        said |= {"missing_numbers": r.choice([(), (-9.0,), (9999.5,)])}
        return NumericFeature(name, (0.0, 1.0, 100.0)), Written(**said)
    if kind == "boolean":
        return BooleanFeature(name), Written(**said, true=r.choice([(), ("ja",)]), false=("nein",))
    if kind == "categorical":
        values = r.choice([("Ulm", "Köln"), ("01", "2", "3.5"), ("Yes", "No"), ("a,b", "c;d", " e")])
        return CategoricalFeature(name, values), Written(**said, trim=r.random() < 0.5)
    if kind == "time":
        return TimeFeature(name, (10.0,)), Written(**said)
    pattern = r.choice(["YYYY-MM-DD", "DD.MM.YYYY", "MM/DD/YYYY", "DD.MM.YY", "DD-MON-YYYY", "YYYYMMDD"])
    said |= {"dates": (pattern,), "first_year": 1930 if pattern == "DD.MM.YY" else None}
    return (DateFeature if kind == "date" else MomentFeature)(name, (10.0,)), Written(**said)


class Case:
    """A schema, its table of texts with one wrong cell at most, and the bytes of a .csv that hold it."""

    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.delimiter = r.choice([",", ",", ";", "\t", "|", ", ", " "])
        columns = [column(r, name) for name in r.sample(NAMES, r.randint(1, 5))]
        self.features = [feature for feature, _ in columns]
        header = [
            *(feature.name for feature in self.features),
            *(n for n in ("note", "", "", "a", "id") if r.random() < 0.25),
        ]
        r.shuffle(header)
        known, written = {feature.name: feature for feature in self.features}, {f.name: how for f, how in columns}
        names = name_columns(header)
        self.rows = [
            [cell(r, known[n], written[n]) if n in known else r.choice(["z", "", "1", "q,q", "l\nl"]) for n in names]
            for _ in range(r.choice([0, 1, 2, 3, 5, 300]))
        ]
        self.wrong = r.choice([f.name for f in self.features if f.kind in WRONG] or [""]) if r.random() < 0.3 else ""
        if self.delimiter == " ":  # then no cell holds a line's end
            self.rows = [[text.replace("\n", "_") for text in row] for row in self.rows]
        if self.delimiter == ", ":  # then blanks after the mark are no part of a cell
            self.rows = [[text.lstrip(" ") for text in row] for row in self.rows]
        if self.wrong and self.rows:
            r.choice(self.rows)[names.index(self.wrong)] = r.choice(WRONG[known[self.wrong].kind])
        self.raw, form = self._written(header)
        self.written = TableFormat(Form(**form), written)
        self.table = {name: [row[at] for row in self.rows] for at, name in enumerate(names) if name in known}

    def _written(self, header):
        r, out = self.random, io.StringIO(newline="")
        delimiter = self.delimiter
        form = {"delimiter": delimiter, "encoding": r.choice(["utf-8"] * 4 + ["utf-16", "utf-16-le", "gb18030"])}
        if r.random() < 0.15:
            form["skip"] = 2
            out.write("A title\n\n")
        if r.random() < 0.1 and delimiter != " ":
            out.write(f"sep={delimiter[0]}\n")
        if r.random() < 0.15:
            form["skip_rows"] = ["Total", "Sum*"]
        if r.random() < 0.1 and len({*header}) == len(header) and all(header):
            form["columns"] = tuple(header)
        end = r.choice(["\n", "\n", "\r\n", "\r"])
        is_quoted = r.random() < 0.2 or delimiter == " " or end == "\r"  # which alone would be quoted then
        quoting = csv.QUOTE_ALL if is_quoted else csv.QUOTE_MINIMAL
        write = csv.writer(out, delimiter=delimiter[0], lineterminator=end, quoting=quoting)
        if "columns" not in form:
            write.writerow([f" {name} " if name and r.random() < 0.1 and not is_quoted else name for name in header])
        for row in self.rows:
            write.writerow(row)
            out.write(end if r.random() < 0.03 else "")
        if "skip_rows" in form and len(header) > 1:
            write.writerow(["Total", *["" for _ in header[1:]]])
        text = self._odd(out.getvalue(), end)
        bom = form["encoding"] == "utf-8" and r.random() < 0.2
        return ("\ufeff" * bom + text).encode(form["encoding"]), form

    def _odd(self, text, end):
        """The same text, seldom with a quote that stays open, a row too short, a quote anywhere, or no last end."""
        at, how = self.random.randrange(len(text) + 1), self.random.random()
        self.is_whole = how > 0.1
        for most, odd in ((0.04, text + '"open'), (0.07, f"{text}1,2{end}"), (0.1, text[:at] + '"' + text[at:])):
            if how < most:
                return odd
        return text.rstrip("\r\n") if how < 0.15 else text


def of_file(case, folder):
    path = folder / "rows.csv"
    path.write_bytes(case.raw)
    return all_of(path, case)


def all_of(path, case):
    none = {feature.name: [] for feature in case.features}
    parts = [none, *read_columns(path, case.features, case.written)]
    return {name: [cell for part in parts for cell in part[name]] for name in none}


def of_parquet_file(case, folder):
    path = folder / "rows.parquet"
    parquet.write_table(pa.table(case.table, pa.schema([(name, pa.string()) for name in case.table])), path)
    return all_of(path, case)


def of_body(case, _):
    return csv_tables.table_of(case.raw, case.features, 1000, case.written, True).read(case.features, case.table)


def of_sent_file(case, _):
    table, _ = file_tables.table_of_file(case.raw, ".csv", case.features, case.written, 1000)
    return table.read(case.features, case.table)


def of_arrow(case, _):
    sink, table = io.BytesIO(), pa.table(case.table, pa.schema([(name, pa.string()) for name in case.table]))
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return tables_in.table_of(sink.getvalue(), case.features, 1000, case.written).read(case.features, case.table)


def of_npy(case, _):
    sink = io.BytesIO()
    columns = {name: np.array(cells or [""])[: len(cells)] for name, cells in case.table.items()}
    array = np.empty(len(case.rows), [(name, cells.dtype) for name, cells in columns.items()])
    for name, cells in columns.items():
        array[name] = cells
    np.save(sink, array)
    return tables_in.table_of(sink.getvalue(), case.features, 1000, case.written).read(case.features, case.table)


def of_json(case, _):
    records = [{name: cells[at] for name, cells in case.table.items()} for at in range(len(case.rows))]
    return columns_from_records(case.features, records, 1000, form=case.written)


def of_v2(case, _):
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [len(cells)], "data": cells} for name, cells in case.table.items()
    ]
    return v2_tensors.table_of(tensors, b"", case.features, 1000, case.written).read(case.features, case.table)


SAME_BYTES = {"a file": of_file, "a body": of_body}
SAME_CELLS = {"Parquet": of_parquet_file, "Arrow": of_arrow, "NumPy": of_npy, "JSON": of_json, "V2": of_v2}


def plain(cells):
    """What each cell says: None where it is missing; a text with one kind of line end, whatever the file has."""
    values = [None if cell is None or cell != cell or cell == "" else cell for cell in cells]
    texts = (cell.replace("\r\n", "\n").replace("\r", "\n") if isinstance(cell, str) else cell for cell in values)
    return [cell if cell is None or isinstance(cell, str) else float(cell) for cell in texts]


def outcome(read, case, folder):
    try:
        return {name: plain(cells) for name, cells in read(case, folder).items()}
    except (DataError, RecordError, InputError) as error:
        return error


def check(seed, folder, more=()):
    """Ask all doors of one case."""
    case = Case(seed)
    doors = {**SAME_BYTES, **dict(more), **(SAME_CELLS if case.is_whole else {})}
    answers = {door: outcome(read, case, folder) for door, read in doors.items()}
    refused = {door for door, answer in answers.items() if isinstance(answer, Exception)}
    told = {door: answer.message if door in refused else answer for door, answer in answers.items()}
    if not refused:
        assert all(answer == told["a file"] for answer in told.values()), (seed, told)
    else:
        assert refused == doors.keys(), (seed, told)
        if case.is_whole:
            assert case.wrong, (seed, told)
            assert all(case.wrong in message for message in told.values()), (seed, case.wrong, told)
    return bool(refused)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_every_door_reads_a_table_as_the_command_line_does(tmp_path, first):
    refused = sum(check(seed, tmp_path) for seed in range(first, first + 40))
    assert 2 < refused < 30


def test_the_program_that_reads_a_file_reads_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(work_time, "WORK_SECONDS", 120.0)
    for seed in range(500, 504):
        check(seed, tmp_path, [("a file that is sent", of_sent_file)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(sum(check(seed, Path(place)) for seed in range(int(sys.argv[1]))), "of", sys.argv[1], "are refused")
