"""What the core asks of learners of others (`training.learners.others`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.home import Home
from accountant.ledger.learner_admissions import OUTSIDE, VOUCHED
from dpserve_platform.outside import admitted, vouched
from dpserve_platform.outside.sandbox import OutsideLearner
from dpserve_platform.outside.vouched import VouchedLearner
from training.session.learner import Learner

KINDS = {kind.name: kind for kind in (OutsideLearner, VouchedLearner)}
resolve, begin, listed = admitted.resolve, admitted.begin, admitted.listed


def learner_of(name: str, parameters: Mapping[str, Any]) -> Learner:
    """Return the learner of this name, which runs what a job is given of it."""
    return KINDS[name](None, dict(parameters))


def check_runs(home: Home, parameters: Mapping[str, Any]) -> None:
    """Raise where the learner that a job's parameters name is not kept as it was admitted, or cannot run here."""
    vouched.check_runs(admitted.of_job(home, parameters).source)


def describe(home: Home, name: str) -> tuple[dict[str, Any], str, list[tuple[str, str]]]:
    """Return an admission that stands: for programs, in a sentence, and in lines for people. Raises as
    `admitted.shown`.
    """
    body = admitted.shown(home, name)
    of = VOUCHED if body["vouched"] else OUTSIDE
    saw, path = body["report"], home.path / admitted.FOLDER / body["digest"] / admitted.TEXT
    lines = [
        ("written by", body["author"]),
        ("class", body["class"]),
        ("sha256", body["digest"]),
        ("text", str(path)),
        ("admitted by", f"{body['by']}, {body['time']}, entry {body['entry']}: {body['reason']}"),
        ("for jobs on", ", ".join(body["datasets"] or ["every dataset"])),
        ("jobs", str(body["jobs"])),
        ("check", check_words(saw)),
        *(("", f"{share} of the sensitivity reached: {query}") for query, share in saw.get("reached", {}).items()),
        *(("with", f"{package} {version}") for package, version in saw.get("packages", {}).items()),
        ("on schemas", ", ".join(each[:12] for each in saw.get("schemas", ())) or "not said"),
    ]
    says = f"{name}: a learner of others, for jobs with --learner {of} --set code={name}"
    return body | {"path": str(path)}, says, lines


def check_words(saw: Mapping[str, Any]) -> str:
    """Say in a few words what the check of an admission saw."""
    if "vouch" in saw:
        return f"it reads rows: that it keeps {saw['vouch']['promise']} is the word of who admitted it, and not tested"
    return f"{saw['releases']} releases, {saw['neighbours']} neighbours, no fault"
