"""A query keeps one unit's rows apart, or the steward is asked: by its text, and on real rows with one person less."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter

import pytest
from postgres import server
from sqlalchemy import create_engine, text

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError
from dpserve_verify.keys import dsse
from serving.cli.app import run
from training.datasets.opened import RowSource, rows_at
from training.rows.sources.selects import MOST_CHARACTERS, read_select

PASSING = [
    "select * from t",
    "select * from t;",
    "select t.* from t as t",
    "SELECT PID, a FROM t",
    "select pid, a * 2 as a, y from t where a between 1 and 50 and y in ('no', 'yes') and not a is null",
    "select pid, cast(a as int) as a, case when a > 50 then 'yes' else 'no' end as y from t",
    "select pid, round(abs(a), 1) as a, lower(trim(y)) || 's' as y, coalesce(nullif(y, 'no'), 'x') as z from t",
    'select pid, "limit", "order" from u where "distinct" = 1',
    "select pid, count(*) as n, avg(a) as a, max(y) as y from t group by pid",
    "select pid, count(distinct y) as n, sum(a) as a from t group by 1",
    "select pid, y, min(a) as a from t group by pid, y",
    "select pid, max(a) as a from t where a > 1 group by pid having count(*) > 1",
]
ASKED = {
    "select * from t limit 100": "LIMIT",
    "select * from t limit 10 offset 5": "OFFSET",
    "select * from t order by a desc limit 100": "LIMIT",
    "select * from t order by a": "ORDER BY",
    "select distinct * from t": "DISTINCT",
    "select pid, a - (select avg(a) from t) as a, y from t": "a query in the query",
    "select pid, rank() over (order by a) as a, y from t": "OVER",
    "select pid, sum(a) over w as a from t window w as (partition by y)": "OVER",
    "select avg(a) as a from t": "AVG",
    "select y, avg(a) as a from t group by y": "'pid' must be grouped by",
    "select max(pid) as pid, avg(a) as a from t group by y": "'pid' must be grouped by",
    "select pid as b, y as pid, max(a) as a from t group by pid, y": "a name that is a column's and an expression's",
    "select pid, a from t group by pid": "neither grouped by nor added up",
    "select pid, max(a) as a from t group by pid having a > 1": "neither grouped by nor added up",
    "select pid, group_concat(y) as y from t group by pid": "in an order that is open",
    "select pid, max(a) filter (where a > 1) as a from t group by pid": "Filter",
    "select pid, a from t having a > 1": "HAVING",
    "with u as (select * from t) select * from u": "WITH",
    "with recursive u(n) as (select 1 union select n + 1 from u) select n as pid from u": "WITH",
    "select * from t union select * from t": "puts several queries together",
    "select * from t intersect select * from t": "puts several queries together",
    "select * from t except select * from t": "puts several queries together",
    "select t.pid, u.a from t join t as u on t.y = u.y": "a join",
    "select t.pid, u.a from t, t as u": "a join",
    "select * from (select * from t)": "reads from another query",
    "select * from t where pid in (select pid from t where a > 50)": "IN looks into a table or a query",
    "select * from t where pid in u": "IN looks into a table",
    "select * from t where exists (select 1 from t)": "a query in the query",
    "select * from t tablesample bernoulli(10)": "a sample",
    "select * from pragma_table_info('t')": "a function of tables",
    "select json_each.value as a from t, json_each(t.a)": "a join",
    "select pid, mine(a) as a from t": "the function 'mine'",
    "select pid, a -> '$.x' as a from t": "not known to look at one row",
    "select pid, date('now') as a from t": "the present moment",
    "select pid, a from t where y = ' Today'": "the present moment",
    "select pid, a from t where rowid < 100": "where a row lies",
    "select pid, a /* of all */ from t": "comments",
    "select pid, a from t -- of all": "comments",
    "select pid || '1' as pid, a from t": "'pid' is computed",
    "select 'one' as pid, a from t": "'pid' is computed",
    "select *, upper(pid) as pid from t": "may stand in it twice",
    "select a as pid, pid as b from t": "another column of the table",
    "select y as pid, a from t": "another column of the table",
    "select y as pid, count(*) as n from t group by y": "'pid' must be grouped by",
    "select 1 as pid": "reads no table",
    "(select * from t)": "a query in it",
    "select pid, a from t x y z": "cannot read",
}
NEVER = {
    "": "must be one select",
    " ": "must be one select",
    ";": "must be one select",
    "select 1; select 2": "must be one select",
    "select * from t; drop table t": "must be one select",
    "drop table t": "must be one select",
    "insert into t values (1)": "must be one select",
    "update t set a = 1": "must be one select",
    "delete from t": "must be one select",
    "explain select 1": "must be one select",
    "pragma table_info(t)": "must be one select",
    "select * into u from t": "must be one select",
    "select a b c d from t; select 2": "semicolon",
    "select pid, random() as a from t": "differently each time",
    "select pid, hex(randomblob(4)) as a from t": "differently each time",
    "select pid, current_timestamp as a from t": "differently each time",
    "select pid, date() as a from t": "differently each time",
    "select pid, a from t where abs(random()) % 10 = 0": "differently each time",
    "select pid, a\0 from t": "control character",
    "select pid, a\ud800 from t": "control character",
    "select " + "(" * 3000 + "1" + ")" * 3000 + " from t": "nested too deeply",
    "select " + "not " * 15000 + "a from t": "nested too deeply",
    "select '" + "x" * 1_000_000 + "' as a from t": f"may have {MOST_CHARACTERS}",
}


@pytest.mark.parametrize("query", PASSING)
def test_expressions_of_one_row_and_groups_of_one_unit_pass(query):
    assert read_select(query, "sqlite", "pid").doubts == ()


@pytest.mark.parametrize(("query", "told"), ASKED.items())
def test_whatever_sees_other_rows_is_asked_about(query, told):
    assert told in "; ".join(read_select(query, "sqlite", "pid").doubts)


@pytest.mark.parametrize(("query", "told"), NEVER.items(), ids=range(len(NEVER)))
def test_what_can_never_be_sound_is_refused(query, told):
    with pytest.raises(InputError, match=told):
        read_select(query, "sqlite", "pid")


@pytest.mark.parametrize(
    ("dialect", "query", "told"),
    [
        ("postgresql", 'select pid, a::int, b::numeric(10, 2), extract(year from d) as d from s."T"', None),
        ("postgresql", "select pid, a from t where y ~ '^x' and z ilike '%y'", None),
        ("postgresql", "select distinct on (pid) * from t", "DISTINCT"),
        ("postgresql", "select pid, a from t fetch first 3 rows only", "FETCH"),
        ("postgresql", "select pid, a from t for update", "FOR UPDATE"),
        ("postgresql", "select pid, a from only t", "ONLY"),
        ("postgresql", "select pid, x from t, lateral (select 1 as x) u", "a join"),
        ("postgresql", "select pid, ctid from t", "where a row lies"),
        ("postgresql", "select pid, a::mood from t", "a type"),
        ("postgresql", "select pid, 'now'::timestamp as d from t", "present moment"),
        ("postgresql", "select n as pid from generate_series(1, 3) n", "a function of tables"),
        ("postgresql", "select pid, max(a) from t group by grouping sets ((pid), ())", "GroupingSets"),
        ("duckdb", "from rows select pid, try_cast(a as int) as a", None),
        ("duckdb", "select pid, any_value(y) as y from rows group by pid", "not known|in an order"),
        ("duckdb", "select pid, list(y) as y from rows group by pid", "in an order"),
        ("duckdb", "select pid, count(*) as n from rows group by all", "several kinds"),
        ("duckdb", "select * from rows using sample 10", "a sample"),
        ("duckdb", "select * from rows qualify row_number() over () = 1", "QUALIFY"),
        ("duckdb", "select unnest([1, 2]) as pid from rows", "not known"),
        ("duckdb", "select columns('a.*') from rows", "not known"),
        ("duckdb", "select * exclude (pid), a as pid from rows", "a star that leaves out"),
        ("duckdb", "select * from rows asof join u using (pid, a)", "a join"),
        ("duckdb", "select * from read_csv('x.csv')", "a function of tables"),
        ("mysql", "select `pid`, a from `t` limit 3", "LIMIT"),
        ("mysql", "select /*!50000 distinct */ pid from t", "comments"),
        ("mysql", 'select "pid" from t', "double quote"),
        ("mysql", "select pid, @a := @a + 1 as a from t", "not known"),
        ("mssql", "select pid from t", "cannot be asked"),
        ("oracle", "select pid from t where rownum < 9", "where a row lies"),
    ],
)
def test_dialects(dialect, query, told):
    doubts = "; ".join(read_select(query, dialect, "pid").doubts)
    assert doubts == "" if told is None else re.search(told, doubts), doubts


@pytest.mark.parametrize("unit", ["record", None])
def test_groups_are_of_somebody(unit):
    assert (
        "no --unit says whose" in read_select("select pid, max(a) as a from t group by pid", "sqlite", unit).doubts[0]
    )
    assert read_select("select a, y from t where a > 1", "sqlite", unit).doubts == ()


def test_a_unit_is_named_as_another_dataset_names_it():
    grouped = "select pid, max(a) as a from t group by pid"
    assert read_select(grouped, "sqlite", "pid=patient").doubts == ()
    assert read_select(grouped.replace("pid", '"pid=patient"'), "sqlite", "pid=patient").doubts == ()


def made(path, people) -> str:
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (pid text, a real, y text)")
        connection.execute('create table u as select *, 1 as "limit", 2 as "order", 1 as "distinct" from t where 0')
        connection.executemany("insert into t values (?, ?, ?)", people)
        connection.execute("insert into u select *, 1, 2, 1 from t")
        connection.execute("create view v as select * from t limit 100")
        connection.execute("create virtual table w using rtree(pid, a, y)")
    return f"sqlite:///{path}"


def rows_of(database, query) -> Counter:
    engine = create_engine(database)
    with engine.connect() as connection:
        found = Counter(map(tuple, connection.execute(text(query))))
    engine.dispose()
    return found


def moved(one: Counter, other: Counter) -> int:
    return sum((one - other).values()) + sum((other - one).values())


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    """200 people with up to 3 rows each, and the same without the first."""
    folder = tmp_path_factory.mktemp("databases")
    rows = [(f"p{n}", float(n * 7 % 101) + part, ["no", "yes"][n % 2]) for n in range(200) for part in range(1 + n % 3)]
    return made(folder / "all.db", rows), made(folder / "less.db", [row for row in rows if row[0] != "p5"])


@pytest.mark.parametrize("query", PASSING)
def test_without_a_person_the_rows_of_nobody_else_change(databases, query):
    """Who leaves had 3 rows: at most these go, and none comes."""
    whole, less = (rows_of(database, query) for database in databases)
    assert moved(whole, less) <= 3
    assert not less - whole


@pytest.mark.parametrize(
    ("query", "least"),
    [
        ("select * from t limit 100", 6),  # 3 go and 3 come: twice what is charged
        ("select pid, a - (select avg(a) from t) as a, y from t", 700),
        ("select pid, rank() over (order by a) as a from t", 300),
        ("select y as pid, avg(a) as a from t group by y", 2),
    ],
)
def test_what_is_asked_about_moves_more_than_is_charged(databases, query, least):
    """The question is no mere form: these are the rows that one person moves."""
    whole, less = (rows_of(database, query) for database in databases)
    assert moved(whole, less) >= least


SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 400
ignore: [pid]
features:
  a: {type: numeric, range: [0, 110]}
"""


