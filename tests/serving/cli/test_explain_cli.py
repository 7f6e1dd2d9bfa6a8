"""`dpserve model explain` on additive models: shapes, one record, two models, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from additive_models import CLASSES, COLUMNS, NUMBER, RECORDS

from models.features.table_format import USUAL_FORMAT
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.trees import Leaf
from models.parts.votes import Vote
from serving.cli.app import run
from serving.cli.released import explain as cli_explain

MODELS = {
    "classes": CLASSES,
    "other": replace(CLASSES, constant=0, terms=((0, *CLASSES.terms[0][1:]), *CLASSES.terms[1:])),
    "number": NUMBER,
    "many": VotingEnsemble(CLASSES.features, "sort", ("a", "b", "c"), (Vote("is", 1, 0, 2, 1),), 0.5),
    "trees": TreeEnsemble(CLASSES.features, "income", (0, 1), (Leaf(1),), 0, 1.0),
}


@pytest.fixture
def explain(monkeypatch, capsys):
    def opened(name):
        claim = SimpleNamespace(line="the claim")
        verified = SimpleNamespace(ensemble=MODELS[name], certificate=claim, format=USUAL_FORMAT)
        return SimpleNamespace(reference=f"{name}@1", verified=verified)

    bundles = SimpleNamespace(open=opened)
    monkeypatch.setattr(cli_explain, "backend", lambda: SimpleNamespace(bundles=bundles))

    def asked(*arguments):
        code = run(["model", "explain", *map(str, arguments)])
        return code, capsys.readouterr().out

    return asked


@pytest.fixture
def rows(tmp_path):
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_shapes_as_json_are_finite(explain):
    body = json.loads(explain("classes", "--json")[1])
    assert body["unit"] == "log odds of >50K"
    assert [each["feature"] for each in body["shapes"]] == [each["feature"] for each in body["features"]]
    age = body["shapes"][0]["bins"]
    assert (age[0]["low"], age[0]["high"], age[3]["high"]) == (None, 18.0, None)
    assert age[1]["count"] == 20
    assert age[1]["error"] == pytest.approx(0.04)


@pytest.mark.parametrize("name", ["classes", "number", "many"])
@pytest.mark.parametrize("row", [0, 2])
def test_one_record_adds_up(explain, rows, name, row):
    body = json.loads(explain(name, "--data", rows, "--row", row, "--json")[1])
    ensemble = MODELS[name]
    record = {key: values[row : row + 1] for key, values in COLUMNS.items()}
    assert body["prediction"] == ensemble.predict(record).tolist()[0]
    totals = [base + sum(c["adds"][at] for c in body["contributions"]) for at, base in enumerate(body["base"])]
    if name == "number":
        assert min(max(totals[0], 100), 500) == pytest.approx(body["prediction"])
    else:
        assert totals == pytest.approx((ensemble.link * ensemble.scores(record)[0]).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_pictures(explain, rows, tmp_path, ending):
    for at, more in enumerate(([], ["--data", rows, "--row", 1], ["--compare", "other"])):
        out = tmp_path / f"out{at}.{ending}"
        assert explain("classes", *more, "--out", out)[0] == 0
        assert out.stat().st_size > 1000


def test_compared(explain):
    code, said = explain("classes", "--compare", "other")
    assert code == 0
    assert "age: up to 18" in said.splitlines()[2]
    body = json.loads(explain("classes", "--compare", "other", "--json")[1])
    assert body["models"] == ["classes@1", "other@1"]
    assert body["differences"][0]["value"] == "up to 18"


@pytest.mark.parametrize(
    "arguments",
    [
        ("classes", "--row", 0),
        ("classes", "--data", "{rows}"),
        ("classes", "--data", "{rows}", "--row", 3),
        ("classes", "--data", "{rows}", "--row", -1),
        ("classes", "--data", "{rows}", "--row", 0, "--compare", "other"),
        ("classes", "--compare", "number"),
        ("classes", "--compare", "trees"),
        ("trees", "--data", "{rows}", "--row", 0),
        ("classes", "--out", "x.pdf"),
    ],
)
def test_refused(explain, rows, arguments):
    assert explain(*(str(each).format(rows=rows) for each in arguments))[0] == 2
