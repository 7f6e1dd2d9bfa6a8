"""`dpserve dataset guide` on a pseudo-terminal: the messy table as it comes, registered by answering questions."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
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
    ("Rows, about", ""), ("an answer is needed.*Rows, about", "6120"),
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


def test_elsewhere_it_names_the_commands_that_say_the_same(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert run(["dataset", "guide", str(tmp_path / "a.csv")]) == 2
    told = capsys.readouterr().err
    assert all(each in told for each in ("--data", "--schema", "--unit", "--epsilon", "--family"))
