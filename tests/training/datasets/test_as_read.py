"""How many rows were read, and categories that are written otherwise than listed, are said and asked before anything is
registered: by the check, the command line and drafts.
"""

from __future__ import annotations

import pytest
import yaml

from accountant.home import Home
from dpserve_verify.errors import InputError
from serving.cli.app import run
from training.datasets.drafts.registering import register_requested
from training.datasets.file_check import check_file
from training.requests.registration import RegistrationRequest
from training.rows.schema.schema import parse_schema
from training.rows.tables.column_counts import ColumnCount
from training.rows.tables.near_misses import NearMisses

BODY = {
    "target": {"name": "y", "classes": ["no", "yes"]},
    "records": 400,
    "features": {"a": {"type": "numeric", "range": [0, 400]}, "s": {"type": "categorical", "values": ["Ulm", "07"]}},
}
# How many rows, of which cells of s so many are written as here; the questions, and what takes each of them away.
READ = {
    "as declared": (400, 0, "Ulm", {}, {}),
    "about as many": (270, 0, "Ulm", {}, {}),
    "far fewer": (151, 0, "Ulm", {"151 rows read, and the schema declares about 400: far fewer": {"records": 151}}, {}),
    "far more": (700, 0, "Ulm", {"700 rows read, and the schema declares about 400: far more": {"records": 700}}, {}),
    "three of 400 in capitals": (400, 3, "ULM", {}, {}),
    "four of 400 in capitals": (400, 4, "ULM", {"s: 1.0 % of the cells are as a listed value but for other": {}},
                                {"ULM": "Ulm"}),
    "two in five in capitals": (400, 168, "ULM", {"s: 42.0 % of the cells": {}}, {"ULM": "Ulm"}),
    "no-break blanks": (400, 160, "Ulm\u00a0", {"blanks about them": {"format": {"trim": True}}}, {}),
    "a blank of no width": (400, 161, "\u200bUlm", {"blanks, capitals, zeros": {}}, {"\u200b": ""}),
    "zeros that a spreadsheet took": (400, 162, "7", {"other zeros before them": {}}, {"7": "07"}),
    "full width": (400, 163, "\uff30\uff37", {}, {}),
    "other places": (400, 164, "Bonn", {}, {}),
}  # fmt: skip


def write(folder, rows, odd, cell, body=BODY):
    lines = [f"{at},{cell if at < odd else 'Ulm'},{'yes' if at % 2 else 'no'}" for at in range(rows)]
    (folder / "rows.csv").write_text("\n".join(["a,s,y", *lines]) + "\n")
    (folder / "schema.yaml").write_text(yaml.safe_dump(body))
    return folder / "rows.csv", folder / "schema.yaml"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("read") / "home")})


@pytest.mark.parametrize("name", READ)
def test_what_is_seldom_meant_is_asked_and_its_remedy_is_right(tmp_path, monkeypatch, capsys, home, name):
    rows, odd, cell, questions, mended = READ[name]
    data, schema = write(tmp_path, rows, odd, cell)
    check = check_file(parse_schema(schema.read_bytes()), data)
    assert (check.rows, check.problems) == (rows, [])
    assert len(check.questions()) == len(questions)
    assert all(said in asked for said, asked in zip(questions, check.questions(), strict=True))
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    assert run(["schema", "check", str(schema), "--data", str(data)]) == 0
    printed = capsys.readouterr().out
    assert f"{rows} rows read, and the schema declares about 400" in printed
    assert all(said in printed for said in questions)
    command = ["dataset", "register", name.replace(" ", "-"), "--data", str(data), "--schema", str(schema), "--unit",
               "record", "--epsilon", "1", "--delta", "1e-6"]  # fmt: skip
    command += ["--new-people", "--reason", "others"]
    if not questions:
        assert run(command) == 0
        assert f"{rows} rows read" in capsys.readouterr().err
        return
    before = home.ledger.log.size()
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "CELLS OF" in said
    assert "--as-read" in said
    assert home.ledger.log.size() == before
    assert run([*command, "--json"]) == 2  # a program is asked as well
    asked = RegistrationRequest.of({"name": "draft", "epsilon": "1", "delta": "1e-6", "unit": "record"})
    with pytest.raises(InputError, match="is this meant") as refused:  # as the steps of a draft do
        register_requested(home, asked, data, schema, "steward")
    assert refused.value.details["answers"] == ["--as-read"]
    [remedy] = questions.values()
    schema.write_text(yaml.safe_dump({**BODY, **remedy}))
    for wrong, right in mended.items():
        data.write_text(data.read_text().replace(f",{wrong}", f",{right}"))
    assert not check_file(parse_schema(schema.read_bytes()), data).questions()
    write(tmp_path, rows, odd, cell)
    assert run([*command, "--as-read"]) == 0


