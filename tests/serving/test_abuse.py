"""What a hostile client, a torn wire and a killed process do to a real server: an error in the one shape, or a closed
connection, and the server goes on.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import sqlite3
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from small_home import SCOPES, adult_home, client, records, serving, until

from accountant.access import tokens
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.errors import LedgerInvalid
from serving.app import DOORS
from serving.http.connections import HEAD_BYTES
from serving.http.routes import MAX_HEAD_FIELDS
from serving.process.tokens import new_token
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.server

SLOW = 600  # connections that never finish what they began
GROWTH_BYTES = 96 << 20
LONG_JOB = {"dataset": "adult", "learner": "lazybb", "epsilon": "1", "parameters": {"rounds": 5_000}}
SHORT_JOB = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 3}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("abused")
    home = adult_home(folder, 20)
    for model in ("adult", "spare"):
        job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}, model=model), by="test")
    with serving(home.path, workers=1) as found:
        yield found


def code(answer):
    """The code, once the answer is seen to have the one shape."""
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"code", "message", "details"}
    return answer.status_code, error["code"]


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=300)


def head(server, line="POST /predict", scope="predict", **fields):
    named = {"Host": "x", "Authorization": f"Bearer {server.tokens[scope]}", "Content-Type": "application/json"}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    return f"{line} HTTP/1.1\r\n{''.join(f'{name}: {value}{chr(13)}{chr(10)}' for name, value in named.items())}\r\n"


def spoken(connection):
    """All that the server says until it hangs up; a reset counts as hanging up."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(65536):
            found += more
    return found


def memory(server):
    return sum(each.memory_info().rss for each in server.processes("dpserve-serving"))


@pytest.fixture
def unharmed(server):
    """Afterwards the server answers as before, nothing was spent, and nothing was said to be a fault of ours."""
    before = server.predict().json()
    size = server.home.ledger.log.size()
    yield
    assert server.predict().json() == before
    assert server.home.ledger.log.size() == size
    assert "Traceback" not in server.log.read_text()
    assert "unexpected" not in server.log.read_text()


# Bodies


def pieces(total, begin=b'{"model": "adult", "records": ["'):
    yield begin
    for _ in range(total >> 20):
        yield b"a" * (1 << 20)


@pytest.mark.parametrize("path", ["/predict", "/explain", "/v1/jobs", "/v1/plans"])
def test_hundred_megabytes_are_refused_and_not_kept(server, unharmed, path):
    server.predict()
    before = memory(server)
    with contextlib.suppress(httpx.WriteError):  # the server need not read on once it has refused
        answer = server.ask("POST", path, content=pieces(100 << 20), headers={"Content-Type": "application/json"})
        assert code(answer) == (413, "too_large")
    assert memory(server) - before < GROWTH_BYTES
    declared = head(server, f"POST {path}", "admin", Content_Length=100 << 20)
    with connect(server) as connection:
        connection.sendall(declared.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")  # before a byte of it was sent


@pytest.mark.parametrize("path", ["/nope", "/v1/models", "/livez"])
def test_body_where_none_belongs_is_not_kept(server, unharmed, path):
    before = memory(server)
    with contextlib.suppress(httpx.TransportError):
        assert server.ask("POST", path, content=pieces(64 << 20)).status_code in (404, 405)
    assert memory(server) - before < 32 << 20


@pytest.mark.parametrize("count", [20_001, 100_000])
def test_too_many_records(server, unharmed, count):
    content = b'{"model": "adult", "records": [' + b"{}," * (count - 1) + b"{}]}"
    for path in ("/predict", "/explain"):
        answer = server.ask("POST", path, content=content, headers={"Content-Type": "application/json"})
        assert code(answer) == (413, "too_large")


ROW = json.dumps(records(1)[0])
SAME = json.dumps({"model": "adult", "records": records(1)})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"model": "adult", "model": "spare", "records": []}', (400, "bad_input")),
        (SAME.replace('"age"', '"age": 17, "age"', 1), (400, "bad_input")),
        (SAME.replace('"age"', r'"\u0061ge": 17, "age"', 1), (400, "bad_input")),
        (SAME.replace('"age"', r'"age\u003a": 17, "age"', 1), (422, "record_invalid")),
        (SAME + "{}", (400, "bad_input")),
        (SAME.replace("[{", "[[{").replace("}]", "}]]"), (422, "record_invalid")),
        (SAME.replace("[{", "[null, {"), (422, "record_invalid")),
        ('{"model": "adult", "records": [' + "[" * 900 + "]" * 900 + "]}", (422, "record_invalid")),
        ('{"model": "adult", "records": [' + '{"a":' * 900 + "1" + "}" * 900 + "]}", (400, "bad_input")),
        ('{"model": "adult", "records": ' + '{"a":' * 990 + "1" + "}" * 990 + "}", (400, "bad_input")),
        ('{"a":' * 1000 + "1" + "}" * 1000, (400, "bad_input")),
        ('{"model": "adult", "records": ' + "[" * 200_000 + "]" * 200_000 + "}", (400, "bad_input")),
        ('{"model": "adult", "records": [{"age": Infinity}]}', (400, "bad_input")),
        ('{"model": "adult", "records": [{"age": -NaN}]}', (400, "bad_input")),
        ('{"model": "\\ud800", "records": []}', (400, "bad_input")),
        ('{"model": "adult\\u0000", "records": []}', (404, "unknown_name")),
        ('{"model": null, "records": []}', (400, "bad_input")),
        ('{"model": "adult", "records": null}', (400, "bad_input")),
        ('{"model": "adult", "Records": []}', (400, "bad_input")),
        ('\ufeff{"model": "adult", "records": []}', (400, "bad_input")),
        ("null", (400, "bad_input")),
        ("1e999999", (400, "bad_input")),
    ],
)
def test_bodies_that_are_no_question(server, unharmed, content, expected):
    for path in ("/predict", "/explain"):
        answer = server.ask("POST", path, content=content.encode(), headers={"Content-Type": "application/json"})
        assert code(answer) == expected


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data; boundary=x", "application/json, text/plain"])
def test_other_media_types(server, unharmed, kind):
    for path in ("/predict", "/v1/jobs", "/v1/plans"):
        answer = server.ask("POST", path, content=b"{}", headers={"Content-Type": kind})
        assert code(answer) == (415, "unsupported_media_type")


