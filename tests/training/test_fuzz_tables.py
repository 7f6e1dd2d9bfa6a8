"""Tables and schemas under random harm, by the command line: whatever they are, no error of the program is the answer.

A few in every run; `FUZZED_TABLES=5000` tries more, and `FUZZED_SEED` others. A case that fails names its number, and
`FUZZED_ONLY` makes it alone.
"""

from __future__ import annotations

import csv
import os
import shutil

import pytest
from table_fuzzer import TableFuzzer

from serving.cli.app import run

CASES = int(os.environ.get("FUZZED_TABLES", "60"))
SEED = int(os.environ.get("FUZZED_SEED", "38"))
ONLY = os.environ.get("FUZZED_ONLY")
A_HOME = 100  # cases in one home: what a home holds makes each step longer
ENDS = {0, 2, 3, 4, 5}  # of docs/reference: 1 is an error of the program


@pytest.fixture
def ends(capsys, monkeypatch):
    """Run a command: its exit code and what it printed. An error of the program is never the end."""

    def end(*words):
        capsys.readouterr()
        code = run([*map(str, words)])
        printed = capsys.readouterr()
        said = printed.err + (printed.out if code else "")
        if code not in ENDS or "dpserve: unexpected " in said or "Traceback" in said or (code and not said.strip()):
            raise AssertionError(f"{' '.join(map(str, words[:2]))} ends with {code}: {said[-600:]}")
        return code, said

    return end


def follow(case, name, end):
    """All steps of a stranger with this file and schema; how far they came."""
    end("schema", "draft", case.data)
    end("schema", "draft", case.data, "--data")
    checked, problems = end("schema", "check", case.schema, "--data", case.data)
    options = ("--epsilon", 9, "--delta", "1e-6", "--relation", "add-remove", "--unit", case.unit)
    options += ("--new-people", "--reason", "made up")
    registered, refusal = end(
        "dataset", "register", name, "--data", case.data, "--schema", case.schema, "--as-read", *options
    )
    if (checked == 0) != (registered == 0) and (checked or case.unit == "record"):  # which the check is not told
        raise AssertionError(f"check {checked}, register {registered}: {problems if checked else refusal}")
    if registered != 0:
        return "refused"
    out = case.schema.parent / "out.csv"
    for step in (
        ("plan", name, "--epsilon", 1),
        ("train", name, "--learner", "lazybb", "--epsilon", 1, "--set", "rounds=1"),
        ("predict", name, "--data", case.data, "--out", out),
    ):
        code, said = end(*step)
        if code:
            raise AssertionError(f"it is registered, and {step[0]} ends with {code}: {said}")
    with out.open(newline="", encoding="utf-8") as lines:
        assert next(csv.reader(lines))[:1] in (["label"], ["value"])
    return "predicted"


@pytest.mark.slow
def test_whatever_the_table_and_the_schema_are_no_error_of_the_program_is_the_answer(tmp_path, ends, monkeypatch):
    fuzzer, came, faults = TableFuzzer(SEED), [], []
    for number in range(CASES) if ONLY is None else [int(ONLY)]:
        if number % A_HOME == 0 or ONLY is not None:
            shutil.rmtree(tmp_path / "home", ignore_errors=True)
            monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
            assert ends("init")[0] == 0
        folder = tmp_path / "case"
        case = fuzzer.case(number, folder)
        try:
            came.append(follow(case, f"d{number}", ends))
        except Exception as error:
            faults.append(f"FUZZED_ONLY={number} FUZZED_SEED={SEED}: {type(error).__name__}: {error}")
        shutil.rmtree(folder)
    assert not faults, f"{len(faults)} cases\n" + "\n".join(faults[:20])
    assert ONLY is not None or came.count("predicted") > CASES // 10, came
