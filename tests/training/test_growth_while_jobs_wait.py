"""A dataset grows while a training, its evaluation, a scheduled job and a job that is resumed wait: each reads and pays
for the blocks that it was reserved on, by real rows.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import bundles, place

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken
from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.datasets.growing.append import append
from training.jobs import job, queue
from training.jobs.schedule import add, make_schedule, submit_due
from training.kinds import job_steps
from training.requests import JobRequest

pytestmark = pytest.mark.slow

ROWS = 300
SCHEMA = (
    "target: {name: y, classes: ['no', 'yes']}\nrecords: 300\nfeatures:\n  c: {type: categorical, values: [old, new]}\n"
)
RESUMED = """
import os, sys
from accountant.home import Home
from training.jobs import job
job.run(Home.open(), int(sys.argv[1]), progress=lambda done, total: os.kill(os.getpid(), 9) if done == 3 else None)
"""


def certificate(home: Home, model: str) -> dict[str, Any]:
    """The predicate of the certificate of a model's first version."""
    (envelope,) = [envelope for name, envelope, _, _ in bundles(home.path) if name == f"{model}@1"]
    predicate: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))["predicate"]
    return predicate


class Site:
    """A home with one dataset, whose every open table is counted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.read = folder, list[int]()
        for name, value in place(folder / "home").items():
            monkeypatch.setenv(name, value)
        self.home = Home.init()
        (folder / "s.yaml").write_text(SCHEMA)
        opened = job_steps.open_rows

        def count(*arguments):
            rows = opened(*arguments)
            self.read.append(rows.size)
            return rows

        monkeypatch.setattr(job_steps, "open_rows", count)

    def rows(self, number: int) -> Path:
        path = self.folder / f"{number}.parquet"
        values = [f"{'new' if number > 1 else 'old'}"] * ROWS
        answers = ["yes" if (row * 7919 + number * 31) % 97 % 2 else "no" for row in range(ROWS)]
        pq.write_table(pa.table({"c": values, "y": answers}), path)
        return path

    def register(self, **more) -> None:
        total = Budget.of("2", "0")
        register(
            self.home, "v", self.rows(1), self.folder / "s.yaml", total, Relation.ADD_REMOVE, "record", **more
        )  # fmt: skip

    def append(self) -> None:
        number = (self.home.ledger.dataset("v").last or 1) + 1
        append(self.home, "v", self.rows(number), "steward", 300)

    def used(self, part: str | None = None) -> list[str]:
        families = self.home.ledger.dataset("v", None, part, "all").families
        return [f"{family.epsilon_of(family.used):.1f}" for family in families]


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.mark.parametrize("learner", [("forest", {"trees": 3}), ("lazybb", {"rounds": 5})])
def test_a_training_that_waits_reads_and_pays_for_block_1_and_its_certificate_says_so(site, learner):
    site.register()
    name, parameters = learner
    waits = job.submit(site.home, JobRequest("v", name, "0.9", parameters=parameters), by="ana").seq
    site.append()
    other = job.submit(
        site.home, JobRequest("v", name, "0.9", parameters=parameters, blocks="2", model="o"), by="bob"
    ).seq
    assert queue.work_once(site.home, set()) == waits
    assert site.read == [ROWS]
    assert site.used() == ["0.9", "0.9"]
    job.run(site.home, other)
    first, second = (certificate(site.home, model)["dataset"] for model in ("v", "o"))
    assert "blocks" not in first
    assert first["commitment"] == site.home.ledger.dataset("v").registration.commitment
    assert "blocks" in second
    report = audit_home(site.home, bundles(site.home.path))
    assert report.ok, report.problems


def test_a_job_that_waits_is_cancelled_and_every_list_still_reads(site):
    site.register()
    waits = job.submit(site.home, JobRequest("v", "forest", "0.5", parameters={"trees": 3}), by="ana").seq
    site.append()
    job.cancel(site.home, waits)
    assert [dataset.registration.name for dataset in site.home.ledger.datasets()] == ["v"]
    assert site.used() == ["0.0", "0.0"]
    assert audit_home(site.home).ok


def test_an_evaluation_that_was_reserved_with_its_training_waits(site):
    site.register(holdout=Decimal("0.4"))
    asked = JobRequest("v", "forest", "0.5", parameters={"trees": 3}, evaluate="0.7")
    training = job.submit(site.home, asked, by="ana").seq
    job.run(site.home, training)
    site.append()
    job.run(site.home, training + 1)
    assert site.used("holdout") == ["0.7", "0.0"]
    assert audit_home(site.home).ok


def test_a_scheduled_job_waits(site):
    site.register()
    rule = {"dataset": "v", "learner": "forest", "epsilon": "0.5", "parameters": {"trees": 3}, "blocks": "last:2"}
    add(site.home, make_schedule(site.home, "weekly", "week", rule, "cli:test", since=0, token=None))
    (seq,) = submit_due(site.home, lambda: 0)
    site.append()
    job.run(site.home, seq)
    assert site.read == [ROWS]
    assert site.used() == ["0.5", "0.0"]
    assert audit_home(site.home).ok


def test_a_job_that_is_resumed_reads_what_it_read_before(site, monkeypatch):
    """Killed after three releases; block 2 comes, and its whole total is taken by another; then it goes on."""
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    site.register()
    asked = JobRequest("v", "forest", "0.9", parameters={"trees": 60, "depth": 3})
    seq = job.submit(site.home, asked, by="ana").seq
    site.home.ledger.log.database.close()
    killed = subprocess.run([sys.executable, "-c", RESUMED, str(seq)], capture_output=True, env=dict(os.environ))
    assert killed.returncode == -9, killed.stderr
    site.append()
    job.train(site.home, JobRequest("v", "forest", "2", parameters={"trees": 3}, blocks="2", model="whole"), by="bob")
    site.read.clear()
    assert job.recover(site.home)["finished"] == [seq]
    assert site.read == [ROWS]
    assert site.used() == ["0.9", "2.0"]
    report = audit_home(site.home, bundles(site.home.path))
    assert report.ok, report.problems


@pytest.mark.parametrize("unit", ["patient", "record"])
def test_the_same_people_come_again_with_what_stays_of_them(tmp_path, monkeypatch, unit):
    """Ids, sex and town are as they were, what was measured is new: these are other rows, in another block."""
    site = Site(tmp_path, monkeypatch)
    (tmp_path / "v.yaml").write_text(
        "target: {name: y, classes: ['no', 'yes']}\nrecords: 300\nignore: [patient]\nfeatures:\n"
        "  sex: {type: categorical, values: [f, m]}\n  town: {type: categorical, values: [a, b, c]}\n"
        "  pressure: {type: numeric, range: [50, 250], bins: 8}\n"
    )
    law, people = np.random.default_rng(3), np.arange(ROWS)
    for month in (1, 2, 3):
        table = {
            "patient": [f"p{each}" for each in people],
            "sex": np.where(people % 2, "f", "m"),
            "town": np.array(["a", "b", "c"])[people % 3],
            "pressure": law.normal(130, 20, ROWS).round(2),
            "y": law.choice(["no", "yes"], ROWS),
        }
        pq.write_table(pa.table(table), tmp_path / f"month-{month}.parquet")
    first = tmp_path / "month-1.parquet"
    register(site.home, "v", first, tmp_path / "v.yaml", Budget.of("2", "0"), Relation.ADD_REMOVE, unit)
    for month in (2, 3):
        assert append(site.home, "v", tmp_path / f"month-{month}.parquet", "steward", 300).last == month
    with pytest.raises(NameTaken, match="block 2 of v|registered already, in v"):
        append(site.home, "v", tmp_path / "month-2.parquet", "steward", 300)
