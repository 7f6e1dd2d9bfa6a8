"""What was paid for is known again by the rows that it counts: whatever words named the blocks, whatever came since,
and whether or not the rows are still there. Only a statement that would answer is verified, and once.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.certificates.statement_kind import StatementKind
from accountant.certificates.statement_kinds import kind_at
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.datasets.growing.append import append
from training.datasets.growing.delete import delete
from training.jobs import job
from training.measuring.answers import answers
from training.requests import ProfileRequest, QueryRequest

SCHEMA = """
target: {name: y, classes: [a, b]}
records: 300
features:
  x: {type: numeric, range: [0, 1], bins: 4}
  c: {type: categorical, values: [k, l, m]}
"""
BY_Y = "select y, count(*) from t group by y"


def table(folder: Path, seed: int) -> Path:
    rows = [f"{(seed * 7919 + k * 31) % 1000 / 1000},{'klm'[(k + seed) % 3]},{'ab'[k % 2]}" for k in range(300)]
    (folder / f"{seed}.csv").write_text("\n".join(["x,c,y", *rows]) + "\n")
    return folder / f"{seed}.csv"


@pytest.fixture
def home(tmp_path) -> Home:
    made = Home.init(place(tmp_path / "home"))
    (tmp_path / "t.yaml").write_text(SCHEMA)
    register(
        made, "t", table(tmp_path, 1), tmp_path / "t.yaml", Budget.of("60", "0.000001"), Relation.ADD_REMOVE, "record"
    )
    return made


def ask(home: Home, select: str = BY_Y, epsilon: str | None = None, **more) -> int:
    return job.measure(home, QueryRequest("t", select, epsilon, **more), by="test")["job"]


def test_the_same_rows_are_the_same_answer_by_whatever_words(home, tmp_path):
    first = ask(home, epsilon="1")
    profile = job.measure(home, ProfileRequest("t", "0.5", columns=("c",)), by="test")["job"]
    append(home, "t", table(tmp_path, 2), "steward", 300)
    assert ask(home, blocks="1") == ask(home, blocks="1-1") == first  # from before it grew
    both = ask(home, epsilon="1", blocks="1-2")
    assert both != first
    assert ask(home, blocks="all") == ask(home, blocks="last:2") == ask(home, blocks="last:9") == both
    assert answers.plan(home, QueryRequest("t", BY_Y, "0.9", blocks="all")).known == both
    assert job.measure(home, ProfileRequest("t", "0.5", columns=("c",), blocks="1"), by="test")["job"] == profile
    with pytest.raises(InputError, match="nothing that was released"):
        ask(home, blocks="2")
    delete(home, "t", 1, Why("steward", "kept for a year"))
    assert ask(home, blocks="1-2") == both  # no row is needed
    assert ask(home, blocks="1") == first
    assert job.measure(home, ProfileRequest("t", "0.5", columns=("c",), blocks="1"), by="test")["job"] == profile
    with pytest.raises(InputError, match="nothing that was released"):
        ask(home, blocks="all")  # which is block 2 by now
    for paid in (
        QueryRequest("t", "select c, count(*) from t group by c, x", "1", blocks="1-2"),
        ProfileRequest("t", "0.7", columns=("x",), blocks="1"),
    ):
        with pytest.raises(InputError, match="up to block 1 were deleted"):
            job.measure(home, paid, by="test")
    report = audit_home(home)
    assert report.ok, report.problems


def test_a_plan_verifies_what_would_answer_it_and_once(home, monkeypatch):
    """By signatures that are looked at: of seven statements two would answer, and the narrower one does."""
    wide = ask(home, "select c, y, count(*) from t group by c, y", "0.5")
    others = [ask(home, f"select count(*) from t where x > {k / 4}", "0.1") for k in (1, 2, 3)]
    narrow = ask(home, epsilon="6")
    others += [ask(home, "select c, sum(x) from t group by c", "0.1"), ask(home, "select avg(x) from t", "0.1")]
    looked: list[str] = []
    verify = StatementKind.verify

    def count(self, envelope, proof, trust, about=None):
        looked.append(proof)
        return verify(self, envelope, proof, trust, about)

    monkeypatch.setattr(StatementKind, "verify", count)
    same = Home.open({"DPSERVE_HOME": str(home.path)})
    free = QueryRequest("t", BY_Y)
    known = [answers.plan(same, free).known for _ in range(5)]
    assert known == [narrow] * 5
    assert len(looked) == 1
    with pytest.raises(InputError, match="nothing that was released"):
        answers.plan(same, QueryRequest("t", "select c, y, avg(x) from t group by c, y"))
    assert len(looked) == 1
    file = kind_at(home, narrow).file(home, narrow)
    os.utime(file, (1, 1))
    assert answers.plan(same, free).known == narrow
    assert len(looked) == 2  # its file was touched
    assert answers.plan(same, QueryRequest("t", "select c, count(*) from t group by c")).known == wide
    assert len(looked) == 2  # that one was looked at when the narrower one was asked for
    file.write_bytes(kind_at(home, others[0]).file(home, others[0]).read_bytes())
    with pytest.raises(CertificateInvalid):  # what was changed is not taken for what was verified
        answers.plan(same, free)
