"""The drill of docs/operating.md: its own commands, on homes with either database; what is restored is whole, and
what is too old is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ledgers
import pytest
from ledgers import place

from accountant.access import tokens
from accountant.audit.audit import audit_home
from accountant.home import Home
from dpserve_verify.errors import LedgerInvalid
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.slow
PAGE = (ledgers.ROOT / "docs" / "operating.md").read_text()


def blocks(heading: str) -> list[str]:
    """The commands below a heading, a block each."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n##")[0]
    return re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)


BACK_UP, RESTORE = blocks("Back up"), blocks("Restore, where all is lost")


class Place:
    """A home, its database, and the environment of whoever backs it up."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self.path, self.kind = tmp_path / "home", kind
        if kind == "sqlite":
            ledgers.copy(ledgers.prepared(), self.path)
        else:
            ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), self.path)
        self.variables = {"BACKUP": str(tmp_path / "backup"), "DPSERVE_HOME": str(self.path)}
        folders = [Path(sys.executable).parent]
        if kind == "postgresql":
            import postgres

            self.server, self.name = (
                postgres.server(),
                place(self.path)["DPSERVE_LEDGER_URL"].split("@/")[1].split("?")[0],
            )
            self.variables |= {"PGHOST": str(self.server.folder), "PGUSER": "postgres", "PGDATABASE": self.name}
            folders.append(self.server.bin)
        self.environment = place(self.path)
        self.variables |= {"DPSERVE_LEDGER_URL": self.environment.get("DPSERVE_LEDGER_URL", "")}
        self.variables["PATH"] = os.pathsep.join([*map(str, folders), os.environ["PATH"]])

    def home(self) -> Home:
        return Home.open(self.environment)

    def follow(self, texts: list[str]) -> subprocess.CompletedProcess[str]:
        """The blocks that are meant for this database."""
        other = "pg_" if self.kind == "sqlite" else "ledger.db"
        script = "set -eu\n" + "\n".join(text for text in texts if other not in text)
        done = subprocess.run(
            ["sh", "-c", script], env={**os.environ, **self.variables}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def lose_database(self) -> None:
        if self.kind == "sqlite":
            for path in self.path.glob("ledger.db*"):
                path.unlink()
        else:
            self.server.execute(f"DROP DATABASE {self.name}")
            self.server.execute(f"CREATE DATABASE {self.name} TEMPLATE template0")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path) -> Place:
    return Place(request.param, tmp_path)


def spend(home: Home) -> None:
    job.train(home, JobRequest("adult", "lazybb", "0.25", parameters={"rounds": 4}), by="test")


def state(home: Home) -> tuple:
    return home.ledger.log.checkpoint(), home.ledger.dataset("adult").families[0].reserved, home.ledger.job(2).state


def test_what_is_restored_goes_on(where):
    home = where.home()
    spend(home)
    with home.ledger.log.database.reading():  # somebody reads while it is copied
        where.follow(BACK_UP[:1])
    tokens.create(home.ledger, "late", ["audit"], ledgers.hexes("late"))  # after the keys, before the ledger
    where.follow(BACK_UP[1:])
    before = state(home)
    home.ledger.log.database.close()
    where.lose_database()
    shutil.rmtree(where.path)
    assert "sound" in where.follow(RESTORE).stdout
    restored = where.home()
    assert state(restored) == before
    spend(restored)
    assert audit_home(restored).ok
    restored.ledger.log.database.close()


def test_old_copy_is_refused_where_the_keys_still_stand(where):
    home = where.home()
    where.follow(BACK_UP)
    spend(home)
    home.ledger.log.database.close()
    where.lose_database()
    where.follow([text for text in RESTORE if "ledger.db" in text or "pg_restore" in text])
    with pytest.raises(LedgerInvalid, match="rolled back"):
        where.home()


def test_the_drill_is_for_both_databases():
    assert len(BACK_UP) == 4
    assert len(RESTORE) == 4
    assert [text.split()[0] for text in BACK_UP if text.startswith("pg_")] == ["pg_dump"]
