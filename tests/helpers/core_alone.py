"""An environment of Python that has the core and the verifier, and no extension: neither modules nor entry points."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

# What leads to the rooms of the core and of the verifier, where they lie: so what was compiled there is read.
OWN = re.compile(r"__editable__.*dpserve(_verify)?[-_]\d")

EACH = """
import contextlib, io, json, sys
from serving.cli.app import run
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def core_alone(folder: Path) -> Path:
    """Make it of links to what is installed here, and return its Python."""
    here = Path(sysconfig.get_path("purelib"))
    there = folder / here.relative_to(sysconfig.get_path("data"))
    there.mkdir(parents=True)
    for path in here.iterdir():
        if "dpserve" not in path.name or OWN.match(path.name):
            (there / path.name).symlink_to(path)
    (own,) = here.glob("dpserve-*.dist-info")
    (there / own.name).mkdir()
    (there / own.name / "METADATA").write_bytes((own / "METADATA").read_bytes())
    settings = Path(sysconfig.get_path("data")) / "pyvenv.cfg"
    (folder / settings.name).write_bytes(settings.read_bytes())
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sysconfig.get_path("scripts"), "python").resolve())
    return python


def run_alone(python: Path, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command of the core alone, in a process of its own."""
    return _run([str(python), "-m", "serving.cli", *arguments], home, **more)


def run_each(python: Path, home: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Commands of the core alone, one after another in one process, for to start one takes two seconds of a processor:
    what each returns, prints, and prints as an error."""
    done = _run([str(python), "-c", EACH], home, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [(code, out, error) for code, out, error in map(json.loads, done.stdout.splitlines())]


def _run(command: list[str], home: Path, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    own = {"DPSERVE_HOME": str(home), "NO_COLOR": "1", **more}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, input=given, env=kept | own, cwd=home.parent, capture_output=True, text=True, timeout=300
    )
