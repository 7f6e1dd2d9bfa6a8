"""What an extra brings and is not installed: who asks for it is told in words what to install, and nothing is spent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_home import DATA, adult_home

from accountant.system.lazy_import import later, load
from dpserve_verify.errors import InputError
from training.jobs import job
from training.requests import JobRequest

ROOT = Path(__file__).resolve().parents[2]
ROWS = DATA / "adult_test.parquet"
HIDE = "import sys; sys.modules.update(dict.fromkeys({names!r}))\n"  # as where pip did not install them
FIT = """
import numpy as np
from dpserve.learners import Columns, LazyBB
learner = LazyBB(schema=Columns(low=0, high=1, classes=["no", "yes"]), epsilon=1)
for ask in (lambda: learner.fit(np.zeros((9, 2)), ["no"] * 9), lambda: learner.predict(np.zeros((9, 2)))):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, error)
print(hasattr(learner, "spent_"))
"""


def without(names: list[str], code: str, home: Path) -> str:
    env = {**os.environ, "DPSERVE_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(names=names) + code], cwd=ROOT, env=env, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("extras"), epsilon=4)
    request = JobRequest(dataset="adult", learner="lazybb", epsilon="1", parameters={"rounds": 5}, model="m")
    job.run(home, job.submit(home, request, by="t", queued=False).seq)
    return home.path


@pytest.mark.parametrize(
    ("hidden", "words", "remedy"),
    [
        ("sklearn", f"evaluate m --data {ROWS}", "pip install scikit-learn (the extra 'notebook'"),
        ("vl_convert", "model explain m --out {out}", "pip install vl-convert-python (the extra 'pictures'"),
        ("pyarrow", f"schema draft {ROWS}", "pip install pyarrow (the extra 'train'"),
        ("numba", "train adult --epsilon 0.5", "pip install numba (the extra 'train'"),
    ],
)
def test_a_command_says_what_brings_what_it_needs(home, tmp_path, hidden, words, remedy):
    typed = words.format(out=tmp_path / "m.svg").split()
    code = f"from serving.cli.app import run; print('exit', run({typed!r}))"
    said = without([hidden], code, home)
    assert "not installed here" in said
    assert remedy in said
    assert "exit 0" not in said
    assert "is spent" not in said


def test_a_notebook_is_told_before_it_spends(tmp_path):
    first, second, spent = without(["sklearn"], FIT, tmp_path).splitlines()
    assert first.startswith("InputError scikit-learn: not installed here; pip install scikit-learn")
    assert second.startswith("InputError")
    assert "fit" in second
    assert spent == "False"


def test_what_is_looked_up_in_a_module_that_is_not_there_is_refused_in_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(InputError, match="pip install vl-convert-python"):
        _ = later("vl_convert").svg_to_png


def test_what_no_extra_brings_is_an_error_of_ours():
    with pytest.raises(ModuleNotFoundError, match="nobody_has_this"):
        load("nobody_has_this")
    assert later("numpy").zeros(1) == np.zeros(1)
