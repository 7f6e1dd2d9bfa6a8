"""A released ensemble, and a learner that has one, as skl2onnx converts them wherever they stand in a Pipeline.

Importing this module registers the converters of `EnsembleClassifier` and `EnsembleRegressor`; `register` does so for a
learner. The ensemble becomes the same nodes as in `models.onnx.export`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import NodeProto, TensorProto, helper
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import CategoricalFeature, RawColumns
from models.onnx.export import ML_OPSET, Exportable, ensemble_graph
from models.onnx.nodes import ML, Inputs
from models.parts.answers import sorted_places

try:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
except ImportError:
    raise ImportError("a Pipeline as ONNX needs skl2onnx: pip install skl2onnx (the extra sklearn brings it)") from None


class _Frozen(BaseEstimator):  # type: ignore[misc]
    """Fitted, over raw values: X (n, features) in the ensemble's order, None or NaN missing.

    `fit` learns nothing, as with scikit-learn's FrozenEstimator: what was released is final.
    """

    def __init__(self, ensemble: Exportable) -> None:
        self.ensemble = ensemble

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        return self.ensemble.predict(self._columns(X))

    def _columns(self, X: ArrayLike) -> RawColumns:
        table = np.asarray(X)
        features = self.ensemble.features
        if table.ndim != 2 or table.shape[1] != len(features):
            raise InputError(f"X.shape={table.shape}: must be (n, {len(features)}), one column per feature")
        return {feature.name: table[:, i] for i, feature in enumerate(features)}


class EnsembleClassifier(ClassifierMixin, _Frozen):  # type: ignore[misc]
    """An ensemble of two classes or more."""

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the labels (classes,), sorted, in the order of `predict_proba`."""
        return np.sort(np.asarray(self.ensemble.classes))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probabilities (n, classes) of X (n, features), in the order of `classes_`."""
        return self.ensemble.probabilities(self._columns(X))[:, sorted_places(self.ensemble.classes)]


class EnsembleRegressor(RegressorMixin, _Frozen):  # type: ignore[misc]
    """An ensemble that answers a number."""


def _released(estimator: Any) -> tuple[Exportable, list[str]]:
    """Return what an estimator has released, and the columns that it takes, in their order. InputError where a learner
    is not fitted.
    """
    if isinstance(estimator, _Frozen):
        return estimator.ensemble, [feature.name for feature in estimator.ensemble.features]
    if not hasattr(estimator, "ensemble_"):
        raise InputError(f"{type(estimator).__name__}: is not fitted yet")
    return estimator.ensemble_, [feature.name for feature in estimator.schema_.features]


def _shapes(operator: Any) -> None:
    """Set the shapes of the outputs: labels (N,) and probabilities (N, classes), or values (N, 1). ModelInvalid unless
    the inputs, taken together, have one column per column that the estimator takes.
    """
    ensemble, columns = _released(operator.raw_operator)
    widths = [variable.type.shape[1] for variable in operator.inputs]
    if None in widths or sum(widths) != len(columns):
        raise ModelInvalid(f"inputs of widths {widths}: one column per feature ({len(columns)}) in all")
    rows = operator.inputs[0].get_first_dimension()
    if not ensemble.classes:
        operator.outputs[0].type = DoubleTensorType([rows, 1])
        return
    label = StringTensorType if isinstance(ensemble.classes[0], str) else Int64TensorType
    operator.outputs[0].type = label([rows])
    operator.outputs[1].type = FloatTensorType([rows, len(ensemble.classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Convert the numbers to one double tensor and each text to an (N, 1) tensor; then add the ensemble's nodes."""
    ensemble, taken = _released(operator.raw_operator)
    add = partial(_add, container)
    unique = scope.get_unique_variable_name
    numbers, columns, texts = _split(ensemble, _in_order(operator.inputs, taken), taken)
    doubles = [_double(container, unique, variable) for variable in numbers]
    together = unique("numbers")
    if doubles:
        add(helper.make_node("Concat", doubles, [together], axis=1))
    names = {i: _pick(container, unique, variable, column) for i, (variable, column) in texts.items()}
    outputs = [each.full_name for each in operator.outputs]
    places = sorted_places(ensemble.classes).tolist() if ensemble.classes else []
    sorts = places != [*range(len(places))]  # chances in the order of `classes_`, by which others name them
    declared = [outputs[0], unique("declared")] if sorts else outputs
    graph = ensemble_graph(ensemble, Inputs(together, columns, names), unique, declared)
    for node in graph.nodes:
        add(node)
    container.initializers.extend(graph.constants)
    if sorts:
        index = unique("places")
        container.add_initializer(index, TensorProto.INT64, [len(places)], places)
        add(helper.make_node("ArrayFeatureExtractor", [declared[1], index], [outputs[1]], domain=ML))


