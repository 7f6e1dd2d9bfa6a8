"""Training jobs at a server, whose worker learns; their progress is streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.certificates.worth import WORTH
from accountant.system.lazy_import import later
from dpserve import Client
from serving.cli.backends.abstract import Body, Jobs, Progress, Request, without_defaults
from serving.cli.backends.server.connection import AtServer

if TYPE_CHECKING:
    from serving.cli.backends.server import statements
else:
    statements = later("serving.cli.backends.server.statements")  # most commands on jobs verify none


class ServerJobs(AtServer, Jobs):
    """As `Jobs` says, over REST."""

    def train(self, request: Request, key: str | None, progress: Progress) -> Body:
        """Submit a job, and wait for it and for the evaluation that was asked for with it."""
        with self.connection.asking() as service:
            model = request.get("model") or request["dataset"]
            before = champion_of(service, model)
            submitted = service.submit(**without_defaults(request), idempotency_key=key)
            body = self.connection.wait_for_job(service, submitted.number, progress)
            then = body.get("evaluation")
            if then is not None:
                evaluated = self.connection.wait_for_job(service, then["job"])
                keys = self.connection.trusted_keys(service)
                _, worth = statements.verified(WORTH, service.evaluation(then["job"]), keys)
                body["evaluated"] = {**evaluated, "worth": worth}
            after = champion_of(service, model)
        return {**body, "replaces": before and f"{model}@{before}" if before != after else None}

    def watch(self, number: int, progress: Progress) -> Body:
        """Wait until a job is over."""
        with self.connection.asking() as service:
            for job in service.events(number):
                progress(job.done, job.total)
            return dict(job.raw)


def champion_of(service: Client, name: str) -> int | None:
    """Return the version that answers to a model's name; None where none does."""
    return next((model.version for model in service.models() if model.name == name and model.champion), None)
