"""A ledger's file that somebody writes over in place, while a server has it open: readiness follows the doors."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import ledgers
import pytest
from in_process import Site
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.home import Home
from serving.app import DOORS
from serving.process.tokens import new_token
from training.jobs import job
from training.requests import JobRequest

ASKED = JobRequest("adult", "lazybb", "0.02", parameters={"rounds": 8})


@pytest.fixture
def site(tmp_path, monkeypatch):
    path = ledgers.copy(ledgers.prepared(), tmp_path / "home")
    for name, value in place(path).items():
        monkeypatch.setenv(name, value)
    home = Home.open()
    secret, _ = new_token(home, "all", ["admin"])
    site = Site(home, DOORS)
    site.secret = secret
    yield site
    home.ledger.log.database.close()


def vacuum(file: Path, to: Path) -> Path:
    """A copy as of now, without a log."""
    source = sqlite3.connect(file)
    source.execute("VACUUM INTO ?", (str(to),))
    source.close()
    return to


def over(copy: Path, file: Path) -> None:
    """As `cp` does: into the same file."""
    before = file.stat().st_ino
    file.write_bytes(copy.read_bytes())
    assert file.stat().st_ino == before


def answers(site: Site) -> tuple[int, int]:
    """What the doors say, and then readiness, as a worker would that looks twice a second."""
    door = site.bear(site.secret, "GET", "/v1/datasets").status_code
    site.look()
    return door, site.ask("GET", "/readyz").status_code


def test_a_ledger_written_over_in_place_is_named_and_the_newest_copy_heals(site, tmp_path, caplog):
    file, home = tmp_path / "home" / "ledger.db", site.home
    old = vacuum(file, tmp_path / "old.db")
    for _ in range(6):
        job.submit(home, ASKED, by="test")
    newest = vacuum(file, tmp_path / "newest.db")
    assert answers(site) == (200, 200)
    over(old, file)
    site.look()
    assert site.ask("GET", "/readyz").status_code == 503
    assert answers(site) == (503, 503)
    assert "delete ledger.db-wal" in caplog.text or "rolled back" in caplog.text
    home.ledger.log.database.close()  # every dpserve of the home is stopped, as that says, but for what is tried here
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (file.parent / name).unlink(missing_ok=True)
    over(newest, file)
    for _ in range(2):
        site.look()
    assert answers(site) == (200, 200)
    assert audit_home(Home.open()).problems == ()


def test_a_log_that_is_taken_away_is_noticed(site, tmp_path):
    """Beside the file, its log holds what was written last: without it, nobody goes on with pages of before."""
    log = tmp_path / "home" / "ledger.db-wal"
    job.submit(site.home, ASKED, by="test")
    assert answers(site) == (200, 200)
    kept = shutil.copy(log, tmp_path / "kept")
    log.unlink()
    assert site.bear(site.secret, "GET", "/v1/datasets").status_code == 503
    site.look()
    assert kept
