"""What an ONNX file may hold before ONNX Runtime gets to see it. Fail closed: whatever is not listed is refused.

The format can name other files, call unknown operators, loop, and ask for any amount of memory (a 172-byte
ConstantOfShape asks for 64 GiB). Nothing in the allow-list loops, branches, reads a file, or makes a tensor larger than
its inputs and constants joined or broadcast; how large that is, `models.onnx.sizes` tells before it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NoReturn

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from dpserve_verify.errors import ModelInvalid
from models.onnx.sizes import check_sizes

MAX_BYTES = 64 << 20
MAX_NODES = 4096
MAX_VALUES = 16_384  # graph inputs, outputs and constants, each
MAX_ELEMENTS = 1 << 22  # of an attribute
MAX_CONSTANT = 1 << 16  # of an initializer: it may be broadcast against every record
MAX_RANK = 2
MAX_INTEGER = 1 << 16  # of a single integer attribute: n_targets sizes an output
IR_VERSIONS = range(3, 14)
OPSETS = {"": range(13, 24), "ai.onnx.ml": range(1, 5)}
STANDARD = {"", "ai.onnx"}
OPERATORS = {  # what the exporters write, and no more: an operator comes in together with its checks
    "": frozenset(
        {
            "ArgMax",
            "Cast",
            "Clip",
            "Concat",
            "Greater",
            "Identity",
            "Mul",
            "Sigmoid",
            "Softmax",
            "Squeeze",
            "Sum",
            "Where",
        }
    ),
    "ai.onnx.ml": frozenset({"ArrayFeatureExtractor", "LabelEncoder", "TreeEnsembleRegressor"}),
}
TREE_MODES = frozenset({b"LEAF", b"BRANCH_LEQ", b"BRANCH_GT", b"BRANCH_EQ"})
TENSOR_TYPES = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL}
)
ATTRIBUTES = frozenset(
    {
        AttributeProto.FLOAT,
        AttributeProto.INT,
        AttributeProto.STRING,
        AttributeProto.TENSOR,
        AttributeProto.FLOATS,
        AttributeProto.INTS,
        AttributeProto.STRINGS,
    }
)


def check_graph(model_bytes: bytes) -> None:
    """Raise ModelInvalid, naming what is wrong, unless the bytes are a small, flat, self-contained model."""
    if len(model_bytes) > MAX_BYTES:
        _refuse(f"{len(model_bytes)} bytes; at most {MAX_BYTES}")
    try:
        model = ModelProto.FromString(model_bytes)
    except DecodeError as error:
        raise ModelInvalid(f"model.onnx: not an ONNX file ({error})") from error
    _check_model(model)
    _check_values(model.graph)
    for node in model.graph.node:
        _check_node(node)
    for constant in model.graph.initializer:
        _check_tensor(constant, MAX_CONSTANT)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as error:
        raise ModelInvalid(f"model.onnx: {error}") from error
    check_sizes(model.graph)


def _refuse(problem: str) -> NoReturn:
    raise ModelInvalid(f"model.onnx: {problem}")


def _check_model(model: ModelProto) -> None:
    if model.ir_version not in IR_VERSIONS:
        _refuse(f"ir_version={model.ir_version}: must lie in {IR_VERSIONS[0]}..{IR_VERSIONS[-1]}")
    domains = [_domain(opset.domain) for opset in model.opset_import]
    if len(set(domains)) != len(domains):
        _refuse(f"opset_import={domains}: each domain once")
    for domain, opset in zip(domains, model.opset_import, strict=True):
        if opset.version not in OPSETS.get(domain, ()):
            _refuse(f"opset_import {domain or 'ai.onnx'} {opset.version}: not supported")
    graph = model.graph
    banned = {
        "functions": model.functions,
        "training_info": model.training_info,
        "configuration": model.configuration,
        "sparse_initializer": graph.sparse_initializer,
        "quantization_annotation": graph.quantization_annotation,
    }
    for field, present in banned.items():
        if present:
            _refuse(f"{field}: not allowed")
    if len(graph.node) > MAX_NODES:
        _refuse(f"{len(graph.node)} nodes; at most {MAX_NODES}")


def _domain(domain: str) -> str:
    return "" if domain in STANDARD else domain


def _check_values(graph: GraphProto) -> None:
    for field in (graph.input, graph.output, graph.value_info, graph.initializer):
        if len(field) > MAX_VALUES:
            _refuse(f"{len(field)} inputs, outputs or constants; at most {MAX_VALUES} of each")
    for value in (*graph.input, *graph.output, *graph.value_info):
        _check_value(value)


def _check_value(value: ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        _refuse(f"{value.name}: a {kind} value; only tensors")
    tensor = value.type.tensor_type
    if tensor.elem_type not in TENSOR_TYPES:
        _refuse(f"{value.name}: element type {tensor.elem_type} not allowed")
    _check_shape(value.name, [axis.dim_value for axis in tensor.shape.dim], MAX_CONSTANT)


def _check_shape(name: str, shape: Sequence[int], most: int) -> None:
    if len(shape) > MAX_RANK or any(not 0 <= axis <= most for axis in shape) or prod(shape) > most:
        _refuse(f"{name}: shape {list(shape)[:8]}; at most {MAX_RANK} axes and {most} elements")


def _check_tensor(tensor: TensorProto, most: int) -> None:
    if tensor.data_location != TensorProto.DEFAULT or tensor.external_data or tensor.HasField("segment"):
        _refuse(f"{tensor.name}: data outside the file")
    if tensor.data_type not in TENSOR_TYPES:
        _refuse(f"{tensor.name}: element type {tensor.data_type} not allowed")
    _check_shape(tensor.name, tensor.dims, most)


def _check_node(node: NodeProto) -> None:
    domain = _domain(node.domain)
    if node.op_type not in OPERATORS.get(domain, ()):
        _refuse(f"operator {node.domain or 'ai.onnx'}.{node.op_type}: not in the allow-list")
    if node.overload or node.device_configurations:
        _refuse(f"{node.op_type}: overload and device configurations are not allowed")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if len(attributes) != len(node.attribute):
        _refuse(f"{node.op_type}: an attribute stands there twice")
    for attribute in node.attribute:
        _check_attribute(node.op_type, attribute)
    if node.op_type == "TreeEnsembleRegressor":
        _check_trees(attributes)
        targets = attributes["n_targets"].i if "n_targets" in attributes else 0
        if any(not 0 <= target < targets for target in _ints(attributes, "target_ids")):
            _refuse(f"target_ids: must lie below n_targets={targets}")


def _check_attribute(operator: str, attribute: AttributeProto) -> None:
    where = f"{operator}.{attribute.name}"
    if attribute.type not in ATTRIBUTES or attribute.ref_attr_name:
        _refuse(f"{where}: attribute type {attribute.type} not allowed")
    if abs(attribute.i) > MAX_INTEGER:
        _refuse(f"{where}={attribute.i}: at most {MAX_INTEGER}")
    if max(len(attribute.ints), len(attribute.floats), len(attribute.strings)) > MAX_ELEMENTS:
        _refuse(f"{where}: at most {MAX_ELEMENTS} elements")
    if attribute.HasField("t"):
        _check_tensor(attribute.t, MAX_ELEMENTS)


Attributes = dict[str, AttributeProto]


def _ints(attributes: Attributes, name: str) -> Sequence[int]:
    return attributes[name].ints if name in attributes else ()


def _check_trees(attributes: Attributes) -> None:
    """Check that nodes of a tree are numbered 0, 1, ... and children come after their parent, so that no walk can go
    round in circles or leave the tree.
    """
    trees, nodes = _ints(attributes, "nodes_treeids"), _ints(attributes, "nodes_nodeids")
    left, right = _ints(attributes, "nodes_truenodeids"), _ints(attributes, "nodes_falsenodeids")
    modes = attributes["nodes_modes"].strings if "nodes_modes" in attributes else ()
    if not len(trees) == len(nodes) == len(left) == len(right) == len(modes) > 0:
        _refuse("trees: node attributes differ in length")
    if not TREE_MODES.issuperset(modes):
        _refuse(f"nodes_modes: must be among {sorted(mode.decode() for mode in TREE_MODES)}")
    steps = pairwise(zip(trees, nodes, strict=True))
    ordered = all(after in ((tree, node + 1), (tree + 1, 0)) for (tree, node), after in steps)
    if trees[0] != 0 or nodes[0] != 0 or not ordered:
        _refuse("trees: numbered 0, 1, ... each with nodes 0, 1, ... in order")
    sizes = dict(zip(trees, nodes, strict=True))  # the last node of each tree
    for tree, node, mode, *children in zip(trees, nodes, modes, left, right, strict=True):
        if mode != b"LEAF" and not all(node < child <= sizes[tree] for child in children):
            _refuse(f"tree {tree}, node {node}: children {children} do not follow it")
