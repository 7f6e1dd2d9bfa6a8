"""What is compiled when dpserve is installed is all that a first job needs; loading it loads no compiler's rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_home import adult_home

from accountant.noise import compiled_weights
from training.jobs import job
from training.jobs.compile_ahead import compile_kernels
from training.learners import LEARNERS
from training.requests import JobRequest
from training.rows import kernels

ROOT = Path(__file__).resolve().parents[2]


def signatures() -> set[tuple[str, str]]:
    """The types for which a compiled function is there, in this process."""
    modules = [compiled_weights, *(getattr(kernels, name) for name in kernels.__all__)]
    functions = {each for module in modules for each in vars(module).values() if hasattr(each, "py_func")}
    return {(each.__name__, str(types)) for each in functions for types in each.signatures}


@pytest.mark.slow
def test_a_first_job_of_any_learner_compiles_nothing(tmp_path):
    compile_kernels(lambda words: None)
    ahead = signatures()
    assert len(ahead) > 50
    home = adult_home(tmp_path, epsilon=30)
    for learner in LEARNERS:
        request = JobRequest(dataset="adult", learner=learner, epsilon="3", delta="1e-7")
        job.run(home, job.submit(home, request, by="t", queued=False).seq)
    assert signatures() - ahead == set()


def test_code_is_loaded_without_what_compiles_it():
    """In a process that finds it compiled: numba's rules for arrays, which ask for scipy, stay where they are."""
    code = "import sys, numpy as np; from training.rows.kernels import votes\n"
    code += "votes.advance(np.zeros(1, np.uint8), np.uint8(0), np.uint8(0), np.int16(1), np.zeros(1, np.int16))\n"
    code += "print(*sorted({'numba.np.arraymath', 'scipy.linalg', 'numba.cpython.listobj'} & sys.modules.keys()))"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
