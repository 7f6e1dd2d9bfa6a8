"""A home with the first rows of Adult in it, and a real server over it: what the tests of the doors have in common."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow.parquet as pq
import warm
from homes import unknown_files

from accountant.access.tokens import SCOPES
from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from serving.process.tokens import new_token

Process = subprocess.Popen[bytes] | warm.Popen
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data"
ROWS = 2000
PATIENCE = 120.0  # seconds: a way out and not a claim, however busy the machine is


def write_files(folder: Path) -> Path:
    """rows.parquet and schema.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pq.read_table(DATA / "adult_train.parquet").slice(0, ROWS), folder / "rows.parquet")
    text = (DATA / "adult.schema.yaml").read_text()
    (folder / "schema.yaml").write_text(text.replace("records: 32561", f"records: {ROWS}"))
    return folder


def adult_home(folder: Path, epsilon: int, holdout: Decimal | None = None) -> Home:
    """Make `folder`/home with those rows registered as `adult`, of this epsilon and a delta of 1e-5."""
    from training.datasets.datasets import register

    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    total = Budget.of(epsilon, "1e-5")
    register(
        home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None, holdout=holdout
    )
    return home


def records(count: int) -> list[dict[str, Any]]:
    """Rows of Adult's test file, as a client would send them."""
    return pq.read_table(DATA / "adult_test.parquet").slice(0, count).drop_columns(["income"]).to_pylist()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("BENTOML_HOME", "PROMETHEUS_MULTIPROC_DIR")
    }
    own = {"DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    own |= {"DPSERVE_AUDIT_SECONDS": "0", "DPSERVE_DRAIN_SECONDS": "0"}  # no audit but where one is asked for
    return {**kept, **own, **more}


def dpserve(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which is a fork of a warm one."""
    command = [*warm.python(), "-m", "serving.cli", *arguments]
    return subprocess.run(command, env=environment(home), cwd=home.parent, capture_output=True, text=True, timeout=300)


@cache
def client() -> httpx.Client:
    """For any address. To make one reads the system's certificates: that is 23 ms of a processor. Each request has a
    connection of its own, so that any worker of a server may take it, and brings no cookie but those that it names.
    """
    none = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), cookies=none)


def until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until it holds; fails after `seconds`, which is a way out and not a claim. What is waited for for long is
    looked for less often, for each look takes processors from it.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < seconds:
        found = holds()
        if found:
            return found
        time.sleep(min(max(0.05, waited / 20), 0.5))
    raise AssertionError(f"waited in vain: {what}")


def of_every_worker(holds: Callable[[], Any], what: str) -> None:
    """Wait until it holds for a second on end, in which every worker looks at the home twice: one that is idle may take
    all of eight requests that follow one another at once.
    """
    until(lambda: all(holds() and time.sleep(0.125) is None for _ in range(8)), what)


@dataclass
class Server:
    """A running server, and a token of each scope."""

    path: Path
    port: int
    process: Process
    log: Path
    tokens: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)  # in its environment

    @property
    def home(self) -> Home:
        return Home.open({**self.given, "DPSERVE_HOME": str(self.path)})

    def ask(self, method: str, path: str, scope: str | None = "admin", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[scope]}"} if scope else {}
        headers |= more.pop("headers", {})
        url = f"http://127.0.0.1:{self.port}{path}"
        return client().request(method, url, headers=headers, timeout=PATIENCE, **more)

    def ask_again(self, method: str, path: str, **more: Any) -> httpx.Response:
        """As `ask`, for what changes nothing: where a busy server had no time for it, once more, as it says."""
        end = time.monotonic() + PATIENCE
        while (answer := self.ask(method, path, **more)).status_code == 504 and time.monotonic() < end:
            pass
        return answer

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.ask("POST", path, json=body, **more)

    def jobs(self) -> list[dict[str, Any]]:
        """The newest jobs, the newest first."""
        found: list[dict[str, Any]] = self.get("/v1/jobs").json()["jobs"]
        return found

    def predict(self, model: str = "adult", count: int = 1) -> httpx.Response:
        return self.post("/predict", {"model": model, "records": records(count)})

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return self.get("/readyz", scope=None).status_code == 200
        return False

    def processes(self, name: str) -> list[psutil.Process]:
        """Those that it started, of one name: dpserve-serving, dpserve-train, dpserve-prices, dpserve-audit."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if child.name() == name else []
        return found

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def running(
    home: Path, command: list[str], port: int, cwd: Path, start: type[Process] = subprocess.Popen, **more: str
) -> Iterator[Server]:
    """The command as a server over the home, from ready to stopped."""
    log, here = home / "server.log", Home.open({**more, "DPSERVE_HOME": str(home)})
    tokens = {scope: new_token(here, f"{scope}-{port}", [scope])[0] for scope in SCOPES}
    with log.open("wb") as out:
        process = start(command, cwd=cwd, env=environment(home, **more), stdout=out, stderr=out)
    server = Server(home, port, process, log, tokens, more)
    try:
        until(server.ready, "the server is ready")
        yield server
    finally:
        try:
            server.stop()
        except subprocess.TimeoutExpired:
            process.kill()
    assert unknown_files(home) == []


def serving(
    home: Path, workers: int = 2, own_time: bool = False, **more: str
) -> contextlib.AbstractContextManager[Server]:
    """`dpserve serve` as a fork of the warm process, unless it is given what only the start of a process looks at. It
    works as long for a request as a busy machine may need, unless it keeps its `own_time`.
    """
    port = free_port()
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", str(workers)]
    start = subprocess.Popen if {"LD_PRELOAD", "PYTHONPATH"} & more.keys() else warm.Popen
    if start is warm.Popen and not own_time:
        more[warm.WORK_SECONDS] = str(PATIENCE / 2)
    return running(home, command, port, home.parent, start, **more)
