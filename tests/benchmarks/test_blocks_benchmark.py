"""What blocks cost: a small run, and the page against its bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "results" / "blocks.md").read_text()


@pytest.mark.slow
def test_a_small_run_admits_to_windows_and_shows_them(tmp_path):
    home = blocks.grown(tmp_path / "home", 60)
    figures = [*blocks.admissions(home, 60, 1), *blocks.commands(home)]
    assert [each.value > 0 for each in figures] == [True] * 5
    assert len(home.ledger.jobs()) == 5 * 3 + blocks.WINDOW + 1
    assert "| admission, 52 blocks that all stand differently |" in blocks.report(figures, 60, 0.0)


def test_the_page_keeps_its_bounds():
    lines = re.findall(r"^\| (.+?) \| ([0-9.]+) (\w+) \| (?:([0-9.]+) \w+)? ?\|$", PAGE, re.M)
    bounds = {name: (float(value), float(bound)) for name, value, _, bound in lines if bound}
    assert len(lines) == 9
    assert len(bounds) == 7
    assert all(value <= bound for value, bound in bounds.values())
