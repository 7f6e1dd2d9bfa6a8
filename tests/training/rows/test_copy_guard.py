"""The guard against copies as an oracle: what it tells, how often, and what it leaves behind."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ledgers import bodies, changed, place

from accountant.access import grants, tokens
from accountant.access.grants import Grant, access_of
from accountant.audit.audit import audit_home
from accountant.errors import DataError, NameTaken
from accountant.home import Home
from accountant.ledger import comparisons
from accountant.ledger.entry_search import Wanted, search
from accountant.ledger.families.records import NewPeople
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from serving.pages.parts.entry_text import describe
from training.datasets import datasets
from training.datasets.copy_guard import Asker
from training.datasets.datasets import register
from training.datasets.drafts import steps
from training.datasets.drafts.drafts import Drafts
from training.datasets.growing.append import append

TOTAL = Budget.of("1", "1e-6")
SCHEMA = (
    "target: {name: sick, classes: ['no', 'yes']}\nrecords: 2000\nignore: [ssn]\n"
    "features:\n  bmi: {type: numeric, range: [10, 60], bins: 8}\n"
)
PEOPLE = [str(name) for name in np.random.default_rng(5).permutation(10**6)[:4000]]
INSIDE, OUTSIDE = PEOPLE[:2000], PEOPLE[2000:]


def rows_of(ids, seed=0) -> pa.Table:
    random = np.random.default_rng(seed)
    size = len(ids)
    return pa.table({"ssn": ids, "bmi": random.normal(25, 4, size), "sick": random.choice(["no", "yes"], size)})


@pytest.fixture
def home(tmp_path):
    found = Home.init(place(tmp_path / "home"))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    bring(found, tmp_path, "clinic", INSIDE)
    return found


def bring(home, folder, name, ids, seed=0, **more):
    pq.write_table(rows_of(ids, seed), folder / "rows.parquet")
    how = TOTAL, Relation.ADD_REMOVE, "ssn", 1
    return register(home, name, folder / "rows.parquet", folder / "schema.yaml", *how, **more)


def refusal(error, call, *arguments, **more):
    with pytest.raises(error) as caught:
        call(*arguments, **more)
    return str(caught.value), caught.value.details


def kinds(home) -> list[str]:
    return [json.loads(body)["type"] for body in bodies(home.path)]


def entries(home) -> list[dict]:
    return [value for value in map(json.loads, bodies(home.path)) if value["type"] == "rows-compared"]


@pytest.mark.parametrize("size", [1, 2, 37, 99])
def test_few_people_are_not_compared_and_the_answer_is_the_same_inside_and_outside(home, tmp_path, size):
    """Registration, whether the family's name is free or not, and a block: nothing is told, and nothing is written."""
    before = kinds(home)
    for more in ({}, {"family_name": "clinic"}):
        said = [refusal(InputError, bring, home, tmp_path, "probe", ids[:size], **more) for ids in (INSIDE, OUTSIDE)]
        assert said[0] == said[1]
        assert "share" not in said[0][1]
    bring(home, tmp_path, "visits", OUTSIDE[1000:], seed=1)
    said = []
    for ids in (INSIDE, OUTSIDE):
        pq.write_table(rows_of(ids[:size]), tmp_path / "rows.parquet")
        said.append(refusal(InputError, append, home, "visits", tmp_path / "rows.parquet", "steward", 2000))
    assert said[0] == said[1]
    assert "--new-rows --reason" in said[0][0]
    assert kinds(home) == [*before, "dataset-registered"]


def test_few_people_whose_word_is_given_are_registered_without_a_look(home, tmp_path):
    new = NewPeople("a trial of nine", "steward")
    bring(home, tmp_path, "trial", INSIDE[:9], new_people=new)
    assert json.loads(bodies(home.path)[-1])["new_people"] == {"reason": "a trial of nine", "by": "steward"}
    pq.write_table(rows_of(INSIDE[:9], seed=3), tmp_path / "rows.parquet")
    append(home, "trial", tmp_path / "rows.parquet", "steward", 2000, new_rows=new)
    assert entries(home) == []
    assert audit_home(home).problems == ()


