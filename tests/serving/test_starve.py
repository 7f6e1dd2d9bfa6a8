"""One caller cannot stop the others: prices by the hundred, prices without end, and streams, on a real server."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import httpx
import ledgers
import noted_draws
import psutil
import pytest
from charged import check_charged
from moved_clock import MovedClock
from noted_draws import drawn
from small_home import adult_home, client, records, serving, until

from accountant.audit.audit import audit_home
from dpserve_verify.privacy.filter import Price
from serving.process.tokens import new_token
from serving.rest.event_stream import MAX_STREAMS_OF_CALLER
from training.finish.lease import this_process
from training.jobs import job
from training.planning.plans import plan
from training.requests import JobRequest

pytestmark = pytest.mark.server

KILLS = int(os.environ.get("ROBUST_SERVER_KILLS", "2"))  # the long form: 100
ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8}, model="first")
FIRST: dict[Path, Price] = {}  # what was charged before the server ran, by its folder
ATTACKS = 120
SECONDS = 8  # that a client waits for an answer
MANY_ROUNDS = {
    "dataset": "adult", "learner": "lazybb", "epsilon": "1", "parameters": {"rounds": 500}, "model": "first"
}  # fmt: skip
# A model's name is one principal's; its price takes a twentieth of the time that a request has.
THEIRS = {**MANY_ROUNDS, "parameters": {"rounds": 50}, "model": "second"}
GRID = {"epochs": [*range(4001, 4065)]}
ENDLESS = {"dataset": "adult", "learner": "ebm", "epsilon": "1", "tuning": {"grid": GRID}, "model": "first"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("starved")
    home = adult_home(folder, 20)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}), by="test")
    clock = MovedClock(folder)
    environment = {**noted_draws.environment(folder), **clock.environment}
    with serving(home.path, workers=2, own_time=True, **environment) as found:
        found.clock, found.folder, found.environment = clock, folder, environment
        found.tokens["other"] = new_token(home, "other", ["train"])[0]
        until(lambda: (home.path / "run" / str(found.port) / "prices").exists(), "the price desk is there")
        until(lambda: found.ask("POST", "/v1/plans", "other", json=THEIRS).status_code == 200, "a first price")
        FIRST[folder] = found.home.ledger.dataset("adult").most_used.used
        yield found


def post(server, path, body, scope):
    """A request that is sent, and whose answer is waited for or not."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.tokens[scope]}\r\nConnection: close\r\n"
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    wire.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    return wire


def answered(wire):
    found = b""
    with contextlib.suppress(ConnectionError), wire:
        while more := wire.recv(1 << 16):
            found += more
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), json.loads(body)


def forks(server):
    (desk,) = server.processes("dpserve-prices")
    return desk, desk.children()


def plans_in_trail(server):
    lines = map(json.loads, (server.path / "logs" / "access.jsonl").read_text().splitlines())
    return [line for line in lines if line["route"] == "/v1/plans"]


def others_are_answered(server):
    base, bearer = f"http://127.0.0.1:{server.port}", {"Authorization": f"Bearer {server.tokens['predict']}"}
    one = {"model": "adult", "records": records(1)}
    for path in ("/livez", "/readyz"):
        assert client().get(base + path, timeout=SECONDS).status_code == 200
    assert client().post(f"{base}/predict", json=one, headers=bearer, timeout=SECONDS).status_code == 200


