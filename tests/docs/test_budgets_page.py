"""Every command of docs/budgets.md and docs/growing.md, as it stands, in one shell, on small files."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from ledgers import ROOT
from small_home import dpserve

SCHEMA = """target: {name: again, classes: ["no", "yes"]}
records: 400
features:
  age: {type: numeric, range: [0, 100], bins: 8}
"""


def table(first: int, **more) -> pa.Table:
    people = [f"p{(first + row) // 3}" for row in range(400)]
    ages, again = [(row + first) % 90 for row in range(400)], ["yes" if row % 3 else "no" for row in range(400)]
    return pa.table({"patient": people, "age": ages, "again": again, **more})


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    (tmp_path / "joined.yaml").write_text(SCHEMA + "  pay: {type: numeric, range: [0, 9000], bins: 4}\n")
    for number, name in enumerate(("stays", "new")):
        pq.write_table(table(number * 7), tmp_path / f"{name}.parquet")
    pq.write_table(table(50).drop_columns(["patient"]), tmp_path / "visits.parquet")
    pq.write_table(table(3, pay=[20 * row for row in range(400)]), tmp_path / "joined.parquet")
    payroll = table(5).set_column(0, "patient", pa.array([f"e{row // 3}" for row in range(400)]))
    pq.write_table(payroll, tmp_path / "payroll.parquet")
    for week in (1, 2, 3):  # the same people
        people = pa.array([f"c{row // 3}" for row in range(400)])
        pq.write_table(table(19 * week).set_column(0, "patient", people), tmp_path / f"week-{week}.parquet")
    dpserve(tmp_path / "home", "init")
    asked = ["--epsilon", "2", "--delta", "1e-6", "--unit", "patient"]
    data = ["--data", str(tmp_path / "payroll.parquet"), "--schema", str(tmp_path / "visits.yaml")]
    done = dpserve(tmp_path / "home", "dataset", "register", "payroll", *data, *asked)
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_pages_runs(folder):
    text = "".join((ROOT / "docs" / name).read_text() for name in ("budgets.md", "growing.md"))
    script = "set -e\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    assert script.count("dpserve ") == 19
    (folder / "table.csv").write_text("stay,count\n1,20\n")
    home = folder / "home"
    environment = {**os.environ, "DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = ["bash", "-c", f'dpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}\n' + script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {name: shown_dataset(home, name) for name in ("stays", "stays-2027", "stays-and-pay", "payroll")}
    assert {each["epsilon"] for each in shown.values()} == {"2"}
    assert shown["stays-and-pay"]["families"] == [shown["stays"]["family"], shown["payroll"]["family"]]
    assert (shown["stays-2027"]["version"], shown["stays"]["contributions"]) == (2, 4)
    assert shown["stays"]["quotas"] == [
        {"analyst": "*", "quota": "0.1", "used": "0.000000"},
        {"analyst": "token:alice", "quota": "0.25", "used": "0.000000"},
    ]
    trained = dpserve(home, "train", "stays-and-pay", "--learner", "lazybb", "--epsilon", "0.5", "--json")
    assert trained.returncode == 3, trained.stderr  # above a tenth of the budget
    assert json.loads(trained.stdout)["error"]["details"]["reason"] == "quota"
    trained = dpserve(home, "train", "stays-and-pay", "--learner", "lazybb", "--epsilon", "0.1", "--json")
    assert trained.returncode == 0, trained.stderr
    assert all(shown_dataset(home, name)["budget"]["spent"]["pure"] != "0" for name in ("stays", "payroll"))
    blocks = shown_dataset(home, "clinic")["blocks"]
    assert (blocks["last"], blocks["dropped"], [each["block"] for each in blocks["listed"]]) == (3, 1, [2, 3])
    assert "1 to 2" in done.stdout
    person = shown_dataset(home, "clinic")["person"]
    assert (person["total"]["epsilon"], float(person["left"]["share"]) < 1) == ("4", True)
    assert "over all blocks that will ever come" in dpserve(home, "dataset", "show", "clinic").stdout
    assert dpserve(home, "ledger", "audit").returncode == 0


def shown_dataset(home: Path, name: str):
    return json.loads(dpserve(home, "dataset", "show", name, "--json").stdout)
