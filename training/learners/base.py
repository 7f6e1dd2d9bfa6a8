"""What every learner is: a scikit-learn estimator whose `_fit(session)` is its only way to rows.

Alone in a notebook a learner carries its own budget: `fit` rehearses, plays, and refuses a second time. On the platform
`training.job` drives the same `_fit` with a plan that the ledger has reserved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from accountant.budget import Budget, parse_relation
from accountant.errors import BudgetRefused, InputError
from models.ensemble import VotingEnsemble
from training.calibrate import Recipe, calibrate
from training.data import columns_of, rows_of
from training.schema import Schema, parse_schema
from training.session import Public, Releaser, Session


class PrivateClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of private classifiers. `schema`: a Schema, or the path or bytes of a schema file; (epsilon, delta) and
    `relation` as declared.

    Attributes after `fit`: `ensemble_` (the released numbers), `recipe_` (plan, unit, claim), `classes_`.
    """

    name: ClassVar[str]

    def __init__(
        self, schema: object = None, epsilon: object = 1, delta: object = "0.000001", relation: str = "add-remove"
    ) -> None:
        self.schema, self.epsilon, self.delta, self.relation = schema, epsilon, delta, relation

    @abstractmethod
    def check(self, public: Public) -> None:
        """Raise InputError where a parameter or the schema does not fit this learner."""

    @abstractmethod
    def _fit(self, session: Releaser) -> VotingEnsemble:
        """The learner: release, go on with what came back, return what was released."""

    @abstractmethod
    def rounds_for(self, public: Public) -> int:
        """Rounds of the plan, by the parameters or the public rule."""

    def recipe(self, public: Public) -> Recipe:
        """Check, rehearse and calibrate to the public budget."""
        self.check(public)
        return calibrate(self, public, public.budget)

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Spend the declared budget on (X, y), once. X: table with the schema's columns; y: class labels (n,)."""
        if hasattr(self, "recipe_"):
            raise BudgetRefused(
                "fit: this estimator's budget is spent; a clone is a new release and costs its epsilon again"
            )
        public = self._public()
        recipe = self.recipe(public)
        session = Session(public, recipe.unit, recipe.plan, rows_of(self._schema(), X, y, public.relation))
        self.recipe_ = recipe  # from here on the budget is spent, even if what follows fails
        self.ensemble_ = self._fit(session)
        session.close()
        self.classes_ = np.asarray(self.ensemble_.classes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return self._released().predict(columns_of(self._schema(), X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return self._released().probabilities(columns_of(self._schema(), X))

    def _released(self) -> VotingEnsemble:
        if not hasattr(self, "ensemble_"):
            raise InputError("predict: this estimator is not fitted")
        return self.ensemble_

    def _schema(self) -> Schema:
        if isinstance(self.schema, Schema):
            return self.schema
        if isinstance(self.schema, bytes):
            return parse_schema(self.schema)
        if self.schema is None:
            raise InputError("schema=None: a private learner needs the public schema of its columns")
        with open(str(self.schema), "rb") as file:
            return parse_schema(file.read())

    def _public(self) -> Public:
        schema, budget = self._schema(), Budget.of(str(self.epsilon), str(self.delta))
        budget.check_delta(schema.records)
        relation = parse_relation(self.relation)
        return Public(
            schema.features, schema.target, schema.classes, schema.records, relation, budget, budget.delta == 0
        )
