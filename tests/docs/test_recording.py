"""The recording of the demo: as the recorder writes it, of a real run, and in the form that players read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDER = [sys.executable, str(ROOT / "examples" / "record.py")]
CAST = ROOT / "docs" / "img" / "demo.cast"


def read(path: Path) -> tuple[dict, list]:
    header, *events = map(json.loads, path.read_text("utf-8").splitlines())
    return header, events


def record(out: Path, program: str) -> int:
    command = [*RECORDER, str(out), sys.executable, "-u", "-c", program]
    return subprocess.run(command, env={**os.environ}, check=False).returncode


def test_recorder_writes_what_a_program_says_on_a_terminal_and_when(tmp_path):
    out = tmp_path / "x.cast"
    program = f"import os; print('a \u20ac', os.isatty(1)); print({str(ROOT / 'docs')!r})"
    assert record(out, program) == 0
    header, events = read(out)
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    assert "".join(text for _, kind, text in events if kind == "o") == "a \u20ac True\r\ndpserve/docs\r\n"
    assert 0 <= events[0][0] <= events[-1][0]


def test_a_program_that_fails_leaves_no_recording(tmp_path):
    out = tmp_path / "x.cast"
    assert record(out, "print('half'); raise SystemExit(3)") == 3
    assert not out.exists()


def test_the_recording_is_of_the_demo_as_it_is():
    """Each step that the demo announces and each command that it runs, in its order; at most five minutes, 30 kB."""
    header, events = read(CAST)
    times, said = [at for at, _, _ in events], "".join(text for _, _, text in events)
    assert header["version"] == 2
    assert times == sorted(times)
    assert 20 < times[-1] <= 300
    assert CAST.stat().st_size < 30_000
    demo = (ROOT / "examples" / "demo.py").read_text("utf-8").partition("def say(")[0]
    steps = [line.split('say("')[1].split('"')[0] for line in demo.splitlines() if line.strip().startswith('say("')]
    places = [said.index(f"== {step}") for step in steps]
    assert len(steps) >= 6
    assert places == sorted(places)
    for words in ("would fit", "HTTP 403", "Signature Verified Successfully", "sound", "All of it in"):
        assert words in said
    assert str(ROOT) not in said
    assert str(Path.home()) + "/" not in said
