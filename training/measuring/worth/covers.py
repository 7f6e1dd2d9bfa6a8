"""Answers that hold the truth as often as was asked, of a model in a home: by the newest signed counts of how its
answers cover. Nothing is spent, and no row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accountant.home import Home
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.errors import InputError
from models.features.features import Feature, RawColumns
from models.forms.ensemble import Ensemble
from models.parts.beside import ENDS, Columns, Wanted
from models.worth.cover import CoverLayout
from models.worth.groups import group_places
from models.worth.stated import layout_of
from models.worth.statements import find_cover
from training.datasets.described import written_as
from training.rows.partitions.partition import TARGET_GRID


@dataclass(frozen=True)
class Cover:
    """How a model's answers cover. `tables` (groups, layout.size): of each group, or of all records in one, with noise
    of this `variance`; `group`: by which a record is in one; `entry`: of the statement.
    """

    model: Ensemble
    layout: CoverLayout
    tables: Sequence[Sequence[float]]
    variance: float
    entry: int
    group: Feature | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, home: Home, model: Ensemble, certificate: Certificate, column: str | None) -> Cover:
        """Return it by the groups of a column, or of all records alike. InputError, with a remedy, where nobody counted
        that.
        """
        stated = find_cover(home, certificate.issued, column)
        if stated is None:
            by, alike = ("", "") if column is None else (f" by the groups of {column}", f" --group {column}")
            raise InputError(
                f"cover: how answers of model {certificate.model} cover{by} was not counted on rows that it did not "
                f"learn from: dpserve evaluate {certificate.model} --dataset NAME --epsilon E --cover{alike}, or ask "
                "for the prediction without cover"
            )
        histogram = stated["histogram"]
        layout = CoverLayout(replace(layout_of(model), bins=histogram["columns"] - 1))
        tables = np.reshape(histogram["counts"], (-1, layout.size)).tolist()
        group = None if column is None else _group(home, certificate, stated["dataset"], column)
        names = tuple(histogram.get("groups", {}).get("names", ()))
        return cls(model, layout, tables, float(histogram["variance"]), stated["entry"], group, names)

    def answer(self, columns: RawColumns, wanted: Wanted) -> Columns:
        """Return the ends of intervals, or for each class whether it is in the set, of raw columns. A group of too few
        records is answered by all there is. InputError where that is so of every group.
        """
        found = [self.layout.last_place(table, wanted.level, self.variance) for table in self.tables]
        if all(place is None for place in found):
            raise InputError(
                f"cover={wanted.level:g}: too few rows were counted for that level beside the noise (entry "
                f"{self.entry}); ask for a lower level, or evaluate --cover with more epsilon"
            )
        last, scores = self.layout.own.bins - 1, self.model.scores(columns)
        of_group = np.array([last if place is None else place for place in found], np.intp)
        groups = np.zeros(len(scores), np.intp)
        if self.group is not None:
            groups = group_places(self.names, self.group.encode(columns[self.group.name]))
        places = of_group[groups]
        names, ends = wanted.names(self.model.classes), self.layout.target_range
        if ends is None:
            inside = self.layout.class_places(scores) <= places[:, None]
            return {name: inside[:, at] for at, name in enumerate(names)}
        reach = self.layout.ends[places] + 1 / TARGET_GRID  # answers were counted in steps of half that
        middles, width = self.layout.own.answers_of(scores), ends[1] - ends[0]
        return {
            name: np.clip(ends[0] + width * (middles + side * reach), *ends)
            for name, side in zip(ENDS, (-1, 1), strict=True)
        }


def _group(home: Home, certificate: Certificate, dataset: str, column: str) -> Feature:
    """Return the group of the dataset that was counted. InputError where its schema is not here."""
    digest = next(
        (each.registration.schema for each in home.ledger.datasets() if each.registration.name == dataset), ""
    )
    schema = written_as(home, dataset, digest, None)
    if schema is None:
        raise InputError(
            f"group={column}: the schema of dataset {dataset} is not here, which declares it; ask a server that has "
            "it, or for the prediction without group"
        )
    return schema.group(column)
