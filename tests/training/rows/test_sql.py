"""Rows of a real database are registered as those of a file are, and no secret is told anywhere."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature
from models.features.written import Form
from serving.cli.app import run
from training.rows.packed.working import working_folder
from training.rows.sources.sql import shown_url, spool_query
from training.rows.tables.row_files import read_columns

SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 10000
features:
  lab: {type: numeric, range: [0, 10]}
  smoker: {type: boolean}
  came: {type: date, range: [2020-01-01, 2020-12-31]}
  word: {type: categorical, values: ["a,b", "two\\nlines"]}
"""
ROWS = """
create table visits as select n as person, n % 10 + 0.5 as lab, n % 3 = 0 as smoker, {date} as came,
case n % 3 when 0 then 'a,b' when 1 then 'two
lines' end as word, case n % 2 when 0 then 'no' else 'yes' end as y
from {series}
"""
SERIES = {
    "postgresql": ("date '2020-01-01' + n % 300", "generate_series(1, 10000) n"),
    "sqlite": (
        "date('2020-01-01', '+' || (n % 300) || ' days')",
        "(with recursive s(n) as (select 1 union all select n + 1 from s where n < 10000) select n from s)",
    ),
}


BYTES = {"sqlite": "select x'00' as b", "postgr": "select decode('00', 'hex') as b"}


@pytest.fixture
def database(ledger_url, tmp_path):
    """A table of 10,000 rows in a database of either kind; a password where there is one to tell."""
    kind = ledger_url.partition(":")[0].partition("+")[0]
    url = f"sqlite:///{tmp_path / 'wards.db'}" if kind == "sqlite" else ledger_url
    engine = create_engine(url)
    with engine.begin() as connection:
        date, series = SERIES[kind]
        connection.execute(text(ROWS.format(date=date, series=series)))
    engine.dispose()
    return url


@pytest.mark.slow
def test_a_database_is_registered_as_a_file_is(database, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WARDS_URL", database)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    rest = ["--schema", str(tmp_path / "schema.yaml"), "--epsilon", "3", "--delta", "1e-6", "--json"]
    assert run(["init"]) == 0
    query = "select lab, smoker, came, word, y from visits where person > 0"
    assert (
        run(["dataset", "register", "a", "--data", "env:WARDS_URL", "--query", query, *rest, "--unit", "record"]) == 0
    )
    with spool_query(database, query, None, Form(), tmp_path) as path:
        kept = path.read_bytes()
    assert not path.exists()
    assert kept.count(b"\n") > 10000
    (tmp_path / "rows.csv").write_bytes(kept)
    capsys.readouterr()
    assert run(["dataset", "register", "b", "--data", str(tmp_path / "rows.csv"), *rest]) == 2
    assert "these rows are registered already, as a" in capsys.readouterr().err
    where = json.loads((tmp_path / "home" / "datasets.json").read_text())["a"]["data"]
    assert where == shown_url(database)
    assert sorted(path.suffix for path in (tmp_path / "home" / "datasets").iterdir()) == [""]
    (tmp_path / "schema.yaml").write_text(SCHEMA + "ignore: [person]\n")
    whole = ["--data", database, "--table", "visits", *rest[:2], "--family", "a", "--unit", "record", "--json"]
    assert run(["dataset", "register", "c", *whole]) == 0


@pytest.mark.slow
def test_a_block_is_appended_from_a_database(database, tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("10000", "5000"))
    half = "select lab, smoker, came, word, y from visits where person {} 5000"
    rest = ["--schema", str(tmp_path / "schema.yaml"), "--epsilon", "3", "--delta", "1e-6", "--unit", "record"]
    assert run(["init"]) == 0
    assert run(["dataset", "register", "a", "--data", database, "--query", half.format("<="), *rest]) == 0
    second = ["--data", database, "--query", half.format(">"), "--new-rows", "--reason", "few values, many rows"]
    assert run(["dataset", "append", "a", "--records", "5000", *second]) == 0
    assert sorted(path.suffix for path in (tmp_path / "home" / "datasets").iterdir()) == ["", ""]


def test_rows_of_a_database_stay_while_others_register_and_go_with_a_killed_process(database, tmp_path):
    with spool_query(database, None, "visits", Form(), tmp_path) as path:
        kept = path.read_bytes()
        with working_folder(tmp_path), spool_query(database, None, "visits", Form(), tmp_path):
            assert path.read_bytes() == kept
        assert [each.name for each in tmp_path.glob("*.partial")] == [path.parent.name]
        left = tmp_path / "left.partial"  # as one that was killed leaves it: nobody holds it
        left.mkdir()
        (left / "query.csv").write_bytes(kept)
        with spool_query(database, None, "visits", Form(), tmp_path):
            assert not left.exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("data", "query", "table"),
    [
        ("postgresql://ward:hush@127.0.0.1:1/nowhere", "select 1", None),
        ("postgresql://ward:hush@127.0.0.1:1/nowhere", None, None),
        ("postgresql://ward:hush@127.0.0.1:1/nowhere", "select 1", "both"),
        ("nodatabase://ward:hush@host/x", "select 1", None),
        ("env:NOT_SET", "select 1", None),
        ("sqlite:////none/hush.db", None, "visits"),
    ],
)
def test_what_cannot_be_read_is_refused_without_a_secret(tmp_path, data, query, table):
    with pytest.raises((DataError, InputError)) as refused, spool_query(data, query, table, Form(), tmp_path, {}):
        pass
    assert "hush" not in str(refused.value)
    assert "ward" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_a_database_refuses_quotes_nothing_of_it(database, tmp_path):
    for query in (
        "select word::int from visits",
        "select nothing from visits",
        "drop table visits",
        BYTES[database[:6]],
    ):
        with pytest.raises(DataError) as refused, spool_query(database, query, None, Form(), tmp_path):
            pass
        assert "a,b" not in str(refused.value)
    path = tmp_path / "x"
    path.mkdir()
    sqlite3.connect(path / "empty.db").close()
    with (
        pytest.raises(DataError, match="refused"),
        spool_query(f"sqlite:///{path}/empty.db", None, "no", Form(), tmp_path),
    ):
        pass


