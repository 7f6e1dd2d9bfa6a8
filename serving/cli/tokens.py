"""Commands about who may ask: tokens, their limits, and the trail of what they asked for."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from accountant.home import Home
from accountant.ledger.tokens import Limits, Token, revoke, tokens
from serving.cli.terminal import Json, aligned, note, show

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
    from serving.tokens import new_token

    secret, found = new_token(Home.open(), name, scope, Limits(per_second, per_day))
    show(json, {"token": secret, **found.to_json()}, secret)
    note(f"Token of {name} for {', '.join(found.scopes)}{_but(found)}: printed once, not kept.")


def _but(found: Token) -> str:
    return f", at most {_limits(found)}" if found.limits else ""


def _limits(found: Token) -> str:
    return ", ".join(f"{most} {name.replace('_', ' ')}" for name, most in found.limits.to_json().items())


def revoke_token(name: Name, json: Json = False) -> None:
    """End a token. Running servers refuse it within a second.

    \b
    dpserve token revoke --name shop
    """
    found = revoke(Home.open().ledger, name)
    show(json, found.to_json(), f"token of {name} revoked, entry {found.revoked}")


def list_tokens(json: Json = False) -> None:
    """List the tokens there ever were.

    \b
    dpserve token list
    """
    found = tokens(Home.open().ledger)
    rows = [("NAME", "SCOPES", "LIMITS", "STATE")]
    rows += [(t.name, ",".join(t.scopes), _limits(t), "good" if t.revoked is None else "revoked") for t in found]
    show(json, {"tokens": [each.to_json() for each in found]}, aligned(rows))


def show_trail(
    name: Annotated[str | None, typer.Option(help="Only what this token asked for.")] = None,
    last: Annotated[int, typer.Option(help="So many requests, the newest.", min=1)] = 50,
    json: Json = False,
) -> None:
    """Show who asked for what: the newest requests, the newest last. The file is logs/access.jsonl of the home.

    \b
    dpserve token trail --name shop --last 20
    """
    from serving.process.access_log import lines

    kept = (line for line in lines(Home.open().path) if name is None or line.get("token") == name)
    found = list(islice(kept, last))[::-1]
    show(json, {"requests": found}, aligned([("TIME", "TOKEN", "STATUS", "REQUEST", "ABOUT"), *map(_row, found)]))


def _row(line: dict[str, Any]) -> tuple[Any, ...]:
    said = {name: "-" if value is None else value for name, value in line.items()}
    return said["time"], said["token"], said["status"], f"{said['method']} {said['route']}", said["about"]
