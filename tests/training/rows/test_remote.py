"""Rows that are fetched: the same ones as from a disk, from finished pieces on where a fetch was cut, and nothing is
registered where the source changes. Here by `file://`, a network drive; `test_stores.py` has a real object store.
"""

from __future__ import annotations

import json
import os
import re
import resource

import pytest
from parts_of_rows import SCHEMA, register, write_parts

from accountant.errors import DataError, WrongState
from dpserve_verify.errors import InputError, LedgerUnavailable
from serving.cli.app import run
from training.rows.packed.working import KEPT_FOR, working_folder
from training.rows.sources import remote
from training.rows.sources.folders import open_table
from training.rows.sources.remote import fetch_rows


@pytest.fixture
def drive(tmp_path):
    write_parts(tmp_path / "drive")
    return tmp_path / "drive"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    assert run(["init"]) == 0
    return tmp_path / "home"


@pytest.mark.parametrize("asked", ["", "/*/part.csv", "/year=202[12]", "/**/*.csv", "/year=2023/part.csv"])
def test_what_is_fetched_is_what_would_be_read_from_the_disk(drive, tmp_path, asked):
    with fetch_rows(f"file://{drive}{asked}", tmp_path / "home") as place:
        one, other = open_table(place), open_table(drive.parent / f"drive{asked}")
        kinds = {"lab": remote.pa.float64()}
        read = [[batch.to_pydict() for batch in each.batches(list(other.types()), kinds)] for each in (one, other)]
        assert read[0] == read[1] != []
    assert not list((tmp_path / "home").iterdir())


def test_a_registration_that_was_cut_goes_on_from_its_pieces_and_gives_the_same_bits(
    drive, home, tmp_path, monkeypatch, capsys
):
    copied, real = [], remote._copy_object

    def cut(source, file):
        if file.parent.name == "year=2023":
            raise ConnectionResetError(104, "secret words of a server")
        copied.append(file.parent.name)
        return real(source, file)

    monkeypatch.setattr(remote, "AT_ONCE", 1)
    monkeypatch.setattr(remote, "_copy_object", cut)
    assert register("a", f"file://{drive}", tmp_path) == 2
    told = capsys.readouterr().err
    assert "cannot be reached" in told
    assert "goes on from there" in told
    assert "secret" not in told
    assert copied == ["year=2020", "year=2021", "year=2022"]
    (kept,) = (home / "datasets").glob("*.fetched")
    (spoilt,) = kept.glob("rows/*/year=2021/part.csv")
    spoilt.write_bytes(spoilt.read_bytes()[:-1])  # not what was delivered: it is fetched again
    with (kept / "pieces").open("a") as notes:
        notes.write('{"path": "cut in the mid')
    changed = drive / "year=2022" / "part.csv"  # another version in the store, of the same size
    os.utime(changed, ns=(0, changed.stat().st_mtime_ns + 1))
    copied.clear()
    monkeypatch.setattr(
        remote, "_copy_object", lambda source, file: (copied.append(file.parent.name), real(source, file))[1]
    )
    assert register("a", f"file://{drive}", tmp_path) == 0
    assert copied == ["year=2021", "year=2022", "year=2023", "year=2024"]
    assert [each.suffix for each in (home / "datasets").iterdir()] == [""]
    assert json.loads((home / "datasets.json").read_text())["a"]["data"] == f"file://{drive}"
    capsys.readouterr()
    assert register("b", drive, tmp_path) == 2  # uninterrupted, from the disk: the same bits
    assert "these rows are registered already, as a" in capsys.readouterr().err


def _longer(path):
    path.write_text(path.read_text() + "1,no\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "what", "told"),
    [
        ("before", _longer, "changed while it was read, or was cut short"),
        ("before", lambda path: os.truncate(path, 100), "changed while it was read, or was cut short"),
        ("before", lambda path: path.unlink(), "no such bucket or object"),
        ("after", lambda path: os.utime(path, ns=(0, 0)), "changed, came or went"),
        ("after", lambda path: path.with_name("more.csv").write_text("lab,y\n"), "changed, came or went"),
        ("after", lambda path: path.unlink(), "no such bucket or object|changed, came or went"),
    ],
)
def test_a_source_that_changes_meanwhile_is_refused(drive, home, tmp_path, monkeypatch, capsys, when, what, told):
    real = remote._fetch

    def meanwhile(*asked):
        if when == "before":
            what(drive / "year=2023" / "part.csv")
        real(*asked)
        if when == "after":
            what(drive / "year=2023" / "part.csv")

    monkeypatch.setattr(remote, "_fetch", meanwhile)
    assert register("a", f"file://{drive}", tmp_path) == 2
    error = capsys.readouterr().err
    assert any(each in error for each in told.split("|")), error
    assert run(["dataset", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"datasets": [], "next": None}


def test_a_full_disk_is_told_and_what_was_fetched_is_kept(drive, tmp_path):
    with (drive / "year=2024" / "part.csv").open("a") as file:
        file.write("1,no\n" * 20_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, before[1]))
    try:
        with (
            pytest.raises(LedgerUnavailable, match="no room for the fetched rows"),
            fetch_rows(f"file://{drive}", tmp_path),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (kept,) = tmp_path.glob("*.fetched")
    assert {json.loads(line)["name"] for line in (kept / "pieces").read_text().splitlines()} == {
        f"year={year}/part.csv" for year in range(2020, 2024)
    }


def test_one_process_fetches_and_what_nobody_came_back_for_goes_after_a_day(drive, tmp_path):
    url, home = f"file://{drive}", tmp_path / "home"
    with fetch_rows(url, home), pytest.raises(WrongState, match="another registration"), fetch_rows(url, home):
        pass
    with pytest.raises(ZeroDivisionError), fetch_rows(url, home):
        raise ZeroDivisionError
    (kept,) = home.glob("*.fetched")
    with working_folder(home):
        assert kept.exists()
    old = (kept / "pieces").stat().st_mtime - KEPT_FOR - 1
    for each in (kept, *kept.iterdir()):
        os.utime(each, (old, old))
    with fetch_rows(url, home), working_folder(home):
        assert kept.exists()  # somebody came back


SECRETS = (
    "s3://ward:hush@bucket/x",
    "s3://hush@bucket/x",
    "s3://bucket/x?access_key=hush&secret_key=hush",
    "abfs://box@account.dfs.core.windows.net/x?sas_token=hush",
)


@pytest.mark.parametrize("data", SECRETS)
def test_a_url_with_a_secret_is_refused_and_not_repeated(tmp_path, data):
    with pytest.raises(InputError) as caught, fetch_rows(data, tmp_path):
        pass
    assert "hush" not in caught.value.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", ["s3:///rows", "abfs://rows/x", "gs://", "file://rows/x"])
def test_a_url_without_a_place_is_refused(tmp_path, data):
    with pytest.raises(InputError, match=re.escape(f"data={data}:")), fetch_rows(data, tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_what_is_no_table_is_told_before_it_is_fetched(drive, tmp_path):
    (drive / "notes.doc").write_text("hello")
    for data, told in (
        (drive, "must be text"),
        (f"{drive}/none", "no such"),
        (f"{drive}/*.xyz", "names no object"),
    ):
        with pytest.raises(DataError, match=told), fetch_rows(f"file://{data}", tmp_path / "home"):
            pass
    assert not list((tmp_path / "home").glob("*/rows"))