@pytest.fixture
def register(databases, tmp_path, monkeypatch):
    """Registers what is read of the database; the exit code."""
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    assert run(["init"]) == 0
    rest = ["--schema", str(tmp_path / "schema.yaml"), "--epsilon", "3", "--delta", "1e-6", "--unit", "pid"]

    def registered(name, *more, data=databases[0]):
        return run(["dataset", "register", name, "--data", data, *more, *rest, "--contributions", "3"])

    return registered


@pytest.mark.slow
def test_the_steward_is_asked_and_the_answer_stands_in_the_entry(register, databases, capsys):
    query = "select pid, a, y from t limit 300"
    assert register("visits", "--query", query) == 2
    told = capsys.readouterr().err
    assert "LIMIT" in told
    assert "--query-reason TEXT" in told
    assert register("visits", "--query", query, "--query-reason", "one ward, which has no more rows") == 0
    entry = Home.open().ledger.log.entries()[-1].value
    by = entry["query"].pop("by")
    assert entry["query"] == {"sha256": RowQuery.of(query).sha256, "reason": "one ward, which has no more rows"}
    assert by.startswith("cli:")
    more = ["--data", databases[0], "--new-rows", "--reason", "a test"]
    other = "select pid, a, y from t where a > 30"
    assert run(["dataset", "append", "visits", "--records", "400", *more, "--query", f"{other} limit 9"]) == 2
    assert run(["dataset", "append", "visits", "--records", "400", *more, "--query", other]) == 0
    home = Home.open()
    assert home.ledger.log.entries()[-1].value["query"] == {"sha256": RowQuery.of(other).sha256}
    assert audit_home(home).ok
    assert "a > 30" not in json.dumps([each.value for each in home.ledger.log.entries()])


