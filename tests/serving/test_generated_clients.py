"""Clients that others generate from /docs.json plan, train, wait, predict and read the ledger: `make clients-test`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from small_home import ROOT, adult_home, records, serving

pytestmark = [pytest.mark.clients, pytest.mark.server]
DRIVER = ROOT / "tests" / "helpers" / "generated_clients.py"
GENERATORS = {  # with {description} and {folder}, into which the package `made` goes
    "python-client": "openapi-python-client generate --path {description} --output-path {folder}/made --meta none",
    "generator": "openapi-generator-cli generate -g python --package-name made -i {description} -o {folder}",
}  # fmt: skip


@pytest.fixture(scope="module")
def python():
    path = os.environ.get("CLIENTS_PYTHON")
    if path is None:
        pytest.skip("CLIENTS_PYTHON is not set: make clients-test")
    return Path(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(adult_home(tmp_path_factory.mktemp("clients"), 8).path, workers=1) as found:
        yield found


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generated_client_does_the_main_job(server, python, tmp_path, kind):
    if kind == "generator" and shutil.which("java") is None:
        pytest.skip("java is not here")
    (tmp_path / "docs.json").write_bytes(server.get("/docs.json").content)
    (tmp_path / "records.json").write_text(json.dumps(records(3)))
    command = GENERATORS[kind].format(description=tmp_path / "docs.json", folder=tmp_path)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    done = subprocess.run(command.split(), env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    arguments = [kind, tmp_path, f"http://127.0.0.1:{server.port}", server.tokens["admin"], tmp_path / "records.json"]
    driven = subprocess.run([python, "-I", DRIVER, *map(str, arguments)], capture_output=True, text=True)
    assert driven.returncode == 0, driven.stderr
    said = json.loads(driven.stdout)
    assert said["predictions"] == server.predict("made", 3).json()["predictions"]
    assert (said["rounds"], said["state"], said["refused"], said["total"]) == (6, "issued", "budget_refused", "8")
    assert {"reserved", "started", "committed", "issued"} <= set(said["entries"])
