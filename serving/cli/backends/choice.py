"""Whom a command asks: the home of this machine, or a server. Chosen here, and nowhere else.

DPSERVE_URL names a server; else DPSERVE_HOME a home; else who is logged in (`dpserve login`) asks that server; else the
home in its usual place. DPSERVE_URL and DPSERVE_HOME together are refused: one of them is not meant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType

from accountant.errors import InputError
from serving.process.workers.loading import loading

URL, TOKEN, AUTHORITY, PLAIN = "DPSERVE_URL", "DPSERVE_TOKEN", "DPSERVE_CA", "DPSERVE_PLAIN_HTTP"
LOGIN = "login.json"


class Needs(Enum):
    """What a command needs: a home, a home or a server, or neither."""

    HOME = "home"
    EITHER = "either"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Server:
    """A server to ask. `authority`: a file of certificates to trust beside none of the system's; `source`: what named
    it."""

    url: str
    token: str | None
    authority: str | None
    source: str


def told(switch: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable that is a switch is on."""
    return environment.get(switch) == "1"


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's login and the keys that were pinned are kept, 0700."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(base) / "dpserve"


def server(environment: Mapping[str, str] = os.environ) -> Server | None:
    """The server that commands ask; None where they open a home. InputError where the login cannot be read."""
    url, token = environment.get(URL) or None, environment.get(TOKEN)  # blank is not set
    if url is None and environment.get("DPSERVE_HOME"):
        return None
    kept = _login(environment)
    if url is None and kept is None:
        return None
    own = kept if kept is not None and (url is None or url.rstrip("/") == kept["url"]) else {}
    authority = environment.get(AUTHORITY) or own.get("authority")
    return Server(
        (url or own["url"]).rstrip("/"), token or own.get("token"), authority, URL if url else "dpserve login"
    )


def _login(environment: Mapping[str, str]) -> dict[str, str] | None:
    """What `dpserve login` kept. It holds a token, so it must be nobody else's to read."""
    file = config_folder(environment) / LOGIN
    try:
        if file.stat().st_mode & 0o077:
            raise InputError(
                f"{file}: must have none of the bits 077, for it holds a token; dpserve login makes it anew"
            )
        found: dict[str, str] = json.loads(file.read_text("utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("url"), str):
            raise ValueError("no login")
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({type(error).__name__}); dpserve logout removes it") from None


def kept_login() -> dict[str, str]:
    """What `dpserve login` kept of the server that is asked; nothing where it asks another one."""
    found, kept = server(), _login(os.environ)
    return kept if found is not None and kept is not None and kept["url"] == found.url else {}


def check_needs(command: str, needs: Needs, instead: str) -> None:
    """InputError where a command that needs a home would ask a server; says what to do `instead`."""
    if needs is Needs.NOTHING:
        return
    asked, both = server(), bool(os.environ.get(URL) and os.environ.get("DPSERVE_HOME"))
    if needs is Needs.EITHER and both:
        raise InputError(
            f"{URL}, DPSERVE_HOME: both are set, and only one is meant: {command} with the home: unset {URL}; with the "
            "server: unset DPSERVE_HOME"
        )
    if needs is Needs.HOME and asked is not None and not both:
        leave = f"unset {URL}" if asked.source == URL else "dpserve logout, or set DPSERVE_HOME"
        raise InputError(
            f"{command}: works where the home is, and {asked.source} names the server {asked.url}. "
            f"{instead or 'Ask whoever runs it'}; to use a home of this machine: {leave}"
        )


def side(name: str) -> ModuleType:
    """The module that does what the commands of that name ask for: with a home, or by asking a server."""
    with loading():
        return import_module(f"serving.cli.backends.{'home' if server() is None else 'server'}.{name}")
