"""How often a request asks a distant PostgreSQL, as upper bounds: each time costs what the way there takes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import ledgers
import pytest
from faulty_wire import SilentWire
from ledgers import place
from postgres import server
from sqlalchemy import make_url

from accountant.access.grants import access_of
from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict
from accountant.home import Home
from serving.operations import Caller
from serving.operations.jobs import submit_job
from training.jobs import job
from training.requests import JobRequest

SUBMIT, RUN, SHOW, SECONDS_AT_50_MS = 12, 70, 2, 1.5
CONNECT = 10  # greeting, name, and what the driver asks of a server that it meets


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A home whose ledger is at the other end of a wire, and whose dataset was asked about before."""
    path = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path_factory.mktemp("far") / "home")
    wire = SilentWire(server().folder)
    (path / "database.url").write_text(wire.url(make_url((path / "database.url").read_text()).database))
    home = Home.open(place(path))
    yield SimpleNamespace(home=home, wire=wire, rights=access_of(home.ledger, "cli:test", operator=True))
    home.ledger.log.database.close()
    wire.close()


def asked(key: str, epsilon: str = "0.02") -> JobRequest:
    return JobRequest("adult", "lazybb", epsilon, parameters={"rounds": 8}, idempotency_key=key)


def messages(far, work, most: int):
    """What the work gives; it may send so many messages."""
    before = far.wire.messages
    found = work()
    assert far.wire.messages - before <= most
    return found


def test_a_job_is_admitted_in_few_messages(far):
    """The first of a process connects, and learns what to ask; the second, for a name that is bound, asks no more."""
    for key, more in (("first", CONNECT), ("second", 0)):
        made = messages(
            far, lambda key=key: submit_job.function(Caller(far.home, far.rights), asked(key)), SUBMIT + more
        )
        assert (made["state"], made["by"]) == ("reserved", "cli:test")
    far.wire.delay = 0.05
    before = time.monotonic()
    submit_job.function(Caller(far.home, far.rights), asked("third"))
    spent, far.wire.delay = time.monotonic() - before, 0.0
    print({"seconds at 50 ms": spent})
    again = messages(far, lambda: submit_job.function(Caller(far.home, far.rights), asked("third")), SUBMIT)
    assert again["job"] == made["job"] + 1
    with pytest.raises(IdempotencyConflict):
        submit_job.function(Caller(far.home, far.rights), asked("third", "0.03"))
    assert audit_home(far.home).problems == ()


def test_a_job_runs_in_few_messages(far):
    seq = submit_job.function(Caller(far.home, far.rights), asked("run"))["job"]
    messages(far, lambda: job.run(far.home, seq), RUN)
    assert messages(far, lambda: far.home.ledger.job(seq), SHOW).issued is not None
    assert audit_home(far.home, ledgers.bundles(far.home.path)).problems == ()


def test_what_was_remembered_is_forgotten_by_the_next_request(far):
    """Two requests one after the other, and what a transaction wrote, are seen as they are."""
    before = far.home.ledger.dataset("adult")
    first = submit_job.function(Caller(far.home, far.rights), asked("one"))
    second = submit_job.function(Caller(far.home, far.rights), asked("two"))
    assert first["left"] != second["left"]
    after = far.home.ledger.dataset("adult")
    assert after.families[0].used != before.families[0].used
    far.home.ledger.release(second["job"])
    assert far.home.ledger.job(second["job"]).state == "released"
