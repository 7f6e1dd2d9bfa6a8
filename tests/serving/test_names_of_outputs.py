"""Columns that are called as outputs of a model are: registered, trained on, evaluated, profiled, predicted, explained,
served, exported and verified like any other.
"""

from __future__ import annotations

import json
import math

import numpy as np
import onnxruntime
import pytest
from in_process import Site

from accountant.home import Home
from models.onnx.runtime import OnnxModel
from serving.cli.app import run
from serving.rest import explain, models, v2

NAMES = ("label", "value", "probabilities", "contributions", "prediction", "p_yes")
ROWS = 400


def write(folder, target, feature, text, numbers):
    """Rows and their schema. `numbers`: the target is one."""
    rng = np.random.default_rng(5)
    chance, flag, word = rng.random(ROWS), rng.random(ROWS) > 0.5, rng.choice(["u", "v", "w"], ROWS)
    score = chance + 0.2 * flag + 0.1 * (word == "u")
    answers = [f"{each:.4f}" if numbers else ("no", "yes")[int(each > 0.6)] for each in score]
    lines = [f"{a:.4f},{str(b).lower()},{c},{d}" for a, b, c, d in zip(chance, flag, word, answers, strict=True)]
    (folder / "rows.csv").write_text("\n".join([f"{feature},flag,{text},{target}", *lines]) + "\n")
    answer = "range: [0, 2]" if numbers else "classes: ['no', 'yes']"
    (folder / "schema.yaml").write_text(
        f"target: {{name: {target}, {answer}}}\nrecords: {ROWS}\nfeatures:\n"
        f"  {feature}: {{type: numeric, range: [0, 1]}}\n  flag: {{type: boolean}}\n"
        f"  {text}: {{type: categorical, values: [u, v]}}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "numbers"), [*((at, False) for at in range(len(NAMES))), (0, True), (1, True), (2, True)]
)
def test_each_name_at_every_door(tmp_path, monkeypatch, capsys, at, numbers):
    target, feature, text = (NAMES[(at + step) % len(NAMES)] for step in range(3))
    write(tmp_path, target, feature, text, numbers)
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def said(*words):
        assert run([*map(str, words), "--json"]) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    said("init")
    total = ("--epsilon", 20, "--delta", "0.00001", "--unit", "record", "--holdout", 0.3)
    said("dataset", "register", "d", "--data", "rows.csv", "--schema", "schema.yaml", *total)
    said("train", "d", "--learner", "ebm", "--epsilon", 2, "--model", "m")
    said("evaluate", "m", "--dataset", "d", "--epsilon", 1)
    profile = said("profile", "d", "--epsilon", 1)
    assert {target, feature, text} <= {each["name"] for each in profile["profile"]["columns"]}
    said("predict", "m", "--data", "rows.csv", "--out", "out.csv")
    columns = (tmp_path / "out.csv").read_text().splitlines()[0].replace('"', "").split(",")
    assert columns == (["value"] if numbers else ["label", "p_no", "p_yes"])
    shown = said("model", "explain", "m")
    assert json.dumps(feature) in json.dumps(shown)
    said("model", "export", "m", "--out", "m-files")
    assert said("verify", "m-files")["ok"] is True
    assert said("ledger", "audit")["ok"] is True

    # Elsewhere, by ONNX Runtime alone: an input has its feature's name, or stands apart where an output has it.
    raw = (tmp_path / "m-files" / "model.onnx").read_bytes()
    session = onnxruntime.InferenceSession(raw)
    outputs = {each.name for each in session.get_outputs()}
    apart = {name if name not in ("label", "value", "probabilities") else f"/input/{name}" for name in (feature, text)}
    assert apart <= {each.name for each in session.get_inputs()}
    assert not outputs & {each.name for each in session.get_inputs()}
    wanted, _ = OnnxModel(raw).predict({feature: [0.1, 0.9], "flag": [0.0, 1.0], text: ["u", ""]})

    served(tmp_path, feature, text, wanted.tolist(), numbers)


def served(folder, feature, text, wanted, numbers):
    site = Site(Home.open({"DPSERVE_HOME": str(folder / "home")}), (*models.DOORS, *explain.DOORS, *v2.DOORS))
    key = site.token("who", "predict", "train")
    records = [{feature: 0.1, "flag": False, text: "u"}, {feature: 0.9, "flag": True, text: None}]
    answer = site.bear(key, "POST", "/predict", json={"model": "m", "records": records})
    assert answer.status_code == 200, answer.text
    check(answer.json()["predictions"], wanted, numbers)
    explained = site.bear(key, "POST", "/explain", json={"model": "m", "records": records})
    assert explained.status_code == 200, explained.text
    described = site.bear(key, "GET", "/v2/models/m").json()
    assert [each["name"] for each in described["inputs"]] == [feature, "flag", text]
    tensors = [
        {"name": feature, "shape": [2, 1], "datatype": "FP64", "data": [0.1, 0.9]},
        {"name": "flag", "shape": [2, 1], "datatype": "FP64", "data": [0, 1]},
        {"name": text, "shape": [2, 1], "datatype": "BYTES", "data": ["u", ""]},
    ]
    found = site.bear(key, "POST", "/v2/models/m/infer", json={"inputs": tensors})
    assert found.status_code == 200, found.text
    check(found.json()["outputs"][0]["data"], wanted, numbers)


def check(found, wanted, numbers):
    if numbers:
        assert all(math.isclose(a, b[0] if isinstance(b, list) else b) for a, b in zip(found, wanted, strict=True))
    else:
        assert found == wanted
