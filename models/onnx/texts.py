"""Texts as the numbers that a graph turns them into first of all, looked up before the graph is run: ONNX Runtime takes
longer to copy a thousand texts than to do all the rest."""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto, NodeProto, TensorProto, helper

from models.features.text_numbers import Numbers

LOOKUP = {"keys_strings", "values_floats", "default_float"}


def numbers_of_texts(model: ModelProto) -> dict[str, Numbers]:
    """Return what each text input is turned into, where one node and no other reads it, and looks its texts up. The
    model is changed: it takes these numbers in place of the texts, and computes the same.
    """
    graph, found = model.graph, dict[str, Numbers]()
    readers = Counter(name for node in graph.node for name in node.input)
    kept = []
    for node in graph.node:
        numbers = _lookup(node) if list(map(readers.get, node.input)) == [1] else None
        entry = next((each for each in graph.input if each.name in node.input), None)
        is_text = entry is not None and entry.type.tensor_type.elem_type == TensorProto.STRING
        if numbers is None or entry is None or not is_text or node.output[0] in {each.name for each in graph.output}:
            kept.append(node)
            continue
        entry.type.tensor_type.elem_type = TensorProto.FLOAT
        found[entry.name] = numbers
        for reader in graph.node:
            for place, name in enumerate(reader.input):
                if name == node.output[0]:
                    reader.input[place] = entry.name
    graph.ClearField("node")
    graph.node.extend(kept)
    return found


def _lookup(node: NodeProto) -> Numbers | None:
    """Return the numbers that a node gives texts; None where it does anything else, or could be read in two ways."""
    if node.op_type != "LabelEncoder" or {each.name for each in node.attribute} != LOOKUP:
        return None
    said = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    try:
        texts = [text.decode() for text in said["keys_strings"]]
    except UnicodeDecodeError:
        return None
    numbers, plain = said["values_floats"], all("\0" not in text for text in texts)
    if len(set(texts)) != len(texts) or len(numbers) != len(texts) or not plain:
        return None
    return Numbers(dict(zip(texts, numbers, strict=True)), said["default_float"])
