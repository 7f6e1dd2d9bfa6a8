"""A real PostgreSQL for the tests: one server for every test process, one database for every test.

The programs come from PyPI's pgserver, else from the operating system. Only its files are used: what the package itself
does as root (a system user, and rights for everybody on every folder above) no test run should do to a machine. As root
the server runs as `nobody`, from a copy.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from accountant.home import Home
    from accountant.ledger.families.records import Registration

UNSAFE_BUT_FAST = ("fsync=off", "full_page_writes=off")  # a test outlives no power cut
# Of hundreds of small databases none is looked through for what could be tidied.
SETTINGS = ("listen_addresses=", "max_connections=100", "timezone=UTC", "autovacuum=off")
COPIED = "STRATEGY file_copy"  # by pages through the log it takes twice the work
UNTIL_WE_END = ("sh", "-c", '"$@" & read -r _; kill -QUIT $!; wait; rm -rf "$3"', "sh")  # even where we are killed
NUMBERS = count()


def programs(installed_alone: bool = False) -> Path | None:
    """The folder that has bin/postgres and its libraries beside it. `installed_alone`: of the operating system, for
    pgserver's was made without TLS.
    """
    package = importlib.util.find_spec("pgserver")
    if package and package.origin and not installed_alone:
        return Path(package.origin).parent / "pginstall"
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parents[1] if installed else None


class Server:
    """Listens on a socket in a folder of its own and nowhere else."""

    port = 5432  # which names the socket

    def __init__(self, settings: tuple[str, ...] = UNSAFE_BUT_FAST, source: Path | None = None) -> None:
        source = source or programs()
        assert source is not None
        self.folder = Path(tempfile.mkdtemp(prefix="dpserve-pg-"))
        self.owner, self.process = os.getpid(), None
        atexit.register(self.stop)
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.bin = self._reachable(source) / "bin"
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        options = [f"unix_socket_directories={self.folder}", *SETTINGS, *settings, *self.prepare()]
        command = [self.bin / "postgres", "-D", self.data, *(part for each in options for part in ("-c", each))]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen([*UNTIL_WE_END, *command], stdout=log, **pipes, **self._as_user())
        self._wait()

    def prepare(self) -> tuple[str, ...]:
        """What is done before the first start; further settings."""
        return ()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _reachable(self, source: Path) -> Path:
        """The programs where the server's user can run them: a virtual environment may lie where only root looks."""
        if self.user is None or source.is_relative_to("/usr"):
            return source
        package = source.parent
        for folder in (package, package.with_name(package.name + ".libs")):
            shutil.copytree(folder, self.folder / folder.name, ignore=shutil.ignore_patterns("include"))
        return self.folder / package.name / source.name

    def _as_user(self) -> dict:
        if self.user is None:
            return {"cwd": self.folder}
        os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        return {"cwd": self.folder, "user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments) -> None:
        done = subprocess.run([self.bin / program, *arguments], capture_output=True, text=True, **self._as_user())
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                return self.execute("SELECT 1")
            except self.unreachable:
                time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    @property
    def unreachable(self) -> type[Exception]:
        import psycopg

        return psycopg.OperationalError

    def execute(self, statement: str, database: str = "postgres") -> None:
        """One statement, as the superuser."""
        import psycopg

        where = {"host": str(self.folder), "port": self.port, "user": "postgres"}
        with psycopg.connect(**where, dbname=database, autocommit=True) as connection:
            connection.execute(statement)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def fresh(self) -> str:
        """The URL of a new and empty database."""
        name = f"ledger_{next(NUMBERS)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 {COPIED}")
        return self.url(name)

    def copy(self, database: str) -> str:
        """The URL of a copy. Nobody may be connected."""
        name = f"copy_{next(NUMBERS)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {database} {COPIED}")
        return self.url(name)

    def stop(self) -> None:
        if self.owner != os.getpid():  # a forked child must not stop its parent's server
            return
        if self.process:
            self.process.communicate(timeout=300)
        shutil.rmtree(self.folder, ignore_errors=True)


@lru_cache
def server() -> Server:
    """This process's server."""
    if programs() is None or importlib.util.find_spec("psycopg") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        pytest.skip(f"postgresql: no pgserver or psycopg for Python {version}, and no server is installed")
    return Server()


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request, tmp_path) -> str:
    """An empty database of either kind."""
    return f"sqlite:///{tmp_path / 'ledger.db'}" if request.param == "sqlite" else server().fresh()


@pytest.fixture(params=["sqlite", "postgresql"])
def begun(request, tmp_path) -> Callable[[Registration], Home]:
    """Of a registration: a home with that dataset, whose ledger is in a database of either kind."""
    import ledgers  # of ours: after the environment was fenced

    return lambda first: ledgers.begun(tmp_path / "home", first, request.param)
