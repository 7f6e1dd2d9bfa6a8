"""What a serving process has looked at and verified is served on while the ledger's database cannot be asked."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from types import SimpleNamespace

import ledgers
import pytest
import warm
from alarms import require_alerts
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from faulty_wire import SilentWire
from in_process import Site
from ledgers import place
from postgres import server
from prometheus_client.parser import text_string_to_metric_families
from small_home import environment, free_port, records, running, until
from sqlalchemy import make_url

from accountant.access import grants, tokens
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.store import postgres_timeout
from dpserve_verify.keys.trust import public_pem
from serving.app import DOORS
from serving.process import last_look, state
from serving.process.tokens import new_token
from serving.process.watch import audit_runs
from training.jobs import job
from training.requests import JobRequest


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home with a model, and its ledger in a PostgreSQL."""
    path = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path_factory.mktemp("trained") / "home")
    home = Home.open(place(path))
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 8}), by="test")
    home.ledger.log.database.close()
    return path


@pytest.fixture
def far(trained, tmp_path, monkeypatch):
    """Doors whose ledger is at the other end of a wire, `near` the same home without it, and who may predict."""
    path = ledgers.copy_on_postgresql(trained, tmp_path / "home")
    near, wire = Home.open(place(path)), SilentWire(server().folder)
    secrets = {
        name: new_token(near, name, scopes)[0] for name, scopes in {"shop": ["predict"], "all": ["admin"]}.items()
    }
    secrets["kin"] = new_token(near, "kin", [], principal="kin")[0]
    (family,) = {each.name for each in near.ledger.dataset("adult").families}
    grants.add(near.ledger, [Grant("kin", "predict", "family", family)], "test")
    for name, value in place(path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DPSERVE_LEDGER_URL", wire.url(make_url(near.ledger.log.database.url).database))
    monkeypatch.setattr(postgres_timeout, "ANSWER_SECONDS", 0.5)
    monkeypatch.setitem(postgres_timeout.REACHED, "connect_timeout", 2)  # the least that libpq takes
    site = Site(Home.open(), DOORS)
    yield SimpleNamespace(site=site, wire=wire, near=near, secrets=secrets, state=site.app.state.serving)
    wire.silent.clear()
    site.home.ledger.log.database.close()
    near.ledger.log.database.close()
    wire.close()


def predict(far, name: str) -> int:
    body = {"model": "adult", "records": records(2)}
    return far.site.bear(far.secrets.get(name, "dps_nobody"), "POST", "/predict", json=body).status_code


def ready(far) -> int:
    return far.site.ask("GET", "/readyz").status_code


def test_a_look_where_nothing_was_written_is_one_message(far):
    for whole, most in ((False, 1), (True, 2)):
        before = far.wire.messages
        far.state.refresh(whole)
        assert far.wire.messages - before <= most
    tokens.revoke(far.near.ledger, "shop")
    far.state.refresh(False)
    assert (predict(far, "shop"), predict(far, "all")) == (401, 200)


def test_predictions_go_on_while_the_ledger_cannot_be_asked_and_no_longer_than_is_said(far, monkeypatch):
    """A family's grant is judged without the database, too. What was revoked meanwhile is seen with the next look."""
    far.wire.silent.set()
    tokens.revoke(far.near.ledger, "shop")
    for whole in (False, True):
        far.state.refresh(whole)
    assert [predict(far, name) for name in ("shop", "kin", "all")] == [200, 200, 200]
    assert ready(far) == 200
    assert far.site.bear(far.secrets["all"], "GET", "/v1/datasets").status_code == 503
    seconds = state.time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(state.time, "monotonic", lambda: seconds() + 301)
        assert (far.state.unready, far.state.bearer("")) == ("the ledger could not be looked at for 300 seconds", None)
    far.wire.silent.clear()
    far.state.refresh(False)
    assert (predict(far, "shop"), predict(far, "kin"), ready(far)) == (401, 200, 200)


def page(far) -> str:
    answer = far.site.bear(far.secrets["all"], "GET", "/metrics")
    assert answer.status_code == 200
    return answer.text


def figures(far) -> dict[str, float]:
    return {each.name: each.value for family in text_string_to_metric_families(page(far)) for each in family.samples}


@pytest.mark.system("promtool")
def test_the_metrics_that_need_no_ledger_are_there_while_it_is_away_and_say_so(far):
    """Also before the look that finds it: what was begun and got no answer is left out as a whole."""
    audit_runs.audit_at(far.near.path, far.near.ledger.log.database.url)
    before = figures(far)
    assert (before["dpserve_ledger_reachable"], before["dpserve_models_loaded"]) == (1, 1)
    of_ledger = {"dpserve_ledger_size", "dpserve_epsilon_spent", "dpserve_queue_length"}
    assert of_ledger <= before.keys()
    far.wire.silent.set()
    far.site.home.ledger.log.database.close()  # of its connections, which the next ones cannot replace
    for look in (lambda: None, lambda: far.state.refresh(True)):
        look()
        messages, now = far.wire.messages, figures(far)
        assert (now["dpserve_ledger_reachable"], now["dpserve_models_loaded"]) == (0, 1)
        assert not of_ledger & now.keys()
        assert {"dpserve_audit_ok", "dpserve_requests_total"} <= now.keys()
    assert far.wire.messages == messages  # nobody waits for what is known to be away
    # What this process has counted in other tests is not this server's.
    lines = [line for line in page(far).splitlines() if not line.startswith("dpserve_index_mismatches_total")]
    require_alerts("\n".join([*lines, ""]), ["DpserveLedgerAway"])
    far.wire.silent.clear()
    far.state.refresh(True)
    assert figures(far)["dpserve_ledger_reachable"] == 1


def test_a_commit_that_hangs_keeps_nobody_from_looking_or_predicting(far):
    """One connection's commit is swallowed, and all others work: the next job is admitted when the server has ended
    that session, and the first was not written."""
    size, done = far.near.ledger.log.size(), []
    far.wire.hangs = b"INSERT INTO checkpoint"
    stuck = threading.Thread(target=lambda: done.append(submit(far)))
    stuck.start()
    while far.wire.hangs:
        assert stuck.is_alive()
        stuck.join(0.01)
    far.state.refresh()
    assert (predict(far, "shop"), ready(far), far.state.problem) == (200, 200, "")
    job.submit(far.near, JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8}), by="test")
    assert far.near.ledger.log.size() == size + 1
    stuck.join()
    assert done in ([503], [504])


