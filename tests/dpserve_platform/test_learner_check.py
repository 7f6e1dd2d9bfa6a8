"""`dpserve learner check`: a learner of ours, somebody's that keeps its promise, and one that does not."""

from __future__ import annotations

import json

import pytest

from serving.cli.app import run

GOOD = """
import numpy as np
from accountant.noise.mechanisms import DiscreteLaplace


class Count:
    purpose, norm, size = "count rows per bin", "l1", 16

    def sensitivity(self, relation):
        return 1 if relation == "add-remove" else 2

    def __call__(self, rows):
        return WORTH * np.bincount(rows.bins[0], minlength=16).astype(np.int64)


class Mine:
    def __init__(self, rounds: int = 2):
        self.rounds = rounds

    def learn(self, session):
        return [session.release(Count(), DiscreteLaplace(session.unit)).tolist() for _ in range(self.rounds)]
"""


def check(capsys, *arguments: str):
    code = run(["learner", "check", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, worth: int) -> str:
        (tmp_path / f"{name}.py").write_text(GOOD.replace("WORTH", str(worth)))
        return name

    return write


def test_under_replace_one_rows_are_as_many_as_are_asked_for(capsys):
    code, body = check(
        capsys, "lazybb", "--set", "rounds=3", "--neighbours", "7", "--relation", "replace-one", "--rows", "50"
    )
    assert (code, body["neighbours"]) == (0, 7)


def test_a_learner_of_ours_by_its_name(capsys):
    code, body = check(capsys, "lazybb", "--set", "rounds=3", "--neighbours", "14")
    assert (code, body["ok"], body["releases"], body["neighbours"]) == (0, True, 4, 14)
    assert set(body["reached"].values()) == {1.0}


def test_somebodys_by_its_module(module, capsys):
    code, body = check(capsys, module("kind_one", 1), "--neighbours", "20", "--set", "rounds=4")
    assert (code, body["releases"], body["faults"]) == (0, 4, [])
    code, body = check(capsys, module("lying_one", 2) + ":Mine", "--neighbours", "20")
    assert code == 4
    assert body["faults"][0]["kind"] == "sensitivity"
    assert "2 of what is declared" in body["faults"][0]["words"]
    assert run(["learner", "check", "lying_one", "--relation", "replace-one"]) == 4
    assert "refused: sensitivity" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody.has.this"], "No module named"),
        (["json"], "0 such classes"),
        (["lazybb", "--set", "rouds=3"], "rouds"),
        (["lazybb", "--neighbours", "0"], "neighbours=0"),
        (["lazybb", "--relation", "other"], "relation"),
        (["lazybb", "--schema", "none.yaml"], "none.yaml"),
    ],
)
def test_bad_input_is_code_2(arguments, words, capsys):
    code, body = check(capsys, *arguments)
    assert code == 2
    assert words in body["error"]["message"]
