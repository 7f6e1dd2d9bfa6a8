"""gRPC of the open inference protocol at a real server: NVIDIA's client, a bare one, and callers who mean no good."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import grpc
import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
import warm
from google.protobuf.descriptor import FieldDescriptor
from https import certificate
from small_home import PATIENCE, dpserve, environment, free_port, running, until
from tritonclient.grpc import service_pb2

from accountant.access.tokens import Limits
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from serving.process.config.startup import Listening, check_listening
from serving.process.tokens import new_token
from serving.rest.models import PREDICT_BYTES
from serving.rest.v2_grpc import METHODS, DoorReply, message_of, request_of
from serving.wire.bounds import MAX_VALUES
from serving.wire.errors import TooLarge
from serving.wire.grpc_messages import CLASSES, SERVICE, read_message
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

server_test = pytest.mark.server
TARGETS = {
    "texts": ("classes: [low, middle, high]", "lazybb", {"rounds": 5}),
    "numbered": ("classes: [3, 1, 2]", "lazybb", {"rounds": 5}),
    "rent": ("range: [0, 2000]", "ebm", {}),
}
SCHEMA = """
target: {{name: rent, {}}}
records: 60
features:
  age: {{type: numeric, edges: [20, 40, 60]}}
  colour: {{type: categorical, values: [red, "größer"]}}
  member: {{type: boolean}}
