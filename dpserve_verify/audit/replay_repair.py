"""Jobs that an earlier version let read blocks they were not charged to, and the entries that charge them afterwards.
Judged apart from the code that wrote them.

Such a job was reserved before its dataset's first `append`; when it started, was given back or went on, that version
took the accounts of every block there was then. The entries say so themselves: sums of blocks that the job was not
charged to, or a job that goes on after the growth and does not say which blocks it reads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dpserve_verify.audit.judge import Value
from dpserve_verify.audit.replay_blocks import merge_equal_blocks
from dpserve_verify.audit.replay_budget import Books
from dpserve_verify.audit.replay_keys import require_reasons
from dpserve_verify.privacy.soundness import Figures, require

Window = tuple[int, int]


@dataclass(frozen=True)
class WideJob:
    """A job with the blocks that it read, its price and who asked. `read` None: it was given back, and read none."""

    seq: int
    by: str
    part: str | None
    costs: tuple[Figures, ...]
    read: Window | None


@dataclass
class Repairs:
    """What is wrong by that fault and not repaired yet, by dataset: jobs, and entries whose sums differ. `repaired`:
    entries with what the audit says of their sums, put right since; `charged`: jobs charged to more blocks; `notes`:
    what a reader of the audit should know.
    """

    jobs: dict[str, list[WideJob]] = field(default_factory=dict)
    entries: dict[str, dict[int, str]] = field(default_factory=dict)
    repaired: set[tuple[int, str]] = field(default_factory=set)
    charged: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add_job(self, dataset: str, job: WideJob) -> None:
        """Note a job that stepped by the accounts of every block. One that went on more than once has read the blocks
        of each time.
        """
        jobs = self.jobs.setdefault(dataset, [])
        for place, earlier in enumerate(jobs):
            if earlier.seq == job.seq and earlier.read and job.read:
                both = min(earlier.read[0], job.read[0]), max(earlier.read[1], job.read[1])
                jobs[place] = replace(job, read=both)
                return
        jobs.append(job)

    def add_entry(self, dataset: str, seq: int, problem: str) -> None:
        """Note an entry whose sums differ, and how the audit says it."""
        self.entries.setdefault(dataset, {})[seq] = problem

    def analysts(self, dataset: str) -> list[str]:
        """Return who asked for the jobs of a dataset that are to be repaired, by name."""
        return sorted({job.by for job in self.jobs.get(dataset, ())})

    def fields(self, dataset: str, by_whom: str) -> dict[str, Any]:
        """Return what the next `repaired` entry of a dataset must say of the jobs that `by_whom` asked for, beside the
        sums: the first entry also names the entries whose sums differ.
        """
        jobs = [{"job": job.seq, "blocks": [*(job.read or ())]} for job in self.of(dataset, by_whom)]
        return {"dataset": dataset, "analyst": by_whom, "jobs": jobs, "entries": list(self.entries.get(dataset, {}))}

    def of(self, dataset: str, by_whom: str) -> list[WideJob]:
        """Return the jobs of a dataset that `by_whom` asked for and that are to be repaired, each once."""
        return sorted((job for job in self.jobs.get(dataset, ()) if job.by == by_whom), key=lambda job: job.seq)

    def problems(self) -> Iterator[str]:
        """Yield a line for each dataset that is not repaired, with the remedy."""
        for dataset, jobs in self.jobs.items():
            if jobs:
                numbers = ", ".join(str(job.seq) for job in sorted(jobs, key=lambda job: job.seq))
                yield (
                    f"dataset {dataset}: reserved before it grew, job {numbers} stepped by the accounts of every "
                    "block, by a fault of an earlier version (dpserve home repair --reason TEXT)"
                )

    def charge(self, books: Books, dataset: str, by_whom: str) -> list[str]:
        """Charge the jobs of `by_whom` to every block that they read and were not charged to; return what to know of
        each. A block that was closed by a job which took its whole total was read beside that job: it has sums again.
        """
        notes = []
        for job in self.of(dataset, by_whom):
            first, last = job.read or (1, 0)
            for block in range(max(first, 2), last + 1):
                for identity in books.dataset(dataset, job.part, (block, block)).families:
                    family = books.families[identity]
                    if family.person:
                        continue
                    cost = job.costs[0]
                    family.used, family.whole = family.used.plus(cost), None
                    family.analysts[by_whom] = family.analysts.get(by_whom, family.nothing()).plus(cost)
                    over = "" if family.within(family.used) else f", more than its total of {family.budget.epsilon}"
                    notes.append(f"job {job.seq} read block {block} of {dataset}, and is charged to it now{over}")
        return notes

    def lines(self, books: Books, dataset: str, by_whom: str) -> list[dict[str, Any]]:
        """Return the sums of every account of a dataset, and what `by_whom` used of each, as a `repaired` entry must
        state them: of each part, blocks that stand alike in one line.
        """
        merged: list[dict[str, Any]] = []
        last = books.blocks.known[dataset].last
        for part in (None, "holdout") if books.datasets[dataset].held else (None,):
            lines: list[dict[str, Any]] = []
            for identity in books.dataset(dataset, part, (1, last)).families:
                family = books.families[identity]
                line: dict[str, Any] = {"family": family.seq, "changed": family.changed, "used": family.sums()}
                line |= {"reserved": family.stored(family.reserved)}
                line |= ({"part": part} if part else {}) | ({"person": True} if family.person else {})
                used = family.analysts.get(by_whom, family.nothing())
                lines.append(line | {"analyst": {"name": by_whom, "used": family.stored(used)}})
            merged += merge_equal_blocks(lines)
        return merged

    def lines_after(self, books: Books, dataset: str, by_whom: str) -> list[dict[str, Any]]:
        """Return `lines` as they will be once the jobs of `by_whom` are charged; the books stay as they are."""
        charged = copy.deepcopy(books)
        self.charge(charged, dataset, by_whom)
        return self.lines(charged, dataset, by_whom)

    def judge(self, books: Books, seq: int, value: Value) -> None:
        """Judge a `repaired` entry: it names all that is wrong with its dataset by this fault, and the right sums."""
        dataset, by_whom = value["dataset"], value["analyst"]
        require_reasons(value)
        require(bool(self.of(dataset, by_whom)), f"dataset={dataset!r:.80}: nothing is to be repaired")
        fields = self.fields(dataset, by_whom)
        for name in ("jobs", "entries"):
            require(value[name] == fields[name], f"{name}: must be {fields[name]}")
        notes = self.charge(books, dataset, by_whom)
        self.charged |= {job.seq for job in self.of(dataset, by_whom) if job.read}
        require(value["after"] == self.lines(books, dataset, by_whom), "after: is not what the entries give")
        self.notes += [f"entry {seq}: {note}; reason: {value['reason']}" for note in notes]
        wrong = self.entries.pop(dataset, {})
        self.repaired.update(wrong.items())
        if wrong:
            numbers = ", ".join(map(str, wrong))
            self.notes.append(f"entry {seq}: puts right the sums of entries {numbers}; reason: {value['reason']}")
        self.jobs[dataset] = [job for job in self.jobs[dataset] if job.by != by_whom]


def wide_window(books: Books, value: Value, dataset: str) -> Window | None:
    """Return the blocks by whose accounts an entry steps, where its sums speak of blocks that appended entries founded;
    None where they do not. `value`: of a `started` or `released` entry of a job that names no window.
    """
    grown = books.blocks.known.get(dataset)
    if grown is None or not grown.blocks:
        return None
    accounts = {number for line in value["after"] for number in (line["family"], *line.get("also", ()))}
    return (grown.dropped + 1, grown.last) if accounts & {block.seq for block in grown.blocks} else None
