"""No living job is burned: whoever looks, from whichever namespace, by whatever clock. One that stood still for longer
than its lease may be; then it notices, and neither draws nor commits.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import alive_driver
import ledgers
import psutil
import pytest
import warm
from ledgers import copy, place, prepared
from small_home import until

from accountant.audit.audit import audit_home
from accountant.errors import JobFailed, WrongState
from accountant.home import Home
from accountant.system.life import LIFE, STILL_SECONDS
from dpserve_verify.errors import LedgerUnavailable
from training.finish import lease
from training.finish.lease import Lease, lives, this_process
from training.jobs import job, queue
from training.kinds import job_steps
from training.planning import job_views
from training.planning.job_views import job_to_json
from training.requests import JobRequest

pytestmark = pytest.mark.home("prepared", folder=True)

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8})
IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def namespaces_can_be_made() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*IN_A_NAMESPACE, "true"], check=False).returncode


namespaces = pytest.mark.skipif(not namespaces_can_be_made(), reason="no process namespaces can be made here")


@pytest.fixture
def start():
    """Starts tests/helpers/alive_driver.py, in a process namespace of its own or here; it is ready on return."""
    running = []

    def begin(task: str, home: Path, apart: bool = True, **options) -> warm.Popen:
        driver = [sys.executable, alive_driver.__file__, task, str(home), json.dumps({**options, "apart": apart})]
        reading, writing = os.pipe()
        with open(writing, "w") as out, open(2, "w", closefd=False) as errors:
            running.append(warm.Popen(driver, home.parent, dict(os.environ), out, errors))
        running[-1].stdout = open(reading)  # noqa: SIM115  closed below
        assert running[-1].stdout.readline() == "ready\n"
        return running[-1]

    yield begin
    for each in running:
        tell(each, signal.SIGCONT)
        each.kill()
        each.wait()
        each.stdout.close()


def tell(process: warm.Popen, number: signal.Signals) -> None:
    """To the first process of the driver's namespace, where it has one, and to who made it."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            for each in (*psutil.Process(process.pid).children(), psutil.Process(process.pid)):
                each.send_signal(number)


def answer(process: warm.Popen) -> object:
    return json.loads(process.stdout.readline())


def drawn(home: Path) -> int:
    draws = home.parent / "draws"
    return draws.stat().st_size if draws.exists() else 0


def until_drawn(home: Path, count: int) -> None:
    until(lambda: drawn(home) >= count, f"{count} draws")


def stand_still(holder: warm.Popen, home: Path) -> None:
    """Stopped, and not in the middle of writing: nobody writes to SQLite while a stopped process holds its lock."""
    while True:
        tell(holder, signal.SIGSTOP)
        with closing(sqlite3.connect(home / "ledger.db", timeout=0.5)) as ledger:
            try:
                ledger.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                tell(holder, signal.SIGCONT)
                time.sleep(0.05)


def check_sound(home: Path) -> Home:
    opened = Home.open(place(home))
    assert audit_home(opened, ledgers.bundles(home)).problems == ()
    return opened


@namespaces
@pytest.mark.slow
def test_a_living_job_is_left_alone_from_other_namespaces(home, start):
    """Same host, same boot id; its process number is another process there, or none."""
    holder = start("train", home, pause=0.25)
    until_drawn(home, 1)
    here, there = (start("recover", home, apart, seconds=2.0) for apart in (False, True))
    assert (answer(here), answer(there)) == ([], [])
    assert answer(holder) == "issued"
    check_sound(home)


@namespaces
@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_clocks_an_hour_apart_burn_no_living_job(tmp_path, start, database):
    """An hour ahead and an hour behind, in two homes at once: both mostly wait."""
    homes = [tmp_path / name / "home" for name in ("ahead", "behind")]
    for home in homes:
        home.parent.mkdir()
        if database == "sqlite":
            copy(prepared(), home)
        else:
            ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), home)
    holders = [start("train", home, pause=0.5, shift=shift) for home, shift in zip(homes, (3600, -3600), strict=True)]
    for home in homes:
        until_drawn(home, 1)
    settling = [start("recover", home, seconds=6.0, grace=2.5) for home in homes]
    assert [answer(each) for each in settling] == [[], []]
    assert [answer(holder) for holder in holders] == ["issued", "issued"]
    for home in homes:
        check_sound(home)


