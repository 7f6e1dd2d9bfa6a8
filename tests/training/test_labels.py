"""A job that names labels is taken by a worker that has them all, and by no other; until then it says why it waits."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import UTC, datetime

import ledgers
import pytest
from in_process import Site
from ledgers import bundles, place, request, reserve
from pages_in_process import Pages, words
from sqlalchemy import update
from typer.testing import CliRunner

from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict
from accountant.home import Home
from accountant.ledger import job_rows
from accountant.ledger.families.records import MOST_LABELS, check_labels
from accountant.ledger.job_counts import queue as queue_now
from accountant.store.tables import job_table
from dpserve_verify.errors import InputError
from serving.cli.app import app
from serving.pages.parts.entry_text import told
from serving.process.config.settings import ServerSettings
from serving.process.watch.metrics import JobFigures, LedgerGauges, render
from serving.rest import evaluations, jobs, profiles, schedules
from training.jobs import job, queue, schedule
from training.measuring.profile.profile import AskedProfile
from training.measuring.worth.evaluate import AskedWorth
from training.planning.job_views import job_to_json
from training.planning.plans import Asked

pytestmark = pytest.mark.home("prepared")

ASKED = Asked("adult", "lazybb", "0.1", parameters={"rounds": 4})
WAITS = "a worker has not all of its labels; the job waits for one that has"
BAD = {
    "blank": [""],
    "space": [" "],
    "65 characters": ["x" * 65],
    "upper case": ["North"],
    "repeated": ["north", "north"],
    "another alphabet": ["nord\u00fc"],
    "two in one": ["north south"],
    "no text": [5],
    "nine": [f"label-{number}" for number in range(MOST_LABELS + 1)],
}


@pytest.fixture
def ledger(tmp_path, ledger_url):
    made = Home.init({"DPSERVE_HOME": str(tmp_path / "home"), "DPSERVE_LEDGER_URL": ledger_url})
    for name in ("adult", "other"):
        made.ledger.register(ledgers.registration(name))
    yield made.ledger
    made.ledger.log.database.close()


def asks(*labels: str, dataset: str = "adult"):
    return replace(request(dataset), labels=labels)


def test_each_job_goes_to_a_worker_that_has_all_of_its_labels(ledger):
    north, both, other, plain = (
        reserve(ledger, each).seq
        for each in (asks("north"), asks("large", "north"), asks("south", dataset="other"), asks())
    )

    def takes(*labels: str, **more) -> list[int]:
        found: list[int] = []
        while (seq := ledger.next_queued(passed=found, labels=labels, **more)) is not None:
            found.append(seq)
        return found

    assert takes() == [plain]
    assert takes("north") == [north, plain]
    assert takes("large", "north", "quick") == [north, both, plain]
    assert takes("large") == [plain]
    assert takes("north", "south", among=["other"]) == [other]
    assert takes("north", "south", without=["adult"]) == [other]

    database = ledger.log.database
    assert job_rows.leave_beyond(database, ["north"]) == [both, other]
    assert job_rows.leave_beyond(database, []) == [north]  # of the others it was said
    assert [ledger.job(seq).waiting for seq in (north, both, other, plain)] == ["labels"] * 3 + [None]
    assert queue_now(database, datetime.now(UTC)).left == {"labels": 3}
    ledger.start(both, "owner", 60.0)
    assert queue_now(database, datetime.now(UTC)).left == {"labels": 2}


def test_labels_stand_in_the_reservation_price_nothing_and_stay(ledger):
    first = reserve(ledger, asks("north"), key="once")
    second = reserve(ledger, asks())
    entries = [ledger.reservation(each.seq).value for each in (first, second)]
    assert [each.get("labels") for each in entries] == [["north"], None]
    assert [each[name] for name in ("price", "claim", "request") for each in entries[:1]] == [
        entries[1][name] for name in ("price", "claim", "request")
    ]
    assert reserve(ledger, asks("north"), key="once").seq == first.seq
    assert ledger.job(first.seq).labels == ("north",)
    for others in (asks(), asks("south"), asks("large", "north")):
        with pytest.raises(IdempotencyConflict, match="other labels"):
            reserve(ledger, others, key="once")
    assert " Only a worker labelled north takes it." in told(ledger.reservation(first.seq)).words
    assert "labelled" not in told(ledger.reservation(second.seq)).words


def test_a_row_that_sends_a_job_elsewhere_is_found(home):
    seq = job.submit(home, replace(ASKED, labels=["north"]), by="test").seq
    assert audit_home(home, bundles(home.path)).ok
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(job_table).where(job_table.c.seq == seq).values(labels=None))
    (problem,) = audit_home(home, bundles(home.path)).problems
    assert problem.startswith(f"index: job {seq}: has")


@pytest.mark.parametrize("labels", BAD.values(), ids=BAD)
def test_what_is_no_label_is_refused(labels):
    with pytest.raises(InputError, match="label"):
        check_labels(labels)


@pytest.mark.slow
def test_every_door_asks_whether_labels_are_labels_and_nothing_is_spent(home):
    entries = home.ledger.log.size()
    site = Site(home, [*jobs.DOORS, *evaluations.DOORS, *profiles.DOORS, *schedules.DOORS])
    token = site.token("ana", "train")
    base = {"dataset": "adult", "epsilon": "0.1", "labels": ["North"]}
    for path, more in (("/v1/jobs", {}), ("/v1/plans", {}), ("/v1/profiles", {}), ("/v1/schedules", {"name": "each"})):
        answer = site.bear(token, "POST", path, json=base | more)
        assert (answer.status_code, "label" in answer.text) == (400, True), (path, answer.text)
    for command in (["train", "adult", "--epsilon", "0.1"], ["worker", "--once"]):
        done = CliRunner().invoke(app, [*command, "--label", "North"])
        assert isinstance(done.exception, InputError), done.output
    assert home.ledger.log.size() == entries + 1  # the token
    assert home.ledger.jobs() == []
    assert schedule.schedules(home) == []


def test_a_worker_is_told_its_labels_by_flags_or_else_by_the_variable(monkeypatch):
    assert ServerSettings.given().labels == []
    monkeypatch.setenv("DPSERVE_WORKER_LABELS", "south,north")
    assert ServerSettings.given().labels == ["north", "south"]
    for wrong in ("North", "a,a", "a b", "a, b"):
        monkeypatch.setenv("DPSERVE_WORKER_LABELS", wrong)
        with pytest.raises(InputError, match="DPSERVE_WORKER_LABELS"):
            ServerSettings.given()


def test_it_waits_and_says_so_until_a_worker_comes_that_has_them(home):
    seq = job.submit(home, replace(ASKED, labels=["north"]), by="test").seq
    assert queue.work_once(home) is None
    body = job_to_json(home, home.ledger.job(seq))
    assert (body["state"], body["waiting"], body["labels"]) == ("reserved", WAITS, ["north"])
    shown = CliRunner().invoke(app, ["job", "show", str(seq)]).output
    lines = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert ["labels", "north"] in lines
    assert any(first == "waiting" for first, *_ in lines), shown
    exposed = render([LedgerGauges(home, JobFigures())]).decode()
    assert 'dpserve_queue_left{why="labels"} 1.0' in exposed
    assert 'dpserve_queue_left{why="rows"} 0.0' in exposed
    assert queue.work_once(home, labels=["south"]) is None
    plain = job.submit(home, ASKED, by="test").seq
    assert queue.work_once(home, labels=["south"]) == plain  # it takes those without labels
    assert queue.work_once(home, labels=["north", "south"]) == seq
    body = job_to_json(home, home.ledger.job(seq))
    assert (body["state"], body["waiting"]) == ("issued", None)
    assert audit_home(home, bundles(home.path)).ok


@pytest.mark.slow
def test_the_command_line_leaves_it_to_such_a_worker_and_waits(home):
    """Training, an evaluation and a profile, each under a label, by a worker that runs beside; a schedule as well."""
    stop = threading.Event()
    worker = threading.Thread(target=queue.work, args=(Home.open(place(home.path)), stop, (), ["north"]))
    worker.start()
    try:
        trained = job.train(home, replace(ASKED, labels=["north"]), by="test", key="once")
        again = job.train(home, replace(ASKED, labels=["north"]), by="test", key="once")
        worth = job.measure(home, AskedWorth("adult", "adult", "0.1", "training", labels=["north"]), by="test")
        counted = job.measure(home, AskedProfile("adult", "0.1", columns=("age",), labels=["north"]), by="test")
        known = job.measure(home, AskedProfile("adult", "0.1", columns=("age",)), by="test")
    finally:
        stop.set()
        worker.join()
    assert [each["state"] for each in (trained, worth, counted)] == ["issued"] * 3
    assert (trained["job"], trained["version"], known["job"]) == (again["job"], 1, counted["job"])
    assert worth["worth"]["model"] == "adult"
    assert counted["profile"]["columns"]
    assert all(home.ledger.job(each["job"]).queued for each in (trained, worth, counted))
    asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "labels": ["north"]}
    schedule.add(home, schedule.described(home, "each", "hour", asked, "cli:test"))
    (seq,) = schedule.submit_due(home)
    assert home.ledger.job(seq).labels == ("north",)
    assert audit_home(home, bundles(home.path)).ok


def test_the_form_of_a_job_asks_for_labels_and_its_page_shows_them(home):
    pages = Pages(home)
    typed = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "labels": " north, large "}
    shown = pages.page("/ui/jobs/new", params=typed)
    assert 'name="labels"' in shown.text
    (priced,) = re.findall(r'name="priced" value="([0-9a-f]{64})"', shown.text)
    sent = pages.send("/ui/jobs/new", **typed, priced=priced, idempotency_key="once")
    assert sent.status_code == 303, sent.text
    seq = int(sent.headers["location"].rpartition("/")[2])
    assert home.ledger.job(seq).labels == ("large", "north")
    assert queue.work_once(home) is None
    told = words(pages.page(f"/ui/jobs/{seq}"))
    assert "Labels large, north" in told
    assert WAITS.capitalize() in told
    assert "label" in words(pages.page("/ui/jobs/price", params=typed | {"labels": "North"}))
