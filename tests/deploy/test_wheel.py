"""What pip installs, in each Python that is here: `make wheel-test` (minutes, from the registry that pip is set to).
`make test` leaves it out: there the wheel is put beside dependencies that are here already (tests/test_packaging.py).

The newcomer's hour is counted from nothing: a Python, a way to the project, and the lines of docs/tutorials/messy.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from pages import ROOT, blocks, newcomers
from pseudo_terminal import talk
from small_home import free_port, running, until

pytestmark = [pytest.mark.wheel, pytest.mark.server, pytest.mark.slow]
MOST = 12  # commands, the install among them
PYTHONS = os.environ.get("WHEEL_PYTHONS", "3.11 3.12 3.13").split()


@cache
def interpreter(version: str) -> str:
    """Of this version, in PATH or among those of pyenv; skips, by name, where there is none."""
    there = (shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for found in filter(None, there):
        asked = [found, "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
            return str(found)
    pytest.skip(f"python{version}: not installed")


def outside() -> dict[str, str]:
    """What a shell of somebody else's has: nothing of this project's environment."""
    mine = ("PYTHONPATH", "VIRTUAL_ENV", "DPSERVE_HOME", "OPENBLAS_NUM_THREADS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {name: value for name, value in os.environ.items() if name not in mine}


@pytest.mark.parametrize("python", PYTHONS)
def test_pip_install_and_the_messy_table(python, tmp_path):
    """The wheel and all that it asks for, newest versions; then no line of the page but those with dpserve and python
    needs the project. The server of it answers, and its own manual is in it."""
    wheel, found = os.environ["WHEEL"], interpreter(python)
    (verifier,) = Path(wheel).parent.glob("dpserve_verify-*.whl")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    install = [
        f"{found} -m venv .venv",
        ". .venv/bin/activate",
        f'pip install --quiet {verifier} "{wheel}[train,serve,client]"',
    ]
    home = tmp_path / "messy-home"
    lines = [*install, f"export DPSERVE_HOME={home}", *newcomers()[2:]]  # in the place of make install and its path
    assert len(lines) <= MOST
    seen = talk(["bash", "-c", "\n".join(["set -e", *lines])], tmp_path, outside(), seconds=1500)
    assert "verified: messy: " in seen

    bin = tmp_path / ".venv" / "bin"
    asked = [bin / "python", "-c", "import dpserve, serving, sys; print(sys.version_info[:2], serving.__file__)"]
    said = subprocess.run(asked, cwd=tmp_path, env=outside(), capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"({python.replace('.', ', ')}) {tmp_path}/.venv/")
    port = free_port()
    command = [str(bin / "dpserve"), "serve", "--port", str(port), "--workers", "1"]
    with running(home, command, port, tmp_path, PYTHONPATH="") as server:
        until(lambda: server.get("/v1/models").json()["models"][0]["verified"], "the model is served")
        assert "Your own messy table" in server.get("/docs").text


def test_a_copy_of_the_project_and_make_install(tmp_path):
    """As the page stands, in the first Python that was asked for."""
    lines = ["git clone --quiet source dpserve", "cd dpserve", *newcomers()]
    assert len(lines) <= MOST
    (tmp_path / "source").symlink_to(ROOT)
    environment = outside() | {"PYTHON": interpreter(PYTHONS[0])}
    seen = talk(["bash", "-c", "\n".join(["set -e", *lines])], tmp_path, environment, seconds=1500)
    assert "verified: messy: " in seen
    assert blocks("docs/tutorials/messy.md", "sh")[0].startswith("make install\n")
