"""Commands of the operator: keys and tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.home import Home
from serving.terminal import Json, aligned, note, show

key = typer.Typer(help="The keys that sign.", no_args_is_help=True)
token = typer.Typer(help="Tokens for the service.", no_args_is_help=True)


@key.command("list")
def list_keys(json: Json = False) -> None:
    """List the public keys, and which entries they may speak for.

    \b
    dpserve key list
    """
    from accountant.keys import fingerprint

    trust = Home.open().trust
    log = {"role": "log", "keyid": fingerprint(trust.log_key), "from_index": 0, "until_index": None}
    issuers = [{"role": "issuer", **issuer.to_value()} for issuer in trust.issuers]
    found: list[dict[str, Any]] = [{**log, "pem": trust.log_pem}, *issuers]
    columns = ("role", "keyid", "from_index", "until_index")
    rows = [tuple(name.upper() for name in columns), *(tuple(line[name] for name in columns) for line in found)]
    show(
        json,
        {"origin": trust.origin, "keys": found},
        aligned([tuple("" if c is None else c for c in row) for row in rows]),
    )


@token.command("create")
def create_token(
    name: Annotated[str, typer.Option(help="Who gets it.")],
    scope: Annotated[list[str], typer.Option(help="predict, train, audit or admin. Repeatable.")],
    json: Json = False,
) -> None:
    """Make a token. It is printed once; the ledger keeps its hash.

    \b
    dpserve token create --scope predict --name shop
    """
    from serving.tokens import new_token

    secret, found = new_token(Home.open(), name, scope)
    show(json, {"token": secret, **found.to_json()}, secret)
    note(f"Token of {name} for {', '.join(found.scopes)}: printed once, not kept.")


@token.command("revoke")
def revoke_token(name: Annotated[str, typer.Option(help="Whose.")], json: Json = False) -> None:
    """End a token. Running servers refuse it within a second.

    \b
    dpserve token revoke --name shop
    """
    from accountant.tokens import revoke

    found = revoke(Home.open().ledger, name)
    show(json, found.to_json(), f"token of {name} revoked, entry {found.revoked}")


@token.command("list")
def list_tokens(json: Json = False) -> None:
    """List the tokens there ever were.

    \b
    dpserve token list
    """
    from accountant.tokens import tokens

    found = tokens(Home.open().ledger)
    rows = [
        ("NAME", "SCOPES", "STATE"),
        *((t.name, ",".join(t.scopes), "good" if t.revoked is None else "revoked") for t in found),
    ]
    show(json, {"tokens": [each.to_json() for each in found]}, aligned(rows))
