"""Jobs that count the rows of a dataset in public cells: how its columns are spread, and what a query asks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import METHOD, PROFILE, Profile
from accountant.certificates.statement import part_to_json
from accountant.ledger.families.families import Dataset, Started
from dpserve_verify.privacy.events import Plan
from models.answers.question import Question
from models.answers.table import released_by_answer
from models.profile.stated import check, chosen_figures, figures, noise_of
from training.kinds.job_steps import Learn
from training.kinds.stated_steps import Said, StatedSteps
from training.measuring.answers import answers
from training.measuring.answers.cells import Axis, TableCells
from training.measuring.answers.sums import adder_of, axes_of
from training.measuring.planning import part_of
from training.measuring.profile import profile
from training.measuring.profile.counts import GRID
from training.measuring.profile.profile import pairs_of, parents_of, profiler_of
from training.measuring.profile.release import profile_to_json
from training.requests import ProfileRequest, QueryRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, schema_of


class TableSteps(StatedSteps):
    """Count every row of a part, with an answer or without: no target is asked for."""

    def question(self, schema: Schema) -> Schema:
        """Ask for the first target, which stands for none."""
        return schema.question(schema.target_names[0], self.request.parameters)

    def open_rows(self, started: Started, schema: Schema) -> Rows:
        """Open the columns that are counted, in bins and cells."""
        cells = TableCells(schema)
        return cells.open(self.home, started, self.axes(cells))

    @abstractmethod
    def axes(self, cells: TableCells) -> Sequence[Axis]:
        """Return the columns that are counted."""


class ProfileSteps(TableSteps):
    """Count rows by bin, and state what follows of each column."""

    asks, kind = ProfileRequest, PROFILE
    plan, check_figures = staticmethod(profile.plan), staticmethod(check)

    def learner(self, schema: Schema) -> Learn:
        """Return what counts."""
        return profiler_of(schema, self.request.parameters)[0].learn

    def axes(self, cells: TableCells) -> Sequence[Axis]:
        """Return the columns of the profile, in bins."""
        return [cells.axis(column.name, fine=False) for column in profiler_of(cells.schema, self.request.parameters)[1]]

    def said(self, counts: list[int], dataset: Dataset, plan: Plan) -> Said:
        """Say how the rows are spread."""
        parameters, registration = self.request.parameters, dataset.registration
        _, columns = profiler_of(schema_of(self.home, dataset), parameters)
        around, records = parameters.get("around"), registration.public_records
        grid = GRID * registration.parts
        noise = noise_of(plan, grid, registration.draws)
        found = (
            figures(columns, pairs_of(parameters), counts, noise, records, grid)
            if around is None
            else chosen_figures(columns, str(around), parents_of(parameters), counts, plan, records, grid)
        )
        return Said({"grid": grid, **found, "method": METHOD}, part_to_json(dataset, part_of(dataset)))

    @staticmethod
    def to_json(seq: int, stated: Profile) -> dict[str, Any]:
        """Return how the rows are spread."""
        return profile_to_json(seq, stated)


class AnswerSteps(TableSteps):
    """Add up in public cells, and state the noisy sums."""

    asks, kind, name = QueryRequest, ANSWER, answers.NAME
    plan, check_figures = staticmethod(answers.plan), staticmethod(released_by_answer)
    read = staticmethod(answers.answer_of)

    def learner(self, schema: Schema) -> Learn:
        """Return what adds up."""
        cells = TableCells(schema)
        return adder_of(self._asked(cells), cells, "l1" if self.request.parameters["noise"] == "l1" else "l2").learn

    def axes(self, cells: TableCells) -> Sequence[Axis]:
        """Return the columns of the query, in bins and cells."""
        return axes_of(self._asked(cells), cells)

    def said(self, counts: list[int], dataset: Dataset, plan: Plan) -> Said:
        """Say the noisy sums."""
        cells = TableCells(schema_of(self.home, dataset))
        fields = answers.released_fields(self._asked(cells), cells, counts, plan)
        return Said(fields, part_to_json(dataset, part_of(dataset)))

    def _asked(self, cells: TableCells) -> Question:
        return cells.question(str(self.request.parameters["select"]), self.request.dataset)
