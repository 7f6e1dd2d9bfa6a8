"""The interface between the commands and what they ask: `Backend`, of a home or of a server.

Each method is stated once, here. `backends.home` does it with the files of this machine, `backends.server` by asking
over REST; both return the same keys and raise the same errors, so that texts, JSON and exit codes do not depend on
where a command runs. `serving.cli.backend.backend` chooses one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dpserve_verify.audit.tree_of_entries import Report as AuditReport
    from dpserve_verify.certificates.bundle import Bundle
    from dpserve_verify.certificates.stated import Stated
    from dpserve_verify.keys.trust import PublicKeys
    from dpserve_verify.log.seen_checkpoints import Growth
    from models.parts.beside import Wanted
    from models.store.loading import OpenedModel
    from models.worth.report import Report
    from serving.operations import A, Operation, P
    from serving.wire.list_parts import Part
    from training.requests.base import Checked

Body: TypeAlias = dict[str, Any]  # one JSON object, with the keys of the REST answer
Request: TypeAlias = Mapping[str, Any]  # a request with the keys of its REST body
Progress: TypeAlias = "Callable[[int, int | None], None]"  # takes what is done, and the total or None
Note: TypeAlias = Callable[[str], None]  # prints a line for people


def without_defaults(request: Request) -> Body:
    """Return the keys that were given; what was left out has its default where the request is read."""
    fields = {key: value for key, value in request.items() if value is not None and value is not False}
    return {key: value for key, value in fields.items() if value not in ({}, (), [])}


class Jobs(ABC):
    """Training jobs: run and watch."""

    @abstractmethod
    def train(self, request: Request, key: str | None, progress: Progress) -> Body:
        """Run a job to its end, and return it with the version that it `replaces`.

        Args:
            request: The keys of POST /v1/jobs.
            key: The same key gives the same job, and spends once.
            progress: Called with releases done and in all, which say nothing of the rows.

        Raises:
            BudgetRefused: It does not fit; nothing was spent.
            JobFailed: It had started, and its budget is spent.
        """

    @abstractmethod
    def watch(self, number: int, progress: Progress) -> Body:
        """Wait until a job is over, and return it, whatever came of it."""


class Measurements(ABC):
    """Jobs that count rows and end in a signed statement: what a model is worth, a profile, an answer to a query."""

    @abstractmethod
    def plan(self, asked: Checked) -> Body:
        """Return the price of a request of one of these. Spends nothing."""

    @abstractmethod
    def measure(self, asked: Checked) -> tuple[Body, Stated[Any]]:
        """Run a job to its end, and return it with what it found (`worth`, `profile` or `answer`) and the place of its
        `statement`; and that statement, verified. The same idempotency key gives the same job, and spends once.
        """

    @abstractmethod
    def attack(self, name: str) -> Body:
        """Make the attack that was registered with the training of a model; return what it shows."""

    @abstractmethod
    def evaluate_rows(self, name: str, data: Path, schema: Path | None, public: bool) -> Report:
        """Evaluate a model for nothing on rows that are nobody's secret.

        Args:
            name: The model.
            data: The file of rows, with the target.
            schema: How the file is written; as the model's dataset when left out.
            public: The user says that the rows are public, though they are few.

        Raises:
            InputError: The rows stand in a registered dataset; or a server is asked, which takes no rows.
        """

    @abstractmethod
    def synthesize(self, dataset: str, number: int, out: Path, rows: int | None, seed: int) -> Body:
        """Write synthetic rows from a finished profile, at no price, and return what the file says of them.

        Args:
            dataset: Whose profile it is; InputError where it is another's.
            number: The profile's job.
            out: The file, .parquet or .csv.
            rows: How many; as many as were counted when None.
            seed: The same gives the same rows.
        """


@dataclass(frozen=True)
class RowsToPredict:
    """A file whose rows are to be predicted.

    Attributes:
        model: Its name.
        data: The file of rows.
        schema: How the file is written; as the model's dataset when left out.
        out: The file to write.
        keep: Columns of the file that stand before the predictions, as they are.
        has_notes: Whether a column says which values were clipped, unknown or missing.
        wanted: What stands beside each prediction; None where nothing is.
    """

    model: str
    data: Path
    schema: Path | None
    out: Path
    keep: Sequence[str] = ()
    has_notes: bool = False
    wanted: Wanted | None = None


class Models(ABC):
    """The list of released models, predictions, and which version answers to a name."""

    @abstractmethod
    def list_part(self, part: Part) -> Body:
        """Return `models`, versions with the statements of `worth` that each is judged by, one or none, and `next`."""

    @abstractmethod
    def champion(self, name: str) -> int | None:
        """Return the version that answers to a model's name; None where none does."""

    @abstractmethod
    def predict(self, file: RowsToPredict, progress: Progress) -> Body:
        """Predict every row of a file, in its order, into another; return `model`, `target`, `records` and `out`.
        `progress` is called with the number of records done.
        """


