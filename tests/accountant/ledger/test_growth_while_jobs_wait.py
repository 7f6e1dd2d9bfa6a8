"""A dataset grows while jobs wait, run, are cancelled and resumed: each is charged to the blocks that it was reserved
on, and a home that an earlier version left wrong is repaired.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import UNJUDGED, advance, hexes, place, plan, registration, request, reserve, unjudged

from accountant.audit.audit import audit_home
from accountant.audit.repair import repair
from accountant.errors import BudgetRefused, EntryRefused
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.evaluations import enter
from accountant.ledger.families import block_rows, family_rows
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.records import HOLDOUT, Job, charged_window
from accountant.ledger.job_rows import resume
from dpserve_verify.audit.replay import Replay
from dpserve_verify.audit.tree_of_entries import Findings
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy import filter as filters
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


# ---- homes that an earlier version left wrong -----------------------------------------------------------------------


def load_by_every_block(connection, entry, analyst=None, signed=None):
    """As the earlier version read an entry without a window: by every block that is there now."""
    stored = entry.value
    window = stored.get("window")
    return block_rows.load(
        connection, stored["dataset"], analyst, stored.get("part"), signed, window and (window[0], window[1])
    )


def price_to_json_below_zero(price, orders):
    spelled = filters.nano_string
    rdp = {str(order): spelled(figure) for order, figure in zip(orders, price.rdp, strict=True)}
    return {"pure": spelled(price.pure), "unbounded": price.unbounded, "rdp": rdp}


@pytest.fixture
def earlier(monkeypatch):
    """The fault of the earlier version, for as long as the context lasts."""

    class Earlier:
        def __enter__(self):
            family_rows.spelt.cache_clear()
            monkeypatch.setattr(*UNJUDGED)
            monkeypatch.setattr(block_rows, "load_charged", load_by_every_block)
            monkeypatch.setattr(family_rows, "price_to_json", price_to_json_below_zero)

        def __exit__(self, *_):
            monkeypatch.undo()
            family_rows.spelt.cache_clear()

    return Earlier()


def test_a_cancelled_job_left_sums_below_zero(home, earlier):
    job = ask(home)
    append(home)
    with earlier:
        home.ledger.release(job.seq)
    with pytest.raises(LedgerInvalid, match="dpserve home repair"):
        sums(home)
    problems = audit_home(home).problems
    assert any("job" in each and "dpserve home repair" in each for each in problems)
    assert repair(home, "a fault of before", "operator") == [
        "entry 5: puts right the sums of entries 4; reason: a fault of before"
    ]
    assert sums(home) == [("0.0", "0.0"), ("0.0", "0.0")]
    assert len(require_sound(home)) == 1
    advance(home.ledger, ask(home, "1-2").seq, "issued")  # and everything goes on, by the same analyst
    assert sums(home) == [("0.9", "0.0"), ("0.9", "0.0")]
    require_sound(home)
    with pytest.raises(InputError, match="nothing is to be repaired"):
        repair(home, "again", "operator")


def test_a_job_that_read_a_block_it_was_not_charged_to_is_charged_to_it(home, earlier):
    """Another job waits for block 2, so that no sum falls below zero: the entries alone tell it."""
    job = ask(home)
    append(home)
    other = ask(home, "2", by="bob")
    with earlier:
        advance(home.ledger, job.seq, "committed")
    assert not audit_home(home).ok
    with pytest.raises(LedgerInvalid, match=r"job 2: .* certificate"):
        home.ledger.issue(job.seq, hexes("statement"), hexes("model"))
    notes = repair(home, "a fault of before", "operator")
    assert any("job 2 read block 2 of visits, and is charged to it now" in note for note in notes)
    assert sums(home) == [("0.9", "0.0"), ("1.8", "0.9")]
    with pytest.raises(BudgetRefused):
        ask(home, "2")
    with pytest.raises(LedgerInvalid, match=r"job 2: .* certificate"):
        home.ledger.issue(job.seq, hexes("statement"), hexes("model"))
    advance(home.ledger, other.seq, "issued")
    require_sound(home)


def test_what_was_read_beyond_a_closed_total_is_said(home, earlier):
    """Block 2's whole total was taken by one job, and another that went on has read it: 1.9 of a promised 1."""
    home.ledger.change_budget("visits", Decimal(1), "a test", "steward")
    job = ask(home)
    home.ledger.start(job.seq, "a:1:1", 60.0)
    append(home)
    advance(home.ledger, reserve(home.ledger, replace(request("visits", "1", "0"), blocks="2"), whole()).seq, "issued")
    (holding,) = home.ledger.leases()
    with earlier:
        resume_as_earlier(home, holding)
    home.ledger.commit(job.seq, hexes("released"))
    assert not audit_home(home).ok
    notes = repair(home, "a fault of before", "operator")
    assert any("more than its total of 1" in note for note in notes)
    family = home.ledger.dataset("visits", blocks="2").families[0]
    assert family.epsilon_of(family.used) > Decimal("1.8")
    assert any("more than its total" in note for note in require_sound(home))


