"""A released ensemble as ONNX: raw records in, preprocessing inside the graph.

Inputs, one per feature, each (N, 1): numeric and boolean as double (NaN is missing; booleans 0 or 1), categorical as
string ("" is missing). An input has its feature's name; where an output is called so, `/input/` stands before it.
Outputs: `label` (N,), string or int64 as the classes are, and `probabilities` (N, classes), float; of a number, `value`
(N, 1), double, within its public range. Scores are integers, exact in float32.

Additive ensembles have one more output, unless an input has its name: `contributions` (N, features and pairs), float,
what each adds, in logits or in units of the target. With `base` of the metadata they add up to the logit before
it bends, or to the value before it is clipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature
from models.onnx.answers import answers, value
from models.onnx.check import check_graph
from models.onnx.nodes import ML, Graph, Inputs, Namer
from models.parts.released import Released

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
CLASSES, RANGE, BASE = "classes", "target_range", "base"  # written here as metadata
LABEL, NUMBER, CONTRIBUTIONS = ("label", "probabilities"), ("value",), "contributions"
APART = "/input/"  # no feature's name begins so


class Exportable(Released, Protocol):
    """A released model that writes its own nodes; `models.forms.ensemble.Ensemble` says what each must hold to."""

    def used_features(self) -> list[int]:
        """Return the positions of the features that the graph reads; one at least."""

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes that turn raw values into scores: `target` (N, outputs)."""

    def contribution_graph(self, inputs: Inputs, name: Namer, target: str) -> tuple[Graph, float] | None:
        """Build the nodes that turn raw values into contributions, `target` (N, features), and return their base; or
        None.
        """


def to_onnx(ensemble: Exportable, metadata: Mapping[str, str]) -> bytes:
    """Export an ensemble as deterministic bytes: the same ensemble and metadata give the same file.

    `metadata` becomes metadata_props, beside what is written here: `classes` (a JSON list, empty for a number),
    `target_range` (two numbers, of a number) and `base` (of additive ensembles). Raises ModelInvalid when scores of
    votes or trees could leave what float32 holds exactly.
    """
    ours = {CLASSES, RANGE, BASE} & metadata.keys()
    if ours:
        raise ModelInvalid(f"metadata.{min(ours)}: is written by the export")
    numbers = [i for i, feature in enumerate(ensemble.features) if not isinstance(feature, CategoricalFeature)]
    texts = {i: input_name(feature.name) for i, feature in enumerate(ensemble.features) if i not in numbers}
    used = [i for i in ensemble.used_features() if i in numbers]
    inputs = Inputs("/numbers", {i: column for column, i in enumerate(used)}, texts)
    graph, outputs = ensemble_graph(ensemble, inputs, _name, output_names(ensemble)), _outputs(ensemble)
    known = {CLASSES: json.dumps(ensemble.classes)}
    if ensemble.target_range is not None:
        known[RANGE] = json.dumps(ensemble.target_range)
    account = ensemble.contribution_graph(inputs, _name, CONTRIBUTIONS)
    if account is not None and CONTRIBUTIONS not in [feature.name for feature in ensemble.features]:
        graph, known = graph + account[0], {**known, BASE: json.dumps(account[1])}
        parts = len(ensemble.features) + len(ensemble.as_sum().pairs)
        outputs += [helper.make_tensor_value_info(CONTRIBUTIONS, TensorProto.FLOAT, ["N", parts])]
    names = [input_name(ensemble.features[i].name) for i in used]
    together = [helper.make_node("Concat", names, ["/numbers"], axis=1)] if names else []
    kinds = {True: TensorProto.STRING, False: TensorProto.DOUBLE}
    entries = [
        helper.make_tensor_value_info(
            input_name(feature.name), kinds[isinstance(feature, CategoricalFeature)], ["N", 1]
        )
        for feature in ensemble.features
    ]
    body = helper.make_graph([*together, *graph.nodes], "votes", entries, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dpserve")
    helper.set_model_props(model, dict(sorted({**metadata, **known}.items())))
    raw: bytes = model.SerializeToString(deterministic=True)
    check_graph(raw)
    return raw


def metadata_of(dataset: str, model: str, reservation: int, target: str | None) -> dict[str, str]:
    """Return the metadata of an exported model. `target`: only where its dataset has several."""
    target_field = {} if target is None else {"target": target}
    return {"dataset": dataset, "model": model, "reservation": str(reservation), **target_field}


def same_graph(one: bytes, other: bytes) -> bool:
    """Return whether two files say the same, field by field: another library may spell one graph in other bytes."""
    if one == other:
        return True
    try:
        return bool(ModelProto.FromString(one) == ModelProto.FromString(other))
    except DecodeError:
        return False


def input_name(feature: str) -> str:
    """Return the name of a feature's input in the graph, where no two values may have the same name."""
    return APART + feature if feature in (*LABEL, *NUMBER) else feature


def feature_name(name: str) -> str:
    """Return the name of the feature that an input of a graph stands for."""
    return name.removeprefix(APART)


def _name(part: str) -> str:
    return f"/{part}"


def output_names(ensemble: Released) -> tuple[str, ...]:
    """Return the names of the outputs that every graph of this model has."""
    return LABEL if ensemble.classes else NUMBER


def ensemble_graph(ensemble: Exportable, inputs: Inputs, name: Namer, outputs: Sequence[str]) -> Graph:
    """Build the nodes that turn raw values into `outputs`, as `output_names` has them. `name` makes the names of
    intermediate values unique.
    """
    score = name("score")
    scores = ensemble.score_graph(inputs, name, score)
    if ensemble.target_range is not None:
        return scores + value(ensemble.target_range, ensemble.link, score, name, outputs[0])
    label, probabilities = outputs
    return scores + answers(ensemble.classes, ensemble.link, score, name, (label, probabilities), ensemble.bends)


def _outputs(ensemble: Released) -> list[ValueInfoProto]:
    if not ensemble.classes:
        return [helper.make_tensor_value_info(NUMBER[0], TensorProto.DOUBLE, ["N", 1])]
    kind = TensorProto.STRING if isinstance(ensemble.classes[0], str) else TensorProto.INT64
    label, probabilities = LABEL
    return [
        helper.make_tensor_value_info(label, kind, ["N"]),
        helper.make_tensor_value_info(probabilities, TensorProto.FLOAT, ["N", len(ensemble.classes)]),
    ]
