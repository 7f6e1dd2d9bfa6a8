"""Traces: one for a request and the job that it asks for, of public facts and of times that are public; and no work of
anybody's where they are off, or where nobody takes them.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from in_process import Site
from ledgers import named, trained
from small_home import dpserve, free_port, records, until

from accountant.home import Home
from accountant.ledger.entry_search import Wanted, search
from accountant.system import traces
from dpserve_verify.errors import InputError
from serving.app import DOORS
from serving.process.config.settings import ServerSettings
from serving.rest import models
from training.jobs import job, job_traces
from training.kinds import training_steps
from training.requests import JobRequest

pytestmark = pytest.mark.home("prepared")

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 4}, "model": "secretive"}
REQUEST = {"http.request.method", "http.route", "http.response.status_code"}
JOB = {f"dpserve.{name}" for name in ("job", "kind", "learner", "releases", "state")}
JOB_SPANS = {"job", "wait", "play", "export", "sign"}


class Receiver(ThreadingHTTPServer):
    """A collector of OTLP's JSON. While `open` is not set it takes connections and answers none."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.bodies: list[bytes] = []
        self.heads: list[dict[str, str]] = []
        self.open, self.asked = threading.Event(), threading.Event()
        self.open.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[dict]:
        """Each with its attributes as a mapping. What is not as OTLP has it fails here."""
        found = []
        for body in list(self.bodies):
            (resource,) = json.loads(body)["resourceSpans"]
            named = attributes(resource["resource"]["attributes"])
            assert named["service.name"] == "dpserve"
            (scope,) = resource["scopeSpans"]
            for each in scope["spans"]:
                assert re.fullmatch("[0-9a-f]{32}", each["traceId"])
                assert all(
                    re.fullmatch("[0-9a-f]{16}", each[name]) for name in ("spanId", "parentSpanId") if name in each
                )
                assert int(each["startTimeUnixNano"]) <= int(each["endTimeUnixNano"])
                found.append({**each, "attributes": attributes(each["attributes"])})
        return found

    def named(self, name: str) -> dict:
        (found,) = [each for each in self.spans() if each["name"] == name]
        return found


def attributes(listed: list[dict]) -> dict[str, str | int]:
    def plain(value: dict[str, str]) -> str | int:
        ((kind, text),) = value.items()
        return {"stringValue": str, "intValue": int}[kind](text)

    return {each["key"]: plain(each["value"]) for each in listed}


