"""What a learner shows in a notebook: itself in a line with what it spent, its curves or votes, itself as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpserve_verify.privacy.budget import short_delta
from training.learners.base.estimator import parameters_of

if TYPE_CHECKING:
    from accountant.privacy.claims import Claim
    from models.forms.ensemble import Ensemble

LONGEST = 60  # characters of a parameter in a line


@dataclass(frozen=True, repr=False)
class Explained:
    """What a model says: shown as a drawing in a notebook, as a table elsewhere; `parts` as `dpserve model explain
    --json` prints them."""

    parts: Mapping[str, Any]
    drawing: str
    table: str

    def _repr_html_(self) -> str:
        return self.drawing

    def __repr__(self) -> str:
        return self.table


class Shown:
    """For estimators whose released numbers are `_released()`, under what `spent_` claims."""

    _released: Any
    relation: str

    def explain(self) -> Explained:
        """Return the model's curves, or votes, or what its trees ask. Costs nothing: they are released numbers."""
        ensemble: Ensemble = self._released()
        parts, rows = ensemble.summary()
        widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
        lines = ("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return Explained(parts, ensemble.svg(self._promise()), "\n".join(line.rstrip() for line in lines))

    def plot(self, path: str | Path) -> Path:
        """Write the same as a file: .png, .svg or a .html that asks for nothing outside. InputError for another
        ending.
        """
        from models.explain.picture import picture  # draws, which a plan does without

        picture(self._released(), self._promise(), Path(path))
        return Path(path)

    def export(self, path: str | Path) -> Path:
        """Write the model as ONNX with its preprocessing inside: raw records in. Without a certificate, for no ledger
        has it. InputError unless `path` ends in .onnx.
        """
        from dpserve_verify.errors import InputError
        from models.onnx.export import to_onnx  # as above

        if Path(path).suffix != ".onnx":
            raise InputError(f"path={Path(path).name}: must end in .onnx")
        Path(path).write_bytes(to_onnx(self._released(), {}))
        return Path(path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what the model is and spent, and its curves or votes, where it was fitted."""
        fitted = hasattr(self, "ensemble_")
        return f"<p><code>{escape(repr(self))}</code></p>" + (self.explain().drawing if fitted else "")

    def _promise(self) -> str:
        spent: Claim = self.spent_  # type: ignore[attr-defined]
        claimed = f"({spent.epsilon}, {short_delta(spent.delta)})-differential privacy"
        return f"{claimed}, {self.relation}; no ledger vouches for it"

    def __repr__(self) -> str:
        """Return the parameters that are not the defaults, and what was spent."""
        kinds = parameters_of(type(self))
        shown = {name: repr(getattr(self, name)) for name, kind in kinds.items()}
        changed = {name: text for name, text in shown.items() if text != repr(kinds[name].default)}
        cut = (f"{name}={text if len(text) <= LONGEST else text[:LONGEST] + '...'}" for name, text in changed.items())
        spent = getattr(self, "spent_", None) if hasattr(self, "recipe_") else None
        spending = (
            "nothing spent yet"
            if spent is None
            else f"spent epsilon {spent.epsilon} at delta {short_delta(spent.delta)}"
        )
        return f"<{type(self).__name__}({', '.join(cut)}): {spending}>"
