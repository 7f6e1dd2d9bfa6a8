"""Any order of reserving, starting, drawing, committing, crashing, restarting: what was drawn is never more than what
is charged, and the ledger adds up.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import ledgers
import numpy as np
import postgres
import pytest
from exact_laws import BOOLEAN
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict, WrongState
from accountant.home import Home
from accountant.ledger.families.records import Request, Unit
from accountant.log import last_seen
from accountant.privacy.claims import claim, price
from accountant.store.store import Tree
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.log import notes
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Plan, Release
from dpserve_verify.privacy.filter import Price
from training.calibration.calibrate import rehearse
from training.learners.boosting.lazybb import LazyBB
from training.rows.partitions.rows import Rows
from training.session.session import Public, Session

pytestmark = pytest.mark.slow

TOTAL = Budget.of("1", "0.000001")
SMALL = Budget.of("0.05", "0.000001")  # one job of five rounds at .01 takes the whole of it
PEOPLE = Unit("person", "name")
PLACES = (
    (Tree, "append"),
    (notes, "sign_checkpoint"),
    (last_seen.LockedMark, "advance"),
)


class Crash(BaseException):
    """What kill -9 does, as far as one process can show it: nothing after it runs."""


class Counter:
    """Counts what is drawn, at the only place where noise exists, and crashes after so many draws."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, Release]] = []
        self.left: int | None = None

    def wrap(self, session: Session, dataset: str) -> Session:
        real = session.release

        def release(query, mechanism):
            if self.left == 0:
                raise Crash
            self.left = None if self.left is None else self.left - 1
            answer = real(query, mechanism)
            self.drawn.append((dataset, session._played[-1]))
            return answer

        session.release = release
        return session


class Machine(RuleBasedStateMachine):
    """Jobs on two datasets of one family, one of which is in a second family as well."""

    def url(self) -> dict[str, str]:
        """The setting that names the database; the home's own SQLite file where there is none."""
        return {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dpserve-machine-"))
        self.environment = ledgers.place(self.folder / "home") | self.url()
        self.home = Home.init(self.environment)
        for name in ("a", "b"):
            self.home.ledger.register(ledgers.registration(name, TOTAL, unit=PEOPLE))
        self.home.ledger.register(ledgers.registration("both", None, families=("a", "b"), unit=PEOPLE))
        self.home.ledger.register(ledgers.registration("small", SMALL, unit=PEOPLE))
        self.counter = Counter()
        self.patches: list[pytest.MonkeyPatch] = []

    def teardown(self) -> None:
        try:
            for patch in self.patches:
                patch.undo()
            self.reopen()
            assert audit_home(self.home).problems == ()
        finally:
            self.home.ledger.log.database.close()
            shutil.rmtree(self.folder)

    # ---- what may happen ---------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(["a", "b", "both", "small"]),
        unit=st.sampled_from(["0.01", "0.05", "0.2", "0.6"]),
        rounds=st.integers(1, 5),
        key=st.sampled_from([None, "one", "two"]),
    )
    def reserve(self, name, unit, rounds, key) -> None:
        learner, public = LazyBB(rounds=rounds, threshold=False), self._public()
        what = rehearse(learner, public, Decimal(unit))
        asked = Request(name, "lazybb", Budget.of("4", "0.000001"), {"rounds": rounds, "unit": unit}, name)
        before = self._used()
        try:
            self.home.ledger.reserve(asked, Decimal(unit), what, by="machine", key=key)
        except BudgetRefused:
            assert self._used() == before
        except IdempotencyConflict:
            assert key is not None

    @precondition(lambda self: self._jobs("reserved"))
    @rule(data=st.data(), draws=st.one_of(st.none(), st.integers(0, 5)), end=st.sampled_from(["commit", "burn", None]))
    def play(self, data, draws, end) -> None:
        """Start a job and play its plan, cut after some draws or not, and end it or be killed before."""
        seq = data.draw(st.sampled_from(self._jobs("reserved")))
        try:
            started = self.home.ledger.start(seq, "owner:1:1", 60.0)
        except BudgetRefused:  # the total was lowered
            assert self.home.ledger.job(seq).state == "released"
            return
        rows = Rows(np.array([[0, 1, 0, 1]], dtype=np.uint8), np.array([0, 1, 1, 0], dtype=np.uint8), [3])
        session = Session(self._public(), started.unit, started.plan, rows)
        self.counter.left = draws
        learner = LazyBB(rounds=int(started.request.parameters["rounds"]), threshold=False)
        try:
            learner.learn(self.counter.wrap(session, started.request.dataset))
        except Crash:
            self.reopen()
            return
        if end == "commit":
            self.home.ledger.commit(seq, ledgers.hexes("released"), "owner:1:1")
        elif end == "burn":
            self.home.ledger.burn(seq, "failed", "owner:1:1")

    @rule(name=st.sampled_from(["a", "b", "small"]), epsilon=st.sampled_from(["0.04", "0.3", "1", "2"]))
    def change_the_total(self, name, epsilon) -> None:
        """Up or down: what waits is judged again at its start."""
        self.home.ledger.change_budget(name, Decimal(epsilon), "a test", "steward")

    @precondition(lambda self: self._jobs("reserved", "started", "committed", "burned", "released"))
    @rule(data=st.data(), action=st.sampled_from(["start", "commit", "burn", "release", "issue"]))
    def step(self, data, action) -> None:
        """Any step at any time: legal or refused, it never gives back what was drawn."""
        ledger = self.home.ledger
        seq = data.draw(st.sampled_from([job.seq for job in ledger.jobs()]))
        arguments = {
            "start": ("owner:2:2", 60.0),
            "commit": (ledgers.hexes("r"),),
            "burn": ("failed",),
            "release": (),
            "issue": (ledgers.hexes("s"), ledgers.hexes("m")),
        }
        try:
            getattr(ledger, action)(seq, *arguments[action])
        except WrongState:
            return
        except BudgetRefused:
            assert action == "start"
            assert ledger.job(seq).state == "released"

    @rule(place=st.sampled_from(PLACES), after=st.booleans(), data=st.data())
    def crash_while_writing(self, place, after, data) -> None:
        """Killed in the middle of a transaction, or between it and the mark."""
        owner, name = place
        real = getattr(owner, name)

        def cut(*arguments, **options):
            if after:
                real(*arguments, **options)
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, cut)
            with suppress(Crash):
                data.draw(st.sampled_from([self._reserve_one, self._start_one]))()
        self.reopen()

    def _reserve_one(self) -> None:
        what = rehearse(LazyBB(rounds=2, threshold=False), self._public(), Decimal("0.01"))
        asked = Request("a", "lazybb", Budget.of("1", "0.000001"), {"rounds": 2}, "a")
        try:
            self.home.ledger.reserve(asked, Decimal("0.01"), what, by="machine")
        except BudgetRefused:
            return

    def _start_one(self) -> None:
        for seq in self._jobs("reserved")[:1]:
            with suppress(BudgetRefused):
                self.home.ledger.start(seq, "owner:1:1", 60.0)

    @rule()
    def reopen(self) -> None:
        """A new process: nothing is remembered but what is on disk."""
        self.home.ledger.log.database.close()
        self.home = Home.open(self.environment)

    # ---- what must always hold ---------------------------------------------------------------------------------------

    @invariant()
    def drawn_is_charged(self) -> None:
        for family in self._families():
            names = {dataset.registration.name for dataset in self.home.ledger.datasets() if family in dataset.families}
            drawn = Plan.of(release for name, release in self.counter.drawn if name in names)
            cost = price(drawn, family.filter.orders)
            assert covers(family.used, cost), f"drawn {cost}, charged {family.used}"
            assert covers(family.used, family.reserved)
            largest = family.filter.with_total(family.largest)
            if family.whole is None:
                assert largest.admits(largest.nothing(), family.used)
            else:
                (alone,) = [job for job in self.home.ledger.jobs() if job.state != "released" and job.dataset in names]
                assert alone.seq == family.whole.job
                assert claim(drawn, family.budget.delta).epsilon <= family.whole.epsilon <= family.largest

    def _families(self):
        return {family for dataset in self.home.ledger.datasets() for family in dataset.families}

    def _used(self):
        return {family.identity: (family.used, family.reserved) for family in self._families()}

    def _jobs(self, *states: str) -> list[int]:
        return [job.seq for job in self.home.ledger.jobs() if job.state in states]

    def _public(self) -> Public:
        return Public(BOOLEAN, "y", ("no", "yes"), 1000, Relation.ADD_REMOVE, Budget.of("4", "0.000001"), False)