Split = tuple[list[Any], dict[int, int], dict[int, tuple[Any, int]]]


def _in_order(variables: Sequence[Any], taken: Sequence[str]) -> list[Any]:
    """Return the inputs in the order of the columns: by name where each is one column and is called so, as frames are
    read; else as they come, as arrays are.
    """
    by_name = {variable.raw_name: variable for variable in variables}
    if len(variables) == len(taken) and by_name.keys() == set(taken):
        return [by_name[name] for name in taken]
    return list(variables)


def _split(ensemble: Exportable, variables: Sequence[Any], taken: Sequence[str]) -> Split:
    """Find which input holds which feature: return the number inputs, the column of each feature in their join, and
    the (input, column) of each text feature. A column that the ensemble does not read is passed over.
    """
    numbers: list[Any] = []
    columns: dict[int, int] = {}
    texts: dict[int, tuple[Any, int]] = {}
    places = {feature.name: i for i, feature in enumerate(ensemble.features)}
    widths = [variable.type.shape[1] for variable in variables]
    width = 0
    for variable, first, size in zip(variables, accumulate(widths, initial=0), widths, strict=False):
        held = {places[name]: at for at, name in enumerate(taken[first : first + size]) if name in places}
        is_text = isinstance(variable.type, StringTensorType)
        if any(isinstance(ensemble.features[i], CategoricalFeature) != is_text for i in held):
            raise ModelInvalid(f"input {variable.full_name}: texts for categorical features, numbers for all others")
        if is_text:
            texts.update({i: (variable, at) for i, at in held.items()})
        elif held:
            numbers.append(variable)
            columns.update({i: width + at for i, at in held.items()})
            width += size
    return numbers, columns, texts


def _double(container: Any, unique: Any, variable: Any) -> str:
    """Return a number input, as double."""
    if isinstance(variable.type, DoubleTensorType):
        return str(variable.full_name)
    target = str(unique("double"))
    _add(container, helper.make_node("Cast", [variable.full_name], [target], to=TensorProto.DOUBLE))
    return target


def _pick(container: Any, unique: Any, variable: Any, column: int) -> str:
    """Return one column of a text input, as (N, 1)."""
    if variable.type.shape[1] == 1:
        return str(variable.full_name)
    index, target = unique("column"), str(unique("text"))
    container.add_initializer(index, TensorProto.INT64, [1], [column])
    _add(container, helper.make_node("ArrayFeatureExtractor", [variable.full_name, index], [target], domain=ML))
    return target


def _add(container: Any, node: NodeProto) -> None:
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    version = ML_OPSET if node.domain == ML else None  # of ML's own, skl2onnx would take one that it cannot convert
    container.add_node(
        node.op_type, list(node.input), list(node.output), op_domain=node.domain, op_version=version, **attributes
    )


OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]}


def register(estimator: type) -> None:
    """Let skl2onnx convert estimators of this class: of an ensemble, or a learner that was fitted."""
    if hasattr(estimator, "predict_proba"):
        name, options = "DpserveClassifier", {"options": OPTIONS}
    else:
        name, options = "DpserveRegressor", {}
    update_registered_converter(estimator, name, _shapes, _convert, overwrite=True, **options)


def answers_of_classifier(scope: Any = None, inputs: Any = None) -> list[Any]:
    """Declare what a classifier answers; `_shapes` sets the types that are right for its classes."""
    return [
        scope.declare_local_variable("label", Int64TensorType()),
        scope.declare_local_variable("probabilities", FloatTensorType()),
    ]


register(EnsembleClassifier)
register(EnsembleRegressor)
