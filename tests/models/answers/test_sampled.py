"""A count of a part, scaled to everybody: its interval holds the truth as often as it says, by exact laws, and an
answer says of which rows it is.
"""

from __future__ import annotations

import json
from decimal import Decimal
from math import comb

import pytest
from ledgers import place

from accountant.certificates.answer import ANSWER
from accountant.home import Home
from accountant.ledger.families.records import HOLDOUT, NewPeople
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.answers import report
from models.answers.sampled import HALF, Sampled
from training.datasets.datasets import register
from training.datasets.growing.append import append
from training.jobs import job
from training.measuring.answers import answers
from training.requests import QueryRequest


def chance_to_miss(sampled: Sampled, units: int, rows: int) -> float:
    """The exact chance that the interval, without noise, misses units of so many rows each."""
    q = sampled.share
    missed = 0.0
    for drawn in range(units + 1):
        low, high = sampled.scale(rows * drawn, 0.0)[1:]
        if not low <= units * rows <= high:
            missed += comb(units, drawn) * q**drawn * (1 - q) ** (units - drawn)
    return missed


@pytest.mark.parametrize("share", [0.8, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("rows", [1, 3, 10])
def test_the_interval_holds_the_truth_as_often_as_it_says(share, rows):
    sizes = (0, 1, 2, 5, 12, 40, 150, 600)
    worst = max(chance_to_miss(Sampled(share, rows), units, rows) for units in sizes)
    assert worst <= HALF
    if rows == 10 and share < 0.9:  # by half of what one unit can move it would not
        assert max(chance_to_miss(Sampled(share, 5), units, rows) for units in sizes) > HALF


def test_noise_widens_the_interval_and_a_count_is_never_negative():
    plain, noisy = Sampled(0.8, 1).scale(400, 0.0), Sampled(0.8, 1).scale(400, 30.0)
    assert plain[0] == noisy[0] == 500
    assert noisy[1] < plain[1] - 30 < 500 < plain[2] + 30 < noisy[2]
    assert Sampled(0.8, 1).scale(-40, 30.0)[:2] == (0, 0)


@pytest.fixture
def home(tmp_path) -> Home:
    made = Home.init(place(tmp_path / "home"))
    (tmp_path / "v.yaml").write_text(
        "target: {name: y, classes: [a, b]}\nrecords: 1200\nignore: [who]\n"
        "features:\n  c: {type: categorical, values: [k, l]}\n"
    )
    for block in (1, 2):
        rows = [f"p{k % 400},{'kl'[k % 2]},{'ab'[(k + block) % 3 > 0]}" for k in range(1200)]
        (tmp_path / f"{block}.csv").write_text("\n".join(["who,c,y", *rows]) + "\n")
    files = tmp_path / "1.csv", tmp_path / "v.yaml"
    budget = Budget.of("60", "0.000001")
    register(made, "v", *files, budget, Relation.ADD_REMOVE, "who", 3, holdout=Decimal("0.25"))
    return made


def test_an_answer_says_of_which_rows_it_is_and_scales_its_counts(home, tmp_path):
    def ask(select: str, **more):
        number = job.measure(home, QueryRequest("v", select, "5", **more), by="test")["job"]
        statement = json.loads(dsse.parse(ANSWER.file(home, number).read_bytes()).payload)
        return answers.answer_of(home, number, select)[3], statement["predicate"]["rows"]

    select = "select c, count(*), avg(case when y = 'a' then 1 else 0 end) share from v group by c"
    body, stated = ask(select)
    assert (stated["share"], stated["unitRows"]) == ("0.75", 3)
    assert "window" not in stated
    first = report.facts(body)[0]
    assert first.startswith("v, the 75 % of people that are kept for training, of each at most 3 rows: from noisy sums")
    assert set(body["scaled"][0]) == {"count"}  # a share needs none
    for row, scaled in zip(body["rows"][:2], body["scaled"][:2], strict=True):
        (value, low, high), part = map(float, scaled["count"]), float(row["count"][0])
        assert value == pytest.approx(part / 0.75, abs=0.01)
        assert low < 600 < high  # 1,200 rows, half of each value
        assert high - low > float(row["count"][2]) - float(row["count"][1])
    head, *lines = report.lines(body)
    assert head == ("c", "count", "interval", "of all", "interval", "share", "interval")
    assert {len(line) for line in lines} == {len(head)}
    report.write(body, tmp_path / "report.csv")
    assert "count, of all low" in (tmp_path / "report.csv").read_text()
    held, stated = ask("select c, count(*) from v group by c", part=HOLDOUT)
    assert stated["share"] == "0.25"
    assert "the 25 % of people that are kept aside for evaluation" in report.facts(held)[0]
    again = NewPeople("the same rows on another day", "steward")
    append(home, "v", tmp_path / "2.csv", "steward", 1200, new_rows=again)
    both, stated = ask("select c, count(*) from v group by c", blocks="all")
    assert (stated["unitRows"], stated["window"]) == (3, [1, 2])  # one person is bounded over both
    assert "of each at most 3 rows, in blocks 1 to 2" in report.facts(both)[0]


def test_where_nobody_is_kept_aside_nothing_is_scaled(home, tmp_path):
    files = tmp_path / "1.csv", tmp_path / "v.yaml"
    (tmp_path / "1.csv").write_text((tmp_path / "1.csv").read_text().replace("\np", "\nq"))
    register(home, "w", *files, Budget.of("60", "0.000001"), Relation.ADD_REMOVE, "who")
    number = job.measure(home, QueryRequest("w", "select count(*) from w", "5"), by="test")["job"]
    body = answers.answer_of(home, number)[3]
    assert "scaled" not in body
    assert report.facts(body)[0].startswith("w, all people, of each at most one row: from noisy sums")
