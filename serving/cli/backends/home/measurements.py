"""Evaluations and profiles of a home, measured in this process."""

from __future__ import annotations

from pathlib import Path

from accountant.access.grants import ASKING
from accountant.access.tokens import SCOPES
from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from accountant.home import Home
from accountant.system.lazy_import import later
from models.profile import report as profile_report
from models.store.placing import open_in
from models.worth.report import Report
from models.worth.stated import report_of
from models.worth.statements import statement_of
from serving.cli.backends.abstract import Body, Measurements, Note, Request
from serving.cli.backends.reports import write_report
from serving.cli.backends.user import require_access, this_user
from training.jobs import job
from training.measuring.answers import answers
from training.measuring.profile import profile as profiles
from training.measuring.worth import evaluate as evaluations
from training.requests import EvaluationRequest, ProfileRequest, QueryRequest

synthetic_rows = later("training.measuring.profile.synthetic_rows")
public_rows = later("training.measuring.worth.public_rows")  # loads scikit-learn


class HomeMeasurements(Measurements):
    """As `Measurements` says, with the rows and the ledger of the home."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def plan_evaluation(self, request: Request) -> Body:
        """Return the price of an evaluation."""
        return evaluations.plan(_home(request), EvaluationRequest.of(request), this_user()).to_json()

    def evaluate(self, request: Request, key: str | None, out: Path | None) -> Body:
        """Run an evaluation to its end."""
        home = self._ready(request)
        body = job.measure(home, EvaluationRequest.of(request), by=this_user(), key=key)
        if out is not None:
            unit = statement_of(home, body["job"])[2].form.claim.unit
            write_report(report_of(body["worth"], unit.contributions), out)
        return body | {"statement": str(home.evaluations / str(body["job"]) / WORTH.envelope_file)}

    def evaluate_rows(self, name: str, data: Path, schema: Path | None, out: Path | None, public: bool) -> Report:
        """Evaluate on rows that are nobody's secret."""
        home = Home.open()
        model, access = open_in(home, name), require_access(home)
        report: Report = public_rows.evaluate_rows(
            home, model.verified, model.reference, data, this_user(), schema, public, access
        )
        if out is not None:
            write_report(report, out)
        return report

    def plan_profile(self, request: Request) -> Body:
        """Return the price of a profile."""
        return profiles.plan(_home(request), ProfileRequest.of(request), this_user()).to_json()

    def profile(self, request: Request, key: str | None, out: Path | None) -> Body:
        """Run a profile to its end."""
        home = self._ready(request)
        body = job.measure(home, ProfileRequest.of(request), by=this_user(), key=key)
        if out is not None:
            profile_report.write(body["profile"], out)
        return body | {"statement": str(home.profiles / str(body["job"]) / PROFILE.envelope_file)}

    def synthesize(self, dataset: str, number: int, out: Path, rows: int | None, seed: int) -> Body:
        """Write synthetic rows from a finished profile."""
        home = _home({"dataset": dataset})
        return dict(synthetic_rows.from_profile(home, number, out, rows, seed, dataset))

    def plan_query(self, request: Request) -> Body:
        """Return the price of a query."""
        return answers.plan(_home(request), QueryRequest.of(request), this_user()).to_json()

    def query(self, request: Request, key: str | None) -> Body:
        """Answer a query."""
        home = self._ready(request)
        body = job.measure(home, QueryRequest.of(request), by=this_user(), key=key)
        answer = answers.answer_of(home, body["job"], request["select"])[3]
        return body | {"answer": answer, "statement": str(answers.statement_file(home, body["job"]))}

    def _ready(self, request: Request) -> Home:
        """Return the home, where the user may measure and what a crash left is settled."""
        home = _home(request)
        job.recover(home)
        return home


def _home(request: Request) -> Home:
    """Return the home. Raises Forbidden unless the user may measure on the dataset, and see the models."""
    home = Home.open()
    access = require_access(home, *ASKING, dataset=request["dataset"])
    for name in (request.get("model"), request.get("against")):
        if name is not None and not access.everywhere:
            dataset = open_in(home, name).verified.certificate.form.dataset.name
            access.require(*SCOPES, model=name.partition("@")[0], dataset=dataset)
    return home