def submit(far) -> int:
    body = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.05", "parameters": {"rounds": 8}}
    return far.site.bear(far.secrets["all"], "POST", "/v1/jobs", json=body).status_code


def test_a_ledger_that_is_not_the_one_that_was_signed_is_served_by_nobody(far):
    """It can be asked, and says something else: that is no silence."""
    (far.near.path / "keys" / "high-water.json").unlink()
    far.state.refresh(False)
    assert (predict(far, "shop"), ready(far)) == (503, 503)


def begun_in_an_outage(far) -> Site:
    """A serving process that begins while the database is away."""
    far.wire.silent.set()
    return Site(None, DOORS)


def test_one_that_begins_in_an_outage_predicts_by_what_was_seen_last_and_admits_nothing(far, monkeypatch):
    """With the rights of then, a family's too, models that were verified then alone, and until the same time."""
    far.state.refresh()
    shutil.copytree(far.near.path / "models" / "adult" / "1", far.near.path / "models" / "adult" / "2")
    far.site = begun_in_an_outage(far)
    assert [predict(far, name) for name in ("shop", "kin", "all", "nobody")] == [200, 200, 200, 401]
    later = {"model": "adult@2", "records": records(2)}
    refused = far.site.bear(far.secrets["shop"], "POST", "/predict", json=later)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_invalid")
    assert far.site.ask("GET", "/readyz").json()["ledger"] == state.NOT_ASKED
    for door in ("/v1/datasets", "/v1/jobs", "/v1/ledger"):
        assert far.site.bear(far.secrets["all"], "GET", door).status_code == 503
    assert (submit(far), figures(far)["dpserve_ledger_reachable"]) == (503, 0)
    begun, seconds = far.site.app.state.serving, state.time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(state.time, "monotonic", lambda: seconds() + 301)
        assert "could not be looked at for 300 seconds" in begun.unready
    far.wire.silent.clear()
    tokens.revoke(far.near.ledger, "shop")
    begun.refresh(False)
    assert (predict(far, "shop"), predict(far, "kin"), ready(far)) == (401, 200, 200)
    assert far.site.bear(far.secrets["all"], "GET", "/v1/datasets").status_code == 200


def test_one_whose_first_look_is_cut_in_the_middle_predicts_by_what_was_seen_last(far, monkeypatch):
    """Rights were read, and models were not: that is no look."""
    far.state.refresh()
    begun = state.ServingState()
    look_at_models = begun.registry.refresh

    def cut(*about):
        far.wire.silent.set()
        look_at_models(*about)

    with monkeypatch.context() as patch:
        patch.setattr(begun.registry, "refresh", cut)
        begun.refresh()
    assert (begun.problem, begun.is_away, begun._last is not None) == ("", True, True)
    far.wire.silent.clear()
    begun.refresh()
    assert (begun.problem, begun.is_away, begun._last) == ("", False, None)


