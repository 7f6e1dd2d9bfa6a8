"""An environment of Python that has the core and the verifier, and no extension: neither modules nor entry points."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ("dpserve_verify", "accountant", "models", "training", "serving", "dpserve")


def core_alone(folder: Path) -> Path:
    """Make it of links to what is installed here, and return its Python."""
    here = Path(sysconfig.get_path("purelib"))
    there = folder / here.relative_to(sysconfig.get_path("data"))
    there.mkdir(parents=True)
    for path in here.iterdir():
        if "dpserve" not in path.name:
            (there / path.name).symlink_to(path)
    for room in CORE:
        (there / room).symlink_to(ROOT / room)
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
    own = {"DPSERVE_HOME": str(home), "NO_COLOR": "1", **more}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "serving.cli", *arguments]
    return subprocess.run(command, env=kept | own, cwd=home.parent, capture_output=True, text=True, timeout=300)
