"""Answers without noise: for rows that are nobody's secret, or for what is never released."""

from __future__ import annotations

from typing import Any

from accountant.noise.mechanisms import Mechanism
from training.rows.partitions.rows import Rows
from training.session.session import Public, Query, in_own_unit


class Exact:
    """A releaser that answers without noise: the best candidate, of equal ones the first, or the values themselves."""

    def __init__(self, public: Public, unit: Any, rows: Rows) -> None:
        self.public, self.unit, self._rows = public, unit, rows

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return the answer itself."""
        values = query(self._rows)
        if mechanism.norm != "range":
            return in_own_unit(query, mechanism, values, self.public)
        best = values.argmax(axis=-1)
        return int(best) if values.ndim == 1 else best
