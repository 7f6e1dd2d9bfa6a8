"""Evaluations and profiles at a server, whose worker measures; what it states is verified here."""

from __future__ import annotations

from pathlib import Path

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import replacing
from models.profile import report as profile_report
from models.worth.report import Report
from models.worth.stated import report_of
from serving.cli.backends.abstract import Body, Measurements, Request, without_defaults
from serving.cli.backends.reports import write_report
from serving.cli.backends.server.connection import Connection
from serving.cli.backends.server.statements import verified_answer, verified_profile, verified_worth

made_up = later("training.datasets.made_up")
synthetic_rows = later("training.measuring.profile.synthetic_rows")


class ServerMeasurements(Measurements):
    """As `Measurements` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def plan_evaluation(self, request: Request) -> Body:
        """Return the price of an evaluation."""
        with self.connection.asking() as service:
            return dict(service.plan_evaluation(**without_defaults(request)))

    def evaluate(self, request: Request, key: str | None, out: Path | None) -> Body:
        """Run an evaluation to its end, and verify its statement."""
        with self.connection.asking() as service:
            answer = service.evaluate(**without_defaults(request), idempotency_key=key)
            statement, worth = verified_worth(answer, self.connection.trusted_keys(service))
            job = dict(service.job(answer["job"]).raw)
        if out is not None:
            write_report(report_of(worth, statement.form.claim.unit.contributions), out)
        return job | {"worth": worth, "statement": f"/v1/evaluations/{answer['job']}"}

    def evaluate_rows(self, name: str, data: Path, schema: Path | None, out: Path | None, public: bool) -> Report:
        """Refuse: a server takes no rows, and here nobody can tell whether they stand in one of its datasets."""
        raise InputError(
            "data: works where the home is, which makes sure that the rows stand in no dataset; evaluate by --dataset, "
            "or dpserve predict and compare yourself"
        )

    def plan_profile(self, request: Request) -> Body:
        """Return the price of a profile."""
        with self.connection.asking() as service:
            return dict(service.plan_profile(**without_defaults(request)))

    def profile(self, request: Request, key: str | None, out: Path | None) -> Body:
        """Run a profile to its end, and verify its statement."""
        with self.connection.asking() as service:
            answer = service.profile(**without_defaults(request), idempotency_key=key)
            _, profile = verified_profile(answer, self.connection.trusted_keys(service))
            job = dict(service.job(answer["job"]).raw)
        if out is not None:
            profile_report.write(profile, out)
        return job | {"profile": profile, "statement": f"/v1/profiles/{answer['job']}"}

    def synthesize(self, dataset: str, number: int, out: Path, rows: int | None, seed: int) -> Body:
        """Write synthetic rows that the server draws from a profile, which is verified first."""
        with self.connection.asking() as service:
            statement, _ = verified_profile(service.profile_of(number), self.connection.trusted_keys(service))
            if statement.form.rows.dataset != dataset:
                raise InputError(f"from-profile={number}: is of dataset {statement.form.rows.dataset}")
            marked = service.synthetic(number, rows=rows, seed=seed)
            written = (
                marked if out.suffix == ".parquet" else service.synthetic(number, rows=rows, seed=seed, format="csv")
            )
        with replacing(out) as partial:
            partial.write_bytes(written)
        about = dict(synthetic_rows.describe(marked))
        if out.suffix == ".csv":
            made_up.write_mark(out, made_up.SYNTHETIC, about)
        return about

    def plan_query(self, request: Request) -> Body:
        """Return the price of a query."""
        with self.connection.asking() as service:
            return dict(service.plan_query(**without_defaults(request)))

    def query(self, request: Request, key: str | None) -> Body:
        """Answer a query, and verify the statement that the table follows from."""
        with self.connection.asking() as service:
            answer = service.query(**without_defaults(request), idempotency_key=key)
            table = verified_answer(answer, self.connection.trusted_keys(service), request["select"])
            job = dict(service.job(answer["job"]).raw)
        return job | {"answer": table, "statement": f"/v1/answers/{answer['job']}"}
