"""A model as SQL, Python and C answers as its graph does in ONNX Runtime, beside every border of every form of model:
the same class and the same number bit for bit, a probability within 1e-6.
"""

from __future__ import annotations

import ctypes
import math
import random
import sqlite3
import subprocess
from dataclasses import replace
from datetime import UTC, date, datetime, time
from math import inf, nan, nextafter

import duckdb
import numpy as np
import onnx
import onnxruntime
import postgres
import psycopg
import pytest
from additive_models import BARE, FEATURES, NUMBER
from border_columns import borders
from every_form import MODELS, TREES, TWO, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import (
    BooleanFeature,
    CategoricalFeature,
    DateFeature,
    MomentFeature,
    NumericFeature,
    TimeFeature,
)
from models.forms.additive import AdditiveEnsemble
from models.forms.curves_trees import CurvesAndTrees
from models.forms.trees import TreeEnsemble
from models.onnx.export import input_name, to_onnx
from models.onnx.runtime import OnnxModel
from models.programs.files import NEAR, program_file
from models.programs.languages import Sql

HEAD = ("a model", "its certificate")
AWKWARD = CategoricalFeature(
    'a "name" ?/*',
    (
        *("it's", 'say "no"', "two\nlines", "tab\tand \\ and ??/", "日本", "e\u0301", "\u00e9", "%s", "{x}", "*/"),
        *(" a", "A", "a", "#", "--", "1", "null", "\U0001f600", "a" * 300),
    ),
)
TIGHT = NumericFeature(
    "x\u00e9",
    (
        *(-1e300, -5e-324, 0.0, 5e-324, 2.2250738585072014e-308, 0.1, 0.30000000000000004, 1 / 3, 39.95),
        *(2.0**53, 2.0**60, 1e300),
    ),
)
CALENDAR = (DateFeature("day", (-1.0, 19723.0)), MomentFeature("at", (0.5, 1.7e9)), TimeFeature("hour", (3600.0,)))
WIDE = (AWKWARD, TIGHT, BooleanFeature("int"), *CALENDAR)
RANDOM = random.Random(3)
TERMS = tuple(tuple(RANDOM.randint(-999, 999) for _ in range(f.bins)) for f in WIDE)
EDGES = AdditiveEnsemble(WIDE, "t", ("it's", "two\nlines ?/"), None, 0.01, 1, TERMS)
KINDS = {
    **{name: model for name, model in MODELS.items() if name != "no votes"},
    "no votes": MODELS["no votes"],
    "edges": EDGES,
    "edges of a number": replace(EDGES, classes=(), target_range=(-5.0, 1 / 3)),
    "great number": replace(NUMBER, constant=(1 << 40) + 1, link=1e-10),
    "curves and trees": CurvesAndTrees.of(NUMBER, TREES),
    "steep": replace(BARE, link=1e6),
    "great classes": replace(BARE, classes=(-(1 << 63) + 1, (1 << 63) - 1)),
}
SLACK = {"great number": 1e-6}  # of SQL, which has no float32: relative


def wanted(ensemble, columns):
    """What ONNX Runtime answers: labels and probabilities, or values."""
    feed = {}
    for feature in ensemble.features:
        cells = columns[feature.name]
        if isinstance(feature, CategoricalFeature):
            values = np.array([cell or "" for cell in cells], object)
        else:
            values = np.array(cells, np.float64)
        feed[input_name(feature.name)] = values[:, np.newaxis]
    found = onnxruntime.InferenceSession(to_onnx(ensemble, {})).run(None, feed)
    return found[:2] if ensemble.classes else (found[0][:, 0], None)


def check(ensemble, columns, found, slack=0.0):
    """`found`: for each record a label and probabilities, or a value."""
    labels, shares = wanted(ensemble, columns)
    if shares is None:
        np.testing.assert_allclose([value for (value,) in found], labels, rtol=slack, atol=0)
        return
    assert [label for label, *_ in found] == list(labels)
    np.testing.assert_allclose([share for _, *share in found], shares, rtol=0, atol=NEAR)


def in_python(ensemble, columns):
    names = {}
    exec(compile(program_file("python", ensemble, to_onnx(ensemble, {}), HEAD, "m"), "m.py", "exec"), names)
    for record in records(columns):
        given_cells = {name: None if cell != cell else cell for name, cell in record.items()}
        answer = names["predict"](given_cells)
        assert ensemble.target_range is not None or list(answer[1]) == list(ensemble.classes)
        yield (answer,) if ensemble.target_range is not None else (answer[0], *answer[1].values())


