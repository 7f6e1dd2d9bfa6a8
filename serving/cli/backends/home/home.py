"""The backend of a home on this machine. Each topic is loaded when a command first uses it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from accountant.home import Home
from serving.cli.backends.abstract import Backend
from serving.cli.backends.user import require_access
from serving.operations import A, Caller, Operation, P, at_home


class HomeBackend(Backend):
    """The home that DPSERVE_HOME names, or the one in its usual place: rows, keys and ledger are here."""

    def ask(self, asked: Operation[P, A], *arguments: P.args, **values: P.kwargs) -> A:
        """Do what an operation says, for this user, with the files of the home."""
        home = Home.open()
        caller, body = Caller(home, require_access(home), by=self.by), values.get("body")
        if getattr(body, "public", None) is not None:  # of a job: it may be a file of this machine
            from serving.cli.backends.home.jobs import with_start

            values["body"] = with_start(caller, cast(Any, body))
        return at_home(asked, caller, *arguments, **values)

    def load(self, topic: str) -> Any:
        """Return the part for a topic: `HomeJobs` of `jobs`, for instance."""
        kind = getattr(import_module(f"{__package__}.{topic}"), f"Home{topic.title()}")
        return kind(self.note) if topic == "jobs" else kind()
