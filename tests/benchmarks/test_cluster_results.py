"""Rows asked by a cluster, measured: the page against its lines and its bounds, and a small run end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cluster

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
LINES = [json.loads(line) for line in (RESULTS / "cluster.jsonl").read_text().splitlines()]


def test_page_is_written_from_its_lines_and_keeps_the_bounds():
    page = (RESULTS / "cluster.md").read_text()
    tables = [line for line in cluster.report(LINES).splitlines() if line.startswith("|")]
    assert tables == [line for line in page.splitlines() if line.startswith("|")]
    at = {(line["rows"], line["what"]): line["ms"] for line in LINES}
    assert all(ms <= 30 for (_, what), ms in at.items() if what == cluster.NOTHING)
    assert at[10**8, cluster.THERE] <= 1.4 * at[10**8, cluster.HERE]
    assert all(ms <= 4 * at[rows, cluster.THERE] for (rows, what), ms in at.items() if what == cluster.KILLED)


@pytest.mark.server
def test_a_small_run_compares_bits_and_kills_a_worker(tmp_path, monkeypatch):
    for name, count in (("KILLS", 1), ("ROUNDS", 2 * cluster.BATCH), ("EMPTY", 10)):
        monkeypatch.setattr(cluster, name, count)
    lines = cluster.measure(3000, tmp_path)
    told = {cluster.HERE, cluster.THERE, cluster.NOTHING, cluster.KILLED, cluster.WHOLE}
    assert {line["what"] for line in lines} == told
    assert all(line["ms"] > 0 for line in lines)
