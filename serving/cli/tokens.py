"""Commands about access tokens: their limits, and the trail of what they asked for."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.tokens import Limits, Token, revoke, tokens
from serving.cli.terminal import Json, aligned, note, show
from serving.process.access_log import lines
from serving.process.tokens import new_token

Name = Annotated[str, typer.Option(help="Whose.")]


def create_token(
    name: Annotated[str, typer.Option(help="Who gets it.")],
    scope: Annotated[list[str], typer.Option(help="predict, train, audit or admin. Repeatable.")],
    per_second: Annotated[int | None, typer.Option(help="At most so many requests in a second.")] = None,
    per_day: Annotated[int | None, typer.Option(help="At most so many requests in a day (UTC).")] = None,
    json: Json = False,
) -> None:
    """Make a token. It is printed once; the ledger keeps its hash, and its limits.

    \b
    dpserve token create --scope predict --name shop
    dpserve token create --scope predict --name partner --per-second 20 --per-day 100000
    """
    secret, token = new_token(Home.open(), name, scope, Limits(per_second, per_day))
    show(json, {"token": secret, **token.to_json()}, secret)
    limits = f", at most {_limits(token)}" if token.limits else ""
    note(f"Token of {name} for {', '.join(token.scopes)}{limits}: printed once, not kept.")


def _limits(token: Token) -> str:
    return ", ".join(f"{most} {name.replace('_', ' ')}" for name, most in token.limits.to_json().items())


def revoke_token(name: Name, json: Json = False) -> None:
    """End a token. Running servers refuse it within a second.

    \b
    dpserve token revoke --name shop
    """
    token = revoke(Home.open().ledger, name)
    show(json, token.to_json(), f"token of {name} revoked, entry {token.revoked}")


def list_tokens(json: Json = False) -> None:
    """List the tokens there ever were.

    \b
    dpserve token list
    """
    issued = tokens(Home.open().ledger)
    rows = [("NAME", "SCOPES", "LIMITS", "STATE")]
    rows += [(t.name, ",".join(t.scopes), _limits(t), "good" if t.revoked is None else "revoked") for t in issued]
    show(json, {"tokens": [token.to_json() for token in issued]}, aligned(rows))


def show_trail(
    name: Annotated[str | None, typer.Option(help="Only what this token asked for.")] = None,
    last: Annotated[int, typer.Option(help="So many requests, the newest.", min=1)] = 50,
    json: Json = False,
) -> None:
    """Show who asked for what: the newest requests, the newest last. The file is logs/access.jsonl of the home.

    \b
    dpserve token trail --name shop --last 20
    """
    requests = (line for line in lines(Home.open().path) if name is None or line.get("token") == name)
    newest = list(islice(requests, last))[::-1]
    rows = [("TIME", "TOKEN", "STATUS", "REQUEST", "ABOUT")]
    for line in newest:
        cell = {field: "-" if value is None else value for field, value in line.items()}
        rows.append((cell["time"], cell["token"], cell["status"], f"{cell['method']} {cell['route']}", cell["about"]))
    show(json, {"requests": newest}, aligned(rows))
