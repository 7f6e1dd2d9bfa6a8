"""What binds the results of a job: certificates of models, and statements of what was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dpserve_verify.entries.entry import EntryForm, Hex, Index, Name, ReasonedForm
from dpserve_verify.entries.job_kinds import JobKind
from dpserve_verify.formats.forms import form_field
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import JobState, Replay


class StatementForm(EntryForm):
    """A signed statement of what a committed job made or counted, or the certificate of its model."""

    reservation: Index
    statement: Hex

    def require_job(self, replay: Replay, kind: JobKind) -> JobState:
        """Return the job, which is of this kind and has no other statement. LedgerInvalid where there is none such."""
        job, at = replay.job(self.reservation), self.reservation
        stands = {"job": at, "state": job.state}
        require(job.state == "committed", f"job {at}: is {job.state}, must be committed", "wrong_state", **stands)
        require(
            job.issued is None, f"job {at}: its statement was issued as entry {job.issued}", "wrong_state", **stands
        )
        require(job.kind is kind, f"job {at}: {job.kind.value}; another entry ends it", "wrong_state", **stands)
        return job


class Issued(StatementForm):
    """The certificate of a model."""

    type: Literal["issued"]
    model: Hex
    name: str

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        job = self.require_job(replay, JobKind.TRAINING)
        require(self.name == job.model, f"name={self.name!r:.80}: must be {job.model}")
        job.issued = seq
        replay.issued.add(seq)
        replay.models[seq] = job.model, bytes.fromhex(self.model)
        replay.names.note_issued(seq, job.model, job, replay.jobs)


class Evaluated(StatementForm):
    """What a model is worth, by an evaluation of that model."""

    type: Literal["evaluated"]
    model: Hex
    name: str

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        job = self.require_job(replay, JobKind.EVALUATION)
        require(self.name == job.model, f"name={self.name!r:.80}: must be {job.model}")
        measured = job.evaluates
        certified = replay.jobs[measured].issued if measured in replay.jobs else measured
        same = certified is not None and self.model == replay.models[certified][1].hex()
        require(same, f"model: must be that of entry {certified}, which was evaluated")
        job.issued = seq
        replay.worths[seq] = int(certified or 0)


class Profiled(StatementForm):
    """How the rows of a dataset are spread, by a profile of that dataset."""

    type: Literal["profiled"]
    dataset: Name

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        job = self.require_job(replay, JobKind.PROFILE)
        require(self.dataset == job.dataset, f"dataset: must be {job.dataset}")
        job.issued = seq
        counted = replay.books.datasets[job.dataset]
        part = job.part or ("training" if counted.held else "all")
        replay.profiles.note_profile(seq, self.reservation, part, job.dataset, counted.families)


class Derived(ReasonedForm):
    """The certificate of an edited model, made from a certified one of the same job and name, for no price."""

    type: Literal["derived"]
    base: Index = form_field(about="index of the entry that certified the model that was edited")
    reservation: Index
    statement: Hex
    model: Hex
    name: str

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        job, base = replay.job(self.reservation), self.base
        require(base in replay.issued, f"base={base}: no certificate was issued by that entry", "unknown_name")
        chain = replay.ancestors(base)
        require(chain[0] == job.issued, f"base={base}: is not a model of job {self.reservation}")
        require(self.name == job.model, f"name={self.name!r:.80}: must be {job.model}")
        ended = [ancestor for ancestor in chain if ancestor in replay.keys.revocations]
        revoked = f"base={base}: the certificate of entry {min(ended, default=0)} was revoked: nothing can be derived"
        require(not ended, revoked, "wrong_state")
        replay.issued.add(seq)
        replay.models[seq] = job.model, bytes.fromhex(self.model)
        replay.derived[seq] = base
