"""A job that ends in a signed statement about released counts: free, and resumable at every step.

`jobs/<number>/counts.json` holds what was released, before it is committed; the signed envelope is written there before
its entry. Every step gives the same bytes when it is done again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.access import key_life
from accountant.certificates.statement_kind import StatementKind
from accountant.errors import JobFailed
from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Job, Request
from accountant.system.traces import span
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import BudgetRefused, LedgerInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.events import Plan, plan_from_json
from dpserve_verify.system.files import PRIVATE, replace_file, sync_directory
from training.datasets.datasets import require_rows
from training.finish.lease import Lease, this_process
from training.finish.release import discard, lock_job, sign
from training.kinds.job_steps import JobSteps
from training.measuring.planning import Planned, part_of

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


class Said(NamedTuple):
    """What is signed of counts: `figures`, what is said of the `rows`, and the file that it is `about`, as
    `StatementKind.encode` takes them.
    """

    figures: Mapping[str, Any]
    rows: Mapping[str, Any]
    about: tuple[str, str] | None = None


class StatedSteps(JobSteps):
    """Keep counts, state them, sign and enter.

    Attributes:
        kind: of its statement.
    """

    kind: ClassVar[StatementKind[Any]]

    @classmethod
    @abstractmethod
    def plan(cls, home: Home, asked: Any, /, by: str | None = None) -> Planned:
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

    @classmethod
    def read(cls, home: Home, seq: int, select: str | None = None) -> tuple[bytes, bytes, Any, dict[str, Any]]:
        """Return the envelope and the proof of a finished statement, what it says, verified, and that for programs; of
        an answer the table of `select`, its own when left out. UnknownName where there is none.
        """
        envelope, proof, stated = cls.kind.open(home, seq)
        return envelope, proof, stated, cls.to_json(seq, stated)

    @staticmethod
    def to_json(seq: int, stated: Any) -> dict[str, Any]:
        """Return a verified statement for programs."""
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """Return what it found, under the name of its statement."""
        return {self.kind.word: self.read(self.home, self.seq)[3]}

    @property
    def dataset(self) -> Dataset:
        """Return the dataset as the statement speaks of it, with the accounts of the part."""
        return self.home.ledger.dataset_of(self.seq)

    @abstractmethod
    def said(self, counts: list[int], dataset: Dataset, plan: Plan) -> Said:
        """Return what is signed of these counts, which were released by this plan."""

    @staticmethod
    @abstractmethod
    def check_figures(stated: Any, /) -> object:
        """Raise CertificateInvalid where a figure does not follow from the counts."""

    def statement(self, counts: list[int]) -> bytes:
        """Return what is signed of these counts, as canonical bytes."""
        plan, dataset = plan_from_json(self.home.ledger.reservation(self.seq).value["plan"]), self.dataset
        figures, rows, about = self.said(counts, dataset, plan)
        part = part_of(dataset, self.request)
        return self.kind.encode(figures, rows, part, dataset, self.request, plan, self.in_log(), about)

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
        folder, place = self.home.jobs / str(self.seq), self.kind.place(self.home, self.seq)
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
