"""How many rows were counted before, by what was released: it narrows a forecast at no price, and changes no plan, for
a job's price and noise go by what was declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accountant.certificates.statement_kinds import kind_at
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import HOLDOUT, charged_window
from accountant.ledger.families.windows import Window
from dpserve_verify.errors import VerificationError
from models.answers.question import Measure
from models.answers.table import Released, released_by
from models.features.features import CategoricalFeature
from training.session.session import Public

ALL_ROWS = Measure()
MOST = 8  # statements of the same rows that are looked at, the newest
Jobs = Sequence[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Counted:
    """About how many rows there are, with the standard deviation of the noise in it. `classes`: of each column of
    values that they were counted by, the counts of its values.
    """

    rows: float
    noise: float
    classes: Mapping[str, tuple[float, ...]]


_READ: dict[tuple[str, int], list[Counted]] = {}  # a statement's file and its time -> what it counts


def as_counted(home: Home, dataset: Dataset, public: Public) -> Public:
    """Return what is public with the number of rows, and the shares of the classes, that released counts say: of the
    blocks together, or else of each by itself. As it is declared where nothing was counted, or rows have weights.
    """
    jobs = [] if public.parts > 1 else evaluations.counts_on(home.ledger.log.database, dataset.registration.name)
    whole = [*_counts(home, jobs, dataset, dataset.window or (1, 1))]
    if whole:
        rows = min(whole, key=lambda each: each.noise).rows
        shares = [each.classes[public.target] for each in whole if public.target in each.classes]
        return replace(public, records=max(1, round(rows)), prevalence=_shares(shares, public))
    if not jobs or not dataset.blocks:
        return public
    rows, share = 0.0, public.records / dataset.records
    for block in dataset.blocks:
        alone = [*_counts(home, jobs, dataset, (block.number, block.number))]
        rows += min(alone, key=lambda each: each.noise).rows if alone else share * block.records
    return replace(public, records=max(1, round(rows)))


def _shares(counts: Sequence[Sequence[float]], public: Public) -> tuple[float, ...]:
    """Return the shares of the classes by the newest of these counts; as declared where there is none."""
    classes = len(public.classes or ())
    if not counts or classes < 2:
        return public.prevalence
    found = [max(1.0, each) for each in counts[0][:classes]]
    return tuple(each / sum(found) for each in found)


def _counts(home: Home, jobs: Jobs, dataset: Dataset, window: Window) -> Iterator[Counted]:
    """Yield what was counted of the rows of a window in the part whose account the dataset has, the newest first; of
    the other part by the share that is kept aside.
    """
    part, aside = dataset.families[0].part, dataset.holdout
    of_window = [(seq, value) for seq, value in jobs if charged_window(value) == window]
    for seq, value in of_window[:MOST]:
        scale = 1.0
        if value.get("part") != part and aside is not None:
            scale = float(aside / (1 - aside)) if part == HOLDOUT else float((1 - aside) / aside)
        for each in _counted_by(home, seq):
            yield replace(each, rows=max(1.0, scale * each.rows), noise=scale * each.noise)


def _counted_by(home: Home, seq: int) -> list[Counted]:
    """Return what the statement of a job counts, which was verified since its file changed; nothing where it is not in
    this home, or does not verify.
    """
    kind = kind_at(home, seq)
    path = kind.file(home, seq)
    try:
        at = str(path), path.stat().st_mtime_ns
        if at not in _READ:
            _READ[at] = [*_read(released_by(kind.open(home, seq)[2]))]
        return _READ[at]
    except (OSError, UnknownName, VerificationError):
        return []


def _read(tables: Sequence[Released]) -> Iterator[Counted]:
    for table in tables:
        if table.where or ALL_ROWS not in table.measures:
            continue
        counts = table.sums[table.measures.index(ALL_ROWS)]
        classes = {
            column.name: tuple(counts.sum(axis=tuple(other for other in range(counts.ndim) if other != axis)).tolist())
            for axis, column in enumerate(table.by)
            if isinstance(column.feature, CategoricalFeature)
        }
        yield Counted(float(counts.sum()), float(np.sqrt(counts.size * table.noise.variance)), classes)