def test_a_hundred_prices_of_one_caller_stop_nobody(server):
    wires = []
    for number in range(ATTACKS):
        wires.append(post(server, "/v1/plans", {**MANY_ROUNDS, "epsilon": f"1.{number:03d}"}, "train"))
        if number % 10 == 9:
            others_are_answered(server)
    theirs = {**THEIRS, "epsilon": "2.5"}
    until(lambda: server.ask("POST", "/v1/plans", "other", json=theirs).status_code == 200, "another has its price")
    others_are_answered(server)
    found = [answered(wire) for wire in wires]
    assert {status for status, _, _ in found} <= {200, 429, 504}
    late = [(head, body["error"]) for status, head, body in found if status == 429]
    assert len(late) > ATTACKS / 2
    assert all("retry-after: 1" in head and error["code"] == "too_many_requests" for head, error in late)
    assert any(status == 200 for status, _, _ in found)
    until(lambda: not forks(server)[1], "nothing goes on for nobody")
    mine = {**THEIRS, "model": "first", "epsilon": "1.5"}
    until(lambda: server.ask("POST", "/v1/plans", "train", json=mine).status_code == 200, "the caller has prices again")


@pytest.mark.parametrize("patient", [True, False])
def test_a_price_that_nobody_waits_for_ends(server, patient):
    """64 settings of ebm, thousands of epochs each: minutes. Given up after seconds, or when the client hangs up."""
    wire = post(server, "/v1/plans", ENDLESS, "train")
    until(lambda: forks(server)[1], "it is worked out")
    if patient:
        status, _, body = answered(wire)
        assert (status, body["error"]["code"]) == (504, "timeout")
    else:
        wire.close()
        until(lambda: plans_in_trail(server)[-1]["status"] is None, "it is known that the client hung up")
    until(lambda: not forks(server)[1], "it is given up", seconds=30)


def test_without_its_desk_a_server_goes_on_and_gets_another(server):
    desk, _ = forks(server)
    os.kill(desk.pid, signal.SIGKILL)
    assert server.ask_again("POST", "/v1/plans", scope="other", json={**THEIRS, "epsilon": "3.1"}).status_code == 200
    others_are_answered(server)

    def another():
        with contextlib.suppress(ValueError, psutil.NoSuchProcess):
            return forks(server)[0].pid != desk.pid
        return False

    until(another, "another desk")
    until(lambda: server.ask("POST", "/v1/plans", "other", json=THEIRS).status_code == 200, "a price")


# Streams


def listen(server, seq, scope):
    """A connection, and the status of its answer."""
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    asked = f"GET /v1/jobs/{seq}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.tokens[scope]}\r\n\r\n"
    wire.sendall(asked.encode())
    return wire, int(wire.recv(1 << 12).split()[1])


def test_streams_are_counted_over_all_workers_and_leave_room_for_others(server):
    home = server.home
    by = f"token:train-{server.port}"
    open_to_the_end = home.ledger.reserve(*what_is_reserved(home), by=by, owner=this_process()).seq
    heard = [listen(server, open_to_the_end, "train") for _ in range(3 * MAX_STREAMS_OF_CALLER)]
    assert Counter(status for _, status in heard) == {200: MAX_STREAMS_OF_CALLER, 429: 2 * MAX_STREAMS_OF_CALLER}
    others_are_answered(server)
    theirs = listen(server, open_to_the_end, "audit")
    assert theirs[1] == 200
    for wire, _ in [*heard, theirs]:
        wire.close()

    def room():
        wire, status = listen(server, open_to_the_end, "train")
        wire.close()
        return status == 200

    until(room, "those who hung up made room")
    home.ledger.release(open_to_the_end)


# Clocks and kills, under load


def what_is_reserved(home):
    planned = plan(home, ASKED)
    return planned.request, planned.recipe.unit, planned.recipe.plan


class Load:
    """Jobs and predictions without end, in threads. `jobs`: those that the server said it has."""

    def __init__(self, server) -> None:
        self.server, self.jobs, self.faults, self.over = server, set(), [], threading.Event()
        self.answers = Counter()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in (self._job, self._predict)]

    def _job(self):
        body = {**MANY_ROUNDS, "epsilon": str(ASKED.epsilon), "parameters": ASKED.parameters}
        answer = self.server.ask("POST", "/v1/jobs", "train", json={**body, "idempotency_key": uuid.uuid4().hex})
        if answer.status_code == 202:
            self.jobs.add(answer.json()["job"])
        return answer.status_code

    def _predict(self):
        return self.server.predict().status_code

    def _run(self, ask):
        while not self.over.wait(0.05):
            try:
                status = ask()
                self.answers[ask.__name__, status] += 1
                if status not in (200, 202, 403, 429, 503, 504):
                    self.faults.append(status)
            except httpx.TransportError:
                pass  # who was killed does not answer

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for each in self._threads:
            each.join()


