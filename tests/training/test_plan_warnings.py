"""What public numbers warn of is part of a plan, at every door, before anything is spent."""

from __future__ import annotations

import json

import pytest
from small_home import write_files

from serving.cli.app import run

PLAN = ["plan", "adult", "--learner", "lazybb", "--set"]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(tmp_path_factory.mktemp("made") / "home"))
        data = ["--data", str(files / "rows.parquet"), "--schema", str(files / "schema.yaml")]
        assert run(["init"]) == 0
        assert run(["dataset", "register", "adult", *data, "--epsilon", "3", "--delta", "1e-6"]) == 0
        yield


def said(capsys, *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = run([*PLAN, *arguments])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_rounds_that_drown_the_signal_are_warned_of(capsys):
    code, text = said(capsys, "rounds=1000", "--epsilon", "0.05", "--json")
    (warned,) = json.loads(text)["warnings"]
    assert code == 0
    assert warned.startswith("rounds=1000: the noise drowns the signal. With records=2000 and epsilon=0.05")
    code, text = said(capsys, "rounds=1000", "--epsilon", "0.05")
    assert code == 0
    assert "warning" in text
    assert "drowns the signal" in " ".join(text.split())


def test_a_plan_that_can_be_of_use_has_no_warning(capsys):
    assert json.loads(said(capsys, "rounds=20", "--epsilon", "1", "--json")[1])["warnings"] == []
    assert "warning" not in said(capsys, "rounds=20", "--epsilon", "1")[1]


def test_more_rounds_than_the_budget_can_carry_are_refused_with_the_number_it_can(capsys):
    code, text = said(capsys, "rounds=1100", "--epsilon", "0.000001", "--delta", "0", "--json")
    error = json.loads(text)["error"]
    assert code == 2
    assert error["details"]["rounds"] == 1100 > error["details"]["largest"] >= 1
