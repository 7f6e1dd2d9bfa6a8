"""The one query of an evaluation: how many records are counted in each cell of a public layout.

Law: a record is counted in `layout.counted` cells, once each, by its own features and answer and by a released model.
So adding or removing one moves the counts by as many in L1 (attained), and in L2 by the root of that. Under
replace-one twice as much: one record leaves its cells, another enters its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.privacy.budget import Relation
from models.forms.ensemble import Ensemble
from models.worth.cover import CoverLayout
from models.worth.groups import GroupedLayout, group_places
from models.worth.layout import Layout
from models.worth.paired import PairedLayout
from models.worth.scored import ScoredLayout
from models.worth.stated import GRID
from training.calibration.calibrate import calibrate
from training.rows.partitions.partition import TARGET_GRID, Partition
from training.rows.partitions.rows import Rows
from training.session.learner import Recipe
from training.session.reach import reach
from training.session.session import Public, Rehearsal, Releaser

Scores = NDArray[Any]
AT_ONCE = 1 << 16  # rows whose scores are in memory at one time


@dataclass(frozen=True)
class CellCounts:
    """Records per cell of `layout`, (layout.size,): by what `ensemble` says of them, their true answers and, where the
    layout has groups, the public group of each. None: it is not made yet, and the query can be rehearsed alone. In L2
    they are counted in GRID parts.
    """

    ensemble: Ensemble | None
    layout: Layout | GroupedLayout | ScoredLayout | CoverLayout
    norm: str = "l1"
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "records by true answer and what the model says"

    @property
    def size(self) -> int:
        """Count the cells."""
        return self.layout.size

    @property
    def grid(self) -> int:
        """Return how many parts a record is counted in: Gaussian noise on whole records would be priced as more."""
        return 1 if self.norm == "l1" else GRID

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one record moves all counts, in L1: in L2 by no more."""
        return reach(self.grid, 0, relation, "l1", self.layout.cells_per_record)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return self.grid * rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Return the records of a partition."""
        if self.ensemble is None:
            raise PlanMismatch(f"{self.purpose}: there is no model yet")
        layout, group = self.layout, rows.group
        if isinstance(layout, GroupedLayout) and group is None:
            raise PlanMismatch(f"{self.purpose}: the rows were opened without their groups")
        inner = layout.own if isinstance(layout, GroupedLayout) else layout
        counts, start = np.zeros(self.size, np.int64), 0
        for (scores,), answers in _parts(rows, (self.ensemble,)):
            if isinstance(inner, ScoredLayout):
                counts += inner.count(scores, answers)
                continue
            cells = inner.cells(scores, answers)
            if isinstance(layout, GroupedLayout) and group is not None:
                cells = cells + inner.size * group_places(layout.names, group[start : start + len(answers)])
            counts += np.bincount(cells.ravel(), minlength=self.size)
            start += len(answers)
        return counts


@dataclass(frozen=True)
class PairedCounts:
    """As CellCounts, by what two models say: of classes one cell a record; of numbers each record is shared out in
    `layout.counted` parts over neighbouring cells, all of them in every record.
    """

    ensembles: tuple[Ensemble, Ensemble]
    layout: PairedLayout
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "records by how right each of two models is"
    norm: ClassVar[str] = "l1"

    @property
    def size(self) -> int:
        """Count the cells."""
        return self.layout.size

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one record moves all counts, in L1."""
        return reach(1, 0, relation, "l1", self.layout.cells_per_record)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Return the same of a partition."""
        counts = np.zeros(self.size, np.int64)
        for (first, second), answers in _parts(rows, self.ensembles):
            counts += self.layout.count((first, second), answers)
        return counts


def _parts(rows: Partition, ensembles: Sequence[Ensemble]) -> Iterator[tuple[list[Scores], NDArray[Any]]]:
    """Yield what each model says, by its own bins, and answers as a layout takes them, of AT_ONCE rows at a time."""
    binned = [rows.binned(model.features) for model in ensembles]
    for start in range(0, rows.size, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        answers = rows.labels[part] if rows.classes else (rows.targets[part] / TARGET_GRID + 1) / 2
        pairs = zip(ensembles, binned, strict=True)
        yield (
            [
                model.coded_scores([columns.codes(at)[part] for at in range(len(columns.widths))])
                for model, columns in pairs
            ],
            answers,
        )


class Evaluator:
    """What is rehearsed, priced and played as a learner is: the noise is calibrated to the whole epsilon."""

    def __init__(self, query: CellCounts | PairedCounts) -> None:
        self.query = query

    def learn(self, session: Releaser | Rehearsal) -> NDArray[np.int64]:
        """Return the noisy counts, in whole records."""
        if self.query.norm == "l1":
            return np.asarray(session.release(self.query, DiscreteLaplace(session.unit)), np.int64)
        parts = session.release(self.query, DiscreteGaussian.of_unit(session.unit))
        return np.rint(np.asarray(parts) / GRID).astype(np.int64)

    def recipe(self, public: Public) -> Recipe:
        """Calibrate to the public budget; InputError where that cannot be."""
        return calibrate(self, public, public.budget)

    def guess(self, public: Public) -> None:
        """Return None: a release is cheap to rehearse."""
