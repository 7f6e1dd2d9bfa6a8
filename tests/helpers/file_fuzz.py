"""Files of every kind, changed at random: each is read, or refused in one clear line, and the check of a file says what
its registration does.

    python tests/helpers/file_fuzz.py --cases 50000 --seconds 1800

Cases are tried in processes of their own, which a signal may end: it is a fault as well, with the number of its case.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import ipc

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from workbooks import write_workbook  # noqa: E402

from dpserve_verify.errors import DpserveError  # noqa: E402
from dpserve_verify.privacy.budget import Relation  # noqa: E402
from training.datasets.file_check import check_file  # noqa: E402
from training.datasets.packing import check_packed, pack  # noqa: E402
from training.rows.schema.schema import parse_schema  # noqa: E402

ROWS = [(f"p{at}", at % 9 + 0.5, ("Ulm", "Köln", "")[at % 3], f"2024-0{at % 9 + 1}-1{at % 9}", ("no", "yes")[at % 2])
        for at in range(40)]  # fmt: skip
NAMES = ["id", "amount", "town", "day", "y"]
BODY = {
    "target": {"name": "y", "classes": ["no", "yes"]}, "records": 40, "ignore": ["id"],
    "features": {"amount": {"type": "numeric", "range": [0, 10]},
                 "town": {"type": "categorical", "values": ["Ulm", "Köln"]},
                 "day": {"type": "date", "range": ["2024-01-01", "2024-12-31"]}},
}  # fmt: skip
# Of SPSS and Stata: numbers alone and the answer, as texts of three letters.
NUMBERS = {**BODY, "features": {"amount": BODY["features"]["amount"]}}  # type: ignore[index]
TOKENS = [
    b",", b";", b"\t", b'"', b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xc3", b"\xe2\x88\x92", b"\xef\xbb\xbf", b"1,234",
    b"(5)", b"5-", b"Total", b"NA", b"''", b"=\"7\"", b"1e999", b"nan", b"inf", b"y", b"id,amount,town,day,y\n",
    b"\n\n", b"  ", b"\xe2\x80\x8b", b"9" * 400, b"'", b"#", b"sep=;\n", b"\x1a", b"2024-02-30", b"01/02/03", b"|",
    b"\\", b"{", b"[",
]  # fmt: skip
LONGEST = 4_000  # letters of what a file is refused by
SECONDS, MEMORY = 30, 6 << 30  # of a case


def _text(delimiter: str, decimal: str = ".", encoding: str = "utf-8", quote: str = "") -> bytes:
    lines = [NAMES, *([*map(str, row)] for row in ROWS)]
    texts = [[cell.replace(".", decimal) if at == 1 else cell for at, cell in enumerate(cells)] for cells in lines]
    return "".join(delimiter.join(f"{quote}{cell}{quote}" for cell in cells) + "\n" for cells in texts).encode(encoding)


def _table() -> pa.Table:
    columns = [*zip(*ROWS, strict=True)]
    return pa.table({name: pa.array(cells) for name, cells in zip(NAMES, columns, strict=True)})


def _parquet(**options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(_table(), out, **options)
    return out.getvalue()


def _arrow() -> bytes:
    out, table = io.BytesIO(), _table()
    with ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _workbook() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        rows = [[cell or None for cell in row] for row in ROWS]
        return write_workbook(Path(folder) / "a.xlsx", {"s": [NAMES, *rows]}).read_bytes()


def _stata() -> bytes:
    """Write Stata's format 114: a number and a text of three letters."""
    names, types = ["amount", "y"], bytes([255, 3])
    head = struct.pack("<BBBBHI", 114, 2, 1, 0, 2, len(ROWS)) + b"\0" * 99 + types
    head += b"".join(name.encode().ljust(33, b"\0") for name in names) + b"\0" * 6
    head += b"".join(form.ljust(49, b"\0") for form in (b"%9.0g", b"%9s")) + b"\0" * (2 * 33 + 2 * 81 + 5)
    return head + b"".join(struct.pack("<d3s", row[1], row[4].encode()) for row in ROWS)


def _spss() -> bytes:
    """Write SPSS's format without compression: a number and a text of eight letters."""
    head = b"$FL2" + b"made up".ljust(60) + struct.pack("<iiiiid", 2, 2, 0, 0, len(ROWS), 100.0)
    head += b"01 Jan 24" + b"00:00:00" + b" " * 64 + b"\0" * 3
    number, text = (5 << 16) + (8 << 8) + 2, (1 << 16) + (8 << 8)
    head += struct.pack("<iiiiii8s", 2, 0, 0, 0, number, number, b"AMOUNT  ")
    head += struct.pack("<iiiiii8s", 2, 8, 0, 0, text, text, b"Y       ")
    data = b"".join(struct.pack("<d8s", row[1], row[4].encode().ljust(8)) for row in ROWS)
    return head + struct.pack("<ii", 999, 0) + data


def _records() -> bytes:
    rows = (dict(zip(NAMES, row, strict=True)) for row in ROWS)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


