"""Commands of the auditor and the operator: the ledger, keys, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from accountant.home import Home
from accountant.log import Entry
from accountant.notes import parse_checkpoint
from serving.terminal import Json, aligned, note, show

ledger = typer.Typer(help="The ledger: every release that was ever paid for.", no_args_is_help=True)
key = typer.Typer(help="The keys that sign.", no_args_is_help=True)
token = typer.Typer(help="Tokens for the service.", no_args_is_help=True)

PAGE = 1000
QUIET = {"type", "time", "plan", "price", "claim", "filter", "schema", "parameters", "commitment", "request"}


@ledger.command("show")
def show_ledger(
    dataset: Annotated[str | None, typer.Option(help="Only what concerns this dataset.")] = None,
    json: Json = False,
) -> None:
    """Show the ledger's entries.

    \b
    dpserve ledger show --dataset adult
    """
    home = Home.open()
    if dataset is not None:
        home.ledger.dataset(dataset)
    found = list(_concerning(_entries(home), dataset))
    body = {"entries": [{"index": entry.seq, **entry.value} for entry in found]}
    show(json, body, aligned([("INDEX", "TIME", "TYPE", "WHAT"), *map(_row, found)]))


def _entries(home: Home) -> Iterator[Entry]:
    after = 0
    while page := home.ledger.log.entries(after, PAGE):
        yield from page
        after = page[-1].seq + 1


def _concerning(entries: Iterator[Entry], dataset: str | None) -> Iterator[Entry]:
    jobs: set[int] = set()
    for entry in entries:
        named = entry.value.get("dataset") == dataset
        if named and entry.value["type"] == "reserved":
            jobs.add(entry.seq)
        if dataset is None or named or entry.value.get("reservation") in jobs:
            yield entry


def _row(entry: Entry) -> tuple[Any, ...]:
    what = {name: value for name, value in entry.value.items() if name not in QUIET and isinstance(value, str | int)}
    text = " ".join(f"{name}={str(value)[:40]!s}" for name, value in what.items())
    return (entry.seq, entry.value.get("time", ""), entry.value["type"], text)


@ledger.command("checkpoint")
def checkpoint(json: Json = False) -> None:
    """Print the newest signed tree head. Keep it elsewhere: it shows any rewriting of what came before.

    \b
    dpserve ledger checkpoint > checkpoint.txt
    """
    text = Home.open().ledger.log.checkpoint()
    found = parse_checkpoint(text)
    show(json, {"checkpoint": text, "size": found.size, "root": found.root.hex()}, text.rstrip("\n"))


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