def records(columns):
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def in_c(ensemble, columns, folder):
    (folder / "m.c").write_bytes(program_file("c", ensemble, to_onnx(ensemble, {}), HEAD, "m"))
    flags = ("-std=c99", "-O2", "-Wall", "-Werror", "-Wno-unused-variable", "-pedantic", "-shared", "-fPIC")
    made = subprocess.run(["gcc", *flags, "-o", folder / "m.so", folder / "m.c", "-lm"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:2000]
    kinds = [ctypes.c_char_p if isinstance(f, CategoricalFeature) else ctypes.c_double for f in ensemble.features]
    record = type("Record", (ctypes.Structure,), {"_fields_": [(f"f{i}", kind) for i, kind in enumerate(kinds)]})
    several = ctypes.c_double * max(1, len(ensemble.classes))
    label = ctypes.c_char_p if ensemble.classes and isinstance(ensemble.classes[0], str) else ctypes.c_longlong
    fields = [("label", label), ("shares", several)] if ensemble.classes else [("shares", several)]
    answer = type("Answer", (ctypes.Structure,), {"_fields_": fields})()
    predict = ctypes.CDLL(str(folder / "m.so")).m_predict
    predict.restype = None
    for each in records(columns):
        cells = [cell.encode() if isinstance(cell, str) else cell for cell in each.values()]
        predict(ctypes.byref(record(*cells)), ctypes.byref(answer))
        if not ensemble.classes:
            yield (answer.shares[0],)
        else:
            yield answer.label.decode() if label is ctypes.c_char_p else answer.label, *answer.shares


def type_of(feature):
    if isinstance(feature, CategoricalFeature):
        return "TEXT"
    return "BOOLEAN" if isinstance(feature, BooleanFeature) else "DOUBLE PRECISION"


class Database:
    def __init__(self, connect, place, has_nan):
        self.connection, self.place, self.has_nan = connect, place, has_nan

    def answers(self, ensemble, columns, table="m"):
        query = program_file("sql", ensemble, to_onnx(ensemble, {}), HEAD, table, ["row id"]).decode()
        sql = Sql()
        types = ", ".join(f"{sql.name(f.name)} {type_of(f)}" for f in ensemble.features)
        self.connection.execute(f'CREATE TABLE {sql.name(table)} ("row id" INTEGER, {types})')
        places = ", ".join([self.place] * (len(ensemble.features) + 1))
        for at, record in enumerate(records(columns)):
            cells = [self.cell(feature, record[feature.name]) for feature in ensemble.features]
            self.connection.execute(f"INSERT INTO {sql.name(table)} VALUES ({places})", [at, *cells])
        rows = self.connection.execute(query).fetchall()
        self.connection.execute(f"DROP TABLE {sql.name(table)}")
        assert len(rows) == len(records(columns))
        return [row[1:] for row in sorted(rows)]

    def cell(self, feature, cell):
        if isinstance(feature, BooleanFeature):
            return None if cell != cell else bool(cell)
        return None if not self.has_nan and cell != cell else cell


@pytest.fixture(scope="module")
def server():
    return postgres.server()


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request):
    if request.param == "sqlite":
        with sqlite3.connect(":memory:") as connection:
            yield Database(connection, "?", False)
    elif request.param == "duckdb":
        with duckdb.connect(":memory:") as connection:
            yield Database(connection, "?", True)
    else:
        url = request.getfixturevalue("server").fresh().replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            yield Database(connection, "%s", True)


def columns_of(ensemble, count=120):
    columns = borders(ensemble.features, count, np.random.default_rng(5))
    for feature in ensemble.features:
        if isinstance(feature, NumericFeature):
            more = [-0.0, 5e-324, -5e-324, 1.7976931348623157e308, float(2**53 + 1), 1e-310, 1e17]
            columns[feature.name][: len(more)] = more
    return columns


@pytest.mark.parametrize("kind", KINDS)
def test_in_python(kind):
    check(KINDS[kind], columns_of(KINDS[kind]), list(in_python(KINDS[kind], columns_of(KINDS[kind]))))