SPSS = {**NUMBERS, "target": {"name": "Y", "classes": ["no", "yes"]},
        "features": {"AMOUNT": NUMBERS["features"]["amount"]}}  # type: ignore[index]  # fmt: skip
# By the end of a file's name: its bytes, and the schema.
KINDS: dict[str, tuple[Callable[[], bytes], dict[str, object]]] = {
    ".csv": (lambda: _text(","), BODY),
    ".tsv": (lambda: _text("\t"), {**BODY, "format": {"delimiter": "tab", "trim": True}}),
    ".txt": (lambda: _text(";", ",", quote='"'), {**BODY, "format": {"delimiter": "semicolon", "decimal": ","}}),
    ".data": (
        lambda: _text(",", encoding="utf-16"),
        {**BODY, "format": {"encoding": "utf-16", "skip_rows": ["Total"]}},
    ),
    ".jsonl": (_records, BODY),
    ".parquet": (_parquet, BODY),
    ".zstd.parquet": (lambda: _parquet(compression="zstd", row_group_size=7, use_dictionary=False), BODY),
    ".arrow": (_arrow, BODY),
    ".xlsx": (_workbook, BODY),
    ".dta": (_stata, NUMBERS),
    ".sav": (_spss, SPSS),
}
MADE = {suffix: make() for suffix, (make, _) in KINDS.items()}


def change(raw: bytes, draw: random.Random, is_text: bool) -> bytes:
    """Change some places of a file: bytes, parts that are cut, doubled or moved, and what is odd in a table."""
    out = bytearray(raw)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 8))):
        at, size = draw.randrange(len(out) + 1), draw.choice((1, 1, 2, 4, 8, 40))
        part = bytes(out[at : at + size])
        how = draw.randrange(6)
        if how == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            del out[at : at + size]
        elif how == 2:
            out[at:at] = part
        elif how == 3 and not draw.randrange(8):
            del out[at:]
        elif is_text or how == 4:
            out[at:at] = draw.choice(TOKENS)
        else:
            out[at : at + size] = draw.randbytes(size)
    return bytes(out)


def make_case(number: int, folder: Path) -> tuple[Path, bytes]:
    """Write the file of a case; return its path and its schema."""
    draw = random.Random(number)
    suffix = draw.choice([*KINDS])
    path = folder / f"rows{suffix}"
    path.write_bytes(change(MADE[suffix], draw, suffix in (".csv", ".tsv", ".txt", ".jsonl")))
    return path, yaml.safe_dump(KINDS[suffix][1], allow_unicode=True).encode()


def find_fault(path: Path, text: bytes) -> str | None:
    """Return what is wrong with how a file is read; None where both doors read it, or refuse it in a clear line."""
    try:
        schema = parse_schema(text)
        try:
            check = check_file(schema, path)
            said, refused = [*map(str, check.problems)], bool(check.problems)
            if any(not problem.remedies for problem in check.problems):
                return f"no remedy: {said}"
        except DpserveError as error:
            said, refused = [error.message], True
            if error.exit_code != 2:
                return f"exit code {error.exit_code}: {error.message}"
        try:
            check_packed(schema, path, pack(path, schema), Relation.ADD_REMOVE)
            taken = True
        except DpserveError as error:
            taken = False
            said.append(error.message)
            if error.exit_code != 2:
                return f"exit code {error.exit_code}: {error.message}"
    except Exception:
        return traceback.format_exc(limit=-3)
    if taken == refused:
        return f"the check {'refuses' if refused else 'admits'} it, the registration does not: {said}"
    odd = [each for each in said if not each.strip() or "\n" in each or len(each) > LONGEST]
    return f"no clear line: {odd[0][:300]!r}" if odd else None


def _answer() -> None:
    """Answer the numbers of cases with what is wrong with each, a line of JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            signal.alarm(SECONDS)
            path, text = make_case(int(line), Path(folder))
            print(json.dumps(find_fault(path, text)), flush=True)
            signal.alarm(0)
            path.unlink()


def faults(numbers: range, seconds: float) -> Iterator[tuple[int, str | None]]:
    """Yield the cases that were tried in so many seconds, with what is wrong with each."""
    worker, end = None, time.monotonic() + seconds
    try:
        for number in numbers:
            if time.monotonic() > end:
                return
            if worker is None:
                worker = subprocess.Popen(
                    [sys.executable, __file__, "--answer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(f"{number}\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
            if line:
                yield number, json.loads(line)
            else:
                yield number, f"ended by signal {-worker.wait()}"
                worker = None
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()


def main() -> None:
    """Try cases, and print those that went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--answer", action="store_true")
    asked = parser.parse_args()
    if asked.answer:
        return _answer()
    tried, wrong = Counter[str](), Counter[str]()
    for number, fault in faults(range(asked.first, asked.first + asked.cases), asked.seconds):
        suffix = random.Random(number).choice([*KINDS])
        tried[suffix] += 1
        if fault is not None:
            wrong[suffix] += 1
            print(number, suffix, fault, flush=True)
    print("tried", dict(tried), "wrong", dict(wrong))
    return None


if __name__ == "__main__":
    main()
