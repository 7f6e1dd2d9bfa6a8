"""Checkpoints that others cosigned: where one is kept, and whether any meets a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpserve_verify.errors import DpserveError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.cosignature import Cosignature, require_quorum
from dpserve_verify.log.seen_checkpoints import read_note, verify_head
from dpserve_verify.log.witness_policy import WitnessPolicy, printable_name

WITNESSED = "witnessed"  # the name of its file


def read_witnessed(folder: Path) -> str | None:
    """Read the cosigned checkpoint in a home, an export or a folder of tiles; None where there is none. Not
    verified.
    """
    file = folder / WITNESSED
    return read_note(file) if file.exists() else None


@dataclass(frozen=True)
class Vouched:
    """The largest checkpoint of those that were looked at which meets a policy: how many entries it has, and who saw
    them. None does where there are `problems`.
    """

    size: int
    by: tuple[Cosignature, ...]
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what an audit adds to its report."""
        return {"witnessed": self.size, "seen_by": [each.to_json() for each in self.by]}

    @property
    def words(self) -> str:
        """Return how many entries are vouched for, by whom and when."""
        by = ", ".join(each.words for each in self.by)
        return f"{self.size}{f', seen by {by}' if by else ''}"


UNSEEN = Vouched(0, ())


def judge(candidates: Sequence[str], policy: WitnessPolicy, trust: PublicKeys) -> Vouched:
    """Return the largest checkpoint among these that meets the policy, or the problem where none does.

    Says nothing of the entries: the audit has to compare the same checkpoints with the tree.
    """
    vouched, problems = list[Vouched](), list[str]()
    for note in candidates:
        try:
            head = verify_head(note, trust)
            policy.check_log(trust.origin, trust.log_key_at(head.size))
            vouched.append(Vouched(head.size, require_quorum(note, policy)))
        except DpserveError as error:
            problems.append(error.message)
    if vouched:
        return max(vouched, key=lambda each: (each.size, [cosignature.time for cosignature in each.by]))
    reasons = "; ".join(dict.fromkeys(problems)) or "there is no checkpoint to look at"
    return Vouched(0, (), (f"quorum={printable_name(policy.quorum)}: no checkpoint is vouched for: {reasons}",))