"""
INPUTS = {
    "age": ("FP64", "fp64_contents", [30, 50.5, np.nan, -1e300, 70]),
    "colour": ("BYTES", "bytes_contents", [b"red", "größer".encode(), b"", b"blue", b"red"]),
    "member": ("BOOL", "bool_contents", [False, True, True, False, True]),
}
COUNT = 5
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpc")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    for number, (name, (target, learner, parameters)) in enumerate(TARGETS.items()):
        (folder / "schema.yaml").write_text(SCHEMA.format(target))
        answers = {"texts": ["low", "middle", "high"], "numbered": [3, 1, 2], "rent": [100.0, 900.0, 1500.0]}[name]
        columns = {"age": np.arange(60.0) + number, "colour": ["red", "größer", "blue"] * 20}
        rows = pa.table({**columns, "member": [True, False] * 30, "rent": answers * 20})
        pq.write_table(rows, folder / f"{name}.parquet")
        people = NewPeople("a test", "steward")
        files = folder / f"{name}.parquet", folder / "schema.yaml"
        register(home, name, *files, Budget.of(1, "1e-3"), Relation.ADD_REMOVE, None, new_people=people)
        job.train(home, JobRequest(name, learner, "0.5", "0.001", parameters=parameters), by="test")
    return home.path


def command(port, calls, *more):
    flags = ["--port", str(port), "--grpc", str(calls), "--workers", "1", "--job-workers", "0", *map(str, more)]
    return [sys.executable, "-m", "serving.cli", "serve", *flags]


@contextmanager
def started(home):
    port, calls = free_port(), free_port()
    with running(home, command(port, calls), port, home.parent, warm.Popen, CALLS=str(calls)) as found:
        until(lambda: f"gRPC on port {calls}" in found.log.read_text(), "it listens")
        yield found


@pytest.fixture(scope="module")
def server(home):
    with started(home) as found:
        yield found


def port_of(server):
    return int(server.given["CALLS"])


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(f"127.0.0.1:{port_of(server)}") as found:
        yield found


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{port_of(server)}") as found:
        yield found


def key(server, scope="predict"):
    return {"authorization": f"Bearer {server.tokens[scope]}"}


def call(server, channel, method, message, metadata=None, **more):
    """A call of raw bytes, or of one of our own messages -> the answer, or the status and what it says."""
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    metadata = tuple(key(server).items()) if metadata is None else metadata
    try:
        answer = channel.unary_unary(f"/{SERVICE}/{method}")(raw, metadata=metadata, timeout=PATIENCE, **more)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return CLASSES[f"{method}Response"].FromString(answer)


def tensors(kind):
    found = []
    for name, (datatype, _, cells) in INPUTS.items():
        tensor = kind(name, [COUNT, 1], datatype)
        form = object if datatype == "BYTES" else bool if datatype == "BOOL" else float
        tensor.set_data_from_numpy(np.array([[cell] for cell in cells], form))
        found.append(tensor)
    return found


def typed(model="texts", **more):
    message = CLASSES["ModelInferRequest"](model_name=model, **more)
    for name, (datatype, field, cells) in INPUTS.items():
        tensor = message.inputs.add(name=name, datatype=datatype, shape=[COUNT])
        getattr(tensor.contents, field).extend(cells)
    return message


def shape_of(message):
    """What of a message is on the wire: its fields, and theirs."""
    return {
        field.number: (
            field.name, field.type, field.is_repeated,
            shape_of(field.message_type) if field.type == FieldDescriptor.TYPE_MESSAGE else None,
        )
        for field in message.fields
    }  # fmt: skip


def test_the_messages_are_tritons():
    for method in METHODS:
        for end in ("Request", "Response"):
            theirs = getattr(service_pb2, f"{method}{end}").DESCRIPTOR
            ours, wanted = shape_of(CLASSES[f"{method}{end}"].DESCRIPTOR), shape_of(theirs)
            if method == "RepositoryIndex" and end == "Request":
                assert ours.items() <= wanted.items()
                continue
            assert ours == wanted, f"{method}{end}"


@server_test
@pytest.mark.parametrize("model", TARGETS)
def test_answers_are_those_of_rest_to_the_bit(server, client, channel, model):
    with triton_http.InferenceServerClient(f"127.0.0.1:{server.port}") as other:
        wanted = other.infer(model, tensors(triton_http.InferInput), headers=key(server), request_id="seven")
    found = client.infer(model, tensors(triton.InferInput), headers=key(server), request_id="seven")
    head, answer = wanted.get_response(), found.get_response()
    assert (answer.model_name, answer.model_version, answer.id) == (model, "1", "seven")
    assert {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in answer.parameters.items()} == (
        head["parameters"]
    )
    assert [each.name for each in answer.outputs] == [each["name"] for each in head["outputs"]]
    values = call(server, channel, "ModelInfer", typed(model))
    assert not values.raw_output_contents
    for each, plain in zip(answer.outputs, values.outputs, strict=True):
        ours, theirs = found.as_numpy(each.name), wanted.as_numpy(each.name)
        assert (ours.dtype, ours.shape, ours.tolist()) == (theirs.dtype, theirs.shape, theirs.tolist())
        ((_, contents),) = plain.contents.ListFields()
        assert np.array(contents, ours.dtype).tobytes() == ours.tobytes() or list(contents) == ours.tolist()
    one = [triton.InferRequestedOutput(answer.outputs[-1].name)]
    for name, version in ((model, "1"), (f"{model}@1", ""), (f"{model}@champion", "")):
        alone = client.infer(name, tensors(triton.InferInput), version, outputs=one, headers=key(server))
        assert [each.name for each in alone.get_response().outputs] == [one[0].name()]


@server_test
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_packed_messages_are_read(server, client, algorithm):
    inputs = tensors(triton.InferInput)
    found = client.infer("texts", inputs, headers=key(server), compression_algorithm=algorithm)
    plain = client.infer("texts", inputs, headers=key(server))
    assert found.as_numpy("probabilities").tobytes() == plain.as_numpy("probabilities").tobytes()


@server_test
def test_health_metadata_and_the_list_of_models(server, client):
    headers = key(server)
    assert client.is_server_live()  # a kubelet has no token
    assert client.is_server_ready()
    assert client.is_model_ready("texts", headers=headers)
    for model, version in (("nope", ""), ("texts", "3"), ("texts", "x"), ("../..", ""), ("texts/versions/1", "")):
        assert not client.is_model_ready(model, version, headers=headers)
    about = client.get_server_metadata(headers=headers)
    assert (about.name, list(about.extensions)) == ("dpserve", server.get("/v2").json()["extensions"])
    wanted = server.get("/v2/models/rent").json()
    found = client.get_model_metadata("rent", headers=headers, as_json=True)
    for tensor in (*found["inputs"], *found["outputs"]):
        tensor["shape"] = [int(axis) for axis in tensor["shape"]]
    assert found == wanted
    index = client.get_model_repository_index(headers=headers)
    assert [(each.name, each.version, each.state, each.reason) for each in index.models] == [
        (line["name"], line["version"], line["state"], line["reason"])
        for line in server.post("/v2/repository/index", {}).json()
    ]


@server_test
def test_refusals_are_those_of_rest(server, client, channel):
    def refused(message, method="ModelInfer", metadata=None):
        return call(server, channel, method, message, metadata)

    assert refused(typed("nope")) == (Code.NOT_FOUND, "model='nope': there is no such model")
    for name in ("../../v1/datasets", "", "texts/versions/1", "texts\r\nX-Scope: admin", "x" * (1 << 20), "\0"):
        code, text = refused(typed(name))
        assert (code, len(text) < 2000) == (Code.NOT_FOUND, True)
    assert refused(typed(model_version="1/../../.."))[0] == Code.NOT_FOUND
    for metadata in (
        (),
        (("authorization", "Bearer dps_x"),),
        (("authorization", "Basic eDp5"),),
        (*key(server).items(),) * 2,
    ):
        for method in METHODS[2:]:
            code, text = refused(b"\xff" * 100, method, metadata)
            assert (code, text.partition(":")[0]) == (Code.UNAUTHENTICATED, "Authorization")
    assert refused(typed(), metadata=tuple(key(server, "audit").items()))[0] == Code.PERMISSION_DENIED
    first = typed()
    del first.inputs[0]
    assert refused(first) == (
        Code.INVALID_ARGUMENT, "age: is missing (NaN or the empty text says that it is not known)"
    )  # fmt: skip
    second = typed()
    second.inputs.add().CopyFrom(second.inputs[0])
    assert refused(second) == (Code.INVALID_ARGUMENT, "inputs: 'age' stands there twice")
    third = typed()
    third.parameters["sequence_id"].int64_param = 3
    assert refused(third)[1].startswith("parameters: 'sequence_id': sequences, shared memory")
    many = typed()
    for tensor in many.inputs:
        tensor.shape[:] = [20_001]
    assert refused(many) == (Code.RESOURCE_EXHAUSTED, "records: 20001; at most 20000 a request")
    assert refused(b"\xff\xff", "ServerMetadata")[0] == Code.INVALID_ARGUMENT
    index = CLASSES["RepositoryIndexRequest"](repository_name="other")
    assert refused(index, "RepositoryIndex")[1].startswith("'repository_name': is not a field")
    assert refused(b"", "ModelStreamInfer")[0] == Code.UNIMPLEMENTED
    with pytest.raises(triton.InferenceServerException, match="StatusCode.UNAUTHENTICATED"):
        client.infer("texts", tensors(triton.InferInput))


@server_test
def test_the_trail_the_metrics_and_a_tokens_limit_count_both_doors(server, channel):
    secret, _ = new_token(server.home, "few", ["predict"], Limits(per_day=3))
    headers = {"authorization": f"Bearer {secret}"}
    assert call(server, channel, "ModelInfer", b"\xff", (*headers.items(),))[0] == Code.INVALID_ARGUMENT
    assert server.get("/v2/models/texts/ready", scope=None, headers=headers).status_code == 200
    assert call(server, channel, "ModelInfer", typed(), (*headers.items(),)).model_name == "texts"
    refusal = call(server, channel, "ModelInfer", typed(), (*headers.items(),))
    assert refusal[0] == Code.RESOURCE_EXHAUSTED
    assert refusal[1].startswith("token 'few' may make 3 requests a day")
    lines = [line for line in (server.path / "logs" / "access.jsonl").read_text().splitlines() if '"few"' in line]
    assert [json.loads(line)["status"] for line in lines] == [400, 200, 200, 429]
    assert {json.loads(line)["route"] for line in lines[:3]} == {"/v2/models/{name}/ready", "/v2/models/{name}/infer"}
    counted = server.get("/metrics").text
    assert 'route="/v2/models/{name}/infer"' in counted


GOOD = typed().SerializeToString()
BOTH = typed()
BOTH.raw_input_contents.extend([b""] * 3)
FEW = typed()
FEW.raw_input_contents.append(b"")
OTHER, SMALL, FULL, SIZED = typed(), typed(), typed(), typed()
OTHER.inputs[0].contents.fp32_contents.append(1)
SMALL.inputs[0].datatype, SMALL.inputs[0].contents.int_contents[:] = "INT8", [128]
SMALL.inputs[0].contents.ClearField("fp64_contents")
FULL.inputs[0].datatype = "FP16"
SIZED.inputs[1].parameters["binary_data_size"].int64_param = 3


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\xff\xff\xff", "message: is not a ModelInferRequest of the open inference protocol"),
        (b"\x0a\x05ab", "message: is not a ModelInferRequest of the open inference protocol"),
        (b"\x0a\x02\xff\xfe", "message: is not a ModelInferRequest of the open inference protocol"),  # no UTF-8
        (GOOD + b"\x98\x06\x01", "message: has fields that ModelInferRequest does not have"),
        (GOOD + b"\x2a\x03\xf8\x06\x01", "message: has fields that ModelInferRequest does not have"),
        (b"\x0b" * (1 << 17), "message: is not a ModelInferRequest of the open inference protocol"),
        (b"\x2a\x00" * (MAX_VALUES + 1), f"message: holds more than {MAX_VALUES} fields"),
        (b"\x2a\x80\x80\x08" + b"\x22\x00" * (MAX_VALUES // 2) + b"\x2a\x80\x80\x08" + b"\x22\x00" * (MAX_VALUES // 2),
         f"message: holds more than {MAX_VALUES} fields"),
        (BOTH, "inputs[0]: has contents, and raw_input_contents beside them; leave one out"),
        (FEW, "raw_input_contents: 1 of them, and 3 inputs; one for each"),
        (OTHER, "age: contents: values of 'FP64' stand in fp64_contents alone"),
        (SMALL, "age: contents: a number beyond every INT8"),
        (FULL, "age: contents: values of 'FP16' stand in raw_input_contents alone"),
        (SIZED, "inputs[1]: binary_data_size is not the 38 bytes that there are"),
    ],
)  # fmt: skip
def test_one_strict_reader_of_messages(message, problem):
    asked = request_of("ModelInfer", message if isinstance(message, bytes) else message.SerializeToString())
    assert isinstance(asked.body, InputError | TooLarge)
    assert asked.body.message == problem


def test_a_large_message_is_read_as_a_small_one():
    message = CLASSES["ModelInferRequest"](model_name="m", raw_input_contents=[bytes(1 << 20)], id="é")
    assert read_message("ModelInferRequest", message.SerializeToString()) == message


def test_what_a_certificate_says_of_a_model_made_of_others_is_told():
    says = {"entry": 7, "epsilon": "0.5", "alone": {"epsilon": "0", "delta": "0"}}
    body = {"model_name": "m", "model_version": "1", "parameters": says, "outputs": []}
    answer = CLASSES["ModelInferResponse"].FromString(message_of("ModelInfer", DoorReply(200, {}, orjson.dumps(body))))
    assert answer.parameters["entry"].int64_param == 7
    assert orjson.loads(answer.parameters["alone"].string_param) == says["alone"]


@server_test
def test_callers_who_mean_no_good_take_nobodys_turn(server, channel):
    grown = psutil.Process(server.processes("dpserve-grpc")[0].pid).memory_info
    before = grown().rss
    anybody = ()
    large = bytes(PREDICT_BYTES + 1)
    assert call(server, channel, "ModelInfer", large)[0] == Code.RESOURCE_EXHAUSTED
    bomb = call(server, channel, "ModelInfer", bytes(200 << 20), compression=grpc.Compression.Gzip)
    assert bomb[0] == Code.RESOURCE_EXHAUSTED
    assert call(server, channel, "ModelInfer", bytes(PREDICT_BYTES), anybody)[0] == Code.UNAUTHENTICATED
    over, never = threading.Event(), []
    address, own = f"127.0.0.1:{port_of(server)}", [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, own) as one, grpc.insecure_channel(address, own) as two:
        for each in [one] * 64 + [two]:  # each of which sends nothing
            slow = each.stream_unary(f"/{SERVICE}/ModelInfer")
            never.append(slow.future(iter(lambda: over.wait() and b"", 1), metadata=tuple(key(server).items())))
        other = (("authorization", f"Bearer {server.tokens['admin']}"),)
        assert call(server, channel, "ModelInfer", typed(), other).model_name == "texts"
        codes = {each.exception(PATIENCE).code() for each in never}
        assert codes == {Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
        assert "64 of yours are being read" in "".join(each.exception().details() for each in never)
        over.set()
    over.clear()
    late = channel.stream_unary(f"/{SERVICE}/ModelInfer")
    gone = late.future(iter(lambda: over.wait() and b"", 1), metadata=tuple(key(server).items()), timeout=0.3)
    assert (gone.exception(PATIENCE).code(), gone.exception().details()) == (
        Code.DEADLINE_EXCEEDED,
        "Deadline Exceeded",
    )
    over.set()
    assert call(server, channel, "ModelInfer", typed()).model_name == "texts"
    assert grown().rss - before < 200 << 20
    assert "Traceback" not in server.log.read_text()


@server_test
def test_under_a_certificate_it_answers_by_tls_alone_and_stops_when_it_is_told(home, tmp_path):
    private, pem = certificate(tmp_path)
    private.chmod(0o600)
    port, calls = free_port(), free_port()
    env, tls = environment(home, DPSERVE_DRAIN_SECONDS="3"), ("--tls-cert", pem, "--tls-key", private)
    with (tmp_path / "log").open("wb") as log:
        process = warm.Popen(command(port, calls, *tls), cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        until(lambda: f"gRPC on port {calls}" in (tmp_path / "log").read_text(), "it is ready")
        address = f"127.0.0.1:{calls}"
        with triton.InferenceServerClient(address, ssl=True, root_certificates=str(pem)) as client:
            assert client.is_server_ready()
            with triton.InferenceServerClient(address) as plain, pytest.raises(triton.InferenceServerException):
                plain.is_server_live(client_timeout=10)
            process.send_signal(signal.SIGTERM)
            until(lambda: not client.is_server_ready(), "it says not ready")
            assert client.is_server_live()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


@server_test
def test_no_call_fails_where_dpserve_serve_is_killed_and_started_again(home):
    over, codes = threading.Event(), []

    def ask():
        while not over.wait(0.02):
            own = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each call
            with grpc.insecure_channel(f"127.0.0.1:{port_of(first)}", own) as each:
                answer = call(first, each, "ModelInfer", typed())
            codes.append(answer if isinstance(answer, tuple) else Code.OK)

    def more():
        least = len(codes) + 20
        until(lambda: len(codes) > least, "calls go on")

    with started(home) as first:
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            more()
            old = first.processes("dpserve-grpc")
            first.process.kill()
            first.process.wait(PATIENCE)
            more()
            with first.log.open("ab") as log:
                again = command(first.port, port_of(first))
                second = warm.Popen(again, cwd=home.parent, env=environment(home), stdout=log, stderr=log)
            _, alive = psutil.wait_procs(old, timeout=PATIENCE)
            assert alive == [], first.log.read_text()
            more()
        finally:
            over.set()
            thread.join()
            second.send_signal(signal.SIGTERM)
        assert second.wait(PATIENCE) == 0
        assert set(codes) == {Code.OK}


def alone(code, home, *words):
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=PATIENCE)


def test_what_does_not_fit_is_refused_before_anything_starts(tmp_path):
    port = free_port()
    with pytest.raises(InputError, match=f"--grpc={port}: must be another port than --port"):
        check_listening(Listening("127.0.0.1", port, grpc=port))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        of_another = Listening("127.0.0.1", port, grpc=taken.getsockname()[1])
        with pytest.raises(InputError, match="cannot be listened on at .* take another --grpc"):
            check_listening(of_another)
    words = ["serve", "--port", str(port), "--grpc", str(free_port())]
    hidden = "import sys; sys.modules['grpc'] = None; from serving.cli.app import run; sys.exit(run(sys.argv[1:]))"
    done = alone(hidden, tmp_path / "home", *words)
    assert (done.returncode, "pip install grpcio (the extra 'grpc'" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "home").exists()
    assert dpserve(tmp_path / "home", "serve", "--grpc", "65536").returncode == 2


def test_a_server_without_it_loads_nothing_of_it(tmp_path):
    code = "import sys; from serving import launch; launch.load(); print('grpc' in sys.modules)"
    done = alone(code, tmp_path / "home")
    assert done.stdout == "False\n", done.stderr
