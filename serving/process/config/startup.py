"""Checks before anything is served. Each check fails closed, with a message that says what to do. Then a line that says
when the server is ready, and where.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from accountant.home import local
from accountant.system import extensions
from accountant.system.lazy_import import require
from accountant.system.machine import processors
from dpserve_verify.errors import InputError
from serving.process.config.healthy import is_ready

LOG = logging.getLogger("dpserve.launch")
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
LOOK_SECONDS = 1.0  # for an answer
HOST, PORT, AUDIT_SECONDS, DRAIN_SECONDS, JOB_WORKERS = (
    "127.0.0.1",
    3000,
    3600,
    2,
    1,
)  # of `dpserve serve`; its flags show them
SERVER_BYTES, SERVING_BYTES, TRAINING_BYTES = 128 << 20, 64 << 20, 128 << 20  # of all processes, one, a job's beside
SHARED, OWN = ("models", "jobs"), ("logs", "run")
CERTIFICATE_END = "DPSERVE_CERTIFICATE_END"  # of the one that this process serves, for its metrics


@dataclass(frozen=True)
class Tls:
    """A certificate chain and its private key, both PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Listening:
    """Where the server listens, with how many processes, under which certificate. `grpc`: the port of gRPC; 0: none."""

    host: str
    port: int
    workers: int | None = None
    tls: Tls | None = None
    grpc: int = 0

    @property
    def url(self) -> str:
        """Return the address where a browser finds the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"


def pair_tls(certificate: Path | None, key: Path | None) -> Tls | None:
    """Return both or None. Raises InputError for one alone."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("--tls-cert, --tls-key: must be given both, or neither")
    return Tls(certificate.absolute(), key.absolute())


def fit_workers(workers: int | None, job_workers: int, memory: int) -> int:
    """Return the number of serving processes: what was asked for, else one a processor, as far as the memory goes.
    InputError where it does not go so far. `memory`: in bytes.
    """
    fit = (memory - SERVER_BYTES - TRAINING_BYTES * job_workers) // SERVING_BYTES
    needed = SERVER_BYTES + TRAINING_BYTES * job_workers + SERVING_BYTES * (workers or 1)
    if needed > memory:
        remedy = f"take --workers {fit}" if fit > 0 else "give it more, or run the jobs elsewhere (--job-workers 0)"
        raise InputError(
            f"memory: {workers or 1} serving processes and {job_workers} training workers take {needed >> 20} MiB, and "
            f"there are {memory >> 20}: {remedy}"
        )
    return workers or min(processors(), fit)


def check_place(path: Path) -> None:
    """Check that nobody else can enter the home. A folder that is not there yet will be made so."""
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        mode = stat.S_IMODE(path.stat().st_mode)
        raise InputError(f"home={path}: others may enter it (mode {mode:04o}); chmod 700, or name a folder inside it")


def check_home(path: Path) -> None:
    """Check that the home's folders, and this machine's own, can be read and written, whatever the keys and the ledger
    say, and that no extension is missing that something in it needs. Makes those that are absent, but for `datasets/`:
    rows may be kept where jobs run.
    """
    for name, extension in extensions.EXTENSIONS.items():
        if extension.keeps and not extensions.is_installed(name) and any(path.glob(extension.keeps)):
            raise extensions.absence(name)
    machine_folder = local(path)
    machine_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = (*SHARED, "datasets") if (path / "datasets").exists() else SHARED
    for place, name in [*((path, name) for name in shared), *((machine_folder, name) for name in OWN)]:
        (place / name).mkdir(mode=0o700, exist_ok=True)
        if not os.access(place / name, os.R_OK | os.W_OK | os.X_OK):
            raise InputError(f"home={place}: {name}/ must be readable and writable for the user that serves")
    for place in {path, machine_folder}:
        if not os.statvfs(place).f_bavail:
            raise InputError(f"home={place}: no space is left there; nothing could be recorded")


def check_listening(listening: Listening, is_left: Callable[[], bool] = lambda: False) -> None:
    """Check that the address is this machine's, the port is free, and certificate and key are a pair that is good
    today. `is_left`: whether a port that is taken was left for this server.
    """
    if listening.tls is not None:
        _check_tls(listening.tls)
    try:
        ipaddress.ip_address(listening.host)
    except ValueError:
        raise InputError(
            f"host={listening.host}: must be an IP address of this machine, as 127.0.0.1 or 0.0.0.0"
        ) from None
    if listening.grpc:
        require("grpc")
        if listening.grpc == listening.port:
            raise InputError(f"--grpc={listening.grpc}: must be another port than --port")
    if not is_left():
        bind_socket(listening).close()
        if listening.grpc:
            bind_socket(replace(listening, port=listening.grpc), "--grpc").close()


def bind_socket(listening: Listening, flag: str = "--port") -> socket.socket:
    """Bind a socket to the address; it does not listen yet. Raises InputError where the address cannot be had."""
    family = socket.AF_INET if ipaddress.ip_address(listening.host).version == 4 else socket.AF_INET6
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what is being closed is free
    try:
        listener.bind((listening.host, listening.port))
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError):
            raise InputError(f"port={listening.port}: not allowed to this user; take one from 1024 on") from None
        why = (
            f"port={listening.port}: cannot be listened on at {listening.host} ({error.strerror}); take another {flag}"
        )
        raise InputError(why) from None
    return listener


def _check_tls(tls: Tls) -> None:
    for flag, path in (("--tls-cert", tls.certificate), ("--tls-key", tls.key)):
        if not path.is_file() or not os.access(path, os.R_OK):
            raise InputError(f"{flag}={path}: must be a file that can be read")
    if stat.S_IMODE(tls.key.stat().st_mode) & 0o007:
        raise InputError(f"--tls-key={tls.key}: must not be readable by others; chmod 600")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key, password="")  # or it would ask on the terminal
        certificate = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        raise InputError(
            f"--tls-cert={tls.certificate}, --tls-key={tls.key}: must be a PEM certificate and its key without a "
            f"passphrase ({reason})"
        ) from None
    if not certificate.not_valid_before_utc <= datetime.now(UTC) < certificate.not_valid_after_utc:
        raise InputError(
            f"--tls-cert={tls.certificate}: is good from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}, not today; renew it"
        )


def certificate_end(tls: Tls) -> float:
    """Return when the certificate ends, in seconds since 1970."""
    return x509.load_pem_x509_certificate(tls.certificate.read_bytes()).not_valid_after_utc.timestamp()


def log_when_ready(listening: Listening) -> bool:
    """Return whether /readyz answers 200, and log it where it does."""
    host = EVERYWHERE.get(listening.host, listening.host)
    ready = is_ready(host, listening.port, listening.tls is not None, LOOK_SECONDS)
    if ready:
        calls = f", gRPC on port {listening.grpc}" if listening.grpc else ""
        LOG.info("ready, listening on %s%s; the dashboard is at %s/ui", listening.url, calls, listening.url)
    return ready
