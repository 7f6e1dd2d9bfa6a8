"""The messages of the Open Inference Protocol (V2) over gRPC, and the bounds within which they are read.

They are made here from a list and not from a file that a compiler writes, in a pool of their own: a process may hold a
client's as well. On the wire they are those of Triton, which has all of KServe's; a test compares them with Triton's.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dpserve_verify.errors import InputError
from serving.wire.bounds import MAX_VALUES
from serving.wire.errors import TooLarge

SERVICE = "inference.GRPCInferenceService"
# A message a line; its fields have the numbers 1, 2, 3... `*`: repeated; `|`: one of a `oneof`; `map`: of parameters.
MESSAGES = """
ServerLiveRequest
ServerLiveResponse live:bool
ServerReadyRequest
ServerReadyResponse ready:bool
ModelReadyRequest name:string version:string
ModelReadyResponse ready:bool
ServerMetadataRequest
ServerMetadataResponse name:string version:string extensions:string*
ModelMetadataRequest name:string version:string
TensorMetadata name:string datatype:string shape:int64*
ModelMetadataResponse name:string versions:string* platform:string inputs:TensorMetadata* outputs:TensorMetadata*
InferParameter bool_param:bool| int64_param:int64| string_param:string| double_param:double| uint64_param:uint64|
InferTensorContents bool_contents:bool* int_contents:int32* int64_contents:int64* uint_contents:uint32* \
 uint64_contents:uint64* fp32_contents:float* fp64_contents:double* bytes_contents:bytes*
InferTensor name:string datatype:string shape:int64* parameters:map contents:InferTensorContents
InferRequestedOutputTensor name:string parameters:map
ModelInferRequest model_name:string model_version:string id:string parameters:map inputs:InferTensor* \
 outputs:InferRequestedOutputTensor* raw_input_contents:bytes*
ModelInferResponse model_name:string model_version:string id:string parameters:map outputs:InferTensor* \
 raw_output_contents:bytes*
RepositoryIndexRequest repository_name:string ready:bool
ModelIndex name:string version:string state:string reason:string
RepositoryIndexResponse models:ModelIndex*
"""
SMALL_BYTES = 1 << 16  # of a message that may hold as many fields as it likes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # kinds of fields on the wire
FIXED = {FIXED64: 8, FIXED32: 4}
INPUTS, OUTPUTS = 5, 6  # numbers of the fields of a request that are messages, again and again
_FIELD = descriptor_pb2.FieldDescriptorProto


def _add_field(message: Any, number: int, text: str) -> None:
    name, _, kind = text.partition(":")
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if kind.endswith("|"):
        field.oneof_index = 0
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        for at, part in enumerate(("key:string", "value:InferParameter"), 1):
            _add_field(entry, at, part)
        kind = f"{message.name}.{entry.name}*"
    if kind.endswith("*"):
        field.label = _FIELD.LABEL_REPEATED
    kind = kind.rstrip("*|")
    field.type = getattr(_FIELD, f"TYPE_{kind.upper()}", _FIELD.TYPE_MESSAGE)
    if field.type == _FIELD.TYPE_MESSAGE:
        field.type_name = f".inference.{kind}"


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package="inference", syntax="proto3")
    for line in MESSAGES.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        if any(field.endswith("|") for field in fields):
            message.oneof_decl.add(name="parameter_choice")
        for number, field in enumerate(fields, 1):
            _add_field(message, number, field)
    pool = descriptor_pool.DescriptorPool()
    found = pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(kind) for name, kind in found.message_types_by_name.items()}


CLASSES = _classes()  # of the messages, by name


def read_message(name: str, raw: bytes) -> Any:
    """Parse a message. InputError where it is none, or has fields that this version does not know: what they ask for
    would be passed over. TooLarge for more than MAX_VALUES fields: each takes up to fifty times its bytes.
    """
    message = CLASSES[name]()
    try:
        if len(raw) > SMALL_BYTES:
            _count_fields(memoryview(raw), 0, is_whole=True)
        message.ParseFromString(raw)
    except (DecodeError, IndexError, ValueError):
        raise InputError(f"message: is not a {name} of the open inference protocol") from None
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise InputError(f"message: has fields that {name} does not have")
    return message


def _count_fields(raw: memoryview, count: int, is_whole: bool) -> int:
    """Return `count`, and the fields in `raw` more: where it `is_whole`, also those of its inputs and outputs.
    IndexError or ValueError where it is no message.
    """
    at = 0
    while at < len(raw):
        count += 1
        if count > MAX_VALUES:
            raise TooLarge(f"message: holds more than {MAX_VALUES} fields", limit=MAX_VALUES)
        tag, at = _varint(raw, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            _, at = _varint(raw, at)
        elif kind == BYTES:
            size, at = _varint(raw, at)
            if is_whole and number in (INPUTS, OUTPUTS):
                count = _count_fields(raw[at : at + size], count, is_whole=False)
            at += size
        elif kind in FIXED:
            at += FIXED[kind]
        else:
            raise ValueError("a group")
    return count


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    number = 0
    for place in range(10):
        byte = raw[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError("a number of more than ten bytes")
