"""Parquet bodies: unpacked in a program of its own, as strictly as Arrow, within the memory that it may have."""

from __future__ import annotations

import contextlib
import io
import resource
from datetime import date
from functools import partial

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from in_process import Site, code
from pyarrow import ipc
from small_home import records

from accountant.home import Home
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.features.table_format import USUAL_FORMAT
from serving.rest import models
from serving.wire import file_tables, work_time
from serving.wire.errors import TakesTooLong, TooLarge
from serving.wire.tables_in import Table
from training.datasets import one_file

FEATURES = (NumericFeature("age", (30.0,)), CategoricalFeature("job", ("cook", "nurse")), BooleanFeature("own.er"))
TABLE = pa.table(
    {
        "owner": [date(2026, 1, 1)] * 3,  # which no model asks for
        "own.er": [True, None, False],
        "job": pa.array(["cook", None, "nurse"]).dictionary_encode(),
        "age": pa.array([20, None, 40], pa.int16()),
    }
)
LIMIT = 20_000


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine takes longer to start a program than a request may take."""
    monkeypatch.setattr(work_time, "WORK_SECONDS", 120.0)


def unpack(raw: bytes, keep: str = "") -> Table:
    """The features' columns of a body."""
    return file_tables.table_of_file(raw, "", FEATURES, USUAL_FORMAT, LIMIT, keep)[0]


def body(table: pa.Table = TABLE, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def column(values, name: str = "job", **options) -> bytes:
    """A body whose column of that name is this one."""
    count = len(values)
    columns = {"age": pa.nulls(count), "job": pa.nulls(count), "own.er": pa.nulls(count), name: values}
    return body(pa.table(columns), **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"}, {"compression": "zstd", "row_group_size": 1},
        {"compression": "gzip", "version": "1.0"},
        {"compression": "none", "use_dictionary": False}, {"compression": "brotli", "data_page_version": "2.0"},
        {"compression": "lz4", "store_schema": False, "write_page_checksum": True},
    ],
)  # fmt: skip
def test_columns_are_those_of_the_file_however_it_was_written(options):
    table = unpack(body(**options))
    assert sorted(table.columns) == ["age", "job", "own.er"]  # the other column is not unpacked
    columns = table.read(FEATURES, {"age", "job", "own.er"})
    np.testing.assert_array_equal(columns["age"], [20, np.nan, 40])
    np.testing.assert_array_equal(columns["own.er"], [1, np.nan, 0])
    assert columns["job"].tolist() == ["cook", "", "nurse"]


def test_a_file_without_a_row_is_one():
    assert len(unpack(body(TABLE.slice(0, 0))).columns["age"]) == 0


def test_what_is_kept_comes_as_it_stands_beside_a_feature_of_its_name_as_well():
    for name, cells in (("owner", ["2026-01-01"] * 3), ("age", ["20", "", "40"])):
        table, kept = file_tables.table_of_file(body(), "", FEATURES, USUAL_FORMAT, LIMIT, name)
        assert kept == cells
        np.testing.assert_array_equal(table.read(FEATURES, {"age"})["age"], [20, np.nan, 40])
    with pytest.raises(InputError, match="height: is missing"):
        unpack(body(), "height")


NESTED = pa.table({"age": [1], "job": [["cook"]], "own.er": [True]})
INSIDE = pa.table({"age": [1], "job": ["cook"], "own": [{"er": True}]})  # its path is own.er
BOMB = "x" * (8 << 20)
SHARED = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array([BOMB]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "kind", "problem"),
    [
        (body()[:-3], InputError, "cannot be read"),
        (body()[:40] + body()[-40:], InputError, "cannot be read"),
        (b"PAR1" + b"\xff" * 200 + (150).to_bytes(4, "little") + b"PAR1", InputError, "cannot be read"),
        (b"PAR1PAR1", InputError, "cannot be read"),
        (b"PAR1" + (1 << 31).to_bytes(4, "little") + b"PAR1", InputError, "cannot be read"),
        (body(TABLE.drop_columns(["job"])), InputError, "job: is missing"),
        (body(NESTED), InputError, "job: is a column of list"),
        (body(INSIDE), InputError, "own.er: is missing"),
        (body(pa.table([TABLE["age"], TABLE["age"], TABLE["job"], TABLE["own.er"]], ["age", "age", "job", "own.er"])),
         InputError, "age: stands there twice"),
        (column(pa.array([b"cook"])), InputError, "job: is a column of binary"),
        (column(pa.nulls(LIMIT + 1)), TooLarge, "20001 records"),
        (partial(column, SHARED, compression="zstd"), TooLarge, "room"),  # 16 GB: one text for all
        (partial(column, pa.array([BOMB] * 9), use_dictionary=False, compression="zstd"), TooLarge, "send fewer"),
    ],
)  # fmt: skip
def test_what_is_spoilt_nested_or_too_much_is_refused_and_says_why(raw, kind, problem):
    raw = raw if isinstance(raw, bytes) else raw()  # what takes long to write is not written to collect tests
    assert len(raw) < 2 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kind) as found:
        unpack(raw)
    assert problem in found.value.message
    assert found.value.message.startswith("body: Parquet ")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kB of this process


