"""A job that measures what a certified model is worth."""

from __future__ import annotations

from typing import Any

from accountant.certificates.worth import WORTH, Worth, method_of
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import HOLDOUT
from dpserve_verify.privacy.events import Plan
from models.worth.judging import BETTER, judge
from models.worth.stated import LEVEL, check, figures, histogram_form, model_form, variance_of
from models.worth.statements import worth_to_json
from training.datasets.datasets import takes_one_row
from training.kinds.job_steps import Learn
from training.kinds.stated_steps import Said, StatedSteps
from training.measuring.planning import part_of
from training.measuring.worth import evaluate
from training.measuring.worth.evaluate import (
    by_one_row,
    evaluator_of,
    learnt_from,
    measured_models,
    of_one_row,
    seen_by_bins,
)
from training.requests import EvaluationRequest
from training.rows.schema.schema import Schema, schema_of
from training.session.session import Public


class EvaluationSteps(StatedSteps):
    """Count records by true answer and what the model says, and state what that comes to."""

    asks, kind = EvaluationRequest, WORTH
    plan, check_figures = staticmethod(evaluate.plan), staticmethod(check)

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

    @property
    def dataset(self) -> Dataset:
        """Return the dataset as it was read: of one row to a person, where that is the first of each."""
        return by_one_row(super().dataset, self.request)

    def said(self, counts: list[int], dataset: Dataset, plan: Plan) -> Said:
        """Say what the model is worth."""
        request, models = self.request, measured_models(self.home, self.request)
        schema, part = schema_of(self.home, dataset), part_of(dataset, request)
        layout = evaluator_of([model.ensemble for model in models], schema, request.parameters).query.layout
        bins = [seen_by_bins(model.certificate, dataset, part) for model in models]
        was_seen = [
            bool(entries) or (part != HOLDOUT and learnt_from(model.certificate, dataset))
            for model, entries in zip(models, bins, strict=True)
        ]
        forms = [model_form(model.ensemble, model.certificate.model, model.certificate.issued) for model in models]
        variance = variance_of(plan, dataset.registration.draws, dataset.registration.parts)
        metrics = figures(layout, counts, variance, dataset.registration.unit.contributions)
        histogram = histogram_form(layout, counts, variance)
        found: dict[str, Any] = {
            "model": forms[0],
            "histogram": histogram,
            "level": LEVEL,
            "metrics": metrics,
            "better": judge(layout.kind, metrics) == BETTER,
            "method": method_of(histogram),
        }
        if len(forms) > 1:
            found["against"] = {**forms[1], "sha256": models[1].certificate.sha256, "seen": was_seen[1]}
        rows: dict[str, Any] = {"seen": was_seen[0], "schema": dataset.registration.schema}
        rows |= {"seenByBins": bins[0]} if bins[0] else {}
        return Said(found, rows, (request.model, models[0].certificate.sha256))

    @staticmethod
    def to_json(seq: int, stated: Worth) -> dict[str, Any]:
        """Return what the model is worth."""
        return worth_to_json(seq, stated)