def test_whether_one_person_is_there_is_not_told_by_99_others_who_are_not(home, tmp_path):
    """One in a hundred is 1 %, which is noticeable; ten people are needed besides."""
    bring(home, tmp_path, "probe", [INSIDE[7], *OUTSIDE[:99]], seed=1)
    bring(home, tmp_path, "other", [*INSIDE[8:17], *OUTSIDE[100:191]], seed=2)
    with pytest.raises(NameTaken):
        bring(home, tmp_path, "third", [*INSIDE[20:30], *OUTSIDE[300:390]], seed=3)


def test_a_refusal_tells_no_share_and_stands_in_the_ledger_for_every_reader(home, tmp_path):
    said, details = refusal(NameTaken, bring, home, tmp_path, "probe", [*INSIDE[:370], *OUTSIDE[:630]], seed=1)
    assert "people of this file are in the dataset clinic already" in said
    assert details == {"dataset": "clinic", "what": "people"}
    assert "%" not in said
    assert ".37" not in said
    (entry,) = entries(home)
    assert {**entry, "time": ""} == {
        "type": "rows-compared", "time": "", "door": "register", "dataset": "probe", "concerns": ["clinic"],
        "by": "home",
    }  # fmt: skip
    report = audit_home(home)
    assert report.ok, report.problems
    found = search(home.ledger.log.database, Wanted(kind="rows-compared"))
    assert "it was refused, for what stands in clinic" in describe(found.entries[0]).words
    assert [each.value["type"] for each in search(home.ledger.log.database, Wanted(dataset="clinic")).entries] == [
        "rows-compared", "dataset-registered",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        {"door": "window"}, {"dataset": "../x"}, {"concerns": ["nobody"]}, {"concerns": ["clinic", "clinic"]},
        {"concerns": "clinic"}, {"by": ""}, {"data": "abc"}, {"share": "0.37"},
    ],
)  # fmt: skip
def test_an_entry_of_a_comparison_that_says_something_else_does_not_verify(home, tmp_path, bad):
    refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[:500], seed=1)
    *before, entry = bodies(home.path)
    replay = Replay(home.trust)
    for seq, body in enumerate(before):
        replay.read(seq, body)
    with pytest.raises(LedgerInvalid):
        replay.read(len(before), changed(entry, **bad))
    replay.read(len(before), entry)


def test_five_answers_an_hour_to_a_caller_and_a_restart_gives_no_more(home, tmp_path, monkeypatch):
    who, other = (Asker(name, access_of(home.ledger, name)) for name in ("token:0", "token:1"))
    for number in range(comparisons.MAX_ANSWERS):
        refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[: 200 + number], seed=1, asker=who)
    again = Home.open(place(home.path))
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "pack", lambda *_: pytest.fail("the rows were read"))
        said = set()
        for ids in (INSIDE, OUTSIDE):
            text, details = refusal(InputError, bring, again, tmp_path, "probe", ids[:300], seed=2, asker=who)
            said.add(text)
            assert details["again"] > entries(home)[0]["time"]
        assert len(said) == 1
    assert len(entries(home)) == comparisons.MAX_ANSWERS
    refusal(NameTaken, bring, again, tmp_path, "probe", INSIDE[:300], seed=2, asker=other)
    bring(again, tmp_path, "others", OUTSIDE[:300], seed=2, asker=other)  # nobody is kept from registering people
    monkeypatch.setattr(comparisons, "SPAN", comparisons.timedelta(seconds=-5))  # as if an hour had gone
    with pytest.raises(NameTaken):
        bring(again, tmp_path, "probe", INSIDE[:300], seed=2, asker=who)


def test_who_holds_the_keys_is_not_counted_and_leaves_entries_all_the_same(home, tmp_path):
    """They can read every row: five refused copies of a steward at the command line lock nothing."""
    holder = Asker("cli:ana", access_of(home.ledger, "cli:ana", operator=True))
    for number in range(comparisons.MAX_ANSWERS + 1):
        refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[: 200 + number], seed=1, asker=holder)
    assert len(entries(home)) == comparisons.MAX_ANSWERS + 1
    bring(home, tmp_path, "others", OUTSIDE[:300], seed=2, asker=holder)
    grants.add(home.ledger, [Grant("cli:ana", "steward", "dataset", "clinic")], "admin")
    restricted = Asker("cli:ana", access_of(home.ledger, "cli:ana", operator=True))
    refusal(InputError, bring, home, tmp_path, "probe", INSIDE[:300], seed=1, asker=restricted)


