"""What privacy costs and who spent it: prices, draws, filter, ledger, keys, certificates, audit. Imports none of the
other rooms.

From the ground: errors, canonical, files, merkle, budget; then the folders `store`, `privacy`; mechanisms (the only
noise there is), `keys`; `log`; `ledger`; home (where all of it lies); `certificates`; `audit`.
"""

from typing import Any

from accountant.system.lazy_import import later
from dpserve_verify.faster import FASTER

_worst_range, _signature_pool = later("accountant.privacy.worst_range"), later("accountant.system.signature_pool")


def _make_faster() -> None:
    """Let the verifier use numpy, and helper processes, as soon as it has something to verify."""

    def worst_range(value: list[float], cells: int, step: float) -> list[float]:
        found: list[float] = _worst_range.worst_range(value, cells, step)
        return found

    def signatures(*given: Any) -> Any:
        return _signature_pool.Signatures(*given)

    FASTER.worst_range, FASTER.signatures = worst_range, signatures


_make_faster()
