"""Time and memory against rows: a small run end to end, and the page against its lines and its bounds."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks import scale
from training.session import session

ROOT = Path(__file__).resolve().parents[2]
LINES = [json.loads(line) for line in (ROOT / "benchmarks" / "results" / "scale.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_small_run_registers_and_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path))
    monkeypatch.setattr(session.Session, "release", session.Session.release)
    scale.write(tmp_path, 3000)
    lines = [
        {"rows": 3000, "what": what, "load": 0.0, **scale.one(tmp_path, what)}
        for what in (scale.REGISTER, "lazybb, a round")
    ]
    assert all(line["cpu"] > 0 and line["anonymous_mb"] > 1 for line in lines)
    assert 0 <= lines[1]["ms"] < 1000 * lines[1]["cpu"]
    assert "| lazybb, a round |" in scale.report(lines)
    clocks = [
        {**line, "what": f"{line['what']}: clock", "turn": 0, "on": on} for line in lines for on in scale.PROCESSORS
    ]
    for line in clocks[1::2]:
        line["seconds"] /= 2
    assert "| 0.50 | 0.50 |" in scale.report([*lines, *clocks])
    scale.plot(lines, tmp_path / "plot.svg")
    assert "memory" in (tmp_path / "plot.svg").read_text()


def test_page_is_written_from_its_lines_and_keeps_the_bounds():
    page = (ROOT / "benchmarks" / "results" / "scale.md").read_text()
    tables = [line for line in scale.report(LINES).splitlines() if line.startswith("|")]
    assert tables == [line for line in page.splitlines() if line.startswith("|")]
    at = {(line["rows"], line["what"]): line for line in LINES if "turn" not in line}
    for (_, what), line in ((about, at[about]) for about in at if about[1] in (scale.REGISTER, *scale.JOBS)):
        assert line["anonymous_mb"] <= scale.BOUNDS["register" if what == scale.REGISTER else "train"]
    assert at[10**7, "lazybb, a round"]["ms"] <= 60
    assert at[10**8, "lazybb, a round"]["ms"] <= 600
    assert at[10**8, "ebm, a release"]["ms"] <= 200
    assert all(at[10**8, what]["ms"] <= 1.2 * 10 * at[10**7, what]["ms"] for what in scale.JOBS)
    assert at[10**7, scale.REGISTER]["cpu"] <= 1.1e-6 * 10**7
    clocks = {(line["what"], line["turn"], line["on"]): line for line in LINES if "turn" in line}
    for what, figure in ((scale.REGISTER, "seconds"), (scale.ROUND, "clock_ms")):
        turns = sorted({turn for _, turn, _ in clocks})
        one, two = ([clocks[f"{what}: clock", turn, on][figure] for turn in turns] for on in scale.PROCESSORS)
        assert median(after / before for before, after in zip(one, two, strict=True)) <= 0.65
