"""What follows from an answer is what a query of its own would say, for every pair of many queries; against DuckDB."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import numpy as np
import pytest

from dpserve_verify.errors import InputError
from models.answers import report
from models.answers.question import Measure
from models.answers.sql import read_question
from models.answers.table import Released
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import Noise
from training.measuring.answers.cells import Axis, TableCells
from training.measuring.answers.sums import GRID, axes_of, layout_of, measures_of, query_of
from training.rows.partitions.rows import Rows

FINE = [20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
COLUMNS = {
    column.name: column
    for column in (
        Column(CategoricalFeature("sex", ("Male", "Female")), "feature"),
        Column(BooleanFeature("member"), "feature"),
        Column(NumericFeature("age", (30.0, 60.0)), "feature", (10.0, 80.0)),
        Column(CategoricalFeature("class", ("a", "b", "c")), "target", absent=("other", "missing")),
    )
}
GROUPS = ["", "sex", "class", "member", "sex, class", "class, sex", "age"]
WHERE = [
    "", "sex = 'Male'", "sex <> 'Male'", "class in ('a', 'b')", "class = 'a' and member", "age > 30", "age > 40",
    "age <= 60 and sex = 'Male'", "age is null", "member is not true", "sex = 'Female' and class <> 'c'",
]  # fmt: skip
FIGURES = [
    "count(*)", "count(*), avg(age)", "count(*) filter (where sex = 'Male') n", "count(age), sum(age)",
    "avg(case when member then 1 else 0 end) s", "sum(age) filter (where class = 'b') b, count(*)",
]  # fmt: skip


class Cells(TableCells):
    """The cells of these columns alone."""

    def __init__(self):
        self.columns, self.targets = COLUMNS, {}

    def edges(self, column):
        return FINE

    def axis(self, name, fine):
        column = COLUMNS[name]
        return Axis(column, True, len(FINE) + 2) if fine and name == "age" else Axis(column, False, column.bins)


@pytest.fixture(scope="module")
def people():
    """Codes of 700 rows by column, and the table that DuckDB reads: an age is the middle of its cell."""
    import pyarrow as pa

    random, size = np.random.default_rng(4), 700
    fine = random.integers(0, len(FINE) + 2, size)
    ages = np.array([*np.arange(15.0, 85.0, 10.0), np.nan])[fine]
    codes = {
        "sex": random.integers(0, 4, size), "member": random.integers(0, 3, size), "class": random.integers(0, 3, size),
        "age": np.where(fine == len(FINE) + 1, 3, np.searchsorted([30.0, 60.0], ages)), "fine age": fine,
    }  # fmt: skip
    texts = {
        "sex": ["Male", "Female", "other values", None], "member": [False, True, None], "class": ["a", "b", "c"],
        "age": [*np.arange(15.0, 85.0, 10.0).tolist(), None],
    }  # fmt: skip
    sources = {name: codes["fine age" if name == "age" else name] for name in texts}
    return codes, pa.table({name: [own[code] for code in sources[name]] for name, own in texts.items()})


def released(text, codes):
    """Return what a query releases, without noise."""
    cells = Cells()
    question = read_question(text, "t", COLUMNS, cells.edges)
    axes, measures = axes_of(question, cells), measures_of(question, cells)
    held = np.stack([codes["fine age" if axis.fine else axis.column.name] for axis in axes]) if axes else None
    held = np.zeros((0, 700), np.uint16) if held is None else held.astype(np.uint16)
    query = query_of(question, cells, "l1")
    sums = query(Rows(held, np.zeros(700, np.uint8), [axis.width for axis in axes])) / GRID
    by, where = layout_of(question, len(measures))
    shape = (len(measures), *(column.bins for column in by))
    return Released(by, where, measures, sums.reshape(shape), Noise(1e-18, False)), question


def questions():
    for groups, where, figures in product(GROUPS, WHERE, FIGURES):
        head, tail = (f"{groups}, ", f" group by {groups}") if groups else ("", "")
        text = f"select {head}{figures} from t" + (f" where {where}" if where else "") + tail
        with suppress(InputError):  # where no row can meet both conditions
            read_question(text, "t", COLUMNS, Cells().edges)
            yield text


def test_whatever_follows_is_what_a_query_of_its_own_would_say(people):
    """Of all pairs of some 350 queries: one that follows has the figures of a release of its own."""
    every = [released(text, people[0]) for text in questions()]
    own = [answer.answer(question).to_json()["rows"] for answer, question in every]
    follows = 0
    for source, _ in every[::7]:
        for (_, question), mine in zip(every, own, strict=True):
            table = source.answer(question)
            if table is None:
                continue
            follows += 1
            for row, expected in zip(table.to_json()["rows"], mine, strict=True):
                assert row["group"] == expected["group"]
                for name in question.to_json()["figures"]:
                    assert row[name][0] is None or float(row[name][0]) == pytest.approx(float(expected[name][0]), 1e-5)
    assert follows > 900


def test_an_answer_without_noise_is_that_of_duckdb(people):
    import duckdb

    codes, table = people
    with duckdb.connect() as connection:
        connection.register("t", table)
        for text in [*questions()][::2]:
            if text.endswith("by age"):
                continue  # DuckDB has no bins
            answer, question = released(text, codes)
            rows = answer.answer(question).to_json()["rows"]
            true = {
                tuple("missing" if key is None else str(key).lower() if isinstance(key, bool) else key for key in row[
                    : len(question.by)]): row[len(question.by) :]
                for row in connection.sql(text).fetchall()
            }  # fmt: skip
            assert {tuple(row["group"]) for row in rows} >= true.keys(), text
            for row in rows:
                expected = true.get(tuple(row["group"]), [0] * len(question.outputs))
                for output, value in zip(question.outputs, expected, strict=True):
                    if value is not None and not (output.kind == "avg" and tuple(row["group"]) not in true):
                        assert float(row[output.name][0]) == pytest.approx(float(value), rel=2e-3, abs=0.02), text


def test_groups_that_cannot_be_are_not_shown(people):
    """A target has its classes alone; and a condition leaves only the bins that can meet it."""
    answer, question = released("select class, count(*) from t group by class", people[0])
    assert [row["group"] for row in answer.answer(question).to_json()["rows"]] == [["a"], ["b"], ["c"]]
    _, coarser = released("select count(*) from t", people[0])
    cells = answer.answer(coarser).spread / (answer.noise.z**2 * answer.noise.variance)
    assert cells == pytest.approx(3)  # classes: no noise of bins that hold no row
    answer, question = released("select age, count(*) from t where age > 40 group by age", people[0])
    rows = answer.answer(question).to_json()["rows"]
    assert [row["group"][0] for row in rows] == ["30 to 60", "above 60"]
    answer, question = released("select sex, count(*) filter (where sex = 'Male') n from t group by sex", people[0])
    assert [row["n"][1:] == ["0", "0"] for row in answer.answer(question).to_json()["rows"]] == [False, *[True] * 3]


def test_groups_of_numbers_have_few_digits():
    column = Column(NumericFeature("x", (1 / 3, 2 / 3)), "feature", (0.0, 1.0))
    question = read_question("select x, count(*) from t group by x", "t", {"x": column}, lambda column: ())
    answer = Released((column,), (), (Measure(),), np.ones((1, 4)), Noise(1.0, False)).answer(question)
    assert [key for (key,) in answer.keys] == ["at most 0.333333", "0.333333 to 0.666667", "above 0.666667", "missing"]


def test_the_noisy_answer_is_sorted_and_cut(people):
    text = (
        "select sex, class, count(*) n from t group by sex, class having count(*) > 20 order by n desc, class limit 3"
    )
    answer, question = released(text, people[0])
    counts = [float(row["n"][0]) for row in answer.answer(question).to_json()["rows"]]
    every = released("select sex, class, count(*) n from t group by sex, class", people[0])
    whole = [float(row["n"][0]) for row in every[0].answer(every[1]).to_json()["rows"]]
    assert counts == sorted((count for count in whole if count > 20), reverse=True)[:3]
    by_group = released("select class, avg(age) from t group by class order by class desc", people[0])
    assert [row["group"][0] for row in by_group[0].answer(by_group[1]).to_json()["rows"]] == ["c", "b", "a"]


def test_a_cross_table_is_drawn_of_the_groups_that_are_shown(people):
    """Of counts alone; a group that the limit left out is white."""
    text = "select sex, class, count(*) n from t group by sex, class order by n desc limit 5"
    answer, question = released(text, people[0])
    drawn = report.picture(answer.answer(question).to_json())
    assert (drawn.count("<rect"), ">Male</text>" in drawn) == (5, True)
    answer, question = released("select sex, class, avg(age), count(*) from t group by sex, class", people[0])
    assert report.picture(answer.answer(question).to_json()) == ""
