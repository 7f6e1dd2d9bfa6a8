"""Commands of the analyst: learners, prices, training, and private tuning, all of it one job with one price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import short_delta
from models.worth.words import short_worth
from serving.cli.backend import backend
from serving.cli.requests import parse_tuning, takes_request
from serving.cli.terminal import Json, Verbose, align_columns, show, show_busy, show_progress
from serving.operations.jobs import plan_job
from training.learners.job_words import STATES, closing, short_reason
from training.requests import LADDER, JobRequest

EVALUATION = "evaluation"


@takes_request(JobRequest, "dataset", without=("tuning", "promote", "idempotency_key"))
def plan(
    asked: JobRequest,
    curve: Annotated[bool, typer.Option("--curve", help="Also at smaller and larger epsilons, side by side.")] = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Price a job: what it would cost, and how much of the budget would be used. Spends nothing.

    \b
    dpserve plan adult --epsilon 0.5
    dpserve plan adult --learner lazybb --epsilon 0.5
    dpserve plan adult --epsilon 0.5 --evaluate 0.25
    dpserve plan adult --epsilon 0.5 --curve
    """
    if curve:
        bodies = _ask_curve(asked)
        return show(json, {"curve": bodies}, _curve_text(bodies))
    with show_busy("pricing"):
        body = backend().ask(plan_job, body=asked)
    show(json, body, plan_text(body, verbose))


def plan_text(body: dict[str, Any], verbose: bool = False) -> str:
    """Describe a job that fits: its price, what is left after it, and what may be expected of it."""
    then = body.get("evaluation")
    champion = body["becomes"] == "champion"
    becomes = "which answers to that name at once" if champion else "a candidate: dpserve model promote chooses it"
    instead = f", in place of {body['replaces']}" if body["replaces"] else ""
    lines = [
        ("job", f"{body['learner']} on {body['dataset']}{_target_text(body)}"),
        *_learner_lines(body, verbose),
        *([("begins", f"from a public score, sha256 {body['start']}")] if "start" in body else []),
        ("price", f"epsilon {body['epsilon']}"),
        ("after it", left_words(body["left"])),
        *_evaluation_lines(then),
        ("model", f"{body['model']}, {becomes}{instead}"),
        *([("expect", body["expected"]["says"])] if body["expected"] else []),
        *(("warning", text) for text in body["warnings"]),
        *(_details(body) if verbose else []),
    ]
    return align_columns(lines)


def _ask_curve(asked: JobRequest) -> list[dict[str, Any]]:
    """Return the plans of a job at its epsilon and at those of LADDER, up to the largest that fits. BudgetRefused where
    the job itself does not fit.
    """
    bodies, own = [], Decimal(str(asked.epsilon))
    for epsilon in sorted({own, *map(Decimal, LADDER)}):
        with show_busy(f"pricing epsilon {epsilon}"):
            try:
                bodies.append(backend().ask(plan_job, body=replace(asked, epsilon=str(epsilon))))
            except BudgetRefused:
                if epsilon <= own:
                    raise
                break
    return bodies