def settled(server, load, before):
    """Nothing that was answered is lost, nothing that was drawn is not charged, and the auditor agrees."""
    home = server.home
    known = {each.seq: each for each in home.ledger.jobs()}
    assert load.jobs <= known.keys()
    check_charged(home, ASKED, drawn(server.folder), before)
    report = audit_home(home, ledgers.bundles(home.path))
    assert report.problems == ()
    assert load.faults == []


def issued(home):
    return sum(each.issued is not None for each in home.ledger.jobs())


def victims(server):
    """Every process of the server but the one that starts the others."""
    for name in ("dpserve-serving", "dpserve-train", "dpserve-prices"):
        yield from ((each, name) for each in server.processes(name))


def killed(server, victim):
    """Kill it, and wait until all is as it was."""
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.kill()
    whole = ["dpserve-prices", "dpserve-serving", "dpserve-serving", "dpserve-train"]
    until(lambda: sorted(k for each, k in victims(server) if each.pid != victim.pid) == whole, "another is there")
    until(server.ready, "the server is ready")


@pytest.mark.system("cc")
def test_a_clock_an_hour_back_and_forth(server):
    with Load(server) as load:
        for hours in (1, -1):
            count = issued(server.home)
            server.clock.set(3600 * hours)
            until(lambda least=count: issued(server.home) > least, "jobs go on")
            others_are_answered(server)
        killed(server, next(each for each, kind in victims(server) if kind == "dpserve-serving"))
        server.clock.set(0)
    settled(server, load, FIRST[server.folder])


def test_killed_at_random_under_load_it_comes_back(server):
    dice = random.Random(4)
    with Load(server) as load:
        for _ in range(KILLS):
            count = issued(server.home)
            time.sleep(dice.uniform(0, 1))
            killed(server, dice.choice(list(victims(server)))[0])
            until(lambda least=count: issued(server.home) > least, "jobs go on")
            others_are_answered(server)
    settled(server, load, FIRST[server.folder])


@pytest.mark.last
def test_who_starts_the_others_is_killed_under_load(server):
    """What it started ends by itself, but for those who serve, which end when they are told to; and nothing is lost:
    whoever starts the server again finds all as it was.
    """
    began, jobs, now = FIRST[server.folder], set(), server
    with contextlib.ExitStack() as stack:
        launcher = psutil.Process(now.process.pid)
        who_serve = now.processes("dpserve-serving")
        keepers = [each for one in who_serve for each in one.children() if each.name() == "dpserve-keeper"]
        others = {launcher, *launcher.children(recursive=True)} - {*who_serve, *keepers}
        with Load(now) as load:
            jobs_go_on(now)
            launcher.kill()
            now.process.wait(60)
            _, alive = psutil.wait_procs(others, timeout=60)
            assert alive == [], [each.name() for each in alive]
            others_are_answered(now)
            for each in who_serve:
                each.terminate()
            _, alive = psutil.wait_procs([*who_serve, *keepers], timeout=60)
            assert alive == []
        jobs |= load.jobs
        now = stack.enter_context(serving(server.path, workers=2, **server.environment))
        now.folder, now.tokens = server.folder, server.tokens
        with Load(now) as load:
            jobs_go_on(now)
            others_are_answered(now)
        load.jobs |= jobs
        settled(now, load, began)


def jobs_go_on(server):
    count = issued(server.home)
    until(lambda: issued(server.home) > count, "jobs go on")
