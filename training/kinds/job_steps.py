"""What the runner calls, step by step, for a job of any kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from accountant.home import Home
from accountant.ledger.families.families import Dataset, Started
from accountant.ledger.families.records import Job, Request
from training.datasets.datasets import open_rows
from training.planning import starts
from training.planning.plans import public_of
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema
from training.session.session import Public

Learn = Callable[[Any], Any]  # of a session or a rehearsal: plays the plan; what it released


@dataclass(frozen=True)
class JobSteps(ABC):
    """The steps of one job, in the order in which the runner takes them.

    Attributes:
        home: where it runs.
        seq: the job's number.
        request: what was asked.
        asks: class of a request in the words of the one who asks.
    """

    home: Home
    seq: int
    request: Request

    asks: ClassVar[Any]

    @classmethod
    @abstractmethod
    def submit(cls, home: Home, asked: Any, *, by: str, key: str | None, queued: bool, promotes: bool) -> Job:
        """Plan and reserve, or find the job that answers the same. Without `queued` the caller runs it."""

    @property
    def is_resumable(self) -> bool:
        """Tell whether its draws are kept, so that it can continue where its process died."""
        return True

    def check(self) -> None:
        """Raise DpserveError where it cannot run any more; it has not started, and nothing is spent."""
        return

    def question(self, schema: Schema) -> Schema:
        """Return the schema of what it reads: features and one target."""
        return schema.question(self.request.target, self.request.parameters)

    def public(self, dataset: Dataset, schema: Schema) -> Public:
        """Return what it may know before anything is released. `schema`: the whole one."""
        public = public_of(dataset, self.question(schema), self.request.budget)
        return starts.begin(self.home, public, self.request.learner, self.request.parameters)

    @abstractmethod
    def learner(self, schema: Schema) -> Learn:
        """Return what plays its plan, and rehearses it: it writes nothing. `schema`: the whole one."""

    def open_rows(self, started: Started, schema: Schema) -> Rows:
        """Open the rows that it reads."""
        return open_rows(self.home, started, schema)

    @abstractmethod
    def keep(self, released: Any) -> str:
        """Put what was released on disk, durably, before it is committed. Return its sha256."""

    def forget(self) -> None:
        """Remove what it kept beside its folder: it was burned."""
        return

    @abstractmethod
    def finish(self) -> Path:
        """Bring it to its end once it is committed, from wherever it stands. Return the folder of what it made."""

    def result(self) -> dict[str, Any]:
        """Return what it found, by name, for who waits for it: it has an end."""
        return {}