@namespaces
@pytest.mark.slow
def test_who_stood_still_for_longer_than_the_lease_neither_draws_nor_commits(home, start):
    holder = start("train", home, pause=2.0, lease=2.0, grace=1.0)
    until_drawn(home, 2)
    stand_still(holder, home)
    before = drawn(home)
    settled = answer(start("recover", home, first=True, grace=1.0))
    (burned,) = Home.open(place(home)).ledger.jobs()
    assert settled == [burned.seq]
    used = Home.open(place(home)).ledger.dataset("adult").most_used.used
    assert burned.state == "burned"
    tell(holder, signal.SIGCONT)
    found = answer(holder)["error"]
    assert found["code"] == "job_failed"
    assert "burned by another" in found["message"]
    assert drawn(home) == before
    opened = check_sound(home)
    assert opened.ledger.dataset("adult").most_used.used == used
    assert opened.ledger.job(burned.seq).state == "burned"
    assert [folder.name for folder in opened.jobs.iterdir() if folder.name.isdigit()] == []


@pytest.mark.slow
def test_who_stands_still_where_it_can_be_seen_goes_on_afterwards(home, start):
    holder = start("train", home, apart=False, pause=0.25, lease=2.0, grace=1.0)
    until_drawn(home, 2)
    stand_still(holder, home)
    assert answer(start("recover", home, apart=False, seconds=5.0, grace=1.0)) == []
    tell(holder, signal.SIGCONT)
    assert answer(holder) == "issued"
    check_sound(home)


@namespaces
@pytest.mark.slow
def test_who_was_killed_elsewhere_is_burned_when_the_lease_ran_out(home, start):
    holder = start("train", home, pause=0.25, lease=2.0)
    until_drawn(home, 1)
    tell(holder, signal.SIGKILL)
    (seq,) = [each.seq for each in Home.open(place(home)).ledger.jobs()]
    assert answer(start("recover", home, first=True, grace=1.0)) == [seq]
    check_sound(home)


@namespaces
@pytest.mark.slow
def test_two_workers_in_two_namespaces_share_a_home(home, start):
    opened = Home.open(place(home))
    queued = {job.submit(opened, ASKED, by="test").seq for _ in range(2)}
    workers = [start("work", home) for _ in range(2)]
    assert {answer(each) for each in workers} <= queued
    while queue.work_once(opened) is not None:  # both may have gone for the same one
        pass
    assert {each.public_state for each in opened.ledger.jobs()} == {"issued"}
    check_sound(home)


def test_an_owner_is_told_from_every_other():
    ours = this_process()
    host, spaces, pid, began, word = ours.split(":")
    assert ours == this_process()
    assert lives(ours) is True
    assert lives(f"{host}:{spaces}:{pid}:{int(began) + 1}:{word}") is False  # the number was used before
    assert lives(f"{host}:{spaces}:{2**22 - 1}:{began}:{word}") is False
    assert lives(f"{host}:1-1:{pid}:{began}:{word}") is None
    assert lives(f"other:{spaces}:{pid}:{began}:{word}") is None
    assert lives(f"{host}:{pid}:1.00") is None
    assert lives("owner:1:1") is None


def test_the_start_of_a_process_does_not_move_with_the_clock(monkeypatch):
    ours = this_process()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: 0.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert this_process() == ours


