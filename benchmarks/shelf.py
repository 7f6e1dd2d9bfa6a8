"""What a server costs by the number of its models: a home of N models, each trained and certified as any other.

    DPSERVE_HOME=/tmp/shelf python -m benchmarks.shelf 10 300 3000 > benchmarks/results/shelf.md

Models are added to one home up to each N; then `dpserve serve --workers 1` answers, and up to 200 models, evenly taken,
are asked once each. Processor time and memory are of the serving process alone, so they stand on a busy machine too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from accountant.home import Home, place
from dpserve_verify.privacy.budget import Budget, Relation
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

SCHEMA = """target: {name: y, classes: ['0', '1']}
records: 200
features: {a: {type: numeric, range: [0, 1], bins: 8}, b: {type: numeric, range: [0, 1], bins: 8}}
"""
ASKED, PORT, IDLE_SECONDS, TICKS = 200, 17463, 20.0, os.sysconf("SC_CLK_TCK")
DOORS = ("/v1/models", "/v1/models?limit=1000", "/ui/models", "/ui", "/metrics", "/v1/models/m-00001", "/readyz")


@dataclass(frozen=True)
class Process:
    """A serving process, as the system counts it."""

    number: int

    @property
    def seconds(self) -> float:
        """Return processor seconds so far."""
        words = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    @property
    def mib(self) -> tuple[float, float]:
        """Return MiB: resident, and of its own."""
        text = Path(f"/proc/{self.number}/smaps_rollup").read_text()
        sizes = {name: int(size) / 1024 for name, size in re.findall(r"(\w+): +(\d+) kB", text)}
        return sizes["Rss"], sizes["Private_Dirty"] + sizes["Private_Clean"]


def grow(home: Home, count: int) -> None:
    """Train models until the home has `count`."""
    if not home.models.exists() or not any(home.models.iterdir()):
        made = random.Random(7)
        files = home.path.parent
        rows = "".join(f"{made.random():.6f},{made.random():.6f},{made.randint(0, 1)}\n" for _ in range(200))
        (files / "shelf.csv").write_text(f"a,b,y\n{rows}")
        (files / "shelf.yaml").write_text(SCHEMA)
        budget = Budget.of(100, "1e-5")
        register(home, "shelf", files / "shelf.csv", files / "shelf.yaml", budget, Relation.ADD_REMOVE, None)
    for number in range(sum(1 for _ in home.models.iterdir()) + 1, count + 1):
        request = JobRequest("shelf", "lazybb", "0.01", parameters={"rounds": 5}, model=f"m-{number:05}", promote=True)
        job.train(home, request, by="benchmark")


@contextlib.contextmanager
def serving() -> Iterator[Process]:
    """Serve the home, and yield the process that answers."""
    command = [
        sys.executable,
        "-m",
        "serving.cli",
        "serve",
        "--port",
        str(PORT),
        "--workers",
        "1",
        "--job-workers",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--audit-seconds", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(600):
                time.sleep(0.2)
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{PORT}/readyz").status_code == 200:
                        break
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            (number,) = (each for each in children if Path(f"/proc/{each}/comm").read_text() == "dpserve-serving\n")
            yield Process(int(number))
        finally:
            server.send_signal(signal.SIGTERM)


def measure(count: int, token: str) -> list[str]:
    """Return the cells of a line: of a home with so many models."""
    ask = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers={"Authorization": f"Bearer {token}"}, timeout=60)
    with serving() as process:
        start = process.seconds
        while re.findall(r"\ndpserve_models_loaded (\d+)", ask.get("/metrics").text) != [str(count)]:
            time.sleep(IDLE_SECONDS / 4)  # all are verified in the background
        time.sleep(IDLE_SECONDS / 4)
        before = process.seconds
        time.sleep(IDLE_SECONDS)
        idle = (process.seconds - before) / IDLE_SECONDS
        for number in range(1, count + 1, max(1, count // ASKED)):
            body = {"model": f"m-{number:05}", "records": [{"a": 0.3, "b": 0.2}]}
            ask.post("/predict", json=body).raise_for_status()
        resident, own = process.mib
        doors = [_milliseconds(process, ask, door) for door in DOORS]
    return [f"{count:,}", f"{start:.1f}", f"{idle:.1%}", f"{resident:.0f}", f"{own:.0f}", *doors]


def _milliseconds(process: Process, ask: httpx.Client, door: str, times: int = 10) -> str:
    ask.get(door).raise_for_status()
    before = process.seconds
    for _ in range(times):
        ask.get(door)
    return f"{(process.seconds - before) / times * 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", type=int, nargs="+", help="numbers of models, ascending")
    counts = parser.parse_args().counts
    folder, _ = place(os.environ)
    home = Home.open() if folder.exists() else Home.init({"DPSERVE_HOME": str(folder)})
    token = new_token(home, f"shelf-{time.time_ns()}", ["admin"])[0]
    heads = ["models", "start, s", "idle", "MiB", "own MiB", *(f"`{door}`, ms" for door in DOORS)]
    print(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}", flush=True)
    for count in counts:
        grow(home, count)
        print(f"| {' | '.join(measure(count, token))} |", flush=True)


if __name__ == "__main__":
    main()
