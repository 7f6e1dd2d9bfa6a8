"""`dpserve model promote`, `retire`, `restore`: which version answers to a name, and which is kept from serving."""

from __future__ import annotations

from typing import Annotated

import typer

from models.store.bundle import check_numbered, check_reference
from models.store.placing import Placed
from serving.cli.backend import backend
from serving.cli.complete import Model
from serving.cli.terminal import Json, note, show
from serving.operations.placing import (
    NO_REASON,
    PlaceRequest,
    PromoteRequest,
    promote_model,
    restore_model,
    retire_model,
)

Why = Annotated[str, typer.Option(help="Why: it stays in the ledger permanently.")]
By = Annotated[str | None, typer.Option(help="Who decides; your user name when left out.")]


def promote(
    name: Model,
    why: Why = NO_REASON,
    by: By = None,
    if_better: Annotated[
        bool,
        typer.Option("--if-better", help="Only where a statement of worth shows that it is better than the champion."),
    ] = False,
    although_not_better: Annotated[
        bool,
        typer.Option(
            "--although-not-better",
            help="Also where its evaluation does not show that it is better than a constant answer.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Let a model's name alone mean this version: `adult`, `adult@champion`. Running servers follow within a second.

    \b
    dpserve model promote adult@2 --why "better on the review set"
    dpserve model promote adult@2 --if-better
    """
    check_numbered(name)
    model, _, version = name.partition("@")
    body = PromoteRequest(int(version), why, if_better, although_not_better)
    _show(backend(by).ask(promote_model, name=model, body=body), json, "is champion now")


def retire(name: Model, why: Why, by: By = None, json: Json = False) -> None:
    """Serve a version no more. Its files and its certificate stay.

    \b
    dpserve model retire adult@1 --why "superseded"
    """
    check_reference(name)
    _show(backend(by).ask(retire_model, name=name, body=PlaceRequest(why)), json, "is served no more")


def restore(name: Model, why: Why, by: By = None, json: Json = False) -> None:
    """Serve a retired version again.

    \b
    dpserve model restore adult@1 --why "the new one is too slow"
    """
    check_reference(name)
    _show(backend(by).ask(restore_model, name=name, body=PlaceRequest(why)), json, "is served again")


def _show(done: Placed, json: bool, text: str) -> None:
    instead = f", in place of {done.replaces}" if done.replaces else ""
    shown = "" if done.worth is None else f"; the statement of entry {done.worth} speaks for it"
    sentence = f"{done.model} {text}{instead}; entry {done.entry} of the ledger says so{shown}"
    show(json, done.to_json(), sentence)
    if done.serves is None:
        note(nothing_served(done.model.partition("@")[0], done.command))


def nothing_served(name: str, command: str | None) -> str:
    """Say that the name answers nothing after a change, and what leads on."""
    lead = f"The newest that verifies: {command}" if command else "No other version verifies."
    return f"Nothing is served under {name} now. {lead}"