def test_a_fork_is_another_owner():
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.write(writing, this_process().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(reading, 300).decode()
    os.close(reading), os.close(writing)
    assert theirs.split(":")[2] == str(pid)
    assert theirs.split(":")[4] != this_process().split(":")[4]
    assert lives(theirs) is False


@pytest.mark.parametrize("write", ["commit", "burn"])
def test_a_job_whose_end_could_not_be_written_is_settled_by_the_worker_that_lives_on(home, monkeypatch, write):
    """The database was away just then: the job stood as started for as long as this process lived."""
    opened = Home.open(place(home))
    queued = job.submit(opened, ASKED, by="test")
    with monkeypatch.context() as patch:
        if write == "burn":
            patch.setattr(job_steps, "open_rows", lambda *_: 1 / 0)
        patch.setattr(type(opened.ledger), write, lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
        with pytest.raises(LedgerUnavailable):
            job.run(opened, queued.seq)
        with pytest.raises(JobFailed, match=r"had started .* away; its budget is spent") as told:
            job.train(opened, ASKED, by="test")
    assert opened.ledger.job(queued.seq).state == "started"
    assert job.recover(opened)["burned"] == [queued.seq, told.value.details["job"]]
    check_sound(home)


class Away:
    """A ledger that cannot be asked, and then says what it is told to."""

    def __init__(self, *answers: bool | None) -> None:
        self.answers = list(answers)

    log = SimpleNamespace(database=SimpleNamespace(url="away"))

    def heartbeat(self, *_: object) -> bool:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if found is None:
            raise LedgerUnavailable("away")
        return found


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(Lease, "BEAT", 0.02)
    monkeypatch.setattr(Lease, "FRESH", 0.05)


def test_a_moment_without_the_database_does_not_end_a_lease(quick):
    with Lease(Away(None, None, True), 1) as held:
        time.sleep(0.1)  # it is not fresh any more
        held.check()  # waits until it is renewed


def test_the_lease_of_who_stands_still_is_not_renewed(quick, monkeypatch):
    """Its thread alone does not keep it; a process that goes on has it again, where nobody took it."""
    asked = []
    ledger = Away(True)
    monkeypatch.setattr(ledger, "heartbeat", lambda *_: asked.append(1) or True, raising=False)
    with Lease(ledger, 1) as held:
        until(lambda: asked, "it is renewed")
        LIFE.last()
        LIFE._at -= STILL_SECONDS + 1
        time.sleep(0.1)  # what was on its way is there
        count = len(asked)
        time.sleep(0.2)
        assert len(asked) == count
        held.check()
        assert len(asked) > count


@pytest.mark.slow
def test_a_lease_that_is_lost_or_cannot_be_renewed_forbids_the_draw(quick, monkeypatch):
    with Lease(Away(True, False), 1) as held:
        until(held._lost.is_set, "the ledger is asked twice")
        with pytest.raises(WrongState, match="not held by this process any more"):
            held.check()
    monkeypatch.setattr(Lease, "SECONDS", 0.4)
    with Lease(Away(None), 1) as held:
        time.sleep(0.1)
        with pytest.raises(LedgerUnavailable):
            held.check()


def test_every_draw_asks_first(home, monkeypatch):
    """Burned by another in the middle: no draw comes after, the job fails, its price stays."""
    opened = Home.open(place(home))
    queued = job.submit(opened, ASKED, by="test")
    asked = []

    def check(self: Lease) -> None:
        asked.append(1)
        if len(asked) == 3:
            opened.ledger.burn(queued.seq, "interrupted")
            raise WrongState("not held")

    monkeypatch.setattr(lease.Lease, "check", check)
    assert queue.work_once(opened) == queued.seq
    assert len(asked) == 3
    assert opened.ledger.job(queued.seq).state == "burned"
    assert opened.ledger.dataset("adult").most_used.used.rdp[0] > 0
    check_sound(home)


def missing_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def missing_file(folder: Path) -> None:
    (folder / "bins.npy").unlink()


def changed_file(folder: Path) -> None:
    raw = bytearray((folder / "labels.npy").read_bytes())
    raw[-1] ^= 1
    (folder / "labels.npy").write_bytes(raw)


@pytest.mark.parametrize("harm", [missing_folder, missing_file, changed_file])
def test_a_worker_that_cannot_read_the_rows_leaves_the_job_to_one_that_can(home, tmp_path, caplog, harm):
    whole = Home.open(place(home))
    queued = job.submit(whole, ASKED, by="test")
    (folder,) = whole.datasets.iterdir()
    other = tmp_path / "other"
    shutil.copytree(home, other)
    (other / "database.url").write_text(f"sqlite:///{home / 'ledger.db'}")
    harm(other / "datasets" / folder.name)
    without, told = Home.open(place(other)), set()
    with caplog.at_level(logging.WARNING, "dpserve.worker"):
        assert [queue.work_once(without, told) for _ in range(3)] == [None] * 3
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith(f"job {queued.seq}: left for another worker; dataset=adult: its rows are not in this home")
    body = job_to_json(whole, whole.ledger.job(queued.seq))
    assert (body["state"], body["waiting"]) == (
        "reserved", "a worker cannot read the dataset's rows where it runs; the job waits for one that can",
    )  # fmt: skip
    if harm is not missing_folder:  # there the schema is missing as well, and nothing can be asked for
        with pytest.raises(LedgerUnavailable):
            job.train(without, ASKED, by="test")
    assert len(whole.ledger.jobs()) == 1
    assert queue.work_once(whole) == queued.seq
    body = job_to_json(whole, whole.ledger.job(queued.seq))
    assert (body["state"], body["waiting"]) == ("issued", None)
    check_sound(home)


def test_a_job_that_no_worker_takes_says_so(home, monkeypatch):
    """Not at once, where a worker may come, and not where the one that there is has other work."""
    opened = Home.open(place(home))
    first, second = (job.submit(opened, ASKED, by="test").seq for _ in range(2))

    def told(seq):
        return job_to_json(opened, opened.ledger.job(seq))["waiting"]

    assert told(first) is None
    monkeypatch.setattr(job_views, "UNTAKEN_SECONDS", -60.0)
    assert (
        told(first) == told(second) == "no worker has taken it, and none is at work: dpserve worker runs what is queued"
    )
    opened.ledger.start(first, "somebody", 60)
    assert (told(first), told(second)) == (None, None)


def test_a_job_whose_rows_cannot_be_read_does_not_hold_up_the_others(home, tmp_path):
    opened = Home.open(place(home))
    first = job.submit(opened, ASKED, by="test").seq
    assert opened.ledger.next_queued() == first
    assert opened.ledger.next_queued({"adult"}) is None
    assert opened.ledger.next_queued({"another"}) == first