def test_answers_of_when_the_clock_was_ahead_do_not_count(home, tmp_path, monkeypatch):
    who = Asker("token:0", access_of(home.ledger, "token:0"))
    real = comparisons.datetime

    class Ago(real):
        """An hour and more before the entries were written, as after a clock was put right."""

        @classmethod
        def now(cls, zone):
            return real.now(zone) - comparisons.timedelta(hours=5)

    for number in range(comparisons.MAX_ANSWERS):
        refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[: 200 + number], seed=1, asker=who)
    refusal(InputError, bring, home, tmp_path, "probe", INSIDE[:300], seed=1, asker=who)
    monkeypatch.setattr(comparisons, "datetime", Ago)
    refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[:300], seed=1, asker=who)


def test_what_can_be_refused_without_rows_is_refused_before_any_is_read(home, tmp_path, monkeypatch):
    """A family's name that is taken made every miss fail, and so told without a registration."""
    monkeypatch.setattr(datasets, "pack", lambda *_: pytest.fail("the rows were read"))
    said = [
        refusal(NameTaken, bring, home, tmp_path, "probe", ids[:500], family_name="clinic") for ids in (INSIDE, OUTSIDE)
    ]
    assert said[0] == said[1]
    assert entries(home) == []


def test_a_miss_that_fails_afterwards_leaves_an_entry_too(home, tmp_path, monkeypatch):
    """The family's name is taken by another registration after the look at rows, for instance."""

    def taken(*_):
        raise NameTaken("family=x: is another family's name")

    monkeypatch.setattr(type(home.ledger), "register", taken)
    refusal(NameTaken, bring, home, tmp_path, "probe", OUTSIDE[:500])
    (entry,) = entries(home)
    assert entry["concerns"] == []
    assert audit_home(home).ok


def test_a_dataset_that_is_not_granted_is_not_named(home, tmp_path):
    tokens.create(home.ledger, "intern", [], "ab" * 32, principal="intern")
    bring(home, tmp_path, "theirs", OUTSIDE[:500], seed=4)
    grants.add(home.ledger, [Grant("intern", "steward", "dataset", "theirs")], "admin")
    who = Asker("intern", access_of(home.ledger, "intern"))
    said, details = refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE[:500], seed=1, asker=who)
    assert "clinic" not in said
    assert "in a dataset that you may not see" in said
    assert details == {}
    said, details = refusal(NameTaken, bring, home, tmp_path, "probe", OUTSIDE[:500], seed=1, asker=who)
    assert details["dataset"] == "theirs"
    assert [entry["concerns"] for entry in entries(home)] == [["clinic"], ["theirs"]]
    assert {entry["by"] for entry in entries(home)} == {"intern"}
    same, details = refusal(NameTaken, bring, home, tmp_path, "probe", INSIDE, asker=who)  # the very same rows
    assert "clinic" not in same
    (home.datasets / home.ledger.dataset("clinic").registration.commitment / "sketch.npz").unlink()
    lost, details = refusal(InputError, bring, home, tmp_path, "probe", INSIDE[:600], seed=1, asker=who)
    assert "clinic" not in f"{lost} {details}"


def test_drafts_tell_no_more_and_say_whose_they_were(home):
    drafts, said = Drafts(home.path), []
    for ids in (INSIDE[:1], OUTSIDE[:1], INSIDE[:300]):
        raw = ("ssn,bmi,sick\n" + "".join(f"{name},{20 + at % 9},no\n" for at, name in enumerate(ids))).encode()
        draft = drafts.append(drafts.begin("token:intern", "p.csv", len(raw), 10**6), 0, raw)
        work(home, drafts)
        drafts.check(drafts.get(draft.id, "token:intern"), SCHEMA, [])
        work(home, drafts)
        asked = {"name": "probe", "epsilon": "1", "delta": "1e-6", "unit": "ssn", "contributions": 1, "family": []}
        asked["as_read"] = True
        drafts.register(drafts.get(draft.id, "token:intern"), asked)
        work(home, drafts)
        draft = drafts.get(draft.id, "token:intern")
        said.append(draft.refusal)
        drafts.delete(draft)
    assert said[0] == said[1]
    assert said[0]["code"] == "bad_input"
    assert "a dataset that you may not see" in said[2]["message"]
    (entry,) = entries(home)
    assert entry["by"] == "token:intern"


