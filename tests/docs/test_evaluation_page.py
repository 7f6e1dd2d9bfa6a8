"""Every command of the pages about evaluations, as it stands, in one shell, on rows of Adult."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest
import warm
from ledgers import EXAMPLES, ROOT, adult_schema
from pages import blocks
from small_home import dpserve

PAGES = (
    ("docs/evaluation.md", ""),
    ("docs/reference/serving.md", "Answers that cover"),
    ("docs/reference/certificate.md", "The statement of an evaluation"),
)


@pytest.mark.slow
@pytest.mark.system("openssl", "jq")
def test_every_command_of_the_pages_runs(tmp_path):
    rows = pq.read_table(EXAMPLES / "adult_train.parquet"), pq.read_table(EXAMPLES / "adult_test.parquet")
    parts = {"adult": rows[0].slice(0, 4000), "others": rows[1].slice(0, 4000), "public": rows[1].slice(4000, 1000)}
    for name, part in parts.items():
        pq.write_table(part, tmp_path / f"{name}.parquet")
    groups = "\ngroups: {sex: {}, age: {type: numeric, edges: [30, 50]}}\n"  # as the page has them
    assert groups.strip() in (ROOT / "docs" / "evaluation.md").read_text()
    (tmp_path / "adult.yaml").write_text(adult_schema(4000) + groups)
    home = tmp_path / "home"
    dpserve(home, "init")
    shutil.copy(home / "trust.json", tmp_path)
    script = "set -e\n" + "\n".join(block for page, under in PAGES for block in blocks(page, "sh", under))
    environment = {**os.environ, "DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = ["bash", "-c", f'dpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}\n' + script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("verified") == 7  # the model with its statements, and each of the six
    assert done.stdout.count("Signature Verified Successfully") == 1  # by openssl
    assert all("<svg" in (tmp_path / page).read_text() for page in ("worth.html", "groups.html", "report.html"))
    assert "At every threshold" in (tmp_path / "worth.html").read_text()
    shown = json.loads(dpserve(home, "model", "list", "--json").stdout)["models"]
    shown = next(line for line in shown if line["model"] == "adult@1")
    assert shown["worth"][0]["histogram"]["groups"]["column"] == "sex"  # the newest one
    spent = json.loads(dpserve(home, "dataset", "show", "adult", "--json").stdout)["holdout"]["budget"]["spent"]
    assert spent["pure"] == "2.35"
    assert dpserve(home, "ledger", "audit").returncode == 0
    shutil.copytree(tmp_path / "adult-model", tmp_path / "sound-model")
    changed = next((tmp_path / "adult-model").glob("worth-*.tlog-proof"))
    changed.write_text(changed.read_text().replace("index ", "index 1"))
    assert dpserve(home, "verify", str(tmp_path / "adult-model")).returncode == 4
    card = (tmp_path / "adult-model" / "card.md").read_text()
    assert "## What it is worth" in card
    assert "states no accuracy" not in card
    told = json.loads(dpserve(home, "verify", str(tmp_path / "sound-model"), "--json").stdout)
    assert told["unverified"] == []  # the card follows from the statements beside it
    card = (tmp_path / "sound-model" / "card.md").read_text()
    (tmp_path / "sound-model" / "card.md").write_text(card.replace("| auroc | 0", "| auroc | 1"))
    told = json.loads(dpserve(home, "verify", str(tmp_path / "sound-model"), "--json").stdout)
    assert told["unverified"] == ["card.md"]
    free = str(tmp_path / "public.parquet"), "--out", str(tmp_path / "figures.parquet")
    assert dpserve(home, "evaluate", "adult", "--data", *free).returncode == 0
    table = pq.read_table(tmp_path / "figures.parquet").to_pydict()
    assert table["figure"][0] == "accuracy"
    assert 0.5 < table["value"][0] < 1
    refused = dpserve(home, "evaluate", "adult", "--data", str(tmp_path / "adult.parquet"))
    assert refused.returncode == 2
    assert "stand in the dataset adult" in refused.stderr
