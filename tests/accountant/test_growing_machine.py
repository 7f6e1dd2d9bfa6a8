"""A dataset grows while jobs, profiles and evaluations wait, run, are cancelled and resumed, in any order: the sums of
every account are those of the jobs that were reserved on it, worked out here from what was asked alone.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families import block_rows
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.records import HOLDOUT, Unit, Why
from accountant.ledger.job_rows import resume
from accountant.privacy.claims import price
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp
from dpserve_verify.privacy.filter import Price

pytestmark = pytest.mark.slow

EVENTS = [PureDp(Decimal("0.05")), BoundedRange(Decimal("0.1")), PureDp(Decimal("0.3")), Gaussian(Decimal(6))]
MOST_BLOCKS = 5
OWNER, LEASE = "owner:1:1", 60.0


@dataclass
class ModelJob:
    """A job as this test knows it: which blocks it is charged to, by what was asked alone."""

    blocks: tuple[int, int]
    part: str | None
    plan: Plan
    state: str = "reserved"


class GrowingMachine(RuleBasedStateMachine):
    """One dataset of persons, of whom some are kept aside; the total for one is declared, or founded as it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dpserve-growing-"))
        self.environment = ledgers.place(self.folder / "home")
        self.home = Home.init(self.environment)
        self.jobs: dict[int, ModelJob] = {}
        self.last, self.dropped = 1, 0

    @initialize(person=st.sampled_from([None, None, "3", "5"]))
    def register(self, person) -> None:
        total = Budget.of("2", "0.000001")
        extra = {} if person is None else {"person": Budget.of(person, "0.000001")}
        unit = Unit("person", "name", 2)
        self.home.ledger.register(ledgers.registration("v", total, unit=unit, holdout=Decimal("0.3"), **extra))
        self.declared = person is not None

    def teardown(self) -> None:
        try:
            self.reopen()
            assert audit_home(self.home).problems == ()
        finally:
            self.home.ledger.log.database.close()
            shutil.rmtree(self.folder)

    # ---- what may happen --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.last < MOST_BLOCKS)
    @rule()
    def append(self) -> None:
        self.last += 1
        block = NewBlock("v", ledgers.hexes(f"v{self.last}"), 1000, "steward")
        block_appending.append(self.home.ledger.log, block, self.last)

    @rule(
        data=st.data(),
        event=st.sampled_from(EVENTS),
        count=st.sampled_from([1, 4, 12]),
        part=st.sampled_from([None, None, HOLDOUT]),
    )
    def reserve(self, data, event, count, part) -> None:
        first = data.draw(st.integers(self.dropped + 1, self.last))
        last = data.draw(st.integers(first, self.last))
        self.reserve_on((first, last), part, ledgers.plan(event, count))

    def reserve_on(self, blocks: tuple[int, int], part: str | None, what: Plan) -> None:
        words = f"{blocks[0]}-{blocks[1]}" if self.last > 1 else None
        asked = replace(ledgers.request("v", "9"), blocks=words, part=part)
        if part is not None:
            asked = replace(asked, kind=Profile(), model="", learner="profile")
        try:
            job = ledgers.reserve(self.home.ledger, asked, what, owner=OWNER, lease=LEASE)
        except BudgetRefused:
            return
        self.jobs[job.seq] = ModelJob(blocks, part, what)

    @precondition(lambda self: self.in_state("reserved"))
    @rule(data=st.data())
    def release(self, data) -> None:
        seq = data.draw(st.sampled_from(self.in_state("reserved")))
        self.home.ledger.release(seq)
        self.jobs[seq].state = "released"

    @precondition(lambda self: self.in_state("reserved"))
    @rule(data=st.data())
    def start(self, data) -> None:
        """What it reads is what it was charged to."""
        seq = data.draw(st.sampled_from(self.in_state("reserved")))
        try:
            started = self.home.ledger.start(seq, OWNER, LEASE)
        except BudgetRefused:  # the total was lowered
            self.jobs[seq].state = "released"
            return
        self.require_rows(seq, started.dataset.commitments)
        self.jobs[seq].state = "started"

    @precondition(lambda self: self.in_state("started"))
    @rule(data=st.data(), end=st.sampled_from(["commit", "burn", "resume", "resume"]))
    def end(self, data, end) -> None:
        ledger, seq = self.home.ledger, data.draw(st.sampled_from(self.in_state("started")))
        if end == "resume":
            (holding,) = [each for each in ledger.leases() if each.seq == seq]
            times = [entry.value for entry in ledger.log.entries(seq) if entry.value.get("reservation") == seq]
            if sum(value["type"] == "resumed" for value in times) < 5:
                self.require_rows(seq, resume(ledger.log, holding, OWNER, LEASE).dataset.commitments)
            return
        if end == "commit":
            ledger.commit(seq, ledgers.hexes("released"), OWNER)
        else:
            ledger.burn(seq, "failed", OWNER)
        self.jobs[seq].state = end

    @rule(epsilon=st.sampled_from(["1", "2", "3"]))
    def change_the_total(self, epsilon) -> None:
        self.home.ledger.change_budget("v", Decimal(epsilon), "a test", "steward")

    @precondition(lambda self: self.last > 1 and not self.declared)
    @rule(epsilon=st.sampled_from(["1", "2.5", "4"]))
    def change_the_total_for_one_person(self, epsilon) -> None:
        self.home.ledger.change_person_total("v", Decimal(epsilon), "a test", "steward")

    @precondition(lambda self: self.dropped < self.last - 1)
    @rule()
    def delete_the_oldest(self) -> None:
        waits = [job for job in self.jobs.values() if job.state in ("reserved", "started")]
        if all(job.blocks[0] > self.dropped + 1 for job in waits):
            self.dropped += 1
            block_appending.drop(self.home.ledger.log, "v", self.dropped, Why("steward", "a test"))

    @rule()
    def reopen(self) -> None:
        self.home.ledger.log.database.close()
        self.home = Home.open(self.environment)

    # ---- what must always hold --------------------------------------------------------------------------------------

    def in_state(self, state: str) -> list[int]:
        return [seq for seq, job in self.jobs.items() if job.state == state]

    def require_rows(self, seq: int, commitments) -> None:
        first, last = self.jobs[seq].blocks
        assert commitments == tuple(
            ledgers.hexes("v") if block == 1 else ledgers.hexes(f"v{block}") for block in range(first, last + 1)
        )

    @invariant()
    def sums_are_those_of_the_jobs(self) -> None:
        for part in (None, HOLDOUT):
            try:
                blocks = (1, self.last) if self.last > 1 else None
                dataset = self.home.ledger.dataset("v", part=part, blocks=blocks)
            except InputError:  # before it was registered
                return
            for block, family in enumerate(dataset.own, 1):
                charged = [
                    job for job in self.jobs.values() if job.part == part and job.blocks[0] <= block <= job.blocks[1]
                ]
                self.require_sums(family, charged)
            assert (dataset.person is not None) == (self.declared or self.last > 1)
            if dataset.person is not None:
                self.require_sums(dataset.person, [job for job in self.jobs.values() if job.part == part])

    @staticmethod
    def require_sums(family, jobs: list[ModelJob]) -> None:
        held = [job for job in jobs if job.state != "released"]
        assert family.used == total(held, family)
        assert family.reserved == total([job for job in held if job.state == "reserved"], family)


