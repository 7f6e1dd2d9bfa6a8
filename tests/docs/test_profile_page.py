"""Every command of docs/profile.md and docs/querying.md, as it stands, in one shell, on rows of Adult."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest
import warm
from ledgers import EXAMPLES, ROOT, adult_schema
from small_home import dpserve

ROWS = 2000


def run_page(tmp_path, name):
    """Run the commands of a page in a home; return the home and what they printed."""
    pq.write_table(pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, ROWS), tmp_path / "adult.parquet")
    (tmp_path / "adult.yaml").write_text(adult_schema(ROWS))
    home = tmp_path / "home"
    dpserve(home, "init")
    shutil.copy(home / "trust.json", tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / name).read_text(), re.M | re.S)
    environment = {**os.environ, "DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    script = f'set -e\ndpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}\n' + "\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return home, done.stdout


@pytest.mark.slow
def test_every_command_about_queries_runs(tmp_path):
    home, printed = run_page(tmp_path, "querying.md")
    assert re.search(r"expect +counts right within [0-9.,]+, [0-9.e+]+ % of about [0-9,]+ rows in a group", printed)
    assert printed.count("verified: the answer to a query of adult") == 1
    assert dpserve(home, "ledger", "audit").returncode == 0
    for wrong in ("select count(*) from adult where age > 50", "select max(age) from adult", "select"):
        assert dpserve(home, "query", "adult", wrong).returncode == 2
    assert dpserve(home, "query", "adult", "select count(*) from adult", "--epsilon", "9").returncode == 3


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path):
    home, printed = run_page(tmp_path, "profile.md")
    assert printed.count("verified: how the rows of adult are spread") == 2
    assert "<svg" in (tmp_path / "adult.html").read_text()
    asked = ("profile", "adult", "--epsilon", "0.2", "--json")
    assert json.loads(dpserve(home, *asked).stdout)["profile"]["epsilon"] == "0.2"
    assert dpserve(home, "ledger", "audit").returncode == 0
    changed = next((home / "profiles").glob("*/profile.tlog-proof"))
    changed.write_text(changed.read_text().replace("index ", "index 1"))
    assert dpserve(home, "verify", str(changed.with_name("profile.dsse.json"))).returncode == 4
    assert dpserve(home, "profile", "adult", "--epsilon", "0.2", "--pairs", "age").returncode == 2
    refused = dpserve(home, "profile", "adult", "--epsilon", "9", "--json")
    assert refused.returncode == 3