def test_how_many_rows_there_were_leaves_no_trace(tmp_path, monkeypatch, capsys, caplog):
    """1,237 rows, declared as about 1,000: nothing that others see, of the registration or of a job, has the number."""
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    data, schema = write(tmp_path, 1237, 0, "", {**BODY, "records": 1000})
    options = ["--schema", str(schema), "--unit", "record", "--epsilon", "1", "--delta", "1e-6"]
    assert run(["dataset", "register", "d", "--data", str(data), *options]) == 0
    told = capsys.readouterr()
    assert "1237 rows read, and the schema declares about 1000" in told.err
    assert "1237" not in told.out
    assert run(["train", "d", "--learner", "lazybb", "--epsilon", "0.1"]) == 0
    told = capsys.readouterr()
    assert run(["dataset", "show", "d", "--json"]) == 0
    assert run(["model", "show", "d", "--json"]) == 0
    seen = told.out + told.err + capsys.readouterr().out + caplog.text
    for place in home.path.rglob("*"):
        if place.is_file() and "datasets" not in place.parts and place.suffix not in (".db", ".onnx"):
            seen += place.read_bytes().decode("latin-1")
    assert "1237" not in seen
    assert run(["predict", "d", "--data", str(data), "--out", str(tmp_path / "p.csv")]) == 0
    assert "1237" in capsys.readouterr().out  # of rows that are the caller's own


def test_a_text_is_like_a_listed_one_by_its_form_alone():
    near = NearMisses(["Ulm", "Bad Ems", "007", "C", "é", "O'Brien", "a-b"])
    like = [" Ulm", "ULM", "bad  ems", "7", "07", "7.0", '"Ulm"', "Ulm.", "e\u0301", "\uff23", "\u00a0ulm"]
    like += ["\u00c3\u00a9", "O\u2019Brien", "a\u2013b"]
    assert [text for text in like if near(text) is None] == []
    unlike = ["Um", "Ulmer", "70", "C+", "e", "BadEms", "x" * 201, ""]
    assert [text for text in unlike if near(text) is not None] == []
    assert not ColumnCount("a", None).questions()


TRUTH, NUMBER = {"type": "boolean"}, {"type": "numeric", "range": [-9, 90]}
VOTE = {"true_words": ["T"], "false_words": ["F"], "missing_words": ["N"]}
THIRD, NOTES = "n beside other words for yes and no", "10.0 % of the cells are like (1), and are read as below 0"
ASKED = {  # ten cells that repeat; what is asked of them, and what a schema says so that nothing is
    "three answers": (TRUTH, "TFTFTFTFTN", THIRD, VOTE),
    "a third answer that is missing": (TRUTH, "TFTFTFTFTN", THIRD, {"missing_words": ["N"]}),
    "beside words for nothing": ({**TRUTH, "missing_words": ["?"]}, "TFTF?FTFTN", THIRD, VOTE),
    "no yes at all": (TRUTH, "FFFFFFFFFN", "f and n beside other words", VOTE),
    "two answers": (TRUTH, "TFTFTFTFTF", "", {}),
    "two spellings": (TRUTH, ["yes", "no", "Y", "N", "1", "0", "true", "", "FALSE", "n"], "", {}),
    "two languages": (TRUTH, ["oui", "non", "ja", "nein", "", "", "", "", "", ""], "", {}),
    "a note of the table's foot": (NUMBER, ["12", "7", "(1)", *"3456789"], NOTES, {"missing_words": ["(1)"]}),
    "an account": (NUMBER, ["12", "7", "(1)", "(20.5)", *"456789"], "", {}),
    "a minus": (NUMBER, ["12", "7", "-1", *"3456789"], "", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_may_be_no_answer_and_no_number_is_asked(tmp_path, home, name):
    feature, cells, question, mended = ASKED[name]
    data = tmp_path / "rows.csv"
    lines = [f"{cells[at % 10]},{['no', 'yes'][at % 2]}" for at in range(60_000 if name == "three answers" else 400)]
    if len(lines) > 400:  # in other parts of the file than the others
        lines.sort(key=lambda line: line.startswith("N"))
    data.write_text("\n".join(["a,y", *lines]) + "\n")

    def check(said):
        body = {**BODY, "records": len(lines), "features": {"a": said}}
        return check_file(parse_schema(yaml.safe_dump(body).encode()), data), yaml.safe_dump(body)

    looked, text = check(feature)
    assert looked.problems == []
    assert [question in said for said in looked.questions()] == [True] * bool(question)
    assert check({**feature, **mended})[0].questions() == {}
    if question:
        (tmp_path / "schema.yaml").write_text(text)
        asked = RegistrationRequest.of({"name": "draft", "epsilon": "1", "delta": "1e-6", "unit": "record"})
        with pytest.raises(InputError, match="is this meant"):
            register_requested(home, asked, data, tmp_path / "schema.yaml", "steward")
