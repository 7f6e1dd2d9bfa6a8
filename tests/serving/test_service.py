"""The REST service over the loopback interface: two workers and a training process, as `dpserve serve` starts them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import bentoml
import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_home import (
    ROOT,
    SCOPES,
    adult_home,
    client,
    environment,
    free_port,
    of_every_worker,
    records,
    running,
    serving,
    until,
    write_files,
)
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.routing import Route

from accountant import errors
from accountant.access import tokens
from accountant.home import Home
from accountant.log.last_seen import HighWater
from accountant.store.migrations import HEAD
from accountant.store.store import Store
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, KeyInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import decode_base64
from dpserve_verify.log.notes import verify_checkpoint
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import load_verified
from serving.app import DOORS
from serving.http.routes import Doors
from serving.process.tokens import new_token
from serving.process.watch.trail_lines import lines
from serving.wire.errors import error_response
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.server

JOB = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 5}, "model": "tested"}
SET = b'{"dataset": "adult", "learner": "lazybb", "epsilon": 1, "parameters": {"rounds": %b}}'
BIG = b'{"model": "' + b"a" * (17 << 20) + b'"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    home = adult_home(folder, 20)
    for model in ("adult", "spare"):
        job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 10}, model=model), by="test")
    with serving(home.path) as found:
        yield found


def code(response):
    """The code, once the answer is seen to have the one shape."""
    body = response.json()
    if response.request.url.path.startswith("/v2"):  # the open inference protocol's: the message is the error
        assert set(body) == {"error", "code", "details"}
        body = {"error": {"code": body["code"], "message": body["error"], "details": body["details"]}}
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "details"}
    assert isinstance(body["error"]["message"], str)
    assert isinstance(body["error"]["details"], dict)
    return response.status_code, body["error"]["code"]


def metric(server, name, **labels):
    text = server.get("/metrics", scope="audit").text
    found = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(s.value for s in found if s.name == name and labels.items() <= s.labels.items())


def test_predicts_as_the_released_ensemble_does(server):
    rows = records(200)
    answer = server.post("/predict", {"model": "adult", "records": rows}, scope="predict").json()
    found = load_verified(server.path / "models" / "adult" / "1", server.home.trust)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert answer["model"] == "adult@1"
    assert answer["classes"] == ["<=50K", ">50K"]
    assert answer["predictions"] == found.ensemble.predict(columns).tolist()
    assert abs(found.ensemble.probabilities(columns) - answer["probabilities"]).max() < 1e-6
    assert answer["certificate"]["entry"] == found.certificate.issued
    assert Decimal(answer["certificate"]["epsilon"]) == found.certificate.epsilon


def test_the_first_address_tells_a_program_and_leads_a_browser(server):
    assert server.get("/").json() == {"service": "dpserve", "documentation": "/docs.json"}
    answer = server.get("/", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")


def test_null_and_unknown_category_are_answered(server):
    (row,) = records(1)
    rows = [dict.fromkeys(row), {**row, "workclass": "Astronaut"}]
    answer = server.post("/predict", {"model": "adult", "records": rows})
    assert answer.status_code == 200
    assert len(answer.json()["predictions"]) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"age": "39 years"}, (422, "record_invalid")),
        ({"age": True}, (422, "record_invalid")),
        ({"age": 1e999}, (400, "bad_input")),
        ({"workclass": 3}, (422, "record_invalid")),
        ({"shoe_size": 43}, (422, "record_invalid")),
        ({"age": {"$gt": 1}}, (422, "record_invalid")),
    ],
)
def test_record_that_does_not_fit(server, change, expected):
    rows = [*records(2), {**records(1)[0], **change}]
    content = json.dumps({"model": "adult", "records": rows})
    answer = server.ask("POST", "/predict", content=content, headers={"Content-Type": "application/json"})
    assert code(answer) == expected
    if expected[0] == 422:
        assert answer.json()["error"]["details"] == {"record": 2, "field": next(iter(change))}


def test_record_that_is_no_record(server):
    assert code(server.post("/predict", {"model": "adult", "records": [[1, 2]]})) == (422, "record_invalid")
    missing = records(1)
    del missing[0]["age"]
    assert code(server.post("/predict", {"model": "adult", "records": missing})) == (422, "record_invalid")


@pytest.mark.parametrize(
    ("method", "path", "content", "expected"),
    [
        ("POST", "/predict", b"", (400, "bad_input")),
        ("POST", "/predict", b"[]", (400, "bad_input")),
        ("POST", "/predict", b"{", (400, "bad_input")),
        ("POST", "/predict", b'{"model": "adult", "records": [{"age": NaN}]}', (400, "bad_input")),
        ("POST", "/predict", b'{"model": "adult"}', (400, "bad_input")),
        ("POST", "/predict", b'{"model": "adult", "records": {}}', (400, "bad_input")),
        ("POST", "/predict", b'{"model": "adult", "records": [], "more": 1}', (400, "bad_input")),
        ("POST", "/predict", b'{"model": 7, "records": []}', (400, "bad_input")),
        ("POST", "/predict", b'{"model": "nope", "records": []}', (404, "unknown_name")),
        ("POST", "/predict", b'{"model": "adult@9", "records": []}', (404, "unknown_name")),
        ("POST", "/predict", b'{"model": "../adult", "records": []}', (404, "unknown_name")),
        ("POST", "/predict", b"[" * 100_000, (400, "bad_input")),
        ("POST", "/predict", b"\xff\xfe", (400, "bad_input")),
        ("POST", "/predict", BIG, (413, "too_large")),
        ("POST", "/predict", b'{"model": "adult", "records": [' + b"{}," * 20_000 + b"{}]}", (413, "too_large")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "dataset": "adult"}', (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": NaN}', (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": true}', (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": 0}', (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": "x"}', (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": 1e400}', (400, "bad_input")),
        (
            "POST",
            "/v1/jobs",
            b'{"dataset": "adult", "learner": "lazybb", "epsilon": 1, "delta": 0.5}',
            (400, "bad_input"),
        ),
        ("POST", "/v1/jobs", b'{"dataset": "nope", "learner": "lazybb", "epsilon": 1}', (404, "unknown_name")),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "nope", "epsilon": 1}', (404, "unknown_name")),
        (
            "POST",
            "/v1/jobs",
            b'{"dataset": "adult", "learner": "lazybb", "epsilon": 1, "model": "../x"}',
            (400, "bad_input"),
        ),
        ("POST", "/v1/jobs", b'{"dataset": "adult", "learner": "lazybb", "epsilon": 1, "seed": 1}', (400, "bad_input")),
        *(
            ("POST", "/v1/plans", SET % value, (400, "bad_input"))
            for value in (b"1e99999999", b'"1e99999999"', b"[]", b"{}", b'"many"', b"0.5", b"1e9", b"true", b"9" * 50)
        ),
        ("POST", "/v1/jobs", b'{"a": ' * 1_000, (400, "bad_input")),
        ("POST", "/v1/jobs", b'{"a": ' * 100_000, (413, "too_large")),  # of more objects than a body may have
        ("POST", "/v1/jobs", b"[" + b"1" * 100_000 + b"]", (400, "bad_input")),
        ("POST", "/v1/jobs", b" " * ((1 << 20) + 1), (413, "too_large")),
        ("POST", "/v1/plans", b'{"dataset": "adult", "learner": "lazybb", "epsilon": 50}', (403, "budget_refused")),
        ("GET", "/v1/jobs/999", b"", (404, "unknown_name")),
        ("GET", "/v1/jobs/0", b"", (404, "unknown_name")),
        ("GET", "/v1/jobs/-1", b"", (404, "unknown_name")),
        ("GET", "/v1/jobs/1e3", b"", (404, "unknown_name")),
        ("GET", "/v1/jobs/99999999999999999999", b"", (404, "unknown_name")),
        ("DELETE", "/v1/jobs/999", b"", (404, "unknown_name")),
        ("GET", "/v1/datasets/nope", b"", (404, "unknown_name")),
        ("GET", "/v1/models/nope", b"", (404, "unknown_name")),
        ("GET", "/v1/models/nope/certificate", b"", (404, "unknown_name")),
        ("GET", "/v1/models/..%2f..%2fkeys", b"", (404, "not_found")),
        ("GET", "/v1/ledger?after=x", b"", (400, "bad_input")),
        ("GET", "/v1/ledger?after=-1", b"", (400, "bad_input")),
        ("GET", "/v1/ledger?before=1", b"", (400, "bad_input")),
        ("GET", "/v1/ledger/proof", b"", (400, "bad_input")),
        ("GET", "/v1/ledger/proof?leaf=3&size=2", b"", (400, "bad_input")),
        ("GET", "/v1/ledger/proof?leaf=0&size=99999999", b"", (400, "bad_input")),
        ("GET", "/v1/ledger/consistency", b"", (400, "bad_input")),
        ("GET", "/v1/ledger/consistency?from=3&to=2", b"", (400, "bad_input")),
        ("GET", "/nope", b"", (404, "not_found")),
        ("GET", "/static_content/main.js", b"", (404, "not_found")),
        ("GET", "/predict", b"", (405, "method_not_allowed")),
        ("PUT", "/v1/jobs", b"", (405, "method_not_allowed")),
    ],
)
def test_bad_input(server, method, path, content, expected):
    size = server.home.ledger.log.size()
    answer = server.ask_again(method, path, content=content, headers={"Content-Type": "application/json"})
    assert code(answer) == expected
    assert server.home.ledger.log.size() == size


def test_other_content_types_are_refused(server):
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/vnd.bentoml+pickle",
        "application/xml",
    ):
        answer = server.ask("POST", "/predict", content=b"x", headers={"Content-Type": kind})
        assert code(answer) == (415, "unsupported_media_type")


def test_body_that_does_not_come_is_given_up(server):
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.tokens['predict']}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as slow:
        slow.sendall(head.encode() + b'Content-Length: 99\r\n\r\n{"model": ')
        assert server.predict().status_code == 200  # nobody else waits
        assert slow.recv(1000).startswith((b"HTTP/1.1 408", b"HTTP/1.1 503"))  # the latter of a busy machine


# Who may


@pytest.mark.parametrize("door", DOORS, ids=lambda door: f"{door.method} {door.path}")
def test_every_door_has_its_scopes(server, door):
    path = door.path.replace("{job}", "999").replace("{name}", "nope")
    if not door.scopes:
        assert server.ask(door.method, path, scope=None).status_code in (
            (200,) if path == door.path else (400, 404, 415)
        )
        return
    assert code(server.ask(door.method, path, scope=None)) == (401, "unauthorized")
    for scope in SCOPES:
        answer = server.ask(door.method, path, scope=scope)
        refused = answer.status_code == 403 and code(answer)[1] == "forbidden"
        assert refused is (scope not in (*door.scopes, "admin"))


@pytest.mark.parametrize("path", ["/docs.json", "/schema.json", "/", "/nope", "/healthz", "/ui"])
def test_everything_else_needs_a_token_too(server, path):
    assert code(server.get(path, scope=None)) == (401, "unauthorized")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer dps_",
        "Bearer dps_" + "a" * 43,
        "Basic dps_x",
        "Bearer é",
        "Bearer " + "x" * 9000,
    ],
)
def test_malformed_tokens(server, header):
    answer = server.get("/v1/models", scope=None, headers={"Authorization": header.encode()})
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_new_token_opens_and_revoked_token_closes_in_every_worker(server):
    server.tokens["new"], _ = new_token(server.home, "passing", ["audit"])
    of_every_worker(lambda: server.get("/v1/models", scope="new").status_code == 200, "the token is known")
    tokens.revoke(server.home.ledger, "passing")
    of_every_worker(lambda: server.get("/v1/models", scope="new").status_code == 401, "it is known no more")


# Jobs


def finished(server, seq):
    def look():
        body = server.get(f"/v1/jobs/{seq}").json()
        return body if body["state"] in ("issued", "burned", "released") else None

    return until(look, f"job {seq} comes to its end")


def versioned(server, seq):
    """The job, once its version is among the models."""
    found = server.get(f"/v1/jobs/{seq}").json()
    return found if found["version"] else None


def test_job_from_submission_to_prediction(server):
    before = metric(server, "dpserve_jobs_total", dataset="adult", learner="lazybb", state="issued")
    answer = server.post("/v1/jobs", {**JOB, "model": "fresh"}, scope="train")
    assert answer.status_code == 202
    seq = answer.json()["job"]
    assert answer.headers["Location"] == f"/v1/jobs/{seq}"
    entry = server.home.ledger.reservation(seq).value
    assert entry["by"] == f"token:train-{server.port}"
    done = finished(server, seq)
    assert (done["state"], done["error"], done["progress"]) == (
        "issued",
        None,
        {"done": done["rounds"], "total": done["rounds"]},
    )
    of_every_worker(lambda: server.predict("fresh").status_code == 200, "every worker serves the model")
    assert server.predict("fresh@1").json()["certificate"]["entry"] == done["certificate"]["entry"]
    assert metric(server, "dpserve_jobs_total", dataset="adult", learner="lazybb", state="issued") == before + 1


def test_number_and_text_are_the_same_epsilon(server):
    one, two = (server.post("/v1/plans", {**JOB, "epsilon": epsilon}).json() for epsilon in (0.1, "0.1"))
    assert one == two
    assert Decimal(one["epsilon"]) <= Decimal("0.1")


def test_trail_names_what_was_asked_for_where_there_is_such_a_thing(server):
    rows = records(1)
    asks = [
        ("/predict", {"model": "adult", "records": rows}, "adult@1"),
        ("/predict", {"model": "adult@champion", "records": [{**rows[0], "age": "old"}]}, "adult@1"),
        ("/explain", {"model": "adult", "records": rows}, "adult@1"),
        ("/predict", {"model": "nope", "records": rows}, None),
        ("/v1/plans", {**JOB, "model": "asked"}, "adult"),  # a name that is nobody's yet, in whatever order tests run
        ("/v1/plans", {**JOB, "model": "asked", "epsilon": 50}, "adult"),
        ("/v1/plans", {**JOB, "model": "asked", "dataset": "nope"}, None),
    ]
    server.tokens["asker"], _ = new_token(server.home, "asker", ["predict", "train"])
    of_every_worker(lambda: server.get("/nope", scope="asker").status_code == 404, "the token is known")
    for path, body, _ in asks:
        server.post(path, body, scope="asker")
    found = [line for line in lines(server.path) if line["token"] == "asker"][: len(asks)][::-1]
    assert [(line["route"], line["about"]) for line in found] == [(path, about) for path, _, about in asks], found


def test_plan_spends_nothing(server):
    size, left = server.home.ledger.log.size(), server.get("/v1/datasets/adult").json()["budget"]
    plan = server.ask_again("POST", "/v1/plans", json={**JOB, "model": "planned"}, scope="train").json()
    assert {"dataset", "learner", "epsilon", "delta", "rounds", "left", "model", "certificate"} <= plan.keys()
    assert (plan["becomes"], plan["replaces"]) == ("champion", None)
    by_rule = {"dataset": "adult", "epsilon": "0.1", "model": "planned"}
    left_to_a_rule = server.ask_again("POST", "/v1/plans", json=by_rule, scope="train").json()
    assert left_to_a_rule["chosen_by_auto"].endswith(left_to_a_rule["learner"])
    assert server.home.ledger.log.size() == size
    assert server.get("/v1/datasets/adult").json()["budget"] == left


def test_a_second_token_with_train_takes_no_name_and_replaces_no_champion(server):
    """Done on a running server before: whoever could train could replace what production answers with."""
    answering = server.predict("adult").json()
    size, budget = server.home.ledger.log.size(), server.get("/v1/datasets/adult").json()["budget"]
    for more in ({}, {"promote": True}):
        for path in ("/v1/jobs", "/v1/plans"):
            refused = server.post(path, {**JOB, "model": "adult", **more}, scope="train")
            assert code(refused) == (403, "forbidden")
            details = refused.json()["error"]["details"]
            assert (details["needs"], details["on"]) == (["promote"], {"model": "adult"})
            assert (details["differs"], details["would_fit"]) == (["principal"], {"model": "adult-2"})
    assert server.home.ledger.log.size() == size
    assert server.get("/v1/datasets/adult").json()["budget"] == budget

    name = f"stolen-{size}"  # another where the test is repeated
    own = {**JOB, "model": name}  # and a further version of a name of their own is a candidate
    seqs = [finished(server, server.post("/v1/jobs", own, scope="train").json()["job"])["job"] for _ in range(2)]
    jobs = [until(lambda seq=seq: versioned(server, seq), "it is among the models") for seq in seqs]
    assert [(job["version"], job["version_state"]) for job in jobs] == [(1, "champion"), (2, "candidate")]
    until(lambda: server.predict(f"{name}@2").status_code == 200, "who names a candidate is answered")
    assert server.predict(name).json()["model"] == f"{name}@1"
    assert code(server.post("/v1/jobs", {**own, "promote": True}, scope="train")) == (403, "forbidden")
    assert server.post(f"/v1/models/{name}/promote", {"version": 2}, scope="train").status_code == 403
    done = server.post(f"/v1/models/{name}/promote", {"version": 2}).json()
    assert (done["replaces"], done["serves"]) == (f"{name}@1", f"{name}@2")
    until(lambda: server.predict(name).json()["model"] == f"{name}@2", "it is promoted on purpose")
    assert server.predict("adult").json() == answering


def test_idempotency_key(server):
    body = {**JOB, "idempotency_key": "once"}
    first = server.post("/v1/jobs", body).json()
    again = server.post("/v1/jobs", body)
    assert (again.status_code, again.json()["job"]) == (202, first["job"])
    assert code(server.post("/v1/jobs", {**body, "epsilon": "0.2"})) == (409, "idempotency_conflict")
    assert finished(server, first["job"])["state"] == "issued"


def test_refusal_says_what_was_asked_and_what_would_fit(server):
    size, before = server.home.ledger.log.size(), metric(server, "dpserve_refusals_total", dataset="adult")
    answer = server.post("/v1/jobs", {**JOB, "epsilon": 50})
    assert code(answer) == (403, "budget_refused")
    details = answer.json()["error"]["details"]
    assert {"asked", "spent", "left", "would_fit"} <= details.keys()
    assert details["asked"]["epsilon"] == "50"
    fits = details["would_fit"]["epsilon"]
    assert server.ask_again("POST", "/v1/plans", json={**JOB, "epsilon": fits}).status_code == 200
    assert server.home.ledger.log.size() == size
    assert metric(server, "dpserve_refusals_total", dataset="adult") == before + 1


def test_cancel_before_the_start_and_never_after(server):
    left = server.get("/v1/datasets/adult").json()["budget"]["left"]
    asked = JobRequest("adult", "lazybb", "1", parameters={"rounds": 5}, model="cancelled")
    held = job.submit(server.home, asked, by=f"token:train-{server.port}", queued=False)
    assert server.get("/v1/datasets/adult").json()["budget"]["left"] != left
    answer = server.ask("DELETE", f"/v1/jobs/{held.seq}", scope="train")
    assert (answer.status_code, answer.json()["state"]) == (200, "released")
    assert server.get("/v1/datasets/adult").json()["budget"]["left"] == left
    assert code(server.ask("DELETE", f"/v1/jobs/{held.seq}")) == (409, "wrong_state")
    issued = next(each.seq for each in server.home.ledger.jobs() if each.issued is not None)
    assert code(server.ask("DELETE", f"/v1/jobs/{issued}")) == (409, "wrong_state")


def test_killed_training_process_is_replaced_and_the_queue_goes_on(server):
    (worker,) = server.processes("dpserve-train")
    worker.kill()
    seq = server.post("/v1/jobs", JOB).json()["job"]
    assert finished(server, seq)["state"] == "issued"


def test_killed_serving_worker_is_replaced(server):
    """The killed one is gone and another in its place, which has verified the models: it is about to answer."""
    before = {worker.pid for worker in server.processes("dpserve-serving")}
    assert len(before) == 2
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    (fresh,) = until(lambda: replaced(server, before, killed), "there are two workers again, one of them another")
    until(lambda: f"dpserve.registry[{fresh}]: model" in server.log.read_text(), "the new one knows the models")
    until(server.ready, "the server answers")


def test_who_does_not_serve_does_not_hold_the_port(server):
    """It may finish a job when all others are gone, and another server is to start meanwhile."""
    held = {
        name: [
            {each.laddr.port for each in one.net_connections() if each.status == "LISTEN"}
            for one in server.processes(name)
        ]
        for name in ("dpserve-serving", "dpserve-train", "dpserve-prices")
    }
    assert held == {"dpserve-serving": [{server.port}] * 2, "dpserve-train": [set()], "dpserve-prices": [set()]}


def replaced(server, before, killed):
    """The workers that were not there before, once there are as many as before without the killed one."""
    now = {worker.pid for worker in server.processes("dpserve-serving")}
    return now - before if killed not in now and len(now) == len(before) else set()


# The ledger, as an auditor reads it over the wire


def test_ledger_hashes_to_its_checkpoint(server):
    def tree():
        size, bodies = 1, []
        while len(bodies) < size:
            page = server.get(f"/v1/ledger?after={len(bodies)}", scope="audit").json()
            bodies += [entry["body"].encode() for entry in page["entries"]]
            size = page["size"]
        return bodies

    trust = server.home.trust
    checkpoint = verify_checkpoint(server.get("/v1/ledger/checkpoint", scope="audit").text, trust.origin, trust.log_key)
    bodies = tree()[: checkpoint.size]
    store: dict[tuple[int, int], bytes] = {}
    for index, body in enumerate(bodies):
        for level, place, digest in merkle.new_nodes(index, merkle.leaf_hash(body), lambda a, b: store[a, b]):
            store[level, place] = digest
    assert merkle.root(checkpoint.size, lambda a, b: store[a, b]) == checkpoint.root
    proof = server.get(f"/v1/ledger/proof?leaf=1&size={checkpoint.size}", scope="audit").json()
    path = [decode_base64(each) for each in proof["hashes"]]
    merkle.verify_inclusion(1, checkpoint.size, merkle.leaf_hash(bodies[1]), path, checkpoint.root)
    grown = server.get(f"/v1/ledger/consistency?from=2&to={checkpoint.size}", scope="audit").json()
    path, earlier = [decode_base64(each) for each in grown["hashes"]], merkle.root(2, lambda a, b: store[a, b])
    merkle.verify_consistency(2, checkpoint.size, path, earlier, checkpoint.root)


def test_certificate_over_the_wire_verifies(server):
    answer = server.get("/v1/models/adult@1/certificate", scope="predict")
    onnx = (server.path / "models" / "adult" / "1" / "model.onnx").read_bytes()
    envelope = answer.content[answer.content.index(b'"envelope":') + 11 : answer.content.index(b',"proof":')]
    found = verify(envelope, answer.json()["proof"], onnx, server.home.trust)
    assert found.statement == answer.json()["statement"]


def test_dataset_and_models(server):
    (dataset,) = server.get("/v1/datasets", scope="audit").json()["datasets"]
    shown = server.get("/v1/datasets/adult", scope="train").json()
    assert dataset == {name: shown[name] for name in dataset}
    assert shown.keys() - dataset.keys() == {"quotas", "forecast", "archived", "charges", "columns"}
    assert {"total", "reserved", "spent", "left", "jobs_left"} <= dataset["budget"].keys()
    assert dataset["budget"]["jobs_left"].keys() == {"lazybb", "lazybb-tree", "ebm", "bdpe", "forest"}
    assert "records" not in dataset  # private under add-remove
    lines = server.get("/v1/models", scope="predict").json()["models"]
    assert [line["model"] for line in lines if line["name"] == "spare"] == ["spare@1"]
    assert [feature["name"] for feature in server.get("/v1/models/spare").json()["features"]] == list(records(1)[0])


# What is changed while it is served


def test_tampered_model_is_refused_and_the_others_go_on(server):
    before = metric(server, "dpserve_certificate_failures_total", reason="certificate_invalid")
    path = server.path / "models" / "spare" / "1" / "model.onnx"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    of_every_worker(lambda: server.predict("spare").status_code == 503, "no worker serves it")
    assert code(server.predict("spare")) == (503, "model_invalid")
    assert server.predict("adult").status_code == 200
    assert server.get("/readyz", scope=None).status_code == 200
    assert metric(server, "dpserve_certificate_failures_total", reason="certificate_invalid") > before

    def listed():
        (line,) = [line for line in server.get("/v1/models").json()["models"] if line["name"] == "spare"]
        return line["state"], line["verified"]

    # the other worker may answer, which still has it, or is at it just now (None)
    of_every_worker(lambda: listed() == ("champion", False), "every worker lists it as unsound")
    path.write_bytes(good)
    of_every_worker(lambda: server.predict("spare").status_code == 200, "every worker serves it again")


def test_ledger_behind_its_mark_stops_everything_but_life(server):
    mark = server.path / "keys" / "high-water.json"
    good = mark.read_bytes()
    size, root = HighWater(mark).read()
    try:
        HighWater(mark).advance(size + 5, root)
        of_every_worker(lambda: server.get("/readyz", scope=None).status_code == 503, "it is not ready")
        assert code(server.predict()) == (503, "not_ready")
        assert code(server.post("/v1/jobs", JOB)) == (503, "not_ready")
        assert server.get("/livez", scope=None).status_code == 200
    finally:
        mark.write_bytes(good)
    of_every_worker(server.ready, "it is ready again")


def test_a_door_that_is_behind_predicts_and_writes_nothing(server):
    """A newer version brought the tables to a revision of its own while this one serves."""
    database = Store(f"sqlite:///{server.path / 'ledger.db'}")

    def say(revision: str) -> None:
        with database.writing() as connection:
            connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))

    say("9999")
    try:
        of_every_worker(lambda: server.get("/readyz", scope=None).status_code == 503, "it is not ready")
        why = server.get("/readyz", scope=None).json()["error"]["message"]
        assert why == f"not ready; its tables are of revision 9999, and this version knows {HEAD}"
        assert server.predict().status_code == 200
        assert server.get("/v1/jobs").status_code == 200
        assert code(server.post("/v1/jobs", JOB)) == (503, "version_behind")
    finally:
        say(HEAD)
        database.close()
    of_every_worker(server.ready, "it is ready again")


def test_bug_is_answered_at_once_and_says_nothing():
    """An exception that left a middleware of BentoML's would hang the request."""

    async def broken(request):
        raise ZeroDivisionError("row 7 has age 39")

    async def ask():
        doors = Doors(None, Starlette(routes=[Route("/livez", broken)]))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(doors), base_url="http://x") as client:
            return await client.get("/livez")

    answer = asyncio.run(ask())
    assert code(answer) == (500, "internal")
    assert "39" not in answer.text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.InputError("x"), 400),
        (errors.SchemaError("x"), 400),
        (errors.RecordError("x"), 422),
        (errors.UnknownName("x"), 404),
        (errors.NameTaken("x"), 409),
        (errors.WrongState("x"), 409),
        (errors.IdempotencyConflict("x"), 409),
        (BudgetRefused("x"), 403),
        (errors.LedgerInvalid("x"), 503),
        (CertificateInvalid("x"), 503),
        (KeyInvalid("x"), 503),
        (errors.PlanMismatch("x"), 500),
    ],
)
def test_status_of_each_error(error, expected):
    answer = error_response(error)
    assert answer.status_code == expected
    assert json.loads(answer.body) == {"error": {"code": error.code, "message": "x", "details": {}}}


