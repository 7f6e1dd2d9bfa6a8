"""A real server, asked by NVIDIA's own client in every form it has, and with tables; and versions that are moved."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import json
import shlex
import zlib

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from pages import ROOT, blocks
from pyarrow import ipc
from small_home import DATA, adult_home, dpserve, records, serving, until
from tritonclient.utils import InferenceServerException

from accountant.audit.audit import audit_home
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.server

COUNT = 40
PACKINGS = (None, "gzip", "deflate")
STREAM = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v2")
    home = adult_home(folder, 20)
    for _ in range(2):
        job.train(
            home,
            JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 10}, model="adult", promote=True),
            by="test",
        )
    with serving(home.path, workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def wanted(server):
    return server.predict("adult@2", COUNT).json()


def key(server, scope="predict"):
    return {"Authorization": f"Bearer {server.tokens[scope]}"}


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as found:
        yield found


def inputs(kind, binary, count=COUNT):
    """One tensor for each feature, as metadata says."""
    rows, found = records(count), []
    for name, value in rows[0].items():
        texts = isinstance(value, str)
        cells = np.array([[row[name]] for row in rows], object if texts else np.float64)
        tensor = kind(name, cells.shape, "BYTES" if texts else "FP64")
        tensor.set_data_from_numpy(cells, binary_data=binary)
        found.append(tensor)
    return found


def check(answer, wanted):
    labels = [each.decode() if isinstance(each, bytes) else each for each in answer.as_numpy("label")]
    assert labels == wanted["predictions"]
    assert answer.as_numpy("probabilities").dtype == np.float32
    np.testing.assert_allclose(answer.as_numpy("probabilities"), wanted["probabilities"], atol=1e-6)
    head = answer.get_response()
    assert (head["model_name"], head["model_version"]) == ("adult", "2")
    assert head["parameters"] == wanted["certificate"]


def test_health_and_metadata(server, client):
    headers = key(server)
    assert client.is_server_live()  # a kubelet has no token
    assert client.is_server_ready()
    assert server.ask("GET", "/v2", scope=None).status_code == 401
    assert client.get_server_metadata(headers=headers)["extensions"][0] == "binary_tensor_data"
    for model, version in (("adult", ""), ("adult", "1"), ("adult@champion", ""), ("adult@2", "")):
        assert client.is_model_ready(model, version, headers=headers)
    for model, version in (("nope", ""), ("adult", "3"), ("adult", "x"), ("adult@2", "2")):
        assert not client.is_model_ready(model, version, headers=headers)
    found = client.get_model_metadata("adult", headers=headers)
    assert (found["name"], found["versions"]) == ("adult", ["1", "2"])
    assert [each["name"] for each in found["inputs"]] == list(records(1)[0])
    assert {each["datatype"] for each in found["inputs"]} == {"FP64", "BYTES"}
    assert [(each["name"], each["datatype"], each["shape"]) for each in found["outputs"]] == [
        ("label", "BYTES", [-1]),
        ("probabilities", "FP32", [-1, 2]),
    ]
    lines = client.get_model_repository_index(headers=headers)
    assert [(line["name"], line["version"], line["state"]) for line in lines] == [
        ("adult", "1", "READY"),
        ("adult", "2", "READY"),
    ]


@pytest.mark.parametrize(
    ("binary_in", "binary_out", "asked", "answered"),
    list(itertools.product((True, False), (True, False), PACKINGS, PACKINGS)),
)
def test_infers_what_predict_does(server, client, wanted, binary_in, binary_out, asked, answered):
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("label", "probabilities")]
    found = client.infer(
        "adult",
        inputs(triton.InferInput, binary_in),
        outputs=outputs,
        request_id="seven",
        headers=key(server),
        request_compression_algorithm=asked,
        response_compression_algorithm=answered,
    )
    assert found.get_response()["id"] == "seven"
    check(found, wanted)


def test_infers_without_being_told_the_outputs_and_one_alone(server, client, wanted):
    check(client.infer("adult", inputs(triton.InferInput, True), "2", headers=key(server)), wanted)
    one = [triton.InferRequestedOutput("probabilities", binary_data=False)]
    found = client.infer("adult@2", inputs(triton.InferInput, True), outputs=one, headers=key(server))
    assert [each["name"] for each in found.get_response()["outputs"]] == ["probabilities"]


def as_mlserver_writes(count=COUNT):
    """A request as `PandasCodec.encode_request` of MLServer 1.7 writes a table, every field of its JSON."""
    tensors = []
    for name, value in records(1)[0].items():
        texts = isinstance(value, str)
        about = {"content_type": "str", "headers": None} if texts else None
        cells = [row[name] for row in records(count)]
        kind = "BYTES" if texts else "FP64"
        tensors.append({"name": name, "shape": [count, 1], "datatype": kind, "parameters": about, "data": cells})
    about = {"content_type": "pd", "headers": {"Ce-Id": "7"}, "trace": [1]}
    return {"id": None, "parameters": about, "inputs": tensors, "outputs": None}


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("adult@2", {}, 200),
        ("adult@2", {"model_name": "adult", "model_version": "2"}, 200),
        ("adult/versions/2", {"model_name": "adult", "model_version": ""}, 200),
        ("adult@2", {"outputs": [{"name": "label", "parameters": {"content_type": "str"}}]}, 200),
        ("adult@2", {"model_name": "other"}, 400),
        ("adult@2", {"model_version": "1"}, 400),
        ("adult@2", {"outputs": [{"name": "label", "parameters": {"classification": 2}}]}, 400),
        ("adult@2", {"parameters": {"sequence_id": 3}}, 400),
    ],
)
def test_requests_as_the_codecs_of_mlserver_write_them(server, wanted, path, more, status):
    answer = server.post(f"/v2/models/{path}/infer", {**as_mlserver_writes(), **more}, scope="predict")
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["outputs"][0]["data"] == wanted["predictions"]


def test_infers_for_the_asynchronous_client(server, wanted):
    async def ask():
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as found:
            return await found.infer("adult", inputs(triton_aio.InferInput, True), headers=key(server))

    check(asyncio.run(ask()), wanted)


def test_errors_are_the_protocols(server, client):
    def refused(model="adult", **more):
        with pytest.raises(InferenceServerException) as caught:
            client.infer(
                model, more.pop("sent", inputs(triton.InferInput, True, 1)), **{"headers": key(server), **more}
            )
        return caught.value.status(), str(caught.value)

    assert refused("nope") == ("404", "[404] model='nope': there is no such model")
    assert refused(headers={})[0] == "401"
    assert refused(headers=key(server, "audit"))[0] == "403"
    assert refused(sent=inputs(triton.InferInput, True, 1)[1:])[1].startswith("[422] age: is missing")
    assert refused(outputs=[triton.InferRequestedOutput("logits")])[0] == "400"
    assert refused(outputs=[triton.InferRequestedOutput("label", class_count=2)])[0] == "400"
    assert refused(sequence_id=3)[0] == "400"
    body = server.post("/v2/models/adult/infer", {"inputs": []}, scope="predict").json()
    assert set(body) == {"error", "code", "details"}
    assert (body["code"], body["details"]["field"]) == ("record_invalid", body["error"].partition(":")[0])


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"Inference-Header-Content-Length": "9" * 9}, b"{}", 400),
        ({"Inference-Header-Content-Length": "-1"}, b"{}", 400),
        ({"Inference-Header-Content-Length": "1"}, b"{}", 400),
        ({"Content-Encoding": "gzip"}, b"{}", 400),
        ({"Content-Encoding": "br"}, b"{}", 415),
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({}, b'{"inputs": [], "inputs": []}', 400),
        ({}, b'{"inputs": [], "parameters": {"binary_data_output": 1}}', 400),
        ({}, b'{"inputs": [], "priority": 1}', 400),
        ({}, b'{"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": [1e999]}]}', 400),
        ({}, b"[" * 100_000, 400),
    ],
)
def test_bad_requests(server, headers, content, status):
    given = {"Content-Type": "application/octet-stream", **headers}
    answer = server.ask("POST", "/v2/models/adult/infer", "predict", content=content, headers=given)
    assert (answer.status_code, isinstance(answer.json()["error"], str)) == (status, True)


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br", 415), ("identity", 400)])
def test_a_packed_body_is_refused_where_none_is_unpacked(server, encoding, status):
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = server.ask("POST", "/predict", "predict", content=zlib.compress(b"{}"), headers=headers)
    assert (answer.status_code, "Encoding" in answer.json()["error"]["message"]) == (status, status == 415)


def test_a_bomb_is_not_unpacked(server):
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush()
    answer = server.ask("POST", "/v2/models/adult/infer", content=bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413


# Tables


def rows(count=COUNT):
    return pq.read_table(DATA / "adult_test.parquet").slice(0, count).drop_columns(["income"])


def arrow(table):
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def send(server, content, kind, accept="*/*", model="adult"):
    headers = {"Content-Type": kind, "Accept": accept}
    return server.ask("POST", f"/predict?model={model}", "predict", content=content, headers=headers)


@pytest.mark.parametrize("kind", [STREAM, "application/octet-stream"])
def test_arrow_is_answered_with_arrow(server, wanted, kind):
    answer = send(server, arrow(rows()), kind)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, STREAM)
    assert answer.headers["Dpserve-Model"] == "adult@2"
    assert json.loads(answer.headers["Dpserve-Certificate"]) == wanted["certificate"]
    found = ipc.open_stream(answer.content).read_all()
    assert found.column_names == ["label", "p_<=50K", "p_>50K"]
    assert found["label"].to_pylist() == wanted["predictions"]
    table = np.stack([found["p_<=50K"], found["p_>50K"]], axis=1)
    np.testing.assert_allclose(table, wanted["probabilities"], atol=1e-6)
    assert json.loads(found.schema.metadata[b"dpserve.certificate"]) == wanted["certificate"]


def test_npy_is_answered_with_npy_and_both_with_json(server, wanted):
    table, sink = rows(), io.BytesIO()
    kinds = [
        (name, "<U40" if pa.types.is_string(table.schema.field(name).type) else "<f8") for name in table.column_names
    ]
    np.save(sink, np.array([tuple(row.values()) for row in table.to_pylist()], kinds))
    found = np.load(io.BytesIO(send(server, sink.getvalue(), "application/x-npy").content), allow_pickle=False)
    np.testing.assert_allclose(found, wanted["probabilities"], atol=1e-6)
    for content, kind in ((sink.getvalue(), "application/x-npy"), (arrow(table), STREAM)):
        answer = send(server, content, kind, "application/json")
        assert answer.json() == wanted


def test_tables_that_do_not_fit(server):
    def refused(content, kind=STREAM, **more):
        answer = send(server, content, kind, **more)
        return answer.status_code, answer.json()["error"]["details"]

    assert refused(arrow(rows().drop_columns(["age"]))) == (422, {"field": "age"})
    assert refused(b"no table")[0] == 400
    assert refused(arrow(rows()), "text/tab-separated-values")[0] == 415
    assert refused(arrow(rows()), model="nope")[0] == 404
    many = {
        name: pa.nulls(20_001, pa.string() if isinstance(cell, str) else pa.int64())
        for name, cell in records(1)[0].items()
    }
    assert refused(arrow(pa.table(many))) == (413, {"limit": 20_000})
    assert server.ask("POST", "/predict", content=arrow(rows()), headers={"Content-Type": STREAM}).status_code == 400
    assert server.post("/predict?model=adult", {"model": "adult", "records": []}).status_code == 400


def test_many_records_are_answered_off_the_loop(server, wanted):
    answer = send(server, arrow(pa.concat_tables([rows()] * 250)), STREAM)
    found = ipc.open_stream(answer.content).read_all()
    assert found["label"].to_pylist() == wanted["predictions"] * 250


# Which version answers


def settled(server, reference, status):
    until(lambda: server.predict(reference).status_code == status, f"{reference} is answered with {status}")


def test_the_champion_moves_and_the_ledger_says_who_did_it(server):
    assert server.predict().json()["model"] == "adult@2"
    body = {"version": 1, "reason": "better in review"}
    assert server.post("/v1/models/adult/champion", body, scope="train").status_code == 403
    answer = server.post("/v1/models/adult/champion", body)
    assert (answer.status_code, answer.json()["champion"]) == (200, 1)
    until(lambda: server.predict().json()["model"] == "adult@1", "the name means another version")
    assert server.predict("adult@2").json()["model"] == "adult@2"
    entry = server.home.ledger.log.entry(answer.json()["entry"]).value
    certificate = server.get("/v1/models/adult@1").json()["certificate"]
    assert entry | {"time": ""} == {
        **{"type": "model-promoted", "time": "", "name": "adult", "version": 1, "issued": certificate["entry"]},
        **{"reason": "better in review", "by": f"token:admin-{server.port}", "replaces": 2},
    }
    assert answer.json()["replaces"] == "adult@2"
    done = dpserve(server.path, "model", "promote", "adult@2", "--why", "back", "--json")
    assert json.loads(done.stdout)["champion"] == 2
    until(lambda: server.predict().json()["model"] == "adult@2", "and back")


def test_a_version_is_retired_and_restored(server):
    assert server.post("/v1/models/adult@1/retire", {"reason": "old"}).json()["retired"] == [1]
    settled(server, "adult@1", 404)
    settled(server, "adult", 200)
    assert "was retired" in server.predict("adult@1").json()["error"]["message"]
    states = {line["model"]: line["state"] for line in server.get("/v1/models").json()["models"]}
    assert states == {"adult@1": "retired", "adult@2": "champion"}
    assert server.post("/v1/models/adult/champion", {"version": 1, "reason": "x"}).status_code == 400
    assert server.post("/v1/models/adult@1/restore", {"reason": "needed"}).json()["retired"] == []
    settled(server, "adult@1", 200)
    assert audit_home(server.home).ok


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("adult/champion", {"version": 9, "reason": "x"}, 404),
        ("adult/champion", {"version": 0, "reason": "x"}, 400),
        ("adult/champion", {"version": True, "reason": "x"}, 400),
        ("adult/champion", {"version": 1, "reason": " "}, 400),
        ("adult/champion", {"version": 1, "reason": "x" * 1001}, 400),
        ("adult/promote", {"reason": "x"}, 400),
        ("adult/promote", {"version": 2}, 409),
        ("nope/champion", {"version": 1, "reason": "x"}, 404),
        ("adult@9/retire", {"reason": "x"}, 404),
        ("..%2f..%2fkeys/retire", {"reason": "x"}, 404),
        ("adult@1/retire", {}, 400),
    ],
)
def test_moves_that_are_refused_leave_no_entry(server, path, body, status):
    size = server.home.ledger.log.size()
    assert server.post(f"/v1/models/{path}", body).status_code == status
    assert server.home.ledger.log.size() == size


def test_a_changed_file_stops_its_model_in_every_form(server, client, wanted):
    path = server.path / "models" / "adult" / "2" / "model.onnx"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    settled(server, "adult@2", 503)
    assert not client.is_model_ready("adult@2", headers=key(server))
    assert send(server, arrow(rows()), STREAM).status_code == 503
    assert server.predict("adult@1").status_code == 200
    lines = {line["version"]: line for line in client.get_model_repository_index(headers=key(server))}
    assert (lines["1"]["state"], lines["2"]["state"]) == ("READY", "UNAVAILABLE")
    assert lines["2"]["reason"].startswith("certificate_invalid")
    path.write_bytes(good)
    settled(server, "adult@2", 200)
    assert server.predict("adult@2", COUNT).json() == wanted


def test_one_connection_takes_every_form_in_turn(server, wanted):
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=key(server)) as client:
        for _ in range(3):
            assert client.post("/predict", json={"model": "adult", "records": records(COUNT)}).json() == wanted
            headers = {"Content-Type": STREAM, "Accept": "application/json"}
            assert client.post("/predict?model=adult", content=arrow(rows()), headers=headers).json() == wanted
            assert client.get("/v2/models/adult/ready").json() == {"name": "adult", "ready": True}


# docs/reference/serving.md


def test_the_pages_python_does_what_it_says(server, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["predict"])
    names = {}
    for block in blocks("docs/reference/serving.md", "python"):
        exec(compile(block, "docs/reference/serving.md", "exec"), names)
    names["client"].close()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("adult@2 [")
    assert said[0].endswith(" 0.5")
    assert said.pop(1) == "[]"  # the notes of the first record
    assert said[1] == "adult@2 ['label', 'p_<=50K', 'p_>50K'] 1000"
    assert said[2] == "(1000, 2)"
    assert said[3].startswith("['label,p_<=50K,p_>50K'")
    assert said[4].endswith("(1000, 2)")


def test_the_pages_commands_do_what_they_say(server):
    said = []
    for line in "".join(blocks("docs/reference/serving.md", "sh", "Serving")).splitlines():
        done = dpserve(server.path, *shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.partition(";")[0])
    assert said == [
        "adult@1 is champion now, in place of adult@2",
        "adult@2 is champion now, in place of adult@1",
        "adult@1 is served no more",
        "adult@1 is served again",
    ]
    settled(server, "adult@1", 200)
    assert server.predict().json()["model"] == "adult@2"


# A column that goes with its predictions


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_kept_stands_first_as_it_is(server, wanted, kind):
    ids = [["007", "a,\n b", "=1+1", "NA", "é"][at % 5] for at in range(COUNT)]
    table = rows().append_column("id", pa.array(ids)).append_column("more", pa.array([[1.5]] * COUNT).flatten())
    sink = io.BytesIO()
    if kind == "csv":
        pa.csv.write_csv(table, sink)
    else:
        pq.write_table(table, sink)
    media = "text/csv" if kind == "csv" else "application/vnd.apache.parquet"
    headers = {"Content-Type": media, "Accept": "text/csv"}

    def ask(query, **more):
        return server.ask("POST", f"/predict?model=adult@2&{query}", "predict", content=sink.getvalue(),
                          headers={**headers, **more})  # fmt: skip

    answer = ask("keep=id")
    assert answer.status_code == 200, answer.text
    lines = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert list(lines[0]) == ["id", "label", "p_<=50K", "p_>50K"]
    assert [line["id"] for line in lines] == [f"'{text}" if text == "=1+1" else text for text in ids]
    assert [line["label"] for line in lines] == wanted["predictions"]
    noted = list(csv.DictReader(io.StringIO(ask("keep=id&notes=1").text, newline="")))
    assert [list(noted[0])[place] for place in (0, -1)] == ["id", "notes"]
    for refused in (ask("keep=nobody"), ask("keep=label"), ask("keep=id", Accept="application/json")):
        assert refused.status_code == 400, refused.text
    assert ask("keep=id", Accept=STREAM).status_code == 400
    assert ask("keep=id&keep=age").status_code == 400
