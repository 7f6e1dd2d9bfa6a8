"""Learners of others that a steward admits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpserve_verify.certificates.vouched import MECHANISM
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.declared import own_kind
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay
from typing import Annotated, Literal

from dpserve_verify.entries.entry import Hex, Index, Line, Name, ReasonedForm
from dpserve_verify.formats.forms import Limits, form_field
from dpserve_verify.privacy.declared import NAME


class LearnerAdmitted(ReasonedForm):
    """A learner of others is admitted, after a check that played it on neighbours."""

    type: Literal["learner-admitted"]
    name: Name
    digest: Hex = form_field(about="sha256 of the class's name and the text")
    of_class: Line = form_field(key="class")
    author: Line
    report: Hex = form_field(about="sha256 of the signed report of the check")
    neighbours: Annotated[int, Limits(low=0)] = form_field(
        about="how many it was played on; 0 of a program that reads rows"
    )
    datasets: Annotated[list[Name], Limits(shortest=1)] | None = form_field(
        absent=True, about="for whose jobs alone it may run"
    )
    vouched: Literal["epsilon", "mu"] | None = form_field(absent=True, about="what a program that reads rows keeps")
    declared: Annotated[list[Annotated[str, Limits(pattern=f"^{NAME.pattern}$")]], Limits(shortest=1)] | None = (
        form_field(absent=True, about="classes that answer queries of its own, by a sensitivity that is declared")
    )

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.learners.judge_admitted(seq, self, replay.books.datasets)


class LearnerRemoved(ReasonedForm):
    """An admission ends."""

    type: Literal["learner-removed"]
    name: Name
    admitted: Index = form_field(about="index of the entry that ends")

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.learners.judge_removed(self)


OUTSIDE, VOUCHED = "outside", "vouched"  # learners of jobs that run one: without rows, and with them
EVENTS = {"epsilon": "pure-dp", "mu": "gaussian"}  # what the run of a program costs, by what it keeps


@dataclass
class Learners:
    """The admissions that stand, by their entry; and the reservations of jobs that run a learner of others."""

    standing: dict[int, LearnerAdmitted] = field(default_factory=dict)
    jobs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def judge_admitted(self, seq: int, form: LearnerAdmitted, datasets: Collection[str]) -> None:
        """Judge `learner-admitted`: name and digest are nobody else's among what is admitted."""
        if form.vouched is not None:
            sound = form.datasets is not None and form.neighbours == 0
            require(sound, "vouched: must be epsilon or mu, for named datasets, and nothing is played")
        else:
            require(form.neighbours > 0, f"neighbours={form.neighbours}: must be a whole number from 1")
        for at, other in self.standing.items():
            require(other.name != form.name, f"name={form.name}: is that of entry {at}, which stands")
            require(other.digest != form.digest, f"digest: is that of entry {at}, which stands")
        names, own = form.datasets or [], form.declared or []
        require(names == sorted(set(names)), "datasets: must be names, each once and in order")
        require(set(names) <= set(datasets), f"datasets: {names!r:.80} are not all registered before")
        require(own == sorted(set(own)), "declared: must be names of classes, each once and in order")
        self.standing[seq] = form

    def judge_removed(self, form: LearnerRemoved) -> None:
        """Judge `learner-removed`: it ends an admission that stands."""
        at = form.admitted
        stands = at in self.standing and self.standing[at].name == form.name
        require(stands, f"admitted={at!r:.40}: must be an admission of this name before that stands")
        del self.standing[at]

    def judge_reserved(self, seq: int, value: Mapping[str, Any]) -> None:
        """Judge that a job which runs a learner of others names the admission of it that stands."""
        parameters = value["parameters"]
        runs = [(run["mechanism"], run["event"].get("type"), run["count"]) for run in value["plan"]]
        reads = any(mechanism == MECHANISM for mechanism, *_ in runs)
        own = {kind for run in value["plan"] if (kind := own_kind(run["purpose"]))}
        if value["learner"] not in (OUTSIDE, VOUCHED) and "code" not in parameters:
            require(not reads, "plan: a program reads rows, and nobody vouched for it")
            require(not own, "plan: a query is a learner's own, and no admission declares it")
            return
        self.jobs[seq] = value
        begun = self._require(parameters.get("admission"), parameters.get("code"), value["dataset"])
        said = parameters.get("author"), parameters.get("admitted_by")
        require(said == (begun.author, begun.by), "parameters: author, admitted_by: are not its admission's")
        of = OUTSIDE if begun.vouched is None else VOUCHED
        require(value["learner"] == of, "learner: is not what its admission is for")
        one = not reads if begun.vouched is None else runs == [(MECHANISM, EVENTS[begun.vouched], 1)]
        require(one, "plan: is not one run of what was vouched for, or a program reads rows that nobody vouched for")
        declared = begun.declared or []
        require(own <= {*declared}, f"plan: {sorted(own)!s:.80} are not all declared by its admission")
        played = begun.neighbours if declared else None
        require(parameters.get("tested") == played, "parameters: tested: is not its admission's")

    def judge_started(self, job: int) -> None:
        """Judge that the admission which a job named stands still."""
        if job in self.jobs:
            parameters = self.jobs[job]["parameters"]
            self._require(parameters.get("admission"), parameters.get("code"), self.jobs[job]["dataset"])

    def _require(self, admission: Any, digest: Any, dataset: str) -> LearnerAdmitted:
        begun = self.standing.get(admission) if type(admission) is int else None
        if begun is None or begun.digest != digest:
            raise LedgerInvalid(f"code={digest!r:.80}: is a learner of others, and no admission of it stands")
        allowed = begun.datasets or [dataset]
        require(dataset in allowed, f"code={digest!r:.80}: is admitted for jobs on {allowed!r:.80} alone")
        return begun

    def admitted_for(self, dataset: str) -> list[str]:
        """Return the learners that are admitted for the jobs of this dataset by its name, which another could have
        later.
        """
        return [form.name for form in self.standing.values() if dataset in (form.datasets or ())]
