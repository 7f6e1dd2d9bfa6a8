"""The four first steps are one story: every command is run as it stands, in one shell, one after the other."""

from __future__ import annotations

import json

import pytest
from pages import blocks, checkout, follow
from small_home import free_port

STOPS = "kill $SERVER\n"


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("curl")
def test_every_command_of_the_first_steps_runs(tmp_path):
    """The analyst and the auditor ask the operator's server, with neither rows nor a home; then it is stopped."""
    folder = checkout(tmp_path)
    steward, operator, analyst, auditor = (
        "\n".join(blocks("docs/first-steps.md", "sh", f"The {name}"))
        for name in ("data steward", "operator", "analyst", "auditor")
    )
    starts, _, after = operator.partition(STOPS)
    script = f"{steward}\n{starts}\n(\n{analyst}\n{auditor}\n)\n{STOPS}{after}"
    said = follow(folder, script.replace("PORT=3000", f"PORT={free_port()}"))
    assert "unset DPSERVE_HOME" in analyst
    assert script.count("dpserve ") > 20
    assert "dpserve_budget_left_ratio" in said
    assert said.count("sound") == 3
    assert (folder / "curves.html").read_text("utf-8").startswith("<!doctype html>")
    assert (folder / "predictions.csv").stat().st_size > 100_000
    assert (folder / "account" / "checkpoint").exists()
    by = [json.loads(line).get("by") for line in (folder / "account" / "entries.jsonl").read_text().splitlines()]
    assert "token:analyst" in by
    assert not (folder / "config" / "dpserve" / "login.json").exists()
