"""The score of a released model as expressions of a language, written from the graph that its certificate signs.

Whatever form a model has, its graph comes to its scores by looking texts up, walking trees, adding up, and picking the
largest of some. Each of these is written here once, for every language.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isinf
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from dpserve_verify.errors import ModelInvalid
from models.onnx.export import feature_name, input_name
from models.onnx.nodes import EXACT, Branch, Walk
from models.programs.languages import Compared, Language, together

SCORE = "/score"
MODES: Mapping[bytes, tuple[Literal["BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ"], Compared]] = {
    b"BRANCH_LEQ": ("BRANCH_LEQ", "<="),
    b"BRANCH_GT": ("BRANCH_GT", ">"),
    b"BRANCH_EQ": ("BRANCH_EQ", "=="),
}
COMPARED: Mapping[str, Compared] = dict(MODES.values())
Tensor = tuple[str, ...]  # an expression for each column


@dataclass(frozen=True)
class Line:
    """A number that has a name: what it is, and the names of the lines that it is computed from."""

    name: str
    is_from: tuple[str, ...]
    expression: str


class Lines:
    """The lines of a program, in order: each is computed from those above it."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.lines: list[Line] = []
        self._names: set[str] = set()

    def add(self, expression: str, is_from: Sequence[str]) -> str:
        """Add a line, and return its name."""
        name = f"dpserve_{len(self.lines)}"
        self.lines.append(Line(name, tuple(each for each in is_from if each in self._names), expression))
        self._names.add(name)
        return name


