"""`dpserve dataset guide` on a pseudo-terminal: the messy table as it comes, registered by answering questions."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import warm
from ledgers import ROOT
from pseudo_terminal import talk

from accountant.home import Home
from serving.cli.app import run
from training.rows.schema.schema import parse_schema

ANSWERS = [
    ("Columns to predict", "readmitted, nothing"), ("nothing: no such column.*Columns to predict", "readmitted, cost"),
    ("readmitted: its classes", "no, yes"), ("cost: its classes", "0 .. 30000 leave-out"),
    ("More columns to ignore", "died, stay_days, ward"), ("insurance_no, numeric", ""),
    ("visit_date, date", "2019-01-01 .. 2024-12-31"),
    ("birth_date, date", "1930-01-01 .. 2015-12-31"), ("sex, categorical", "female, male"),
    ("region, categorical", "north, east, south, west"),
    (r"lab_001 \.\. lab_185 \(185\), numeric", "0 .. 120"),
    ("Approximate number of rows", ""), ("an answer is needed.*Approximate number of rows", "6120"),
    ("May name people: patient_id.*One person", ""), ("an answer is needed.*One person", "patient_id"),
    (r"Rows of one person.*\[1\]", "4"), ("epsilon in all", ""), ("an answer is needed.*epsilon in all", "3"),
    ("delta in all", ""), ("an answer is needed.*delta in all", "1e-6"),
    ("times in 100.*kept aside", ""), ("an answer is needed.*kept aside", "none"),
    (r"The same by one command.*Register it now.*\[no\]", "yes"),
]  # fmt: skip


@pytest.mark.slow
def test_the_messy_table_is_registered_by_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = {**os.environ, "DPSERVE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "examples" / "messy.py", "messy.csv", "said.yaml"], check=True)
    subprocess.run([sys.executable, "-m", "serving.cli", "init"], env=home, check=True, capture_output=True)
    seen = talk([sys.executable, "-m", "serving.cli", "dataset", "guide", "messy.csv"], tmp_path, home, ANSWERS)
    assert re.search(r"visit_date +date +YYYY-MM-DD or DD.MM.YYYY +feature", seen)
    assert re.search(r"lab_001 \.\. lab_185 \(185\) +numeric +decimal either +feature", seen)
    assert re.search(r"patient_id +unit\?", seen)
    assert "--unit patient_id --contributions 4 --epsilon 3 --delta 1e-6 --holdout none" in seen
    assert re.search(r"dpserve plan messy --epsilon 0.3 --target readmitted\s.*price +epsilon 0.3", seen, re.S)
    schema = parse_schema((tmp_path / "messy.yaml").read_bytes())
    assert schema.target_names == ("readmitted", "cost")
    assert len(schema.features) == 185 + 7
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    dataset = Home.open().ledger.dataset("messy")
    assert (dataset.registration.unit.column, dataset.registration.unit.contributions) == ("patient_id", 4)


@pytest.fixture
def terminal(tmp_path):
    """Say a command of dpserve on a terminal, with a home of its own, and answer its questions."""
    Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    environment = {**os.environ, "DPSERVE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}

    def say(*command, answers=(), code=0):
        program = [*warm.python(), "-m", "serving.cli", "dataset", *command]
        return talk(program, tmp_path, environment, answers, code=code)

    return say


def test_a_range_is_a_range_and_nothing_more_is_asked_once_the_file_does_not_fit(tmp_path, terminal):
    rows = "".join(f"{1000 + row},{row % 7},{'no' if row % 2 else 'yes'}\n" for row in range(40))
    (tmp_path / "rents.csv").write_text(f"rent,rooms,late\n{rows}")
    answers = [
        ("Columns to predict", "late"), ("late: its classes", "no, yes"), ("More columns to ignore", "none"),
        ("rent, numeric", "0 - 10"), ("rooms, numeric", "1, 7"), ("1 .. 7 for the range, or values.*rooms", "[1, 7]"),
        ("Approximate number of rows", "about 40"), ("write a whole number.*Approximate number of rows", "40"),
    ]  # fmt: skip
    seen = terminal("guide", "rents.csv", answers=answers, code=2)
    assert re.search(r"rent +numeric +feature +1000 \| 1001 \| 1002 \| 1003 \| 1004\s", seen)
    assert re.search(r"rent +- +100.0 % +- +- +-\s", seen)
    assert "100% of the cells lie outside of the range" in seen
    assert "dpserve schema check rents.yaml --data rents.csv" in seen
    assert "One person is named" not in seen
    assert "literal" not in seen
    assert parse_schema((tmp_path / "rents.yaml").read_bytes()).ends == {"rent": (0, 10), "rooms": (1, 7)}


def test_what_becomes_of_the_cells_is_shown_on_a_terminal_before_anything_is_entered(tmp_path, terminal):
    rows = "".join(f"{row},{'no' if row % 2 else 'yes'}\n" for row in range(40))
    (tmp_path / "rents.csv").write_text(f"rent,late\n{rows}")
    schema = (
        "target: {name: late, classes: [no, yes]}\nrecords: 40\nfeatures: {rent: {type: numeric, range: [0, HIGH]}}\n"
    )
    for high in (10, 100):
        (tmp_path / f"{high}.yaml").write_text(schema.replace("HIGH", str(high)))
    register = ["register", "rents", "--data", "rents.csv", "--unit", "record", "--epsilon", "1", "--delta", "0"]
    question = [("Half of the cells or more lie outside of the range: rent.*Register rents so", "no")]
    seen = terminal(*register, "--schema", "10.yaml", answers=question, code=2)
    assert re.search(r"rent +27.5 % +72.5 % +- +- +-\s", seen)
    assert not Home.open({"DPSERVE_HOME": str(tmp_path / "home")}).ledger.datasets()
    seen = terminal(*register, "--schema", "100.yaml")
    assert seen.index("CELLS OF") < seen.index("of the budget used")
    home = Home.open({"DPSERVE_HOME": str(tmp_path / "home")})
    assert [dataset.registration.name for dataset in home.ledger.datasets()] == ["rents"]
    assert "say another --name" in terminal("guide", "rents.csv", code=2)  # before anything is asked
    (tmp_path / "flats.yaml").write_text(schema)
    keep = [("flats.yaml exists; write over it", "no")]
    assert "COLUMNS" not in terminal("guide", "rents.csv", "--name", "flats", answers=keep, code=2)
    assert not [path for path in home.path.rglob("*") if path.is_file() and b"CELLS OF" in path.read_bytes()]


def test_elsewhere_it_names_the_commands_that_say_the_same(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert run(["dataset", "guide", str(tmp_path / "a.csv")]) == 2
    told = capsys.readouterr().err
    assert all(each in told for each in ("--data", "--schema", "--unit", "--epsilon", "--family"))
