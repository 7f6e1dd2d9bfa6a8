"""A dataset grows while jobs wait, run, are cancelled and resumed: each is charged to what it was reserved on."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import advance, hexes, place, plan, registration, request, reserve

from accountant.audit.audit import audit_home
from accountant.errors import EntryRefused
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families import block_rows, family_rows
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.records import HOLDOUT, Job, charged_window
from accountant.ledger.job_rows import resume
from accountant.log.entries import Writer
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import PureDp

ONE = plan(PureDp(Decimal("0.1")), 9)  # epsilon .9 of a total of 2


@pytest.fixture
def home(tmp_path, ledger_url) -> Home:
    home = Home.init(place(tmp_path / "home") | {"DPSERVE_LEDGER_URL": ledger_url})
    home.ledger.register(registration("visits", Budget.of("2"), holdout=Decimal("0.4")))
    return home


def append(home: Home) -> int:
    number = (home.ledger.dataset("visits").last or 1) + 1
    block_appending.append(home.ledger.log, NewBlock("visits", hexes(f"visits {number}"), 1000, "steward"), number)
    return number


def ask(home: Home, blocks: str | None = None, by: str = "ana", part: str | None = None, **more) -> Job:
    asked = replace(request("visits", "1", "0"), blocks=blocks, part=part)
    if part is not None:
        asked = replace(asked, kind=Profile(), model="", learner="profile")
    return reserve(home.ledger, asked, ONE, by=by, **more)


def sums(home: Home, part: str | None = None) -> list[tuple[str, str]]:
    """Of each block: what was used, and what of it has not begun."""
    families = home.ledger.dataset("visits", None, part, "all").families
    return [(f"{each.epsilon_of(each.used):.1f}", f"{each.epsilon_of(each.reserved):.1f}") for each in families]


def require_sound(home: Home) -> tuple[str, ...]:
    report = audit_home(home)
    assert report.ok, report.problems
    return report.notes


@pytest.mark.parametrize("part", [None, HOLDOUT])
@pytest.mark.parametrize("then", ["started", "committed", "burned", "released"])
def test_a_job_from_before_the_growth_steps_by_the_account_of_block_1_alone(home, part, then):
    job = ask(home, part=part)
    append(home)
    append(home)
    advance(home.ledger, job.seq, then)
    first = ("0.0", "0.0") if then == "released" else ("0.9", "0.0")
    assert sums(home, part) == [first, ("0.0", "0.0"), ("0.0", "0.0")]
    stepped = next(entry for entry in home.ledger.log.entries(job.seq + 1) if "reservation" in entry.value)
    assert [line.get("also", []) for line in stepped.value["after"]] == [[]]
    require_sound(home)


def test_a_started_job_reads_the_rows_of_block_1_alone_and_so_does_one_that_goes_on(home):
    job = ask(home)
    append(home)
    started = home.ledger.start(job.seq, "a:1:1", 60.0)
    assert started.dataset.commitments == (hexes("visits"),)
    append(home)
    (holding,) = home.ledger.leases()
    again = resume(home.ledger.log, holding, "b:2:2", 60.0)
    assert again.dataset.commitments == (hexes("visits"),)
    assert home.ledger.log.entries()[-1].value["window"] == [1, 1]
    assert home.ledger.dataset_of(job.seq).commitments == (hexes("visits"),)
    require_sound(home)


@pytest.mark.parametrize("words", ["all", "last:12", "1"])
@pytest.mark.parametrize("grows", [False, True])
def test_a_job_that_named_blocks_before_the_first_growth_goes_on(home, words, grows):
    job = ask(home, words)
    home.ledger.start(job.seq, "a:1:1", 60.0)
    if grows:
        append(home)
    (holding,) = home.ledger.leases()
    assert resume(home.ledger.log, holding, "b:2:2", 60.0).dataset.commitments == (hexes("visits"),)
    assert home.ledger.log.entries()[-1].value["window"] == [1, 1]
    require_sound(home)


def test_every_entry_says_what_it_is_charged_to():
    """The type has no value that means "whatever there is now"."""
    assert charged_window({}) == (1, 1)
    assert charged_window({"window": [3, 7]}) == (3, 7)


def test_no_sum_is_written_below_zero(home):
    job = ask(home)
    append(home)
    dataset = home.ledger.dataset("visits", blocks="2")
    costs = dataset.costs_from_json(home.ledger.reservation(job.seq).value["price"])
    for sign in (-1, 0):
        with pytest.raises(LedgerInvalid, match="below zero"):
            family_rows.after(dataset.families, costs, sign)


def load_by_every_block(connection, entry, analyst=None, signed=None):
    """Read an entry without a window as every block that is there now."""
    stored = entry.value
    window = stored.get("window")
    return block_rows.load(
        connection, stored["dataset"], analyst, stored.get("part"), signed, window and (window[0], window[1])
    )


@pytest.mark.parametrize("part", [None, HOLDOUT])
def test_a_step_by_the_accounts_of_every_block_is_not_written(home, part, monkeypatch):
    """Block 2 has sums of another job, so that none falls below zero: the auditor's rule alone tells it."""
    job = ask(home, part=part)
    append(home)
    ask(home, "2", part=part)
    before = home.ledger.log.size()
    with monkeypatch.context() as patch:
        patch.setattr(block_rows, "load_charged", load_by_every_block)
        for step in (lambda: home.ledger.start(job.seq, "a:1:1", 60.0), lambda: home.ledger.release(job.seq)):
            with pytest.raises(EntryRefused, match="after: is not what the entries before it give"):
                step()
    assert home.ledger.log.size() == before
    advance(home.ledger, job.seq, "committed")
    require_sound(home)


def test_a_job_that_goes_on_after_the_growth_says_which_blocks_it_reads(home, monkeypatch):
    job = ask(home)
    home.ledger.start(job.seq, "a:1:1", 60.0)
    append(home)
    (holding,) = home.ledger.leases()
    real = Writer.append
    for window in ({}, {"window": [1, 2]}):

        def say(self, kind, said=window, **fields):
            return real(self, kind, **{name: value for name, value in fields.items() if name != "window"} | said)

        with monkeypatch.context() as patch:
            patch.setattr(Writer, "append", say)
            with pytest.raises(EntryRefused, match=r"window: must be \[1, 1\]"):
                resume(home.ledger.log, holding, "b:2:2", 60.0)
    resume(home.ledger.log, holding, "b:2:2", 60.0)
    require_sound(home)