@pytest.mark.system("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_in_c(kind, tmp_path):
    check(KINDS[kind], columns_of(KINDS[kind]), list(in_c(KINDS[kind], columns_of(KINDS[kind]), tmp_path)))


def test_in_databases(database):
    for kind, ensemble in KINDS.items():
        columns = columns_of(ensemble)
        try:
            check(ensemble, columns, database.answers(ensemble, columns), SLACK.get(kind, 0.0))
        except Exception as error:
            raise AssertionError(kind) from error


@settings(max_examples=20, deadline=None)
@given(st.lists(trees(FEATURES), max_size=6))
def test_trees_of_any_form(grown):
    ensemble = TreeEnsemble(FEATURES, "income", TWO, tuple(grown), 0, 0.4)
    columns = columns_of(ensemble, 40)
    check(ensemble, columns, list(in_python(ensemble, columns)))
    with sqlite3.connect(":memory:") as connection:
        check(ensemble, columns, Database(connection, "?", False).answers(ensemble, columns))


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(NUMBERS, min_size=1, max_size=9), st.sets(TEXTS, min_size=1, max_size=9), st.lists(NUMBERS | st.just(nan))
)
def test_any_edges_and_any_texts(edges, values, more):
    """Any cut points and categories, asked on both sides of each; 0.0 and -0.0 are one."""
    edges = sorted({each or 0.0 for each in edges})
    features = (NumericFeature("x", tuple(edges)), CategoricalFeature("t", tuple(sorted(values))))
    terms = tuple(tuple(7**at % 101 - 50 for at in range(f.bins)) for f in features)
    ensemble = AdditiveEnsemble(features, "y", ("no", "yes"), None, 0.1, 3, terms)
    cells = [x for edge in edges for x in (edge, nextafter(edge, -inf), nextafter(edge, inf))]
    numbers = [*cells, *more, 0.0, -0.0, inf, -inf, nan]
    texts = [*values, *(f"{each} " for each in values), "", "other"]
    count = max(len(numbers), len(texts))
    columns = {
        "x": [numbers[at % len(numbers)] for at in range(count)],
        "t": [texts[at % len(texts)] for at in range(count)],
    }
    check(ensemble, columns, list(in_python(ensemble, columns)))
    for connect, has_nan in ((sqlite3.connect, False), (duckdb.connect, True)):
        with connect(":memory:") as connection:
            check(ensemble, columns, Database(connection, "?", has_nan).answers(ensemble, columns))


def test_a_collation_of_the_table_changes_nothing():
    """SQLite compares a column as it was declared, unless a text is made of it."""
    ensemble = AdditiveEnsemble(
        (CategoricalFeature("t", ("a", "B ")),), "y", ("no", "yes"), None, 1.0, 0, ((9, 9, -9, -9),)
    )
    cells = ["a", "A", "a ", "B ", "b ", "B", ""]
    with sqlite3.connect(":memory:") as connection:
        for collation in ("NOCASE", "RTRIM"):
            connection.execute(f"CREATE TABLE {collation} (t TEXT COLLATE {collation})")
            connection.executemany(f"INSERT INTO {collation} VALUES (?)", [(cell,) for cell in cells])
            query = program_file("sql", ensemble, to_onnx(ensemble, {}), HEAD, collation, ["t"]).decode()
            found = {row[0]: row[1] for row in connection.execute(query).fetchall()}
            assert [found[cell] for cell in cells] == list(wanted(ensemble, {"t": cells})[0])


def test_whole_numbers_beyond_float64(database):
    """Columns of 64-bit integers are compared as the graph compares them: rounded to float64."""
    feature = NumericFeature("n", (2.0**53, 2.0**60))
    ensemble = AdditiveEnsemble((feature,), "y", ("no", "yes"), None, 1.0, 0, ((1, -1, 1, -1),))
    cells = [2**53 + 1, 2**53 + 2, 2**60 + 1, 2**60 + 128, 2**60 + 129, -(2**63), 2**63 - 1, 2**53]
    database.connection.execute("CREATE TABLE big (n BIGINT)")
    for cell in cells:
        database.connection.execute(f"INSERT INTO big VALUES ({cell})")
    query = program_file("sql", ensemble, to_onnx(ensemble, {}), HEAD, "big", ["n"]).decode()
    found = dict(row[:2] for row in database.connection.execute(query).fetchall())
    labels, _ = wanted(ensemble, {"n": cells})
    assert [found[cell] for cell in cells] == list(labels)
    check(ensemble, {"n": cells}, list(in_python(ensemble, {"n": cells})))


