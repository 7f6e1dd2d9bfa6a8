"""What the doors may import of training, and what the platform computes rows and predictions with, stays apart."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from training.learners import LEARNERS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"numba", "sklearn", "bentoml", "onnxruntime"}
PUBLIC = [
    "training.finish.derive",
    "training.jobs.job",
    "training.planning.job_views",
    "training.learners.choice",
    "training.learners.docs",
    "training.planning.plans",
    "training.jobs.queue",
    "training.datasets.datasets",
    "training.rows.tables.row_files",
    "training.tuning.tune",
]


def loaded(code: str, heavy: set[str] = HEAVY) -> str:
    """Which of `heavy` a fresh interpreter has loaded after `code`."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(sorted({heavy!r} & sys.modules.keys()))"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_public_modules_are_light():
    assert loaded("\n".join(f"import {name}" for name in PUBLIC)) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("from training.learners import LazyBB", "[]"),
        ("from training.learners import LEARNERS; LEARNERS['forest']", "[]"),
        ("from training.rows.kernels import votes", "['numba']"),
    ],
)
def test_what_computes_is_loaded_when_it_is_asked_for(code, heavy):
    assert loaded(code) == heavy


@pytest.mark.slow
@pytest.mark.parametrize(("module", "parsers"), [("training.jobs.job", "[]"), ("models.answers.sql", "['sqlglot']")])
def test_a_job_loads_a_parser_of_queries_when_it_is_a_query(module, parsers):
    assert loaded(f"import {module}, training.kinds.registry", {"sqlglot"}) == parsers


def test_every_learner_is_listed_under_its_own_name():
    assert {name: LEARNERS[name].name for name in LEARNERS} == {name: name for name in LEARNERS}


@pytest.mark.parametrize("package", ["training.learners", "training.rows.kernels"])
def test_what_is_not_there_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="nothing"):
        getattr(import_module(package), "nothing")  # noqa: B009
