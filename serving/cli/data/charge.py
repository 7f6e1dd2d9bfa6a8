"""`dpserve charge`: what was released about the same people elsewhere stands in this ledger too."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import InputError
from serving.cli.backend import backend
from serving.cli.complete import Name
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, show
from serving.wire.request_bodies import strict_json
from training.requests import ChargeRequest

MOST_BYTES = 1 << 20  # of a file with a Renyi curve


@takes_request(ChargeRequest, "", without=("renyi", "document", "contributions"))
def charge(
    request: ChargeRequest,
    name: Name,
    renyi: Annotated[
        Path | None, typer.Option(help='Or a JSON file with its Renyi curve: {"2": 0.01, "32": 0.2}.')
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
    dpserve charge adult --renyi curve.json --mechanism "DP-SGD, Opacus" --why "the pilot's model" --plan
    """
    curve = None
    if renyi is not None:
        if not renyi.is_file() or renyi.stat().st_size > MOST_BYTES:
            raise InputError(f"{renyi}: must be a file of at most {MOST_BYTES >> 20} MB")
        curve = strict_json(renyi.read_bytes())
        if not isinstance(curve, dict):
            raise InputError(f"{renyi}: must be an object of orders, each with its divergence")
    digest = None if document is None else _digest(document)
    request = replace(request, renyi=curve, document=digest, contributions=contributions)
    body = backend().datasets.charge(name, request.to_json(), plan)
    words = (
        f"dataset {name} would be left like this; nothing was charged"
        if plan
        else f"dataset {name} is charged; entry {body['entry']} of the ledger says so"
    )
    show(json, body, f"{words}\n{left_words(body['budget']['left'])}")


def _digest(path: Path) -> str:
    """Return the sha256 of a file of any size. InputError where it is none, or cannot be read."""
    if not path.is_file():
        raise InputError(f"{path}: is no file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