def total(jobs: list[ModelJob], family) -> Price:
    sums = family.filter.nothing()
    for job in jobs:
        sums = sums + price(job.plan, family.filter.orders)
    return sums


SETTINGS = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would open hundreds of ledgers
)


def test_a_dataset_grows_at_any_time():
    run_machine(GrowingMachine, settings=SETTINGS)


def test_a_job_that_is_taken_for_one_on_every_block_would_be_caught(monkeypatch):
    """The machine has teeth: the fault by which an entry without a window is read anew."""

    def load(connection, entry, analyst=None, signed=None):
        stored = entry.value
        window = stored.get("window")
        blocks = None if window is None else (window[0], window[1])
        return block_rows.load(connection, stored["dataset"], analyst, stored.get("part"), signed, blocks)

    monkeypatch.setattr(*ledgers.UNJUDGED)
    monkeypatch.setattr(block_rows, "load_charged", load)
    machine = GrowingMachine()
    try:
        machine.register(None)
        machine.reserve_on((1, 1), None, ledgers.plan(EVENTS[0], 4))
        machine.append()
        (seq,) = machine.in_state("reserved")
        machine.sums_are_those_of_the_jobs()
        machine.reserve_on((2, 2), None, ledgers.plan(EVENTS[0], 4))
        machine.reserve_on((2, 2), None, ledgers.plan(EVENTS[0], 4))
        started = machine.home.ledger.start(seq, OWNER, LEASE)
        machine.jobs[seq].state = "started"
        with pytest.raises(AssertionError):
            machine.require_rows(seq, started.dataset.commitments)
        with pytest.raises(AssertionError):
            machine.sums_are_those_of_the_jobs()
    finally:
        machine.home.ledger.log.database.close()
        shutil.rmtree(machine.folder)
