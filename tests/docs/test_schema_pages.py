"""docs/reference/schema.md names every key; the messy table's page runs as it stands, in one shell on a terminal."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace

import pytest
import warm
import yaml
from ledgers import ROOT
from pages import blocks, newcomers
from pseudo_terminal import talk
from table_story import stranger_in

from examples import messy
from training.datasets.file_check import check_file
from training.rows.schema import declared, schema
from training.rows.schema.schema import parse_schema

PAGE = ROOT / "docs" / "reference" / "schema.md"


def test_the_page_names_every_key_and_its_example_is_a_schema():
    text = PAGE.read_text()
    models = (
        schema._File, schema._Target, schema._Question, declared.Numeric, declared.Categorical, declared.Boolean,
        declared.Calendar, declared.Format,
    )  # fmt: skip
    keys = {key for model in models for key in model.model_fields}
    assert {key for key in keys if not re.search(rf"^\|[^|]*`{key}`[^|]*\|", text, re.M)} == set()
    example, dates = re.findall(r"```yaml\n(.*?)```", text, re.S)
    parse_schema(example.encode())
    parse_schema(f"target: {{name: y, classes: [a, b]}}\nrecords: 9\n{dates}".encode())
    assert {*yaml.safe_load(example)} <= keys


@pytest.mark.slow
def test_the_messy_table_from_the_draft_to_a_model(tmp_path):
    """`make install` is taken as done here, and is a line all the same: make wheel-test runs it, and all of this."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = f"""make() {{ [ "$*" = install ]; }}
dpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}
python() {{ {sys.executable} "$@"; }}
"""
    script = "set -e\n" + programs + "\n".join(blocks("docs/tutorials/messy.md", "sh"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    seen = talk(["bash", "-c", script], tmp_path, environment)
    commands = ["git clone", "cd", *newcomers()]  # from an empty machine to the first certified model, a line each
    assert all(line.startswith(("dpserve ", "python ", "export ")) for line in commands[3:])
    assert commands[2] == "make install"
    assert len(commands) <= 12
    assert "messy.csv can be registered with messy.yaml" in seen
    assert "verified: messy: " in seen
    draft, said = (yaml.safe_load((tmp_path / name).read_text()) for name in ("draft.yaml", "messy.yaml"))
    left_out = {"patient_id", "insurance_no", "record_uuid", "comment", "diagnosis_text"}
    assert left_out - {"insurance_no", "diagnosis_text"} <= set(draft["ignore"]) <= left_out
    for name in ("visit_date", "birth_date"):
        assert draft["features"][name].get("written") == said["features"][name]["written"]
    assert draft["features"]["visit_time"]["type"] == "time"
    assert draft["features"]["smoker"] == {"type": "boolean"}
    assert [draft["features"][f"lab_{at:03}"].get("decimal") for at in (1, 2)] == ["either", None]
    assert len(draft["features"]) + len(draft["ignore"]) == 202


SPELLINGS = {
    **messy.SPELLINGS,
    "french with narrow blanks": replace(messy.SPELLINGS["french"], encoding="utf-8", mark="\u202f"),
}


@pytest.mark.slow
@pytest.mark.parametrize("country", SPELLINGS)
def test_the_messy_table_as_a_spreadsheet_of_another_country_writes_it(tmp_path, monkeypatch, capsys, country):
    """The steps of the page, with fewer rows and columns."""
    spelling, person = SPELLINGS[country], stranger_in(tmp_path, monkeypatch, capsys)
    for name, size in {"ROWS": 600, "PATIENTS": 200, "LABS": 12}.items():
        monkeypatch.setattr(messy, name, size)
    rows, schema_file = tmp_path / "messy.csv", tmp_path / "messy.yaml"
    messy.write(rows, spelling)
    schema_file.write_text(messy.schema_in(spelling), "utf-8")
    draft = yaml.safe_load(person.draft(rows, "--data"))
    usual = (
        {} if spelling.encoding == "utf-8" else {"encoding": "cp1252"}
    )  # the better known name of two that are alike
    assert draft["format"] == {"delimiter": ";", **usual}
    assert draft["features"]["visit_date"]["written"] == [spelling.pattern]
    assert draft["features"]["smoker"] == {"type": "boolean"}
    assert [draft["features"][name].get("decimal") for name in ("lab_001", "stay_days")] == [",", ","]
    assert draft["features"]["cost"].get("thousands") == {".": None}.get(spelling.mark, " ")  # 1.234: it is asked
    person.type("schema", "check", schema_file, "--data", rows)
    budget = ("--epsilon", 3, "--delta", "1e-6", "--unit", "patient_id", "--contributions", 4)
    person.type("dataset", "register", "messy", "--data", rows, "--schema", schema_file, *budget)
    job = ("messy", "--target", "ward", "--learner", "lazybb", "--epsilon", 1, "--set", "rounds=2")
    person.type("plan", *job)
    person.type("train", *job)
    home = tmp_path / "home"
    assert (
        "verified: messy: "
        in person.type("verify", home / "models" / "messy" / "1", "--trust", home / "trust.json").out
    )
    labels = {row["label"] for row in person.predict("messy", rows)}
    assert labels <= {spelling.words[ward] for ward in messy.WARDS}
    made_up = tmp_path / "messy.made-up.csv"
    person.type("schema", "sample", "--schema", schema_file, "--rows", 200, "--out", made_up)
    person.type("schema", "check", schema_file, "--data", made_up)


SMALL = b"""
target: {name: y, classes: ["no", "yes"]}
records: 10
features: {a: {type: numeric, range: [0, 9]}, b: {type: boolean}, c: {type: categorical, values: [x]}}
ignore: [note]
"""


def found(tmp_path, content: bytes):
    (tmp_path / "rows.csv").write_bytes(content)
    return {
        (each.column, each.found): each.rows for each in check_file(parse_schema(SMALL), tmp_path / "rows.csv").problems
    }


def test_every_problem_is_told_at_once_by_the_rows_of_a_spreadsheet(tmp_path):
    rows = b'a,b,c,note,y\n1,yes,x,"two\nlines",no\n"1,5",x,q,t,yes\n03.04.2021,1,,t,perhaps\n7 mg,2,x,t,\n1,1,1\n'
    assert found(tmp_path, rows) == {
        ("a", "a number with a decimal comma"): [3],
        ("b", "a word for yes or no"): [3],
        ("a", "a date"): [4],
        ("y", "no class"): [4],
        ("a", "a number with a unit"): [5],
        ("b", "a number"): [5],
        ("y", "nothing"): [5],
        ("", "a row with more or fewer cells than the first one"): [6],
    }
    assert found(tmp_path, b"a,b,c,note,y\n1,yes,x,t,no\nNA,,,,yes\n") == {}
    assert found(tmp_path, b"a,b,c,more,y\n") == {("more", "a column that the schema does not speak of"): []}
    assert ("b", "no such column") in found(tmp_path, b"a,c,y\n1,x,no\n")
    semicolons = found(tmp_path, b"a;b;c;note;y\n1,5;yes;x;t;no\n")
    assert semicolons == {("", "columns parted by ';'"): [], ("a", "a number with a decimal comma"): [2]}
    assert ("", "text that is not UTF-8 (read here as cp1252)") in found(
        tmp_path, "a,b,c,note,y\n1,1,é,t,no\n".encode("cp1252")
    )
