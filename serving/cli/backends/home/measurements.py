"""Evaluations and profiles of a home, measured in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accountant.access.grants import ASKING
from accountant.access.tokens import SCOPES
from accountant.certificates.statement_kinds import kind_in
from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.certificates.stated import Stated
from models.store.placing import open_in
from models.worth.report import Report
from serving.cli.backends.abstract import Body, Measurements
from serving.cli.backends.user import require_access, this_user
from training.jobs import job
from training.kinds.registry import stated_steps

attacks = later("training.jobs.attack")
synthetic_rows = later("training.measuring.profile.synthetic_rows")
public_rows = later("training.measuring.worth.public_rows")  # loads scikit-learn


class HomeMeasurements(Measurements):
    """As `Measurements` says, with the rows and the ledger of the home."""

    def plan(self, request: Any) -> Body:
        """Return the price of what is asked for."""
        return stated_steps(type(request)).plan(_home(request), request, this_user()).to_json()

    def measure(self, request: Any) -> tuple[Body, Stated[Any]]:
        """Run a job to its end, after what a crash left is settled."""
        home, steps = _home(request), stated_steps(type(request))
        job.recover(home)
        body = job.measure(home, request, by=this_user(), key=request.idempotency_key)
        envelope, _, stated, result = steps.read(home, body["job"], getattr(request, "select", None))
        file = kind_in(envelope).file(home, body["job"])
        return body | {steps.kind.word: result, "statement": str(file)}, stated

    def attack(self, name: str) -> Body:
        """Attack on made-up rows, by the steward, who holds the keys that sign it."""
        home = Home.open()
        require_access(home, "steward")
        return dict(attacks.attack(home, name, this_user()))

    def evaluate_rows(self, name: str, data: Path, schema: Path | None, public: bool) -> Report:
        """Evaluate on rows that are nobody's secret."""
        home = Home.open()
        model, access = open_in(home, name), require_access(home)
        report: Report = public_rows.evaluate_rows(
            home, model.verified, model.reference, data, this_user(), schema, public, access
        )
        return report

    def synthesize(self, dataset: str, number: int, out: Path, rows: int | None, seed: int) -> Body:
        """Write synthetic rows from a finished profile."""
        home = Home.open()
        require_access(home, *ASKING, dataset=dataset)
        return dict(synthetic_rows.from_profile(home, number, out, rows, seed, dataset))


def _home(request: Any) -> Home:
    """Return the home. Raises Forbidden unless the user may measure on the dataset, and see the models."""
    home = Home.open()
    access = require_access(home, *ASKING, dataset=request.dataset)
    for name in (getattr(request, "model", None), getattr(request, "against", None)):
        if name is not None and not access.everywhere:
            dataset = open_in(home, name).verified.certificate.form.dataset.name
            access.require(*SCOPES, model=name.partition("@")[0], dataset=dataset)
    return home
