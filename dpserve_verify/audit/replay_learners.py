"""Learners of others: which are admitted, as the entries give it, and that no other ran."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from dpserve_verify.audit.judge import Value
from dpserve_verify.certificates.vouched import MECHANISM
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.declared import own_kind
from dpserve_verify.privacy.soundness import require

OUTSIDE, VOUCHED = "outside", "vouched"  # learners of jobs that run one: without rows, and with them
EVENTS = {"epsilon": "pure-dp", "mu": "gaussian"}  # what the run of a program costs, by what it keeps


@dataclass
class Learners:
    """The admissions that stand, by their entry; and the reservations of jobs that run a learner of others."""

    standing: dict[int, Value] = field(default_factory=dict)
    jobs: dict[int, Value] = field(default_factory=dict)

    def judge_admitted(self, seq: int, value: Value, datasets: Collection[str]) -> None:
        """Judge `learner-admitted`: name and digest are nobody else's among what is admitted."""
        name, played = value["name"], value["neighbours"]
        if "vouched" in value:
            sound = "datasets" in value and played == 0
            require(sound, "vouched: must be epsilon or mu, for named datasets, and nothing is played")
        else:
            require(played > 0, f"neighbours={played!r:.40}: must be a whole number from 1")
        for at, other in self.standing.items():
            require(other["name"] != name, f"name={name}: is that of entry {at}, which stands")
            require(other["digest"] != value["digest"], f"digest: is that of entry {at}, which stands")
        if "datasets" in value:
            names = value["datasets"]
            require(names == sorted(set(names)), "datasets: must be names, each once and in order")
            require(set(names) <= set(datasets), f"datasets: {names!r:.80} are not all registered before")
        if "declared" in value:
            own = value["declared"]
            require(own == sorted(set(own)), "declared: must be names of classes, each once and in order")
        self.standing[seq] = value

    def judge_removed(self, value: Value) -> None:
        """Judge `learner-removed`: it ends an admission that stands."""
        at = value["admitted"]
        stands = at in self.standing and self.standing[at]["name"] == value["name"]
        require(stands, f"admitted={at!r:.40}: must be an admission of this name before that stands")
        del self.standing[at]

    def judge_reserved(self, seq: int, value: Value) -> None:
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
        self._require(parameters.get("admission"), parameters.get("code"), value["dataset"])
        begun, said = self.standing[parameters["admission"]], (parameters.get("author"), parameters.get("admitted_by"))
        require(said == (begun["author"], begun["by"]), "parameters: author, admitted_by: are not its admission's")
        promise, declared = begun.get("vouched"), {*begun.get("declared", ())}
        require(value["learner"] == (VOUCHED if promise else OUTSIDE), "learner: is not what its admission is for")
        one = runs == [(MECHANISM, EVENTS[promise], 1)] if promise else not reads
        require(one, "plan: is not one run of what was vouched for, or a program reads rows that nobody vouched for")
        require(own <= declared, f"plan: {sorted(own)!s:.80} are not all declared by its admission")
        played = begun["neighbours"] if declared else None
        require(parameters.get("tested") == played, "parameters: tested: is not its admission's")

    def judge_started(self, job: int) -> None:
        """Judge that the admission which a job named stands still."""
        if job in self.jobs:
            parameters = self.jobs[job]["parameters"]
            self._require(parameters.get("admission"), parameters.get("code"), self.jobs[job]["dataset"])

    def _require(self, admission: Any, digest: Any, dataset: str) -> None:
        begun = self.standing.get(admission) if type(admission) is int else None
        if begun is None or begun["digest"] != digest:
            raise LedgerInvalid(f"code={digest!r:.80}: is a learner of others, and no admission of it stands")
        allowed = begun.get("datasets", [dataset])
        require(dataset in allowed, f"code={digest!r:.80}: is admitted for jobs on {allowed!r:.80} alone")

    def require_none(self, dataset: str) -> None:
        """Judge that no admission is for the jobs of this dataset by its name, which another could have later."""
        named = [at for at, value in self.standing.items() if dataset in value.get("datasets", ())]
        require(not named, f"dataset: the admission of entry {named[:1]} names it")
