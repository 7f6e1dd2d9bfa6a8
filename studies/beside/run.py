"""What the five peers of docs/reference/claims.md do at its lines: each in an environment of its own, by its program.

    python -m studies.beside.run [mlflow kserve lomas dp_wizard jax_privacy]    # all, where none is named
    python -m studies.beside.run --report                                       # the page from the lines alone

Each NAME.in says what is installed (from the package index, minutes). Lines of JSON go to beside.jsonl, the page to
beside.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.lines import Line, read_lines, write_lines

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PEERS = {
    "mlflow": "MLflow",
    "kserve": "KServe",
    "lomas": "Lomas",
    "dp_wizard": "DP Wizard",
    "jax_privacy": "JAX-Privacy",
}
LINES = {
    "version": "what was installed",
    "limit": "a limit on what is spent",
    "price": "the price before it is paid",
    "list": "one list of what was spent",
    "derived": "what a model gives away, derived again",
    "worth": "what a model is worth",
    "attack": "an attack that bounds epsilon from below",
    "cover": "answers that cover",
    "person": "a statement for one person",
    "again": "every line of it again, from public entries",
    "elsewhere": "the same audit elsewhere",
    "agents": "a door for agents",
    "sso": "single sign-on",
    "export": "a model as a program",
    "serve": "predictions over REST",
    "grpc": "predictions over gRPC",
}

# The rows of the table of claims, in its order.
ROWS = (
    *("limit", "price", "list", "derived", "worth", "attack", "cover", "person", "again", "elsewhere"),
    *("agents", "sso", "export", "grpc"),
)


def run(peer: str) -> list[Line]:
    """Install a peer, run its program in an empty folder, and return its lines."""
    with tempfile.TemporaryDirectory() as folder:
        place, empty = Path(folder) / "venv", Path(folder) / "empty"
        venv.create(place, with_pip=True)
        empty.mkdir()
        python = str(place / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(HERE / f"{peer}.in")], check=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [python, "-m", f"studies.beside.{peer}_peer"]
        done = subprocess.run(command, cwd=empty, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [{"peer": peer, **json.loads(line)} for line in done.stdout.splitlines() if line.startswith("{")]


def page(lines: list[Line]) -> str:
    """Return the page: a table for each peer, in the order of the lines."""
    parts = [
        "# Five peers, run\n",
        "What each did at the lines of",
        "[the table of claims](../../docs/reference/claims.md).",
        "Where nothing was found, the pattern is said, and how many Python files of the installed package hold it.",
        "`python -m studies.beside.run` makes this page.\n",
    ]
    for peer, title in PEERS.items():
        parts += [f"## {title}\n", "| what | command | what was seen |", "|---|---|---|"]
        own = [line for line in lines if line["peer"] == peer]
        for line in sorted(own, key=lambda each: list(LINES).index(each["line"])):
            command, answer = (str(line[key]).replace("|", "\\|").replace("\n", " ") for key in ("command", "answer"))
            parts.append(f"| {LINES[line['line']]} | `{command}` | {answer} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    lines = read_lines(HERE / "beside.jsonl")
    if "--report" not in sys.argv[1:]:
        for peer in sys.argv[1:] or list(PEERS):
            lines = [line for line in lines if line["peer"] != peer] + run(peer)
            write_lines(HERE / "beside.jsonl", lines)
    (HERE / "beside.md").write_text(page(lines), "utf-8")


if __name__ == "__main__":
    main()
