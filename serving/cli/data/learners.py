"""Commands about learners: what can be trained, what each takes, and which of others the home admits."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from accountant.errors import UnknownName
from accountant.home import TRUST, Home, place
from accountant.ledger.learner_admissions import admission_of, admissions
from serving.cli.complete import LEARNERS
from serving.cli.terminal import Json, align_columns, show
from training.learners.others import others


def list_learners(json: Json = False) -> None:
    """List the learners: dpserve's own, and those of others that the home admits, with who admitted them.

    \b
    dpserve learner list
    """
    from training.learners.docs import learners_to_json  # loads every learner, which a remote plan does without

    learners, entered = learners_to_json(), _admitted()
    text = align_columns([("LEARNER", "WHAT"), *((learner["name"], learner["says"]) for learner in learners)])
    if entered:
        rows = [("OF OTHERS", "SHA256", "AUTHOR", "ADMITTED BY", "AT", "DATASETS", "JOBS")]
        rows += [
            (
                each["name"], each["digest"][:12], each["author"], each["by"], each["time"][:10],
                ", ".join(each["datasets"] or ["all"]) + " (reads rows)" * bool(each["vouched"]), str(each["jobs"]),
            )
            for each in entered
        ]  # fmt: skip
        text += f"\n\n{align_columns(rows)}"
    show(json, {"learners": learners, "admitted": entered}, text)


def _admitted() -> list[dict[str, Any]]:
    """Return the learners of others that the home admits, where there is one. InputError where what runs them is not
    installed.
    """
    home = Home.open() if _has_home() else None
    return others().listed(home) if home is not None and admissions(home.ledger) else []


def _has_home() -> bool:
    return (place(os.environ)[0] / TRUST).exists()


def show_learner(
    name: Annotated[str, typer.Argument(help="The learner's name.", autocompletion=LEARNERS)], json: Json = False
) -> None:
    """Show a learner: the parameters that `--set key=value` gives it. All have defaults. Of one of others that was
    admitted: who wrote and who admitted it, what its check saw, and where its text is.

    \b
    dpserve learner show lazybb
    dpserve learner show bayes
    """
    from training.learners.docs import learners_to_json  # as above

    learner = next((body for body in learners_to_json() if body["name"] == name), None)
    if learner is None and _has_home():
        admission_of((home := Home.open()).ledger, name)
        body, says, lines = others().describe(home, name)
        return show(json, body, f"{says}\n\n{align_columns(lines)}")
    if learner is None:
        raise UnknownName(f"learner={name!r}: no such learner", learner=name)
    rows = [("PARAMETER", "KIND", "DEFAULT")]
    for parameter in learner["parameters"]:
        kind = " | ".join(map(str, parameter["choices"])) or parameter["kind"]
        default = "by a public rule" if parameter["default"] is None else str(parameter["default"]) or "none"
        rows.append((parameter["name"], kind, default))
    show(json, learner, f"{learner['says']}\n\n{align_columns(rows)}")
