"""A released ensemble as a scikit-learn classifier, or regressor, which skl2onnx converts wherever it stands in a
Pipeline.

Importing this module registers the converters. The ensemble becomes the same nodes as in `models.onnx.export`.
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
from models.onnx.export import Exportable, ensemble_graph
from models.onnx.nodes import ML, Inputs

try:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
except ImportError:
    raise ImportError("a Pipeline as ONNX needs the extra sklearn: pip install 'dpserve[sklearn]'") from None


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
        """Return the labels in the order of `predict_proba`: (classes,)."""
        return np.asarray(self.ensemble.classes)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probabilities (n, classes) of X (n, features)."""
        return self.ensemble.probabilities(self._columns(X))


class EnsembleRegressor(RegressorMixin, _Frozen):  # type: ignore[misc]
    """An ensemble that answers a number."""


def _shapes(operator: Any) -> None:
    """Set the shapes of the outputs: labels (N,) and probabilities (N, classes), or values (N, 1). ModelInvalid unless
    the inputs, taken together, have one column per feature.
    """
    ensemble: Exportable = operator.raw_operator.ensemble
    widths = [variable.type.shape[1] for variable in operator.inputs]
    if None in widths or sum(widths) != len(ensemble.features):
        raise ModelInvalid(f"inputs of widths {widths}: one column per feature ({len(ensemble.features)}) in all")
    rows = operator.inputs[0].get_first_dimension()
    if not ensemble.classes:
        operator.outputs[0].type = DoubleTensorType([rows, 1])
        return
    label = StringTensorType if isinstance(ensemble.classes[0], str) else Int64TensorType
    operator.outputs[0].type = label([rows])
    operator.outputs[1].type = FloatTensorType([rows, len(ensemble.classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Convert the numbers to one double tensor and each text to an (N, 1) tensor; then add the ensemble's nodes."""
    ensemble: Exportable = operator.raw_operator.ensemble
    add = partial(_add, container)
    unique = scope.get_unique_variable_name
    numbers, columns, texts = _split(ensemble, operator.inputs)
    doubles = [_double(container, unique, variable) for variable in numbers]
    together = unique("numbers")
    if doubles:
        add(helper.make_node("Concat", doubles, [together], axis=1))
    names = {i: _pick(container, unique, variable, column) for i, (variable, column) in texts.items()}
    outputs = [each.full_name for each in operator.outputs]
    graph = ensemble_graph(ensemble, Inputs(together, columns, names), unique, outputs)
    for node in graph.nodes:
        add(node)
    container.initializers.extend(graph.constants)


Split = tuple[list[Any], dict[int, int], dict[int, tuple[Any, int]]]


def _split(ensemble: Exportable, variables: Sequence[Any]) -> Split:
    """Find which input holds which feature: return the number inputs, the column of each feature in their join, and
    the (input, column) of each text feature.
    """
    numbers: list[Any] = []
    columns: dict[int, int] = {}
    texts: dict[int, tuple[Any, int]] = {}
    widths = [variable.type.shape[1] for variable in variables]
    width = 0
    for variable, first, size in zip(variables, accumulate(widths, initial=0), widths, strict=False):
        held = range(first, first + size)
        is_text = isinstance(variable.type, StringTensorType)
        if any(isinstance(ensemble.features[i], CategoricalFeature) != is_text for i in held):
            raise ModelInvalid(f"input {variable.full_name}: texts for categorical features, numbers for all others")
        if is_text:
            texts.update({i: (variable, i - first) for i in held})
        else:
            numbers.append(variable)
            columns.update({i: width + i - first for i in held})
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
    container.add_node(node.op_type, list(node.input), list(node.output), op_domain=node.domain, **attributes)


update_registered_converter(
    EnsembleClassifier,
    "DpserveEnsembleClassifier",
    _shapes,
    _convert,
    options={"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]},
)
update_registered_converter(EnsembleRegressor, "DpserveEnsembleRegressor", _shapes, _convert)
