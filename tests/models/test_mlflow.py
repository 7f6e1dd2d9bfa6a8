"""A model exported as MLflow's answers as its graph does, where MLflow loads it and where `mlflow models serve` does:
`make mlflow-test`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import yaml
from additive_models import BARE, FEATURES, NUMBER
from every_form import MODELS

from models.features.features import DateFeature, MomentFeature, TimeFeature
from models.forms.additive import AdditiveEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.programs.mlflow_folder import mlflow_files
from models.store.bundle import write_folder

DAYS = (DateFeature("day", (19723.0,)), MomentFeature("at", (1.7e9,)), TimeFeature("hour", (3600.0,)))
TERMS = (*BARE.terms, (1, 2, 30), (4, 500, 6), (7, -800, 9))
CALENDAR = AdditiveEnsemble((*FEATURES, *DAYS), "y", ("no", "yes"), None, 0.01, 1, TERMS)
KINDS = {"two": BARE, "number": NUMBER, "calendar": CALENDAR, **{k: MODELS[k] for k in ("classes", "names of outputs")}}
RECORDS = [
    {"age": 30.0, "work <b>": "Private", "owner": True, "idle": 0.0, "day": "2024-01-02", "at": "2024-01-02T03:04:05",
     "hour": "02:00:00", "label": 2.0, "value": "a"},
    {"age": None, "work <b>": None, "owner": None, "idle": None, "day": None, "at": None, "hour": None, "label": None,
     "value": None},
    {"age": 65.0, "work <b>": "日本", "owner": False, "idle": 1e300, "day": "1950-01-01", "at": "1950-01-01T00:00:00",
     "hour": "01:00:00", "label": 1.0, "value": "b"},
]  # fmt: skip
LOAD = """
import json, sys
import mlflow.pyfunc, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
frame = pandas.DataFrame(json.load(sys.stdin))
for name in ("day", "at"):
    if name in frame:
        frame[name] = pandas.to_datetime(frame[name], format="ISO8601")
print(json.dumps({"answers": model.predict(frame).to_dict("records"), "metadata": model.metadata.metadata}))
"""


@pytest.fixture(scope="module")
def python():
    path = os.environ.get("MLFLOW_PYTHON")
    if path is None:
        pytest.skip("MLFLOW_PYTHON is not set: make mlflow-test")
    return Path(path)


def exported(ensemble, folder):
    """The folder, with a statement that nobody signed: MLflow checks no signature, `dpserve verify` does."""
    graph = to_onnx(ensemble, {})
    statement = json.dumps({"subject": [{"digest": {"sha256": sha256(graph).hexdigest()}}]}).encode()
    envelope = json.dumps({"payload": b64encode(statement).decode()}).encode()
    numbers = json.dumps(ensemble.to_json()).encode()
    bundle = {"model.onnx": graph, "model.onnx.dsse.json": envelope, "ensemble.json": numbers}
    write_folder(folder, mlflow_files(ensemble, bundle, {"model": sha256(graph).hexdigest(), "promise": "(1, 0)"}))
    return graph


def wanted(ensemble, graph):
    columns = {}
    for feature in ensemble.features:
        cells = [record[feature.name] for record in RECORDS]
        if feature.kind == "categorical":
            columns[feature.name] = np.array([cell or "" for cell in cells], object)
        elif feature.kind in ("date", "datetime", "time"):
            columns[feature.name] = feature.numbers(cells)
        else:
            columns[feature.name] = np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    labels, shares = OnnxModel(graph).predict(columns)
    if not ensemble.classes:
        return [{"value": value} for value in labels.tolist()]
    names = [f"p_{each}" for each in ensemble.classes]
    rows = zip(labels.tolist(), shares.tolist(), strict=True)
    return [{"label": label, **dict(zip(names, row, strict=True))} for label, row in rows]


def asked(ensemble):
    return [{feature.name: record[feature.name] for feature in ensemble.features} for record in RECORDS]


@pytest.mark.mlflow
@pytest.mark.parametrize("kind", KINDS)
def test_mlflow_loads_it(python, tmp_path, kind):
    graph = exported(KINDS[kind], tmp_path / "model")
    command = [python, "-W", "ignore", "-c", LOAD, tmp_path / "model"]
    done = subprocess.run(command, input=json.dumps(asked(KINDS[kind])), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["metadata"]["dpserve"]["promise"] == "(1, 0)"
    same(found["answers"], wanted(KINDS[kind], graph))


@pytest.mark.mlflow
@pytest.mark.server
def test_mlflow_serves_it(python, tmp_path):
    graph = exported(CALENDAR, tmp_path / "model")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = f"models serve -m {tmp_path / 'model'} --env-manager local -p {port}"
    command = [python.with_name("mlflow"), *words.split()]
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        body = json.dumps({"dataframe_records": asked(CALENDAR)}).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, kind)
        found = patiently(request, server)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    same(found["predictions"], wanted(CALENDAR, graph))


def same(answers, right):
    for answer, wanted_one in zip(answers, right, strict=True):
        assert answer.pop("label", None) == wanted_one.pop("label", None)
        assert answer == pytest.approx(wanted_one, rel=1e-6)


def patiently(request, server):
    while server.poll() is None:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from error
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError("the server ended")


@pytest.mark.mlflow
def test_another_graph_is_not_loaded(python, tmp_path):
    exported(BARE, tmp_path / "model")
    graph = tmp_path / "model" / "dpserve" / "model.onnx"
    graph.write_bytes(to_onnx(BARE, {"other": "one"}))
    done = subprocess.run([python, "-c", LOAD, tmp_path / "model"], input="[]", capture_output=True, text=True)
    assert done.returncode != 0
    assert "is not the model that its certificate speaks of" in done.stderr


def test_signature_says_what_the_model_reads_and_answers(tmp_path):
    graph = exported(CALENDAR, tmp_path / "model")
    about = yaml.safe_load((tmp_path / "model" / "MLmodel").read_text())
    inputs = {each["name"]: each["type"] for each in json.loads(about["signature"]["inputs"])}
    assert inputs == {
        **{"age": "double", "work <b>": "string", "owner": "any", "idle": "double"},
        **{"day": "datetime", "at": "datetime", "hour": "string"},
    }
    outputs = {each["name"]: each["type"] for each in json.loads(about["signature"]["outputs"])}
    assert outputs == {"label": "string", "p_no": "float", "p_yes": "float"}
    assert (tmp_path / "model" / "dpserve" / "model.onnx").read_bytes() == graph
