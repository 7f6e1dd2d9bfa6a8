"""A model exported as MLflow's answers as its graph does, where MLflow loads it and where `mlflow models serve` does:
`make mlflow-test`. What catalogues read is
read by their own libraries there too.
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

from models.explain.croissant import croissant_of
from models.features.features import DateFeature, MomentFeature, TimeFeature
from models.forms.additive import AdditiveEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.programs.hub_card import hub_card
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
    write_folder(folder, mlflow_files(ensemble, bundle, {"sha256": sha256(graph).hexdigest(), "promise": "(1, 0)"}))
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


# Catalogues


COLUMNS = [
    {"name": "who", "role": "names the person", "type": "text"},
    {"name": "income", "role": "target", "type": "categorical", "values": [str(at) for at in range(60)]},
    {"name": 'age "x" /é', "role": "feature", "type": "numeric", "range": ["0", "100"]},
    *({"name": kind, "role": "feature", "type": kind} for kind in ("boolean", "date", "datetime", "time")),
]
READ = """
import json, sys
import mlcroissant
metadata = mlcroissant.Dataset(jsonld=sys.argv[1]).metadata
fields = {each.name: str(each.data_types[0]) for each in metadata.record_sets[0].fields}
print(json.dumps({"name": metadata.name, "fields": fields, "errors": list(metadata.ctx.issues.errors)}))
"""
READ_CARD = """
import json, sys
from huggingface_hub import ModelCard
print(json.dumps(ModelCard(open(sys.argv[1], encoding="utf-8").read()).data.to_dict()))
"""


def run_in(python, code, path):
    done = subprocess.run([python, "-W", "ignore", "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.mlflow
def test_mlcroissant_reads_the_dataset(python, tmp_path):
    body = croissant_of({"name": "adult", "unit": "record", "columns": COLUMNS})
    (tmp_path / "adult.json").write_text(json.dumps(body))
    found = run_in(python, READ, tmp_path / "adult.json")
    assert (found["name"], found["errors"]) == ("adult", [])
    schema = "https://schema.org/"
    kinds = ("Text", "Text", "Float", "Boolean", "Date", "DateTime", "Time")
    assert found["fields"] == {each["name"]: schema + kind for each, kind in zip(COLUMNS, kinds, strict=True)}


@pytest.mark.mlflow
@pytest.mark.parametrize("kind", ["two", "number"])
def test_hugging_face_reads_the_card(python, tmp_path, kind):
    about = {"sha256": "ab" * 32, "promise": "(1, 1e-5)-differential privacy: of\n--- one"}
    (tmp_path / "README.md").write_text(hub_card(KINDS[kind], "# A card\n", about), "utf-8")
    found = run_in(python, READ_CARD, tmp_path / "README.md")
    assert found["pipeline_tag"] == {"two": "tabular-classification", "number": "tabular-regression"}[kind]
    assert found["dpserve"] == about


def test_a_catalogue_is_told_the_schema_alone():
    """What else the dataset says of itself changes nothing: counts, digests, budgets, places."""
    more = {"records": 32561, "sha256": "ff" * 32, "path": "/data/rows.parquet", "budget": {"left": 1}}
    about = {"name": "adult", "unit": "record", "columns": COLUMNS}
    assert croissant_of(about | more) == croissant_of(about)
    (file,) = croissant_of(about)["distribution"]
    assert not {"sha256", "md5", "contentSize"} & file.keys()
