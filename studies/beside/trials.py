"""What the programs of this folder share. Each runs in an environment of its own, so this asks for the standard library
alone.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
import urllib.request
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path


def note(line: str, command: str, answer: object) -> None:
    """Print a line of JSON: what was tried of a line of the table, by which command, and what was seen."""
    print(json.dumps({"line": line, "command": command, "answer": str(answer)}), flush=True)


def name_versions(*distributions: str) -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in distributions)
    note("version", "pip install", f"{versions}, Python {sys.version.split()[0]}")


def count_files_with(package: str, words: str) -> int:
    """Return how many Python files of an installed package hold a pattern, whatever the case."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    files = Path(spec.origin).parent.rglob("*.py")
    return sum(1 for path in files if re.search(words, path.read_text("utf-8", "replace"), re.I))


def note_absences(package: str, absent: dict[str, str]) -> None:
    """For each line that nothing was found for: the pattern, and how many of the package's files hold it."""
    for line, words in absent.items():
        note(line, f"grep -riElE '{words}' {package}", f"{count_files_with(package, words)} files")


def find_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_for(url: str, seconds: float = 120) -> None:
    """Return once an address answers; TimeoutError where it does not."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(url)