def test_packed_body_is_not_unpacked(server, unharmed):
    """A bomb is not opened: nothing but the open inference protocol takes a packed body, within its own bound."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert server.ask("POST", "/predict", content=SAME.encode(), headers=headers).status_code == 415
    bomb = gzip.compress(b" " * (200 << 20), compresslevel=1)
    before = memory(server)
    for path in ("/predict", "/v1/jobs", "/v2/models/adult/infer"):
        answer = server.ask("POST", path, content=bomb, headers=headers)
        assert answer.status_code in (400, 413, 415)
    assert memory(server) - before < GROWTH_BYTES


# The wire


def test_many_that_never_finish_do_not_stop_the_others(server, unharmed):
    """Slow-loris: heads that never end are hung up on, while everybody else is answered."""
    started = [connect(server) for _ in range(SLOW)]
    for number, connection in enumerate(started):
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Slow: "[: 10 + number % 30])
    assert server.predict().status_code == 200
    for connection in started:
        assert spoken(connection) == b""
        connection.close()


def test_slow_bodies_are_given_up(server, unharmed):
    started = [connect(server) for _ in range(20)]
    for connection in started:
        connection.sendall(head(server, Content_Length=1000).encode() + b'{"model"')
    assert server.predict().status_code == 200
    for connection in started:
        assert connection.recv(1000).startswith((b"HTTP/1.1 408", b"HTTP/1.1 503"))  # the latter of a busy machine
        connection.close()


def test_trickling_body_is_given_up(server, unharmed):
    """A byte now and then does not start the clock anew."""
    with connect(server) as connection:
        connection.sendall(head(server, Transfer_Encoding="chunked").encode())
        connection.settimeout(0.2)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while not answer:
                connection.sendall(b"1\r\n \r\n")
                with contextlib.suppress(TimeoutError):
                    answer = connection.recv(1000)
        assert answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 503"))  # the latter of a busy machine


def test_half_closed_connections(server, unharmed):
    """The client will say no more: what it has asked whole is answered, what it has not is dropped."""
    question = head(server, Content_Length=len(SAME)) + SAME
    with connect(server) as connection:
        connection.sendall(question.encode())
        connection.shutdown(socket.SHUT_WR)
        said = spoken(connection)
        assert said == b"" or said.startswith(b"HTTP/1.1 200")
    for cut in (5, 60, len(question) - 3):
        with connect(server) as connection:
            connection.sendall(question[:cut].encode())
            connection.shutdown(socket.SHUT_WR)
            assert not spoken(connection).startswith(b"HTTP/1.1 2")


def test_client_that_hangs_up_is_forgotten(server, unharmed):
    for linger in (False, True):
        for _ in range(30):
            connection = connect(server)
            connection.sendall(head(server, Content_Length=1000).encode() + b'{"model"')
            if linger:  # a reset in place of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a plain port
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (4 * HEAD_BYTES),
        b"GET /" + b"a" * (4 * HEAD_BYTES),
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /livez HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEAD_FIELDS + 1) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:24]),
)
def test_what_is_no_request(server, unharmed, sent):
    with connect(server) as connection:
        with contextlib.suppress(OSError):  # it may have hung up already
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        said = spoken(connection)
    assert said == b"" or said[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 403", b"HTTP/1.1 405")


def test_a_blank_behind_a_length_is_none_of_it(server, unharmed):
    with connect(server) as connection:
        asked = head(server, "POST /v1/plans", "admin", Content_Length="2 \t", Connection="close")
        connection.sendall(asked.encode() + b"{}")
        assert spoken(connection)[:12] == b"HTTP/1.1 400"  # no dataset is named


def test_one_request_cannot_hide_in_another(server, unharmed):
    """Two lengths, or a length and chunks, would be read otherwise by a proxy in front."""
    hidden = head(server, "DELETE /v1/jobs/1", "admin")
    for fields in ({"Transfer_Encoding": "chunked", "Content_Length": 4}, {"Content_Length": "0, 9"}):
        with connect(server) as connection:
            connection.sendall((head(server, "GET /livez", **fields) + "0\r\n\r\n" + hidden).encode())
            assert spoken(connection).count(b"HTTP/1.1") <= 1


def test_what_stands_behind_a_body_is_no_head(server, unharmed):
    """A proxy that looks at heads alone has not seen it."""
    token = f"Authorization: Bearer {server.tokens['admin']}\r\n"
    for late in (True, False):
        asked = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{'' if late else token}"
        with connect(server) as connection:
            connection.sendall(f"{asked}Transfer-Encoding: chunked\r\n\r\n0\r\n{token if late else ''}\r\n".encode())
            assert spoken(connection).startswith(b"HTTP/1.1 401" if late else b"HTTP/1.1 200")


# Names and ways


BAD_NAMES = [
    "..", "%2e%2e", "..%2f..%2fkeys", "....//", "%00", "adult%00", "~", "*", "adult%2f..%2fspare", "adult@../1",
    "adult@1%2f..%2f1", "adult@-1", "adult@1e0", "adult@%EF%BC%91", "a" * 4000, "%ff", "%F0%9F%92%A9", "'%3B--",
    "adult@99999999999999999999", "CON", "adult@", "@champion", "$(id)", "{name}",
]  # fmt: skip


WAYS = [door for door in DOORS if "{" in door.path and not door.hidden]


@pytest.mark.parametrize("door", WAYS, ids=lambda door: f"{door.method} {door.path}")
def test_names_that_lead_elsewhere(server, unharmed, door):
    for name in BAD_NAMES:
        status, text = as_it_stands(server, door.method, named(door, name))
        assert 400 <= status < 500, name
        assert json.loads(text)["error"], name
        assert str(server.path) not in text


def named(door, name):
    """The door's path with this name in every place that takes one."""
    return re.sub(r"{\w+}", lambda _: name, door.path)


