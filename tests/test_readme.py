"""The README's commands are run as they stand, in one shell, in a fresh home."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like the project's root, so that nothing is written into the real one."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for command in ("python", "dpserve"):
        launcher = tmp_path / ".venv" / "bin" / command
        module = "" if command == "python" else "-m serving.cli"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        launcher.chmod(0o755)
    return tmp_path


@pytest.mark.slow
@pytest.mark.system("curl")
def test_every_command_of_the_readme_runs(checkout: Path) -> None:
    script = "set -e\n" + "\n".join(blocks("sh")).replace("3000", str(free_port()))
    assert script.count("dpserve ") > 12
    environment = {**os.environ, "DPSERVE_HOME": str(checkout / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"predictions"' in done.stdout
    assert (checkout / "adult.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (checkout / "predictions.parquet").stat().st_size > 10_000
    assert (checkout / "exported" / "model.onnx").exists()


def test_the_notebook_snippet_runs() -> None:
    (snippet,) = blocks("python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.500000 ")


def test_make_targets_named_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets
