"""A server asked on behalf of a command: by https with a token that goes nowhere else, and its refusals as our errors.

What a server refuses is raised as the very error that a home would raise, so that hints, JSON and exit codes are the
same.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from traceback import format_exception
from typing import Any
from urllib.parse import urlsplit

from accountant import errors
from accountant.errors import DpserveError, Forbidden, InputError, JobFailed
from dpserve import Client, ServiceError
from dpserve.transport import bare
from serving.cli.backends.choice import AUTHORITY, PLAIN, TOKEN, URL, Server, server, told
from serving.cli.backends.server.pins import has_pinned, pinned
from serving.cli.terminal import note

RETRIES = 3  # somebody sits and waits
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DpserveError)]
BY_CODE = {kind.code: kind for kind in KINDS} | {"job_burned": JobFailed, "job_released": errors.WrongState}
LATER = (408, 429)


@contextmanager
def asking() -> Iterator[Client]:
    """The server that is asked. What it refuses is raised as an error of ours. Where its keys were pinned, they must
    be the same, and its ledger must continue what was seen of it.
    """
    found = server()
    if found is None:
        raise InputError(f"{URL}: names no server")
    with connected(found) as service:
        if has_pinned():
            pinned(service)  # before anything of it is believed
        yield service


@contextmanager
def connected(to: Server) -> Iterator[Client]:
    """As `asking`, of this server. InputError where its address or its token cannot be used."""
    check_address(to.url)
    if not to.token:
        raise InputError(f"{TOKEN}: must be set for {to.url}, or log in: dpserve login {to.url}")
    try:
        bare(to.token)
    except ValueError as error:
        raise InputError(f"{TOKEN}: {error}") from None
    try:
        trust = ssl.create_default_context(cafile=to.authority) if to.authority else True
    except OSError as error:  # ssl's own among them
        raise InputError(
            f"{AUTHORITY}={to.authority}: cannot be read as certificates ({type(error).__name__})"
        ) from None
    plain = urlsplit(to.url).scheme == "http"  # which passes no proxy: it would read the token
    try:
        with Client(to.url, to.token, retries=RETRIES, trust_env=not plain, verify=trust) as service:
            yield service
    except ServiceError as error:
        raise _as_ours(error, to) from None


def check_address(url: str) -> None:
    """InputError unless it is https without a name or a password in it, or plain http to this machine alone."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{URL}={parts.hostname or url[:80]!r}: must be an address like https://dp.example.org")
    if "@" in parts.netloc:
        raise InputError(f"{URL}: must not hold a name or a password; the token comes from {TOKEN} or dpserve login")
    here = parts.hostname == "localhost"
    with suppress(ValueError):
        here = ip_address(parts.hostname).is_loopback
    if parts.scheme == "http" and not here and not told(PLAIN):
        raise InputError(
            f"{URL}={url}: by http anybody on the way could read the token; use https, or set {PLAIN}=1 where the "
            "network is yours alone"
        )


def _as_ours(error: ServiceError, to: Server) -> DpserveError:
    """The error that a home would have raised; one of the same exit code where only a server has it."""
    message = error.message
    if error.status == 0 and error.code == "unreachable":
        message = f"{to.url}: {message}"
        if any("CERTIFICATE_VERIFY_FAILED" in line for line in format_exception(error)):
            message = f"{to.url}: its certificate is not one to trust; {AUTHORITY} names the file of its authority"
    if error.status == 401:
        message = f"{to.url}: the token is not good there (any more); dpserve login {to.url}"
    usual = (
        Forbidden
        if error.status in (401, 403)
        else InputError
        if 300 <= error.status < 500 and error.status not in LATER
        else DpserveError
    )
    ours = BY_CODE.get(error.code, usual)(message)
    ours.code, ours.details = error.code, error.details
    return ours


def finished(service: Client, number: int, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """A job, once it is over and all is well; JobFailed else. Who interrupts stops waiting, and not the job."""
    try:
        made = service.wait(number, *(() if progress is None else (progress,)))
    except KeyboardInterrupt:
        note(f"job {number} goes on at the server: dpserve job watch {number}; dpserve job cancel {number}")
        raise
    return dict(made.raw)