class Bundles(ABC):
    """The files of one released model, each opened and verified on this machine."""

    @abstractmethod
    def open(self, name: str) -> OpenedModel:
        """Return a verified model. Raises UnknownName or VerificationError; never warns."""

    @abstractmethod
    def read(self, name: str) -> Bundle:
        """Return the files of a model, not verified."""

    @abstractmethod
    def with_witnessed_proof(self, model: OpenedModel) -> Bundle:
        """Return its files with a proof against the checkpoint that witnesses cosigned. InputError at a server."""

    @abstractmethod
    def growth_since(self, model: OpenedModel) -> Sequence[str]:
        """Return sentences on how its dataset grew since its certificate was issued; none where it did not."""

    def attack(self, model: OpenedModel) -> Body | None:
        """Return how the attack stands that was registered with its training; None where that is not known here."""
        return None

    def signed_attacks(self, model: OpenedModel) -> list[tuple[int, bytes, bytes]]:
        """Return the job, envelope and proof of that attack, where its statement is here."""
        return []

    @abstractmethod
    def statements(self, model: OpenedModel) -> list[Body]:
        """Return what it was measured to be worth, the newest first."""

    @abstractmethod
    def signed_statements(self, model: OpenedModel) -> list[tuple[int, bytes, bytes]]:
        """Return the same as it was signed: the job's number, the envelope and the proof of each."""


class Ledger(ABC):
    """The ledger, and the keys that sign it."""

    @abstractmethod
    def audit(
        self, seen: list[str], trust: Path | None, progress: Progress
    ) -> tuple[AuditReport, list[str], PublicKeys]:
        """Judge every entry here, whoever keeps the ledger.

        Args:
            seen: Checkpoints that were kept from before.
            trust: The file of pinned keys; those of the home, or those pinned for the server, when left out.
            progress: Called with the number of entries done.

        Returns:
            The report, the checkpoints that the ledger was held against, and the keys that it was judged by.
        """

    @abstractmethod
    def export(self, out: Path) -> int:
        """Write the whole ledger into a new folder; return the number of entries."""

    @abstractmethod
    def checkpoint(self) -> str:
        """Return the newest signed tree head."""

    @abstractmethod
    def trusted_keys(self) -> PublicKeys:
        """Return the home's own public keys, or those pinned for the server. Raises InputError."""

    @abstractmethod
    def prove_growth(self, origin: str, earlier: int, later: int) -> Growth | None:
        """Return a proof that the tree of `later` entries begins with that of `earlier`; None where there is none."""


class Backend(ABC):
    """What a command asks, by topic; a topic is loaded when a command first uses it.

    Args:
        note: Prints a line for the user, on stderr.
        by: Who decides; the user when None. A server takes it from the token.
    """

    bundles: Bundles
    jobs: Jobs
    ledger: Ledger
    measurements: Measurements
    models: Models

    def __init__(self, note: Note, by: str | None = None) -> None:
        self.note, self.by = note, by

    def __getattr__(self, topic: str) -> Any:
        """Load a topic. AttributeError for what is none."""
        if topic not in Backend.__annotations__:
            raise AttributeError(topic)
        part = self.load(topic)
        setattr(self, topic, part)
        return part

    @abstractmethod
    def load(self, topic: str) -> Any:
        """Return the backend's part for a topic, from the module of its name."""

    @abstractmethod
    def ask(self, asked: Operation[P, A], *arguments: P.args, **values: P.kwargs) -> A:
        """Do what an operation says, here or at the server, and return its answer."""