def _curve_text(bodies: list[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [("EPSILON", "LEARNER", "EXPECT", "USED AFTER IT", "MORE LIKE IT")]
    for body in bodies:
        expect = "-" if body["expected"] is None else body["expected"]["short"]
        after = left_words(body["left"]).partition(" of the budget")[0]
        rows.append((body["epsilon"], body["learner"], expect, after, str(body["left"]["jobs"])))
    return align_columns(rows)


def _details(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of --verbose."""
    job = body["left"]["one_job"]
    holds = "of any noise" if job is None or "noise" not in job else "of Gaussian noise alone"
    return [
        ("delta", short_delta(body["delta"])),
        ("neighbours", body["relation"]),
        ("noisy answers", str(body["rounds"])),
        ("more like it", str(body["left"]["jobs"])),
        *([("room", f"for jobs {holds}, at delta {short_delta(job['delta'])}")] if job else []),
    ]


@takes_request(JobRequest, "dataset", without=("tuning",))
def train(asked: JobRequest, verbose: Verbose = False, json: Json = False) -> None:
    """Train a model: pay for it, fit it, certify it.

    The first model of a name answers to it at once; any further one is a candidate, until it is promoted.

    \b
    dpserve train adult --epsilon 0.5
    dpserve train adult --learner lazybb --epsilon 0.5
    dpserve train adult --epsilon 0.5 --evaluate 0.25
    dpserve train visits --epsilon 0.5 --blocks last:12
    """
    body = _run_job(asked, f"{asked.learner} on {asked.dataset}")
    show(json, body, job_text(body, verbose=verbose))


def job_text(body: dict[str, Any], first: Sequence[tuple[str, str]] = (), verbose: bool = False) -> str:
    """Describe a job that is done: the model, its price and worth, what is left. `first`: lines before these."""
    certificate = body["certificate"] or {}
    lines = [
        *first,
        ("job", f"{body['job']}: {STATES.get(body['state'], body['state'])}"),
        *_learner_lines(body, verbose),
        ("model", f"{_version_text(body)}{_target_text(body)}"),
        ("price", f"epsilon {body['epsilon']}"),
        *_worth_lines(body),
        *closing(body),
        ("budget", left_words(body["left"])),
        *(_paid_details(body, certificate) if verbose else []),
    ]
    return align_columns(lines)


def _evaluation_lines(then: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the lines on the evaluation that follows: its price, and how wide its intervals will be."""
    if then is None:
        return []
    return [
        ("evaluation", f"epsilon {then['epsilon']}"),
        ("after it", left_words(then["left"], EVALUATION)),
        ("expect", then["expected"]["says"]),
    ]


def _paid_details(body: dict[str, Any], certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of --verbose of a job that is done."""
    return [
        ("delta", short_delta(body["delta"])),
        ("noisy answers", str(body["rounds"])),
        ("certificate", f"entry {certificate.get('entry')}, statement {certificate.get('statement')}"),
    ]


def _worth_lines(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the line on the model's worth, where it was asked for together with the job."""
    if "evaluated" not in body:
        then = body.get("evaluation")
        return [("worth", f"a worker measures it: job {then['job']}")] if then else []
    then = body["evaluated"]
    return [
        ("worth", f"{short_worth(then['worth'])}; epsilon {then['epsilon']} of the part kept aside, job {then['job']}")
    ]


def _run_job(asked: JobRequest, words: str) -> dict[str, Any]:
    """Run a job to its end, and show how far it is."""
    body = asked.to_json()
    key = body.pop("idempotency_key", None)
    with show_progress(words) as progress:
        done: dict[str, Any] = backend().jobs.train(body, key, progress)
    return done


def _version_text(body: dict[str, Any]) -> str:
    """Describe the new version: its name, how it stands, and what leads on."""
    version, champion = f"{body['model']}@{body['version']}", backend().models.champion(body["model"])
    if body["version_state"] == "champion":
        instead = f", in place of {body['replaces']}" if body["replaces"] else ""
        return f"{version}, which answers to the name {body['model']}{instead}"
    answers = f"{body['model']}@{champion} answers to the name" if champion else "nothing answers to the name"
    return f"{version}, a {body['version_state']}: {answers}; dpserve model promote {version}"


def _learner_lines(body: dict[str, Any], verbose: bool = False) -> list[tuple[str, str]]:
    """Return the line on which learner a public rule chose, and why; none where a person named it."""
    why = body.get("chosen_by_auto")
    return [] if why is None else [("chosen", why if verbose else short_reason(why))]


def _target_text(body: dict[str, Any]) -> str:
    """Name the target, where there are several, and the blocks of a dataset that grows."""
    blocks = f", {window_text(body['window'])}" if "window" in body else ""
    return blocks + (f", which predicts {body['target']}" if "target" in body else "")


def window_text(window: list[int]) -> str:
    """Name the blocks that a job reads."""
    first, last = window
    return f"block {first}" if first == last else f"blocks {first} to {last}"


@takes_request(JobRequest, "dataset", without=("tuning", "evaluate"))
def tune(
    asked: JobRequest,
    grid: Annotated[
        list[str] | None,
        typer.Option(help='Values to try, key=a,b,c; "default" stands for the learner\'s own. Repeatable.'),
    ] = None,
    runs: Annotated[
        str | None, typer.Option(help="How many runs on average; 5 to 8, by the grid, when left out.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", "--explain", help="Say what it would cost and do; spend nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Tune privately: try several settings, at one price.

    It learns a random number of times with settings from a grid, and keeps the best, as one job.

    Epsilon is the price of all of it. Each run gets about half, so defaults are often better
    (docs/reference/training.md).

    \b
    dpserve tune adult --learner lazybb --epsilon 1 --grid rounds=50,100,200 --grid rate=0.2,0.4
    dpserve tune adult --learner lazybb --epsilon 1 --grid rounds=50,100,200 --plan
    """
    asked = replace(asked, tuning=parse_tuning(grid, runs))
    if plan:
        body = backend().ask(plan_job, body=asked)
        return show(json, body, _tuning_plan_text(body))
    body = _run_job(asked, f"tuning {asked.learner} on {asked.dataset}")
    show(json, body, _tuning_text(body))


def _tuning_plan_text(body: dict[str, Any]) -> str:
    tuning = body["tuning"]
    law = tuning["runs"]
    lines = [
        ("job", f"the best of runs of {body['learner']} on {body['dataset']}{_target_text(body)}"),
        *_learner_lines(body),
        ("price", f"epsilon {body['epsilon']}, for all of it"),
        ("runs", f"{law['mean']} on average ({law['type']}); {law['made']} are made, so that time does not tell"),
        ("after it", left_words(body["left"])),
    ]
    keys = list(tuning["settings"][0])
    settings = [tuple("default" if line[key] is None else line[key] for key in keys) for line in tuning["settings"]]
    rows = [tuple(key.upper() for key in keys), *settings]
    return f"{align_columns(lines)}\n\n{align_columns(rows)}"


def _tuning_text(body: dict[str, Any]) -> str:
    certificate, chosen = body["certificate"] or {}, body["chosen"] or {}
    setting = chosen.get("setting")
    words = [f"{key}={'default' if value is None else value}" for key, value in (setting or {}).items()]
    lines = [
        ("job", f"{body['job']}: {STATES.get(body['state'], body['state'])}"),
        *_learner_lines(body),
        ("model", f"{_version_text(body)}{_target_text(body)}"),
        ("setting", ", ".join(words) or "none: no run was drawn"),
        ("score", f"{chosen.get('score')} rows told right, with noise; of the best, so rather too many"),
        ("price", f"epsilon {body['epsilon']}"),
        ("certificate", f"entry {certificate.get('entry')}, statement {certificate.get('statement')}"),
        *closing(body),
        ("budget", left_words(body["left"])),
    ]
    return align_columns(lines)
