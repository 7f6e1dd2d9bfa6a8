"""The list of jobs and the stream of a job's events, over the loopback interface."""

from __future__ import annotations

import json
import socket
import threading

import pyarrow.parquet as pq
import pytest
from small_home import client, serving, until, write_files

from accountant.access import tokens
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.privacy.budget import Budget, Relation
from serving.process.tokens import new_token
from serving.rest.event_stream import Event
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest, TuningRequest

pytestmark = pytest.mark.server

QUICK = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 5}}
TUNED = JobRequest("adult", "lazybb", "0.2", tuning=TuningRequest({"rounds": [50, 100]}, 20))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    files = write_files(folder / "files")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    for name in ("adult", "other"):
        rows = files / "rows.parquet"
        if name == "other":
            (folder / "more").mkdir()
            rows = write_other(folder / "more" / "rows.parquet", rows)
        schema = files / "schema.yaml"
        new = NewPeople("a test", "test")
        register(home, name, rows, schema, Budget.of(20, "1e-5"), Relation.ADD_REMOVE, None, new_people=new)
    with serving(home.path, workers=1) as found:
        yield found


def write_other(path, rows):
    pq.write_table(pq.read_table(rows).slice(0, 500), path)
    return path


def stream(server, seq, scope="train", **headers):
    """The events of one answer, to its end: [(id, event, data)], and the status."""
    with client().stream(
        "GET",
        f"http://127.0.0.1:{server.port}/v1/jobs/{seq}/events",
        headers={"Authorization": f"Bearer {server.tokens[scope]}", **headers},
        timeout=300,
    ) as answer:
        return answer.status_code, answer.headers, parsed(answer.read().decode())


def parsed(text):
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def test_events_lead_from_where_it_stands_to_its_end(server):
    seq = job.submit(server.home, TUNED, by=f"token:train-{server.port}").seq
    status, headers, found = stream(server, seq)
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    assert headers["cache-control"] == "no-store"
    assert [event for _, event, _ in found] == ["job"] * (len(found) - 1) + ["end"]
    assert found[-1][2] == server.get(f"/v1/jobs/{seq}").json()
    assert found[-1][2]["state"] == "issued"
    assert found[-1][2]["version_state"] is not None
    done = [data["progress"]["done"] for _, _, data in found]
    assert done == sorted(done)
    assert {data["progress"]["total"] for _, _, data in found} == {done[-1]}
    assert done[-1] > 20  # the public number of runs, and not the one line of the plan
    assert len({name for name, _, _ in found}) == len(found)


def test_one_who_saw_the_end_is_told_to_stay_away(server):
    seq = queued(server)
    _, _, found = stream(server, seq)
    last = found[-1][0]
    assert stream(server, seq, **{"Last-Event-ID": last})[0] == 204
    assert [event for _, event, _ in stream(server, seq, **{"Last-Event-ID": "reserved:0"})[2]] == ["end"]
    assert [name for name, _, _ in stream(server, seq, scope="audit")[2]] == [last]


def test_a_cancelled_job_ends_its_stream(server):
    seq = held_job(server)
    found = []
    watcher = threading.Thread(target=lambda: found.append(stream(server, seq)))
    watcher.start()
    server.ask("DELETE", f"/v1/jobs/{seq}", scope="train")
    watcher.join(300)
    assert found[0][2][-1][1:] == ("end", server.get(f"/v1/jobs/{seq}").json())
    assert found[0][2][-1][2]["state"] == "released"


@pytest.mark.parametrize(("path", "status"), [("999", 404), ("x", 404), ("-1", 404), ("1?x=1", 400)])
def test_events_of_no_job(server, path, status):
    name, _, query = path.partition("?")
    answer = server.get(f"/v1/jobs/{name}/events{'?' if query else ''}{query}")
    assert (answer.status_code, set(answer.json())) == (status, {"error"})


def held_job(server):
    return queued(server, queued=False)


def queued(server, dataset="adult", **more):
    asked = JobRequest(dataset, "lazybb", "0.1", parameters={"rounds": 5})
    return job.submit(server.home, asked, by=f"token:train-{server.port}", **more).seq


def accepted(answer):
    return answer.json() if answer.status_code == 202 else None


def listen(server, seq, token):
    """A connection on which the first event has come."""
    found = socket.create_connection(("127.0.0.1", server.port), timeout=300)
    head = f"GET /v1/jobs/{seq}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    found.sendall(head.encode())
    said = b""
    while b"event: job" not in said:
        said += found.recv(4096)
    return found


def rest(connection):
    said = b""
    while chunk := connection.recv(4096):
        said += chunk
        if said.endswith(b"0\r\n\r\n"):
            break
    return said


