"""A job that measures what a certified model is worth."""

from __future__ import annotations

from typing import Any

from accountant.certificates.worth import WORTH, Measured, Worth
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import HOLDOUT
from dpserve_verify.privacy.events import plan_from_json
from models.worth.judging import BETTER, judge
from models.worth.stated import LEVEL, check, figures, histogram_form, model_form, variance_of
from models.worth.statements import statement_of, worth_to_json
from training.datasets.datasets import takes_one_row
from training.kinds.job_steps import Learn
from training.kinds.stated_steps import StatedSteps
from training.measuring.worth import evaluate
from training.measuring.worth.evaluate import (
    PlannedWorth,
    by_one_row,
    evaluator_of,
    learnt_from,
    measured_models,
    of_one_row,
    part_of,
    seen_by_bins,
)
from training.requests import EvaluationRequest
from training.rows.schema.schema import Schema, schema_of
from training.session.session import Public


class EvaluationSteps(StatedSteps):
    """Count records by true answer and what the model says, and state what that comes to."""

    asks = EvaluationRequest
    kind, folder = WORTH, "evaluations"

    @classmethod
    def plan(cls, home: Home, asked: EvaluationRequest, by: str | None = None) -> PlannedWorth:
        """Rehearse and price. BudgetRefused where it would not be admitted now. Spends nothing."""
        return evaluate.plan(home, asked, by)

    def check(self) -> None:
        """Raise where a model that it measures was lost or revoked since."""
        measured_models(self.home, self.request)

    def public(self, dataset: Dataset, schema: Schema) -> Public:
        """Return what is public, of one row of each person where the first is read alone."""
        public = super().public(dataset, schema)
        return of_one_row(public) if takes_one_row(self.request) else public

    def learner(self, schema: Schema) -> Learn:
        """Return what counts."""
        measured = [model.ensemble for model in measured_models(self.home, self.request)]
        return evaluator_of(measured, schema, self.request.parameters).learn

    def statement(self, counts: list[int]) -> bytes:
        """State what the model is worth."""
        home, request = self.home, self.request
        plan = plan_from_json(home.ledger.reservation(self.seq).value["plan"])
        models = measured_models(home, request)
        dataset = by_one_row(home.ledger.dataset_of(self.seq), request)
        evaluator = evaluator_of([model.ensemble for model in models], schema_of(home, dataset), request.parameters)
        layout = evaluator.query.layout
        part = part_of(dataset, request)
        bins = [seen_by_bins(model.certificate, dataset, part) for model in models]
        was_seen = [
            bool(entries) or (part != HOLDOUT and learnt_from(model.certificate, dataset))
            for model, entries in zip(models, bins, strict=True)
        ]
        forms = [model_form(model.ensemble, model.certificate.model, model.certificate.issued) for model in models]
        variance = variance_of(plan, dataset.registration.draws)
        metrics = figures(layout, counts, variance, dataset.registration.unit.contributions)
        measured = Measured(
            forms[0],
            models[0].certificate.sha256,
            part,
            was_seen[0],
            histogram_form(layout, counts, variance),
            LEVEL,
            metrics,
            judge(layout.kind, metrics) == BETTER,
            None if len(forms) == 1 else {**forms[1], "sha256": models[1].certificate.sha256, "seen": was_seen[1]},
            bins[0],
        )
        return WORTH.statement(measured, dataset, request, plan, self.in_log())

    def check_figures(self, stated: Worth) -> None:
        """Make every metric again."""
        check(stated)

    def result(self) -> dict[str, Any]:
        """Return what the model is worth."""
        return {"worth": worth_to_json(self.seq, statement_of(self.home, self.seq)[2])}
