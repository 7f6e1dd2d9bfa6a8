"""What a job says it was made from, and the profiles that a dataset's entry says its schema was refined from: judged
apart from the code that wrote them. Each release stands before, and none that the entries show to be behind a job is
left out (docs/privacy/outside.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dpserve_verify.audit.judge import Value
from dpserve_verify.privacy.soundness import require

BINDS = ("issued", "derived", "profiled")  # entries that bind the statement of a model or a profile
BEGINS = "ebm"  # the learner that begins from a model, whose digest is its parameter `start`


class Profiles:
    """The profiles that stand so far: by `profiled` entry, what a dataset's entry must say of it, and its families."""

    def __init__(self) -> None:
        self._stated: dict[int, dict[str, Any]] = {}
        self._families: dict[int, frozenset[str]] = {}
        self._claims: dict[int, dict[str, str]] = {}

    def note_claim(self, seq: int, claim: Mapping[str, Any]) -> None:
        """Note what a job that profiles a dataset claims."""
        self._claims[seq] = {name: claim[name] for name in ("epsilon", "delta")}

    def note_profile(self, seq: int, reservation: int, part: str, dataset: str, families: Collection[str]) -> None:
        """Note a `profiled` entry: of which job, part and dataset."""
        self._stated[seq] = {"entry": seq, "dataset": dataset, "part": part, **self._claims[reservation]}
        self._families[seq] = frozenset(families)

    def judge_named(self, value: Value, families: Collection[str]) -> None:
        """Check what a dataset's entry says, whose families these are. LedgerInvalid names the first thing wrong."""
        if "refined" not in value:
            return
        lines = value["refined"]
        for line in lines:
            entry = line["entry"]
            require(entry in self._stated, f"refined: {entry!r:.40} is no profile before")
            true = {**self._stated[entry], "same_people": not self._families[entry].isdisjoint(families)}
            require(line == true, f"refined: entry {entry} is a profile of another dataset, part or price")
        entries = [line["entry"] for line in lines]
        require(len(set(entries)) == len(entries), "refined: names a profile twice")


class Behind:
    """The releases that stand so far, and what jobs were made from."""

    def __init__(self) -> None:
        self.releases: dict[int, int] = {}  # entry that binds a statement -> the job whose release that is
        self.made_from: dict[int, frozenset[int]] = {}  # job -> the jobs behind it, where there are some
        self._starts: dict[bytes, int] = {}  # digest of released numbers from which boosting may begin -> their job
        self._schemas: dict[str, frozenset[int]] = {}  # dataset -> entries of the profiles behind its schema
        self._may_start: set[int] = set()

    def note(self, seq: int, value: Value) -> None:
        """Take in an entry that was judged."""
        kind = value["type"]
        if kind in BINDS:
            self.releases[seq] = value["reservation"]
        elif kind in ("dataset-registered", "dataset-joined") and "refined" in value:
            self._schemas[value["dataset"]] = frozenset(line["entry"] for line in value["refined"])
        elif kind == "reserved" and value["learner"] == BEGINS:
            self._may_start.add(seq)
        elif kind == "committed" and value["reservation"] in self._may_start:
            self._starts[bytes.fromhex(value["released"])] = value["reservation"]

    def schema_of(self, dataset: str) -> frozenset[int]:
        """Return the jobs of the profiles that a dataset's schema was refined from."""
        return frozenset(self.releases[entry] for entry in self._schemas.get(dataset, ()))

    def judge(self, seq: int, value: Value) -> None:
        """Judge what a `reserved` entry names: one entry of each release, in order, whatever these were made from among
        them, and all that schema and start were made from.
        """
        named = value.get("made_from", [])
        require(named == sorted(set(named)), "made_from: must be in order, each once")
        unknown = [entry for entry in named if entry not in self.releases]
        require(not unknown, f"made_from: {unknown[:1]} binds no model and no profile before")
        jobs = [self.releases[entry] for entry in named]
        require(len(set(jobs)) == len(jobs), "made_from: names a release twice")
        inside = set().union(*(self.made_from.get(job, frozenset()) for job in jobs))
        start: Any = value["parameters"].get("start") if value["learner"] == BEGINS else None
        begun = self._starts.get(bytes.fromhex(start)) if isinstance(start, str) else None
        shown = self.schema_of(value["dataset"]) | (set() if begun is None else {begun})
        missing = sorted((inside | shown) - set(jobs))
        require(not missing, f"made_from: leaves out job {missing[:1]}, which went into it")
        if jobs:
            self.made_from[seq] = frozenset(jobs)
