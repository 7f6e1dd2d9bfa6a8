"""A registration that nothing was spent on can be withdrawn; nothing else can, and nothing passes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import TOTAL, advance, hexes, place, plan, registration, request, reserve
from sqlalchemy import insert, select

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.errors import UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import archive, block_appending, evaluations, schedules
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.comparisons import REGISTER, Comparison, require_answers_left
from accountant.ledger.families.job_kinds import TRAINING, Contribution, Profile
from accountant.ledger.families.records import OWNER, Unit, Why
from accountant.ledger.withdrawal import withdraw
from accountant.store.tables import dataset_table, family_table
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import PureDp

WHY = Why("steward", "the schema was wrong")
PEOPLE = Unit("person", "name")


@pytest.fixture
def home(begun) -> Home:
    """`adult` is registered; beside it `other`."""
    opened = begun(registration())
    opened.ledger.register(
        registration("other", unit=PEOPLE, person=Budget.of("9", "0.000001"), holdout=Decimal("0.2"))
    )
    return opened


def problems(home: Home) -> list[str]:
    return [*audit_home(Home.open(place(home.path))).problems]


def test_a_withdrawn_name_its_rows_and_its_family_are_free_again_with_the_whole_total(home):
    for name in ("adult", "other"):
        before = home.ledger.dataset(name)
        withdraw(home.ledger, name, WHY)
        with pytest.raises(UnknownName):
            home.ledger.dataset(name)
        assert problems(home) == []
        again = replace(before.registration, budget=Budget.of("2", "0.000001"), person=None, holdout=None)
        home.ledger.register(again)  # the very same rows: nothing was learnt of them
        assert home.ledger.dataset(name).budget.epsilon == 2
        assert home.ledger.dataset(name).uuid != before.uuid
    advance(home.ledger, reserve(home.ledger).seq, "issued")
    assert problems(home) == []
    with pytest.raises(WrongState, match="has started"):
        withdraw(home.ledger, "adult", WHY)


def test_a_copy_in_a_family_is_withdrawn_alone_and_what_its_family_spent_stays(home):
    home.ledger.register(registration("first", Budget.of("1"), unit=PEOPLE))
    home.ledger.register(registration("copy", None, unit=PEOPLE, families=("first",)))
    with pytest.raises(WrongState, match="dataset copy was registered in its family since; withdraw that first"):
        withdraw(home.ledger, "first", WHY)
    reserve(home.ledger, request("first", "0.5", "0"))
    used = home.ledger.dataset("first").families[0].used
    withdraw(home.ledger, "copy", WHY)
    assert home.ledger.dataset("first").families[0].used == used
    with pytest.raises(WrongState, match="was reserved on it"):
        withdraw(home.ledger, "first", WHY)
    assert problems(home) == []


@pytest.mark.parametrize("state", ["reserved", "started", "committed", "burned", "issued"])
@pytest.mark.parametrize("part", [None, "holdout"])
def test_what_anything_was_charged_on_cannot_be_withdrawn(home, state, part):
    asked = request("other")
    if part is not None:  # what is kept aside is for profiles and evaluations alone
        asked = replace(asked, part=part, kind=Profile(), model="", learner="profile")
    job = reserve(home.ledger, asked)
    if part is not None and state == "issued":
        advance(home.ledger, job.seq, "committed")
        evaluations.enter(home.ledger.log, job.seq, hexes("statement"), home.keys.signer("issuer").public_key.keyid)
    else:
        advance(home.ledger, job.seq, state)
    size = home.ledger.log.size()
    with pytest.raises(WrongState, match="cannot be withdrawn: job"):
        withdraw(home.ledger, "other", WHY)
    assert home.ledger.log.size() == size


def test_a_reservation_that_was_given_back_unspent_stands_in_nobodys_way(home):
    job = reserve(home.ledger, request("other"))
    home.ledger.set_quota("other", "*", Decimal("0.5"), "few", "steward")
    home.ledger.change_budget("other", Decimal(2), "less", "steward")
    home.ledger.release(job.seq)
    withdraw(home.ledger, "other", WHY)
    home.ledger.register(registration("other", unit=PEOPLE))
    assert home.ledger.quotas("other") == []  # a quota was of the family that is no more
    assert home.ledger.dataset("other").budget == TOTAL
    assert problems(home) == []


def give(home, **on):
    ((kind, name),) = on.items()
    return grants.add(home.ledger, [Grant("cli:alice", "train", kind, name)], "steward")[0].index


def enter_schedule(home):
    asked = {"dataset": "other", "epsilon": "0.1"}
    with home.ledger.log.writing() as writer:
        schedules.enter(writer, schedules.Schedule("weekly", "week", 0, "cli:alice", asked))


def end_schedule(home, _):
    with home.ledger.log.writing() as writer:
        schedules.remove(writer, "weekly", "steward")


def end_grant(home, index):
    grants.revoke(home.ledger, index, WHY)


# What would pass to another dataset of that name, what is said of it, and what ends it.
STANDING = {
    "a grant": (lambda home: give(home, dataset="other"), "grant .* of cli:alice is on it", end_grant),
    "a grant on its family": (lambda home: give(home, family="other"), "dpserve grant revoke", end_grant),
    "a schedule": (enter_schedule, "schedule weekly is on it; dpserve schedule remove weekly", end_schedule),
}


@pytest.mark.parametrize("what", STANDING)
def test_what_would_pass_on_to_another_of_that_name_must_end_first(home, what):
    begin, said, end = STANDING[what]
    index = begin(home)
    with pytest.raises(WrongState, match=said):
        withdraw(home.ledger, "other", WHY)
    end(home, index)
    withdraw(home.ledger, "other", WHY)
    assert problems(home) == []


def test_a_dataset_that_grew_and_rows_that_owners_keep_are_not_withdrawn(begun):
    home = begun(registration("grows", unit=PEOPLE))
    block = NewBlock("grows", hexes("more"), 10, "steward")
    block_appending.append(home.ledger.log, block, 2)
    home.ledger.register(registration("wards", Budget.of("2"), relation=Relation.REPLACE_ONE, unit=OWNER))
    for name, said in (("grows", "has grown by block 2; retire it"), ("wards", "rows stay with their owners")):
        with pytest.raises(WrongState, match=said):
            withdraw(home.ledger, name, WHY)


def test_rows_that_were_deleted_keep_no_registration_from_being_withdrawn(home):
    """Nothing was spent on them; the next dataset of the name has every row of its first block again."""
    block_appending.drop(home.ledger.log, "other", 1, WHY)
    withdraw(home.ledger, "other", WHY)
    assert problems(home) == []
    home.ledger.register(registration("other", Budget.of("2")))
    reserve(home.ledger, request("other", "0.5", "0"), plan(PureDp(Decimal("0.1")), 2))
    assert home.ledger.dataset("other").dropped == 0
    assert problems(home) == []


def test_what_was_planned_on_a_registration_is_reserved_on_no_other(home):
    """It was withdrawn meanwhile, and another took its name: by the words of a request the two look alike."""
    planned = replace(request(), registered=home.ledger.dataset("adult").seq)
    withdraw(home.ledger, "adult", WHY)
    with pytest.raises(UnknownName):
        reserve(home.ledger, planned)
    home.ledger.register(registration(schema=hexes("mended")))
    size = home.ledger.log.size()
    with pytest.raises(WrongState, match="another registered by that name, while the job was planned; ask again"):
        reserve(home.ledger, planned)
    assert home.ledger.log.size() == size
    again = replace(planned, registered=home.ledger.dataset("adult").seq)
    assert again.digest == planned.digest  # no part of what was asked
    reserve(home.ledger, again)
    assert problems(home) == []


def test_no_job_of_any_kind_asks_for_more_delta_than_its_dataset_has(home):
    """The ledger holds it against the rows, whatever a planner did."""
    size = home.ledger.log.size()
    for kind, model in ((TRAINING, "adult"), (Profile(), ""), (Contribution(hexes("campaign")), "")):
        asked = replace(request(delta="0.000002"), kind=kind, model=model)
        with pytest.raises(InputError, match="delta=0.000002: dataset adult has 0.000001 in all"):
            reserve(home.ledger, asked)
        reserve(home.ledger, replace(asked, budget=Budget.of("0.5", "0.000001")))
    assert home.ledger.log.size() == size + 3
    assert problems(home) == []


def test_withdrawals_count_as_answers_about_who_is_registered(home):
    """Register and withdraw would else ask about anybody's people any number of times."""
    for number in range(5):
        home.ledger.register(registration(f"asks-{number}", Budget.of("1")))
        withdraw(home.ledger, f"asks-{number}", WHY)
    with pytest.raises(InputError, match="Come back after"):
        require_answers_left(home.ledger, Comparison(REGISTER, "next", "steward"))
    with pytest.raises(InputError, match="Come back after"):
        withdraw(home.ledger, "adult", WHY)
    assert home.ledger.dataset("adult").version == 1
    require_answers_left(home.ledger, Comparison(REGISTER, "next", "another"))
    withdraw(home.ledger, "adult", WHY, holds_keys=True)  # who can read the rows is told nothing


