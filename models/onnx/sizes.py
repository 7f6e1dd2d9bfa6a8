"""How many cells each value of a graph has, from its inputs on: known before anything is computed, for the first axis
of what depends on the records alone has no number, and nothing on the allow-list of `models.onnx.check` makes a size of
a value. A record is then worth so many cells, and what depends on no record is computed once, as the graph is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from onnx import AttributeProto, GraphProto, NodeProto

from dpserve_verify.errors import ModelInvalid

RECORDS = -1  # an axis: as long as there are records
MAX_CELLS = 1 << 21  # that one record may come to, all values together
MAX_FOLDED = 1 << 21  # of what depends on no record
SAME = frozenset({"Cast", "Clip", "Identity", "LabelEncoder", "Sigmoid", "Softmax"})  # as their first input
BROADCAST = frozenset({"Greater", "Mul", "Sum", "Where"})
Shape = tuple[int, ...]


def check_sizes(graph: GraphProto) -> None:
    """Raise ModelInvalid where one record, or what depends on none, comes to more cells than it may, or where a size
    cannot be told.
    """
    shapes: dict[str, Shape] = {constant.name: tuple(constant.dims) for constant in graph.initializer}
    for value in graph.input:
        first, *rest = [axis.dim_value or RECORDS for axis in value.type.tensor_type.shape.dim] or [1]
        shapes.setdefault(value.name, (RECORDS if first == RECORDS else first, *rest))
    by_record = folded = 0
    for node in graph.node:
        shape = _shape(node, [shapes[name] for name in node.input if name in shapes])
        if any(axis == RECORDS for axis in shape[1:]):
            raise ModelInvalid(f"model.onnx: {node.op_type}: joins records with each other")
        cells = prod(axis for axis in shape if axis != RECORDS)
        if RECORDS in shape:
            by_record += cells
        else:
            folded += cells
        if by_record > MAX_CELLS or folded > MAX_FOLDED:
            raise ModelInvalid(f"model.onnx: {node.op_type}: more than {MAX_CELLS} cells a record, or constant ones")
        shapes.update(dict.fromkeys(node.output, shape))


def _shape(node: NodeProto, inputs: Sequence[Shape]) -> Shape:
    """Return the shape of what a node gives; at least as many cells as there can be."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if not inputs:
        raise ModelInvalid(f"model.onnx: {node.op_type}: reads nothing")
    if node.op_type in SAME:
        return inputs[0]
    if node.op_type in BROADCAST:
        return _broadcast(node, inputs)
    if node.op_type == "Concat":
        return _joined(node, inputs, _number(attributes, "axis", 0))
    if node.op_type == "ArrayFeatureExtractor" and len(inputs) > 1 and inputs[0]:
        return (*inputs[0][:-1], prod(inputs[1])) if len(inputs[0]) > 1 else (1, prod(inputs[1]))
    if node.op_type == "TreeEnsembleRegressor" and inputs[0]:
        return (inputs[0][0], max(1, _number(attributes, "n_targets", 1)))
    if node.op_type == "ArgMax":
        axis, rank = _number(attributes, "axis", 0), len(inputs[0])
        if axis % max(1, rank) == rank - 1 and rank > 1:  # of each record by itself
            return (*inputs[0][:-1], 1) if _number(attributes, "keepdims", 1) else inputs[0][:-1]
    if node.op_type == "Squeeze" and inputs[0][1:] == (1,):
        return inputs[0][:1]
    raise ModelInvalid(f"model.onnx: {node.op_type} of {[list(shape) for shape in inputs][:3]}: is not taken")


def _number(attributes: Mapping[str, AttributeProto], name: str, otherwise: int) -> int:
    return int(attributes[name].i) if name in attributes else otherwise


def _broadcast(node: NodeProto, inputs: Sequence[Shape]) -> Shape:
    rank = max(map(len, inputs))
    padded = [(1,) * (rank - len(shape)) + shape for shape in inputs]
    axes: list[int] = []
    for along in zip(*padded, strict=True):
        sizes = {axis for axis in along if axis not in (1, RECORDS)}
        if len(sizes) > 1 or (sizes and RECORDS in along):
            raise ModelInvalid(f"model.onnx: {node.op_type} of {[list(shape) for shape in inputs][:3]}: do not fit")
        axes.append(RECORDS if RECORDS in along else max(sizes, default=1))
    return tuple(axes)


def _joined(node: NodeProto, inputs: Sequence[Shape], axis: int) -> Shape:
    first = inputs[0]
    if any(len(shape) != len(first) for shape in inputs) or axis not in (-1, len(first) - 1) or not first:
        raise ModelInvalid(f"model.onnx: Concat of {len(inputs)} values along axis {axis}: is not taken")
    if len(first) == 1 and RECORDS in first:
        raise ModelInvalid("model.onnx: Concat: joins records with each other")
    rows = {shape[:-1] for shape in inputs}
    if len(rows) > 1:
        raise ModelInvalid("model.onnx: Concat: of values of other lengths")
    return (*first[:-1], sum(shape[-1] for shape in inputs))
