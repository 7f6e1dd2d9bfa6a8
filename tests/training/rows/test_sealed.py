"""Readers of foreign bytes run behind the seal: what a file does to them ends in one line, and reaches nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from ledgers import ROOT
from workbooks import write_workbook

from accountant.errors import DataError
from serving.cli.app import run
from training.rows.sources import cell_readers, sealed
from training.rows.sources.files import open_file

STATISTICS = sorted((ROOT / "tests" / "data" / "statistics").iterdir())
ENDED = "harms who reads it, or takes too much memory or time to read; save it as .csv"


def no_label(folder: Path) -> Path:
    """Write a file of SPSS that ends its reader with SIGSEGV: a label that is none."""
    raw = bytearray((STATISTICS[0].parent / "people.zsav").read_bytes())
    raw[14:18], raw[318], raw[817:819] = b"\0\0\1\0", 128, b"\xff\xff"
    (folder / "no-label.zsav").write_bytes(raw)
    return folder / "no-label.zsav"


def far_cell(folder: Path) -> Path:
    """Write a workbook that makes its reader ask for 400 GB, and end with SIGABRT: a cell in the last corner."""
    write_workbook(folder / "near.xlsx", {"a": [["x"], [1]]})
    with zipfile.ZipFile(folder / "near.xlsx") as near, zipfile.ZipFile(folder / "far.xlsx", "w") as far:
        for name in near.namelist():
            text = near.read(name).replace(b'<row r="2">', b'<row r="1048576">').replace(b'"A2"', b'"XFD1048576"')
            far.writestr(name, text)
    return folder / "far.xlsx"


@pytest.mark.parametrize("write", [no_label, far_cell])
def test_a_fault_of_a_reader_is_one_line_at_every_door(tmp_path, write, capfd):
    path = write(tmp_path)
    with pytest.raises(DataError) as refused:
        open_file(path).types()
    assert refused.value.message == f"data={path.name}: {ENDED}"
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        "target: {name: x, classes: [a, b]}\nrecords: 5\nfeatures: {age: {type: numeric, range: [0, 9]}}\n"
    )
    capfd.readouterr()
    for command in (["schema", "check", str(schema), "--data", str(path)], ["schema", "draft", str(path)]):
        assert run(command) == 2
        said = "".join(capfd.readouterr())
        assert ENDED.partition(";")[0] in said.replace("\n", " ")
        assert not {"Traceback", "panicked"} & {*said.split()}
    assert open_file(STATISTICS[0]).most_rows() == 5  # and the next file is read


def reach(file, asked):
    """Ask for what a reader has no business with, and return what was got."""
    got = []
    for name, ask in (
        ("file", lambda: os.open(asked["other"], os.O_RDONLY)),
        ("write", lambda: os.open("/tmp/written", os.O_WRONLY | os.O_CREAT)),
        ("network", lambda: socket.socket().connect(("127.0.0.1", asked["port"]))),
        ("fork", os.fork),
        ("signal", lambda: os.kill(os.getppid(), 0)),
        ("memory", lambda: bytearray(sealed.MEMORY)),
    ):
        try:
            ask()
            got.append(name)
        except (OSError, MemoryError):
            pass
    return {"got": got, "own": file.read(4).hex()}, pa.table({})


def test_a_reader_reaches_its_file_alone(tmp_path, monkeypatch):
    def fork(file, wire):
        if not os.fork():
            cell_readers.READERS["reach"] = reach
            sealed._answer(os.dup(file), os.dup(wire))

    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(sealed._FORKING, "send", fork)
    asked = {"other": str(ROOT / "README.md"), "port": listener.getsockname()[1]}
    with listener:
        assert sealed.read_sealed(STATISTICS[1], "reach", asked)[0] == {"got": [], "own": b"$FL2".hex()}
    os.wait()


def test_what_a_reader_sends_is_believed_as_little_as_its_file(monkeypatch):
    """It may have been taken over: it ends early, counts wrong, or sends what is none."""
    table = pa.table({"a": [1, 2]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    raw = sink.getvalue().to_pybytes()

    def read(said: bytes):
        def answer(wire):
            with os.fdopen(wire, "r+b", 0) as both:
                both.readline()
                both.write(said)

        monkeypatch.setattr(sealed._FORKING, "send", lambda _, wire: Thread(target=answer, args=[os.dup(wire)]).start())
        return sealed.read_sealed(STATISTICS[0], "statistics", {})[1].num_rows

    head = json.dumps({"rows": 2, "facts": {}}).encode() + b"\n"
    assert read(head + raw) == 2
    for said in (b"", b"5\n", b"[]\n", b"{}\n", b"x" * 99, head, head + raw[:-200], head.replace(b"2", b"3") + raw,
                 head.replace(b"2", b"0") + raw, head.replace(b"facts", b"fact") + raw):  # fmt: skip
        with pytest.raises(DataError, match="harms who reads it"):
            read(said)


def test_what_reads_ends_with_who_asked(tmp_path):
    """Killed, so that nobody tells it."""
    text = (
        "import sys, time\nfrom pathlib import Path\nfrom training.rows.sources import files, sealed\n"
        f"files.open_file(Path({str(STATISTICS[0])!r})).types()\n"
        "print(sealed._FORKING._process.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, cwd=ROOT) as asks:
        reader = int(asks.stdout.readline())
        os.kill(reader, 0)
        asks.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not Path(f"/proc/{reader}").exists() or "State:\tZ" in Path(f"/proc/{reader}/status").read_text():
            return
        time.sleep(0.1)
    raise AssertionError("it lives on")


def mutate(raw: bytes, chance: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(chance.choice([1, 2, 5, 20])):
        at = chance.randrange(len(changed))
        width = chance.choice([1, 2, 4, 8])
        changed[at : at + width] = chance.choice([b"\0", b"\xff", chance.randbytes(1)]) * width
    return bytes(changed)


def test_mutated_files_are_read_or_refused(tmp_path):
    chance, ends = random.Random(8), Counter[str]()
    write_workbook(tmp_path / "a.xlsx", {"s": [["age", "town"], [1, "Bonn"], [2.5, "Kiel"]]})
    for number in range(80):
        seed = chance.choice([*STATISTICS, tmp_path / "a.xlsx"])
        path = tmp_path / f"{number}{seed.suffix}"
        path.write_bytes(mutate(seed.read_bytes(), chance))
        try:
            open_file(path).types()
            ends["read"] += 1
        except DataError as error:
            ends["refused" if error.message.startswith(f"data={path.name}: ") else "otherwise"] += 1
    assert ends.keys() == {"read", "refused"}
    assert min(ends.values()) > 3
