"""From a query to a signed answer: charged once, right within its intervals, given again for nothing, or refused."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal

import ledgers
import numpy as np
import pytest
from counted import make_home, spent

from accountant.audit.audit import audit_home
from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import PROFILE
from accountant.errors import UnknownName
from accountant.ledger.families.records import HOLDOUT
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.answers import report
from models.answers.stated import check_table, table_of
from models.answers.table import released_by_answer
from models.explain.reports import SUFFIXES
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.answers import answers
from training.requests import ProfileRequest, QueryRequest

pytestmark = pytest.mark.home("place")


BY_SEX = (
    "select sex, education, count(*), avg(age), sum(hours_per_week) from adult where age >= 30 group by sex, education"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with Adult, a tenth kept aside, and other rows under replace-one."""
    return make_home(tmp_path_factory.mktemp("counted"), 8000, "4", "0.1", "edges: [17, 30, 60, 90]")


def ask(home, select, epsilon=None, dataset="adult", **more):
    number = job.measure(home, QueryRequest(dataset, select, epsilon, **more), by="test")["job"]
    return number, answers.answer_of(home, number, select)[3]["rows"]


def true_rows(select, dataset="adult"):
    """Return what DuckDB answers on the rows themselves."""
    import duckdb
    import pyarrow.parquet as pq

    rows = pq.read_table(ledgers.EXAMPLES / "adult_train.parquet")
    with duckdb.connect() as connection:
        connection.register(dataset, rows.slice(0, 8000) if dataset == "adult" else rows.slice(8000, 4000))
        return connection.sql(select).fetchall()


def within(figure, truth, times=2.5):
    """Whether the truth is in the interval, made `times` wider: a false alarm in 1e-6 a figure."""
    value, low, high = map(float, figure)
    return value - times * (value - low) - 1e-6 <= truth <= value + times * (high - value) + 1e-6


@pytest.mark.slow
def test_an_answer_is_right_charged_once_and_answers_what_follows(home, tmp_path):
    number, rows = ask(home, BY_SEX, "2", part=None)
    found = {tuple(row["group"]): row for row in rows}
    assert len(rows) == 4 * 18  # every group that the schema names, other values and missing ones
    charged, kept = spent(home), 0
    for sex, education, count, mean, total in true_rows(BY_SEX):
        row = found[sex, education]
        kept += count
        assert abs(float(row["count"][0]) - 0.9 * count) < 60 + 2 * count**0.5, row  # a tenth is aside, by a draw
        if count > 500:
            assert within(row["avg age"], mean, 6)
            assert abs(float(row["sum hours_per_week"][0]) - 0.9 * total) < 0.1 * total
    assert ask(home, BY_SEX, "2")[0] == ask(home, BY_SEX.replace("age >= 30", "AGE>=30"))[0] == number
    for follows, truth in (
        ("select count(*) from adult where age >= 30", 0.9 * kept),
        ("select sex, count(*), avg(age) from adult where age >= 30 and education in ('HS-grad', 'Bachelors') "
         "group by sex", None),
        ("select education, avg(age) from adult where sex = 'Male' and age >= 30 group by education", None),
    ):  # fmt: skip
        same, figures = ask(home, follows)
        assert same == number
        assert truth is None or within(figures[0]["count"], truth, 6)
    for other in (
        "select count(*) from adult", "select count(*) from adult where age >= 31",
        "select sex, count(*) from adult where age >= 30 and race = 'White' group by sex",
        "select sum(education_num) from adult where age >= 30",
    ):  # fmt: skip
        with pytest.raises(InputError, match="nothing that was released answers"):
            ask(home, other)
    finer = answers.plan(home, QueryRequest("adult", "select count(*) from adult where age >= 30", "1"))
    assert finer.known is None  # one count at epsilon 1 is more exact than a sum of 72 at 2
    assert spent(home) == charged
    with pytest.raises(InputError, match="no rows of this family are kept aside|nothing that was released"):
        ask(home, BY_SEX, part=HOLDOUT)  # of other rows
    counted = job.measure(
        home, ProfileRequest("adult", "0.5", columns=("race", "sex"), pairs=(("race", "sex"),)), by="t"
    )
    assert ask(home, "select sex, count(race) from adult where race <> 'White' group by sex")[0] == counted["job"]
    with pytest.raises(UnknownName):
        PROFILE.open(home, number)
    audited = audit_home(home)
    assert audited.ok, audited.problems
    answer = answers.answer_of(home, number)[3]
    for suffix in SUFFIXES:
        report.write(answer, tmp_path / f"report{suffix}")
    assert (tmp_path / "report.html").read_text().count("<svg") == 1
    assert (tmp_path / "report.csv").read_text().startswith("sex,education,count,count low,count high,avg age,")
    with pytest.raises(InputError, match="must end in"):
        report.write(answer, tmp_path / "report.pdf")


