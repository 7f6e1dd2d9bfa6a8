"""A kill (SIGKILL) at any step costs, never saves: nothing is under-counted, the ledger verifies, jobs are settled."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import ledgers
import pytest
from charged import check_charged
from crash_driver import Driver, files
from ledgers import copy, place, prepared

from accountant.audit.audit import audit_home
from accountant.errors import JobFailed, NameTaken, WrongState
from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.system.files import holding, open_directory
from models.store import placing
from models.store.bundle import ModelStore
from models.store.decisions import BEGUN
from serving.cli.backends.home.ledger import HomeLedger
from training.datasets.datasets import register
from training.finish.lease import this_process
from training.jobs import job
from training.planning import plans
from training.planning.job_views import job_to_json
from training.requests import JobRequest

pytestmark = [pytest.mark.slow, pytest.mark.home("prepared", folder=True)]

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8})
KILLS = int(os.environ.get("ROBUST_KILLS", "24"))  # the long form: 600
OF_ONE = 40


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()


def drawn(home: Path) -> int:
    """How many releases children have begun to draw."""
    draws = home.parent / "draws"
    return draws.stat().st_size if draws.exists() else 0


def settle(home: Path, draws: int) -> tuple[Home, dict[str, list[int]]]:
    """Open, recover, and look at everything that a crash must not have spoiled."""
    opened = Home.open(place(home))
    check_charged(opened, ASKED, draws)  # before anything is cleaned up
    found = job.recover(opened)
    check_charged(opened, ASKED, draws)
    assert job.recover(opened) == {"burned": [], "released": [], "finished": [], "stuck": []}
    assert [folder.name for folder in opened.jobs.iterdir() if folder.name.isdigit()] == []
    assert {each.state.value for each in opened.ledger.jobs()} <= {"released", "burned", "committed"}
    assert all(each.issued is not None for each in opened.ledger.jobs() if each.state == "committed")
    report = audit_home(opened, ledgers.bundles(home))
    assert report.problems == ()
    assert len(ledgers.bundles(home)) == sum(each.issued is not None for each in opened.ledger.jobs())
    return opened, found


def state_of(opened: Home) -> str | None:
    """What became of the one job: nothing, or its last state."""
    jobs = opened.ledger.jobs()
    assert len(jobs) <= 1
    return None if not jobs else "issued" if jobs[0].issued is not None else jobs[0].state.value


POINTS = {
    # where the process dies -> what the job is in the end
    "accountant.ledger.ledger:Ledger.reserve:before:1": None,
    "accountant.ledger.ledger:Ledger.reserve:after:1": "released",
    "accountant.ledger.ledger:Ledger.start:before:1": "released",
    "accountant.ledger.ledger:Ledger.start:after:1": "burned",
    "training.kinds.job_steps:open_rows:after:1": "burned",
    "training.session.session:Session.release:before:1": "burned",
    "training.session.session:Session.release:after:1": "burned",
    "training.session.session:Session.release:after:4": "burned",
    "training.session.session:Session.close:after:1": "burned",
    "training.finish.release:replace_file:before:1": "burned",
    "dpserve_verify.system.files:sync_directory:before:1": "burned",
    "training.kinds.training_steps:keep:after:1": "burned",
    "accountant.ledger.ledger:Ledger.commit:before:1": "burned",
    "accountant.ledger.ledger:Ledger.commit:after:1": "issued",
    "training.finish.release:_envelope:before:1": "issued",
    "training.finish.release:_envelope:after:1": "issued",
    "accountant.ledger.ledger:Ledger.issue:before:1": "issued",
    "accountant.ledger.ledger:Ledger.issue:after:1": "issued",
    "training.finish.release:bundle_of:after:1": "issued",
    "models.store.bundle:_publish:before:1": "issued",
    "models.store.bundle:_publish:after:1": "issued",
    "models.store.bundle:ModelStore.promote:before:1": "issued",
    "models.store.bundle:ModelStore.add:after:1": "issued",
    "training.finish.release:discard:before:1": "issued",
    "training.finish.release:discard>shutil:rmtree:before:1": "issued",
    "training.finish.release:discard>os:unlink:after:1": "issued",
    "training.finish.release:discard>os:unlink:after:2": "issued",
    "training.finish.release:discard:after:1": "issued",
    "training.kinds.training_steps:finish:after:1": "issued",
    # inside and around each of the four transactions (where the tables are there, none comes before)
    "accountant.store.store:Tree.append:before:1": None,
    "accountant.store.store:Tree.append:after:1": None,
    "sqlalchemy:Connection.commit:before:1": None,
    "sqlalchemy:Connection.commit:after:1": "released",
    "accountant.log.last_seen:LockedMark.advance:before:1": "released",
    "accountant.log.last_seen:LockedMark.advance:after:1": "released",
    "accountant.store.store:Tree.append:after:2": "released",
    "sqlalchemy:Connection.commit:before:2": "released",
    "sqlalchemy:Connection.commit:after:2": "burned",
    "accountant.log.last_seen:LockedMark.advance:before:2": "burned",
    "accountant.log.last_seen:LockedMark.advance:after:2": "burned",
    "accountant.store.store:Tree.append:after:3": "burned",
    "accountant.log.last_seen:LockedMark.advance:before:3": "issued",
    "accountant.store.store:Tree.append:after:4": "issued",
    "accountant.log.last_seen:LockedMark.advance:before:4": "issued",
    "dpserve_verify.log.notes:sign_checkpoint:after:4": "issued",
}


WRITES = [point for point in POINTS if "Tree.append" in point or "Connection.commit" in point or "advance" in point]


@pytest.mark.parametrize("point", WRITES)
def test_killed_at_on_postgresql(driver, tmp_path, point):
    """Every write again, where the database is another process that goes on."""
    killed_at(driver, ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path / "home"), point)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(driver, home, point):
    killed_at(driver, home, point)


def killed_at(driver, home, point):
    assert driver.run("train", home, point) is None
    opened, found = settle(home, drawn(home))
    state = state_of(opened)
    assert state == POINTS[point]
    assert drawn(home) == 0 or state in ("burned", "issued")
    assert found["burned"] == [each.seq for each in opened.ledger.jobs() if state == "burned"]
    spent = opened.ledger.dataset("adult").most_used.used.pure
    assert (spent == 0) == (state in (None, "released"))
    job.train(opened, ASKED, by="test")  # life goes on
    assert audit_home(opened, ledgers.bundles(home)).problems == ()


BEFORE_IT_IS_CHAMPION = [
    "accountant.ledger.ledger:Ledger.issue:after:1",
    "training.finish.release:bundle_of:after:1",
    "models.store.bundle:_publish:before:1",
    "models.store.bundle:_publish:after:1",
    "models.store.bundle:ModelStore.add:after:1",
    "models.store.placing:newest_promotion:after:1",
    "models.store.placing:record:before:1",
    "accountant.store.store:Tree.append:after:5",
    "models.store.placing:record:after:1",
    "models.store.bundle:ModelStore.promote:before:1",
]


@pytest.mark.parametrize("point", [*BEFORE_IT_IS_CHAMPION, "models.store.bundle:ModelStore.promote:after:1"])
def test_killed_between_its_certificate_and_its_promotion(driver, tmp_path, point):
    """What is told is true at each moment, and it is promoted exactly once."""
    home = copy(ledgers.trained(), tmp_path / "home")  # adult@1 is champion, adult@2 a candidate
    assert driver.run("promote", home, point) is None
    opened = Home.open(place(home))
    store, made = ModelStore(opened.models), opened.ledger.jobs()[-1]
    told = job_to_json(opened, made)
    assert told["state"] == "issued"
    assert store.champion("adult") == (1 if point in BEFORE_IT_IS_CHAMPION else 3)
    champion = {"version": 3, "version_state": "champion"}
    assert told == {**told, "version": None, "version_state": None}  # it is not finished
    if point in BEFORE_IT_IS_CHAMPION and 3 in store.versions("adult"):
        standings = placing.versions_by_entry(opened, "adult").values()
        assert (3, "candidate") in standings
    assert job.recover(opened)["finished"] == [made.seq]
    assert job_to_json(opened, made) == {**told, **champion, "replaces": None}
    entries = [entry.value for entry in opened.ledger.log.entries() if entry.value["type"] == "model-promoted"]
    assert [(entry["version"], entry["replaces"], entry["by"]) for entry in entries] == [(3, 1, "test")]
    assert audit_home(opened, ledgers.bundles(home)).problems == ()


@pytest.mark.parametrize(
    ("task", "point", "done"),
    [
        ("place", "models.store.placing:record:before:1", False),
        ("place", "models.store.placing:record:after:1", True),
        ("place", "models.store.bundle:ModelStore.promote:after:1", True),
        ("retire", "models.store.placing:record:after:1", True),
    ],
)
def test_a_decision_that_is_killed_after_its_entry_is_done_by_whoever_recovers_or_audits(
    driver, tmp_path, monkeypatch, task, point, done
):
    for how in ("recovers", "audits", "decides"):
        home = copy(ledgers.trained(), tmp_path / how)  # adult@1 is champion, adult@2 a candidate
        monkeypatch.setenv("DPSERVE_HOME", str(home))
        assert driver.run(task, home, point) is None
        opened = Home.open(place(home))
        if how == "recovers":
            job.recover(opened)
        elif how == "audits":
            assert HomeLedger().audit([], None, lambda *_: None)[0].problems == ()
        else:
            placing.retire(opened, "adult@2", "old", "me")
        store = ModelStore(opened.models)
        assert store.champion("adult") == (2 if task == "place" and done else 1)
        assert store.retired("adult") == [1] * (task == "retire") + [2] * (how == "decides")
        assert audit_home(opened, ledgers.bundles(home)).problems == ()
        assert not (opened.models / "adult" / BEGUN).exists()


def test_who_recovers_waits_for_no_decision_and_stumbles_over_none(driver, tmp_path):
    home = copy(ledgers.trained(), tmp_path / "home")
    assert driver.run("place", home, "models.store.placing:record:after:1") is None
    opened = Home.open(place(home))
    store = ModelStore(opened.models)
    with holding(open_directory(opened.models / "adult")):  # a process that decides, and stands still
        job.recover(opened)
    assert store.champion("adult") == 1
    (opened.models / "adult" / BEGUN).write_text("torn")
    (opened.models / "adult" / "2").rename(tmp_path / "gone")
    job.recover(opened)
    assert store.champion("adult") == 1
    assert not (opened.models / "adult" / BEGUN).exists()


def test_what_was_decided_before_a_cut_job_is_finished_stands(driver, tmp_path):
    home = copy(ledgers.trained(), tmp_path / "home")
    assert driver.run("promote", home, "models.store.bundle:ModelStore.add:after:1") is None
    opened = Home.open(place(home))
    placing.promote(opened, "adult@2", "reviewed", "me")
    assert job.recover(opened)["finished"] == [opened.ledger.jobs()[-1].seq]
    assert ModelStore(opened.models).champion("adult") == 2
    assert job_to_json(opened, opened.ledger.jobs()[-1])["version_state"] == "candidate"


def test_a_child_that_is_not_killed_ends_well(driver, home):
    """Else every test here could pass for want of a point that is ever reached."""
    assert driver.run("train", home) == 0
    assert drawn(home) == len(plans.plan(Home.open(place(home)), ASKED).recipe.plan)
    opened, found = settle(home, drawn(home))
    assert state_of(opened) == "issued"
    assert found == {"burned": [], "released": [], "finished": [], "stuck": []}


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("accountant.ledger.ledger:Ledger.reserve:after:1", WrongState),
        ("accountant.ledger.ledger:Ledger.start:after:1", JobFailed),
        ("accountant.ledger.ledger:Ledger.commit:after:1", None),
    ],
)
def test_the_same_key_after_a_crash_spends_nothing_more(driver, home, point, error):
    driver.run("train", home, point)
    opened, _ = settle(home, drawn(home))
    (row,) = ledgers.raw(home).execute("SELECT idempotency_key FROM job")
    used = opened.ledger.dataset("adult").most_used.used
    if error is None:
        assert job.train(opened, ASKED, by="test", key=row[0])["state"] == "issued"
    else:
        with pytest.raises(error):
            job.train(opened, ASKED, by="test", key=row[0])
    assert opened.ledger.dataset("adult").most_used.used == used


def test_recovery_leaves_a_living_process_alone(driver, home):
    """A job that is held by a process that lives is neither burned nor given back."""
    opened = Home.open(place(home))
    planned = plans.plan(opened, ASKED)
    recipe, owner = planned.recipe, this_process()
    ours = (planned.request, recipe.unit, recipe.plan)
    held = opened.ledger.reserve(*ours, by="test", owner=owner).seq
    started = opened.ledger.reserve(*ours, by="test", owner=owner).seq
    opened.ledger.start(started, owner, 0.0)
    queued = opened.ledger.reserve(*ours, by="test").seq
    assert job.recover(opened) == {"burned": [], "released": [], "finished": [], "stuck": []}
    assert [opened.ledger.job(seq).state for seq in (held, started, queued)] == ["reserved", "started", "reserved"]


def test_killed_during_recovery_too(driver, home):
    """Recovery is cut as well, again and again, and comes to the same end."""
    assert driver.run("train", home, "accountant.ledger.ledger:Ledger.commit:after:1") is None
    for point in ("training.finish.release:_envelope:after:1", "accountant.ledger.ledger:Ledger.issue:after:1"):
        assert driver.run("recover", home, point) is None
    assert driver.run("recover", home, "models.store.bundle:ModelStore.add:after:1") is None
    opened, _ = settle(home, drawn(home))
    assert state_of(opened) == "issued"


@pytest.mark.slow
def test_killed_at_any_time(driver, tmp_path):
    """One kill after the other at random moments; the ledger grows, and its sums never fall behind. At least KILLS
    kills, and as many as it takes, on however busy a machine, until jobs were cut in more than one state. A new home
    after each OF_ONE, for all of a ledger is looked at after each kill.
    """
    moments = random.Random(20)
    states: list[str] = []
    whole = jobs = 0
    for kill in range(10 * KILLS):
        if kill % OF_ONE == 0:
            home = copy(prepared(), tmp_path / str(kill) / "home")
            begin = time.monotonic()
            assert driver.run("train", home) == 0
            whole = time.monotonic() - begin
        begin = time.monotonic()
        if driver.run("train", home, delay=moments.uniform(0.02, 1.05) * whole) == 0:
            whole = time.monotonic() - begin
        opened, _ = settle(home, drawn(home))
        states.append([job.state.value for job in opened.ledger.jobs()][-1])
        jobs = max(jobs, len(opened.ledger.jobs()))
        opened.ledger.log.database.close()
        if kill >= KILLS - 1 and jobs > 5 and len(set(states)) > 1:
            break
    assert jobs > 5
    assert len(set(states)) > 1
    print({"kills": len(states), "last states": Counter(states)})


INIT = [
    "accountant.store.store:Store.create:after:1",
    "accountant.keys.private_keys:KeyStore.create:before:1",
    "accountant.keys.private_keys:KeyStore.create:after:1",
    "accountant.ledger.ledger:Ledger.create:before:1",
    "accountant.log.last_seen:HighWater.advance:before:1",
    "accountant.log.last_seen:HighWater.advance:after:1",
    "accountant.store.store:Tree.append:after:1",
    "sqlalchemy:Connection.commit:before:2",
    "sqlalchemy:Connection.commit:after:2",
    "accountant.log.last_seen:LockedMark.advance:before:2",
    "accountant.log.last_seen:LockedMark.advance:after:2",
    "accountant.ledger.ledger:Ledger.create:after:1",
    "accountant.home:Home._with_trust_file:before:1",
    "accountant.home:Home._with_trust_file:after:1",
]


@pytest.mark.parametrize("point", INIT)
def test_a_first_start_that_was_cut_is_taken_up(driver, tmp_path, point):
    home = tmp_path / "home"
    assert driver.run("init", home, point) is None
    if not (home / "keys").exists():
        with pytest.raises(InputError, match="run `dpserve init` first"):
            Home.open(place(home))
        Home.init(place(home))
    opened = Home.open(place(home))
    assert audit_home(opened).problems == ()
    assert opened.ledger.log.size() == 1
    opened.ledger.register(ledgers.registration())
    assert audit_home(Home.open(place(home))).problems == ()


REGISTER = {
    "training.datasets.datasets:pack:after:1": False,
    "training.datasets.datasets:write_packed:after:1": False,
    "training.datasets.datasets:_check_new_rows:after:1": False,
    "accountant.ledger.ledger:Ledger.register:before:1": False,
    "accountant.store.store:Tree.append:after:1": False,
    "accountant.log.last_seen:LockedMark.advance:before:1": True,
    "accountant.ledger.ledger:Ledger.register:after:1": True,
    "training.datasets.datasets:note:before:1": True,
}


@pytest.mark.parametrize("point", REGISTER)
def test_a_registration_that_was_cut_is_whole_or_can_be_made_again(driver, tmp_path, point):
    Home.init(place(tmp_path / "home")).ledger.log.database.close()
    assert driver.run("register", tmp_path / "home", point) is None
    opened = Home.open(place(tmp_path / "home"))
    assert audit_home(opened).problems == ()
    again = (files() / "rows.parquet", files() / "schema.yaml", ledgers.TOTAL, Relation.ADD_REMOVE, None)
    if REGISTER[point]:
        with pytest.raises(NameTaken):
            register(opened, "second", *again)
    else:
        assert opened.ledger.datasets() == []
        register(opened, "second", *again)
    assert job.train(opened, JobRequest("second", "lazybb", "0.05"), by="test")["state"] == "issued"
    assert audit_home(opened, ledgers.bundles(opened.path)).problems == ()
