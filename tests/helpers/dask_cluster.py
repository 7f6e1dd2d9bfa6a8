"""A cluster as an operator starts it: `dask scheduler` and `dask worker`, real processes on the loopback interface."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROCESS = Path(__file__).with_name("dask_process.py")
LIMIT_SECONDS = 120  # until it is said that something did not come


class DaskCluster:
    """One scheduler, and workers of one thread each. `tls`: options that name certificates. What it wrote is in `log`.

    Used as a context, at whose end every process of it is gone.
    """

    def __init__(self, folder: Path, workers: int = 2, tls: Sequence[str] = (), memory: str = "0") -> None:
        self.folder, self._tls, self._memory = folder, [*tls], memory
        self.log, self._file = folder / "cluster.log", folder / "scheduler.json"
        self._processes: list[psutil.Process] = []
        self._workers, self._protocol = workers, ["--protocol", "tls"] if tls else []

    def __enter__(self) -> DaskCluster:
        try:
            listen = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self._file)]
            self.scheduler = self._start("scheduler", *listen, *self._protocol)
            until(lambda: self._file.exists() and self._file.read_text().endswith("}"), "the scheduler listens", self)
            self.contact = json.loads(self._file.read_text())["address"]
            self.more(self._workers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def more(self, workers: int) -> None:
        """Start so many workers, each with a nanny, and wait until the scheduler knows them."""
        known = self._registered()
        self._start(
            "worker", self.contact, "--nworkers", str(workers), "--nthreads", "1", "--memory-limit", self._memory,
            "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(self.folder), *self._protocol,
        )  # fmt: skip
        until(lambda: self._registered() >= known + workers, "the workers are there", self)

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """A worker more, with a nanny, which are gone afterwards."""
        self.more(1)
        try:
            yield
        finally:
            _end([self._processes.pop()])

    @property
    def address(self) -> str:
        """As DPSERVE_ENGINE names it."""
        return self.contact.replace("tcp://", "dask://")

    def _registered(self) -> int:
        return self.log.read_text().count("Registered to:")

    @property
    def processes(self) -> list[psutil.Process]:
        """All of it."""
        return [each for process in self._processes for each in (process, *_below(process))]

    def workers(self) -> list[int]:
        """Process ids of the workers that live: what the nannies started to work."""
        below = [child for nanny in self._processes[1:] for child in _below(nanny)]
        return sorted(child.pid for child in below if "spawn_main" in _words(child))

    def _start(self, *words: str) -> psutil.Process:
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, str(PROCESS), str(os.getpid()), *words, *self._tls],
                stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "DPSERVE_ENGINE": "local", "PYTHONPATH": str(Path(__file__).parent)},
            )  # fmt: skip
        self._processes.append(psutil.Process(process.pid))
        return self._processes[-1]

    def __exit__(self, *_: object) -> None:
        _end(self._processes)


def _end(processes: Sequence[psutil.Process]) -> None:
    every = [each for process in processes for each in (process, *_below(process))]
    for each in every:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGKILL)
    psutil.wait_procs(every, timeout=LIMIT_SECONDS)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it ended just now
        return ""


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(what: Callable[[], bool], told: str, cluster: DaskCluster) -> None:
    """Wait for it; the cluster's own words where it does not come."""
    end = time.monotonic() + LIMIT_SECONDS
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"{told}: not within {LIMIT_SECONDS} s\n{cluster.log.read_text()[-4000:]}")
        time.sleep(0.05)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, for everybody of a cluster, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cluster")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "cert.pem", folder / "key.pem"