def test_a_number_to_predict_and_declared_cut_points(home):
    """Sums of a target are nearly exact in their cells, and cells are where the schema cuts, where that is declared."""
    select = "select sex, count(*), avg(hours_per_week) from two where age > 30 and hours_per_week >= 40 group by sex"
    number, rows = ask(home, select, "3", "two")
    truth = {row[0]: row[1:] for row in true_rows(select, "two")}
    for row in rows[:2]:
        assert within(row["count"], truth[row["group"][0]][0])
        assert within(row["avg hours_per_week"], truth[row["group"][0]][1])
    stated = answers.answer_of(home, number)[2]
    assert stated.form.where[0].above == "30"
    assert [each.end for each in stated.form.measures] == ["low", "high"]  # and count all rows: nobody is without it
    assert float(stated.form.measures[1].within) < 0.05
    assert stated.form.rows.records == 4000


def test_whatever_is_changed_in_the_statement_is_found(home):
    select = "select sex, count(*), avg(age) from two where age > 30 group by sex"
    number, rows = ask(home, select, "1", "two")
    envelope, proof, found, _ = answers.answer_of(home, number)
    signer, text = home.keys.signer("issuer"), proof.decode()
    check_table(found, select, rows)
    with pytest.raises(CertificateInvalid, match="do not follow"):
        check_table(found, select, rows[1:])
    with pytest.raises(InputError, match="does not follow"):
        table_of(found, "select count(*) from two where age > 60")
    for path, value, problem in (
        (("counts", 3), 7, None),
        (("variance",), "1", "variance"),
        (("level",), "0.9", "variance"),
        (("counts",), [1, 2], "counts"),
        (("measures", 0, "end"), "low", "measures"),
        (("measures", 1, "sum"), False, "measures"),
        (("measures", 2, "end"), "low", "measures"),
        (("where", 0, "codes"), [1], "where"),
        (("by", 0, "type"), "numeric", "columns"),
        (("grid",), 1, "variance"),
    ):
        forged = json.loads(dsse.parse(envelope).payload)
        part = forged["predicate"]
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        payload = canonical.encode(forged, 1 << 19)
        with pytest.raises(CertificateInvalid, match="its statement is not"):  # a stolen key alone mints none
            ANSWER.verify(dsse.sign(payload, signer), text, home.trust)
        body, predicate = ANSWER.read(payload)
        if problem is not None:
            with pytest.raises(CertificateInvalid, match=problem):
                released_by_answer(Stated(body, predicate.predicate, "two", "", Decimal(1), Decimal(0), 0, ANSWER.rule))


