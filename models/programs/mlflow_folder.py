"""A released model as a folder that MLflow loads and serves: its `pyfunc` flavour, with the certificate as artifact.

MLflow is not needed to write it. Its loader reads the files of the bundle, so what answers is the signed graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version

import yaml

from models.parts.released import Released

ARTIFACTS = "dpserve"  # the folder of the bundle's files
NEEDS = ("numpy", "onnxruntime")
TYPES = {
    "numeric": "double",
    "boolean": "any",  # a `boolean` of MLflow takes what is missing for false
    "categorical": "string",
    "date": "datetime",
    "datetime": "datetime",
    "time": "string",
}
LOADER = '''\
"""Loads a model of dpserve for mlflow.pyfunc. It answers by model.onnx, whose sha256 is the certificate's."""

import json
from base64 import b64decode
from datetime import datetime, time
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnxruntime


def _load_pyfunc(path):
    return Model(Path(path))


class Model:
    """Answers frames: a column for each feature, missing where it is None or NaN."""

    def __init__(self, folder):
        graph = (folder / "model.onnx").read_bytes()
        statement = json.loads(b64decode(json.loads((folder / "model.onnx.dsse.json").read_text())["payload"]))
        if sha256(graph).hexdigest() != statement["subject"][0]["digest"]["sha256"]:
            raise ValueError("model.onnx: is not the model that its certificate speaks of")
        about = json.loads((folder / "ensemble.json").read_text("utf-8"))
        self.features, self.classes = about["features"], about.get("classes", [])
        self.session = onnxruntime.InferenceSession(graph)
        self.inputs = {each.name for each in self.session.get_inputs()}

    def predict(self, model_input, params=None):
        feed = {}
        for feature in self.features:
            name = feature["name"]
            cells = READERS.get(feature["type"], _numbers)(model_input[name])
            feed[name if name in self.inputs else "/input/" + name] = cells.reshape(-1, 1)
        if not self.classes:
            (values,) = self.session.run(["value"], feed)
            answer = {"value": values[:, 0]}
        else:
            labels, shares = self.session.run(["label", "probabilities"], feed)
            answer = {"label": labels, **{f"p_{each}": shares[:, at] for at, each in enumerate(self.classes)}}
        return type(model_input)(answer, index=model_input.index)


def _is_missing(cell):
    return cell is None or cell != cell or type(cell).__name__ in ("NAType", "NaTType")


def _numbers(column):
    return np.array([np.nan if _is_missing(cell) else float(cell) for cell in column], np.float64)


def _texts(column):
    return np.array(["" if _is_missing(cell) else cell for cell in column], object)


def _seconds(column):
    moments = column.to_numpy("datetime64[us]")
    return (moments - np.datetime64(0, "us")) / np.timedelta64(1, "s")


def _days(column):
    return np.floor(_seconds(column) / 86400)


def _times(column):
    cells = [None if _is_missing(cell) or cell == "" else time.fromisoformat(cell) for cell in column]
    start = datetime(1970, 1, 1)
    since = (np.nan if cell is None else (datetime.combine(start, cell) - start).total_seconds() for cell in cells)
    return np.array(list(since), np.float64)


READERS = {"categorical": _texts, "date": _days, "datetime": _seconds, "time": _times}
'''


def mlflow_files(ensemble: Released, bundle: Mapping[str, bytes], certificate: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of the folder, by their paths in it. `bundle`: the files of the model; `certificate`: texts that
    stand in the metadata, among them `sha256`, of the model.
    """
    columns = [{"name": each.name, "type": TYPES[each.kind], "required": False} for each in ensemble.features]
    about = {
        "flavors": {
            "python_function": {
                "loader_module": "dpserve_pyfunc",
                "code": "code",
                "data": ARTIFACTS,
                "env": {"virtualenv": "python_env.yaml"},
                "python_version": "3.11",
            }
        },
        "metadata": {"dpserve": dict(certificate)},
        "mlflow_version": "2.9.0",
        "model_uuid": certificate["sha256"][:32],
        "signature": {
            "inputs": json.dumps(columns),
            "outputs": json.dumps(_outputs(ensemble)),
            "params": None,
        },
    }
    needed = "".join(f"{name}=={version(name)}\n" for name in NEEDS)
    environment = {"python": "3.11", "dependencies": ["-r requirements.txt"]}
    return {
        "MLmodel": yaml.safe_dump(about, allow_unicode=True).encode(),
        "requirements.txt": f"mlflow\n{needed}".encode(),
        "python_env.yaml": yaml.safe_dump(environment).encode(),
        "code/dpserve_pyfunc.py": LOADER.encode(),
        **{f"{ARTIFACTS}/{name}": content for name, content in bundle.items()},
    }


def _outputs(ensemble: Released) -> list[dict[str, object]]:
    if not ensemble.classes:
        return [{"name": "value", "type": "double", "required": True}]
    label = "string" if isinstance(ensemble.classes[0], str) else "long"
    shares = [{"name": f"p_{each}", "type": "float", "required": True} for each in ensemble.classes]
    return [{"name": "label", "type": label, "required": True}, *shares]
