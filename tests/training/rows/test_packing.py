"""Rows on their way into their files: as numpy would have saved them, whatever the batches; a full disk, a process that
was killed, and parts that are told apart a few rows at a time.
"""

from __future__ import annotations

import hmac
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.errors import DataError
from accountant.home import Home
from dpserve_verify.errors import LedgerUnavailable
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import files_of, register
from training.datasets.packing import pack
from training.rows.packed import growing
from training.rows.packed.growing import Growing, write_chosen
from training.rows.packed.working import working_folder
from training.rows.people import parts
from training.rows.people.parts import Parting
from training.rows.schema.schema import parse_schema

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = 'target: {name: y, classes: ["no", "yes"]}\nrecords: 5000\nfeatures:\n  x: {type: numeric, range: [0, 9]}\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("packing")


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 9), st.sampled_from([np.uint8, np.uint16, np.int32]))
@settings(max_examples=60)
def test_a_file_is_the_one_that_numpy_saves(place, columns, rows, spare, kind):
    """Written in pieces, with more room than there were rows, and closed up a few bytes at a time."""
    path, (same,) = place / "grown.npy", np.random.default_rng(rows).integers(0, 200, (1, columns, rows)).astype(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "CHUNK", 3)
        for array in (same, same[0]):
            file = Growing(path, kind, columns if array.ndim == 2 else None, rows + spare)
            for column, values in enumerate(np.atleast_2d(array)):
                for start in range(0, rows, 7):
                    file.write(column, start, values[start : start + 7])
            assert (file.done(rows) == array).all()
            np.save(place / "saved.npy", array)
            assert path.read_bytes() == (place / "saved.npy").read_bytes()
            own = np.arange(rows) % 3 == 1
            assert (write_chosen(array, own, int(own.sum()), place / "own.npy") == array[..., own]).all()
            path.unlink()
            (place / "own.npy").unlink()


def home_with(folder: Path, rows: int) -> tuple[Home, Path, Path]:
    random = np.random.default_rng(0)
    table = {"x": random.uniform(0, 9, rows), "y": random.choice(["no", "yes"], rows)}
    pq.write_table(pa.table(table), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    return home, folder / "rows.parquet", folder / "schema.yaml"


def put(home: Home, *paths: Path) -> None:
    register(home, "d", *paths, Budget.of("1", "1e-6"), Relation.ADD_REMOVE, "record", holdout=Decimal("0.3"))


@contextmanager
def files_of_at_most(size: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_full_disk_is_refused_in_words_and_nothing_is_left(tmp_path):
    paths = home_with(tmp_path, 300_000)
    (tmp_path / "home" / "datasets").mkdir(exist_ok=True)
    with files_of_at_most(500_000), pytest.raises(LedgerUnavailable, match="disk: no room for the packed rows"):
        put(*paths)
    assert not paths[0].ledger.datasets()
    assert not list(paths[0].datasets.iterdir())
    put(*paths)
    assert len(paths[0].ledger.datasets()) == 1


@pytest.mark.slow
def test_a_commitment_is_one_mac_over_names_and_bytes_whatever_the_processors(tmp_path):
    """Whatever is hashed beside what: the definition, on all bytes at once; and that without fine cells, by which rows
    are known that were registered before there were any.
    """
    home, data, schema = home_with(tmp_path, 150_000)
    processors, found = sorted(os.sched_getaffinity(0)), set()
    for count in (1, 2, 3):
        copied = tmp_path / str(count)
        shutil.copytree(home.path, copied)
        os.sched_setaffinity(0, processors[:count])
        try:
            put(opened := Home.open({"DPSERVE_HOME": str(copied)}), data, schema)
        finally:
            os.sched_setaffinity(0, processors)
        (dataset,) = opened.ledger.datasets()
        folder, files = copied / "datasets" / dataset.registration.commitment, files_of(dataset)
        assert files == [f"{part}{name}.npy" for part in ("", "holdout-") for name in ("bins", "labels")] + [
            "cells-of-octaves.npy", "holdout-cells-of-octaves.npy", "schema.yaml"
        ]  # fmt: skip
        whole = b"".join(name.encode() + (folder / name).read_bytes() for name in files)
        assert dataset.registration.commitment == hmac.new(home.keys._commitment_key, whole, "sha256").hexdigest()
        found.add(dataset.registration.commitment)
    assert len(found) == 1


def test_what_a_killed_process_left_is_cleared_away_and_what_another_works_in_is_not(tmp_path):
    child = (
        "import sys, time; from pathlib import Path; from training.rows.packed.working import working_folder\n"
        "with working_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'bins.npy').write_bytes(b'rows'); print(folder.name, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", child, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        try:
            name = other.stdout.readline().strip()
            with working_folder(tmp_path) as own:
                assert {each.name for each in tmp_path.iterdir()} == {name, own.name}
        finally:
            other.send_signal(signal.SIGKILL)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    with working_folder(tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
    assert not list(tmp_path.iterdir())


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=60)
def test_parts_of_records_are_the_same_however_few_are_looked_at_at_one_time(rows, at_once, seed):
    columns = [*np.random.default_rng(seed).integers(0, 3, (2, rows)).astype(np.uint16)]
    parting = Parting(b"k" * 32, Decimal("0.4"))
    whole = parting.of_records(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "AT_ONCE", at_once)
        assert parting.of_records(columns).tolist() == whole.tolist()


class Watcher:
    """Raises at a batch, after what packs it."""

    names = ("x",)

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, []

    def __call__(self, batch: pa.RecordBatch, start: int) -> None:
        time.sleep(0.02)
        self.seen.append((start, len(batch)))
        if len(self.seen) == self.at:
            raise DataError("looked at")


def test_what_is_wrong_is_told_in_the_order_of_the_batches_however_many_are_at_work(tmp_path):
    """Four batches, of which one is read while another is looked at and packed: the last can not be read, the second
    can not be packed. Who looks at the second is heard first, then who packs it; the reader's word comes last.
    """
    schema, size = parse_schema(SCHEMA.encode()), 1 << 16
    rows, path = {"x": np.arange(4.0 * size) % 9, "y": ["no"] * (4 * size)}, tmp_path / "rows.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=size, compression=None)
    whole = path.read_bytes()
    broken = bytearray(whole)
    at = pq.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    broken[at : at + 64] = b"\0" * 64
    path.write_bytes(broken)
    with pytest.raises(DataError, match="cannot be read as parquet"):
        pack(path, schema, scan=Watcher(0))
    rows["y"][size + 5] = "maybe"
    pq.write_table(pa.table(rows), path, row_group_size=size, compression=None)
    with pytest.raises(DataError, match=f"row {size + 7} .*: missing, or not one of the classes"):
        pack(path, schema, scan=Watcher(3))
    with pytest.raises(DataError, match="looked at"):
        pack(path, schema, scan=Watcher(2))
    path.write_bytes(whole)
    pack(path, schema, scan=(watcher := Watcher(0)))
    assert [each[0] for each in watcher.seen] == [0, size, 2 * size, 3 * size]
