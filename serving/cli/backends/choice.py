"""Which backend a command asks, by the environment and by `dpserve login`.

DPSERVE_URL names a server; else DPSERVE_HOME a home; else who is logged in (`dpserve login`) asks that server; else the
home in its usual place. DPSERVE_URL and DPSERVE_HOME together are refused: one of them is not meant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.system.user_folder import user_folder

URL, TOKEN, AUTHORITY, PLAIN = "DPSERVE_URL", "DPSERVE_TOKEN", "DPSERVE_CA", "DPSERVE_PLAIN_HTTP"
WITNESSES = "DPSERVE_WITNESS_POLICY"
LOGIN = "login.json"


class Needs(Enum):
    """What a command needs: a home, a home or a server, or neither."""

    HOME = "home"
    EITHER = "either"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ServerAddress:
    """A server to ask.

    url: Where it is, without a slash at the end.
    token: What opens it; None where none is set.
    authority: A file of certificates to trust in place of the system's.
    source: What named the server: a variable or `dpserve login`.
    witnesses: A file that says whose cosignatures its ledger must show.
    session: How a new token is had where that is of single sign-on, as `dpserve.sso.Session` has it.
    """

    url: str
    token: str | None
    authority: str | None
    source: str
    witnesses: str | None = None
    session: Mapping[str, str] | None = None


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's login and pinned keys, 0700."""
    return user_folder("XDG_CONFIG_HOME", ".config", environment) / "dpserve"


def server_address(environment: Mapping[str, str] = os.environ) -> ServerAddress | None:
    """Return the server that commands ask; None where they open a home. Raises InputError for a login that cannot be
    read.
    """
    url, token = environment.get(URL) or None, environment.get(TOKEN)  # blank is not set
    if url is None and environment.get("DPSERVE_HOME"):
        return None
    login = _read_login(environment)
    if url is None and login is None:
        return None
    stored = login if login is not None and (url is None or url.rstrip("/") == login["url"]) else {}
    return ServerAddress(
        (url or stored["url"]).rstrip("/"),
        token or stored.get("token"),
        environment.get(AUTHORITY) or stored.get("authority"),
        URL if url else "dpserve login",
        environment.get(WITNESSES) or stored.get("witnesses"),
        None if token else stored.get("session"),
    )


def _read_login(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Read what `dpserve login` wrote. It holds a token, so nobody else may be able to read it."""
    try:
        file = config_folder(environment) / LOGIN
    except InputError:  # who has no home has no login
        return None
    try:
        if file.stat().st_mode & 0o077:
            raise InputError(
                f"{file}: must have none of the bits 077, for it holds a token; dpserve login makes it anew"
            )
        login: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if not isinstance(login, dict) or not isinstance(login.get("url"), str):
            raise ValueError("no login")
        return login
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({type(error).__name__}); dpserve logout removes it") from None


def check_needs(command: str, needs: Needs, instead: str) -> None:
    """Raise InputError where a command that needs a home would ask a server; it says what to do `instead`."""
    if needs is Needs.NOTHING:
        return
    address, both = server_address(), bool(os.environ.get(URL) and os.environ.get("DPSERVE_HOME"))
    if needs is Needs.EITHER and both:
        raise InputError(
            f"{URL}, DPSERVE_HOME: both are set, and only one is meant: {command} with the home: unset {URL}; with the "
            "server: unset DPSERVE_HOME"
        )
    if needs is Needs.HOME and address is not None and not both:
        leave = f"unset {URL}" if address.source == URL else "dpserve logout, or set DPSERVE_HOME"
        raise InputError(
            f"{command}: works where the home is, and {address.source} names the server {address.url}. "
            f"{instead or 'Ask whoever runs it'}; to use a home of this machine: {leave}"
        )
