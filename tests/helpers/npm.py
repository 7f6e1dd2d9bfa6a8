"""Packages of npm that check us from outside: what a lock file pins, installed where a test runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]


def install(source: Path, folder: Path) -> Path:
    """Copy the files of `source` into a folder, beside the packages that its lock file pins. Skips where they cannot be
    had; fails where one has another digest.
    """
    for file in source.iterdir():
        shutil.copy(file, folder)
    assert '"resolved"' not in (source / "package-lock.json").read_text(), "the lock file names no address"
    try:
        done = subprocess.run(INSTALL, cwd=folder, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        pytest.skip("npm: the package registry does not answer")
    if done.returncode:
        assert "EINTEGRITY" not in done.stderr, done.stderr
        pytest.skip(f"npm: cannot install what {source.name} pins: {done.stderr.strip()[-300:]}")
    return folder
