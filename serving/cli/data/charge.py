"""`dpserve charge`: what was released about the same people elsewhere stands in this ledger too."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import InputError
from serving.cli.backend import backend
from serving.cli.complete import Name
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, show
from serving.operations import totals
from serving.wire.request_bodies import strict_json
from training.requests import ChargeRequest

MOST_BYTES = 1 << 20  # of a file with a curve, a statement or a key


@takes_request(ChargeRequest, "", without=("renyi", "statement", "key", "document", "contributions"))
def charge(
    request: ChargeRequest,
    name: Name,
    renyi: Annotated[
        Path | None, typer.Option(help='Or a JSON file with its Renyi curve: {"2": 0.01, "32": 0.2}.')
    ] = None,
    statement: Annotated[
        Path | None,
        typer.Option("--from", help="Or a document that states it: a .dsse.json of another dpserve, a DP-SGD history."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Of a signed document: the other's issuer key in PEM, or its trust.json.")
    ] = None,
    document: Annotated[
        Path | None, typer.Option(help="What says so: its sha256 is entered, the file stays with you.")
    ] = None,
    contributions: Annotated[
        int | None, typer.Option(help="Of a curve of records: how many of a person it read at most.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would leave; charge nothing.")] = False,
    json: Json = False,
) -> None:
    """Charge to a dataset what was released about its people elsewhere: a census table, a run of another tool.

    By the steward, for good: what was released cannot be taken back. More than is left is refused. The curve holds
    under the dataset's own neighbours.

    \b
    dpserve charge adult --rho 0.02 --mechanism "census table 12" --why "published in May" --document table.pdf
    dpserve charge adult --from history.json --mechanism "DP-SGD, Opacus" --why "the pilot's model" --plan
    dpserve charge adult --from model.onnx.dsse.json --key trust.json --mechanism "the ward's model" --why "same people"
    """
    request = replace(
        request,
        renyi=None if renyi is None else _read_object(renyi),
        statement=None if statement is None else _read_object(statement),
        key=None if key is None else _read(key).decode("utf-8", "replace"),
        document=None if document is None else _digest(document),
        contributions=contributions,
    )
    done = backend().ask(totals.plan_charge if plan else totals.charge, name=name, body=request)
    body = done.to_json()
    words = (
        f"dataset {name} would be left like this; nothing was charged"
        if plan
        else f"dataset {name} is charged; entry {body['entry']} of the ledger says so"
    )
    if len(body.get("releases", ())) > 1:
        jobs = ", ".join(str(each["reservation"]) for each in body["releases"][1:])
        words += f"; with what it was made from, of the same people: job {jobs} of that ledger"
    show(json, body, f"{words}\n{left_words(body['budget']['left'])}")


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{path}: is no file")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: must be a file of at most {MOST_BYTES >> 20} MB")
    return path.read_bytes()


def _read_object(path: Path) -> dict[str, Any]:
    content = _read(path)
    try:
        body = strict_json(content)
    except InputError as error:
        raise InputError(f"{path}: {error.message.removeprefix('body: ')}") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: must be a JSON object")
    return body


def _digest(path: Path) -> str:
    """Return the sha256 of a file of any size. InputError where it is none, or cannot be read."""
    if not path.is_file():
        raise InputError(f"{path}: is no file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
