"""The server at work: what its counts come to in each step, and the page that draws them."""

from __future__ import annotations

import re

import pytest
from pages_in_process import pages_at, words
from small_home import adult_home

from serving.process.watch import history
from serving.process.watch.history import MAX_SAMPLES, STEP_SECONDS, History
from serving.process.watch.metrics import BUCKETS, REQUESTS, count_predictions
from training.jobs import job, queue
from training.requests import JobRequest


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("service"), 5)
    with pages_at(home.path) as found:
        found.look()
        yield found


@pytest.fixture
def clock(monkeypatch):
    """The history's own, which a test moves on."""
    now = [history.time.time()]
    monkeypatch.setattr(history.time, "time", lambda: now[0])
    return now


def served(status, times=1):
    REQUESTS.labels("GET", "/v1/models", status).inc(times)


def test_a_step_is_what_came_between_two_samples(site, clock):
    kept, database = History(), site.home.ledger.log.database
    served("200", 99)  # before the first sample: of no step
    kept.take(database)
    assert kept.steps(3600) == []
    for status, times in (("200", 6), ("404", 3), ("503", 1)):
        served(status, times)
    for seconds in [0.0002] * 19 + [0.3]:
        count_predictions("adult@1", 1, seconds)
    job.submit(site.home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 3}), by="cli:ann")
    clock[0] += 30
    kept.take(database)
    (step,) = kept.steps(3600)
    assert (step.requests, step.refused, step.failed) == (20, 6, 2)  # a minute
    assert 0.0001 < step.middle < 0.00025
    assert step.middle < step.slow <= 0.25
    assert (step.waiting, step.running) == (1, 0)
    clock[0] += 30
    kept.take(database)
    last = kept.steps(3600)[-1]
    assert (last.requests, last.middle, last.slow) == (0, None, None)
    assert len(kept.steps(40)) == 1
    queue.work_once(site.home)


def test_a_day_is_kept_and_no_more(site, clock, monkeypatch):
    kept = History()
    monkeypatch.setattr(history, "_counted", lambda: (0.0, 0.0, 0.0, (0.0,) * (len(BUCKETS) + 1)))
    for _ in range(MAX_SAMPLES + 9):
        clock[0] += STEP_SECONDS
        kept.take(site.home.ledger.log.database)
    assert len(kept._samples) == MAX_SAMPLES
    steps = kept.steps(24 * 3600)
    assert len(steps) <= 120
    assert steps[-1].time == clock[0]
    kept.look(site.home.ledger.log.database)
    assert kept.steps(24 * 3600) == steps, "it is not time for another sample"


def test_the_page_draws_a_range_for_who_reads_metrics(site):
    kept, database = site.app.state.serving.history, site.home.ledger.log.database
    kept.take(database)
    served("200", 5)
    kept.take(database)
    kept.take(database)
    assert site.page("/ui/service", "train").status_code == 403
    assert site.page("/ui/service?range=1y").status_code == 400
    for chosen in ("15m", "1h", "6h", "24h"):
        page = site.page(f"/ui/service?range={chosen}", "audit")
        assert page.status_code == 200
        assert re.search(r'aria-current="true">(15 minutes|1 hour|6 hours|24 hours)', page.text)
        assert re.search(r'<path class="line ?" d="M[\d,]+L', page.text)
        assert re.search(r"a minute: [\d.]+ now, [\d.,]+ at most", words(page))
    assert re.search(r'<path class="dot ?" d="M\d+,\d+h0', page.text), "the job that was trained"
    assert "Service" in words(site.page("/ui", "audit"))