# Metrics and documentation


def test_counts_add_up_over_the_workers(server):
    assert len(server.processes("dpserve-serving")) == 2
    before = metric(server, "dpserve_predictions_total", model="adult@1")
    requests = metric(server, "dpserve_prediction_seconds_count", model="adult@1")
    for _ in range(30):
        assert server.predict("adult@1", count=2).status_code == 200
    seen = {metric(server, "dpserve_predictions_total", model="adult@1") for _ in range(10)}
    assert seen == {before + 60}
    assert metric(server, "dpserve_prediction_seconds_count", model="adult@1") == requests + 30


def test_ledger_figures_are_the_ledgers(server):
    budget = server.get("/v1/datasets/adult").json()["budget"]
    assert metric(server, "dpserve_epsilon", dataset="adult") == 20
    assert metric(server, "dpserve_epsilon_spent", dataset="adult") == float(budget["spent"]["epsilon"])
    assert metric(server, "dpserve_budget_left_ratio", dataset="adult") == pytest.approx(
        float(budget["left"]["share"]), abs=1e-6
    )
    assert metric(server, "dpserve_ledger_size") == server.home.ledger.log.size()
    lines = server.get("/v1/models").json()["models"]
    assert metric(server, "dpserve_models_loaded") == sum(line["verified"] is True for line in lines)
    for state in ("candidate", "champion", "retired", "revoked"):
        assert metric(server, "dpserve_model_versions", state=state) == sum(line["state"] == state for line in lines)


