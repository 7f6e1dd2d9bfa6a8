"""A job that answers a query of counts, sums and means of a dataset's rows."""

from __future__ import annotations

from typing import Any

from accountant.certificates.answer import ANSWER, Answer
from accountant.home import Home
from accountant.ledger.families.families import Started
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import plan_from_json
from models.answers.question import Question
from models.answers.sql import read_question
from models.answers.table import released_by_answer
from training.kinds.job_steps import Learn
from training.kinds.stated_steps import StatedSteps
from training.measuring.answers import answers
from training.measuring.answers.answers import PlannedAnswer
from training.measuring.answers.cells import TableCells
from training.measuring.answers.sums import adder_of, axes_of
from training.measuring.worth.evaluate import part_of
from training.requests import QueryRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, schema_of


class AnswerSteps(StatedSteps):
    """Add up in public cells, and state the noisy sums."""

    asks = QueryRequest
    kind, folder, name = ANSWER, "profiles", answers.NAME

    @classmethod
    def plan(cls, home: Home, asked: QueryRequest, by: str | None = None) -> PlannedAnswer:
        """Rehearse and price. BudgetRefused where it would not be admitted now. Spends nothing."""
        return answers.plan(home, asked, by)

    def question(self, schema: Schema) -> Schema:
        """Ask for the first target, which stands for none."""
        return schema.question(schema.target_names[0])

    def learner(self, schema: Schema) -> Learn:
        """Return what adds up."""
        cells = TableCells(schema)
        return adder_of(self._asked(cells), cells, "l1" if self.request.parameters["noise"] == "l1" else "l2").learn

    def open_rows(self, started: Started, schema: Schema) -> Rows:
        """Open the columns of the query, in bins and cells."""
        cells = TableCells(schema)
        return cells.open(self.home, started, axes_of(self._asked(cells), cells))

    def statement(self, counts: list[int]) -> bytes:
        """State the noisy sums."""
        home, request = self.home, self.request
        plan = plan_from_json(home.ledger.reservation(self.seq).value["plan"])
        dataset = home.ledger.dataset_of(self.seq)
        schema, registration = schema_of(home, dataset), dataset.registration
        records = registration.records if registration.relation is Relation.REPLACE_ONE else None
        fields = answers.released_fields(self._asked(TableCells(schema)), schema, counts, plan)
        return ANSWER.statement(fields, part_of(dataset), records, dataset, request, plan, self.in_log())

    def check_figures(self, stated: Answer) -> None:
        """Read the sums as an answer from them does."""
        released_by_answer(stated)

    def result(self) -> dict[str, Any]:
        """Return the answer."""
        return {"answer": answers.answer_of(self.home, self.seq)[3]}

    def _asked(self, cells: TableCells) -> Question:
        return read_question(str(self.request.parameters["select"]), self.request.dataset, cells.columns, cells.edges)
