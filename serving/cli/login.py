"""`dpserve login` and `logout`: which server commands ask, and as whom, until told otherwise."""

from __future__ import annotations

import getpass
import os
import sys
from json import dumps as as_text
from pathlib import Path
from typing import Annotated, Any

import typer

from dpserve_verify.errors import InputError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.system.files import PRIVATE, replace_file
from serving.cli.backends.choice import AUTHORITY, LOGIN, TOKEN, WITNESSES, ServerAddress, config_folder
from serving.cli.backends.server.connection import Connection, check_address, sign_in
from serving.cli.backends.server.pins import key_names
from serving.cli.terminal import Json, align_columns, note, show


def login(
    url: Annotated[str, typer.Argument(help="Where the server is, https://dp.example.org for instance.")],
    trust: Annotated[
        Path | None, typer.Option(help="Its trust.json, which came another way; on first use its own when left out.")
    ] = None,
    witnesses: Annotated[
        Path | None, typer.Option(help="Whose cosignatures its ledger must show, from now on: a C2SP tlog-policy.")
    ] = None,
    sso: Annotated[bool, typer.Option("--sso", help="Sign in with the provider that the server names.")] = False,
    json: Json = False,
) -> None:
    """Ask a server from now on. The token is asked for without echo, or read from stdin, and kept for you alone.

    DPSERVE_CA names the file of a certificate authority of your own. The server's keys are pinned, and the last
    checkpoint of its ledger is kept: at each contact the ledger must continue it.

    \b
    dpserve login https://dp.example.org
    dpserve login https://dp.example.org --trust trust.json < token.txt
    dpserve login https://dp.example.org --sso
    """
    url, authority = url.rstrip("/"), os.environ.get(AUTHORITY)
    try:
        pinned = None if trust is None else PublicKeys.from_json(trust.read_bytes())
    except OSError as error:
        raise InputError(f"trust={trust}: cannot be read ({error.strerror})") from None
    check_address(url)
    settings: dict[str, Any] = {"url": url} | ({"authority": str(Path(authority).absolute())} if authority else {})
    if sso:
        settings |= sign_in(url, authority, note)
    else:
        typed = os.environ.get(TOKEN) or (getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline())
        settings["token"] = typed.strip()
    settings |= {"witnesses": str(witnesses.absolute())} if witnesses else {}
    policy = settings.get("witnesses") or os.environ.get(WITNESSES)
    connection = Connection(ServerAddress(url, settings["token"], authority, "dpserve login", policy), note)
    with connection.open_client() as service:
        keys = connection.pins.check(service, pinned)  # the token is tried before anything of it is kept
    folder = config_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(folder / LOGIN, as_text(settings).encode(), PRIVATE)
    lines = [("server", url), *(("key", name) for name in key_names(keys)), ("kept in", folder / LOGIN)]
    show(json, {"url": url, "keys": key_names(keys), "file": str(folder / LOGIN)}, align_columns(lines))


def logout(json: Json = False) -> None:
    """Log out: the token is removed from this computer. The keys that were pinned stay.

    The token itself is good until it is ended where it was made (`dpserve token revoke`).

    \b
    dpserve logout
    """
    file = config_folder() / LOGIN
    was = file.exists()
    file.unlink(missing_ok=True)
    show(json, {"was": was, "file": str(file)}, f"{file} removed" if was else "nobody was logged in")