class ScoreWriter:
    """Writes the scores of a graph that `to_onnx` has made. ModelInvalid where a node of it is unknown here."""

    def __init__(self, lines: Lines, model_bytes: bytes) -> None:
        graph = ModelProto.FromString(model_bytes).graph
        self.lines, self.language = lines, lines.language
        self._makers = {output: node for node in graph.node for output in node.output}
        self._constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self._inputs = {each.name for each in graph.input}
        self._tensors: dict[str, Tensor] = {}

    @cached_property
    def features_read(self) -> frozenset[str]:
        """Return the names of the features that the scores need."""
        found, asked = set[str](), [SCORE]
        while asked:
            name = asked.pop()
            if name in self._inputs:
                found.add(feature_name(name))
            elif name in self._makers:
                asked += self._makers[name].input
        return frozenset(found)

    def write(self, inputs: Mapping[str, str]) -> Tensor:
        """Return the names of the lines that hold the scores. `inputs`: the line of each feature that is read."""
        self._tensors = {input_name(feature): (line,) for feature, line in inputs.items()}
        return self._tensor(SCORE)

    def _tensor(self, name: str) -> Tensor:
        if name not in self._tensors:
            if name in self._constants:
                self._tensors[name] = tuple(map(self.language.number, self._constants[name].ravel().tolist()))
            else:
                self._tensors[name] = self._node(self._makers[name])
        return self._tensors[name]

    def _node(self, node: NodeProto) -> Tensor:
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if node.op_type == "ArrayFeatureExtractor":
            source, places = self._tensor(node.input[0]), self._constants[node.input[1]]
            return tuple(source[at] for at in places.ravel())
        inputs = [self._tensor(each) for each in node.input]
        match node.op_type:
            case "Concat":
                return tuple(each for tensor in inputs for each in tensor)
            case "Cast":  # whole numbers that float32 holds exactly, to float64
                return inputs[0]
            case "Sum":
                width = max(map(len, inputs))
                if {len(each) for each in inputs} != {width}:
                    raise ModelInvalid(f"model.onnx: {node.output[0]}: a sum of parts that differ in length")
                columns = zip(*inputs, strict=True)
                return tuple(self.lines.add(together(parts, "({} + {})".format), parts) for parts in columns)
            case "ArgMax":
                numbers = [self.language.number(float(at)) for at in range(len(inputs[0]))]
                return (self.lines.add(*self.first_of_the_largest(inputs[0], self.largest(inputs[0]), numbers)),)
            case "LabelEncoder":
                return (self._looked_up(attributes, inputs[0][0]),)
            case "TreeEnsembleRegressor":
                return self._trees(attributes, inputs[0])
        raise ModelInvalid(f"model.onnx: {node.op_type} cannot be written as a program")

    def largest(self, parts: Sequence[str]) -> str:
        """Return the line of the largest of some lines."""
        language = self.language

        def larger(one: str, other: str) -> str:
            return self.lines.add(language.choose([(language.compare(one, ">", other), one)], other), (one, other))

        return together(parts, larger)

    def first_of_the_largest(self, parts: Tensor, most: str, values: Sequence[str]) -> tuple[str, Tensor]:
        """Return an expression of the value that belongs to the first of the largest, and the lines that it reads."""
        cases = [(self.language.compare(part, "==", most), value) for part, value in zip(parts, values, strict=True)]
        return self.language.choose(cases[:-1], values[-1]), (most, *parts)

    def _looked_up(self, attributes: Mapping[str, Any], source: str) -> str:
        """Write the number of a text: one choice for all texts that have the same."""
        language, texts = self.language, defaultdict[float, list[str]](list)
        for text, number in zip(attributes["keys_strings"], attributes["values_floats"], strict=True):
            texts[number].append(text.decode())
        groups = [(language.number(number), same) for number, same in texts.items()]
        return self.lines.add(language.look_up(source, groups, language.number(attributes["default_float"])), (source,))

    def _trees(self, attributes: Mapping[str, Any], columns: Tensor) -> Tensor:
        """Write the sums of decision trees, one for each target; rounded once, where float32 might not hold them."""
        targets = attributes["n_targets"]
        written: list[list[str]] = [[] for _ in range(targets)]
        most = np.zeros(targets)
        for walk in _walks_of(attributes):
            for target in range(targets):
                leaves = _leaves(walk, target)
                if leaves.any():
                    written[target].append(self._walk(walk, target, columns))
                    most[target] += np.abs(leaves).max()
        sums = []
        for parts, size in zip(written, most, strict=True):
            total = together(parts or [self.language.number(0.0)], "({} + {})".format)
            sums.append(self.lines.add(total if size < EXACT else self.language.rounded(total), columns))
        return tuple(sums)

    def _walk(self, walk: Walk, target: int, columns: Tensor) -> str:
        language = self.language
        if isinstance(walk, tuple):
            return language.number(walk[target])
        value, yes, no = (
            columns[walk.column],
            self._walk(walk.yes, target, columns),
            self._walk(walk.no, target, columns),
        )
        if yes == no:
            return yes
        if walk.mode == "BRANCH_LEQ" and isinf(walk.threshold) and walk.threshold > 0:
            return language.choose([(language.is_number(value), yes)], no)
        if not isfinite(walk.threshold):
            raise ModelInvalid(f"model.onnx: a threshold of {walk.threshold}")
        asked = language.compare(value, COMPARED[walk.mode], language.number(walk.threshold))
        return language.choose([(asked, yes)], no)


def _leaves(walk: Walk, target: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(walk, tuple):
        return np.array([walk[target]])
    return np.concatenate([_leaves(walk.yes, target), _leaves(walk.no, target)])


def _walks_of(attributes: Mapping[str, Any]) -> list[Walk]:
    """Read trees as `models.onnx.nodes.regressor` wrote them: children stand behind their parent."""
    thresholds = numpy_helper.to_array(attributes["nodes_values_as_tensor"]).tolist()
    weights: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * attributes["n_targets"])
    votes = numpy_helper.to_array(attributes["target_weights_as_tensor"]).tolist()
    for tree, node, target, weight in zip(
        *(attributes[f"target_{part}"] for part in ("treeids", "nodeids", "ids")), votes, strict=True
    ):
        weights[tree, node][target] += weight
    named = ("treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids")
    nodes = zip(*(attributes[f"nodes_{part}"] for part in named), thresholds, strict=True)
    grown: dict[tuple[int, int], Walk] = {}
    for tree, node, mode, column, yes, no, threshold in reversed(list(nodes)):
        if mode == b"LEAF":
            grown[tree, node] = tuple(weights[tree, node])
        else:
            grown[tree, node] = Branch(column, MODES[mode][0], threshold, grown[tree, yes], grown[tree, no])
    return [walk for (_, node), walk in reversed(grown.items()) if node == 0]
