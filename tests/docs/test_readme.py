"""The README's commands are run as they stand, in one shell, in a fresh home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pages import ROOT, blocks, checkout, follow
from small_home import free_port

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.system("curl")
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    folder, script = checkout(tmp_path), "\n".join(blocks("README.md", "sh")).replace("3000", str(free_port()))
    assert script.count("dpserve ") > 12
    assert '"predictions"' in follow(folder, script)
    assert (folder / "adult.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (folder / "predictions.parquet").stat().st_size > 10_000
    assert (folder / "exported" / "model.onnx").exists()


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("curl")
def test_the_minute_of_the_home_page_runs(tmp_path: Path) -> None:
    """docs/index.md, as it stands but for the port, with the census people's files under the names that it has."""
    folder, (block,) = checkout(tmp_path), blocks("docs/index.md", "sh")
    for name, rows in (("adult", "adult_train"), ("test", "adult_test")):
        table = pq.read_table(ROOT / "examples" / "data" / f"{rows}.parquet")
        pq.write_table(table.slice(0, 4000), folder / f"{name}.parquet")
    (folder / "adult.yaml").write_text((ROOT / "examples" / "data" / "adult.schema.yaml").read_text())
    port = free_port()
    before, serve, after = block.partition("dpserve serve\n")
    until = f"until curl -sf -o {folder}/ready http://127.0.0.1:{port}/readyz; do sleep 0.2; done"
    script = f"{before}{serve.strip()} --port {port} &\nSERVER=$!\n{until}\n{after}kill $SERVER\nwait $SERVER || true\n"
    said = follow(folder, f"export PATH=$PWD/.venv/bin:$PATH\n{script}")
    assert "result   sound" in said
    assert re.search(r"^auroc +0\.\d", said, re.M)


@pytest.mark.slow
def test_the_notebook_snippet_runs() -> None:
    (snippet,) = blocks("README.md", "python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.500000 ")


def test_make_targets_named_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets
