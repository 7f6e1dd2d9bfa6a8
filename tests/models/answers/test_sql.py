"""What a query may say, how it is understood, and what is refused with which words."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from dpserve_verify.errors import InputError
from models.answers.sql import MOST_BRACKETS, MOST_CALLS, check_nesting, read_question
from models.features.features import (
    BooleanFeature,
    CategoricalFeature,
    DateFeature,
    MomentFeature,
    NumericFeature,
    TimeFeature,
)
from models.profile.columns import Column

COLUMNS = {
    column.name: column
    for column in (
        Column(NumericFeature("age", (30.0, 60.0)), "feature", (17.0, 90.0)),
        Column(CategoricalFeature("marital-status", ("Married", "Never", "it's")), "feature"),
        Column(BooleanFeature("smoker"), "feature"),
        Column(DateFeature("born", (0.0,)), "feature", (-10.0, 10.0)),
        Column(MomentFeature("seen", (0.0,)), "feature", (0.0, 172800.0)),
        Column(TimeFeature("opens", (0.0,)), "feature", (0.0, 86399.0)),
        Column(CategoricalFeature("income", ("<=50K", ">50K")), "target", absent=("other", "missing")),
    )
}
CELLS = {
    "age": [20.0, 29.5, 30.0, 45.0, 60.0], "born": [-5.0, 0.0, 5.0], "seen": [43200.0, 86400.0], "opens": [43200.0],
}  # fmt: skip


def read(text):
    return read_question(text, "adult", COLUMNS, lambda column: CELLS[column.name])


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("age >= 30", "29.5 < age"),  # whole years from 30 on, none of 29
        ("age > 30", "30 < age"),
        ("age < 30", "age <= 29.5"),
        ("age <= 30", "age <= 30"),
        ("age between 30 and 45", "29.5 < age <= 45"),
        ("age = 30", "29.5 < age <= 30"),
        ("age >= 30 and age < 60 and (age > 40)", "45 < age <= 45"),
        ("age is null", "age is missing"),
        ("age >= 10", "age is not missing"),
        ("smoker", "smoker is true"),
        ("not smoker", "smoker is false"),
        ("smoker = false", "smoker is false"),
        ("smoker is not null", "smoker is not missing"),
        ("smoker is true", "smoker is true"),
        ("smoker is not false", "smoker is not false"),
        ("30 < age", "30 < age"),
        ("45 >= age", "age <= 45"),
        ("'>50K' = income", "income is >50K"),
        ("income = '>50K'", "income is >50K"),
        ("INCOME <> '>50K'", "income is <=50K"),
        ("income = '>50K' or income = '<=50K'", "any income"),
        ("\"marital-status\" = 'Never' or \"marital-status\" in ('Married')", "marital-status is Married or Never"),
        ("born >= '1970-01-01'", "1969-12-27 < born"),  # where the cells end
        ("born > DATE '1970-01-01'", "1970-01-01 < born"),
        ("born <= '1970-01-01 00:00:00'", "born <= 1970-01-01"),  # pandas, of a day
        ("born <= '1970-01-01T00:00:00.000'", "born <= 1970-01-01"),
        ("born between cast('1970-01-01' as date) and timestamp '1970-01-06'", "1969-12-27 < born <= 1970-01-06"),
        ("born >= '1960-01-01'", "born is not missing"),
        ("seen < '1970-01-02'", "seen <= 1970-01-01T12:00:00"),  # a day stands for its beginning
        ("seen > '1970-01-01 12:00:00.000000000'", "1970-01-01T12:00:00 < seen"),  # pandas, of a moment
        ("seen > '1970-01-01T13:00:00+01:00'", "1970-01-01T12:00:00 < seen"),
        ("opens <= '12:00'", "opens <= 12:00:00"),
        ("\"marital-status\" in ('Never', 'it''s')", "marital-status is Never or it's"),
        ("\"marital-status\" not in ('Never')", "marital-status is not Never or missing"),
    ],
)
def test_conditions_are_read_in_cells(where, words):
    if words == "45 < age <= 45":
        with pytest.raises(InputError, match="no row meets"):
            read(f"select count(*) from adult where {where}")
        return
    (condition,) = read(f"select count(*) from adult where {where}").where
    assert condition.words == words


def test_groups_and_figures_are_read():
    question = read('select income, count(*) n, AVG(age), count("marital-status") from adult group by income, smoker')
    assert [column.name for column in question.by] == ["income", "smoker"]
    assert [(each.name, each.kind) for each in question.outputs] == [
        ("n", "count"), ("avg age", "avg"), ("count marital-status", "count")
    ]  # fmt: skip
    assert read(question.select) == question  # in its own spelling


@pytest.mark.parametrize(
    ("figure", "name", "kind", "column", "where"),
    [
        ("count(*) filter (where smoker)", "count where smoker is true", "count", None, "smoker is true"),
        ("sum(case when smoker then 1 else 0 end) n", "n", "count", None, "smoker is true"),
        ("count(case when age > 30 then 1 end)", "count where 30 < age", "count", None, "30 < age"),
        ("countif(smoker)", "count where smoker is true", "count", None, "smoker is true"),
        ("avg(case when smoker then 1 else 0 end)", "share where smoker is true", "avg", None, "smoker is true"),
        ("avg(case income when '>50K' then 1 else 0 end)", "share where income is >50K", "avg", None, "income is >50K"),
        ("count(1) filter (where smoker)", "count where smoker is true", "count", None, "smoker is true"),
        ("avg(case when smoker then 1.0 else 0.0 end)", "share where smoker is true", "avg", None, "smoker is true"),
        ("avg(if(smoker, 1, 0))", "share where smoker is true", "avg", None, "smoker is true"),
        ("sum(case when smoker then age else 0 end)", "sum age where smoker is true", "sum", "age", "smoker is true"),
        ("avg(age) filter (where smoker)", "avg age where smoker is true", "avg", "age", "smoker is true"),
        ("count(case when smoker then age end)", "count age where smoker is true", "count", "age", "smoker is true"),
    ],
)
def test_a_figure_may_have_conditions_of_its_own(figure, name, kind, column, where):
    question = read(f"select {figure} from adult")
    (output,) = question.outputs
    assert (output.name, output.kind, output.column and output.column.name) == (name, kind, column)
    assert [condition.words for condition in output.where] == [where]
    assert read(question.select) == question


def test_what_is_done_on_the_noisy_answer_is_read():
    question = read(
        "select income as class, count(*) n, avg(born) from adult group by 1 having count(*) > 5 and n <= 1e3 and "
        "avg(born) > '1970-01-01' order by n desc, class, 3 limit 4"
    )
    assert [column.name for column in question.by] == ["income"]
    assert question.afterwards == [
        "only groups with n > 5", "only groups with n <= 1000", "only groups with avg born > 1970-01-01",
        "by n, falling", "by income", "by avg born", "the first 4",
    ]  # fmt: skip
    assert read(question.select) == question


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be one select"),
        ("drop table adult", "must be one select"),
        ("select count(*) from adult; select count(*) from adult", "must be one select"),
        ("select count(*) from adult union select count(*) from adult", "must be one select"),
        ("select count(*) from adult where (", "no query that can be read"),
        (f"select count(*) from adult where {'(' * 400}age > 1{')' * 400}", "brackets nest too deep"),
        ("select count(*) from other", "must name the dataset alone, adult"),
        ("select count(*) from a.adult", "must name the dataset alone"),
        ("select count(*) from (select * from adult)", "must name the dataset alone"),
        ("select count(*) from adult, adult b", "joins: cannot be answered"),
        ("select count(*) from adult join b on true", "joins: cannot be answered"),
        ("select distinct count(*) from adult", "distinct: cannot be answered"),
        ("with a as (select 1) select count(*) from adult", "with: cannot be answered"),
        ("select count(*) over () from adult", "must be count"),
        ("select *, count(*) from adult", "must be count"),
        ("select max(age) from adult", "for quantiles: dpserve profile"),
        ("select count(distinct age) from adult", "must be a column"),
        ("select sum(age + 1) from adult", "must be a column"),
        ("select avg(income) from adult", "must be a number's"),
        ("select count(marital-status) from adult", "in double quotes"),
        ("select income from adult group by income", "between 1 and 32"),
        ("select income, count(*) from adult", "not in group by"),
        ("select count(*), count(*) from adult", "stands twice"),
        ("select count(*) from adult group by 1", "must be a column"),
        ("select count(*) from adult group by rollup(income)", "must be a column"),
        ("select count(*) from adult group by income, income", "each column once"),
        ("select count(wealth) from adult", "'wealth': is no column of the dataset, which has age, marital-status"),
        ("select count(*) from adult where age = 30 or age = 40", "join conditions by and"),
        ("select count(*) from adult where age in (select 1)", "must be COLUMN"),
        ("select count(*) from adult where age <> 30", "of a number write"),
        ("select count(*) from adult where age > '30'", "must be a number"),
        ("select count(*) from adult where age > 1e400", "must be a number"),
        ("select count(*) from adult where age > 100", "beyond its declared range, 17 to 90"),
        ("select count(*) from adult where income = 'rich'", "must be one of its values: <=50K, >50K"),
        ("select count(*) from adult where smoker = 1", "must be true or false"),
        ("select count(*) from adult where length(income) > 3", "must be"),
        ("select count(*) from adult where 1 = 1", "must be a column"),
        ("select count(*) from adult limit 0", "limit: must be a whole number from 1 on"),
        ("select count(*) from adult limit 5 offset 2", "offset: cannot be answered"),
        ("select count(*) from adult order by age", "must be a group, or a figure of the select list"),
        ("select count(*) from adult order by avg(age)", "must be a group, or a figure of the select list"),
        ("select count(*) from adult order by 2", "must be a group, or a figure of the select list"),
        ("select count(*) from adult having avg(age) > 5", "must be a group, or a figure of the select list"),
        ("select count(*) from adult having count(*) = 5", "FIGURE <, <=, > or >= a number"),
        ("select count(*) from adult having count(*) > 'x'", "having: 'x': must be a number"),
        ("select smoker, count(*) from adult group by smoker having smoker > 1", "FIGURE <, <=, > or >= a number"),
        ("select avg(born) from adult having avg(born) > 3", "must be a date in single quotes"),
        ("select count(2) from adult", "must be a column"),
        ("select count(*) from adult group by floor(age)", "must be a column, or floor\\(COLUMN / WIDTH\\)"),
        ("select count(*) from adult group by floor(age / 10) * 5", "must be a column, or floor\\(COLUMN / WIDTH\\)"),
        ("select count(*) from adult group by age * 2", "must be a column, or floor\\(COLUMN / WIDTH\\)"),
        ("select count(*) from adult group by floor(age / 0)", "at most 256 bins, of a width above 0"),
        ("select count(*) from adult group by floor(age / 0.01)", "at most 256 bins, of a width above 0"),
        ("select count(*) from adult group by floor(age / 1000)", "would be one bin, from 17 to 90"),
        ("select count(*) from adult group by floor(born / 10)", "is a date column"),
        ("select floor(age / 10), count(*) from adult", "age: stands outside of count, sum and avg"),
        ("select avg(1) from adult", "must be a column"),
        ("select count(*) from adult where age is true", "of a number write|must be a number"),
        ("select sum(born) from adult", "is a date column, and must be a number's; write avg for the mean date"),
        ("select count(*) from adult where income is null", "income: no row can be so"),
        ("select count(*) from adult where smoker or income = '>50K'", "or joins values of one column"),
        ("select count(*) filter (where smoker and not smoker) from adult", "no row meets all"),
        ("select count(*) filter (where smoker) from adult where not smoker", "no row meets all"),
        ("select sum(case when smoker then 2 else 0 end) from adult", "write sum\\(case when CONDITION then 1 else 0"),
        ("select avg(case when smoker then 1 end) from adult", "write sum\\(case when CONDITION then 1 else 0"),
        (
            "select count(case when smoker then 1 else 0 end) from adult",
            "write sum\\(case when CONDITION then 1 else 0",
        ),
        ("select sum(case when smoker then 1 when age > 3 then 1 end) from adult", "write sum\\(case when"),
        ("select sum(case when smoker then income end) from adult", "must be a number's"),
        ("select count(*) from adult where born > 3", "must be a date in single quotes, like '2024-03-01'"),
        ("select count(*) from adult where born > '1969-02-30'", "is no date: day is out of range for month; write it"),
        ("select count(*) from adult where born > '01/02/1970'", "must be written like 2024-03-01"),
        ("select count(*) from adult where born > '1970-01-02 10:00'", "must be written like 2024-03-01"),
        (
            "select count(*) from adult where born > '1980-01-01'",
            "its declared range, 1969-12-22 to 1970-01-11: no row",
        ),
        ("select count(*) from adult where born = born", "must be a date in single quotes"),
        ("select count(*) from adult where seen > '10:00'", "must be written like 2024-03-01T14:30:00"),
        ("select count(*) from adult where age > '1970-01-01'", "must be a number"),
        (f"select count(*) from adult where {' and '.join(['smoker'] * 65)}", "more than 64|may have 1000"),
        (f"select count(*) from adult where income = '{'x' * 1000}'", "may have 1000"),
        ("select count() from adult", "select: '': must be a column"),
        ("select floor(age/10), sum.(case when smoker then 1 end) from adult group by 1", "must be"),
        ("select c.unt(*) filter (where smoker) from adult", "must be"),
        ("select count(*) from adult where not income . 'west'", "must be a column"),
        ("select count(*) from adult where j_s_o_n_object(1)", "must be COLUMN"),
        ("select count(*) from adult where var_map(1)", "no query that can be read"),
        (f"select count(*) from adult where {'x.' * 460}y", "no query that can be read"),
        ("select count(*) from adult where a[1]", "have no meaning here"),
        ("select count(*) from adult where {a}", "have no meaning here"),
    ],
)
def test_what_is_no_such_query_is_refused_in_words(text, problem):
    with pytest.raises(InputError, match=problem):
        read(text)


@pytest.mark.parametrize("call", ["struct", "count", "double precision", "_f", '"a b"', "row_", "f1", "exists", "if"])
def test_calls_nest_so_deep_and_no_deeper(call):
    check_nesting(f"select {f'{call}(' * MOST_CALLS}1{')' * MOST_CALLS} + {call}(1)")
    with pytest.raises(InputError, match="nest too deep"):
        check_nesting(f"select {f'{call}(' * (MOST_CALLS + 1)}1{')' * (MOST_CALLS + 1)}")


def test_brackets_that_are_no_calls_nest_deeper():
    figure = "sum(case when (smoker and (income in ('>50K'))) then 1 else 0 end)"
    assert read(f"select {figure} from adult where {'(' * MOST_BRACKETS}age > 30{')' * MOST_BRACKETS}").outputs
    with pytest.raises(InputError, match="nest too deep"):
        read(f"select count(*) from adult where {'(' * (MOST_BRACKETS + 1)}age > 30{')' * (MOST_BRACKETS + 1)}")


@pytest.mark.parametrize(
    "part",
    ["array[{}]", "struct({})", "double precision({})", "sum({})", "case when {} then 1 end", "not {}", "({})",
     "a.{}", "interval {}", "cast({} as date)", "array<{}>", "lambda x: {}", "age > {}", "if({})", "(select {})",
     "/*{}", "-{}"],
)  # fmt: skip
@pytest.mark.parametrize("deep", [4, 16, 100])
def test_no_query_takes_long_to_read(part, deep):
    nested = "1"
    for _ in range(deep):
        if len(nested) < 900:
            nested = part.format(nested)
    wide = " + ".join([nested] * (900 // len(nested)))
    start = time.process_time()
    with suppress(InputError):
        read(f"select count(*) from adult where {wide}")
    assert time.process_time() - start < 0.2