def test_dates_in_databases(database):
    """What the documentation says of columns of dates: these expressions make the numbers that are read."""
    kind = {"?": "sqlite" if not database.has_nan else "duckdb"}.get(database.place, "postgres")
    day, moment = {
        "sqlite": ("julianday(d) - 2440587.5", "(julianday(m) - 2440587.5) * 86400"),
        "duckdb": ("d - DATE '1970-01-01'", "epoch(m)"),
        "postgres": ("d - DATE '1970-01-01'", "EXTRACT(EPOCH FROM m)"),
    }[kind]
    database.connection.execute("CREATE TABLE days (d DATE, m TIMESTAMP)")
    database.connection.execute("INSERT INTO days VALUES ('2024-01-02', '2024-01-02 03:00:00')")
    [(one, other)] = database.connection.execute(f"SELECT {day}, {moment} FROM days").fetchall()
    assert float(one) == 19724.0
    assert float(other) == pytest.approx(19724 * 86400 + 3 * 3600, abs=1e-3)


def test_python_reads_dates_as_they_are_written():
    names = {}
    exec(program_file("python", EDGES, to_onnx(EDGES, {}), HEAD, "m"), names)
    assert names["_date"](date(1970, 1, 2)) == names["_date"]("1970-01-02") == names["_date"](1) == 1.0
    assert names["_datetime"]("1970-01-01T00:01:00Z") == names["_datetime"](datetime(1970, 1, 1, 0, 1)) == 60.0
    assert names["_datetime"](datetime(1970, 1, 1, 0, 1, tzinfo=UTC)) == 60.0
    assert names["_datetime"]("1970-01-01T01:01:00+01:00") == 60.0
    assert names["_time"](time(1, 2, 3)) == names["_time"]("01:02:03") == 3723.0
    for reader in ("_date", "_datetime", "_time", "_number"):
        assert math.isnan(names[reader](None))
    assert math.isnan(names["_date"](""))
    for reader, wrong in (("_number", "12"), ("_text", 12), ("_date", "yesterday"), ("_number", 1 << 2000)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            names[reader](wrong)


def test_the_character_0():
    """Python writes it; C and SQL refuse the model that has it, and Python compares it as it is."""
    feature = CategoricalFeature("t", ("a\0b", "a"))
    ensemble = AdditiveEnsemble((feature,), "y", ("no", "yes"), None, 1.0, 0, ((5, -5, -5, -5),))
    graph = to_onnx(ensemble, {})
    names = {}
    exec(program_file("python", ensemble, graph, HEAD, "m"), names)
    runtime = OnnxModel(graph)
    for text in ("a\0b", "a", "b", "a\0"):
        answers = runtime.predict({"t": np.array([text], object)})
        assert names["predict"]({"t": text})[0] == answers[0][0], text
    for language in ("sql", "c"):
        with pytest.raises(InputError, match="character 0"):
            program_file(language, ensemble, graph, HEAD, "m")


def test_sql_numbers_are_exact_by_long_arithmetic():
    """The literal, read as SQLite read it until 3.42 (80 bits, then 64), is the number."""
    random_numbers = [RANDOM.uniform(-1, 1) * 10 ** RANDOM.randint(-30, 30) for _ in range(2000)]
    short = [RANDOM.randint(0, 10**6) / 10 ** RANDOM.randint(0, 6) for _ in range(2000)]
    with sqlite3.connect(":memory:") as connection:
        for number in [*random_numbers, *short, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**53 - 1, 0.0, 1e22, 1e23]:
            assert connection.execute(f"SELECT {Sql().number(number)}").fetchone() == (number,)


def test_an_unknown_node_is_refused():
    model = onnx.load_from_string(to_onnx(BARE, {}))
    for node in model.graph.node:
        if "/score" in node.output:
            node.op_type = "Max"
    with pytest.raises(ModelInvalid, match="Max"):
        program_file("python", BARE, model.SerializeToString(), HEAD, "m")


@pytest.mark.parametrize("language", ["sql", "python", "c"])
def test_same_model_same_bytes_and_the_head(language):
    files = {program_file(language, EDGES, to_onnx(EDGES, {}), HEAD, "m") for _ in range(3)}
    assert len(files) == 1
    first = files.pop().decode().splitlines()[:2]
    assert [line.lstrip("#/- ") for line in first] == list(HEAD)
