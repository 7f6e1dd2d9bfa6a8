"""What ONE hostile request takes of a server, at every door that takes a body: seconds of a processor and megabytes, of
the serving worker beyond what it had, and of the processes beside it that the system bounds.

    ROBUSTNESS_TABLE=table.md .venv/bin/python -m pytest -s tests/serving/test_hostile_requests.py

writes the table of benchmarks/results/robustness.md, from every hostile body; without it a part of them is sent.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import hostile_bodies
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_bodies import JSON, Body
from small_home import adult_home, serving, until

from serving.app import DOORS
from serving.pages.all import PAGES as DASHBOARD
from serving.process.workers.price_desk import BOUNDS
from serving.wire.file_tables import PARQUET
from serving.wire.request_bodies import CONTROL_BYTES
from training.jobs import job
from training.requests import JobRequest
from training.rows.schema.schema import MAX_BYTES

pytestmark = [pytest.mark.server, pytest.mark.slow]

MB, HZ = 1 << 20, os.sysconf("SC_CLK_TCK")
WORKER_SECONDS, WORKER_MB = 1.0, 300  # the bar, for bodies of a megabyte and less, and for files
LARGE_SECONDS = 2.0  # of a body of 16 MB, which may hold 20,000 records that are answered
FORM, PART = "application/x-www-form-urlencoded", "application/octet-stream"
TABLE = os.environ.get("ROBUSTNESS_TABLE")
HEAD = "target: {name: y, classes: [a, b]}\nrecords: 600\nfeatures: {x: {type: boolean}}\n"


@dataclass(frozen=True)
class Taken:
    """What one request took: of the serving worker, and of the processes beside it."""

    door: str
    what: str
    size: int
    status: int
    seconds: float
    megabytes: float
    beside: float

    def __str__(self) -> str:
        figures = f"{self.size:,} | {self.status} | {self.seconds:.2f} | {self.megabytes:.0f} | {self.beside:.2f}"
        return f"| `{self.door}` | {self.what} | {figures} |"


def parquet(count: int, size: int) -> bytes:
    """One long text, `count` times: a few kB."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["z" * size]))
    table = pa.table({"x": np.arange(count) / count, "c": column, "y": (["a", "b"] * count)[:count]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def schemas() -> dict[str, str]:
    """Schemas of a few bytes for each thing that they ask for."""
    words = ", ".join(f"v{number}" for number in range(20_000))
    return {
        "unknown keys": HEAD + "".join(f"{number:x}: 1\n" for number in range(110_000)),
        "a list repeated": HEAD + f"z: &z [{words}]\n" + "".join(f"g{number}: *z\n" for number in range(20_000)),
        "numbers": HEAD + "z: [" + "1," * 490_000 + "]",
        "bins": HEAD.replace("{x: {type: boolean}}", "\n")
        + "".join(f"  n{number}: {{type: numeric, range: [0,1], bins: 4096}}\n" for number in range(16_000)),
        "classes": HEAD.replace("a, b", "{a: b}, " * 80_000),
    }


def control(size: int) -> dict[str, bytes]:
    """JSON of any door, as large as it may be."""
    return {
        "keys": b"{%s}" % b",".join(b'"%x":1' % number for number in range(size // 11)),
        "numbers": hostile_bodies.filled(b'{"reason": [', b"1.5,", b"]}", size),
        "objects": hostile_bodies.filled(b'{"edits": [', b"{},", b"]}", size),
        "a long text": hostile_bodies.filled(b'{"name": "', b"a", b'"}', size),
    }


def bodies(draft: str) -> Iterator[Callable[[], tuple[str, Body]]]:
    """Method and body, of every door that takes one."""

    def to(method: str, path: str, what: str, raw: bytes, kind: str = JSON) -> Callable[[], tuple[str, Body]]:
        return lambda: (method, Body(what, path, kind, raw))

    def at(path: str) -> str:
        named = {
            "name": "adult",
            "draft": draft,
            "job": "1",
            "grant": "1",
            "schedule": "x",
            "version": "1",
            "token": "x",
        }
        for name, value in named.items():
            path = path.replace(f"{{{name}}}", value)
        return path

    takers = [door for door in DOORS if door.method in ("POST", "PUT", "PATCH") and door.path not in ("/predict",)]
    for number, door in enumerate(takers):
        kinds = control(CONTROL_BYTES)
        for what in kinds if TABLE else [[*kinds][number % len(kinds)]]:
            yield to(door.method, at(door.path), f"JSON: {what}", kinds[what])
        for kind in door.also:
            yield to(door.method, at(door.path), "bytes", b"x" * CONTROL_BYTES, kind)
    for door in DASHBOARD:
        if door.method == "POST":
            form = urlencode([(f"f{number}", "") for number in range(9_000)]).encode()[: 1 << 16]
            yield to("POST", at(door.path), "a form of 64 kB", form, FORM)
    for what, text in schemas().items():
        assert len(text) <= MAX_BYTES, what
        yield to("POST", f"/v1/drafts/{draft}/check", f"schema: {what}", json.dumps({"schema": text}).encode())
        yield to("POST", f"/ui/drafts/{draft}/schema", f"schema: {what}", urlencode({"schema": text}).encode(), FORM)
    for count in (1000, 20_000):
        edits = [{"feature": "age", "set": {"bins": "missing", "to": number % 7 + 1}} for number in range(count)]
        raw = json.dumps({"edits": edits, "dry_run": True}, separators=(",", ":")).encode()[:CONTROL_BYTES]
        yield to("POST", "/v1/models/adult/edits", f"{count:,} edits", raw)
    pairs = json.dumps({"dataset": "adult", "epsilon": "0.1", "pairs": [["age", "sex"]] * 20_000}).encode()
    yield to("POST", "/v1/plans/profiles", "20,000 pairs", pairs)
    grid = {"grid": {"rounds": [*range(10, 74)], "vote_decay": [0.1, 0.5, 0.9]}}
    plan = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "tuning": grid}
    yield to("POST", "/v1/plans", "a grid of 192", json.dumps(plan).encode())
    rounds = {**plan, "tuning": None, "parameters": {"rounds": 5000}}
    yield to("POST", "/v1/plans", "5,000 rounds", json.dumps(rounds).encode())
    for body in (parquet(600, 3_000_000), parquet(20_000, 15_000)):
        yield to("POST", "/predict?model=adult", "Parquet, one text repeated", body, PARQUET.decode())
    for number, body in enumerate(hostile_bodies.hostile()):
        if TABLE or number % 12 == 0:
            yield lambda body=body: ("POST", body())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("hostile"), 20)
    job.train(home, JobRequest("adult", "ebm", "0.5"), by="test")
    with serving(home.path, workers=1) as found:
        until(lambda: found.post("/v1/plans", {"dataset": "adult", "epsilon": "0.1"}).status_code == 200, "prices")
        yield found


def spent(process: psutil.Process) -> float:
    """Return the seconds of a processor that a process took, with those of its children that have ended."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


class Scales:
    """The worker and what is beside it, of a server."""

    def __init__(self, server) -> None:
        self.server, self.launcher = server, psutil.Process(server.process.pid)
        (self.worker,), (self.desk,) = server.processes("dpserve-serving"), server.processes("dpserve-prices")

    def beside(self) -> float:
        times = self.launcher.cpu_times()
        return spent(self.desk) + times.children_user + times.children_system

    def weigh(self, method: str, body: Body, ask: Callable[[], int]) -> Taken:
        """Ask, wait until nothing works on it any more, and return what it took."""
        Path(f"/proc/{self.worker.pid}/clear_refs").write_text("5")  # the high-water mark begins anew
        held, seconds, beside = self.worker.memory_info().rss, spent(self.worker), self.beside()
        status = ask()
        last = -1.0
        while (now := spent(self.worker) + self.beside()) > last + 0.02:  # whatever goes on after its answer
            last = now
            time.sleep(0.25 if TABLE else 0.03)
        seconds, beside = spent(self.worker) - seconds, self.beside() - beside
        with open(f"/proc/{self.worker.pid}/status") as lines:
            most = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
        door = f"{method} {body.path.partition('?')[0]}"
        return Taken(door, body.name, len(body.raw), status, seconds, (most - held) / MB, beside)


def test_no_request_takes_more_than_a_second_and_300_megabytes(server):
    scales, draft = Scales(server), server.post("/v1/drafts", {"file": "a.csv", "bytes": 1000}).json()["draft"]
    found = []
    for make in bodies(draft):
        method, body = make()
        headers = {"Content-Type": body.kind, "Origin": f"http://127.0.0.1:{server.port}", **body.headers}
        taken = scales.weigh(method, body, lambda m=method, b=body, h=headers: server.ask(
            m, b.path, content=b.raw, headers=h).status_code)  # fmt: skip
        found.append(Taken(taken.door.replace(draft, "{draft}"), *list(vars(taken).values())[1:]))
        assert taken.status != 500, taken
    bomb = parquet(600, 3_000_000)
    found += of_files(server, scales, {"one text of 3 MB, 600 times": bomb, "no Parquet": b"PAR1" * 1000})
    if TABLE:
        Path(TABLE).write_text("".join(f"{taken}\n" for taken in shown(found)))
    for taken in found:
        print(taken)
        large = taken.size > 2 * CONTROL_BYTES
        assert taken.seconds <= (LARGE_SECONDS if large else WORKER_SECONDS), taken
        assert taken.megabytes <= WORKER_MB, taken
        assert taken.beside <= 2 * BOUNDS.seconds, taken
    assert {door.path for door in DOORS if door.method in ("POST", "PUT")} <= {
        taken.door.partition(" ")[2].replace("adult", "{name}").replace("/1", "/{grant}") for taken in found
    } | {"/v1/grants/{grant}/revoke", "/v2/models/{name}/versions/{version}/infer"}
    assert server.predict().status_code == 200
    assert scales.worker.is_running()


def of_files(server, scales, files) -> Iterator[Taken]:
    """Files that a steward brings: the worker keeps them, and the steps read them."""
    for what, raw in files.items():
        draft = server.post("/v1/drafts", {"file": "a.parquet", "bytes": len(raw)}).json()["draft"]
        path = f"/v1/drafts/{draft}"

        def bring(path=path, raw=raw) -> int:
            answer = server.ask("PUT", f"{path}/rows?at=0", content=raw, headers={"Content-Type": PART})
            until(lambda: server.get(path).json()["state"] in ("columns", "unreadable"), "it was looked at")
            return answer.status_code

        yield scales.weigh("PUT", Body(what, "/v1/drafts/{draft}/rows", PART, raw), bring)
        server.ask("DELETE", path)


def shown(found: list[Taken]) -> list[Taken]:
    """Return of every door the request that took the most, where that is a tenth of what it may take."""
    doors: dict[str, list[Taken]] = {}
    for taken in found:
        doors.setdefault(taken.door, []).append(taken)
    most = [max(group, key=lambda each: each.seconds + each.beside + each.megabytes / MB) for group in doors.values()]
    return [
        each
        for each in most
        if max(each.seconds / WORKER_SECONDS, each.beside / BOUNDS.seconds, each.megabytes / WORKER_MB) >= 0.1
    ]
