"""The profiles that a dataset's entry says its schema was refined from. Judged apart from the code that wrote it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dpserve_verify.audit.judge import Value
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.soundness import require

FIELDS = {"entry", "dataset", "part", "epsilon", "delta", "same_people"}
MOST = 64


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

    def are(self, lines: list[dict[str, Any]], families: Collection[str]) -> bool:
        """Tell whether a certificate's lines are profiles that stand; none are, too."""
        try:
            self.judge_named({"refined": lines} if lines else {}, families)
        except LedgerInvalid:
            return False
        return True

    def judge_named(self, value: Value, families: Collection[str]) -> None:
        """Check what a dataset's entry says, whose families these are. LedgerInvalid names the first thing wrong."""
        if "refined" not in value:
            return
        lines = value["refined"]
        require(isinstance(lines, list) and 0 < len(lines) <= MOST, f"refined: must be 1 to {MOST} profiles")
        for line in lines:
            require(isinstance(line, dict) and line.keys() == FIELDS, f"refined: each must have {sorted(FIELDS)}")
            entry = line["entry"]
            require(type(entry) is int and entry in self._stated, f"refined: {entry!r:.40} is no profile before")
            true = {**self._stated[entry], "same_people": not self._families[entry].isdisjoint(families)}
            require(line == true, f"refined: entry {entry} is a profile of another dataset, part or price")
        entries = [line["entry"] for line in lines]
        require(len(set(entries)) == len(entries), "refined: names a profile twice")
