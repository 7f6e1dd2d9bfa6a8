"""A released ensemble as ONNX: raw records in, preprocessing inside the graph.

Inputs, one per feature, each (N, 1): numeric and boolean as double (NaN is missing; booleans 0 or 1), categorical as
string ("" is missing). Outputs: `label` (N,), string or int64 as the classes are, and `probabilities` (N, classes),
float; of a number, `value` (N, 1), double, within its public range. Scores are integers, exact in float32.

Additive ensembles have one more output, unless an input has its name: `contributions` (N, features), float, what each
feature adds, in logits or in units of the target. With `base` of the metadata they add up to the logit, or to the value
before it is clipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from accountant.errors import ModelInvalid
from models.additive import AdditiveEnsemble
from models.answers import ClassLabel
from models.ensemble import Ensemble, VotingEnsemble, target_range
from models.features import CategoricalFeature, Feature
from models.onnx.additive import additive_scores, contributions_of
from models.onnx.answers import answers, value
from models.onnx.check import check_graph
from models.onnx.nodes import ML, Graph, Inputs, Namer
from models.onnx.trees import tree_scores, used_by_trees
from models.onnx.votes import used_by_votes, vote_scores
from models.trees import TreeEnsemble

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
CLASSES, RANGE, BASE = "classes", "target_range", "base"  # written here as metadata
LABEL, NUMBER, CONTRIBUTIONS = ("label", "probabilities"), ("value",), "contributions"


def to_onnx(ensemble: Ensemble, metadata: Mapping[str, str]) -> bytes:
    """Deterministic bytes: the same ensemble and metadata give the same file.

    `metadata` becomes metadata_props, beside what is written here: `classes` (a JSON list, empty for a number),
    `target_range` (two numbers, of a number) and `base` (of additive ensembles). Raises ModelInvalid when scores of
    votes or trees could leave what float32 holds exactly.
    """
    ours = {CLASSES, RANGE, BASE} & metadata.keys()
    if ours:
        raise ModelInvalid(f"metadata.{min(ours)}: is written by the export")
    numbers = [i for i, feature in enumerate(ensemble.features) if not isinstance(feature, CategoricalFeature)]
    texts = {i: feature.name for i, feature in enumerate(ensemble.features) if i not in numbers}
    used = [i for i in used_features(ensemble) if i in numbers]
    inputs = Inputs("/numbers", {i: column for column, i in enumerate(used)}, texts)
    graph = ensemble_graph(ensemble, inputs, _name, output_names(ensemble))
    known = {CLASSES: json.dumps(ensemble.classes)}
    if (found := target_range(ensemble)) is not None:
        known[RANGE] = json.dumps(found)
    if isinstance(ensemble, AdditiveEnsemble) and _accounts(ensemble):
        beside, base = contributions_of(ensemble, inputs, _name, CONTRIBUTIONS)
        graph, known = graph + beside, {**known, BASE: json.dumps(base)}
    names = [ensemble.features[i].name for i in used]
    together = [helper.make_node("Concat", names, ["/numbers"], axis=1)] if names else []
    body = helper.make_graph(
        [*together, *graph.nodes], "votes", [_input(f) for f in ensemble.features], _outputs(ensemble), graph.constants
    )
    model = _model(body, {**metadata, **known})
    raw: bytes = model.SerializeToString(deterministic=True)
    check_graph(raw)
    return raw


def _name(part: str) -> str:
    return f"/{part}"


def output_names(ensemble: Ensemble) -> tuple[str, ...]:
    """What is always answered."""
    return LABEL if ensemble.classes else NUMBER


def _accounts(ensemble: Ensemble) -> bool:
    """Whether the graph tells contributions: not where an input has that name."""
    return isinstance(ensemble, AdditiveEnsemble) and CONTRIBUTIONS not in [each.name for each in ensemble.features]


def used_features(ensemble: Ensemble) -> list[int]:
    """Positions of the features that the graph reads; one at least."""
    match ensemble:
        case TreeEnsemble():
            return used_by_trees(ensemble)
        case VotingEnsemble() | AdditiveEnsemble():
            return used_by_votes(ensemble)
    raise _unknown(ensemble)


def ensemble_graph(ensemble: Ensemble, inputs: Inputs, name: Namer, outputs: Sequence[str]) -> Graph:
    """From raw values to `outputs`, as `output_names` has them. `name` makes intermediates unique."""
    score = name("score")
    scores = _scores(ensemble, inputs, name, score)
    if isinstance(ensemble, AdditiveEnsemble) and ensemble.target_range is not None:
        return scores + value(ensemble.target_range, ensemble.link, score, name, outputs[0])
    label, probabilities = outputs
    return scores + answers(ensemble.classes, ensemble.link, score, name, (label, probabilities))


def _scores(ensemble: Ensemble, inputs: Inputs, name: Namer, score: str) -> Graph:
    match ensemble:
        case TreeEnsemble():
            return tree_scores(ensemble, inputs, name, score)
        case AdditiveEnsemble():
            return additive_scores(ensemble, inputs, name, score)
        case VotingEnsemble():
            return vote_scores(ensemble, inputs, name, score)
    raise _unknown(ensemble)


def _unknown(ensemble: Ensemble) -> ModelInvalid:
    return ModelInvalid(f"ensemble={type(ensemble).__name__}: there is no export for it")


def _input(feature: Feature) -> ValueInfoProto:
    kind = TensorProto.STRING if isinstance(feature, CategoricalFeature) else TensorProto.DOUBLE
    return helper.make_tensor_value_info(feature.name, kind, ["N", 1])


def _outputs(ensemble: Ensemble) -> list[ValueInfoProto]:
    found = _number() if not ensemble.classes else _label(ensemble.classes)
    if _accounts(ensemble):
        found += [helper.make_tensor_value_info(CONTRIBUTIONS, TensorProto.FLOAT, ["N", len(ensemble.features)])]
    return found


def _number() -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(NUMBER[0], TensorProto.DOUBLE, ["N", 1])]


def _label(classes: Sequence[ClassLabel]) -> list[ValueInfoProto]:
    kind = TensorProto.STRING if isinstance(classes[0], str) else TensorProto.INT64
    label, probabilities = LABEL
    return [
        helper.make_tensor_value_info(label, kind, ["N"]),
        helper.make_tensor_value_info(probabilities, TensorProto.FLOAT, ["N", len(classes)]),
    ]


def _model(graph: GraphProto, metadata: Mapping[str, str]) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dpserve")
    helper.set_model_props(model, dict(sorted(metadata.items())))
    return model
