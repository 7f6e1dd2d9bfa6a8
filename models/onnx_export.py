"""A released ensemble as ONNX: raw records in, preprocessing inside the graph.

Inputs, one per feature, each (N, 1): numeric and boolean as double (NaN is missing; booleans 0 or 1), categorical as
string ("" is missing). Outputs: `label` (N,), string or int64 as the classes are, and `probabilities` (N, classes),
float. Scores are integers, exact in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from accountant.errors import ModelInvalid
from models.ensemble import Ensemble, VotingEnsemble
from models.features import CategoricalFeature, Feature
from models.onnx_answers import answers
from models.onnx_check import check_graph
from models.onnx_nodes import ML, Graph, Inputs, Namer
from models.onnx_trees import tree_scores, used_by_trees
from models.onnx_votes import used_by_votes, vote_scores
from models.trees import TreeEnsemble

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
CLASSES = "classes"


def to_onnx(ensemble: Ensemble, metadata: Mapping[str, str]) -> bytes:
    """Deterministic bytes: the same ensemble and metadata give the same file.

    `metadata` becomes metadata_props, beside `classes` (a JSON list), which is written here. Raises ModelInvalid when
    scores could leave what float32 holds exactly.
    """
    if CLASSES in metadata:
        raise ModelInvalid(f"metadata.{CLASSES}: is written by the export")
    numbers = [i for i, feature in enumerate(ensemble.features) if not isinstance(feature, CategoricalFeature)]
    texts = {i: feature.name for i, feature in enumerate(ensemble.features) if i not in numbers}
    used = [i for i in used_features(ensemble) if i in numbers]
    inputs = Inputs("/numbers", {i: column for column, i in enumerate(used)}, texts)
    graph = ensemble_graph(ensemble, inputs, lambda name: f"/{name}", ("label", "probabilities"))
    names = [ensemble.features[i].name for i in used]
    together = [helper.make_node("Concat", names, ["/numbers"], axis=1)] if names else []
    body = helper.make_graph(
        [*together, *graph.nodes], "votes", [_input(f) for f in ensemble.features], _outputs(ensemble), graph.constants
    )
    model = _model(body, {**metadata, CLASSES: json.dumps(ensemble.classes)})
    raw: bytes = model.SerializeToString(deterministic=True)
    check_graph(raw)
    return raw


def used_features(ensemble: Ensemble) -> list[int]:
    """Positions of the features that the graph reads; one at least."""
    return used_by_trees(ensemble) if isinstance(ensemble, TreeEnsemble) else used_by_votes(_votes(ensemble))


def ensemble_graph(ensemble: Ensemble, inputs: Inputs, name: Namer, outputs: tuple[str, str]) -> Graph:
    """From raw values to `outputs` = (label, probabilities). `name` makes intermediates unique."""
    score = name("score")
    if isinstance(ensemble, TreeEnsemble):
        scores = tree_scores(ensemble, inputs, name, score)
    else:
        scores = vote_scores(_votes(ensemble), inputs, name, score)
    return scores + answers(ensemble.classes, ensemble.link, score, name, outputs)


def _votes(ensemble: Ensemble) -> VotingEnsemble:
    if not isinstance(ensemble, VotingEnsemble):
        raise ModelInvalid(f"ensemble={type(ensemble).__name__}: there is no export for it")
    return ensemble


def _input(feature: Feature) -> ValueInfoProto:
    kind = TensorProto.STRING if isinstance(feature, CategoricalFeature) else TensorProto.DOUBLE
    return helper.make_tensor_value_info(feature.name, kind, ["N", 1])


def _outputs(ensemble: Ensemble) -> list[ValueInfoProto]:
    kind = TensorProto.STRING if isinstance(ensemble.classes[0], str) else TensorProto.INT64
    return [
        helper.make_tensor_value_info("label", kind, ["N"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", len(ensemble.classes)]),
    ]


def _model(graph: GraphProto, metadata: Mapping[str, str]) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dpserve")
    helper.set_model_props(model, dict(sorted(metadata.items())))
    return model
