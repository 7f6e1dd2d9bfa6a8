"""A month as one command: rows are appended, a model is trained on them, evaluated and placed; killed between any two
steps it is asked again, and nothing is appended or charged twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from serving.cli.app import run
from training.datasets.datasets import register

ROWS = 400
SCHEMA = """
target: {name: ill, classes: ["no", "yes"]}
records: 400
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  ward: {type: categorical, values: [a, b]}
ignore: [person]
"""
JOB = ["--records", "400", "--learner", "lazybb", "--set", "rounds=4", "--epsilon", "0.2", "--evaluate", "0.25"]
MONTH = [*JOB, "--blocks", "last:2", "--promote"]
STEPS = {  # what a process that is killed was about to do
    "nothing is entered": "accountant.ledger.block_appending.append",
    "the block is entered": "training.jobs.job.submit",
    "the job is reserved": "training.jobs.job.run",
    "the model is certified": "training.jobs.job._run_measurement",
}
KILLED = """
import importlib, os, sys
from serving.cli.app import run
import training.jobs.renewal
name, _, function = sys.argv[1].rpartition(".")
def end(*arguments, **more):
    if len(arguments) < 4 or arguments[3] is None:  # of `append`: the real one, and no rehearsal
        os.kill(os.getpid(), 9)
    return real(*arguments, **more)
module = importlib.import_module(name)
real = getattr(module, function)
setattr(module, function, end)
run(sys.argv[2:])
"""


def month(folder: Path, number: int) -> Path:
    """Rows of a month: people who come again, of an illness that comes with age."""
    law, path = np.random.default_rng(number), folder / f"{number}.parquet"
    age = np.round(law.uniform(0, 100, ROWS), 3)
    ill = np.where(age + law.normal(0, 15, ROWS) > 50, "yes", "no")
    people = law.integers(0, 300, ROWS)
    pq.write_table(pa.table({"person": people, "age": age, "ward": law.choice(["a", "b"], ROWS), "ill": ill}), path)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    for name, value in place(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    made = Home.init()
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    register(
        made, "visits", month(tmp_path, 1), tmp_path / "visits.yaml", Budget.of("2", "0.000001"), Relation.ADD_REMOVE,
        "person", 2, holdout=Decimal("0.2"),
    )  # fmt: skip
    return made


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def kinds(home: Home) -> list[str]:
    return [home.ledger.log.entry(seq).value["type"] for seq in range(home.ledger.log.size())]


def test_a_month_that_is_killed_between_any_two_steps_is_charged_once(home, tmp_path, capsys):
    rows = str(month(tmp_path, 2))
    code, told = ask(capsys, "renew", "visits", "--data", rows, *MONTH, "--plan")
    assert (code, told["window"], told["evaluation"]["window"]) == (0, [1, 2], [1, 2])
    assert "dataset-appended" not in kinds(home)
    for step in STEPS.values():
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, step, "renew", "visits", "--data", rows, *MONTH], env=os.environ, timeout=300
        )
        assert killed.returncode == -signal.SIGKILL, step
    code, done = ask(capsys, "renew", "visits", "--data", rows, *MONTH)
    assert (code, done["block"], done["window"], done["version_state"]) == (0, 2, [1, 2], "champion")
    assert done["evaluated"]["worth"]["better"] in (True, False)
    entries = kinds(home)
    assert [entries.count(kind) for kind in ("dataset-appended", "reserved", "issued", "evaluated")] == [1, 2, 1, 1]
    assert done["left"] == {name: value for name, value in told["left"].items() if name != "jobs"}
    assert ask(capsys, "renew", "visits", "--data", rows, *MONTH)[1]["job"] == done["job"]
    assert len(kinds(home)) == len(entries)
    assert audit_home(home).ok


def test_a_month_that_would_not_be_admitted_appends_nothing(home, tmp_path, capsys):
    """The total of one person over all blocks ends: the month is refused with its rows outside, and the one before it
    is still answered by what stands.
    """
    dear = [*JOB, "--blocks", "last:2", "--epsilon", "0.9"]
    months = [str(month(tmp_path, number)) for number in (2, 3, 4, 5)]
    codes = [ask(capsys, "renew", "visits", "--data", rows, *dear)[0] for rows in months]
    assert codes == sorted(codes)
    made = codes.count(0)
    assert 0 < made < 4
    assert set(codes[made:]) == {3}
    assert home.ledger.dataset("visits").last == 1 + made
    assert ask(capsys, "renew", "visits", "--data", str(month(tmp_path, made + 1)), *dear)[0] == 0
    assert home.ledger.dataset("visits").last == 1 + made
    code, planned = ask(capsys, "renew", "visits", "--data", "none.parquet", *dear, "--plan")
    assert (code, planned["error"]["code"]) == (3, "budget_refused")