def test_documentation_knows_every_door(server):
    found = server.get("/docs.json").json()
    ours = {(door.path, door.method.lower()) for door in DOORS}
    assert ours <= {(path, method) for path, item in found["paths"].items() for method in item}
    assert "://" not in json.dumps(found["info"])
    assert found["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"] == [
        "model",
        "records",
    ]


def test_log_holds_no_record_and_no_token(server):
    (row,) = records(1)
    server.post("/predict", {"model": "adult", "records": [{**row, "occupation": 31337, "age": "Zaphod"}]})
    server.post("/v1/jobs", {"Zaphod": 31337})
    server.get("/v1/models/zaphod")
    text = server.log.read_text()
    assert "zaphod" not in text.lower()
    assert "31337" not in text
    assert not any(token in text for token in server.tokens.values())


# Starting and stopping


def test_first_start_makes_the_home_and_prints_one_token_and_a_signal_stops_everything(tmp_path):
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "1"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path / "home"), stdout=out, stderr=out)
    try:
        until(lambda: b"listening" in log.read_bytes(), "the server listens")
        assert "dps_" not in log.read_text()  # it is in a file of its user alone
        token = (tmp_path / "home" / "first-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}/v1/models"
        until(lambda: status(url, headers) == 200, "the token opens")
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in started), "all are gone")


