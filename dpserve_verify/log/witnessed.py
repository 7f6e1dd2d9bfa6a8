"""Checkpoints that others cosigned: where one is kept, and whether any meets a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpserve_verify.errors import DpserveError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.cosignature import require_quorum
from dpserve_verify.log.seen_checkpoints import read_note, verify_head
from dpserve_verify.log.witness_policy import WitnessPolicy, printable_name

WITNESSED = "witnessed"  # the name of its file


def read_witnessed(folder: Path) -> str | None:
    """Read the cosigned checkpoint in a home, an export or a folder of tiles; None where there is none. Not
    verified.
    """
    file = folder / WITNESSED
    return read_note(file) if file.exists() else None


def judge(candidates: Sequence[str], policy: WitnessPolicy, trust: PublicKeys) -> tuple[int, list[str]]:
    """Return the size of the largest checkpoint among these that meets the policy, and the problem where none does.

    Says nothing of the entries: the audit has to compare the same checkpoints with the tree.
    """
    sizes, problems = [], []
    for note in candidates:
        try:
            head = verify_head(note, trust)
            policy.check_log(trust.origin, trust.log_key_at(head.size))
            require_quorum(note, policy)
            sizes.append(head.size)
        except DpserveError as error:
            problems.append(error.message)
    if sizes:
        return max(sizes), []
    reasons = "; ".join(dict.fromkeys(problems)) or "there is no checkpoint to look at"
    return 0, [f"quorum={printable_name(policy.quorum)}: no checkpoint is vouched for: {reasons}"]
