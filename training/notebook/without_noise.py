"""The same learner without its noise: how much accuracy privacy costs. What comes out is NOT private.

It only predicts. It has no ensemble, no plan and no claim, so there is nothing to export, certify or serve, and it is
not written to disk.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import load
from dpserve_verify.errors import InputError
from models.parts.answers import sorted_places
from training.learners.base.private_learner import PrivateLearner
from training.rows.tables.data import columns_of
from training.rows.tables.frames import table_from, value_errors
from training.session.exact import Exact

NOT_PRIVATE = "fitted without noise, it is not private: it predicts, and cannot be exported, certified or served"


class NotPrivate(InputError, AttributeError):
    """Something was asked of an unprotected model that only a private one has."""

    code = "not_private"
    remedy = "fit the learner itself, with an epsilon; this one is for comparison"


class Unprotected:
    """Predictions of a learner fitted without noise. `private` is False; whatever else is asked raises NotPrivate."""

    private: ClassVar[bool] = False
    __slots__ = ("__answers",)

    def __init__(self, answers: Any) -> None:
        self.__answers = answers

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels (n,), or numbers (n,) where the target is a number."""
        answers: NDArray[Any] = self.__answers(X, "predict")
        return answers

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, classes), in the order of the learner's `classes_`."""
        chances: NDArray[np.float64] = self.__answers(X, "probabilities")
        return chances

    def __getattr__(self, name: str) -> NoReturn:
        raise NotPrivate(f"{name}: {NOT_PRIVATE}")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPrivate(f"pickle: {NOT_PRIVATE}")

    def __repr__(self) -> str:
        return "Unprotected(NOT PRIVATE)"


def unprotected(learner: PrivateLearner, X: Any, y: Any, sample_weight: Any = None) -> Unprotected:
    """Fit `learner` to (X, y) without noise. Its parameters are those of the private fit, the public rules for its
    epsilon included, so the two differ by the noise alone. The learner itself stays as it is, and spends nothing.
    """
    twin: PrivateLearner = load("sklearn.base").clone(learner)
    schema, public, rows = twin.declared(X, y, sample_weight)
    ensemble: Any = twin.learn(Exact(public, twin.recipe(public).unit, rows))

    def answers(X: Any, method: str) -> Any:
        with value_errors():
            columns = columns_of(schema, table_from(X, schema, type(learner).__name__))
        found = getattr(ensemble, method)(columns)
        return found[:, sorted_places(ensemble.classes)] if method == "probabilities" else found

    return Unprotected(answers)