def test_a_revoked_token_hears_no_more(server):
    seq = held_job(server)
    secret, _ = new_token(server.home, "listener", ["audit"])
    until(lambda: server.get("/v1/datasets", headers={"Authorization": f"Bearer {secret}"}).status_code == 200, "known")
    with listen(server, seq, secret) as connection:
        tokens.revoke(server.home.ledger, "listener")
        assert b"event" not in rest(connection)
    server.ask("DELETE", f"/v1/jobs/{seq}")


def test_listeners_are_bounded_and_the_server_goes_on(server):
    seq = held_job(server)
    opened = [listen(server, seq, server.tokens["train"]) for _ in range(16)]
    refused = server.get(f"/v1/jobs/{seq}/events", scope="train")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "5"
    assert server.get("/v1/jobs").status_code == 200
    assert stream_opens(server, seq, "audit")
    for connection in opened:
        connection.close()
    until(lambda: stream_opens(server, seq), "those who hung up made room")
    server.ask("DELETE", f"/v1/jobs/{seq}")


def test_the_head_alone_is_answered_at_once(server):
    seq = held_job(server)
    answer = server.ask("HEAD", f"/v1/jobs/{seq}/events")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    server.ask("DELETE", f"/v1/jobs/{seq}")


def stream_opens(server, seq, scope="train"):
    url, headers = f"http://127.0.0.1:{server.port}/v1/jobs/{seq}/events", {}
    headers["Authorization"] = f"Bearer {server.tokens[scope]}"
    with client().stream("GET", url, headers=headers, timeout=300) as answer:
        return answer.status_code == 200


# The list


def test_jobs_are_listed_newest_first_in_pages(server):
    first = queued(server, "other")
    held = held_job(server)
    body = server.get("/v1/jobs", scope="audit").json()
    numbers = [line["job"] for line in body["jobs"]]
    assert numbers == sorted(numbers, reverse=True)
    assert {held, first} <= set(numbers)
    assert body["next"] is None
    assert body["jobs"][numbers.index(held)] == server.get(f"/v1/jobs/{held}").json()
    pages, after = [], ""
    while after is not None:
        page = server.get(f"/v1/jobs?limit=2{after and f'&after={after}'}").json()
        assert len(page["jobs"]) == 2 or page["next"] is None
        pages += [line["job"] for line in page["jobs"]]
        after = page["next"]
    assert pages == numbers
    assert {line["dataset"] for line in server.get("/v1/jobs?dataset=other").json()["jobs"]} == {"other"}
    waiting = server.get("/v1/jobs?dataset=adult&state=reserved").json()["jobs"]
    assert held in [line["job"] for line in waiting]  # with those of other tests that no worker has taken up yet
    assert {(line["dataset"], line["state"]) for line in waiting} == {("adult", "reserved")}
    assert held not in [line["job"] for line in server.get("/v1/jobs?state=issued").json()["jobs"]]
    server.ask("DELETE", f"/v1/jobs/{held}")
    until(lambda: server.get(f"/v1/jobs/{first}").json()["state"] == "issued", "the worker is through with it")
    issued = server.get("/v1/jobs?state=issued").json()["jobs"]
    assert first in [line["job"] for line in issued]
    assert {line["state"] for line in issued} == {"issued"}
    assert server.get("/v1/jobs?state=committed").json() == {"jobs": [], "next": None}


def test_the_one_who_asked_is_named(server):
    body = {**QUICK, "idempotency_key": "named"}  # asked again where a busy machine does not answer in time
    answer = until(lambda: accepted(server.post("/v1/jobs", body, scope="train")), "the job is accepted")
    found = server.get(f"/v1/jobs/{answer['job']}").json()
    assert found["by"] == f"token:train-{server.port}"
    assert found["time"].endswith("Z")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("state=done", 400),
        ("state=", 400),
        ("state=issued&state=issued", 400),
        ("limit=0", 400),
        ("limit=201", 400),
        ("after=x", 400),
        ("before=3", 400),
        ("dataset=nope", 404),
        ("after=0", 200),
        ("after=9007199254740992", 200),
    ],
)
def test_bad_questions(server, query, status):
    assert server.get(f"/v1/jobs?{query}").status_code == status


def test_an_event_is_one_line_of_data():
    job = {"job": 3, "state": "burned", "error": "a\nb"}
    assert Event("burned:1", job).encode().count(b"\n") == 4
    assert Event("burned:1", job).last
    assert not Event("issued:1:placing", {"state": "issued"}, True).last


@pytest.mark.last
def test_a_stream_does_not_keep_the_server_from_stopping(server):
    """It stops what the others use."""
    with listen(server, held_job(server), server.tokens["train"]) as connection:
        assert server.stop() == 0
        assert rest(connection).endswith(b"0\r\n\r\n")  # ended by the server, and not torn down
