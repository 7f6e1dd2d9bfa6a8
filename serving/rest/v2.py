"""The Open Inference Protocol (V2): health, metadata and inference, JSON and binary tensors, as Triton's and KServe's
clients speak it. Errors are the protocol's too: `error` is a text, with `code` and `details` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import whole_number
from models.onnx.export import LABEL, NUMBER
from serving.http.compression import pack, unpack
from serving.http.rights import LISTED, NOTHING, seen_models
from serving.http.routes import HEALTH, Door, access, state
from serving.process.registry import Served
from serving.rest import json_schemas
from serving.rest.models import PREDICT_BYTES, RECORDS, Find, run_model, run_quickly, served_model
from serving.rest.openapi import product_version
from serving.wire.errors import json_response
from serving.wire.quick_json import quick_json
from serving.wire.request_bodies import JSON, check_fields, known_query, read_body, strict_json
from serving.wire.tables_in import ANY
from serving.wire.v2_tensors import datatype_of, read_parameters, table_of, tensor_of

JSON_SIZE = "Inference-Header-Content-Length"
REQUEST = {"inputs": (list,)}
REQUEST_MORE = {
    "id": (str,), "parameters": (dict,), "outputs": (list,), "model_name": (str,), "model_version": (str,)
}  # fmt: skip
BINARY, ALL_BINARY = "binary_data", "binary_data_output"
EXTENSIONS = ["binary_tensor_data", "model_repository(index)"]


@dataclass(frozen=True)
class Sent:
    """An inference request before it is read.

    raw: the body, compressed as `encoding` says.
    size: how many bytes of the body, unpacked, are JSON; None: all.
    accepted: the encodings that the client accepts.
    """

    model: str
    raw: bytes
    encoding: str
    size: str | None
    accepted: str


async def about(request: Request) -> Response:
    """Return the server's name, version and extensions."""
    known_query(request)
    return json_response({"name": "dpserve", "version": product_version(), "extensions": EXTENSIONS})


async def live(request: Request) -> Response:
    """Answer 200 always: the process answers."""
    known_query(request)
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """Answer 200 if the server is ready, 503 else."""
    known_query(request)
    state(request).require_welcome()
    return json_response({"ready": True})


async def model_ready(request: Request) -> Response:
    """Answer 200 if the model is served."""
    served = await _requested_model(request)
    return json_response({"name": served.name, "ready": True})


async def metadata(request: Request) -> Response:
    """Return the tensors of a model's inputs and outputs; their first axis is the records."""
    served = await _requested_model(request)
    ensemble = served.verified.ensemble
    versions = state(request).registry.versions(served.name)
    inputs = [_tensor(feature.name, datatype_of(feature), [-1, 1]) for feature in ensemble.features]
    model = {"name": served.name, "versions": list(map(str, versions)), "platform": "onnxruntime_onnx"}
    return json_response({**model, "inputs": inputs, "outputs": _outputs(ensemble.classes)})


def _outputs(classes: tuple[Any, ...]) -> list[dict[str, Any]]:
    if not classes:
        return [_tensor(NUMBER[0], "FP64", [-1])]
    label = "BYTES" if isinstance(classes[0], str) else "INT64"
    return [_tensor(LABEL[0], label, [-1]), _tensor(LABEL[1], "FP32", [-1, len(classes)])]


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


async def index(request: Request) -> Response:
    """Return every version, and why it is not served; only served ones where `ready` is true."""
    known_query(request)
    raw = await read_body(request, 1 << 16, JSON, ANY)
    body = check_fields(strict_json(raw) if raw else {}, {}, {"ready": (bool,)})
    serving = state(request)
    serving.require_ready()
    visible = seen_models(access(request), serving.registry.to_json(), serving.registry)
    lines = [line for line in visible if not body.get("ready") or line["verified"]]
    answers = []
    for line in lines:
        status = "READY" if line["verified"] else "UNAVAILABLE"
        reason = (
            "" if status == "READY" else line["problem"] or ("retired" if line["state"] == "retired" else "unverified")
        )
        about = {"name": line["name"], "version": str(line["version"]), "state": status, "reason": reason}
        answers.append(about)
    return json_response(answers)


async def _requested_model(request: Request) -> Served:
    return await served_model(request, request.path_params.get("version"))


async def infer(request: Request) -> Response:
    """Predict tensors, each in JSON or binary as the request says."""
    known_query(request)
    raw = await read_body(request, PREDICT_BYTES, JSON, ANY, may_be_packed=True)
    headers = request.headers
    name, version = request.path_params["name"], request.path_params.get("version")
    model = name if version is None else f"{name}@{version}"
    encoding = headers.get("content-encoding", "").strip().lower()
    sent = Sent(model, raw, encoding, headers.get(JSON_SIZE), headers.get("accept-encoding", ""))
    serving = state(request)
    serving.require_ready()
    size = PREDICT_BYTES if encoding else len(raw)
    return await run_quickly(serving.registry, access(request), size, answer, sent)


def _json_size(text: str | None, most: int) -> int | None:
    if text is None:
        return None
    size = whole_number(text, most)
    if size is None:
        raise InputError(f"{JSON_SIZE}={text[:20]!r}: must be a whole number, at most the body's size")
    return size


