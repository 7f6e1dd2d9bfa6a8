"""How long every page of the dashboard takes over a large home: by default 1e5 entries, 500 datasets, 1,000 models.

    python -m benchmarks.dashboard                                     # some minutes, most of them to make the home
    python -m benchmarks.dashboard --home folder                       # made there once, and taken from there again
    python -m benchmarks.dashboard --report benchmarks/results/dashboard.md

The home is made as `benchmarks.ledger` makes its own, with models trained on real rows of Adult on top, every tenth
of them evaluated, and two on the messy table of `examples/messy.py`, which has 185 laboratory values among its
features. One worker serves it as `dpserve serve` does. Figures are milliseconds by the clock over the loopback
interface, from the request to the answer's last byte: the first time that a page is asked for, and the median and the
worst of the times after it; and of the processor, by the server and all processes that it started. How high the pages
of many features are is measured in Chromium, with every picture drawn that comes by itself.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow.parquet as pq
from playwright.sync_api import sync_playwright

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger.families.records import NewPeople, State, Why
from benchmarks import made_ledger
from dpserve_platform.replay.subjects import admit, source_by
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.bundle import ModelStore
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import job
from training.requests import EvaluationRequest, JobRequest, ProfileRequest

ROOT = Path(__file__).parent.parent
ADULT = ROOT / "examples" / "data"
MESSY = ROOT / "examples" / "messy.py"
WIDE = {"lazybb": "0", "ebm": "0.000001"}  # learner: delta; each learns a model of many features
ROWS, ENTRIES_OF_A_MODEL, MEASURED = 400, 4, 10  # every so manieth model is evaluated
SCREEN, SCREENS = (1280, 900), 3  # pixels; a page of many features is as high as so many at most
BOUND, PROCESSOR = 300.0, 1000.0  # milliseconds by the clock, and of a processor
REPEATS = 9
READY_SECONDS = 300.0

# Every page: what it is called, and where it is. {job}, {profile}, {grant}: the newest; {entry}: one in the middle;
# {turn}: another one each time. PART: what a page asks for once it is shown, so nobody waits for the page meanwhile.
PART = "part: "
PAGES = (
    ("Home", "/ui"),
    ("Datasets", "/ui/datasets"),
    ("Dataset", "/ui/datasets/rows-0"),
    ("Release made elsewhere", "/ui/datasets/adult/charge"),
    (PART + "what still fits in a dataset", "/ui/datasets/adult/fits"),
    ("Dataset of 1,000 jobs", "/ui/datasets/adult"),
    ("For one person", "/ui/datasets/adult/person"),
    ("For one person, signed", "/ui/datasets/adult/person/signed"),
    ("Jobs", "/ui/jobs"),
    ("Jobs of a dataset", "/ui/jobs?dataset=rows-0"),
    ("Job", "/ui/jobs/{job}"),
    ("New job", "/ui/jobs/new?dataset=adult&learner=lazybb"),
    (PART + "a new job's price", "/ui/jobs/price?dataset=adult&learner=lazybb&epsilon=0.1"),
    (PART + "a learner's parameters", "/ui/jobs/parameters?dataset=adult&learner=ebm"),
    (PART + "windows of blocks for a new job", "/ui/jobs/blocks?dataset=adult"),
    ("Schedules", "/ui/schedules"),
    ("Learners of others", "/ui/learners"),
    ("Learner of others", "/ui/learners/bayes"),
    ("Models", "/ui/models"),
    ("Models, the last page", "/ui/models?after=950"),
    ("Models, search", "/ui/models?q=77"),
    ("Models, by worth", "/ui/models?sort=worth"),
    ("Model", "/ui/models/model-0"),
    ("Edit a curve", "/ui/models/model-0/edit"),
    ("Compare two models", "/ui/models/model-0/compare?with=model-1"),
    ("New evaluation", "/ui/evaluations/new?model=model-0"),
    ("New profile", "/ui/profiles/new?dataset=adult"),
    ("New query", "/ui/answers/new?dataset=adult"),
    ("Service", "/ui/service"),
    ("Keys", "/ui/keys"),
    ("Model not in memory", "/ui/models/model-{turn}"),
    ("Model of 192 features, lazybb", "/ui/models/messy-lazybb"),
    (PART + "its pictures", "/ui/models/messy-lazybb/shapes"),
    ("Model of 192 features, ebm", "/ui/models/messy-ebm"),
    (PART + "its pictures, ebm", "/ui/models/messy-ebm/shapes"),
    ("Edit a curve of 192", "/ui/models/messy-ebm/edit"),
    ("Verify files", "/ui/verify"),
    ("Ledger", "/ui/ledger"),
    ("Ledger, the oldest page", "/ui/ledger?before=50"),
    ("Ledger, a dataset", "/ui/ledger?dataset=rows-0"),
    ("Ledger, a kind", "/ui/ledger?kind=dataset-registered"),
    ("Ledger, a job", "/ui/ledger?job={job}"),
    ("Ledger, an analyst", "/ui/ledger?name=ana"),
    ("Ledger, a text that is there", "/ui/ledger?text=model-77"),
    ("Ledger, a text that is not", "/ui/ledger?text=there+is+no+such+text"),
    ("Ledger, all of it at once", "/ui/ledger?dataset=rows-0&kind=burned&name=ana&text=failed"),
    ("Entry", "/ui/ledger/{entry}"),
    ("Entry's proof", "/ui/ledger/{entry}/proof"),
    ("Audit", "/ui/audit"),
    ("Checkpoint", "/ui/audit/checkpoint"),
    ("Profile", "/ui/profiles/{profile}"),
    ("Campaigns", "/ui/campaigns"),
    ("Grants", "/ui/grants"),
    ("Grant", "/ui/grants/{grant}"),
    ("Tokens", "/ui/tokens"),
    ("Files to register", "/ui/drafts"),
    (PART + "what a total means", "/ui/drafts/meaning?epsilon=1&delta=1e-6"),
    ("Documentation", "/docs"),
    ("Documentation, a page", "/docs/learners"),
    ("Doors to be tried", "/api"),
    ("Sign in", "/ui/login"),
)


@dataclass(frozen=True)
class Size:
    entries: int
    datasets: int
    models: int


@dataclass(frozen=True)
class Line:
    """Times in milliseconds; `processor`: of the costliest of the first answer and the mean of those after it, as the
    system counts it, in hundredths of a second; `size`: bytes of the answer.
    """

    name: str
    path: str
    first: float
    least: float
    median: float
    worst: float
    processor: float
    size: int

    @property
    def costly(self) -> bool:
        """Whether an answer takes more of a processor than a page may."""
        return self.processor > PROCESSOR

    @property
    def slow(self) -> bool:
        """By the first time and the median; the worst of a few tells more of what else the machine did."""
        return max(0.0 if self.name.startswith(PART) else self.first, self.median) > BOUND


def make(folder: Path, size: Size) -> Home:
    """A home of that size, but for a few entries."""
    own = (size.models + -(-size.models // MEASURED)) * ENTRIES_OF_A_MODEL  # an evaluation has as many
    made_ledger.JOBS_PER_DATASET = (size.entries - own) // (4 * (size.datasets - 1)) + 1
    made_ledger.make(folder, size.entries - own)
    home = Home.open({"DPSERVE_HOME": str(folder)})
    for each in home.ledger.jobs(State.RESERVED):
        home.ledger.release(each.seq)  # a worker would find no rows for them
    with tempfile.TemporaryDirectory() as files:
        data, schema = Path(files) / "rows.parquet", Path(files) / "schema.yaml"
        pq.write_table(pq.read_table(ADULT / "adult_train.parquet").slice(0, ROWS), data)
        schema.write_text((ADULT / "adult.schema.yaml").read_text().replace("records: 32561", f"records: {ROWS}"))
        other = NewPeople("the others have no rows to compare them with", "benchmark")
        register(home, "adult", data, schema, Budget.of("100", "0.00001"), Relation.ADD_REMOVE, None, new_people=other)
    for number in range(size.models):
        asked = JobRequest("adult", "lazybb", "0.01", parameters={"rounds": 2}, model=f"model-{number}")
        job.train(home, asked, by=f"analyst-{number % 7}")
        if number % MEASURED == 0:
            job.measure(home, EvaluationRequest(asked.model, "adult", "0.01", "training"), by=f"analyst-{number % 7}")
    job.measure(home, ProfileRequest("adult", "0.1"), by="analyst-0")
    bayes = source_by(f"{ROOT / 'examples' / 'naive_bayes.py'}:NaiveBayes", None)
    admit(home, bayes, "bayes", Why("benchmark", "has a page"), neighbours=1)
    grants.add(home.ledger, [Grant("team", "audit", "everything", "", None, None)], "benchmark")
    return home


def make_wide(home: Home) -> None:
    """A model of the messy table by each learner of WIDE, evaluated: `messy-lazybb`, `messy-ebm`."""
    with tempfile.TemporaryDirectory() as files:
        data, schema = Path(files) / "messy.csv", Path(files) / "messy.yaml"
        subprocess.run([sys.executable, MESSY, data, schema], check=True)
        nobody = NewPeople("made up, they have no rows to compare others with", "benchmark")
        budget, each_patient = Budget.of("9", "0.00001"), ("patient_id", 4)
        register(home, "messy", data, schema, budget, Relation.ADD_REMOVE, *each_patient, new_people=nobody)
    for learner, delta in WIDE.items():
        asked = JobRequest("messy", learner, "1", delta=delta, model=f"messy-{learner}", target="readmitted")
        job.train(home, asked, by="analyst-0")
        job.measure(home, EvaluationRequest(asked.model, "messy", "1", "training"), by="analyst-0")


def size_of(home: Home) -> Size:
    return Size(home.ledger.log.size(), len(home.ledger.datasets()), len(ModelStore(home.models).names()))


@contextmanager
def served(home: Home, port: int) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """A client with a session on a server that is ready: every model verified, the ledger audited once; the server."""
    secret, _ = new_token(home, f"benchmark-{time.time_ns()}", ["admin"])
    own = {"DPSERVE_HOME": str(home.path), "DPSERVE_AUDIT_SECONDS": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "1"]
    with (home.path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    headers = {"Cookie": f"dpserve={secret}", "Accept": "text/html", "Origin": f"http://127.0.0.1:{port}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            _until(lambda: client.get("/readyz").status_code == 200, process)
            _until(lambda: "unverified" not in client.get("/v1/models").text, process)
            if client.get("/v1/audits/last").status_code == 404:
                client.post("/v1/audits", json={})
            _until(lambda: client.get("/v1/audits/last").status_code == 200, process)
            yield client, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _until(holds: Any, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit("the server did not come up; its log is in the home, server.log")
        try:
            if holds():
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.2)


def spent(server: psutil.Process) -> float:
    """Milliseconds of a processor by the server and the processes that it started, those that ended included."""
    found = 0.0
    for each in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += sum(each.cpu_times()[:4])
    return 1000 * found


def measure(
    client: httpx.Client, server: psutil.Process, home: Home, models: int, repeats: int = REPEATS
) -> list[Line]:
    issued = [each for each in reversed(home.ledger.jobs()) if each.issued is not None]
    known = {
        "job": str(next(each.seq for each in issued if each.model)),
        "profile": str(next(each.seq for each in issued if not each.model)),
        "entry": str(home.ledger.log.size() // 2),
        "grant": str(grants.grants(home.ledger)[-1].index),
    }
    turns = iter(range(models))
    return [_line(client, server, name, path, known, turns, repeats) for name, path in PAGES]


def _line(
    client: httpx.Client,
    server: psutil.Process,
    name: str,
    path: str,
    known: dict[str, str],
    turns: Iterator[int],
    repeats: int,
) -> Line:
    times, size, processor = [], 0, [spent(server)]
    for _ in range(1 + repeats):
        address = path.format(**known, turn=next(turns)) if "{turn}" in path else path.format(**known)
        start = time.perf_counter()
        answer = client.get(address)
        times.append(1000 * (time.perf_counter() - start))
        if answer.status_code != 200:
            raise SystemExit(f"{address}: answered {answer.status_code}")
        size = len(answer.content)
        processor.append(spent(server))
    cost = max(processor[1] - processor[0], (processor[-1] - processor[1]) / repeats)
    return Line(name, path, times[0], min(times[1:]), statistics.median(times[1:]), max(times[1:]), cost, size)


def heights(client: httpx.Client) -> dict[str, int]:
    """Pixels of the page of each model of `make_wide`, by learner, once it has drawn all that comes by itself."""
    found = {}
    width, height = SCREEN
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, base_url=str(client.base_url))
        secret = client.headers["Cookie"].partition("=")[2]
        page.context.add_cookies([{"name": "dpserve", "value": secret, "url": str(client.base_url)}])
        for learner in WIDE:
            page.goto(f"/ui/models/messy-{learner}")
            page.locator("#decides").scroll_into_view_if_needed()
            page.locator("#plots[aria-busy=false] .plot svg").first.wait_for()
            found[learner] = int(page.evaluate("document.documentElement.scrollHeight"))
        browser.close()
    return found


def table(lines: Sequence[Line]) -> str:
    rows = [_row(line) for line in lines]
    head = ["| page | address | first | least | median | worst | processor | kB |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    return "\n".join([*head, *rows]) + "\n"


def _row(line: Line) -> str:
    times = f"{line.first:.0f} | {line.least:.1f} | {line.median:.1f} | {line.worst:.0f} | {line.processor:.0f}"
    return f"| {line.name} | `{line.path}` | {times} | {line.size / 1000:.0f} |"


def report(lines: Sequence[Line], size: Size, pixels: dict[str, int], load: float) -> str:
    slow = [line.name for line in lines if line.slow]
    none = f"No page took more than {BOUND:g} ms, by the first time and by the median."
    said = f"Over {BOUND:g} ms, by the first time or by the median: {', '.join(slow)}." if slow else none
    costly = [line.name for line in lines if line.costly]
    none = f"No page took more than {PROCESSOR:,.0f} ms of a processor."
    cost = f"Over {PROCESSOR:,.0f} ms of a processor: {', '.join(costly)}." if costly else none
    high = "; ".join(f"{learner} {found:,} pixels{told(found)}" for learner, found in pixels.items())
    return f"""# The dashboard over a large home

