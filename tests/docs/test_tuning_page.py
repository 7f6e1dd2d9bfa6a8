"""The commands about tuning: the price is asked for as it stands, and the job is that without `--plan`.

What a tuned job does is tried in tests/training/tuning/.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ledgers import EXAMPLES, adult_schema
from pages import blocks, checkout, follow
from small_home import dpserve


@pytest.mark.slow
def test_the_price_of_the_page_is_told(tmp_path: Path) -> None:
    folder, home = checkout(tmp_path), tmp_path / "home"
    pq.write_table(pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, 500), folder / "adult.parquet")
    dpserve(home, "init")
    (folder / "adult.yaml").write_text(adult_schema(500))
    data = ["--data", str(folder / "adult.parquet"), "--schema", str(folder / "adult.yaml")]
    done = dpserve(home, "dataset", "register", "adult", *data, "--epsilon", "3", "--delta", "1e-6", "--unit", "record")
    assert done.returncode == 0, done.stderr
    plan, tune = "".join(blocks("docs/reference/training.md", "sh", "Private tuning")).splitlines()
    assert plan.partition(" --plan")[0] == tune
    said = follow(folder, f"export PATH=$PWD/.venv/bin:$PATH\n{plan}")
    assert "price     epsilon 1, for all of it" in said
    assert re.findall(r"^0\.[24] +(\w+)", said, re.M) == ["default", "30", "300"] * 2