def test_an_archive_passes_on_to_nobody(home):
    archive.archive(home.ledger, "dataset", "adult", WHY)
    withdraw(home.ledger, "adult", WHY)
    home.ledger.register(registration())
    assert archive.archived(home.ledger, "dataset") == frozenset()
    archive.archive(home.ledger, "dataset", "adult", WHY)
    assert problems(home) == []


def test_rows_of_the_index_that_are_put_back_are_no_registration(home):
    """Who holds the database may write its rows anew: with those of the withdrawn, one person would have two totals."""
    tables = (dataset_table, family_table)
    with home.ledger.log.database.reading() as connection:
        before = [(table, row._asdict()) for table in tables for row in connection.execute(select(table))]
    withdraw(home.ledger, "adult", WHY)
    with home.ledger.log.database.writing() as connection:
        for table, row in before:
            if "adult" in (row.get("name"),) or (
                table is family_table and not connection.execute(select(table).where(table.c.id == row["id"])).first()
            ):
                connection.execute(insert(table).values(**row))
    with pytest.raises(LedgerInvalid, match="somebody else wrote it"):
        reserve(home.ledger)
    assert any("index: dataset adult" in problem for problem in problems(home))


@pytest.mark.parametrize("order", [0, 1])
def test_a_withdrawal_and_a_reservation_at_one_moment_are_one_after_the_other(home, order):
    """Never both: either the job is charged and the dataset stays, or there is no such dataset."""

    def run(what):
        try:
            return what()
        except DpserveError as error:
            return error

    acts = [lambda: withdraw(home.ledger, "adult", WHY), lambda: reserve(home.ledger)]
    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(run, acts[::-1] if order else acts)]
    withdrawn, reserved = ends[::-1] if order else ends
    assert isinstance(withdrawn, WrongState) != isinstance(reserved, UnknownName)
    assert problems(home) == []


def test_a_retired_dataset_takes_no_job_schedule_or_block_until_it_is_taken_up_again(home):
    waiting = reserve(home.ledger)
    archive.archive(home.ledger, "dataset", "adult", WHY)
    archive.archive(home.ledger, "dataset", "other", WHY)
    size = home.ledger.log.size()
    block = NewBlock("other", hexes("more"), 10, "steward")
    for act in (
        lambda: reserve(home.ledger),
        lambda: enter_schedule(home),
        lambda: block_appending.append(home.ledger.log, block, 2),
        lambda: archive.require_open(home.ledger, "adult"),
    ):
        with pytest.raises(WrongState, match="is retired, and takes no further job, schedule or block"):
            act()
    assert home.ledger.log.size() == size
    advance(home.ledger, waiting.seq, "issued")  # it was charged before
    for name in ("adult", "other"):
        archive.archive(home.ledger, "dataset", name, WHY, ends=True)
    reserve(home.ledger)
    enter_schedule(home)
    block_appending.append(home.ledger.log, block, 2)
    assert problems(home) == []
