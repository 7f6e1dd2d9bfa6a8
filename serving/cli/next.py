"""What to do next: `dpserve` alone, from how far this home is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from accountant.home import Home, place
from dpserve_verify.errors import DpserveError
from serving.cli.backends.choice import ServerAddress, server_address
from serving.cli.hints import with_next_step
from serving.cli.terminal import align_columns, paint, show
from serving.process.config.startup import HOST, PORT

Step = tuple[str, str]  # a command, and what it does
MOST = 5  # names of datasets or models in a line
MORE = """Every command: dpserve --help. All of one: dpserve COMMAND --help.
Tab completes commands and names after: dpserve --install-completion"""

AT_A_SERVER: Sequence[Step] = (
    ("dpserve dataset list", "what there is, and what is left of it"),
    ("dpserve plan NAME --epsilon 0.5", "what a model costs, and what to expect of it; spends nothing"),
    ("dpserve train NAME --epsilon 0.5", "spend it; the server's worker learns"),
    ("dpserve verify MODEL", "fetch a model, and check it here by the keys that were pinned"),
    ("dpserve logout", "ask no server any more"),
)


def show_version(json: bool) -> None:
    """Print the version."""
    try:
        version = version_of("dpserve")
    except PackageNotFoundError:  # a bento holds the sources, not the distribution
        version = "unknown"
    show(json, {"version": version}, f"dpserve {version}")


def show_next(json: bool) -> None:
    """Show how far this home is, and the commands that lead on."""
    server = server_address()
    if server is not None:
        return _show_server(server, json)
    home = look_at_home()
    steps = next_steps(home)
    names = {"datasets": list(home.datasets), "models": list(home.models)}
    commands = [{"command": command, "what": purpose} for command, purpose in steps]
    body = {"home": str(home.home), "state": home.state, "problem": home.problem or None, **names, "next": commands}
    show(json, body, _page(home, steps))


def _show_server(server: ServerAddress, json: bool) -> None:
    """Show which server commands ask, and what leads on. It is not asked: this alone must never fail."""
    body: dict[str, Any] = {
        "home": None,
        "state": "server",
        "server": server.url,
        "problem": None,
        "datasets": [],
        "models": [],
    }
    commands = [{"command": command, "what": purpose} for command, purpose in AT_A_SERVER]
    head = align_columns([("server", server.url), ("named by", server.source)])
    show(json, body | {"next": commands}, f"{head}\n\n{_steps(AT_A_SERVER)}\n\n{MORE}")


@dataclass(frozen=True)
class Standing:
    """How far a home is. `state`: none, broken (`problem` says how), empty, registered, or released."""

    home: Path
    state: str
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    problem: str = ""


def look_at_home() -> Standing:
    """Look how far the home in force is. A home that cannot be opened is broken; nothing is raised."""
    path, _ = place(os.environ)
    if not (path / "keys").exists() and not (path / "trust.json").exists():
        return Standing(path, "none")
    try:
        home = Home.open()
        datasets = [dataset.registration.name for dataset in home.ledger.datasets()]
    except DpserveError as error:
        return Standing(path, "broken", problem=with_next_step(error))
    folders = (folder for folder in home.models.iterdir() if folder.is_dir())
    models = sorted(folder.name for folder in folders if not folder.name.startswith("."))
    state = "released" if models else "registered" if datasets else "empty"
    return Standing(path, state, datasets, models)


def next_steps(home: Standing) -> list[Step]:
    """Return the next steps, in order."""
    dataset = home.datasets[0] if home.datasets else "adult"
    model = home.models[0] if home.models else dataset
    scheme = "https" if os.environ.get("DPSERVE_TLS_CERT") else "http"
    url = f"{scheme}://{os.environ.get('DPSERVE_HOST') or HOST}:{os.environ.get('DPSERVE_PORT') or PORT}"
    steps: Mapping[str, list[Step]] = {
        "none": [
            ("dpserve init", "make a home: keys, a ledger, and one admin token, in a file of it"),
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
                "dpserve dataset register adult --data rows.parquet --schema adult.yaml --epsilon 3 --delta 1e-6 "
                "--holdout 0.2",
                "give the rows a budget, once and permanently",
            ),
        ],
        "registered": [
            (f"dpserve dataset show {dataset}", "how much of its budget is used"),
            (f"dpserve plan {dataset} --epsilon 0.5", "what a model costs, and what to expect of it; spends nothing"),
            (f"dpserve train {dataset} --epsilon 0.5", "train it; the model comes with a certificate"),
        ],
        "released": [
            (
                f"dpserve evaluate {model} --data test.parquet",
                "how good it is, on rows of yours; --dataset: private ones",
            ),
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
    return steps[home.state]


def _page(home: Standing, steps: list[Step]) -> str:
    datasets, models = (
        f"{len(names)}: {', '.join(names[:MOST])}{', ...' if len(names) > MOST else ''}" if names else "none yet"
        for names in (home.datasets, home.models)
    )
    lines: list[tuple[str, Any]] = [("home", home.home if home.state != "none" else f"none yet at {home.home}")]
    lines += [("problem", home.problem)] if home.problem else []
    lines += [("datasets", datasets), ("models", models)] if home.state not in ("none", "broken") else []
    return f"{align_columns(lines)}\n\n{_steps(steps)}\n\n{MORE}"


def _steps(steps: Sequence[Step]) -> str:
    shown = "\n".join(f"  {paint(command, 'bold')}\n      {purpose}" for command, purpose in steps)
    return f"Next:\n{shown}"
