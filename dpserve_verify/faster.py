"""What a larger program does sooner than this package alone: dpserve puts its own here when it is imported, by numpy
and by more than one process. Every verdict is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpserve_verify.audit.checkpoints import OpenSignatures
    from dpserve_verify.privacy.adaptive_opinion import WorstRange


@dataclass
class Faster:
    """Stands in for the functions of this package; None: those are used.

    worst_range: `dpserve_verify.privacy.adaptive_opinion.worst_range`.
    signatures: `dpserve_verify.audit.checkpoints.OneByOne`.
    """

    worst_range: WorstRange | None = None
    signatures: OpenSignatures | None = None


FASTER = Faster()
