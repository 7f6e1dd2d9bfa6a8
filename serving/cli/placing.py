"""`dpserve model promote`, `retire`, `restore`: which version answers to a name, and which is kept from serving."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.backend import backend
from serving.cli.complete import Model
from serving.cli.terminal import Json, note, show

Why = Annotated[str, typer.Option(help="Why: it stays in the ledger permanently.")]
NO_REASON = "no reason was given"
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
    flags = {"if_better": if_better, "although_not_better": although_not_better}
    _place("promote", name, why, by, json, "{model} is champion now{instead}", **flags)


def retire(name: Model, why: Why, by: By = None, json: Json = False) -> None:
    """Serve a version no more. Its files and its certificate stay.

    \b
    dpserve model retire adult@1 --why "superseded"
    """
    _place("retire", name, why, by, json, "{model} is served no more")


def restore(name: Model, why: Why, by: By = None, json: Json = False) -> None:
    """Serve a retired version again.

    \b
    dpserve model restore adult@1 --why "the new one is too slow"
    """
    _place("restore", name, why, by, json, "{model} is served again")


def _place(act: str, name: str, why: str, by: str | None, json: bool, text: str, **flags: bool) -> None:
    done = backend().models.place(act, name, why, by, flags)
    instead = f", in place of {done['replaces']}" if done["replaces"] else ""
    shown = "" if done["worth"] is None else f"; the statement of entry {done['worth']} speaks for it"
    sentence = (
        f"{text.format(model=done['model'], instead=instead)}; entry {done['entry']} of the ledger says so{shown}"
    )
    show(json, done, sentence)
    if done["serves"] is None:
        note(nothing_served(done["model"].partition("@")[0], done["command"]))


def nothing_served(name: str, command: str | None) -> str:
    """Say that the name answers nothing after a change, and what leads on."""
    lead = f"The newest that verifies: {command}" if command else "No other version verifies."
    return f"Nothing is served under {name} now. {lead}"