def covers(charged: Price, cost: Price) -> bool:
    pairs = [(charged.pure, cost.pure), *zip(charged.rdp, cost.rdp, strict=True)]
    return all(a >= b for a, b in pairs)


class OnPostgresql(Machine):
    def url(self) -> dict[str, str]:
        return {"DPSERVE_LEDGER_URL": postgres.server().fresh()}


SETTINGS = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would open hundreds of ledgers
)


def test_any_order_of_events_on_sqlite():
    run_state_machine_as_test(Machine, settings=SETTINGS)


def test_any_order_of_events_on_postgresql():
    postgres.server()
    run_state_machine_as_test(OnPostgresql, settings=settings(SETTINGS, max_examples=6))


def test_a_refund_of_what_was_started_would_be_caught(monkeypatch):
    """The invariant has teeth: a ledger that gives back a burned job's price is found out."""
    from accountant.ledger.families.block_rows import load, put
    from accountant.ledger.ledger import Ledger
    from dpserve_verify.privacy.filter import price_to_json

    real = Ledger.burn

    def generous(self, seq, reason, owner=None, expires=None):
        stored = self.reservation(seq).value
        real(self, seq, reason, owner, expires)
        with self.log.database.writing() as connection:
            dataset = load(connection, stored["dataset"])
            for family, cost in zip(dataset.families, dataset.costs_from_json(stored["price"]), strict=True):
                figures = {"used": family.used - cost, "reserved": family.reserved}
                orders = family.filter.orders
                put(connection, [family], [{name: price_to_json(each, orders) for name, each in figures.items()}])

    monkeypatch.setattr(Ledger, "burn", generous)
    machine = Machine()
    try:
        machine.reserve("both", "0.05", 3, None)
        (seq,) = machine._jobs("reserved")
        started = machine.home.ledger.start(seq, "owner:1:1", 60.0)
        rows = Rows(np.array([[0, 1]], dtype=np.uint8), np.array([0, 1], dtype=np.uint8), [3])
        session = machine.counter.wrap(Session(machine._public(), started.unit, started.plan, rows), "both")
        LazyBB(rounds=3, threshold=False).learn(session)
        machine.drawn_is_charged()
        machine.home.ledger.burn(seq, "failed")
        with pytest.raises(AssertionError, match="drawn"):
            machine.drawn_is_charged()
    finally:
        machine.home.ledger.log.database.close()
        shutil.rmtree(machine.folder)