@pytest.mark.slow
def test_a_footer_that_lies_about_its_rows_and_every_cut_and_flip_is_refused_or_right(monkeypatch):
    """What comes out is what was written, or a refusal: never an error of the server's, whatever bit was turned."""
    warm.read_files_by_forks(monkeypatch)
    table = pa.table({"age": list(range(200)), "job": ["cook"] * 200, "own.er": [True] * 200})
    raw = body(table, write_page_checksum=True)
    said = raw.rindex(b"PAR1") - 4 - int.from_bytes(raw[-8:-4], "little")
    assert pq.ParquetFile(io.BytesIO(raw)).metadata.num_rows == 200
    more, fewer = (
        raw[:said] + raw[said:].replace(b"\x16\x90\x03", count) for count in (b"\x16\x92\x03", b"\x16\x80\x02")
    )
    rng = np.random.default_rng(7)
    places = rng.integers(4, len(raw) - 8, 12)
    flips = [raw[:at] + bytes([raw[at] ^ 1 << int(rng.integers(8))]) + raw[at + 1 :] for at in places]
    cuts = [raw[: int(at)] + raw[-8:] for at in rng.integers(8, len(raw) - 8, 4)]
    with pytest.raises((InputError, TooLarge)):
        unpack(more)  # 201, of 200
    assert len(unpack(fewer).columns["age"]) == 128  # as many as it says
    for spoilt in (*flips, *cuts):
        with contextlib.suppress(InputError, TooLarge):
            assert len(unpack(spoilt).columns["age"]) == 200


def test_the_program_has_limits_and_none_of_the_servers_secrets(monkeypatch):
    assert file_tables.REFUSED == one_file.REFUSED
    monkeypatch.setenv("DPSERVE_TOKEN", "dps_secret")
    seen = {}
    real = file_tables.subprocess.run
    monkeypatch.setattr(file_tables.subprocess, "run", lambda *a, **k: seen.update(k) or real(*a, **k))
    unpack(body())
    assert not any("DPSERVE" in name for name in seen["env"])
    assert 0 < seen["timeout"] <= 120
    monkeypatch.setattr(file_tables, "seconds_left", lambda: 0.001)
    with pytest.raises(TakesTooLong):
        unpack(body())


@pytest.mark.slow
def test_the_door_takes_it_as_what_it_is_and_answers_as_for_json(tmp_path, monkeypatch):
    path = ledgers.copy(ledgers.trained(), tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(path))
    site = Site(Home.open(ledgers.place(path)), models.DOORS)
    secret, rows = site.token("asks", "predict"), records(30)

    def asked(raw: bytes, kind: bytes = file_tables.PARQUET, **headers: str):
        headers = {"content-type": kind.decode(), **headers}
        return site.bear(secret, "POST", "/predict?model=adult", content=raw, headers=headers)

    told = site.bear(secret, "POST", "/predict", json={"model": "adult", "records": rows}).json()["predictions"]
    raw = body(pa.Table.from_pylist([{"note": "kept", **row} for row in rows]))
    for answer in (asked(raw), asked(raw, b"application/octet-stream")):
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
        assert ipc.open_stream(answer.content).read_all()["label"].to_pylist() == told
    assert asked(raw, accept="application/json").json()["predictions"] == told
    assert [line.split(",")[0] for line in asked(raw, accept="text/csv").text.splitlines()[1:]] == told
    assert code(asked(raw, b"text/csv")) == (400, "bad_input")
    assert code(asked(raw[:-1])) == (400, "bad_input")
    assert code(asked(body())) == (400, "bad_input")  # another model's columns
    assert code(asked(body(pa.Table.from_pylist(rows * 700)))) == (413, "too_large")
    wide = [{**row, "workclass": BOMB[:4000]} for row in rows] * 600
    assert code(asked(body(pa.Table.from_pylist(wide), compression="zstd"))) == (413, "too_large")
