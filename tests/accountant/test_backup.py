"""A copy of a home: everything in it has its line in the table, and what is restored is the home of one moment."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import baseline
import ledgers
import pytest
from ledgers import place, registration, reserve

from accountant.access import tokens
from accountant.audit.audit import audit_home
from accountant.home import Home, backup
from accountant.home.backup_time import last_backup
from accountant.home.contents import Kind, files_in, place_of
from accountant.log.last_seen import HighWater
from accountant.store import engines
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable
from local.campaign import campaigns
from models.store.bundle import ModelStore
from models.store.standing import PROOF, entry_of
from models.store.versions import champions
from models.worth import statements as evaluations
from training.datasets.drafts.drafts import Drafts
from training.jobs import job
from training.requests import JobRequest

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 2})


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    """A home that has nearly everything: `tests/data/make_home.py`."""
    return baseline.unpack(tmp_path_factory.mktemp("baseline") / "unpacked")


def sound(home: Home) -> bool:
    report = audit_home(home, ledgers.bundles(home.path))
    assert report.problems == ()
    return report.ok


def kept(home: Path) -> dict[str, bytes]:
    """What must come back to the byte: all but databases and the mark, which are written anew."""
    names = (path for path in files_in(home) if (known := place_of(path)) and known.kind in (Kind.KEEP, Kind.ENTERED))
    return {path: (home / path).read_bytes() for path in names if not path.endswith((".db", "high-water.json"))}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_home_that_has_everything_comes_back_whole(old, tmp_path, kind):
    path, environment = ledgers.copy(old, tmp_path / "home"), {"DPSERVE_HOME": str(tmp_path / "home")}
    there = {"DPSERVE_HOME": str(tmp_path / "restored")}
    if kind == "postgresql":
        import postgres

        environment["DPSERVE_LEDGER_URL"] = postgres.server().fresh()
        there["DPSERVE_LEDGER_URL"] = postgres.server().fresh()
        baseline.copy_into(environment["DPSERVE_LEDGER_URL"], path)
    home = Home.open(environment)
    Drafts(path).begin("ana", "people.csv", 10, 1000)
    issued = entry_of(path / "models" / "lazybb" / "1")
    answers = campaigns.load(home, "survey").reports.all()[1].tolist()
    before = kept(path)
    done = backup.back_up(home, tmp_path / "copy")
    assert (done.unknown, done.missing, done.entries) == ([], [], home.ledger.log.size())
    restored = backup.restore(tmp_path / "copy", there)
    assert (restored.entries, restored.rebuilt[0]) == (done.entries, "trust.json")
    with closing(Home.open(there).ledger.log.database):
        again = Home.open(there)
        assert kept(again.path) == before
        assert again.ledger.log.checkpoint() == home.ledger.log.checkpoint()
        assert sound(again)
        assert campaigns.state(again, "open") == campaigns.state(home, "open")
        assert campaigns.state(again, "survey")["reports"] == 20
        assert campaigns.load(again, "survey").reports.all()[1].tolist() == answers
        assert evaluations.worths(again, issued) == evaluations.worths(home, issued) != []
        assert champions(again.path / "models") == champions(path / "models")
        assert not (again.path / "drafts").exists()
        assert last_backup(again.path) >= last_backup(path)  # it is in the copy, as of now
        assert HighWater(again.path / "keys/high-water.json").read()[0] == done.entries


@pytest.mark.home("trained")
def test_a_backup_is_the_home_of_its_snapshot_whatever_is_trained_meanwhile(home, tmp_path, monkeypatch):
    """Also a job that was committed before it and has its certificate since, and one that waits."""

    def cut(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("training.kinds.training_steps.finish", cut)
        with pytest.raises(KeyboardInterrupt):
            job.train(home, ASKED, by="test")
    committed, waits = home.ledger.log.size() - 3, job.submit(home, ASKED, by="test").seq
    assert home.ledger.job(committed).public_state == "committed"
    at = home.ledger.log.size()

    def meanwhile(connection):
        """The snapshot was taken, and nothing that is in it was copied."""
        monkeypatch.undo()
        job.recover(home)
        job.train(home, ASKED, by="test")
        first = home.models / "adult" / "1"
        (first / PROOF).write_bytes(home.ledger.log.proof(entry_of(first)).encode())  # leads to a later checkpoint
        engines.disable_timeout(connection)

    monkeypatch.setattr(engines, "disable_timeout", meanwhile)
    done = backup.back_up(home, tmp_path / "copy")
    assert done.entries == at < home.ledger.log.size()
    backup.restore(tmp_path / "copy", there := {"DPSERVE_HOME": str(tmp_path / "restored")})
    again = Home.open(there)
    assert sound(again)
    assert ModelStore(again.models).versions("adult") == [1, 2]
    assert job.recover(again)["finished"] == [committed]
    assert ModelStore(again.models).versions("adult") == [1, 2, 3]
    assert again.ledger.job(waits).public_state == "reserved"
    assert sound(again)
    again.ledger.log.database.close()


@pytest.mark.home("filled")
def test_what_is_no_whole_backup_or_would_replace_something_is_refused(home, tmp_path):
    there = {"DPSERVE_HOME": str(tmp_path / "restored")}
    with pytest.raises(InputError, match="lies in the home"):
        backup.back_up(home, home.path / "copy")
    backup.back_up(home, copy := tmp_path / "copy")
    with pytest.raises(InputError, match="is not empty"):
        backup.back_up(home, copy)
    with pytest.raises(InputError, match="is not empty"):
        backup.restore(copy, place(home.path))
    with pytest.raises(InputError, match="holds a ledger already"):
        backup.restore(copy, there | {"DPSERVE_LEDGER_URL": home.ledger.log.database.url})
    tokens.create(home.ledger, "late", ["audit"], ledgers.hexes("late"))
    with pytest.raises(LedgerInvalid, match="rolled back"):
        backup.restore(copy, there, home.path / "keys" / "high-water.json")
    for path, content in (("keys/commitment.key", b"another"), ("ledger.db", b"none"), ("keys/log.pem", None)):
        spoilt = ledgers.copy(copy, tmp_path / path.replace("/", "-"))
        (spoilt / path).unlink()
        if content is not None:
            (spoilt / path).write_bytes(content)
        with pytest.raises(LedgerInvalid, match=f"{path} is (not what was backed up|missing)"):
            backup.restore(spoilt, there)
    (copy / backup.MANIFEST).unlink()
    with pytest.raises(InputError, match="no whole backup"):
        backup.restore(copy, there)
    assert not (tmp_path / "restored").exists()


@pytest.mark.home("prepared")
def test_a_file_that_the_table_lacks_is_named_and_rows_that_are_away_are(home, tmp_path):
    (home.path / "notes.txt").write_text("an operator's own")
    (commitment,) = home.ledger.dataset("adult").commitments
    (home.datasets / commitment).rename(tmp_path / "away")
    done = backup.back_up(home, tmp_path / "copy")
    assert (done.unknown, done.missing) == (["notes.txt"], [commitment])
    assert done.is_noted
    assert not (tmp_path / "copy" / "notes.txt").exists()
    (home.path / "notes.txt").unlink()  # the fixture looks for such files in every home


def stopped(place_of_home: dict[str, str], to: Path, what: str, times: int) -> int:
    """Begin a backup in a process of its own, which stops before it does this for so many times; its number."""
    child = os.fork()
    if child:
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
        return child
    does, done = getattr(backup, what), []

    def stop_once(*arguments: object) -> object:
        done.append(arguments)
        if len(done) == times:
            os.kill(os.getpid(), signal.SIGSTOP)
        return does(*arguments)

    setattr(backup, what, stop_once)
    try:
        backup.back_up(Home.open(place_of_home), to)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    ("what", "times", "later"),
    [("_write", 3, True), ("_changing", 2, True), ("copy_rows", 1, False), ("_digest", 1, False)],
    ids=["copies a file", "looks at files beside its snapshot", "copies the ledger", "reads its copy"],
)
def test_a_backup_that_stands_still_keeps_nobody_from_writing(begun, tmp_path, monkeypatch, what, times, later):
    """Its process is stopped at each step, and goes on: what was written meanwhile is in the copy, where its moment is
    not over.
    """
    home = begun(registration())
    where, before = place(home.path), home.ledger.log.size()
    home.ledger.log.database.close()
    monkeypatch.setattr(engines, "WAIT_SECONDS", 3.0)  # who waits longer is refused
    child = stopped(where, tmp_path / "copy", what, times)
    try:
        home = Home.open(where)
        reserve(home.ledger)
        (home.path / "notes.json").write_text('{"datasets": {}}')
        size = home.ledger.log.size()
    finally:
        os.kill(child, signal.SIGCONT)
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    there = {"DPSERVE_HOME": str(tmp_path / "restored")}
    assert backup.restore(tmp_path / "copy", there).entries == (size if later else before)
    again = Home.open(there)
    assert (again.path / "notes.json").exists() is later
    assert audit_home(again).problems == ()
    for each in (home, again):
        each.ledger.log.database.close()


@pytest.mark.home("filled")
def test_where_too_much_changes_the_backup_gives_up(home, tmp_path, monkeypatch):
    look, looks = backup._changing, []

    def change(path: Path) -> dict:
        looks.append(path)
        (path / "notes.json").write_text(f'{{"datasets": {{}}, "models": {len(looks)}}}')
        return look(path)

    monkeypatch.setattr(backup, "_changing", change)
    with pytest.raises(LedgerUnavailable, match=f"changed {backup.TRIES} times while they were copied; ask again"):
        backup.back_up(home, tmp_path / "copy")
    assert len(looks) == 2 * backup.TRIES
    assert not (tmp_path / "copy" / backup.MANIFEST).exists()