def status(url, headers=None):
    try:
        return client().get(url, headers=headers).status_code
    except httpx.TransportError:
        return None


def test_bentoml_serve_from_the_project_waits_for_a_home_and_trains(tmp_path):
    """Without a home it lives, and is ready for nothing; it is ready as soon as there is one, and runs its jobs by one
    worker of its own, which goes where it goes.
    """
    port, home = free_port(), tmp_path / "home"
    command = [sys.executable, "-m", "bentoml", "serve", "--port", str(port), "--host", "127.0.0.1"]
    own = {"BENTOML_HOME": str(tmp_path / "bentoml"), "DPSERVE_WORKERS": "2"}
    with (tmp_path / "log").open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env={**environment(home), **own}, stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: status(f"{url}/livez") == 200, "it lives")
        assert status(f"{url}/readyz") == 503
        assert status(f"{url}/v1/models", {"Authorization": "Bearer dps_x"}) == 503
        made, files = Home.init({"DPSERVE_HOME": str(home)}), write_files(tmp_path / "files")
        until(lambda: status(f"{url}/readyz") == 200, "it is ready")
        rows, schema = files / "rows.parquet", files / "schema.yaml"
        register(made, "adult", rows, schema, Budget.of(1, 0), Relation.ADD_REMOVE, None)
        asked = JobRequest("adult", "lazybb", "0.5", delta="0", parameters={"rounds": 5})
        number = job.submit(made, asked, by="test").seq
        until(lambda: made.ledger.job(number).public_state == "issued", "it is trained")
        assert client().get(f"{url}/readyz").json() == {"ready": True}  # and names nobody who does not train
        said = (tmp_path / "log").read_text().splitlines()
        workers = [int(line.rpartition(" ")[2]) for line in said if "a training worker runs beside" in line]
        assert [psutil.pid_exists(worker) for worker in workers] == [True]  # of two that serve, one has it
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)
    until(lambda: not psutil.pid_exists(workers[0]), "its worker has gone with it")


