"""Tests that are shared out among forks come to what they come to in one process, and one that dies is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).parent / "helpers"
CONFTEST = """
import os, pathlib, pytest
from forks import pytest_addoption, pytest_runtestloop

@pytest.fixture(scope="module")
def server(request):
    started = pathlib.Path(__file__).with_name("started")
    with started.open("a") as file:
        print(request.path.name, file=file)
    yield os.getpid()
    with started.open("a") as file:
        print("ended", os.getpid(), file=file)
"""
SHARES = """
import os, pytest, warnings

@pytest.mark.parametrize("number", range(5))
def test_asks(server, tmp_path, number):
    assert server == os.getpid() and list(tmp_path.iterdir()) == []
"""
FILES = {
    "conftest.py": CONFTEST,
    "test_a.py": SHARES,
    "test_b.py": SHARES,
    "test_outcomes.py": """
import pytest, warnings

@pytest.fixture
def broken():
    raise OSError("the fixture broke")

def test_fails(): assert 1 == 2
def test_skipped(): pytest.skip("not here")
def test_errs(broken): ...
def test_warns(): warnings.warn("looked at", DeprecationWarning)
@pytest.mark.xfail(reason="known")
def test_known(): assert False
""",
    "test_dies.py": """
import os, signal

def test_before(): ...
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(): ...
""",
    "test_flaky.py": """
import pathlib

def test_passes_the_second_time():
    tried = pathlib.Path(__file__).with_name("tried")
    was = tried.exists()
    tried.touch()
    assert was
""",
}


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    quiet = ("-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:randomly", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-rA", "--rootdir", str(folder), "-c", os.devnull, *quiet, *options]
    environment = {**os.environ, "PYTHONPATH": str(HELPERS), "TMPDIR": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def outcomes(said: str) -> set[str]:
    return {*re.findall(r"^((?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|RERUN) \S+)", said, re.M)}


def test_forks_tell_what_one_process_tells(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    leaves_out = ("--deselect", "test_dies.py::test_killed", "--reruns", "1")
    one, two = run(tmp_path / "one", *leaves_out), run(tmp_path / "two", "--workers", "2", *leaves_out)
    assert len(outcomes(one.stdout)) > 15, one.stdout + one.stderr
    assert outcomes(two.stdout) == outcomes(one.stdout), two.stdout + two.stderr
    assert two.returncode == one.returncode == 1
    told = [re.sub(r" in [\d.]+s.*", "", each.stdout.splitlines()[-1]) for each in (one, two)]
    assert told[0] == told[1]
    for word in ("the fixture broke", "1 == 2", "DeprecationWarning: looked at", "3 rerun"):
        assert word in two.stdout
    started = (tmp_path / "two" / "started").read_text().splitlines()
    assert sorted(line for line in started if line.startswith("test")) == ["test_a.py", "test_b.py"]  # once a file
    assert len({line for line in started if line.startswith("ended")}) == 2  # by two processes, to their end


def test_a_test_that_dies_is_named_and_the_others_are_run(tmp_path):
    found = run(tmp_path, "--workers", "2", "test_a.py", "test_dies.py")
    assert outcomes(found.stdout) >= {"FAILED test_dies.py::test_killed", "PASSED test_dies.py::test_after"}
    assert "its process ended with -9" in found.stdout
    assert "1 failed, 7 passed" in found.stdout, found.stdout + found.stderr


def test_nothing_is_begun_after_the_first_failure_where_that_is_asked(tmp_path):
    found = run(tmp_path, "--workers", "1", "-x", "test_outcomes.py", "test_a.py")
    assert outcomes(found.stdout) == {"FAILED test_outcomes.py::test_fails"}
    assert found.returncode == 1
