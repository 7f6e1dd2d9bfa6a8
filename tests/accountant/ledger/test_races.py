"""Many processes at one ledger: what fits is admitted and no more, once, whoever asks first, on either database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import race_driver
import warm
from ledgers import ROOT, hexes, registration, request, reserve
from race_driver import CURVED, PURE, WHOLE
from stores import at

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.privacy.claims import claim
from dpserve_verify.privacy.budget import Budget

pytestmark = pytest.mark.slow

RACERS = int(os.environ.get("ROBUST_RACERS", "8"))  # the long form: 16

RACED = registration("raced", Budget(claim(WHOLE, Decimal("0.000001")).epsilon, Decimal("0.000001")))
DRIVER = Path(race_driver.__file__)


@pytest.fixture
def race(ledger_url, tmp_path):
    """Runs a task in many processes, half of them as if on another host."""

    def run(task: str, processes: int, tries: int = 1, **more) -> list:
        if (tmp_path / "home").exists() and not (tmp_path / "other").exists():
            shutil.copytree(tmp_path / "home" / "keys", tmp_path / "other" / "keys")
        homes = [at(tmp_path / name, ledger_url) for name in ("home", "other")]
        (tmp_path / task).mkdir()
        asked = {"task": task, "homes": homes, "processes": processes, "tries": tries, "folder": str(tmp_path / task)}
        done = subprocess.run(
            [*warm.python(), str(DRIVER)], input=json.dumps(asked | more), capture_output=True, text=True, timeout=300,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [outcome for each in json.loads(done.stdout) for outcome in each]

    return run


@pytest.fixture
def home(ledger_url, tmp_path):
    opened = Home.init(at(tmp_path / "home", ledger_url))
    opened.ledger.register(registration())
    opened.ledger.register(registration("pure", Budget.of("0.7")))
    opened.ledger.register(RACED)
    yield opened
    opened.ledger.log.database.close()


def used(home: Home, dataset: str) -> str:
    return describe_budget(home.ledger.dataset(dataset))["reserved"]["pure"]


def test_the_last_of_a_budget(home, race):
    """Four requests of each process for what fits seven times."""
    outcomes = race("reserve", processes=RACERS, tries=4)
    assert Counter(map(type, outcomes)) == {int: 7, str: 4 * RACERS - 7}
    assert Counter(each for each in outcomes if isinstance(each, str)) == {"budget_refused": 4 * RACERS - 7}
    assert sorted(each for each in outcomes if isinstance(each, int)) == [job.seq for job in home.ledger.jobs()]
    assert used(home, "pure") == "0.7"
    assert audit_home(home).problems == ()


def test_the_last_of_a_budget_counted_in_curves(home, race):
    """The same where a Renyi order decides: as many as one process alone would be admitted."""
    dataset = home.ledger.dataset("adult")
    fitting = dataset.jobs_left(dataset.costs(CURVED), claim(CURVED, Decimal("0.000001")))
    assert 0 < fitting < 6 * RACERS
    outcomes = race("reserve_curve", processes=RACERS, tries=6)
    assert Counter(isinstance(each, int) for each in outcomes) == {True: fitting, False: 6 * RACERS - fitting}
    assert audit_home(home).problems == ()


def test_one_alone_takes_the_whole_total(home, race):
    """Three requests of each process, each of which would take the whole of it, or a small part."""
    outcomes = race("reserve_whole", processes=RACERS, tries=3)
    jobs = [each for each in outcomes if isinstance(each, int)]
    whole = [seq for seq in jobs if "whole" in home.ledger.reservation(seq).value]
    assert set(map(str, outcomes)) - set(map(str, jobs)) == {"budget_refused"}
    assert jobs
    assert whole in ([], jobs)  # no other beside it, and none where another was first
    home.ledger.register(registration("again", RACED.budget, commitment=hexes("again")))
    (seq,) = [each for each in race("reserve_again", processes=RACERS) if isinstance(each, int)]
    assert home.ledger.dataset("again").families[0].whole.job == seq
    assert audit_home(home).problems == ()


def test_one_idempotency_key(home, race):
    """Three tries of each process: one job, one price."""
    outcomes = race("reserve_with_key", processes=RACERS, tries=3)
    (job,) = home.ledger.jobs()
    assert outcomes == [job.seq] * (3 * RACERS)
    assert home.ledger.log.size() == 5
    assert audit_home(home).problems == ()


def test_one_process_alone_may_start_a_job(home, race):
    job = reserve(home.ledger, request("pure", "0.1", "0"), PURE).seq
    assert Counter(race("start", processes=RACERS, job=job)) == {job: 1, "wrong_state": RACERS - 1}
    assert audit_home(home).problems == ()


def test_a_job_is_started_or_released(home, race):
    """What was given back was never started: else rows could be read for nothing."""
    job = reserve(home.ledger, request("pure", "0.1", "0"), PURE).seq
    outcomes = Counter(race("release_or_start", processes=RACERS, job=job))
    assert outcomes in ({job: 1, "wrong_state": RACERS - 1}, {"released": 1, "wrong_state": RACERS - 1})
    state = home.ledger.job(job).state
    assert state == ("started" if job in outcomes else "released")
    assert audit_home(home).problems == ()


def test_one_name_is_given_once(home, race):
    assert Counter(map(type, race("register", processes=RACERS))) == {int: 1, str: RACERS - 1}
    assert len(home.ledger.datasets()) == 4
    home.ledger.register(registration("two", commitment=hexes("two")))
    assert audit_home(home).problems == ()


def test_the_same_people_registered_at_one_moment_have_one_budget(ledger_url, race, tmp_path):
    """Six processes of two homes register parts of the same rows: one founds a family. The others of its home find the
    rows there; the other home has not what they are known by, and asks."""
    home = Home.init(at(tmp_path / "home", ledger_url))
    random, files = np.random.default_rng(0), tmp_path / "files"
    rows = pa.table({name: random.normal(size=4000) for name in ("y", "x1", "x2")})
    files.mkdir()
    head = "target: {name: y, range: [-9, 9]}\nrecords: 4000\nfeatures:\n"
    (files / "schema.yaml").write_text(
        f"{head}  x1: {{type: numeric, range: [-9, 9]}}\n  x2: {{type: numeric, range: [-9, 9]}}"
    )
    for number in range(6):
        pq.write_table(rows.take(random.permutation(4000)[number:]), files / f"{number}.parquet")
    outcomes = race("register_rows", processes=6, files=str(files))
    (winner,) = [number for number, outcome in enumerate(outcomes) if outcome == f"part{number}"]
    expected = ["name_taken" if number % 2 == winner % 2 else "bad_input" for number in range(6)]
    assert outcomes == [*expected[:winner], f"part{winner}", *expected[winner + 1 :]]
    assert [each.registration.name for each in home.ledger.datasets()] == [f"part{winner}"]
    folders = [path for name in ("home", "other") for path in (tmp_path / name / "datasets").iterdir()]
    assert len(folders) == 1
    assert audit_home(home).problems == ()


def test_tables_are_made_once(race):
    assert race("create", processes=RACERS) == ["created"] * RACERS
