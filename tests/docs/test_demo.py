"""`make demo` from end to end: the real command line, the real server, the real rows, and openssl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import loopback
import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.server
def test_the_demo_of_owners_tells_the_whole_story(tmp_path):
    """With no network but loopback, where such a namespace can be made: nothing of it needs another."""
    script = (
        "import demo, warm; demo.DPSERVE = [*warm.python(), '-m', 'serving.cli']; import demo_local; demo_local.main()"
    )
    command = [*loopback.command(), sys.executable, "-c", script, "--home", str(tmp_path / "home")]
    paths = (ROOT, ROOT / "examples", ROOT / "tests" / "helpers")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment.pop(warm.SHARED, None)  # the warm process is of that network too
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("epsilon 6 of your own budget") == 3
    reports = ("3, at least 3 are needed", "survey: issued", "verified: survey", "sound", "the server is stopped")
    for said in (*reports, "census: issued", "verified: census", "noisy sum of 303 owners"):
        assert said in done.stdout


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("openssl")
def test_the_demo_tells_the_whole_story(tmp_path):
    script = f"import demo; demo.DPSERVE = [*{warm.python()}, '-m', 'serving.cli']; demo.main()"
    command = [sys.executable, "-c", script, "--home", str(tmp_path / "home")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "before: 0 % of the budget used. Room for one more job: up to epsilon 3",
        "LazyBB, epsilon 0.5 (ours)",
        "would fit",
        "HTTP 403",
        "Signature Verified Successfully",
        "bentoml serve serving.service:DpserveService --port",
        "the same service answers the same",
    ):
        assert said in done.stdout
    assert done.stdout.count("the server is stopped") == 2
