"""Nothing in the folder where a command is started runs, or steers it: no module, no settings of a library's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_home import adult_home

MODULES = (
    "json", "yaml", "numpy", "numba", "accountant", "serving", "training", "models", "dpserve", "dpserve_verify",
    "bentoml", "sitecustomize", "usercustomize", "pyarrow", "logging", "socket", "_bentoml_impl", "duckdb",
    "opentelemetry", "onnxruntime", "typer", "rich", "uvicorn", "multiprocessing", "cryptography", "sqlalchemy",
)  # fmt: skip
SETTINGS = {
    ".env": "DPSERVE_HOME=/nowhere\nDPSERVE_PORT=4749\n",
    "dpserve.env": "DPSERVE_HOME=/nowhere\n",
    "dpserve.yaml": "home: /nowhere\n",
    "dpserve.json": "{}",
    "bentoml_configuration.yaml": "version: 1\napi_server: {port: 4748}\n",
    "pyproject.toml": "[tool.dpserve]\nport = 4747\n",
    "alembic.ini": "[alembic]\nscript_location = nowhere\n",
    ".numba_config.yaml": "cache_dir: {folder}/compiled\ncache_locator_classes: nobody.Locator\ndebug: 1\n",
}


@pytest.mark.slow
def test_a_folder_of_traps_is_passed_by(tmp_path):
    """Train, what numba compiles and loads, in a real process; then verify what it made, with the package alone."""
    traps, hit, compiled = tmp_path / "traps", tmp_path / "hit", tmp_path / "compiled"
    traps.mkdir()
    for name in MODULES:
        (traps / f"{name}.py").write_text(f"open({str(hit)!r}, 'a').write('{name} ')\nraise SystemExit('trap')\n")
    for name, text in SETTINGS.items():
        (traps / name).write_text(text.replace("{folder}", str(tmp_path)))
    home = adult_home(tmp_path / "own", epsilon=4).path
    programs = Path(sys.executable).parent
    environment = {**os.environ, "DPSERVE_HOME": str(home), "NO_COLOR": "1"}
    environment.pop("PYTHONPATH", None)
    for command in (
        ["dpserve", "train", "adult", "--learner", "ebm", "--epsilon", "0.5", "--model", "m"],
        ["dpserve", "ledger", "audit"],
        ["dpserve-verify", str(home / "models" / "m" / "1"), "--trust", str(home / "trust.json")],
    ):
        done = subprocess.run(
            [programs / command[0], *command[1:]], cwd=traps, env=environment, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "DUMP" not in done.stdout + done.stderr.upper()
    assert not hit.exists()
    assert not compiled.exists()
