"""A job that ends in a signed statement about released counts: free, and resumable at every step.

`jobs/<number>/counts.json` holds what was released, before it is committed; the signed envelope is written there before
its entry. Every step gives the same bytes when it is done again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.access import key_life
from accountant.certificates.statement_kind import StatementKind
from accountant.errors import BudgetRefused, JobFailed
from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.records import Job, Request
from accountant.system.traces import span
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.events import Plan
from dpserve_verify.system.files import PRIVATE, replace_file, sync_directory
from training.datasets.datasets import require_rows
from training.finish.lease import Lease, this_process
from training.finish.release import discard, lock_job, sign
from training.kinds.job_steps import JobSteps
from training.measuring.worth.evaluate import Planned

COUNTS = "counts.json"


@dataclass(frozen=True)
class Reservable:
    """What of a plan is reserved. `known`: the job whose statement answers it already."""

    request: Request
    unit: Decimal
    plan: Plan
    known: int | None

    @classmethod
    def of(cls, planned: Planned) -> Reservable:
        """Return what of this plan is reserved."""
        return cls(planned.request, planned.recipe.unit, planned.recipe.plan, planned.known)


class StatedSteps(JobSteps):
    """Keep counts, state them, sign and enter.

    Attributes:
        kind: of its statement.
        folder: where finished statements of this kind lie in a home.
    """

    kind: ClassVar[StatementKind[Any]]
    folder: ClassVar[str]

    @classmethod
    @abstractmethod
    def plan(cls, home: Home, asked: Any, by: str | None = None) -> Planned:
        """Rehearse and price. BudgetRefused where it would not be admitted now. Spends nothing."""

    @classmethod
    def submit(cls, home: Home, asked: Any, *, by: str, key: str | None, queued: bool, promotes: bool) -> Job:
        """Plan and reserve; the job whose statement answers the same is given instead, for nothing."""

        def plan() -> Reservable:
            planned = cls.plan(home, asked, by)
            if planned.known is None and not queued:
                require_rows(home, planned.dataset)
            return Reservable.of(planned)

        return cls.reserve(home, plan, by=by, key=key, queued=queued)

    @classmethod
    def reserve(
        cls, home: Home, plan: Callable[[], Reservable], *, by: str, key: str | None, queued: bool = True
    ) -> Job:
        """Reserve what `plan` works out, here or elsewhere, as `submit`."""
        with span("rehearse"):
            planned = plan()
        if planned.known is not None:
            return home.ledger.job(planned.known)
        job = planned.request, planned.unit, planned.plan
        owner = None if queued else this_process()
        try:
            with span("reserve"):
                return home.ledger.reserve(*job, by=by, key=key, owner=owner, lease=Lease.SECONDS)
        except BudgetRefused:  # somebody was faster between plan and reserve: say what fits now
            plan()
            raise

    @property
    def place(self) -> Path:
        """Return the folder of its finished statement."""
        return self.home.path / self.folder / str(self.seq)

    @abstractmethod
    def statement(self, counts: list[int]) -> bytes:
        """Return what is signed of these counts."""

    @abstractmethod
    def check_figures(self, stated: Stated[Any]) -> None:
        """Raise CertificateInvalid where a figure does not follow from the counts."""

    def in_log(self) -> dict[str, Any]:
        """Return where its reservation stands, as its statement says it."""
        ledger = self.home.ledger
        return {"origin": ledger.log.origin, "reservation": self.seq, "leaf": ledger.reservation_hash(self.seq)}

    def keep(self, released: NDArray[np.int64]) -> str:
        """Keep the counts."""
        folder = self.home.jobs / str(self.seq)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        raw = json.dumps(released.tolist()).encode()
        replace_file(folder / COUNTS, raw, PRIVATE, alone=True)
        sync_directory(self.home.jobs)
        return digest(raw)

    def finish(self) -> Path:
        """Return the folder of the statement."""
        folder, place = self.home.jobs / str(self.seq), self.place
        with lock_job(self.home, self.seq):
            job = self.home.ledger.job(self.seq)
            if not folder.exists():
                if not (place / self.kind.envelope_file).exists():
                    state = f"is {job.state.value}, and its counts are not in the home"
                    raise JobFailed(f"job {self.seq}: {state}", job=self.seq)
                return place
            envelope, issued = self._sign(folder, job), job.issued
            if issued is None:
                payload = dsse.parse(envelope).payload
                signed_by = key_life.signed_by(envelope)
                issued = evaluations.enter(self.home.ledger.log, self.seq, digest(payload), signed_by)
            proof = self.home.ledger.log.proof(issued)
            self.check_figures(self.kind.verify(envelope, proof, self.home.trust))
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(place / self.kind.proof_file, proof.encode(), PRIVATE, alone=True)
            replace_file(place / self.kind.envelope_file, envelope, PRIVATE, alone=True)
            discard(folder)
            return place

    def _sign(self, folder: Path, job: Job) -> bytes:
        """Sign the statement, once, so that every later try speaks of the same bytes; sign it anew only where its key
        may sign no more and it was not entered yet.
        """
        path = folder / self.kind.envelope_file
        if path.exists():
            envelope = path.read_bytes()
            if job.issued is not None or key_life.may_issue(self.home.ledger, key_life.signed_by(envelope)):
                return envelope
            return sign(self.home, path, dsse.parse(envelope).payload)
        raw = (folder / COUNTS).read_bytes()
        if digest(raw) != self.home.ledger.released_digest(self.seq):
            raise LedgerInvalid(f"job {self.seq}: {COUNTS} is not what was committed")
        return sign(self.home, path, self.statement(json.loads(raw)))
