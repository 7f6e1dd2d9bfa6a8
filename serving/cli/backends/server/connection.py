"""A connection to a server: https, with a token that goes nowhere else. Its refusals become our errors.

What a server refuses is raised as the very error that a home would raise, so that hints, JSON and exit codes are the
same.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import format_exception
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accountant import errors
from accountant.errors import Forbidden, JobFailed
from accountant.system.bounded_http import is_this_machine
from dpserve import Client, ServiceError
from dpserve.transport import strip_token
from dpserve_verify import errors as verify_errors
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.system.files import PRIVATE, replace_file
from serving.cli.backends.abstract import Body, Note, Progress
from serving.cli.backends.choice import AUTHORITY, LOGIN, PLAIN, TOKEN, URL, ServerAddress, config_folder
from serving.cli.backends.server.pins import Pins

if TYPE_CHECKING:
    from dpserve.sso import Session

RETRIES = 3  # somebody sits and waits
KINDS = [
    kind
    for kind in (*vars(errors).values(), *vars(verify_errors).values())  # of those of one code the most general is last
    if isinstance(kind, type) and issubclass(kind, DpserveError)
]
BY_CODE = {kind.code: kind for kind in KINDS} | {"job_burned": JobFailed, "job_released": errors.WrongState}
TRY_LATER = (408, 429)


class Connection:
    """Asks one server for one command.

    Args:
        address: The server.
        note: Prints a line for the user.
    """

    def __init__(self, address: ServerAddress, note: Note) -> None:
        self.address = address
        self.note = note
        self.pins = Pins(address, note)

    @contextmanager
    def asking(self) -> Iterator[Client]:
        """Open a client. Where keys of the server were pinned, they must be the same, and its ledger must continue what
        was seen of it.

        Raises:
            DpserveError: What the server refuses, as a home would raise it.
            KeyInvalid, OtherHistory: It is not the server whose keys were pinned.
        """
        with self.open_client() as service:
            if self.pins.exist():
                self.pins.check(service)  # before anything of it is believed
            yield service

    @contextmanager
    def open_client(self) -> Iterator[Client]:
        """Open a client, as `asking`, without a look at pinned keys. Raises InputError where its address or its token
        cannot be used.
        """
        address = self.address
        check_address(address.url)
        if not address.token:
            raise InputError(f"{TOKEN}: must be set for {address.url}, or log in: dpserve login {address.url}")
        try:
            strip_token(address.token)
        except ValueError as error:
            raise InputError(f"{TOKEN}: {error}") from None
        trust = trusted(address.authority)
        plain = urlsplit(address.url).scheme == "http"  # which passes no proxy: it would read the token
        with provider_errors(address.url):
            auth = None if address.session is None else _session(address.session)
            options: dict[str, Any] = {"trust_env": not plain, "verify": trust} | ({"auth": auth} if auth else {})
        try:
            with Client(address.url, address.token, retries=RETRIES, **options) as service:
                yield service
        except ServiceError as error:
            raise error_of_home(error, address) from None

    def trusted_keys(self, service: Client) -> PublicKeys:
        """Return the keys to check by: those that were pinned, on first use those that the server names."""
        return self.pins.check(service)

    def wait_for_job(self, service: Client, number: int, progress: Progress = lambda done, total: None) -> Body:
        """Wait for a job that ends well, and return it. Raises JobFailed. Who interrupts stops waiting, not the job."""
        try:
            return dict(service.wait(number, progress).raw)
        except KeyboardInterrupt:
            self.note(f"job {number} goes on at the server: dpserve job watch {number}; dpserve job cancel {number}")
            raise


class AtServer:
    """The part of a backend for one topic, over a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection


def trusted(authority: str | None) -> ssl.SSLContext | bool:
    """Return what vouches for servers: a file of certificates, or the system. InputError where it cannot be read."""
    try:
        return ssl.create_default_context(cafile=authority) if authority else True
    except OSError as error:  # ssl's own among them
        raise InputError(f"{AUTHORITY}={authority}: cannot be read as certificates ({type(error).__name__})") from None


@contextmanager
def provider_errors(url: str) -> Iterator[None]:
    """Raise what goes wrong with single sign-on as our own error: Forbidden where the provider refuses."""
    try:
        yield
    except ServiceError as error:
        kind = Forbidden if error.status in (401, 403) else DpserveError if error.status == 0 else InputError
        raise kind(f"{url}: {error.message}; dpserve login {url} --sso") from None


def sign_in(url: str, authority: str | None, say: Note) -> dict[str, Any]:
    """Have the user sign in with the server's provider -> the token, and what renews it, as a login keeps them."""
    from dpserve import sso

    with provider_errors(url):
        session = sso.sign_in(url, say, verify=trusted(authority)).to_json()
    return {"token": session["token"], "session": session}


def _session(stored: Mapping[str, str]) -> Session:
    """Return the session of single sign-on that was stored, with a good token; a renewed one is stored."""
    from dpserve.sso import Session

    def keep(session: Session) -> None:
        file = config_folder() / LOGIN
        login = json.loads(file.read_bytes()) | {"token": session.token, "session": session.to_json()}
        replace_file(file, json.dumps(login).encode(), PRIVATE)

    session = Session(**stored, keep=keep)
    session.good_token()
    return session


def refuse_by(by: str | None) -> None:
    """Raise InputError where the user names who acts: the token says it."""
    if by is not None:
        raise InputError("by: a server enters whom the token acts for; leave it out")


def check_address(url: str) -> None:
    """Raise InputError unless it is https without a name or a password in it, or plain http to this machine alone."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{URL}={parts.hostname or url[:80]!r}: must be an address like https://dp.example.org")
    if "@" in parts.netloc:
        raise InputError(f"{URL}: must not hold a name or a password; the token comes from {TOKEN} or dpserve login")
    if parts.scheme == "http" and not is_this_machine(parts.hostname) and os.environ.get(PLAIN) != "1":
        raise InputError(
            f"{URL}={url}: by http anybody on the way could read the token; use https, or set {PLAIN}=1 where the "
            "network is yours alone"
        )


def error_of_home(error: ServiceError, address: ServerAddress) -> DpserveError:
    """Return the error that a home would have raised; one of the same exit code where only a server has it."""
    message = error.message
    if error.status == 0 and error.code == "unreachable":
        message = f"{address.url}: {message}"
        if any("CERTIFICATE_VERIFY_FAILED" in line for line in format_exception(error)):
            message = f"{address.url}: its certificate is not one to trust; {AUTHORITY} names the file of its authority"
    if error.status == 401:
        message = f"{address.url}: the token is not good there (any more); dpserve login {address.url}"
    usual = (
        Forbidden
        if error.status in (401, 403)
        else InputError
        if 300 <= error.status < 500 and error.status not in TRY_LATER
        else DpserveError
    )
    ours = BY_CODE.get(error.code, usual)(message)
    ours.code, ours.details = error.code, error.details
    return ours
