"""Two versions on one ledger. The older one goes on in a process of its own, as it was when the newer one writes what
it does not know: it then writes nothing any more, and what it has left behind is settled by the newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing import Process, get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest
from ledgers import begun, place, plan, registration, request, reserve

from accountant.access import tokens
from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.comparisons import REGISTER, Comparison, record_comparison
from accountant.store import migrations, version_fence
from dpserve_verify.entries.datasets import RowsCompared
from dpserve_verify.entries.kinds import FORMS, NEWEST
from dpserve_verify.errors import DpserveError
from dpserve_verify.privacy.events import PureDp

SMALL = plan(PureDp(Decimal("0.1")), 1)
OWNER = "host:1:1:older:word"
BASELINE = """
genesis dataset-registered person-total dataset-joined dataset-appended blocks-dropped budget-changed quota-set
reserved started resumed committed burned released issued derived evaluated profiled revoked model-promoted
model-retired model-restored token-created token-revoked grant-added grant-revoked key-added key-retired
key-compromised campaign-opened campaign-closed campaign-round rows-compared campaign-answered schedule-added
schedule-stopped schedule-removed dataset-archived dataset-unarchived model-archived model-unarchived
dataset-withdrawn charged learner-admitted learner-removed
"""
ACTS: dict[str, Callable[..., Any]] = {
    "reserve": lambda home: reserve(home.ledger, request("adult", "0.1", "0"), SMALL).seq,
    "start": lambda home, job: home.ledger.start(job, OWNER, 60.0).seq,
    "release": lambda home, job: home.ledger.release(job),
    "burn": lambda home, job: home.ledger.burn(job, "failed", OWNER),
    "commit": lambda home, job: home.ledger.commit(job, "0" * 64, OWNER),
    "register": lambda home: home.ledger.register(registration("other")).seq,
    "token": lambda home: tokens.create(home.ledger, "t", ["predict"], "0" * 64).seq,
    "renew": lambda home, job: home.ledger.heartbeat(job, OWNER, 60.0, 1),
    "lists": lambda home: (len(home.ledger.jobs()), [each.registration.name for each in home.ledger.datasets()]),
}
WRITES = ("reserve", "start", "release", "burn", "register", "token")
# How a version is older.


def knows_fewer_kinds() -> None:
    """As it was begun: the newer version has one kind that came later."""


def has_older_tables() -> None:
    migrations.HEAD = "0000"


@dataclass
class Older:
    """A process of the older version, over a home of its own."""

    line: Connection
    process: Process

    def act(self, name: str, *arguments: Any) -> Any:
        """What came of it: its answer, or the code and the words of an error."""
        self.line.send((name, *arguments))
        return self.line.recv()


def live(line: Connection, where: dict[str, str]) -> None:
    home = Home.open(where)
    while (asked := line.recv()) is not None:
        name, *arguments = asked
        try:
            if callable(name):
                name()
                line.send(None)
            else:
                line.send(ACTS[name](home, *arguments))
        except DpserveError as error:
            line.send((error.code, error.message))


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request, tmp_path, monkeypatch) -> Iterator[tuple[Home, Older]]:
    """The newer version's home, and the older version's process on the same ledger."""
    begun(tmp_path / "home", registration(), request.param).ledger.log.database.close()
    fork = get_context("fork")
    ours, theirs = fork.Pipe()
    where = place(tmp_path / "home")
    process = fork.Process(target=live, args=(theirs, where))
    process.start()
    monkeypatch.setattr(RowsCompared, "generation", NEWEST + 1)
    monkeypatch.setattr(version_fence, "NEWEST", NEWEST + 1)
    home = Home.open(where)
    yield home, Older(ours, process)
    ours.send(None)
    process.join(60)
    assert process.exitcode == 0
    home.ledger.log.database.close()


def compare_rows(home: Home) -> None:
    """Write an entry of the kind that the older version does not know."""
    record_comparison(home.ledger, Comparison(REGISTER, "new", "ann"), ["adult"])


def test_a_kind_that_comes_later_says_so():
    """By its generation older versions are kept from writing: those of the first are all here."""
    assert {kind for kind, form in FORMS.items() if form.generation == 45} == {*BASELINE.split()}


@pytest.mark.parametrize(
    ("grow_old", "newer", "words"),
    [
        (
            knows_fewer_kinds,
            compare_rows,
            f"of generation {NEWEST + 1}, and this version knows {NEWEST}",
        ),
        (
            has_older_tables,
            lambda home: None,
            f"its tables are of revision {migrations.HEAD}, and this version knows 0000",
        ),
    ],
)
def test_the_older_version_writes_nothing_that_moves_a_sum(pair, grow_old, newer, words):
    home, older = pair
    waits, runs, ends = (older.act("reserve") for _ in range(3))
    for job in (runs, ends):
        assert older.act("start", job) == job
    older.act(grow_old)
    newer(home)
    before = home.ledger.log.size()
    arguments = {"start": [waits], "release": [waits], "burn": [runs]}
    for name in WRITES:
        code, message = older.act(name, *arguments.get(name, []))
        assert words in message, name
        assert code == "version_behind", name
    assert home.ledger.log.size() == before
    assert older.act("lists") == (3, ["adult"])
    assert older.act("renew", runs) is True  # or it would lose what it runs
    ended = older.act("commit", ends)  # what it drew is paid for, and moves no sum
    assert (ended is None) == (grow_old is knows_fewer_kinds)
    home.ledger.release(waits)
    home.ledger.burn(runs, "interrupted", OWNER)
    assert audit_home(home).problems == ()


def test_what_both_know_both_write(pair):
    """Versions that differ in nothing that the ledger has may run beside each other: a rolling upgrade."""
    home, older = pair
    older.act(knows_fewer_kinds)
    for _ in range(3):
        assert older.act("release", reserve(home.ledger, request("adult", "0.1", "0"), SMALL).seq) is None
        home.ledger.release(older.act("reserve"))
    assert home.ledger.log.behind == ""
    assert audit_home(home).problems == ()
