"""What to do next: `dpserve` alone, from how far this home is; and after an error, in the line that tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.errors import BudgetRefused, DpserveError
from accountant.home import Home, place
from serving.cli.terminal import Json, aligned, paint, show
from serving.process.settings import all_settings

Step = tuple[str, str]  # a command, and what it does
MORE = """Every command: dpserve --help. All of one: dpserve COMMAND --help.
Tab completes commands and names after: dpserve --install-completion"""


def start(
    context: typer.Context,
    json: Json = False,
    says_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train models under differential privacy, account for every release, and serve them with certificates.

    `dpserve` alone says what to do next.
    """
    if context.invoked_subcommand is not None:
        if json:
            raise typer.BadParameter("--json stands after the command")
        return
    if says_version:
        return show(json, {"version": _version()}, f"dpserve {_version()}")
    found = standing()
    steps = next_steps(found)
    names = {"datasets": list(found.datasets), "models": list(found.models)}
    told = [{"command": command, "what": what} for command, what in steps]
    body = {"home": str(found.home), "state": found.state, "problem": found.problem or None, **names, "next": told}
    show(json, body, _page(found, steps))


def _version() -> str:
    try:
        return version("dpserve")
    except PackageNotFoundError:  # a bento holds the sources, not the distribution
        return "unknown"


@dataclass(frozen=True)
class Standing:
    """How far a home is. `state`: none, broken (`problem` says how), empty, registered, or released."""

    home: Path
    state: str
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    problem: str = ""


def standing() -> Standing:
    path, _ = place(os.environ)
    if not (path / "keys").exists() and not (path / "trust.json").exists():
        return Standing(path, "none")
    try:
        home = Home.open()
        datasets = [each.registration.name for each in home.ledger.datasets()]
    except DpserveError as error:
        step = after(error)
        return Standing(path, "broken", problem=error.message + (f" ({step})" if step else ""))
    models = sorted(each.name for each in home.models.iterdir() if each.is_dir() and not each.name.startswith("."))
    state = "released" if models else "registered" if datasets else "empty"
    return Standing(path, state, datasets, models)


def next_steps(found: Standing) -> list[Step]:
    """What one does from here, in order."""
    dataset = found.datasets[0] if found.datasets else "adult"
    model = found.models[0] if found.models else dataset
    url = _address()
    steps: Mapping[str, list[Step]] = {
        "none": [
            ("dpserve init", "make a home: keys, a ledger, and one admin token, printed once"),
            ("dpserve serve", f"or make it and serve at once, with the dashboard at {url}/ui"),
            ("DPSERVE_HOME=FOLDER dpserve init", "in another place"),
        ],
        "broken": [
            ("dpserve ledger audit", "what is wrong with it"),
            ("dpserve config", "whether it is the home you mean"),
        ],
        "empty": [
            ("dpserve schema draft rows.parquet > adult.yaml", "a draft; fill in what everybody may know"),
            (
                "dpserve dataset register adult --data rows.parquet --schema adult.yaml --epsilon 3 --delta 1e-5",
                "give the rows a budget, once and for ever",
            ),
        ],
        "registered": [
            (f"dpserve dataset show {dataset}", "what is left, and how many jobs of each learner"),
            ("dpserve learner list", "what can be trained"),
            (f"dpserve plan {dataset} --learner lazybb --epsilon 0.5", "a job's price; spends nothing"),
            (f"dpserve train {dataset} --learner lazybb --epsilon 0.5", "spend it; the model comes with a certificate"),
        ],
        "released": [
            (f"dpserve model show {model} --certificate", "what it promises, in plain words"),
            (f"dpserve predict {model} --data new.parquet --out predictions.parquet", "predict a file"),
            (
                f"dpserve model export {model} --out {model}-model",
                "a folder that travels, and `dpserve verify` it there",
            ),
            ("dpserve token create --scope predict --name shop", "a token for a program"),
            ("dpserve serve", f"REST and dashboard at {url}/ui"),
            ("dpserve ledger audit", "check everything that was ever paid for"),
        ],
    }
    return steps[found.state]


def _address() -> str:
    found = {setting.name: setting.value for setting in all_settings()}
    scheme = "https" if found.get("DPSERVE_TLS_CERT") else "http"
    return f"{scheme}://{found['DPSERVE_HOST']}:{found['DPSERVE_PORT']}"


def _page(found: Standing, steps: list[Step]) -> str:
    datasets, models = (
        f"{len(each)}: {_some(each)}" if each else "none yet" for each in (found.datasets, found.models)
    )
    lines: list[tuple[str, Any]] = [("home", found.home if found.state != "none" else f"none yet at {found.home}")]
    lines += [("problem", found.problem)] if found.problem else []
    lines += [("datasets", datasets), ("models", models)] if found.state not in ("none", "broken") else []
    told = "\n".join(f"  {paint(command, 'bold')}\n      {what}" for command, what in steps)
    return f"{aligned(lines)}\n\nNext:\n{told}\n\n{MORE}"


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def after(error: DpserveError) -> str:
    """The step that leads on, where there is one and the message does not say it."""
    if isinstance(error, BudgetRefused):
        fits = error.details.get("would_fit")
        return f"try --epsilon {fits['epsilon']}" if fits else "nothing fits any more; dpserve dataset show says why"
    if error.code == "unknown_name":
        what = LISTS.get(error.message.partition("=")[0])
        return f"dpserve {what} list shows them" if what else ""
    said = next((step for words, step in SAID.items() if words in error.message), None)
    return said if said is not None else STEPS.get(error.code, "")


LISTS = {"dataset": "dataset", "learner": "learner", "model": "model", "job": "job", "name": "token"}
# By words of the message, which say more than its code; nothing where the message leads on by itself.
SAID = {
    "dpserve ": "",
    "FILL-IN": "",
    "has keys already": "`dpserve` alone says what to do next with it",
    "must have none of the bits": "chmod go= it, and think about who may have read it",
    "a budget is given once": "dpserve dataset show says what is left of it",
}
STEPS = {
    "schema_invalid": "dpserve schema draft FILE shows the form",
    "idempotency_conflict": "give another --idempotency-key, or the request as it was",
    "certificate_invalid": "trust nothing of it; dpserve ledger audit looks at all of this home",
    "model_invalid": "trust nothing of it; dpserve ledger audit looks at all of this home",
    "ledger_invalid": "dpserve ledger audit says where; restore the newest copy",
    "ledger_unavailable": "mend the database and try again: nothing was changed unless it says so",
    "job_failed": "dpserve dataset show says what is left",
}
