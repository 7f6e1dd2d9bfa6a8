"""Private tuning on the command line: the best of a random number of runs, as one job with one price."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.errors import InputError
from accountant.home import Home
from serving.cli.data import Delta, Epsilon, Learner, Model, Name, Set, parameters
from serving.cli.terminal import Json, aligned, rounds, show, this_user


def tune(
    name: Name,
    learner: Learner,
    epsilon: Epsilon,
    grid: Annotated[
        list[str] | None,
        typer.Option(help='Values to try, key=a,b,c; "default" stands for the learner\'s own. Repeatable.'),
    ] = None,
    runs: Annotated[
        str | None, typer.Option(help="How many runs on average; 5 to 8, by the grid, when left out.")
    ] = None,
    delta: Delta = None,
    set: Set = None,
    model: Model = None,
    plan: Annotated[
        bool, typer.Option("--plan", "--explain", help="Say what it would cost and do; spend nothing.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key gives the same job, and spends once.")
    ] = None,
    json: Json = False,
) -> None:
    """Tune privately: learn a random number of times with settings from a grid, keep the best, as one job.

    Epsilon is the price of all of it. Each run gets about half, so defaults are often better: docs/tuning.md.

    \b
    dpserve tune adult --learner lazybb --epsilon 1 --grid rounds=50,100,200 --grid rate=0.2,0.4
    dpserve tune adult --learner lazybb --epsilon 1 --grid rounds=50,100,200 --plan
    """
    from training import job, plans
    from training.plans import Asked
    from training.tuning.tune import Tuning

    tuning = Tuning(grid_of(grid), runs)
    home, asked = Home.open(), Asked(name, learner, epsilon, delta, parameters(set), model, tuning)
    if plan:
        body = plans.plan(home, asked, this_user()).to_json()
        return show(json, body, _planned(body))
    job.recover(home)
    with rounds(f"tuning {learner} on {name}") as progress:
        body = job.train(home, asked, by=this_user(), key=idempotency_key, progress=progress)
    show(json, body, _tuned(body))


def _planned(body: dict[str, Any]) -> str:
    tuning = body["tuning"]
    law = tuning["runs"]
    lines = [
        ("job", f"the best of runs of {body['learner']} on {body['dataset']}"),
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}, {body['relation']}, for all of it"),
        ("runs", f"{law['mean']} on average ({law['type']}); {law['made']} are made, so that time does not tell"),
        ("left after it", f"epsilon {body['left']['epsilon']}, and {body['left']['jobs']} more jobs like it"),
    ]
    keys = list(tuning["settings"][0])
    rows = [tuple(key.upper() for key in keys), *(tuple(line[key] for key in keys) for line in tuning["settings"])]
    return f"{aligned(lines)}\n\n{aligned(rows)}"


def _tuned(body: dict[str, Any]) -> str:
    certificate, chosen = body["certificate"] or {}, body["chosen"] or {}
    setting = chosen.get("setting")
    said = ", ".join(f"{key}={value}" for key, value in setting.items()) if setting else "none: no run was drawn"
    lines = [
        ("job", f"{body['job']}: {body['state']}"),
        ("model", body["model"]),
        ("setting", said),
        ("score", f"{chosen.get('score')} rows told right, with noise; of the best, so rather too many"),
        ("spent", f"epsilon {body['epsilon']}, delta {body['delta']}"),
        ("certificate", f"entry {certificate.get('entry')}, statement {certificate.get('statement')}"),
        ("left", f"epsilon {body['left']['epsilon']}"),
    ]
    return aligned(lines)


def grid_of(texts: list[str] | None) -> dict[str, list[str]]:
    """`key=a,b,c` texts as values by key; InputError where one is not that, or a key comes twice."""
    found: dict[str, list[str]] = {}
    for text in texts or []:
        key, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not (equals and key and all(listed)) or key in found:
            raise InputError(f"--grid {text!r}: must be key=a,b,c, each key once")
        found[key] = listed
    if not found:
        raise InputError("--grid: say what to try, for instance --grid rounds=50,100,200")
    return found