@pytest.mark.parametrize(
    "wrong", ["old", "of the future", "of another start", "changed", "of another key", "of another version", "no mark"]
)
def test_what_was_seen_last_is_refused_where_it_is_not_fresh_or_not_signed(far, monkeypatch, wrong):
    far.state.refresh()
    path, seconds = far.near.path / "run" / last_look.FILE, last_look.time.monotonic()
    assert last_look.read(far.near.path, 300) is not None
    if wrong in ("old", "of the future"):
        monkeypatch.setattr(last_look.time, "monotonic", lambda: seconds + (302 if wrong == "old" else -302))
    elif wrong == "of another start":
        (far.near.path / "boot").write_text("another")
        monkeypatch.setattr(last_look, "BOOT", far.near.path / "boot")
    elif wrong == "changed":
        path.write_bytes(path.read_bytes().replace(b'"predict"', b'"admin"  '))
    elif wrong == "of another version":
        monkeypatch.setattr(last_look, "_describe", lambda rights, registry: {"bearers": [{"token": {}}]})
        path.unlink()
        far.state.refresh()
        assert path.exists()
    elif wrong == "of another key":
        public = Ed25519PrivateKey.generate().public_key()
        (far.near.path / "keys" / "log.pub.pem").write_text(public_pem(public))
    else:
        (far.near.path / "keys" / "high-water.json").unlink()
    assert last_look.read(far.near.path, 300) is None


def allow(home: Home, connections: bool) -> None:
    """Let the ledger's database be asked, or not."""
    name = make_url(home.ledger.log.database.url).database
    server().execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {connections}")
    if not connections:
        home.ledger.log.database.close()
        server().execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


@pytest.mark.server
def test_a_server_goes_on_with_new_processes_and_is_started_anew_while_its_database_is_away(trained, tmp_path):
    """One of its serving processes is killed, then all of it is started again: nobody who predicts notices, and what is
    asked of the ledger is refused until it is back.
    """
    path = ledgers.copy_on_postgresql(trained, tmp_path / "home")
    path.chmod(0o700)
    place_of, port = place(path), free_port()
    home, command = Home.open(place_of), [sys.executable, "-m", "serving.cli", "serve", "--workers", "2"]
    try:
        with running(path, [*command, "--port", str(port)], port, tmp_path, warm.Popen, **place_of) as door:
            allow(home, False)
            (killed, *_) = door.processes("dpserve-serving")
            killed.kill()
            until(lambda: len(set(door.processes("dpserve-serving")) - {killed}) == 2, "another one serves")
            until(lambda: door.log.read_text().count("predicting by what was seen") == 1, "it has begun")
            assert {door.predict().status_code for _ in range(20)} == {200}
            assert door.get("/readyz").json()["ledger"] == state.NOT_ASKED
        with door.log.open("ab") as out:
            door.process = warm.Popen(
                [*command, "--port", str(port)], tmp_path, environment(path, **place_of), out, out
            )
        until(door.ready, "it is ready without its database")
        assert {door.predict().status_code for _ in range(10)} == {200}
        assert (door.get("/v1/jobs").status_code, "the home cannot be opened" in door.log.read_text()) == (503, True)
        allow(home, True)
        until(lambda: door.get("/v1/jobs").status_code == 200, "all is asked again")
        assert door.stop() == 0
    finally:
        home.ledger.log.database.close()


def test_a_worker_by_itself_waits_for_its_database_and_does_not_end_with_it(trained, tmp_path):
    """It is started while the database is away, which goes away again while it waits for jobs."""
    path = ledgers.copy_on_postgresql(trained, tmp_path / "home")
    home = Home.open(place(path))
    asked = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8})

    def queued_ones_are_issued() -> bool:
        return job.submit(home, asked, by="test").seq and until(
            lambda: {each.public_state for each in home.ledger.jobs()} == {"issued"}, "the job is issued"
        )

    allow(home, False)
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "serving.cli", "worker"]
        worker = warm.Popen(command, tmp_path, {**os.environ, **place(path)}, out, out)
    try:
        for sentence in ("the home cannot be opened", "the queue cannot be read"):
            until(lambda sentence=sentence: sentence in log.read_text(), sentence)
            assert worker.poll() is None
            allow(home, True)
            assert queued_ones_are_issued()
            if sentence == "the home cannot be opened":
                allow(home, False)
    finally:
        worker.send_signal(signal.SIGTERM)
        home.ledger.log.database.close()
    assert worker.wait(60) == 0
    assert log.read_text().count("the queue cannot be read") == 1
