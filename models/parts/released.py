"""What a released model is, as far as exports and explanations need to know: numbers that anybody may read. Forms that
implement it stand in `models.forms`; none of this ever sees a row of the training data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature, RawColumns
from models.parts.answers import Bends, ClassLabel, Range, Scores
from models.parts.edits import Edit
from models.parts.pairs import PairTerm


class Released(Protocol):
    """A released model, whatever its form: frozen, public, and the same answer wherever it runs. `classes` is empty
    where it answers a number; such a model has a `target_range` and no probabilities (InputError)."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """Return the features in the order of their codes."""

    @property
    def target(self) -> str:
        """Return the name of what is answered."""

    @property
    def classes(self) -> tuple[ClassLabel, ...]:
        """Return the classes that the model tells apart; empty for a number."""

    @property
    def target_range(self) -> Range | None:
        """Return the public range within which an answered number lies; None for classes."""

    @property
    def link(self) -> float:
        """Return the logits, or units of the target, per unit of score."""

    @property
    def bends(self) -> Bends:
        """Return the scores from which on a unit of score is worth other logits; mostly none."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Return what people changed since the release, oldest first."""

    @property
    def outputs(self) -> int:
        """Count the scores of a record: 1 for two classes or a number, else one per class."""

    def predict(self, columns: RawColumns) -> NDArray[Any]:
        """Predict labels (n,) from raw columns, or values (n,) of a number."""

    def probabilities(self, columns: RawColumns) -> NDArray[np.float64]:
        """Return the probabilities (n, classes) for raw columns."""

    def importances(self) -> dict[str, float]:
        """Return how far each feature can move a score, the most important first; features that move none are left
        out.
        """

    def as_sum(self) -> FeatureSum:
        """Return the model, if its scores are sums of what each feature adds by itself; InputError else."""


class FeatureSum(Released, Protocol):
    """A released model whose scores are sums: scores = constant + sum over features f of tables[f][code of x's f], and
    over `pairs` of what two features add together, where it has such."""

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Return the released noisy counts of rows per feature and code, negative at times; or an empty tuple."""

    @property
    def errors(self) -> tuple[tuple[float, ...], ...]:
        """Return the standard error of each term from the noise alone, in score units, per feature and code; or an
        empty tuple."""

    @property
    def in_votes(self) -> bool:
        """Tell whether its scores are counts of votes, and explained as such: whole votes, equal neighbours as one bin.
        Otherwise they are explained in `link` x score, bin by bin."""

    @property
    def pairs(self) -> tuple[PairTerm, ...]:
        """Return what two features add together; or an empty tuple."""

    def tables(self) -> tuple[list[Scores], Scores]:
        """Return what each feature adds, (bins, outputs) each, and the constant (outputs,)."""