def test_a_waiting_profile_of_the_part_kept_aside(home, earlier):
    job = ask(home, part=HOLDOUT)
    append(home)
    with earlier:
        advance(home.ledger, job.seq, "committed")
    with pytest.raises(LedgerInvalid, match="certificate"):
        enter(home.ledger.log, job.seq, hexes("s"), home.keys.key("issuer").keyid)
    repair(home, "a fault of before", "operator")
    assert sums(home, HOLDOUT) == [("0.9", "0.0"), ("0.9", "0.0")]
    assert sums(home) == [("0.0", "0.0"), ("0.0", "0.0")]
    require_sound(home)


def test_nothing_else_is_repaired(home, earlier):
    """A wrong sum that the fault does not explain stays a finding, and an entry that repairs too little is refused."""
    job = ask(home)
    append(home)
    with unjudged(), home.ledger.log.writing() as writer:
        writer.append("started", reservation=job.seq, after=[])
    with pytest.raises(LedgerInvalid, match="nothing that can be repaired"):
        repair(home, "a fault of before", "operator")


@pytest.mark.parametrize(
    "changes",
    [{"jobs": []}, {"entries": []}, {"analyst": "bob"}, {"reason": " "}, {"jobs": [{"job": 2, "blocks": [1, 1]}]}],
)
def test_a_repair_that_says_less_than_was_done_is_found(home, earlier, changes, monkeypatch):
    job = ask(home)
    append(home)
    with earlier:
        advance(home.ledger, job.seq, "committed")
    from accountant.log.entries import Writer

    real = Writer.append
    monkeypatch.setattr(Writer, "append", lambda self, kind, **fields: real(self, kind, **(fields | changes)))
    with pytest.raises(EntryRefused):
        repair(home, "a fault of before", "operator")
    assert all(entry.value["type"] != "repaired" for entry in home.ledger.log.entries())


def test_a_home_that_died_while_it_was_repaired_is_as_it_was_before(home, earlier, monkeypatch):
    job = ask(home)
    append(home)
    with earlier:
        home.ledger.release(job.seq)
    from accountant.audit import repair as module

    def die(*_):
        raise KeyboardInterrupt

    before = [entry.body for entry in home.ledger.log.entries()]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_set_accounts", die)
        with pytest.raises(KeyboardInterrupt):
            repair(home, "a fault of before", "operator")
    assert [entry.body for entry in home.ledger.log.entries()] == before
    repair(home, "a fault of before", "operator")
    require_sound(home)


def whole():
    """A plan whose price exceeds the filter beside any other, and claims the whole."""
    return plan(PureDp(Decimal("0.1")), 10)


def resume_as_earlier(home: Home, holding) -> None:
    """As the earlier version wrote it: without the blocks."""
    from accountant.log.entries import Writer

    real = Writer.append

    def bare(self, kind, **fields):
        fields.pop("window", None)
        return real(self, kind, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*UNJUDGED)
        patch.setattr(Writer, "append", bare)
        resume(home.ledger.log, holding, "b:2:2", 60.0)


def test_json_of_a_repair(home, earlier):
    job = ask(home)
    append(home)
    with earlier:
        advance(home.ledger, job.seq, "committed")
    repair(home, "why", "operator")
    entry = home.ledger.log.entries()[-1].value
    assert entry["jobs"] == [{"job": job.seq, "blocks": [1, 2]}]
    assert (entry["analyst"], entry["by"], entry["reason"]) == ("ana", "operator", "why")
    assert json.loads(json.dumps(entry["after"])) == entry["after"]


def test_what_was_reserved_on_wrong_sums_is_put_right_too(home, earlier):
    """Sums of block 2 were too small, and not below zero: the next job on it went by them, ran, and was certified."""
    job = ask(home)
    append(home)
    other = ask(home, "2", by="bob")
    with earlier:
        advance(home.ledger, job.seq, "committed")
        later = reserve(home.ledger, replace(request("visits", "1", "0"), blocks="2"), plan(PureDp(Decimal("0.1")), 1))
        advance(home.ledger, later.seq, "issued")
    assert not audit_home(home).ok
    repair(home, "a fault of before", "operator")
    assert sums(home) == [("0.9", "0.0"), ("1.9", "0.9")]
    advance(home.ledger, other.seq, "issued")
    require_sound(home)


def test_a_repair_forgives_the_sums_of_an_entry_and_nothing_else_about_it(home, earlier):
    job = ask(home)
    append(home)
    with earlier:
        home.ledger.release(job.seq)
    wrong = home.ledger.log.size() - 1
    repair(home, "a fault of before", "operator")
    findings, replay = Findings(), Replay(home.trust)
    findings.add(wrong, "checkpoint: is not of these entries")
    for seq, body in [(entry.seq, entry.body) for entry in home.ledger.log.entries()]:
        try:
            replay.read(seq, body)
        except LedgerInvalid as error:
            findings.add(seq, error.message)
    findings.forgive(replay.repairs.repaired)
    assert findings.found == [(wrong, "checkpoint: is not of these entries")]
