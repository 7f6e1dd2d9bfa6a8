"""The Open Inference Protocol over gRPC: each call as a request of `serving.rest.v2`, and its answer as a message.

Who may ask, what an input must be, what is counted and written down, and what an error says: all of it is that door's.
Tensors cross as the bytes of its binary form, so that answers are the same to the bit. A caller who wrote values
(`contents`) gets values back, who wrote bytes (`raw_input_contents`) bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from dpserve_verify.errors import DpserveError, InputError
from serving.http.routes import HEALTH
from serving.rest.v2 import ALL_BINARY, BINARY, JSON_SIZE
from serving.wire.grpc_messages import CLASSES, read_message
from serving.wire.request_bodies import TEXT_LENGTH
from serving.wire.v2_tensors import BINARY_SIZE

OPEN = ("ServerLive", "ServerReady")  # a kubelet asks without a token
METHODS = (*OPEN, "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "RepositoryIndex")
# The datatypes that have values in a message: the field that holds them, and their bytes in the binary form.
VALUES = {
    "BOOL": ("bool_contents", "?"),
    **{f"INT{size}": ("int_contents", f"<i{size // 8}") for size in (8, 16, 32)},
    **{f"UINT{size}": ("uint_contents", f"<u{size // 8}") for size in (8, 16, 32)},
    "INT64": ("int64_contents", "<i8"),
    "UINT64": ("uint64_contents", "<u8"),
    "FP32": ("fp32_contents", "<f4"),
    "FP64": ("fp64_contents", "<f8"),
    "BYTES": ("bytes_contents", ""),
}
NOT_READY = (404, 503)  # which are no errors of who asks whether something is ready


@dataclass(frozen=True)
class DoorRequest:
    """A request of REST. `body`: what came in its place was none, and this is wrong with it."""

    verb: str
    path: str
    body: bytes | DpserveError = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class DoorReply:
    """An answer of REST."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        """Return what the body says; of tensors in binary, their head."""
        size = self.headers.get(JSON_SIZE.lower().encode())
        return orjson.loads(self.body if size is None else self.body[: int(size)])


def request_of(method: str, raw: bytes) -> DoorRequest:
    """Return what a call asks of REST. InputError, TooLarge where the message is none of the method's. Blocks, for some
    time where it is large.
    """
    if method == "ModelInfer":
        return _inference(raw)
    message = read_message(f"{method}Request", raw)
    if method in OPEN:
        return DoorRequest("GET", HEALTH[OPEN.index(method)])
    if method == "ServerMetadata":
        return DoorRequest("GET", "/v2")
    if method == "RepositoryIndex":
        body = {"ready": message.ready} | (
            {"repository_name": message.repository_name} if message.repository_name else {}
        )
        return DoorRequest("POST", "/v2/repository/index", orjson.dumps(body))
    return DoorRequest("GET", _path(message.name, message.version) + ("/ready" if method == "ModelReady" else ""))


def _path(name: str, version: str) -> str:
    """Return the path of a model, whatever stands in its name: no slash of it begins another part."""
    words = [name, *(["versions", version] if version else [])]
    return "/v2/models/" + "/".join(word[:TEXT_LENGTH].replace("/", "%2F") for word in words)


def _inference(raw: bytes) -> DoorRequest:
    """Return the request of an inference. What is wrong with its message is the body, so that it is refused, counted
    and written down where all are.
    """
    path = _path("-", "")
    try:
        message = read_message("ModelInferRequest", raw)
        path = _path(message.model_name, message.model_version)
        head, tensors = _tensors(message)
    except DpserveError as error:
        return DoorRequest("POST", f"{path}/infer", error)
    size = JSON_SIZE.lower().encode(), str(len(head)).encode()
    return DoorRequest("POST", f"{path}/infer", head + tensors, (size,))


def _tensors(message: Any) -> tuple[bytes, bytes]:
    """Return the JSON of a request, and the bytes of its tensors. InputError where it says a thing twice."""
    contents, inputs, parts = message.raw_input_contents, [], []
    if contents and len(contents) != len(message.inputs):
        raise InputError(f"raw_input_contents: {len(contents)} of them, and {len(message.inputs)} inputs; one for each")
    for index, tensor in enumerate(message.inputs):
        cells = _bytes_of_values(tensor)
        if contents:
            if tensor.contents.ListFields():
                raise InputError(f"inputs[{index}]: has contents, and raw_input_contents beside them; leave one out")
            cells = contents[index]
        parameters = _plain(tensor.parameters)
        if parameters.setdefault(BINARY_SIZE, len(cells)) != len(cells):
            raise InputError(f"inputs[{index}]: {BINARY_SIZE} is not the {len(cells)} bytes that there are")
        parts.append(cells)
        shape, datatype = list(tensor.shape), tensor.datatype
        inputs.append({"name": tensor.name, "shape": shape, "datatype": datatype, "parameters": parameters})
    body = {"inputs": inputs, "parameters": _plain(message.parameters) | {ALL_BINARY: bool(contents)}}
    if message.id:
        body["id"] = message.id
    if message.outputs:
        body["outputs"] = [
            {"name": each.name, "parameters": _plain(each.parameters) | {BINARY: bool(contents)}}
            for each in message.outputs
        ]
    return orjson.dumps(body), b"".join(parts)


def _plain(parameters: Any) -> dict[str, Any]:
    """Return parameters as JSON has them."""
    found = ((name, value.WhichOneof("parameter_choice"), value) for name, value in parameters.items())
    return {name: None if choice is None else getattr(value, choice) for name, choice, value in found}


def _bytes_of_values(tensor: Any) -> bytes:
    """Return the values of an input in the binary form. InputError where they stand in another field than its
    datatype's, or do not fit into that.
    """
    filled = tensor.contents.ListFields()
    if not filled:
        return b""
    field, form = VALUES.get(tensor.datatype, ("raw_input_contents", ""))
    if [kind.name for kind, _ in filled] != [field]:
        raise InputError(f"{tensor.name[:80]}: contents: values of {tensor.datatype[:20]!r} stand in {field} alone")
    values = filled[0][1]
    if not form:
        return b"".join(len(text).to_bytes(4, "little") + text for text in values)
    given = np.array(values)
    with np.errstate(over="ignore"):
        numbers = given.astype(form)
    if given.dtype.kind in "iu" and (numbers != given).any():
        raise InputError(f"{tensor.name[:80]}: contents: a number beyond every {tensor.datatype}")
    return numbers.tobytes()


def message_of(method: str, reply: DoorReply) -> bytes | None:
    """Return the message that answers a call; None where REST answered by an error."""
    kind = CLASSES[f"{method}Response"]
    if method in ("ServerReady", "ModelReady") and reply.status in NOT_READY:
        return bytes(kind(ready=False).SerializeToString())
    if reply.status != 200:
        return None
    body = reply.json()
    if method == "ModelInfer":
        message = _inferred(kind, body, reply.body)
    elif method == "RepositoryIndex":
        message = kind(models=body)
    else:
        message = kind(**(body if method != "ModelReady" else {"ready": True}))
    return bytes(message.SerializeToString())


def _inferred(kind: Any, body: Any, raw: bytes) -> Any:
    message = kind(model_name=body["model_name"], model_version=body["model_version"], id=body.get("id", ""))
    for name, value in body["parameters"].items():  # what the certificate says: an object is its JSON
        plain = value if isinstance(value, int | str) else orjson.dumps(value).decode()
        setattr(message.parameters[name], "int64_param" if isinstance(value, int) else "string_param", plain)
    sizes = [each.get("parameters", {}).get(BINARY_SIZE) for each in body["outputs"]]
    at = len(raw) - sum(size or 0 for size in sizes)
    for each, size in zip(body["outputs"], sizes, strict=True):
        tensor = message.outputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
        if size is None:
            texts = each["datatype"] == "BYTES"
            values = [text.encode() for text in each["data"]] if texts else each["data"]
            getattr(tensor.contents, VALUES[each["datatype"]][0]).extend(values)
        else:
            message.raw_output_contents.append(raw[at : at + size])
            at += size
    return message
