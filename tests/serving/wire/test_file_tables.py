"""Files that only the reader of files knows: read in a program of its own, as `dpserve predict` reads them."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from datetime import date

import ledgers
import pytest
import warm
from in_process import Site
from workbooks import write_workbook

from accountant.home import Home
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.written import Form
from serving.rest import models
from serving.wire import file_tables, work_time
from serving.wire.errors import TooLarge
from serving.wire.file_tables import ending_of, table_of_file

FEATURES = (NumericFeature("age", (30.0,)), CategoricalFeature("job", ("cook", "nurse")), BooleanFeature("own"))
ROWS = [["id", "age", "job", "own", "day"], ["007", 20, "cook", True, date(2026, 1, 1)], ["p2", None, "", None, None]]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine takes longer to start a program than a request may take."""
    monkeypatch.setattr(work_time, "WORK_SECONDS", 120.0)


@pytest.fixture
def book(tmp_path):
    return write_workbook(tmp_path / "people.xlsx", {"People": ROWS}).read_bytes()


def test_a_workbook_is_read_as_files_are_and_what_is_kept_comes_along(book):
    table, kept = table_of_file(book, ".xlsx", FEATURES, USUAL_FORMAT, 9, "id")
    cells = {name: column.to_pylist() for name, column in table.columns.items()}
    assert cells["age"] == [20, None]
    assert (cells["job"], cells["own"], kept) == (["cook", None], [True, None], ["007", "p2"])
    assert len(cells) == len(FEATURES) + 1  # other columns are passed over
    assert table_of_file(book, ".xlsx", FEATURES, USUAL_FORMAT, 9, "age")[1] == ["20", ""]  # as it stands


BOUNDED = """
import sys
from training.datasets import one_file

def confine(bounds):
    print(len(one_file.quotes.follow.signatures))
    sys.exit(0)

one_file.confine = confine
one_file.main()
"""


@pytest.mark.slow
def test_what_follows_quotes_is_compiled_before_the_bounds_are_set(tmp_path):
    """They leave no room for a compiler, and let it keep nothing: where nothing was compiled before, every file with a
    quote was refused.
    """
    raw = b'id,age,job,own\n"a\nb",20,cook,true\n"c, d",21,nurse,false\n'
    for name, content in (("one.csv", raw), ("one.csv.gz", gzip.compress(raw))):
        (tmp_path / name).write_bytes(content)
        command = [sys.executable, "-c", BOUNDED, str(tmp_path / name), "{}"]
        done = subprocess.run(command, cwd=file_tables.PROGRAM.parents[2], capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
        table, kept = table_of_file(content, name[3:], FEATURES, USUAL_FORMAT, 9, "id")
        assert (table.columns["age"].to_pylist(), kept) == ([20, 21], ["a\nb", "c, d"])


@pytest.mark.slow
def test_what_cannot_be_read_is_refused_in_words(book, tmp_path, monkeypatch):
    warm.read_files_by_forks(monkeypatch)
    two = write_workbook(tmp_path / "two.xlsx", {"A": ROWS, "B": ROWS}).read_bytes()
    absent = (*FEATURES, NumericFeature("height", (30.0,)))
    for raw, ending, features, why in (
        (b"PK\x03\x04junk", ".xlsx", FEATURES, "cannot be read as a workbook"),
        (b"", ".xlsx", FEATURES, "cannot be read as a workbook"),
        (two, ".xlsx", FEATURES, "2 sheets that hold cells"),
        (book, ".xlsx", absent, "height"),
        (book, ".sav", FEATURES, "save it"),
    ):
        with pytest.raises(InputError, match=why):
            table_of_file(raw, ending, features, USUAL_FORMAT, 9)
    assert table_of_file(two, ".xlsx", FEATURES, TableFormat(Form(sheet="B")), 9)
    with pytest.raises(TooLarge, match="more than 1 records"):
        table_of_file(book, ".xlsx", FEATURES, USUAL_FORMAT, 1)
    with pytest.raises(InputError, match="must be text, records of JSON"):
        table_of_file(bytes(99), ending_of("people.exe"), FEATURES, USUAL_FORMAT, 9)
    for raw, name in ((book, "people"), (two, "../../etc/B.xlsx")):
        assert table_of_file(raw, ending_of(name), FEATURES, TableFormat(Form(sheet="B" if raw is two else "")), 9)
    assert [ending_of(name) for name in ("a", "a/../x.b/c", "2024.v1.CSV.gz")] == [".file", ".b", ".csv.gz"]
    assert file_tables.PROGRAM.exists()


def test_the_door_predicts_a_workbook_as_it_predicts_records(tmp_path, monkeypatch):
    for name, value in ledgers.place(ledgers.copy(ledgers.trained(), tmp_path / "home")).items():
        monkeypatch.setenv(name, value)
    home = Home.open()
    site = Site(home, models.DOORS)
    secret = site.token("shop", "predict")
    (name, *_) = site.bear(secret, "GET", "/v1/models").json()["models"]
    features = site.bear(secret, "GET", f"/v1/models/{name['model']}").json()["features"]
    record = {feature["name"]: None for feature in features}
    said = site.bear(secret, "POST", "/predict", json={"model": name["model"], "records": [record] * 2}).json()
    sheet = [["id", *record], ["=1+1", *record.values()], ["b", *record.values()]]
    raw = write_workbook(tmp_path / "x.xlsx", {"People": sheet}).read_bytes()
    headers = {"Content-Type": "application/octet-stream", "Accept": "text/csv"}
    at = f"/predict?model={name['model']}&file=x.xlsx"
    answer = site.bear(secret, "POST", f"{at}&keep=id", content=raw, headers=headers)
    lines = list(csv.reader(io.StringIO(answer.text)))
    assert [line[:2] for line in lines[1:]] == [
        ["'=1+1", str(said["predictions"][0])],
        ["b", str(said["predictions"][1])],
    ]
    at, odd = at.replace("xlsx", "exe"), bytes(range(256))  # a workbook is one by whatever name
    assert [site.bear(secret, "POST", at, content=each, headers=headers).status_code for each in (raw, odd)] == [
        200,
        400,
    ]
    home.ledger.log.database.close()
