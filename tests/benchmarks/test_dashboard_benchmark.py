"""The benchmark of the dashboard: it asks for every page, over a home that is what it says."""

from __future__ import annotations

import re
import subprocess
import sys

import psutil
import pytest

from accountant.ledger.families.records import State
from benchmarks import dashboard, made_ledger
from benchmarks.dashboard import PAGES, Line, Size, make, report, size_of
from models.store.bundle import ModelStore
from serving.pages.all import PAGES as DOORS

UNTIMED = {
    "/ui/",
    "/ui/static/{path:path}",
    "/ui/trust.json",
    "/ui/models/{name}/files/{file}",
    "/ui/models/{name}/bundle.zip",
    "/ui/drafts/{draft}",  # of a file that somebody brought
    "/ui/audit/ledger.zip",  # as long as the ledger
    "/ui/sso",  # another's server answers, where there is one
    "/ui/sso/back",
    "/ui/sso/provider",
}


def test_every_page_is_measured():
    doors = {door.path for door in DOORS if door.method == "GET"} - UNTIMED
    patterns = {path: re.compile(re.sub(r"\\{[^}]*\\}|\{[^}]*\}", "[^/]+", path) + r"(\?.*)?") for path in doors}
    missed = {path for path, pattern in patterns.items() if not any(pattern.fullmatch(at) for _, at in PAGES)}
    assert missed == set()


@pytest.mark.slow
def test_home_is_as_large_as_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(made_ledger, "PLANS", 3)
    monkeypatch.setattr(made_ledger, "JOBS_PER_DATASET", made_ledger.JOBS_PER_DATASET)
    home = make(tmp_path / "home", Size(400, 3, 2))
    size = size_of(home)
    assert abs(size.entries - 400) < 20
    assert (size.datasets, size.models) == (3, 2)
    assert ModelStore(home.models).names() == ["model-0", "model-1"]
    assert home.ledger.jobs(State.RESERVED) == []


def test_slow_page_is_named():
    fast, slow = Line("A", "/a", 10, 1, 2, 3, 20, 1000), Line("B", "/b", 10, 1, dashboard.BOUND + 1, 302, 1001, 1000)
    text = report([fast, slow], Size(1, 1, 1), {"ebm": 2700, "lazybb": 2701}, 0.5)
    assert "by the median: B." in text
    assert "Over 1,000 ms of a processor: B." in text
    alone = report([fast], Size(1, 1, 1), {}, 0.5)
    assert "No page took more than 300 ms" in alone
    assert "No page took more than 1,000 ms of a processor." in alone
    assert "| B | `/b` | 10 | 1.0 | 301.0 | 302 | 1001 | 1 |" in text
    assert "ebm 2,700 pixels; lazybb 2,701 pixels, too high. 3 screens are 2,700." in text


def test_work_of_a_processor_is_counted_with_that_of_processes_that_ended():
    server = psutil.Process()
    before = dashboard.spent(server)
    work = "import time\nwhile time.process_time() < 0.4: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert dashboard.spent(server) - before >= 300
