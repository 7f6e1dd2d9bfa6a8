"""The four first steps are one story: every command is run as it stands, in one shell, one after the other."""

from __future__ import annotations

import pytest
from pages import blocks, checkout, follow
from small_home import free_port

ORDER = ("steward", "analyst", "operator", "auditor")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("curl")
def test_every_command_of_the_first_steps_runs(tmp_path):
    folder = checkout(tmp_path)
    script = "\n".join(block for name in ORDER for block in blocks(f"docs/tutorials/{name}.md", "sh"))
    said = follow(folder, script.replace("PORT=3000", f"PORT={free_port()}"))
    assert script.count("dpserve ") > 20
    assert "dpserve_budget_left_ratio" in said
    assert (folder / "curves.html").read_text("utf-8").startswith("<!doctype html>")
    assert (folder / "predictions.csv").stat().st_size > 100_000
    assert (folder / "account" / "checkpoint").exists() or list((folder / "account").iterdir())
