"""The hooks before a commit check what `make lint` checks."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_hooks_are_the_lines_of_make_lint():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.M)
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    (repo,) = config["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == lines
    assert repo["repo"] == "local"
    assert all(
        (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True)
        for hook in repo["hooks"]
    )
