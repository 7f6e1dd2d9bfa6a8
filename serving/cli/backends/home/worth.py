"""Evaluations and profiles with a home: measured in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accountant.access.grants import ASKING
from accountant.access.tokens import SCOPES
from accountant.home import Home
from models.profile import report as profile_report
from models.worth.report import Report
from models.worth.stated import report_of
from models.worth.statements import ENVELOPE, statement_of
from serving.cli.backends.home.released import opened
from serving.cli.released.reports import write_report
from serving.cli.terminal import allowed, awaits, this_user
from training.jobs import job
from training.measuring.profile import profile as profiles
from training.measuring.profile import release
from training.measuring.profile.profile import AskedProfile
from training.measuring.worth import evaluate as evaluations
from training.measuring.worth.evaluate import AskedWorth


def planned_evaluation(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The price of an evaluation; spends nothing."""
    return evaluations.plan(_home(asked), AskedWorth(**asked), this_user()).to_json()


def evaluated(asked: Mapping[str, Any], key: str | None, out: Path | None) -> dict[str, Any]:
    """An evaluation to its end, with `worth`, and the place of its `statement`; a report goes to `out`."""
    home = _home(asked)
    job.recover(home)
    awaits(asked)
    body = job.measure(home, AskedWorth(**asked), by=this_user(), key=key)
    if out is not None:
        unit = statement_of(home, body["job"])[2].form.claim.unit
        write_report(report_of(body["worth"], unit.contributions), out)
    return body | {"statement": str(home.evaluations / str(body["job"]) / ENVELOPE)}


def evaluated_on_rows(name: str, data: Path, schema: Path | None, out: Path | None, public: bool) -> Report:
    """On rows of a file that are nobody's secret, for nothing."""
    from training.measuring.worth.public_rows import evaluate_rows  # loads scikit-learn

    model, home = opened(name), Home.open()
    access = allowed(home)
    found = evaluate_rows(home, model.verified, model.reference, data, this_user(), schema, public, access)
    if out is not None:
        write_report(found, out)
    return found


def planned_profile(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The price of a profile; spends nothing."""
    return profiles.plan(_home(asked), AskedProfile(**asked), this_user()).to_json()


def profiled(asked: Mapping[str, Any], key: str | None, out: Path | None) -> dict[str, Any]:
    """A profile to its end, with its figures, and the place of its `statement`; a report goes to `out`."""
    home = _home(asked)
    job.recover(home)
    awaits(asked)
    body = job.measure(home, AskedProfile(**asked), by=this_user(), key=key)
    if out is not None:
        profile_report.write(body["profile"], out)
    return body | {"statement": str(home.profiles / str(body["job"]) / release.ENVELOPE)}


def _home(asked: Mapping[str, Any]) -> Home:
    """The home, where whoever sits here may measure on the dataset, and see the models: what is found out is about
    them."""
    home = Home.open()
    held = allowed(home, *ASKING, dataset=asked["dataset"])
    for name in (asked.get("model"), asked.get("against")):
        if name is not None and not held.everywhere:
            dataset = opened(name).verified.certificate.form.dataset.name
            held.require(*SCOPES, model=name.partition("@")[0], dataset=dataset)
    return home