class Taker(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.asked.set()
        self.server.open.wait()
        assert self.path == "/v1/traces"
        self.server.heads.append({name.lower(): value for name, value in self.headers.items()})
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


@contextmanager
def receiving():
    with Receiver() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield found
        finally:
            found.open.set()
            found.shutdown()
            thread.join()


@pytest.fixture
def receiver(monkeypatch):
    """A collector that takes everything, and the variables that send it there."""
    with receiving() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        traces.stop()
        yield found
        found.open.set()
        traces.stop()
    monkeypatch.undo()
    traces.stop()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """With models, made before anybody receives."""
    with named(trained(), tmp_path / "home", monkeypatch) as found:
        yield found


def times_of(home: Home, seq: int) -> set[int]:
    """The seconds of the job's entries, in nanoseconds."""
    found = search(home.ledger.log.database, Wanted(job=seq), limit=20).entries
    return {int(datetime.fromisoformat(each.value["time"]).timestamp()) * 10**9 for each in found}


def test_one_trace_shows_the_request_and_the_job_in_its_worker(home, receiver, monkeypatch):
    """The worker is another process; it is told by the ledger alone whose trace it goes on with."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
    traces.stop()
    site = Site(home, DOORS)
    secret = site.token("ana", "train")
    parent = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    answer = site.bear(secret, "POST", "/v1/jobs", json=BODY, headers=parent)
    assert answer.status_code == 202, answer.text
    seq = answer.json()["job"]
    done = dpserve(home.path, "worker", "--once")
    assert f"job {seq}: committed" in done.stderr, done.stderr
    until(lambda: {each["name"] for each in receiver.spans()} >= JOB_SPANS, "the worker's spans come")
    ours = {each["name"]: each for each in receiver.spans() if each["traceId"] == TRACE}
    assert set(ours) == {"POST /v1/jobs", "rehearse", "reserve", *JOB_SPANS}

    def under(name: str) -> set[str]:
        return {each["name"] for each in ours.values() if each["parentSpanId"] == ours[name]["spanId"]}

    asked, whole = ours["POST /v1/jobs"], ours["job"]
    assert (asked["parentSpanId"], asked["kind"], whole["kind"]) == (CALLER, 2, 1)
    assert (under("POST /v1/jobs"), under("reserve")) == ({"rehearse", "reserve"}, {"job"})
    assert under("job") == {"wait", "play", "export", "sign"}
    assert asked["attributes"] == dict(zip(sorted(REQUEST), ("POST", 202, "/v1/jobs"), strict=True))
    assert whole["attributes"] == {
        "dpserve.job": seq, "dpserve.kind": "train", "dpserve.learner": "lazybb", "dpserve.state": "issued",
        "dpserve.releases": len(job_plan(home, seq)),
    }  # fmt: skip
    assert all(set(each["attributes"]) <= REQUEST | JOB for each in receiver.spans())
    public = times_of(home, seq)
    for name in JOB_SPANS:
        assert {int(ours[name][end]) for end in ("startTimeUnixNano", "endTimeUnixNano")} <= public, name
    assert {head["x-key"] for head in receiver.heads} == {"a b"}
    for told in (b"adult", b"secretive", b"ana", secret.encode(), str(home.path).encode()):
        assert not any(told in body for body in receiver.bodies), told


def job_plan(home: Home, seq: int) -> list[int]:
    return [0 for run in home.ledger.reservation(seq).value["plan"] for _ in range(run["count"])]


def test_a_job_that_fails_or_is_given_back_says_so(home, receiver, monkeypatch):
    burned = job.submit(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 4}), by="test")
    monkeypatch.setattr(training_steps, "keep", lambda *_: 1 / 0)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        job.run(home, burned.seq)
    given_back = job.submit(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 4}), by="test")
    home.ledger.release(given_back.seq)
    job_traces.tell(home, given_back.seq)
    until(lambda: len([each for each in receiver.spans() if each["name"] == "job"]) == 2, "both are told")
    states = {each["attributes"]["dpserve.state"]: each for each in receiver.spans() if each["name"] == "job"}
    assert {state: each["status"]["code"] for state, each in states.items()} == {"burned": 2, "released": 0}
    below = {
        state: {each["name"] for each in receiver.spans() if each.get("parentSpanId") == own["spanId"]}
        for state, own in states.items()
    }
    assert below == {"burned": {"wait", "play"}, "released": {"wait"}}


def test_a_request_is_told_by_its_route_and_what_a_steward_asks_takes_no_time(home, receiver):
    site = Site(home, DOORS)
    secret = site.token("ana", "admin")
    for path in ("/v1/jobs/77", "/v1/jobs/none", "/nowhere/77", "/v1/drafts", "/v1/drafts/0123", "/v1/jobs/77/events"):
        site.bear(secret, "GET", path, headers={"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"})
    site.ask("BREW", "/v1/jobs/77")
    until(lambda: len(receiver.spans()) == 7, "seven are told")
    told = [(each["name"], each["attributes"].get("http.response.status_code")) for each in receiver.spans()]
    assert sorted(told) == [
        ("GET /v1/drafts", 200), ("GET /v1/drafts/{draft}", 404), ("GET /v1/jobs/{job}", 404),
        ("GET /v1/jobs/{job}", 404), ("GET /v1/jobs/{job}/events", 404), ("GET none", 404), ("other none", 401),
    ]  # fmt: skip
    assert len({each["traceId"] for each in receiver.spans()}) == 7  # a parent of zeros is none
    lasted = {each["name"]: int(each["endTimeUnixNano"]) - int(each["startTimeUnixNano"]) for each in receiver.spans()}
    assert lasted["GET /v1/drafts"] == lasted["GET /v1/drafts/{draft}"] == 0 < lasted["GET none"]
    assert lasted["GET /v1/jobs/{job}/events"] == 0  # a stream of them lasts as long as the job


def test_nothing_is_sent_where_they_are_off(home, receiver, monkeypatch):
    for name, value in (("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")):
        with monkeypatch.context() as off:
            off.setenv(name, value)
            traces.stop()
            assert traces.tracer() is None
            site = Site(home, DOORS)
            site.bear(site.token(f"ana-{len(name)}", "train"), "POST", "/v1/plans", json=BODY)
            job.train(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 4}), by="test")
            traces.stop()
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert traces.tracer() is None
    assert not receiver.asked.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("down", ["nobody listens", "it never answers"])
def test_predictions_do_not_wait_for_a_collector_that_is_down(served, receiver, monkeypatch, down):
    """Where it never answers, it holds the first batch until the last prediction is there."""
    receiver.open.clear()
    if down == "nobody listens":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(traces, "SECONDS", 60.0)
    traces.stop()
    site = Site(served, models.DOORS)
    secret = site.token("ana", "predict")
    statuses = []
    for number in range(40):
        statuses.append(
            site.bear(secret, "POST", "/predict", json={"model": "adult", "records": records(1)}).status_code
        )
        if number == 0 and down == "it never answers":
            until(receiver.asked.is_set, "it holds a batch")
    assert statuses == [200] * 40
    assert receiver.bodies == []
    receiver.open.set()
    if down == "it never answers":
        until(lambda: len(receiver.spans()) == 40, "they come after all")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, None),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://a.example:4318/"}, "https://a.example:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1]:1/x"}, "http://[::1]:1/x"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "http://a/v1/traces"),
    ],
)
def test_opentelemetrys_own_variables_say_where_they_go(given, url):
    found = traces.collector(given)
    assert (found and found.url) == url


@pytest.mark.parametrize(
    "given",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_TRACES_EXPORTER": "otlp,console"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "file:///etc/passwd"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:99999"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a b"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:hidden@a"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "hidden"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "a=hidden%0d%0ab: c"},
    ],
)
def test_what_is_not_offered_is_refused_without_a_word_of_the_secret(monkeypatch, given):
    with pytest.raises(InputError, match="OTEL_") as refused:
        traces.collector(given)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="OTEL_"):  # so no server starts, and no worker
        ServerSettings.with_flags()
    assert "hidden" not in refused.value.message
