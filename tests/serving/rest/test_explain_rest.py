"""POST /explain: the same records as /predict, and what each feature adds, for every form of model that has that.

The doors in this process: the application behind the layer that the service puts before it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from additive_models import CLASSES, COLUMNS, NUMBER, RECORDS

from accountant.access.grants import Access, Grant
from accountant.errors import UnknownName
from dpserve_verify.errors import ModelInvalid
from models.features.table_format import USUAL_FORMAT
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote
from serving.app import make_app
from serving.http.routes import Doors
from serving.rest.models import PREDICT_BYTES

VOTES = (Vote("above", 0, 1, 3), Vote("is", 1, 0, -2), Vote("always", 0, 0, 1))
MANY = (Vote("above", 0, 1, 3, 0), Vote("is", 1, 0, 2, 1), Vote("is", 2, 1, 1, 2))
MODELS = {
    "classes": CLASSES,
    "number": NUMBER,
    "votes": VotingEnsemble(CLASSES.features, "income", (0, 1), VOTES, 0.25),
    "many": VotingEnsemble(CLASSES.features, "income", ("a", "b", "c"), MANY, 0.5),
    "trees": TreeEnsemble(CLASSES.features, "income", (0, 1), (Split("above", 0, 1, Leaf(1), Leaf(-1)),), 0, 1.0),
}
UNITS = {"classes": "log odds of >50K", "number": "price", "votes": "log odds of 1", "many": "logits"}


class Known:
    """A registry of the made models, answering as their exported form does."""

    def get(self, reference):
        name = reference.partition("@")[0]
        if name == "broken":
            raise ModelInvalid("model=broken: does not verify, so it is not served")
        if name not in MODELS:
            raise UnknownName(f"model={reference!r}: there is no such model")
        ensemble = MODELS[name]
        likely = ensemble.probabilities if ensemble.classes else lambda columns: None
        runtime = SimpleNamespace(infer=lambda columns: (ensemble.predict(columns), likely(columns)), texts={})
        verified = SimpleNamespace(ensemble=ensemble, runtime=runtime, format=USUAL_FORMAT)
        metrics = {"predictions": SimpleNamespace(inc=abs), "seconds": SimpleNamespace(observe=abs)}
        return SimpleNamespace(
            reference=f"{name}@1", verified=verified, fragment={"entry": 7}, count=lambda *_: None, **metrics
        )

    get_loaded = get


class Serving:
    home, stopping = None, False
    registry = Known()

    def token(self, found):
        return None

    def require_ready(self):
        """It always is."""


@pytest.fixture
def ask(monkeypatch):
    app = make_app()
    app.state.serving = Serving()
    doors = Doors(app, ours=app)

    async def known(scope):
        scopes = dict(scope["headers"]).get(b"authorization", b"").decode()
        scope["dpserve.token"] = SimpleNamespace(name="t", scopes=[scopes], limits=None)
        scope["dpserve.access"] = Access("token:t", (Grant("token:t", scopes),), lambda name: frozenset())

    monkeypatch.setattr(doors, "_authenticate", known)

    def post(body, scope="predict", path="/explain"):
        async def send():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=doors), base_url="http://test") as client:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                headers = {"Content-Type": "application/json", "Authorization": scope}
                return await client.post(path, content=content, headers=headers)

        return asyncio.run(send())

    return post


def failure(response):
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "details"}
    return response.status_code, body["error"]["code"]


@pytest.mark.parametrize("name", ["classes", "number", "votes", "many"])
def test_contributions_add_up_to_the_answer(ask, name):
    answer = ask({"model": name, "records": RECORDS}).json()
    ensemble = MODELS[name]
    assert answer["model"] == f"{name}@1"
    assert answer["certificate"] == {"entry": 7}
    assert answer["features"] == ["age", "work <b>", "owner", "idle"]
    assert answer["predictions"] == ensemble.predict(COLUMNS).tolist()
    total = np.array(answer["base"]) + np.sum(answer["contributions"], axis=1)
    if name == "number":
        assert "classes" not in answer
        np.testing.assert_allclose(np.clip(total, 100, 500), answer["predictions"], atol=1e-9)
    else:
        scores = ensemble.link * ensemble.scores(COLUMNS)
        np.testing.assert_allclose(total, scores if name == "many" else scores[:, 0], atol=1e-9)
    assert answer["unit"] == UNITS[name]


def test_no_records(ask):
    answer = ask({"model": "classes", "records": []}).json()
    assert (answer["contributions"], answer["predictions"]) == ([], [])


def test_trees_are_told_apart(ask):
    answer = ask({"model": "trees", "records": RECORDS})
    assert failure(answer) == (422, "not_additive")
    assert "importances" in answer.json()["error"]["message"]
    assert ask({"model": "trees", "records": RECORDS}, path="/predict").status_code == 200


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "bad_input")),
        (b"[]", (400, "bad_input")),
        (b'{"model": "classes", "records": [{"age": NaN}]}', (400, "bad_input")),
        ({"model": "classes"}, (400, "bad_input")),
        ({"model": "classes", "records": {}}, (400, "bad_input")),
        ({"model": "classes", "records": [], "more": 1}, (400, "bad_input")),
        ({"model": "nope", "records": []}, (404, "unknown_name")),
        ({"model": "broken", "records": []}, (503, "model_invalid")),
        ({"model": "classes", "records": [{**RECORDS[0], "age": "39 years"}]}, (422, "record_invalid")),
        ({"model": "classes", "records": [{**RECORDS[0], "shoe": 4}]}, (422, "record_invalid")),
        ({"model": "classes", "records": [[]]}, (422, "record_invalid")),
        ({"model": "classes", "records": [RECORDS[0]] * 20_001}, (413, "too_large")),
        (b" " * (PREDICT_BYTES + 1), (413, "too_large")),
    ],
)
def test_what_is_refused_is_refused_as_predict_does(ask, body, expected):
    explained, predicted = ask(body), ask(body, path="/predict")
    assert failure(explained) == failure(predicted) == expected
    assert explained.json() == predicted.json()


@pytest.mark.parametrize(("scope", "status"), [("predict", 200), ("train", 403), ("audit", 403)])
def test_scope(ask, scope, status):
    assert ask({"model": "classes", "records": RECORDS}, scope=scope).status_code == status
