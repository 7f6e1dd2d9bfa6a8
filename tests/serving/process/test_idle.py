"""While the ledger's file lies as it lay, a worker that nobody asks looks at its times, and asks no database."""

from __future__ import annotations

import os
import time

import ledgers
import pytest
from ledgers import place

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from serving.process.state import ServingState
from serving.process.tokens import Rights, digest, new_token


@pytest.fixture
def looks(tmp_path, monkeypatch):
    """A worker's state over a home of its own, and how often it asked the database whether all is as it was."""
    asked, held = [], Rights.hold_in
    monkeypatch.setattr(Rights, "hold_in", lambda self, home: asked.append(1) or held(self, home))
    for name, value in place(ledgers.copy(ledgers.prepared(), tmp_path / "home")).items():
        monkeypatch.setenv(name, value)
    then = time.time() - 10
    os.utime(tmp_path / "home" / "ledger.db", (then, then))
    state = ServingState()
    state.refresh()
    yield state, asked
    state.home.ledger.log.database.close()


def settle(home: Home) -> None:
    """As if the last commit were ten seconds past. It stands in the log; a file that changed is read as a whole."""
    then = time.time_ns() - 10**10
    os.utime(f"{home.ledger.log.database.engine.url.database}-wal", ns=(then, then))


def test_what_lies_as_it_lay_is_not_asked(looks):
    state, asked = looks
    settle(state.home)
    for times in (1, 1, 1):  # the first look after the file came to rest, and no more
        state.refresh(False)
        assert len(asked) == times
    assert not state.problem


def test_what_was_written_is_seen_at_the_next_look(looks):
    """Also within the second in which a file's clock may not have ticked."""
    state, asked = looks
    settle(state.home)
    state.refresh(False)
    writer = Home.open()
    secret = new_token(writer, "late", ["predict"])[0]
    state.refresh(False)
    assert state.bearer(digest(secret)) is not None
    before = len(asked)
    state.refresh(False)
    assert len(asked) == before + 1  # it was written just now
    writer.ledger.log.database.close()


def test_a_grant_that_expires_is_looked_at_anew(looks, monkeypatch):
    state, _ = looks
    until = grants.spell(time.time() + 60)
    grants.add(state.home.ledger, [Grant("kin", "predict", expires=until)], "test")
    state.refresh()
    settle(state.home)
    known = state._rights
    for later, lasts in ((0, True), (0, True), (61, False)):
        now = time.time() + later
        monkeypatch.setattr("serving.process.tokens.time.time", lambda now=now: now)
        state.refresh(False)
        assert (state._rights is known) == lasts
