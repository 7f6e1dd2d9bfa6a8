"""An auditor compares the file of the verifier with the digest on a certificate's page: of what was installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from small_home import ROOT

from dpserve_verify.certificates import own_file as own

BUILT = re.search(r"^BUILT = (\d+)", (ROOT / "Makefile").read_text(), re.M)[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


def wheel(folder: Path) -> Path:
    """Build it from a copy of the sources, which may lie anywhere."""
    for name in ("verify", "dpserve_verify"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    made = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(folder / "verify"))
    subprocess.run([*PIP, *made], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": BUILT}, cwd=folder)
    return next((folder / "dist").glob("*.whl"))


@pytest.mark.slow
def test_the_installed_verifier_names_its_file_and_the_same_sources_make_the_same_file(tmp_path):
    one, other = wheel(tmp_path / "here"), wheel(tmp_path / "elsewhere" / "deep")
    assert one.read_bytes() == other.read_bytes()
    target = tmp_path / "installed"
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(one)], check=True)
    code = "from dpserve_verify.certificates import own_file as own; print(own.__file__); print(own.own_file())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    file, said = done.stdout.splitlines()
    assert file.startswith(str(target))
    assert said == f"{one.name}, sha256 {hashlib.sha256(one.read_bytes()).hexdigest()}"
    assert BUILT in (ROOT / "deploy" / "Containerfile").read_text()


GOOD = {"url": "file:///x/dpserve_verify-0.3.0-py3-none-any.whl", "archive_info": {"hashes": {"sha256": 64 * "a"}}}


@pytest.mark.parametrize(
    ("noted", "says"),
    [
        (json.dumps(GOOD), f"dpserve_verify-0.3.0-py3-none-any.whl, sha256 {64 * 'a'}"),
        (json.dumps({"url": "file:///x", "dir_info": {"editable": True}}), ""),  # from sources
        (None, ""),  # from an index, which says no digest
        ("nonsense", ""),
        ("[]", ""),
        (json.dumps(GOOD | {"archive_info": {"hashes": {"sha256": "short"}}}), ""),
        (json.dumps(GOOD | {"url": "file:///x/a%20b%0A.whl"}), ""),
    ],
)
def test_what_was_not_noted_is_not_said(noted, says, monkeypatch):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return noted

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert own.own_file() == says