def test_a_sqlite_source_is_read_and_nothing_else(tmp_path):
    """Neither the file nor its folder has another byte or another file, whatever the query is."""
    source = tmp_path / "source"
    source.mkdir()
    with closing(sqlite3.connect(source / "wards.db")) as made:
        made.execute("create table visits (word text)")
        made.execute("insert into visits values ('one')")
        made.execute("create virtual table found using fts5(word)")
        made.execute("insert into found values ('two')")
        made.commit()
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    url = f"sqlite:///{source}/wards.db"
    for query in (
        f"attach '{source}/other.db' as other", f"attach '{source}/wards.db' as other", "detach main",
        f"vacuum into '{source}/copy.db'", "vacuum", "pragma journal_mode=wal", "pragma query_only=off",
        "pragma user_version=7", "create temp table t (a)", "insert into visits values ('x') returning word",
        "delete from visits returning word", "analyze", "reindex", "begin immediate", "select load_extension('x')",
    ):  # fmt: skip
        with pytest.raises(DataError, match="refused"), spool_query(url, query, None, Form(), tmp_path):
            pass
        assert {path.name: path.read_bytes() for path in source.iterdir()} == before, query
    for query, told in (
        ("select word from visits", "one"),
        ("with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select max(i) from n", "3"),
        ("select word from found where found match 'two' order by rank", "two"),
    ):
        with spool_query(url, query, None, Form(), tmp_path) as path:
            assert path.read_text().splitlines()[1] == told
    for kind in ("https", "ftp"):  # with a query or without: what may stand there is said first
        with pytest.raises(InputError, match=f"data={kind}://: no rows.*name that.*sqlite:///file.*s3://") as refused:
            shown_url(f"{kind}://example.org/rows.csv")
        assert "driver" not in str(refused.value)
        with pytest.raises(DataError, match="no such file; name a file or folder of this machine: `dpserve dataset"):
            list(read_columns(Path(f"{kind}://example.org/rows.csv"), [BooleanFeature("a")]))
    with pytest.raises(DataError, match=r"none.csv: no such file$"):
        list(read_columns(tmp_path / "none.csv", [BooleanFeature("a")]))