@pytest.mark.slow
def test_built_bento_serves_from_another_folder(tmp_path):
    """Its own copy of the rooms has nothing compiled, and a pure claim needs nothing that is."""
    files, home = write_files(tmp_path / "files"), Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", Budget.of(1, 0), Relation.ADD_REMOVE, None)
    asked = JobRequest("adult", "lazybb", "0.5", delta="0", parameters={"rounds": 5}, model="adult")
    released = job.train(home, asked, by="test")
    bentoml_command = [sys.executable, "-m", "bentoml"]
    own = {"BENTOML_HOME": str(tmp_path / "bentoml"), "DPSERVE_WORKERS": "1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `uv` stands beside python
    where = {**environment(home.path), **own, "PATH": path, "PYTHONPATH": ""}
    out = tmp_path / "bento"
    build = [*bentoml_command, "build", "--output", "tag"]
    built = subprocess.run(build, cwd=ROOT, env=where, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    tag = built.stdout.strip().splitlines()[-1].removeprefix("__tag__:")
    (source,) = (tmp_path / "bentoml" / "bentos" / "dpserve").glob("*/src")
    assert not (source / "tests").exists()
    out.mkdir()
    port = free_port()
    command = [*bentoml_command, "serve", tag, "--port", str(port), "--host", "127.0.0.1"]
    with running(home.path, command, port, out, **own, PATH=path, PYTHONPATH="") as bento:
        answer = bento.predict(count=5).json()
        assert (answer["model"], len(answer["predictions"])) == ("adult@1", 5)
        with bentoml.SyncHTTPClient(f"http://127.0.0.1:{port}", token=bento.tokens["predict"]) as client:
            assert client.predict(model="adult@1", records=records(5)) == answer
        assert answer["certificate"]["entry"] == released["certificate"]["entry"]
        assert "Your own messy table" in bento.ask_again("GET", "/docs").text
        assert "dpserve train" in bento.ask_again("GET", "/docs/reference/commands").text
        job.submit(home, JobRequest("adult", "lazybb", "0.2", delta="0", parameters={"rounds": 5}), by="test")
        until(lambda: all(each.public_state == "issued" for each in home.ledger.jobs()), "its worker trains")
        assert "src" in json.dumps([child.cwd() for child in psutil.Process(bento.process.pid).children()])