def answer(find: Find, sent: Sent) -> Response:
    """Return the answer to an inference request. Blocks."""
    start = perf_counter()
    raw = unpack(sent.raw, sent.encoding, PREDICT_BYTES)
    head = raw[: _json_size(sent.size, len(raw))]
    body = check_fields(quick_json(head, RECORDS), REQUEST, REQUEST_MORE)
    served = find(sent.model)
    _check_named(body, served, sent.model)
    verified = served.verified
    binary = raw[len(head) :]
    wanted = _requested_outputs(body, [output["name"] for output in _outputs(verified.ensemble.classes)])
    features, runtime = verified.ensemble.features, verified.runtime
    table = table_of(body["inputs"], binary, features, RECORDS, verified.format)
    columns = table.read(features, runtime.reads, runtime.texts)
    label, probabilities = run_model(served, columns)
    values = dict(zip(LABEL if verified.ensemble.classes else NUMBER, (label, probabilities), strict=False))
    model_fields = {"model_name": served.name, "model_version": str(served.version)}
    echo = {} if body.get("id") is None else {"id": body["id"]}
    response = _response({**model_fields, **echo, "parameters": served.certificate}, values, wanted, sent.accepted)
    served.count(len(label), perf_counter() - start)
    return response


def _check_named(body: Mapping[str, Any], served: Served, asked: str) -> None:
    """Raise InputError where the body names another model, or version, than the path."""
    name, version = body.get("model_name"), body.get("model_version")
    if name not in (None, served.name, asked, asked.partition("@")[0]):
        raise InputError(f"model_name={name[:80]!r}: the path names {served.name!r}")
    if version not in (None, "", str(served.version)):
        raise InputError(f"model_version={version[:80]!r}: the path leads to version {served.version}")


def _requested_outputs(body: Mapping[str, Any], names: list[str]) -> dict[str, bool]:
    """Return the names of the requested outputs, each with whether it is to be binary."""
    default = _flag(read_parameters(body), ALL_BINARY, False)
    outputs = body.get("outputs")
    if outputs is None:
        return dict.fromkeys(names, default)
    wanted = {}
    for output in outputs:
        fields = check_fields(output, {"name": (str,)}, {"parameters": (dict,)})
        name = fields["name"]
        if name not in names or name in wanted:
            raise InputError(f"outputs: {name[:80]!r}: must be one of {names}, each once")
        wanted[name] = _flag(read_parameters(fields), BINARY, default)
    return wanted


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise InputError(f"{name}: must be true or false")
    return value


def _response(
    head: Mapping[str, Any], values: Mapping[str, NDArray[Any]], wanted: Mapping[str, bool], accepted: str
) -> Response:
    tensors = [tensor_of(name, np.asarray(values[name]), binary) for name, binary in wanted.items()]
    content = orjson.dumps({**head, "outputs": [tensor for tensor, _ in tensors]})
    sizes = {JSON_SIZE: str(len(content))} if any(wanted.values()) else {}
    packed, encoding = pack(content + b"".join(raw for _, raw in tensors), accepted)
    return Response(packed, headers={**sizes, **encoding}, media_type=(ANY if sizes else JSON).decode())


T, N = json_schemas.TEXT, json_schemas.COUNT
TENSOR = json_schemas.record(
    {"name": T, "datatype": T, "shape": json_schemas.array(N)},
    {"data": json_schemas.array({}), "parameters": json_schemas.ANY_OBJECT},
)
INFER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["inputs"],
    "properties": {
        "id": T,
        "model_name": {**T, "description": "as in the path"},
        "model_version": T,
        "parameters": json_schemas.ANY_OBJECT,
        "inputs": json_schemas.array(TENSOR),
        "outputs": json_schemas.array(json_schemas.record({"name": T}, {"parameters": json_schemas.ANY_OBJECT})),
    },
}
INFERRED = json_schemas.record(
    {
        "model_name": T,
        "model_version": T,
        "outputs": json_schemas.array(TENSOR),
        "parameters": {**json_schemas.CERTIFICATE, "description": "entry and digests of the certificate"},
    },
    {"id": T},
    "`parameters` are the certificate's",
)
BODY = {"type": "string", "format": "binary", "description": f"JSON, then tensors; {JSON_SIZE} says where"}
DESCRIBED = json_schemas.record(
    {"name": T, "datatype": T, "shape": json_schemas.array({"type": "integer", "minimum": -1})}
)
METADATA = json_schemas.record(
    {
        "name": T,
        "versions": json_schemas.array(T),
        "platform": T,
        "inputs": json_schemas.array(DESCRIBED),
        "outputs": json_schemas.array(DESCRIBED),
    }
)
NAMED = json_schemas.record({"name": T, "ready": {"const": True}})
INDEX = {"type": "object", "additionalProperties": False, "properties": {"ready": {"type": "boolean"}}}
WHY = {**T, "description": "why it is not ready"}
INDEXED = json_schemas.array(json_schemas.record({"name": T, "version": T, "state": T, "reason": WHY}))
SERVER = json_schemas.record({"name": T, "version": T, "extensions": json_schemas.array(T)})
MODEL, VERSION = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
DOORS = (
    Door("GET", "/v2", SCOPES, about, "Open inference protocol: the server", gives=SERVER, on=NOTHING),
    Door("GET", HEALTH[0], (), live, "Whether it is alive", gives=json_schemas.record({"live": {"const": True}})),
    Door("GET", HEALTH[1], (), ready, "Whether it can be relied upon", gives=json_schemas.READY),
    Door("POST", "/v2/repository/index", SCOPES, index, "Every version", takes=INDEX, gives=INDEXED, on=LISTED),
    *(Door("GET", path, SCOPES, metadata, "A model's tensors", gives=METADATA) for path in (MODEL, VERSION)),
    *(
        Door("GET", f"{path}/ready", SCOPES, model_ready, "Whether a model is served", gives=NAMED)
        for path in (MODEL, VERSION)
    ),
    *(
        Door(
            "POST",
            f"{path}/infer",
            ("predict",),
            infer,
            "Predict tensors",
            takes=INFER,
            gives=INFERRED,
            also={ANY.decode(): BODY},
        )
        for path in (MODEL, VERSION)
    ),
)