@pytest.mark.slow
@pytest.mark.parametrize("reason", [None, "they are sorted for reading alone"])
def test_every_statement_names_the_query_and_the_reason(register, reason):
    """The certificate of a model, the statement of its worth, and a profile; each verifies."""
    query = "select pid, a, y from t" + (" order by a" if reason else "")
    more = ["--query-reason", reason] if reason else []
    assert register("visits", "--query", query, "--holdout", "0.3", *more) == 0
    assert run(["train", "visits", "--learner", "lazybb", "--epsilon", "1", "--evaluate", "0.5"]) == 0
    assert run(["profile", "visits", "--epsilon", "0.5"]) == 0
    home = Home.open()
    (model,) = home.models.glob("visits/1")
    assert run(["verify", str(model)]) == 0
    assert audit_home(home).ok
    stated = {"sha256": RowQuery.of(query).sha256, "blocks": 1, **({"reason": reason} if reason else {})}
    envelopes = sorted(home.path.rglob("*.dsse.json"))
    assert len(envelopes) == 3
    for path in envelopes:
        raw = dsse.parse(path.read_bytes()).payload
        predicate = json.loads(raw)["predicate"]
        assert predicate.get("dataset", predicate.get("rows"))["queries"] == [stated], path
        assert ("what a query ties together" in " ".join(predicate["notCovered"])) == bool(reason), path
        assert b"order by" not in raw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--table", "v"], "'v' is no plain table"),
        (["--query", "select pid, a, y from v"], "'v' is no plain table"),
        (["--query", "select pid, a, y from w"], "'w' is no plain table"),
        (["--query", "select pid, a, y from sqlite_master"], "'sqlite_master' is no plain table"),
        (["--query", "select pid, a, y from temp.t"], "'temp.t' is no plain table"),
        (["--query", "select pid, a, y from t", "--query-reason", "two\nlines"], "query-reason"),
    ],
)
def test_a_view_is_a_query_of_its_own(register, capsys, more, told):
    assert register("visits", *more) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_table_needs_no_reason_and_a_view_gets_one(register, tmp_path, capsys):
    assert register("visits", "--table", "t") == 0
    assert "query" not in Home.open().ledger.log.entries()[-1].value
    new = ["--new-people", "--reason", "x", "--as-read"]
    assert register("other", "--table", "v", "--query-reason", "a view of one ward", *new) == 0
    assert Home.open().ledger.log.entries()[-1].value["query"]["reason"] == "a view of one ward"
    (tmp_path / "rows.csv").write_text("pid,a,y\n1,2,no\n")
    assert register("third", "--query-reason", "no query", data=str(tmp_path / "rows.csv")) == 2
    assert "goes with --query" in capsys.readouterr().err


