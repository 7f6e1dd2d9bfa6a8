"""`dpserve learner list` and `show`: what can be trained, and what each learner takes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.errors import UnknownName
from serving.cli.complete import LEARNERS
from serving.cli.terminal import Json, aligned, show

RULE = "by a public rule"


def list_learners(json: Json = False) -> None:
    """List the learners.

    \b
    dpserve learner list
    """
    found = _learners()
    rows = [("LEARNER", "WHAT"), *((each["name"], each["says"]) for each in found)]
    show(json, {"learners": found}, aligned(rows))


def show_learner(
    name: Annotated[str, typer.Argument(help="The learner's name.", autocompletion=LEARNERS)], json: Json = False
) -> None:
    """Show a learner: the parameters that `--set key=value` gives it. All have defaults.

    \b
    dpserve learner show lazybb
    """
    found = next((each for each in _learners() if each["name"] == name), None)
    if found is None:
        raise UnknownName(f"learner={name!r}: no such learner", learner=name)
    rows = [("PARAMETER", "KIND", "DEFAULT"), *map(_row, found["parameters"])]
    show(json, found, f"{found['says']}\n\n{aligned(rows)}")


def _learners() -> list[dict[str, Any]]:
    from training.learners.docs import learners_to_json

    found: list[dict[str, Any]] = learners_to_json()
    return found


def _row(parameter: dict[str, Any]) -> tuple[str, ...]:
    kind = " | ".join(map(str, parameter["choices"])) or parameter["kind"]
    return parameter["name"], kind, RULE if parameter["default"] is None else str(parameter["default"])