{size.entries:,} entries in the ledger, {size.datasets:,} datasets, {size.models:,} models, one worker. Milliseconds by
the clock, from the request to the answer's last byte. `first`: the first time that the page is asked for after the
server came up; the others are of the {REPEATS} times after it. A part is what a page asks for once it is shown: the
first answer of one may take longer, since a price is found by rehearsing the learner, and is remembered.

{cost} `processor`: what the server and the processes that it started took for the first answer or, where that is more,
for each of those after it.

{said}

The messy table's models have 192 features, 185 of them laboratory values. Their pages on a screen of {SCREEN[0]} by
{SCREEN[1]} pixels: {high}. {SCREENS} screens are {SCREENS * SCREEN[1]:,}.

{table(lines)}
Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load {load:.1f} when it began,
niceness {os.getpriority(os.PRIO_PROCESS, 0)}; `python -m benchmarks.dashboard`.
"""


def told(pixels: int) -> str:
    """Whether a page is higher than it may be."""
    return ", too high" if pixels > SCREENS * SCREEN[1] else ""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--models", type=int, default=1_000)
    parser.add_argument("--home", type=Path, help="a folder to make the home in, or one made before")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    given = parser.parse_args(arguments)
    size = Size(given.entries, given.datasets, given.models)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.home or Path(scratch) / "home"
        home = Home.open({"DPSERVE_HOME": str(folder)}) if (folder / "keys").exists() else make(folder, size)
        if "messy-ebm" not in ModelStore(home.models).names():
            make_wide(home)
        load = os.getloadavg()[0]
        with served(home, free_port()) as (client, server):
            lines = measure(client, server, home, size.models)
            pixels = heights(client)
        text = report(lines, size_of(home), pixels, load)
    print(text)
    if given.report:
        given.report.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
