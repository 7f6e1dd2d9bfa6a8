"""The recipe "Add a field to a job" of docs/extending.md, walked through with a toy: what a job is for, a text that
the ledger enters. REST, command line, client, form and schedules take it, and the auditor reads it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ledgers import copy, prepared

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "dpserve_verify",
    "accountant",
    "models",
    "training",
    "local",
    "dpserve_cluster",
    "dpserve_platform",
    "serving",
    "dpserve",
)
AFTER = (
    "    idempotency_key: Key = None\n\n\n@dataclass(frozen=True, config=CLOSED)\nclass ScheduleRequest(JobRequest):\n"
)
FIELD = """    purpose: Annotated[
        Text | None,
        Field(description="what the model is for; it stands in the ledger permanently"),
        Control("What it is for"),
    ] = None
"""
WINDOW = "    window: Window | None = field(default=None, compare=False)\n"
KEY = "    idempotency_key: str | None  # the same key with the same request is the same job, and spends once\n"
EVERY = "    every: str  # hour, day, week or month; week when left out\n"

# (file, what stands there, what stands there then), by the numbers of the recipe
BLOCKS = "    blocks: Text | None = form_field(absent=True)\n"
STEPS = {
    1: [("training/requests/__init__.py", AFTER, f"{FIELD}{AFTER}")],
    2: [("accountant/ledger/families/records.py", WINDOW, f"    purpose: str | None = None\n{WINDOW}")],
    3: [("dpserve_verify/entries/jobs.py", BLOCKS, f"    purpose: Text | None = form_field(absent=True)\n{BLOCKS}")],
    4: [
        ("dpserve/types.py", KEY, f"{KEY}    purpose: str | None\n"),
        ("dpserve/types.py", EVERY, f"{EVERY}    purpose: str | None\n"),
    ],
}

WALK = """
import json, sys
import httpx
import accountant
from in_process import Site
from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.families.records import request_from_entry
from dpserve import Client, types
from serving.app import DOORS
from serving.cli.app import run
from serving.pages.job_form import Form
from serving.rest.openapi import openapi
from training.jobs import schedule
from training.requests import JobRequest, ScheduleRequest
from training.requests.base import request_fields
from pages_in_process import Pages

home = Home.open()
job = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 3}}
pages = Pages(home)
site = Site(home, DOORS)
secret = site.token("ana", "train")


class Bridge(httpx.BaseTransport):
    def handle_request(self, request):
        answer = site.ask(request.method, request.url.raw_path.decode(), dict(request.headers), content=request.read())
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


before = home.ledger.log.size()
answer = site.bear(secret, "POST", "/v1/jobs", json={**job, "model": "rest", "purpose": "by REST"})
assert answer.status_code == 202, answer.text
wrong = site.bear(secret, "POST", "/v1/plans", json={**job, "purpose": 5})
assert wrong.json()["error"]["message"] == "purpose: must be a text"
told = openapi(DOORS)["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
assert told["properties"]["purpose"]["description"].startswith("what the model is for")

flags = ["--epsilon", "0.1", "--learner", "lazybb", "--set", "rounds=3", "--purpose", "by command"]
flags += ["--model", "command"]
assert run(["train", "adult", *flags]) == 0
assert run(["schedule", "add", "weekly", "--dataset", "adult", *flags]) == 0
(kept,) = schedule.schedules(home)
assert kept.asked["purpose"] == "by command"

with Client("http://ledger.example:3000", secret, transport=Bridge()) as service:
    service.submit("adult", "lazybb", "0.1", parameters={"rounds": 3}, model="client", purpose="by client")

fields = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "p.rounds": "3"}
fields |= {"model": "form", "purpose": "by form"}
assert 'name="purpose"' in pages.page("/ui/jobs/new").text
sent = pages.send("/ui/jobs/new", "train", **fields, priced=Form.of(fields.items()).digest, idempotency_key="one")
assert sent.status_code == 303, sent.text

entries = [home.ledger.log.entry(seq).value for seq in range(before, home.ledger.log.size())]
reserved = {each["model"]: each.get("purpose") for each in entries if each["type"] == "reserved"}
assert reserved == {name: f"by {name if name != 'rest' else 'REST'}" for name in ("rest", "command", "client", "form")}
assert {request_from_entry(each).purpose for each in entries if each["type"] == "reserved"} == set(reserved.values())
print(json.dumps({
    "house": accountant.__file__,
    "problems": [str(each) for each in audit_home(home).problems],
    "client": [
        sorted({*said.__annotations__} ^ {field.name for field in request_fields(kind)})
        for said, kind in ((types.JobFields, JobRequest), (types.ScheduleFields, ScheduleRequest))
    ],
}))
"""


def take(house: Path, step: int) -> None:
    for name, before, after in STEPS[step]:
        text = (house / name).read_text("utf-8")
        assert text.count(before) == 1, (name, before)
        (house / name).write_text(text.replace(before, after), "utf-8")


def run_walk(house: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Send the field through every door of that house."""
    path = os.pathsep.join(map(str, (house, ROOT / "tests" / "helpers", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "DPSERVE_HOME": str(home)}
    command = [sys.executable, "-c", WALK]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, timeout=1200)


def walk(house: Path, home: Path) -> dict[str, Any]:
    """Return what the walk prints at its end, once every door has taken the field."""
    done = run_walk(house, home)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms."""
    folder = tmp_path_factory.mktemp("house")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_recipe_names_the_files_that_the_walk_edits():
    text = (ROOT / "docs" / "extending.md").read_text("utf-8").split("## Add a field to a job")[1].split("\n## ")[0]
    for step, edits in STEPS.items():
        line = text.split(f"\n{step}. ")[1]
        assert {f"`{name}`" for name, _, _ in edits} == {line.split(":")[0]}


@pytest.mark.slow
def test_a_new_field_of_a_job_is_four_files(house, tmp_path):
    assert len({name for edits in STEPS.values() for name, _, _ in edits}) <= 5
    for step in (1, 2):
        take(house, step)
    unread = run_walk(house, copy(prepared(), tmp_path / "early"))
    assert "not written, as an audit would refuse it" in unread.stderr
    assert "reserved: must have exactly the fields" in unread.stderr
    take(house, 3)
    untyped = walk(house, copy(prepared(), tmp_path / "late"))
    assert untyped["house"].startswith(str(house))
    assert untyped["client"] == [
        ["dataset", "epsilon", "learner", "purpose"],
        ["dataset", "epsilon", "name", "purpose"],
    ]
    take(house, 4)
    done = walk(house, copy(prepared(), tmp_path / "home"))
    assert done["problems"] == []
    assert done["client"] == [["dataset", "epsilon", "learner"], ["dataset", "epsilon", "name"]]
