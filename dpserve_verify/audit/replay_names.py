"""Whose each model's name is, as the entries give it: judged apart from the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpserve_verify.entries.job_kinds import JobKind
from dpserve_verify.privacy.soundness import require


class Reserved(Protocol):
    """What is asked of a job as the replay has it."""

    dataset: str
    target: str | None
    by: str
    state: str
    kind: JobKind


@dataclass
class Names:
    """By name, the jobs that something came of or may come of, in order: the first of them binds it.

    `champions`: by name, the certificate of the version that answers, None: none does. The first of a name answers from
    the start, where its job is as the name is bound to; then what was promoted last.
    """

    champions: dict[str, int | None] = field(default_factory=dict)
    _issued: set[str] = field(default_factory=set)
    _first: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _next: dict[int, int] = field(default_factory=dict)

    def judge_reserved(
        self, seq: int, value: Mapping[str, Any], jobs_by_entry: Mapping[int, Reserved], promotes: Callable[[], bool]
    ) -> None:
        """Judge whom a reservation binds the model's name to. `known`: the jobs, with its own; `promotes`: whether the
        principal may promote versions of the model, by the entries before.
        """
        if jobs_by_entry[seq].kind is not JobKind.TRAINING:
            return require("bound" not in value, "bound: stands in no evaluation and no profile")
        name = value["model"]
        owner = self._owner(name, jobs_by_entry)
        if owner is None:
            owner = self._first[name] = seq
        else:
            self._next[self._last[name]] = seq
        self._last[name] = seq
        require("bound" in value, "bound: must stand in every reservation of a model")
        require(value["bound"] == owner and type(owner) is int, f"bound={value['bound']!r:.40}: must be {owner}")
        request = value["dataset"], value.get("target"), value["by"]
        binds = jobs_by_entry[owner]
        if owner != seq and ((binds.dataset, binds.target, binds.by) != request or "promote" in value):
            who = f"{value['by']:.80} may not promote it"
            require(promotes(), f"model={name:.80}: bound by entry {owner}, and {who}")

    def note_issued(self, seq: int, name: str, job: Reserved, jobs_by_entry: Mapping[int, Reserved]) -> None:
        """Note a certificate for a model of this name, by a job. The first one answers to it, where its job asked as
        the name's owner did.
        """
        if name in self._issued:
            return
        self._issued.add(name)
        first = self._owner(name, jobs_by_entry)
        require(first is not None, f"name={name:.80}: no job binds it")
        owner = jobs_by_entry[first or 0]
        same_owner = (owner.dataset, owner.target, owner.by) == (job.dataset, job.target, job.by)
        self.champions[name] = seq if same_owner else None

    def _owner(self, name: str, jobs_by_entry: Mapping[int, Reserved]) -> int | None:
        """Return the first job of a name that something came of or may come of; None where there is none. Those before
        it are passed over once.
        """
        first = self._first.get(name)
        while first is not None and jobs_by_entry[first].state in ("released", "burned"):
            first = self._next.get(first)
            if first is not None:
                self._first[name] = first
        return first

    def note_promoted(self, name: str, issued: int) -> None:
        """Note that the version of this certificate answers to the name from now on."""
        self.champions[name] = issued
