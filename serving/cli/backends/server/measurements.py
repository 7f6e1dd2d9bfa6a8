"""Evaluations and profiles at a server, whose worker measures; what it states is verified here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import PROFILE
from accountant.certificates.statement_kind import StatementKind
from accountant.certificates.worth import WORTH
from accountant.system.lazy_import import later
from dpserve import Client
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import replacing
from models.worth.report import Report
from serving.cli.backends.abstract import Body, Measurements, without_defaults
from serving.cli.backends.server.connection import AtServer
from serving.cli.backends.server.statements import verified
from training.requests import EvaluationRequest, ProfileRequest, QueryRequest

made_up = later("training.datasets.made_up")
synthetic_rows = later("training.measuring.profile.synthetic_rows")
WAYS: dict[type, tuple[Any, Any, StatementKind[Any], str]] = {  # to price, to ask, what it ends in, and where that is
    EvaluationRequest: (Client.plan_evaluation, Client.evaluate, WORTH, "evaluations"),
    ProfileRequest: (Client.plan_profile, Client.profile, PROFILE, "profiles"),
    QueryRequest: (Client.plan_query, Client.query, ANSWER, "answers"),
}


class ServerMeasurements(AtServer, Measurements):
    """As `Measurements` says, over REST."""

    def plan(self, asked: Any) -> Body:
        """Return the price of what is asked for."""
        with self.connection.asking() as service:
            return dict(WAYS[type(asked)][0](service, **_body(asked)))

    def measure(self, asked: Any) -> tuple[Body, Stated[Any]]:
        """Run a job to its end, and verify its statement."""
        _, ask, kind, path = WAYS[type(asked)]
        with self.connection.asking() as service:
            answer = ask(service, **_body(asked), idempotency_key=asked.idempotency_key)
            keys = self.connection.trusted_keys(service)
            stated, found = verified(kind, answer, keys, getattr(asked, "select", ""))
            job = dict(service.job(answer["job"]).raw)
        return job | {kind.word: found, "statement": f"/v1/{path}/{answer['job']}"}, stated

    def attack(self, name: str) -> Body:
        """Refuse: the steward attacks where the home is; what was stated is shown by `model show`."""
        raise InputError("attack: works where the home is, whose keys sign it; dpserve model show says what it showed")

    def evaluate_rows(self, name: str, data: Path, schema: Path | None, public: bool) -> Report:
        """Refuse: a server takes no rows, and here nobody can tell whether they stand in one of its datasets."""
        raise InputError(
            "data: works where the home is, which makes sure that the rows stand in no dataset; evaluate by --dataset, "
            "or dpserve predict and compare yourself"
        )

    def synthesize(self, dataset: str, number: int, out: Path, rows: int | None, seed: int) -> Body:
        """Write synthetic rows that the server draws from a profile, which is verified first."""
        with self.connection.asking() as service:
            statement, _ = verified(PROFILE, service.profile_of(number), self.connection.trusted_keys(service))
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


def _body(asked: Any) -> Body:
    """Return the fields of a request that differ from their defaults, without the key."""
    return {name: value for name, value in without_defaults(asked.to_json()).items() if name != "idempotency_key"}