def as_it_stands(server, method, path):
    """As it stands, without a client that would tidy it."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=300)
    headers = {"Authorization": f"Bearer {server.tokens['admin']}", "Content-Type": "application/json"}
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_numbers_keys_and_names_are_read_strictly(server, unharmed):
    for number in ("9" * 4301, "\u0661", "1_0", "+1", "1e3", "-1"):
        for path in (f"/ui/ledger/{number}", f"/ui/ledger/{number}/proof", f"/ui/jobs/{number}"):
            assert server.get(path).status_code == 404, path[:40]
    for path in ("/v1/plans", "/v1/jobs"):
        for wrong in (
            {"idempotency_key": ""},
            {"idempotency_key": "k" * 201},
            {"epsilon": "\u0661"},
            {"epsilon": " 1"},
            {"epsilon": "1 "},
            {"epsilon": "0_1"},
            {"epsilon": "NaN"},
            {"delta": "1e-\u0665"},
            {"parameters": {"rounds": "\u0663"}},
            {"parameters": {"rounds": " 3"}},
        ):
            assert code(server.post(path, {**SHORT_JOB, **wrong})) == (400, "bad_input"), wrong


@pytest.mark.parametrize("name", ["../adult", "adult/../adult", "adult\u0000", "~root", "adult@../1", "a" * 100_000])
def test_names_in_bodies_that_lead_elsewhere(server, unharmed, name):
    for path, body in (
        ("/predict", {"model": name, "records": []}),
        ("/v1/plans", {**SHORT_JOB, "dataset": name}),
        ("/v1/plans", {**SHORT_JOB, "learner": name}),
        ("/v1/jobs", {**SHORT_JOB, "model": name}),
        ("/v1/jobs", {**SHORT_JOB, "dataset": name}),
    ):
        answer = server.post(path, body)
        assert answer.status_code in (400, 404), body
        assert len(answer.content) < 2000
        assert str(server.path) not in answer.text


# Tokens, and pages of others


def test_token_counts_in_one_place_alone(server, unharmed):
    good = server.tokens["admin"]
    assert server.get(f"/v1/models?token={good}", scope=None).status_code == 401
    for headers in (
        {"X-Api-Key": good},
        {"Authorization": good},
        {"Authorization": f"Basic {good}"},
        {"Authorization": f"Bearer {good}x"},
        {"Authorization": f"Bearer {good[:-1]}"},
        {"Authorization": f"Bearer {good.upper()}"},
        {"Authorization": f"Bearer {good} {good}"},
        {"Authorization": f"Bearer {good}, Bearer {good}"},
        {"Proxy-Authorization": f"Bearer {good}"},
    ):
        assert code(server.get("/v1/models", scope=None, headers=headers)) == (401, "unauthorized")
    two = [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {server.tokens['predict']}")]
    assert client().get(f"http://127.0.0.1:{server.port}/v1/models", headers=two).status_code == 401


def test_stolen_token_ends_when_it_is_revoked(server):
    """Also on a connection that is already open."""
    stolen, _ = new_token(server.home, "stolen", ["audit"])
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", headers={"Authorization": f"Bearer {stolen}"}
    ) as kept:
        until(lambda: kept.get("/v1/models").status_code == 200, "the token opens")
        tokens.revoke(server.home.ledger, "stolen")
        until(lambda: kept.get("/v1/models").status_code == 401, "the token opens no more")


CHANGES = [door for door in DOORS if door.method != "GET" and door.scopes]


@pytest.mark.parametrize("door", CHANGES, ids=lambda door: f"{door.method} {door.path}")
def test_page_of_another_site_changes_nothing(server, unharmed, door):
    """A browser sends the cookie along, and says whose page asks."""
    path = named(door, "adult")
    here = f"http://127.0.0.1:{server.port}"
    for origin in ("https://evil.example", "null", f"{here}.evil.example", here + "0", None):
        said = {} if origin is None else {"Origin": origin}
        headers = {"Cookie": f"dpserve={server.tokens['admin']}", "Content-Type": "text/plain", **said}
        assert server.ask(door.method, path, scope=None, headers=headers, content=b"{}").status_code == 403


def test_other_sites_read_nothing(server, unharmed):
    """No answer says that another site may read it."""
    for headers in ({"Origin": "https://evil.example"}, {}):
        for scope in (*SCOPES, None):
            answer = server.get("/v1/models", scope=scope, headers=headers)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert server.ask("OPTIONS", "/v1/jobs", scope=None, headers=asked).status_code in (401, 405)


# What is killed, and what is changed


def test_killed_while_it_serves(server, unharmed):
    (worker,) = server.processes("dpserve-serving")
    with connect(server) as connection:
        connection.sendall(head(server, Content_Length=len(SAME)).encode() + SAME[:20].encode())
        worker.kill()
        assert not spoken(connection).startswith(b"HTTP/1.1 2")
    until(lambda: [each for each in server.processes("dpserve-serving") if each.pid != worker.pid], "there is another")
    until(server.ready, "the server answers")


def test_killed_while_it_trains(server):
    """What had started is spent, is said to have failed, and holds up nobody else."""
    spent = float(server.get("/v1/datasets/adult").json()["budget"]["spent"]["epsilon"])
    body = {**LONG_JOB, "idempotency_key": "killed"}  # asked again where a busy machine has no price in time
    long = until(lambda: server.post("/v1/jobs", body).json().get("job"), "the job is accepted")
    until(lambda: server.get(f"/v1/jobs/{long}").json()["state"] == "started", "the job has started")
    (worker,) = server.processes("dpserve-train")
    worker.kill()
    short = server.post("/v1/jobs", SHORT_JOB).json()["job"]
    until(lambda: server.get(f"/v1/jobs/{short}").json()["state"] == "issued", "the next job is issued")
    found = server.get(f"/v1/jobs/{long}").json()
    assert (found["state"], found["certificate"]) == ("burned", None)
    assert "budget is spent" in found["error"]
    assert float(server.get("/v1/datasets/adult").json()["budget"]["spent"]["epsilon"]) > spent


def copied(ledger, target):
    """What the ledger holds now, as a file of its own."""
    with contextlib.closing(sqlite3.connect(ledger)) as source, contextlib.closing(sqlite3.connect(target)) as sink:
        source.backup(sink)
    return target


def test_ledger_that_is_taken_away_while_it_serves(server):
    """SQLite would go on with a file that nobody else sees; what was spent then would be spent nowhere."""
    ledger = server.path / "ledger.db"

    def put(path):
        for end in ("-wal", "-shm"):
            ledger.with_name(ledger.name + end).unlink(missing_ok=True)
        path.replace(ledger)

    older, empty = copied(ledger, server.path.with_name("older.db")), server.path.with_name("empty.db")
    empty.touch()
    new_token(server.home, "later", ["audit"])
    newest = copied(ledger, server.path.with_name("newest.db"))
    size = server.home.ledger.log.size()
    for harm in (ledger.unlink, lambda: put(empty), lambda: put(older)):
        harm()
        until(lambda: server.get("/readyz", scope=None).status_code == 503, "it says not ready")
        assert code(server.predict()) == (503, "not_ready")
        assert code(server.post("/v1/jobs", SHORT_JOB)) == (503, "not_ready")
        with pytest.raises(LedgerInvalid, match="gone|rolled back"):
            _ = server.home
        assert not ledger.exists() or harm is not ledger.unlink  # nobody has begun another
        put(Path(shutil.copy(newest, server.path.with_name("again.db"))))
        until(server.ready, "it is ready again, with what it was given back")
        assert server.home.ledger.log.size() == size
        assert server.predict().status_code == 200


def other_bytes(path):
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def empty(path):
    path.write_bytes(b"")


def gone(path):
    path.unlink()


def link(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    """Opening it would never return."""
    path.unlink()
    os.mkfifo(path)


HARMS = [other_bytes, empty, gone, link, folder, pipe]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_model_changed_while_it_is_served(server, harm):
    """503 for that model alone, an alarm, and all well again once the file is as it was."""
    place = server.path / "models" / "spare" / "1"
    name = list(FILES)[HARMS.index(harm) % len(FILES)]
    assert not (place / name).is_symlink()  # what a run before left
    assert (place / name).is_file()
    good, before = (place / name).read_bytes(), failures(server)
    harm(place / name)
    until(lambda: server.predict("spare").status_code == 503, "it is served no more")
    assert code(server.predict("spare")) == (503, "model_invalid")
    assert server.predict("adult").status_code == 200
    assert server.ready()
    assert failures(server) > before
    new = place / "new"
    new.write_bytes(good)
    if (place / name).is_dir() and not (place / name).is_symlink():
        (place / name).rmdir()
    new.replace(place / name)
    until(lambda: server.predict("spare").status_code == 200, "it is served again")


def failures(server):
    lines = server.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("dpserve_certificate_failures_total")]
    return sum(float(line.split()[-1]) for line in found)


def test_nothing_went_wrong_that_was_not_seen(server):
    """The log of all of the above speaks of no fault of ours, of no value that was sent, and of no token."""
    text = server.log.read_text()
    assert "Traceback" not in text
    assert "unexpected" not in text
    assert not any(secret in text for secret in server.tokens.values())