def test_postgresql_says_what_is_a_view_and_which_functions_were_made(tmp_path):
    database = server().fresh()
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})

    def opened(query=None, table=None):
        with rows_at(home, RowSource(database, query, table), tmp_path / "schema.yaml", "pid"):
            return True

    engine = create_engine(database)
    with engine.begin() as connection:
        for line in (
            "create schema own", "create table own.t (pid text, a int)",
            "create view own.v as select * from own.t limit 5", "create table own.hidden (pid text)",
            "alter table own.hidden enable row level security", "create materialized view own.m as select * from own.t",
            "create or replace function own.lower(int) returns bigint language sql as 'select count(*) from own.t'",
        ):  # fmt: skip
            connection.execute(text(line))
    engine.dispose()
    assert opened("select pid, upper(pid) as a from own.t")
    assert opened('select pid, a from own."t"')
    assert opened(table="own.t")
    for query in ("select * from own.v", "select * from own.m", "select * from own.hidden", "select * from own.none"):
        with pytest.raises(InputError, match="no plain table"):
            opened(query)
    with pytest.raises(InputError, match="no plain table"):
        opened(table="own.v")
    for query in ("select pid, lower(pid) as a from own.t", "select pid, t.lower as a from own.t"):
        with pytest.raises(InputError, match="'lower' was made in this database"):
            opened(query)


def test_duckdb_says_what_is_a_view_and_which_macros_were_made(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rows.csv").write_text("pid,a,y\n1,2,no\n")
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    with duckdb.connect(str(tmp_path / "own.duckdb")) as own:
        own.execute("create table t (pid text, a int)")
        own.execute("create view v as select * from t limit 5")
        own.execute("create macro lower(x) as (select count(*) from t)")

    def opened(query, place="own.duckdb"):
        source = RowSource(f"duckdb:{tmp_path / place}", query)
        with rows_at(home, source, tmp_path / "schema.yaml", "pid") as (rows, _):
            return rows.exists()

    assert opened("select pid, upper(pid) as a from t")
    assert opened("select pid, upper(pid) as a from main.t")
    assert opened("select pid, a from rows", "rows.csv")
    for query in ("select * from v", "select * from none", "select * from duckdb_tables"):
        with pytest.raises(InputError, match="no plain table"):
            opened(query)
    with pytest.raises(InputError, match="'lower' was made in this database"):
        opened("select pid, lower(pid) as a from t")
    with pytest.raises(InputError, match="no plain table"):
        opened("select * from 'rows.csv'", "rows.csv")
