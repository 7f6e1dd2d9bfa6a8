"""Where rows name people, whoever grows a dataset gives one person one total over all blocks: the family's, which has
used what block 1 has; more is given by a reasoned entry alone.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import UNJUDGED, advance, hexes, place, plan, raw, registration, request, reserve, unjudged

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.records import HOLDOUT, Job, Unit, Why
from accountant.log.entries import Writer
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import PureDp

WHY = Why("steward", "a test")
HALF = plan(PureDp(Decimal("0.1")), 5)
ONE = plan(PureDp(Decimal("0.1")), 10)


@pytest.fixture
def home(tmp_path, ledger_url) -> Home:
    return begun(place(tmp_path / "home") | {"DPSERVE_LEDGER_URL": ledger_url})


def begun(where: dict[str, str], delta: str = "0") -> Home:
    home = Home.init(where)
    about = registration("v", Budget.of("1", delta), unit=Unit("person", "name"), holdout=Decimal("0.3"))
    home.ledger.register(about)
    return home


def append(home: Home, **more) -> None:
    number = (home.ledger.dataset("v").last or 1) + 1
    block_appending.append(home.ledger.log, NewBlock("v", hexes(f"v{number}"), 1000, "steward", **more), number)


def ask(home: Home, blocks: str | None, what=HALF, by: str = "ana", part: str | None = None, **more) -> Job:
    asked = replace(request("v", "9", "0"), blocks=blocks, part=part)
    asked = replace(asked, kind=Profile(), model="", learner="profile") if part else asked
    return reserve(home.ledger, asked, what, by=by, **more)


def person(home: Home, part: str | None = None) -> tuple[Decimal, Decimal]:
    """Total, and what was used of it."""
    found = home.ledger.dataset("v", None, part, "all").person
    return found.budget.epsilon, found.epsilon_of(found.used)


def require_sound(home: Home) -> tuple[str, ...]:
    report = audit_home(home)
    assert report.ok, report.problems
    return report.notes


def test_the_same_people_get_one_total_however_many_blocks_come(home):
    """Before, b blocks gave them b budgets: 3 of a promised 1 with two appended blocks, and nobody was asked."""
    advance(home.ledger, ask(home, None).seq, "issued")
    waits = ask(home, None, HALF, part=HOLDOUT)
    append(home)
    append(home)
    assert person(home) == (1, Decimal("0.5"))
    assert person(home, HOLDOUT) == (1, Decimal("0.5"))
    advance(home.ledger, ask(home, "2").seq, "issued")
    for blocks in ("1", "2", "3", "all"):
        with pytest.raises(BudgetRefused, match="one person over all its blocks"):
            ask(home, blocks, plan(PureDp(Decimal("0.1")), 1))
    home.ledger.release(waits.seq)
    assert person(home, HOLDOUT) == (1, 0)
    entries = [entry.value["type"] for entry in home.ledger.log.entries()]
    assert entries.count("person-total") == 1
    assert entries.index("person-total") == entries.index("dataset-appended") - 1
    assert require_sound(home) == ()


def test_renyi_sums_are_carried_too(tmp_path):
    home = begun(place(tmp_path / "home"), "0.000001")
    job = reserve(home.ledger, replace(request("v", "9", "0.000001")), plan(count=10), by="ana")
    append(home)
    dataset = home.ledger.dataset("v", None, None, "1")
    assert dataset.person.used == dataset.own[0].used
    assert dataset.person.used.rdp != dataset.person.filter.nothing().rdp
    home.ledger.release(job.seq)
    assert home.ledger.dataset("v", None, None, "1").person.used == dataset.person.filter.nothing()
    require_sound(home)


def test_more_is_given_with_a_reason_before_and_after(home):
    advance(home.ledger, ask(home, None, ONE).seq, "committed")
    with pytest.raises(InputError, match="say why"):
        append(home, person=Decimal(2))
    with pytest.raises(InputError, match="at least the total of a block"):
        append(home, person=Decimal("0.5"), why=WHY)
    append(home, person=Decimal(2), why=WHY)
    advance(home.ledger, ask(home, "2", HALF).seq, "committed")
    assert person(home) == (2, Decimal("1.5"))
    home.ledger.change_person_total("v", Decimal(3), "another test", "steward")
    assert person(home) == (3, Decimal("1.5"))
    home.ledger.change_person_total("v", Decimal("1.2"), "back", "steward")
    with pytest.raises(BudgetRefused, match="one person"):
        ask(home, "2", plan(PureDp(Decimal("0.1")), 1))
    assert home.ledger.dataset("v", None, None, "2").person.largest == 3
    reasons = [
        entry.value.get("reason") for entry in home.ledger.log.entries() if entry.value["type"] == "person-total"
    ]
    assert reasons == ["a test", "another test", "back"]
    require_sound(home)


def test_what_an_analyst_used_before_counts_in_the_quota_of_one_person(home):
    home.ledger.set_quota("v", "ana", Decimal("0.6"), "a test", "steward")
    ask(home, None)
    append(home)
    with pytest.raises(BudgetRefused) as refused:
        ask(home, "2", plan(PureDp(Decimal("0.1")), 2))
    assert (refused.value.details["reason"], refused.value.details["person"]) == ("quota", True)
    ask(home, "2", plan(PureDp(Decimal("0.1")), 2), by="bob")
    require_sound(home)


def test_a_job_that_took_the_whole_of_block_1_closes_the_total_for_one_person(tmp_path):
    home = begun(place(tmp_path / "home"), "0.000001")
    asked = replace(request("v", "1", "0.000001"))
    job = reserve(home.ledger, asked, plan(count=500), by="ana")
    assert home.ledger.reservation(job.seq).value["whole"] is True
    append(home)
    family = home.ledger.dataset("v", None, None, "2").person
    assert family.epsilon_of(family.used) == family.whole.epsilon <= 1
    with pytest.raises(BudgetRefused, match="one person"):
        reserve(home.ledger, replace(asked, blocks="2"), plan(count=1), by="bob")
    home.ledger.change_person_total("v", Decimal(3), "a test", "steward")
    reserve(home.ledger, replace(asked, blocks="2"), plan(count=1), by="bob")
    advance(home.ledger, job.seq, "committed")
    require_sound(home)


def test_a_whole_that_is_given_back_opens_the_total_again(tmp_path):
    home = begun(place(tmp_path / "home"), "0.000001")
    job = reserve(home.ledger, request("v", "1", "0.000001"), plan(count=500), by="ana")
    append(home)
    home.ledger.release(job.seq)
    assert person(home) == (1, 0)
    reserve(home.ledger, replace(request("v", "1", "0.000001"), blocks="all"), plan(count=3), by="bob")
    require_sound(home)


def test_a_budget_in_each_block_is_a_reasoned_entry_and_the_audit_says_it(home):
    append(home, each_block=WHY)
    with pytest.raises(InputError, match="--each-block --reason"):
        append(home)
    append(home, each_block=WHY)
    for blocks in ("1", "2", "3"):
        ask(home, blocks, ONE)
    notes = require_sound(home)
    assert len(notes) == 2
    assert all("budget of their own" in note and "a test" in note for note in notes)
    with pytest.raises(InputError, match="no total for one person"):
        home.ledger.change_person_total("v", Decimal(3), "a test", "steward")


def test_a_dataset_of_records_needs_nothing(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    home.ledger.register(registration("v", Budget.of("1")))
    append(home)
    assert home.ledger.dataset("v").person is None
    for wrong in ({"person": Decimal(2), "why": WHY}, {"each_block": WHY}):
        with pytest.raises(InputError, match="no column names the people"):
            append(home, **wrong)
    assert require_sound(home) == ()


def test_a_dataset_that_grew_before_this_version_opens_and_says_so(home, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(block_appending, "_bound_people", lambda writer, block: None)
        append(home)
        append(home)
    for blocks in ("1", "2", "3"):
        ask(home, blocks, ONE)
    assert require_sound(home) == ("dataset v: the same people have a budget in each block; no reason is given",)
    with pytest.raises(InputError, match="--each-block --reason"):
        append(home)
    append(home, each_block=WHY)
    require_sound(home)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"carried": [{"used": {"pure": "0", "unbounded": 0, "rdp": {}}}] * 2}, "carried"),
        ({"carried": []}, "carried"),
        ({"budget": {"epsilon": "2", "delta": "0"}}, "reason"),
        ({"budget": {"epsilon": "0.5", "delta": "0"}}, "at least the total of a block"),
        ({"largest": "2"}, "largest"),
        ({"filter": [{"order": "2", "weight": "1", "cap": "9"}]}, "filter"),
        ({"family": "00000000-0000-0000-0000-000000000000"}, "family"),
        ({"reason": "because"}, "by"),
    ],
)
def test_the_audit_finds_a_total_that_carries_less_or_is_more(tmp_path, monkeypatch, changes, told):
    home = begun(place(tmp_path / "home"))
    ask(home, None)
    real = Writer.append

    def forge(self, kind, **fields):
        return real(self, kind, **(fields | changes if kind == "person-total" else fields))

    with monkeypatch.context() as patch:
        patch.setattr(*UNJUDGED)
        patch.setattr(Writer, "append", forge)
        append(home)
    report = audit_home(home)
    assert not report.ok
    assert report.first == 3
    import re

    assert re.search(told, report.problems[0]), report.problems[0]


def test_the_audit_finds_a_total_that_was_founded_too_late(home, monkeypatch):
    append(home, each_block=WHY)
    with unjudged(), home.ledger.log.writing() as writer:
        from accountant.ledger.families import block_rows
        from accountant.ledger.person_totals import found_person_total

        found_person_total(writer, block_rows.load(writer.connection, "v"), Decimal(1), None)
    assert "has grown without a total" in audit_home(home).problems[0]


@pytest.mark.parametrize("part", ["the account", "the sums"])
def test_an_account_that_somebody_removed_is_missed(tmp_path, part):
    home = begun(place(tmp_path / "home"))
    ask(home, None)
    append(home)
    seq = home.ledger.dataset("v").person.seq
    with raw(home.path) as index:
        if part == "the account":
            index.execute("DELETE FROM family WHERE seq = ?", (seq,))
        else:
            nothing = '{"pure":"0","unbounded":0,"rdp":{}}'
            index.execute("UPDATE family SET used = ?, reserved = ? WHERE seq = ?", (nothing, nothing, seq))
    with pytest.raises(LedgerInvalid, match="somebody else wrote it"):
        ask(home, "2")
    assert not audit_home(home).ok


def test_killed_between_the_two_entries_nothing_stands(home, monkeypatch):
    real = Writer.append

    def die(self, kind, **fields):
        if kind == "dataset-appended":
            raise KeyboardInterrupt
        return real(self, kind, **fields)

    size = home.ledger.log.size()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", die)
        with pytest.raises(KeyboardInterrupt):
            append(home)
    assert home.ledger.log.size() == size
    assert home.ledger.dataset("v").person is None
    append(home)
    require_sound(home)


@pytest.mark.parametrize("more", [{}, {"person": Decimal("2"), "why": WHY}])
def test_a_dataset_whose_only_block_was_deleted_grows_with_one_person_s_total(home, more):
    """Nothing was appended to it, so nobody has had a second budget; what block 1 has used is used of the total."""
    advance(home.ledger, ask(home, None).seq, "issued")
    block_appending.drop(home.ledger.log, "v", 1, WHY)
    append(home, **more)
    assert person(home) == (more.get("person", Decimal(1)), Decimal("0.5"))
    require_sound(home)
    with pytest.raises(InputError, match="has a total over all blocks already"):
        append(home, each_block=WHY)
