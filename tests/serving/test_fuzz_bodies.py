"""Every body format under random harm, on a real server whose worker the system gives no more memory than it may have.

A few thousand inputs in every run; `FUZZED_BODIES=20000` looks further, and `FUZZED_SEED` elsewhere. What is claimed:
no input has a fault of ours for an answer, no worker grows beyond MOST_BYTES or is lost, and all is as before then.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import httpx
import psutil
import pytest
from body_fuzzer import Fuzzer
from small_home import adult_home, serving

from training.jobs import job
from training.requests import JobRequest

pytestmark = [pytest.mark.server, pytest.mark.slow]

INPUTS = int(os.environ.get("FUZZED_BODIES", "2000"))
SEED = int(os.environ.get("FUZZED_SEED", "14"))
MOST_BYTES = 1_200_000_000
REFUSED = {200, 400, 404, 408, 413, 415, 422, 429, 504}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    home = adult_home(folder, 20)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}), by="test")
    with serving(home.path, workers=1) as found:
        yield found


def worker_of(server):
    (found,) = server.processes("dpserve-serving")
    return found


def high_water(worker):
    """The most that it ever had in memory, in bytes."""
    with open(f"/proc/{worker.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def test_no_body_harms_the_server(server):
    before, size = server.predict().json(), server.home.ledger.log.size()
    worker, fuzzer, seen, longest = worker_of(server), Fuzzer(SEED), Counter(), 0.0
    room = worker.memory_info().vms - worker.memory_info().rss + MOST_BYTES
    worker.rlimit(psutil.RLIMIT_AS, (room, room))  # beyond it the system gives nothing, and Python says MemoryError
    headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=60) as client:
        for number in range(INPUTS):
            body, start = fuzzer.body(number), time.perf_counter()
            sent = client.post(body.path, content=body.raw, headers={"Content-Type": body.kind, **body.headers})
            seen[body.path, sent.status_code] += 1
            longest = max(longest, time.perf_counter() - start)
            assert sent.status_code in REFUSED, (SEED, number, body.name, sent.status_code, sent.text[:300])
    assert worker_of(server).pid == worker.pid  # none was lost
    most = high_water(worker)
    print(f"{INPUTS} bodies, seed {SEED}: {most / 1e6:.0f} MB at most, {longest:.1f} s at most; {dict(seen)}")
    assert most < MOST_BYTES
    assert server.predict().json() == before
    assert server.home.ledger.log.size() == size
    text = server.log.read_text()
    assert "Traceback" not in text
    assert "unexpected" not in text
    assert max(map(len, text.splitlines())) < 2000  # nor is anything of a body told in the log
