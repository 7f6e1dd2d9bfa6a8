"""From scores to label and probabilities, or to a number, as ONNX nodes.

Two classes: Sigmoid([-link, link] * score), classes[1] where score > 0; with bends, the log-odds are a sum of clipped
scores, in double. K classes: Softmax(link * scores), in double
because it takes differences of numbers that may be great; the label is that of ArgMax, which takes the first of equals.
A number: Clip(middle + link * score, low, high), in double.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from models.onnx.nodes import ML, Graph, Namer, tensor
from models.parts.answers import Bends, ClassLabel, Range, middle, pieces_of


def answers(
    classes: Sequence[ClassLabel], link: float, score: str, name: Namer, outputs: tuple[str, str], bends: Bends = ()
) -> Graph:
    """Build the nodes that turn `score` (N, outputs) into `outputs`: label (N,) and probabilities (N, classes)."""
    if len(classes) > 2:
        return _many(classes, link, score, name, outputs)
    if not bends:
        return _two(classes, link, score, score, name, outputs)
    odds = name("odds")
    return _odds(link, bends, score, name, odds) + _two(classes, 1.0, score, odds, name, outputs)


def _odds(link: float, bends: Bends, score: str, name: Namer, output: str) -> Graph:
    """Build the nodes that turn `score` (N, 1) into log-odds (N, 1), float."""
    pieces, moved = pieces_of(link, bends)
    precise, total, shift = map(name, ("precise", "total", "shift"))
    nodes = [helper.make_node("Cast", [score], [precise], to=TensorProto.DOUBLE)]
    numbers, parts = {shift: moved}, [shift]
    for number, (low, high, slope) in enumerate(pieces):
        least, most, by, held, part = (name(f"{each}_{number}") for each in ("low", "high", "slope", "held", "part"))
        nodes += [helper.make_node("Clip", [precise, least, most], [held]), helper.make_node("Mul", [held, by], [part])]
        numbers |= {least: low, most: high, by: slope}
        parts.append(part)
    nodes += [
        helper.make_node("Sum", parts, [total]),
        helper.make_node("Cast", [total], [output], to=TensorProto.FLOAT),
    ]
    return Graph(tuple(nodes), tuple(tensor(np.array(number, np.float64), at) for at, number in numbers.items()))


def value(target_range: Range, link: float, score: str, name: Namer, output: str) -> Graph:
    """Build the nodes that turn `score` (N, 1) into `output` (N, 1), double, within the range."""
    precise, by, scaled, centre, moved, low, high = map(
        name, ("precise", "link", "scaled", "middle", "moved", "low", "high")
    )
    nodes = (
        helper.make_node("Cast", [score], [precise], to=TensorProto.DOUBLE),
        helper.make_node("Mul", [precise, by], [scaled]),
        helper.make_node("Sum", [scaled, centre], [moved]),
        helper.make_node("Clip", [moved, low, high], [output]),
    )
    numbers = {by: link, centre: middle(target_range), low: target_range[0], high: target_range[1]}
    return Graph(nodes, tuple(tensor(np.array(number, np.float64), at) for at, number in numbers.items()))


def _two(
    classes: Sequence[ClassLabel], link: float, score: str, odds: str, name: Namer, outputs: tuple[str, str]
) -> Graph:
    by, zero, axis, first, second = map(name, ("link", "zero", "axis", "class_0", "class_1"))
    scaled, positive, chosen = map(name, ("scaled", "positive", "chosen"))
    label, probabilities = outputs
    nodes = (
        helper.make_node("Mul", [odds, by], [scaled]),
        helper.make_node("Sigmoid", [scaled], [probabilities]),
        helper.make_node("Greater", [score, zero], [positive]),
        helper.make_node("Squeeze", [positive, axis], [chosen]),
        helper.make_node("Where", [chosen, second, first], [label]),
    )
    constants = (
        tensor(np.array([[-link, link]], np.float32), by),
        tensor(np.zeros((), np.float32), zero),
        tensor(np.array([1], np.int64), axis),
        *(
            tensor(np.array(value, dtype=object if isinstance(value, str) else np.int64), at)
            for value, at in zip(classes, (first, second), strict=True)
        ),
    )
    return Graph(nodes, constants)


def _many(classes: Sequence[ClassLabel], link: float, score: str, name: Namer, outputs: tuple[str, str]) -> Graph:
    by, precise, scaled, soft, chosen = map(name, ("link", "precise", "scaled", "soft", "chosen"))
    label, probabilities = outputs
    kind = "values_strings" if isinstance(classes[0], str) else "values_int64s"
    named: dict[str, Any] = {"keys_int64s": list(range(len(classes))), kind: list(classes)}
    nodes = (
        helper.make_node("Cast", [score], [precise], to=TensorProto.DOUBLE),
        helper.make_node("Mul", [precise, by], [scaled]),
        helper.make_node("Softmax", [scaled], [soft], axis=1),
        helper.make_node("Cast", [soft], [probabilities], to=TensorProto.FLOAT),
        helper.make_node("ArgMax", [score], [chosen], axis=1, keepdims=0),
        helper.make_node("LabelEncoder", [chosen], [label], domain=ML, **named),
    )
    return Graph(nodes, (tensor(np.array([[link]], np.float64), by),))
