"""What a query may say, how it is understood, and what is refused with which words."""

from __future__ import annotations

import pytest

from dpserve_verify.errors import InputError
from models.answers.sql import read_question
from models.features.features import BooleanFeature, CategoricalFeature, DateFeature, NumericFeature
from models.profile.columns import Column

COLUMNS = {
    column.name: column
    for column in (
        Column(NumericFeature("age", (30.0, 60.0)), "feature", (17.0, 90.0)),
        Column(CategoricalFeature("marital-status", ("Married", "Never", "it's")), "feature"),
        Column(BooleanFeature("smoker"), "feature"),
        Column(DateFeature("born", (0.0,)), "feature", (-10.0, 10.0)),
        Column(CategoricalFeature("income", ("<=50K", ">50K")), "target"),
    )
}
CELLS = [20.0, 29.5, 30.0, 45.0, 60.0]


def read(text):
    return read_question(text, "adult", COLUMNS, lambda column: CELLS)


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
        ("income = '>50K'", "income is >50K"),
        ("INCOME <> '>50K'", "income is <=50K or other values"),
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
    ("text", "problem"),
    [
        ("", "must be one select"),
        ("drop table adult", "must be one select"),
        ("select count(*) from adult; select count(*) from adult", "must be one select"),
        ("select count(*) from adult union select count(*) from adult", "must be one select"),
        ("select count(*) from adult where (", "no query that can be read"),
        (f"select count(*) from adult where {'(' * 400}age > 1{')' * 400}", "no query|is no query|must be"),
        ("select count(*) from other", "must name the dataset alone, adult"),
        ("select count(*) from a.adult", "must name the dataset alone"),
        ("select count(*) from (select * from adult)", "must name the dataset alone"),
        ("select count(*) from adult, adult b", "joins: cannot be answered"),
        ("select count(*) from adult join b on true", "joins: cannot be answered"),
        ("select count(*) from adult limit 5", "limit: cannot be answered"),
        ("select count(*) from adult order by 1", "order: cannot be answered"),
        ("select distinct count(*) from adult", "distinct: cannot be answered"),
        ("select income, count(*) from adult group by income having count(*) > 5", "having: cannot be answered"),
        ("with a as (select 1) select count(*) from adult", "with: cannot be answered"),
        ("select count(*) over () from adult", "must be count"),
        ("select *, count(*) from adult", "must be count"),
        ("select max(age) from adult", "for quantiles: dpserve profile"),
        ("select count(distinct age) from adult", "must be a column"),
        ("select sum(age + 1) from adult", "must be a column"),
        ("select avg(income) from adult", "must be a number's"),
        ("select avg(born) from adult", "is a date column"),
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
        ("select count(*) from adult where born > 3", "is a date column"),
        ("select count(*) from adult where length(income) > 3", "must be"),
        ("select count(*) from adult where 1 = 1", "must be a column"),
        (f"select count(*) from adult where {' and '.join(['smoker'] * 65)}", "more than 64|may have 1000"),
        (f"select count(*) from adult where income = '{'x' * 1000}'", "may have 1000"),
    ],
)
def test_what_is_no_such_query_is_refused_in_words(text, problem):
    with pytest.raises(InputError, match=problem):
        read(text)