def test_what_cannot_be_answered_is_refused_before_it_costs(home):
    select = "select count(*) from adult"
    for wrong, problem in (
        ({"part": "test"}, "must be holdout or training"),
        ({"dataset": "two", "select": "select count(*) from two", "part": HOLDOUT}, "no rows of this family"),
        ({"select": "select count(*) from two"}, "must name the dataset alone"),
        ({"select": "select age, education, occupation, native_country, count(*) from adult group by age, education, "
                    "occupation, native_country"}, "at most 32768; group by less"),
        ({"epsilon": "0"}, "must be > 0"),
        ({"epsilon": "0.000000001"}, "off by|too small"),
        ({"delta": "0.1"}, "below 1/records"),
        ({"delta": "0.0001"}, "has 0.00001 in all"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=problem):
            answers.plan(home, QueryRequest(**({"dataset": "adult", "select": select, "epsilon": "0.1"} | wrong)))
    with pytest.raises(BudgetRefused) as refused:
        answers.plan(home, QueryRequest("adult", select, "40"))
    assert refused.value.details["would_fit"]
    assert spent(home) == "0"


def test_the_published_schema_is_the_form():
    published = json.loads((ledgers.ROOT / "docs" / "answer.schema.json").read_text())
    assert published == ANSWER.json_schema()  # python -m accountant.certificates.statement_kinds answer


def test_dates_are_compared_averaged_and_grouped(home, tmp_path):
    """As pandas writes them; a mean is a date with dates about it, wider by half a bin."""
    days = np.random.default_rng(5).integers(0, 18262, 3000)  # 1970-01-01 .. 2019-12-31
    texts = [f"{date(1970, 1, 1) + timedelta(int(day))},{'yes' if day > 9000 else 'no'}" for day in days]
    (tmp_path / "people.csv").write_text("\n".join(["born,sick", *texts]))
    (tmp_path / "people.yaml").write_text(
        "target: {name: sick, classes: ['no', 'yes']}\nrecords: 3000\nformat: {dates: [YYYY-MM-DD]}\n"
        "features: {born: {type: date, range: [1970-01-01, 2019-12-31], bins: 50}}\n"
    )
    files = tmp_path / "people.csv", tmp_path / "people.yaml"
    register(home, "people", *files, Budget.of("4", "0.00001"), Relation.ADD_REMOVE, "record")
    select = (
        "select sick, count(*), avg(born), avg(case when born < '1980-01-01 00:00:00' then 1 else 0 end) share "
        "from people where born >= date '1975-01-01' group by sick having avg(born) > '1971-01-01' order by avg(born)"
    )
    number, table = ask(home, select, "3", "people")
    stated = answers.answer_of(home, number)[2]
    check_table(stated, select, table)  # the statement alone says that these are dates
    assert [row["group"] for row in table] == [["no"], ["yes"]]
    (condition,) = answers.answer_of(home, number)[3]["question"]["where"]
    first = (date.fromisoformat(condition.split()[0]) - date(1970, 1, 1)).days  # where the bins end
    assert 1400 < first < 1826
    for row, own in zip(table, (days[(days > first) & (days <= 9000)], days[days > 9000]), strict=True):
        value, low, high = ((date.fromisoformat(each) - date(1970, 1, 1)).days for each in row["avg born"])
        assert low < own.mean() < high
        assert 100 < high - value < 600
        assert abs(value - own.mean()) < 60
    assert float(table[0]["share"][1]) > 0.15 > float(table[1]["share"][1]) == 0
    text = "\n".join("  ".join(line) for line in report.lines(answers.answer_of(home, number)[3]))
    assert table[0]["avg born"][0] in text
    with pytest.raises(
        InputError, match="born: '2021-02-30': is no date: day is out of range for month; write it like"
    ):
        ask(home, "select count(*) from people where born < '2021-02-30'", "1", "people")


def test_numbers_are_grouped_in_bands_of_one_width(home):
    """By the cells of the number, which end just below each band, and not by the schema's bins."""
    select = (
        "select floor(age / 10) * 10 as band, count(*) n, avg(age) from adult where age < 60 group by 1 order by band"
    )
    number, table = ask(home, select, "2")
    starts = [float(row["group"][0].split(" to ")[0]) for row in table[1:]]
    assert starts == pytest.approx([20, 30, 40, 50], abs=0.02)
    assert all(start < band for start, band in zip(starts, (20, 30, 40, 50), strict=True))
    stated = answers.answer_of(home, number)[2]
    check_table(stated, select, table)
    true = true_rows("select floor(age / 10), count(*), avg(age) from adult where age < 60 group by 1 order by 1")
    for row, (_, count, mean) in zip(table, true, strict=True):
        assert abs(float(row["n"][0]) - 0.9 * count) < 60 + 2 * count**0.5  # a tenth is aside, by a draw
        assert abs(float(row["avg age"][0]) - mean) < 0.5
    assert ask(home, "select floor(age/10), count(*) from adult where age < 60 group by floor(age/10)")[0] == number
    for other in ("select age, count(*) from adult where age < 60 group by age",
                  "select floor(age/20), count(*) from adult where age < 60 group by 1"):  # fmt: skip
        with pytest.raises(InputError, match="nothing that was released answers"):
            ask(home, other)
