"""What a notebook needs beside the learners: a budget for many fits, schemas in a line, and how far scikit-learn goes.

from dpserve.learners import Account, Columns, LazyBB

account = Account(epsilon=3)
model = LazyBB(schema=Columns(low=0, high=1, classes=["no", "yes"]), epsilon="0.5", account=account)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accountant.system.lazy_import import later
from training.calibration.plan_warnings import PublicWarning
from training.datasets.drafts.proposal import SchemaProposal
from training.learners.base.private_learner import PrivateLearner, SpendWarning
from training.notebook.columns import Columns
from training.notebook.notebook_budget import Account
from training.rows.schema.column_rules import uniform_schema
from training.rows.schema.schema import Schema
from training.rows.tables.frames import frame_table

if TYPE_CHECKING:
    from training.notebook.row_folds import RowFolds

__all__ = [
    "CHECKS",
    "CHECKS_OF_MANY",
    "CHECKS_OF_NUMBERS",
    "Account",
    "Columns",
    "PublicWarning",
    "RowFolds",
    "Schema",
    "SpendWarning",
    "draft",
    "uniform_schema",
]

_LABELS = (
    "brings labels of its own and expects them in classes_. Which labels occur is a fact about people: classes are "
    "declared, and another label is refused. With these declared it is fitted"
)
_FEW = (
    "expects ten people's one label to be learnt without a mistake. The noise that hides any one of ten may hide what "
    "they have in common"
)
_NOISE = "fits twice and expects the same answers. Noise is drawn anew in every fit, and no seed has a say in it"

_WEIGHTS = (
    "passes weights of rows, and nothing says how much one may weigh. The most is declared, as a range is, and without "
    "it such a fit is refused"
)
_NOTHING = (
    "expects rows that all weigh nothing to be refused, as they are here for another reason: no most is declared. With "
    "it they are fitted, for that they weigh nothing is a fact about people"
)

_TWO = (
    "trains on two labels and expects the answers of two classes. Declared classes have a score and a chance each, "
    "whether they occur or not"
)

_OF_WEIGHTS: dict[str, str] = {
    "check_all_zero_sample_weights_error": _NOTHING,
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weights_list": _WEIGHTS,
    "check_sample_weights_not_an_array": _WEIGHTS,
    "check_sample_weights_not_overwritten": _WEIGHTS,
    "check_sample_weights_pandas_series": _WEIGHTS,
    "check_sample_weights_shape": _WEIGHTS,
}

# Checks of sklearn.utils.estimator_checks that a private estimator must not pass, and why:
# check_estimator(estimator, expected_failed_checks=CHECKS).
CHECKS: dict[str, str] = {
    "check_classifier_data_not_an_array": _LABELS,
    "check_classifiers_classes": _LABELS,
    "check_classifiers_one_label": _FEW,
    "check_classifiers_one_label_sample_weights": _WEIGHTS,
    "check_estimators_dtypes": _LABELS,
    "check_fit2d_1feature": _LABELS,
    "check_fit_idempotent": _NOISE,
    "check_supervised_y_2d": _NOISE,
    **_OF_WEIGHTS,
}

# And where more than two classes are declared.
CHECKS_OF_MANY: dict[str, str] = {
    **CHECKS,
    "check_classifiers_train": _TWO,
    "check_decision_proba_consistency": _TWO,
}

_CLIPPED = (
    "expects an infinite target to be refused. It lies beyond the public range, and is clipped to it like every number "
    "there: what is clipped, and how much of it, nobody is told"
)

# And of a regressor: check_estimator(estimator, expected_failed_checks=CHECKS_OF_NUMBERS).
CHECKS_OF_NUMBERS: dict[str, str] = {
    "check_fit_idempotent": _NOISE,
    "check_regressor_data_not_an_array": _NOISE,
    "check_regressors_int": _NOISE,
    "check_supervised_y_2d": _NOISE,
    "check_supervised_y_no_nan": _CLIPPED,
    **_OF_WEIGHTS,
}


PrivateLearner.publisher = later("training.notebook.publishing")  # loads what runs jobs


def __getattr__(name: str) -> Any:
    """Return RowFolds, which alone loads scikit-learn."""
    if name != "RowFolds":
        raise AttributeError(f"{__name__} has no {name}")
    return import_module("training.notebook.row_folds").RowFolds


def draft(frame: Any, name: str = "frame") -> str:
    """Write a draft of a schema file from a frame's column names and types alone, like `dpserve schema draft`.

    No value is read, and a person must replace every FILL-IN by public knowledge.
    """
    types = {column.name: column.type for column in frame_table(frame).schema}
    return SchemaProposal.of_types(types).to_yaml(name, looked=False)
