"""Pages whose commands are run as they stand: their blocks, a folder to run them in, and a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import warm

ROOT = Path(__file__).resolve().parents[2]


def part(page: str, heading: str) -> str:
    """What stands on a page of the project under a heading, up to the next one of its level or above."""
    lines = (ROOT / page).read_text("utf-8").splitlines(keepends=True)
    heads, fenced = list[tuple[int, int, str]](), False
    for at, line in enumerate(lines):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (found := re.match(r"(#+) (.*)", line)):
            heads.append((at, len(found[1]), found[2]))
    ((start, level),) = [(at, level) for at, level, name in heads if name == heading]
    end = next((at for at, other, _ in heads if at > start and other <= level), len(lines))
    return "".join(lines[start:end])


def blocks(page: str, language: str, under: str = "") -> list[str]:
    """The fenced blocks of a page of the project, or of what stands there under a heading, in order."""
    text = part(page, under) if under else (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def newcomers() -> list[str]:
    """The lines of the messy table's page from `make install` to its first verified model."""
    lines = "".join(blocks("docs/tutorials/messy.md", "sh")).splitlines()
    return lines[: 1 + next(at for at, line in enumerate(lines) if line.startswith("dpserve verify "))]


def checkout(folder: Path) -> Path:
    """A folder that looks like the project after `make install`, so that nothing is written into the real one."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / ".venv" / "bin").mkdir(parents=True)
    programs = {"python": [], "bentoml": ["-m", "bentoml"]}
    commands = {name: [sys.executable, *words] for name, words in programs.items()}
    for name, command in {**commands, "dpserve": [*warm.python(), "-m", "serving.cli"]}.items():
        launcher = folder / ".venv" / "bin" / name
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        launcher.chmod(0o755)
    return folder


def follow(folder: Path, script: str) -> str:
    """Run it in one shell, with a home of its own; its output, once it has ended well. What it leaves running ends."""
    own = {"DPSERVE_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config"), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **own}
    out, err = folder / "out.txt", folder / "err.txt"  # files: a server that was left would hold a pipe open for ever
    whole = f"set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    with out.open("w") as stdout, err.open("w") as stderr:
        done = subprocess.run(
            ["bash", "-c", whole], cwd=folder, env=environment, stdout=stdout, stderr=stderr, timeout=300
        )
    assert done.returncode == 0, out.read_text("utf-8")[-2000:] + err.read_text("utf-8")[-2000:]
    return out.read_text("utf-8")