def work(home, drafts) -> None:
    for draft in drafts.all():
        if draft.state in steps.AT_WORK:
            steps.step(home, drafts, draft)


# ---- ids at every door -----------------------------------------------------------------------------------------------

NOBODY = ["unknown", " N.A. ", "\u200b", "\u2003 ", "--"]


@pytest.mark.parametrize("word", NOBODY)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_placeholder_is_refused_at_every_door(home, tmp_path, word, suffix):
    """By registration, as a block, and as a draft; with the place of the first, and never as it stands."""
    table = rows_of([*OUTSIDE[:200], word, word], seed=6)
    path = tmp_path / f"rows{suffix}"
    (pyarrow.csv.write_csv if suffix == ".csv" else pq.write_table)(table, path)
    how = TOTAL, Relation.ADD_REMOVE, "ssn", 1
    for call in (
        lambda: register(home, "probe", path, tmp_path / "schema.yaml", *how),
        lambda: append(home, "clinic", path, "steward", 2000),
    ):
        said, _ = refusal(DataError, call)
        assert "missing in 2 of the rows, the first of them row 201 " in said
    drafts, raw = Drafts(home.path), path.read_bytes()
    draft = drafts.append(drafts.begin("token:intern", f"p{suffix}", len(raw), 10**6), 0, raw)
    work(home, drafts)
    drafts.check(drafts.get(draft.id, "token:intern"), SCHEMA, [])
    work(home, drafts)
    asked = {"name": "probe", "epsilon": "1", "delta": "1e-6", "unit": "ssn", "contributions": 1, "family": []}
    drafts.register(drafts.get(draft.id, "token:intern"), asked)
    work(home, drafts)
    assert "missing in 2 of the rows" in drafts.get(draft.id, "token:intern").refusal["message"]
    assert entries(home) == []


def test_what_is_said_of_ids_stands_in_the_entry_of_a_dataset_and_of_a_block(home, tmp_path):
    ids = [*OUTSIDE[:200], *["everybody"] * 40, "Ada", "ada"]
    for said, asks in (((), "--one-person"), (("one-person",), "--distinct-ids")):
        text, details = refusal(InputError, bring, home, tmp_path, "probe", ids, said_ids=said)
        assert details["answers"] == [asks]
        assert "everybody" not in text
    bring(home, tmp_path, "probe", ids, said_ids=("distinct-ids", "one-person"))
    assert json.loads(bodies(home.path)[-1])["ids"] == ["distinct-ids", "one-person"]
    pq.write_table(rows_of([*OUTSIDE[300:500], "Ada", "ada"], seed=8), tmp_path / "rows.parquet")
    refusal(InputError, append, home, "probe", tmp_path / "rows.parquet", "steward", 2000)
    append(home, "probe", tmp_path / "rows.parquet", "steward", 2000, said_ids=("distinct-ids",))
    assert json.loads(bodies(home.path)[-1])["ids"] == ["distinct-ids"]
    assert audit_home(home).problems == ()


@pytest.mark.parametrize(
    "change",
    [
        str.upper, lambda name: f"{name} ", lambda name: f"\u200b{name}", lambda name: f"'{name}",
        lambda name: f'="{name}"', lambda name: name.translate({48 + k: 0xFF10 + k for k in range(10)}),
    ],
)  # fmt: skip
def test_the_same_people_in_another_spelling_are_found_in_other_rows(home, tmp_path, change):
    bring(home, tmp_path, "friends", [f"ada{name}" for name in OUTSIDE[:400]], seed=1)
    others = [change(f"ada{name}") for name in OUTSIDE[:400]]
    assert refusal(NameTaken, bring, home, tmp_path, "probe", others, seed=2)[1]["dataset"] == "friends"
