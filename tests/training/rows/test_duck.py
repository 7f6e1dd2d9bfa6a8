"""What DuckDB answers about named files is registered as a file is, and it reaches nothing that was not named."""

from __future__ import annotations

import gzip
import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from workbooks import write_workbook

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.written import PLAIN, Form
from serving.cli.app import run
from training.rows.sources.files import ArrowTable
from training.rows.tables.duck import run_query

duckdb = pytest.importorskip("duckdb")

SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 2000
features:
  visits: {type: numeric, range: [0, 10]}
  most: {type: numeric, range: [0, 1000]}
  year: {type: numeric, range: [2020, 2030]}
"""
QUERY = """
select count(*) as visits, max(r.lab) as most, r.year::int as year,
  any_value(case when o.lab > 500 then 'yes' else 'no' end) as y
  from rows r join rows o on o.person = r.person and o.lab = r.person
  group by r.person, r.year order by r.person
"""


@pytest.fixture
def wards(tmp_path):
    """Two visits each of 2,000 people, in Hive partitions of Parquet."""
    for year in (2020, 2021):
        people = range((year - 2020) * 1000, (year - 2019) * 1000)
        rows = {"person": [p for p in people for _ in "ab"], "lab": [lab for p in people for lab in (p, p % 700)]}
        (tmp_path / "wards" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table(rows), tmp_path / "wards" / f"year={year}" / "part.parquet")
    return tmp_path / "wards"


def read(data, query, form=PLAIN, name=None, folder=None):
    with run_query(f"duckdb:{data}", query, name, form, folder) as path:
        return pa.Table.from_batches(ArrowTable(path).batches([*ArrowTable(path).types()], {})).to_pydict()


@pytest.mark.slow
def test_what_a_query_makes_of_files_is_registered_and_is_the_same_from_every_place(
    wards, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    rest = [
        "--schema",
        str(tmp_path / "schema.yaml"),
        "--epsilon",
        "3",
        "--delta",
        "1e-6",
        "--unit",
        "record",
        "--json",
    ]
    assert run(["init"]) == 0
    register = ["dataset", "register"]
    assert run([*register, "a", "--data", f"duckdb:{wards}", "--query", QUERY, *rest]) == 2
    assert "a join" in capsys.readouterr().err
    reason = ["--query-reason", "joined to their own rows, and grouped by person"]
    assert run([*register, "a", "--data", f"duckdb:{wards}", "--query", QUERY, *reason, *rest]) == 0
    assert json.loads((tmp_path / "home" / "datasets.json").read_text())["a"]["data"] == f"duckdb:{wards}"
    counted = read(wards, QUERY, folder=tmp_path)
    assert len(counted["visits"]) == 2000
    assert set(counted["visits"]) == {2, 4}
    pq.write_table(pa.table(counted), tmp_path / "rows.parquet")
    with duckdb.connect(str(tmp_path / "wards.duckdb")) as own:
        own.execute(f"create view rows as select * from read_parquet('{wards}/*/*.parquet', hive_partitioning = true)")
        own.execute(f"create table counted as {QUERY}")
    before = hashlib.sha256((tmp_path / "wards.duckdb").read_bytes()).digest()
    for data, asked in {
        f"{tmp_path / 'rows.parquet'}": [],
        f"duckdb:{wards}/*/*.parquet": ["--query", QUERY, *reason],
        f"duckdb:file://{wards}": ["--query", QUERY, *reason],
        f"duckdb:///{tmp_path / 'wards.duckdb'}": ["--table", "counted"],
        f"duckdb:{tmp_path / 'wards.duckdb'}": ["--query", "select * from main.counted"],
    }.items():
        capsys.readouterr()
        assert run([*register, "b", "--data", data, *asked, *rest]) == 2
        assert "these rows are registered already, as a" in capsys.readouterr().err
    # A view is a query that somebody else wrote, and this one reads files that were not named.
    view = ["--data", f"duckdb:{tmp_path / 'wards.duckdb'}", "--table", "rows"]
    assert run([*register, "b", *view, *rest]) == 2
    assert "'rows' is no plain table" in capsys.readouterr().err
    assert run([*register, "b", *view, *reason, *rest]) == 2
    assert "what --data does not name" in capsys.readouterr().err
    assert hashlib.sha256((tmp_path / "wards.duckdb").read_bytes()).digest() == before
    assert not list(tmp_path.glob("home/datasets/*.partial"))
    assert not list(tmp_path.glob("wards.duckdb.*"))


def test_cells_of_a_csv_are_texts_read_as_the_schema_says(tmp_path):
    lines = "name;lab;note\nÉmile;007;a\nZoë;;" + '"two\nlines; one cell"\n'
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(lines.encode("latin-1"))
    found = read(
        tmp_path / "rows.csv.gz", "select * from rows order by name desc", Form(";", "latin-1"), folder=tmp_path
    )
    assert found == {"name": ["Émile", "Zoë"], "lab": ["007", None], "note": ["a", "two\nlines; one cell"]}
    assert read(tmp_path / "rows.csv.gz", None, Form(";", "latin-1"), "rows", tmp_path)["lab"] == ["007", None]


def test_a_file_that_differs_from_the_first_is_named(wards, tmp_path):
    pq.write_table(pa.table({"person": ["a"], "lab": [1]}), wards / "year=2021" / "zz.parquet")
    with pytest.raises(DataError, match=r"zz\.parquet: column 'person' holds string, and int64"):
        read(wards, QUERY, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select lab::varchar || 'hush' as x from rows where error(lab::varchar) is null", "DuckDB refused"),
        ("select * from read_csv('{}/secret.csv')", "what --data does not name"),
        ("select * from '{}/secret.csv'", "DuckDB refused"),
        ("select * from glob('{}/*')", "what --data does not name"),
        ("select * from read_parquet('s3://bucket/x')", "DuckDB refused"),
        ("attach '{}/new.db'", "must be one select"),
        ("copy rows to '{}/new.csv'", "must be one select"),
        ("select 1; select 2", "must be one select"),
        ("set enable_external_access = true", "must be one select"),
        ("install httpfs", "must be one select"),
        ("create table x as select * from rows", "must be one select"),
        ("", "must be one select"),
        ("select nosuch from rows", "nosuch"),
        ("select * from wards", "DuckDB refused"),
    ],
)
def test_nothing_else_is_reached_and_no_value_is_told(wards, tmp_path, query, told):
    (tmp_path / "secret.csv").write_text("lab\n1\n")
    with pytest.raises((DataError, InputError)) as caught:
        read(wards, query.format(tmp_path), folder=tmp_path / "home")
    assert told in caught.value.message
    assert "699" not in caught.value.message
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home", "secret.csv", "wards"]
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.parametrize(
    ("data", "query", "name"),
    [
        ("x.parquet", None, None),
        ("x.parquet", "select 1", "rows"),
        ("", "select 1", None),
        ("no.duckdb", "select 1", None),
    ],
)
def test_what_names_nothing_is_refused(tmp_path, data, query, name):
    with pytest.raises(InputError):
        read(data, query, PLAIN, name, tmp_path)


def test_files_of_which_duckdb_knows_nothing_are_the_table_of_a_query_as_well(tmp_path):
    (tmp_path / "a.data").write_text("a   b\n1 x\n2    y\n")
    (tmp_path / "a.csv").write_text("sep=;\na;b\n1;x\n2;y\n")
    write_workbook(tmp_path / "a.xlsx", {"rows": [["a", "b"], [1, "x"], [2, "y"]]})
    for name, form in (("a.data", Form(" ")), ("a.csv", Form(";")), ("a.xlsx", PLAIN)):
        told = read(tmp_path / name, "select b from rows where a::int = 2", form, folder=tmp_path / "work")
        assert told == {"b": ["y"]}, name


def test_an_empty_cell_of_a_csv_is_null_however_it_is_cut(tmp_path):
    for said, form in (("", PLAIN), ("sep=,\n", PLAIN), ("a title\n", Form(skip=1)), ("", Form(skip_rows=("sum",)))):
        (tmp_path / "a.csv").write_text(f"{said}a,b\n1,\n2,NA\n3,x\n")
        found = read(tmp_path / "a.csv", "select a from rows where b is null", form, folder=tmp_path / "work")
        assert found == {"a": ["1", "2"]}, said


def test_texts_of_a_file_that_is_read_as_codes_are_texts(tmp_path):
    table = pa.table({" a": pa.array(["x" * 90_000, "y"] * 400), "b": pa.array(["u", "v"] * 400).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    found = read(tmp_path / "a.parquet", "select a[1] as a, b from rows", folder=tmp_path / "work")
    assert found == {"a": ["x", "y"] * 400, "b": ["u", "v"] * 400}
