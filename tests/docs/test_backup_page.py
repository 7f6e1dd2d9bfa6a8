"""The drill of docs/reference/failures.md: its own commands, on homes with either database; what is restored is whole,
and what is too old is refused.
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
from pages import part

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.home.contents import PLACES
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.slow
PAGE = part("docs/reference/failures.md", "Backup and restore")
PARTS = part("docs/reference/home.md", "What a home holds")


BACK_UP, RESTORE = re.findall(r"^```sh\n(dpserve backup.*?|DPSERVE_HOME.*?)^```", PAGE, re.M | re.S)
CRON = re.findall(r"^```cron\n(.*?)^```", PAGE, re.M | re.S)


class Operator:
    """Who follows the page: a home, the folder of its backup, and another home."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self.path, self.kind = tmp_path / "home", kind
        if kind == "sqlite":
            ledgers.copy(ledgers.prepared(), self.path)
        else:
            ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), self.path)
        self.environment = place(self.path)
        self.restored = {"DPSERVE_HOME": str(tmp_path / "restored")}
        if kind == "postgresql":
            import postgres

            self.restored["DPSERVE_LEDGER_URL"] = postgres.server().fresh()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.variables = {"BACKUP": str(tmp_path / "backup"), "RESTORED": str(tmp_path / "restored"), "PATH": path}

    def home(self) -> Home:
        return Home.open(self.environment)

    def follow(self, text: str, places: dict[str, str], code: int = 0) -> str:
        """A block of the page, with the settings of a home."""
        variables = {**os.environ, **self.variables, **places}
        done = subprocess.run(["sh", "-c", f"set -eu\n{text}"], env=variables, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(params=["sqlite", "postgresql"])
def operator(request, tmp_path) -> Operator:
    return Operator(request.param, tmp_path)


def spend(home: Home) -> None:
    job.train(home, JobRequest("adult", "lazybb", "0.25", parameters={"rounds": 4}), by="test")


def state(home: Home) -> tuple:
    return home.ledger.log.checkpoint(), home.ledger.dataset("adult").families[0].reserved, home.ledger.job(2).state


def test_what_is_restored_goes_on(operator):
    home = operator.home()
    spend(home)
    with home.ledger.log.database.reading():  # somebody reads while it is copied
        operator.follow(BACK_UP, operator.environment)
    before = state(home)
    home.ledger.log.database.close()
    shutil.rmtree(operator.path)
    told = operator.follow(RESTORE, operator.restored)
    assert re.search(r"made again +trust.json.*\naudit +sound", told)
    restored = Home.open(operator.restored)
    assert state(restored) == before
    spend(restored)
    assert audit_home(restored, ledgers.bundles(restored.path)).ok
    restored.ledger.log.database.close()


def test_old_copy_is_refused_where_the_mark_still_stands(operator):
    home = operator.home()
    operator.follow(BACK_UP, operator.environment)
    spend(home)
    home.ledger.log.database.close()
    mark = f"{RESTORE.rstrip()} --mark {operator.path}/keys/high-water.json"
    assert "would be rolled back" in operator.follow(mark, operator.restored, code=4)
    assert not Path(operator.restored["DPSERVE_HOME"]).exists()


def test_the_page_names_every_part_of_a_home():
    parts = {each.pattern.partition("/")[0] for each in PLACES if "*" not in each.pattern.partition("/")[0]}
    assert [part for part in parts if f"`{part}" not in PARTS] == []
    assert [line.split()[:5] for line in CRON] == [["15", "2", "*", "*", "*"]]
