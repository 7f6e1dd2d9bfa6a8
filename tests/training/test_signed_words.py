"""What real jobs sign: the plan of each learner, and what growth does to what was signed before."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offices import Office
from offices import dataset as office_dataset

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.families.records import Unit, Why
from accountant.ledger.person_totals import change_person_total
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.plain_words import meaning, plain
from dpserve_verify.certificates.predicate import read_statement
from dpserve_verify.certificates.releases import kind_of
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import card_of
from models.store.since import bound_now, growth_since
from training.datasets.datasets import register
from training.datasets.growing.append import PersonWords, append
from training.jobs import job
from training.measuring.worth.evaluate import open_model
from training.planning.plans import Planned, plan
from training.requests import JobRequest, TuningRequest

SCHEMA = """
records: 40000
targets:
  two: {classes: ["no", "yes"], prevalence: 0.1}
  three: {classes: [a, b, c], prevalence: [0.1, 0.2, 0.7]}
  much: {range: [0, 100]}
ignore: [pid]
features:
  income: {type: numeric, range: [0, 1000000], bins: 16}
  age: {type: numeric, range: [0, 120], bins: 16}
  town: {type: categorical, values: [x, y]}
"""
ROWS = 300
EACH_BLOCK = PersonWords(each_block=True, why=Why("steward", "a trial"))
PRICES = {"above": Budget.of("20", "0.000001"), "pure": Budget.of("20", "0")}


def rows(folder: Path, seed: int, who: str = "p") -> Path:
    law = np.random.default_rng(seed)
    table = {
        "pid": [f"{who}{i}" for i in range(ROWS)], "income": np.exp(law.normal(8, 1, ROWS)),
        "age": law.uniform(18, 90, ROWS), "town": law.choice(["x", "y"], ROWS), "two": law.choice(["no", "yes"], ROWS),
        "three": law.choice(["a", "b", "c"], ROWS), "much": law.uniform(0, 100, ROWS),
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / f"{seed}.parquet")
    return folder / f"{seed}.parquet"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    folder = tmp_path_factory.mktemp("words")
    made = Home.init(ledgers.place(folder / "home"))
    (folder / "d.yaml").write_text(SCHEMA)
    for seed, (name, total) in enumerate(PRICES.items()):
        register(made, name, rows(folder, seed, name), folder / "d.yaml", total, Relation.ADD_REMOVE, "record")
    return made


ASKED = [
    ("auto", {}), ("lazybb", {}), ("lazybb", {"cuts": "declared"}), ("lazybb", {"balance": 1.0, "cuts": "declared"}),
    ("lazybb", {"balance": 1.0}), ("lazybb-tree", {}), ("lazybb-tree", {"criterion": "gini", "rounds": 5}),
    ("lazybb-tree", {"criterion": "error", "cuts": "even", "rounds": 5}),
    ("lazybb-tree", {"growth": "best-first", "rounds": 5}),
    ("lazybb-tree", {"balance": 0.5}), ("ebm", {}), ("ebm", {"cuts": "declared"}), ("ebm", {"balance": 1.0}),
    ("bdpe", {}), ("bdpe", {"balance": 1.0}), ("forest", {}), ("forest", {"balance": 1.0}),
]  # fmt: skip


REFUSALS = (
    "is a number; it needs classes|needs exactly two classes|it takes two classes|^balance=|releases differ so much"
)


def planned_or_refused(home: Home, asked: JobRequest) -> Planned | None:
    """The plan; None where the learner takes no such target, or not so much: nothing is planned or signed."""
    try:
        return plan(home, asked)
    except InputError as error:
        if re.search(REFUSALS, error.message):
            return None
        raise


@pytest.mark.parametrize("target", ["two", "three", "much"])
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize(("learner", "parameters"), ASKED, ids=lambda each: str(each))
def test_each_learners_plan_is_put_in_words_that_it_does_not_contradict(home, learner, parameters, price, target):
    asked = JobRequest(price, learner, "1", parameters=parameters, target=target)
    made = planned_or_refused(home, asked)
    if made is None:
        return
    runs = made.recipe.plan.to_json()
    delta = made.request.budget.to_json()["delta"]
    about = office_dataset(budget=PRICES[price])
    payload = Office().statement(b"a model", made.recipe.plan, about, delta)
    body, _ = read_statement(payload)
    sentences.check(body["predicate"])
    said, purposes = body["predicate"]["preprocessing"], " | ".join(run["purpose"] for run in runs)
    assert ("found by noisy counts of rows" in said) == ("count rows per fine cell" in purposes)
    assert ("nothing was fitted to rows" in said) == ("count rows per fine cell" not in purposes)
    assert ("classes weigh" in said) == (" weighing " in purposes)
    for run, stated in zip(runs, body["predicate"]["mechanisms"], strict=True):
        event = run["event"]
        scale = float(run["sensitivity"]) * (
            float(event["noise_multiplier"]) if event["type"] == "gaussian" else 1 / float(event["epsilon"])
        )
        assert scale < 2.0**48
        assert re.fullmatch(r"dpserve \S+: exact sampler", stated["library"])


def test_the_closed_list_is_what_learners_ask(home):
    """Each way of asking was met above at least once: the list holds no more than is asked."""
    asked = {kind_of(purpose) for purpose in ("count rows per fine cell", "select a 1-rule by weighted agreement")}
    assert len(asked) == 2
    tuned = plan(
        home, JobRequest("above", "lazybb", "1", target="two", tuning=TuningRequest({"rounds": [5, 10]}, "5"))
    ).recipe.plan
    body, _ = read_statement(Office().statement(b"m", tuned, None, "0.000001"))
    assert "as each run's setting says" in body["predicate"]["preprocessing"]
    assert body["predicate"]["accounting"]["coversTuning"] is True


def test_found_cut_points_are_signed_as_found(home):
    """The break of today: constants over cut points that rows chose."""
    job.train(home, JobRequest("above", "lazybb", "2", target="two", model="found", parameters={"rounds": 5}), by="me")
    job.train(
        home,
        JobRequest("above", "lazybb", "2", target="two", model="public", parameters={"rounds": 5, "cuts": "declared"}),
        by="me",
    )
    for name, found in (("found", True), ("public", False)):
        model = open_model(home, name)
        asked = [run.purpose for run in model.certificate.form.mechanisms]
        assert ("count rows per fine cell" in asked) is found
        for text in (
            model.certificate.form.preprocessing,
            to_text(plain(model.certificate)).replace("\n  ", " "),
            card_of(model.ensemble, model.certificate),
        ):
            assert ("nothing was fitted to rows" in text) is not found
            assert ("found by noisy counts of rows" in text) is found


# ---- growth --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["record", "person", "person with a total"])
def test_a_model_of_before_a_growth_says_so_when_it_is_shown(tmp_path, kind):
    home = Home.init(ledgers.place(tmp_path / "home"))
    (tmp_path / "d.yaml").write_text(SCHEMA)
    person = Budget.of("3", "0") if kind == "person with a total" else None
    unit = "record" if kind == "record" else "pid"
    first = rows(tmp_path, 1)
    total = Budget.of("1", "0")
    register(home, "d", first, tmp_path / "d.yaml", total, Relation.ADD_REMOVE, unit, person=person)
    job.train(home, JobRequest("d", "forest", "0.5", target="two", parameters={"trees": 3}), by="me")
    before = open_model(home, "d@1")
    assert growth_since(home.ledger, before.certificate) == ()
    text = " ".join(to_text(plain(before.certificate)).split())
    assert "largest total that was ever in force; a total is changed" not in text  # "within .. ever", whatever grows
    promised = {
        "record": "if the dataset grows, each record stands in one block",
        "person": "if the dataset grows, one total holds for one person over all of its blocks together",
        "person with a total": "keeps, for each person in however many blocks, the total for one person",
    }
    assert promised[kind] in text.replace("If the", "if the")
    append(home, "d", rows(tmp_path, 2), "steward", 40000)
    append(home, "d", rows(tmp_path, 3), "steward", 40000)
    said = growth_since(home.ledger, before.certificate)
    assert "from 1 block to 3 since" in said[0]
    now = home.ledger.dataset("d")
    if kind == "record":
        assert "Each record stands in one block, and keeps that block's total, epsilon 1." in said[1]
    elif now.person is not None:
        most = Decimal(3) if person else now.person.largest
        assert f"in however many blocks, the total of epsilon {most:f} at delta 0" in said[1]
    else:
        assert "for one who stands in all 3 that comes to epsilon 3" in said[1]
    page = to_text(plain(before.certificate, said))
    assert "What came since it was issued" in page
    assert before.certificate.statement == open_model(home, "d@1").certificate.statement  # never rewritten


def test_what_bounds_one_person_where_no_total_of_one_does():
    """As homes are that grew before a total for one person was the rule."""
    about = office_dataset(unit=Unit("person", "pid"), budget=Budget.of("1"))
    said = bound_now(replace(about, last=3))
    assert "No total for one person over all blocks is in force" in said
    assert "for one who stands in all 3 that comes to epsilon 3" in said


@pytest.mark.parametrize("case", ["a total came", "none came", "none came, and it says that one will"])
def test_a_job_of_before_a_growth_that_is_issued_after_it(tmp_path, monkeypatch, case):
    """It reads block 1 and names no blocks. Where no total for one person came, it must not say that one is to come."""
    home = Home.init(ledgers.place(tmp_path / "home"))
    (tmp_path / "d.yaml").write_text(SCHEMA)
    register(home, "d", rows(tmp_path, 1), tmp_path / "d.yaml", Budget.of("3", "0"), Relation.ADD_REMOVE, "pid")
    waiting = job.submit(home, JobRequest("d", "forest", "0.5", target="two", parameters={"trees": 3}), by="me").seq
    came, lies = case == "a total came", case.endswith("will")
    append(home, "d", rows(tmp_path, 2), "steward", 40000, person=PersonWords() if came else EACH_BLOCK)
    if lies:
        monkeypatch.setattr("accountant.certificates.statement._growth_of", lambda _: "person-total-by-default")
    job.run(home, waiting)
    stated = open_model(home, "d@1").certificate
    assert stated.form.dataset.blocks is None
    said = {"a total came": "person-total", "none came": "each-block"}.get(case, "person-total-by-default")
    assert stated.growth == said
    assert ("all 2 that comes to epsilon 6" in " ".join(growth_since(home.ledger, stated))) == (not came)
    found = audit_home(home, ledgers.bundles(home.path))
    assert any("says that its dataset has not grown" in problem for problem in found.problems) == lies
    assert found.ok == (not lies)


def test_a_page_states_the_largest_total_for_one_person(tmp_path):
    """A total for one person that was raised and lowered again promises the largest."""
    home = Home.init(ledgers.place(tmp_path / "home"))
    (tmp_path / "d.yaml").write_text(SCHEMA)
    register(home, "d", rows(tmp_path, 1), tmp_path / "d.yaml", Budget.of("1", "0"), Relation.ADD_REMOVE, "pid")
    append(home, "d", rows(tmp_path, 2), "steward", 40000)
    for epsilon in ("5", "2"):
        change_person_total(home.ledger.log, "d", Decimal(epsilon), Why("steward", "a trial"))
    asked = JobRequest("d", "forest", "0.5", target="two", parameters={"trees": 3}, blocks="2")
    job.train(home, asked, by="me")
    stated = open_model(home, "d@1").certificate
    person = stated.form.dataset.person
    assert (person.budget.epsilon, person.largest) == ("2", "5")
    assert "which was epsilon 5 at delta 0" in " ".join(to_text(plain(stated)).split())
    assert audit_home(home, ledgers.bundles(home.path)).ok


def test_a_steward_is_told_what_a_total_means_by_whom_it_protects():
    one, three = Budget.of("1", "0"), Budget.of("3", "0")
    assert "73.11" in meaning(one, unit="record")
    assert "each row keeps the total of its own block" in meaning(one, unit="record")
    assert "person" not in meaning(one, unit="record").partition("If the dataset grows")[0]
    assert "it holds for one person over all blocks together" in meaning(one, unit="pid")
    with_total = meaning(one, unit="pid", person=three)
    assert with_total.index("95.26") < with_total.index("73.11")
    assert "which of two things one row says" in meaning(one, "replace-one", "record")
    assert "cannot grow" in meaning(one, "replace-one", "pid")
    undecided = meaning(one)
    assert "for one person over all blocks" in undecided
    assert "each row keeps the total of its own block" in undecided
    assert not any("for ever" in meaning(one, unit=unit) for unit in (None, "record", "pid"))
