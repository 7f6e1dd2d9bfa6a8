"""dpserve's server beside bare Starlette with ONNX Runtime, plain BentoML and MLServer: the same exported model, the
same machine, in turns in one run; with `--before`, beside an earlier dpserve as well.

    python -m benchmarks.serving                                   # needs wrk; writes benchmarks/results/serving.md
    python -m benchmarks.serving --mlserver .venv-bench/bin/python # with MLServer, from an environment of its own
    python -m benchmarks.serving --before ../earlier               # a checkout with a .venv of its own
    python -m benchmarks.serving --seconds 2 --requests 20000 --report /tmp/x.md    # a quick look

Throughput and CPU are of one serving process and 16 connections; what the processor spent is read from the system, for
the serving processes alone. Latency is of two processes at 70 % of what they bear, requests coming as of many
independent clients. The client (wrk) runs on the same machine. Figures are lines of JSON; the report is made of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.serving_report import write_report
from benchmarks.serving_sent import BATCH, Body, bodies, make_home, rows

ROOT = Path(__file__).resolve().parents[1]
SERVED = Path(__file__).parent / "served"
CONNECTIONS, SHARE, TURNS = 16, 0.7, 5
EARLIER = "dpserve, earlier"
Line = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """A running server. `word`: stands in the name or the command of each process that serves."""

    process: subprocess.Popen[bytes]
    port: int
    word: str
    path: str = "/predict"
    token: str = ""
    seconds: float = 0.0

    def processes(self) -> list[psutil.Process]:
        tree = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        return [each for each in tree if self.word in " ".join([each.name(), *each.cmdline()])]

    def cpu(self) -> float:
        """Seconds of processor that the serving processes have had."""
        return sum(sum(each.cpu_times()[:2]) for each in self.processes())

    def memory(self) -> list[float]:
        """Resident megabytes of each."""
        return [each.memory_info().rss / 2**20 for each in self.processes()]


@dataclass
class Bench:
    """Where the bench works, and what it has found."""

    folder: Path
    seconds: float
    lines: list[Line] = field(default_factory=list)

    def note(self, figure: str, **values: Any) -> Line:
        line = {"figure": figure, **values}
        self.lines.append(line)
        print(json.dumps(line), flush=True)
        return line

    @property
    def model(self) -> Path:
        return self.folder / "home" / "models" / "adult" / "1" / "model.onnx"


# Servers


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(
    bench: Bench, name: str, command: Sequence[str], word: str, more: Mapping[str, str], **where: Any
) -> Iterator[Server]:
    """The command from its start to ready, and stopped at the end."""
    port = where.pop("port")
    ready = where.pop("ready", "/readyz")
    own = {"MODEL": str(bench.model), "PORT": str(port), "PYTHONPATH": str(ROOT)}
    own |= {"BENTOML_DO_NOT_TRACK": "true", "ORT_DISABLE_TELEMETRY": "1"}
    start = time.monotonic()
    with (bench.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=bench.folder, env={**os.environ, **own, **more}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        while not _answers(process, f"http://127.0.0.1:{port}{ready}", bench.folder / f"{name}.log"):
            time.sleep(0.02)
        yield Server(process, port, word, seconds=time.monotonic() - start, **where)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    if process.poll() is not None:
        raise SystemExit(f"{log}: the server ended with {process.returncode}\n{log.read_text()[-2000:]}")
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def dpserve(bench: Bench, token: str, workers: int) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", str(workers)]
    more = {"DPSERVE_HOME": str(bench.folder / "home"), "DPSERVE_AUDIT_SECONDS": "0"}
    with running(bench, "dpserve", command, "dpserve-serving", more, port=port, token=token) as server:
        yield server


@contextmanager
def earlier(bench: Bench, folder: Path) -> Iterator[Server]:
    """Another checkout of dpserve, with a home and a model of its own."""
    place, python, port = bench.folder / "earlier", str(folder / ".venv" / "bin" / "python"), free_port()
    place.mkdir(mode=0o700)
    code = f"from benchmarks.serving import *; print(make_home(Path({str(place)!r})))"
    made = subprocess.run([python, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    command = [python, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "1"]
    more = {"DPSERVE_HOME": str(place / "home"), "DPSERVE_AUDIT_SECONDS": "0", "PYTHONPATH": str(folder)}
    where = {"port": port, "token": made.stdout.split()[-1]}
    with running(bench, "earlier", command, "dpserve-serving", more, **where) as server:
        yield server


@contextmanager
def bare(bench: Bench) -> Iterator[Server]:
    with running(bench, "bare", [sys.executable, str(SERVED / "bare.py")], "bare.py", {}, port=free_port()) as server:
        yield server


@contextmanager
def plain_bentoml(bench: Bench, python: str) -> Iterator[Server]:
    port = free_port()
    command = [python, "-m", "bentoml", "serve", "plain:Plain", "--working-dir", str(SERVED), "--port", str(port)]
    more = {"BENTOML_HOME": str(bench.folder / "bentoml"), "PYTHONPATH": str(SERVED)}
    command += ["--host", "127.0.0.1"]
    with running(bench, "bentoml", command, "_bentoml_impl", more, port=port) as server:
        yield server


@contextmanager
def mlserver(bench: Bench, python: str) -> Iterator[Server]:
    port, folder = free_port(), bench.folder / "mlserver"
    folder.mkdir(exist_ok=True)
    quiet = {"debug": False, "parallel_workers": 0, "metrics_port": free_port(), "grpc_port": free_port()}
    (folder / "settings.json").write_text(json.dumps({"host": "127.0.0.1", "http_port": port, **quiet}))
    (folder / "model-settings.json").write_text(json.dumps({"name": "adult", "implementation": "seldon.Onnx"}))
    command = [python, "-m", "mlserver.cli.main", "start", str(folder)]
    where = {"port": port, "path": "/v2/models/adult/infer", "ready": "/v2/models/adult/ready"}
    with running(bench, "mlserver", command, "mlserver", {"PYTHONPATH": str(SERVED)}, **where) as server:
        yield server


# Load


def wrk(server: Server, body: Body, seconds: float, connections: int = CONNECTIONS, interval: float = 0.0) -> Line:
    """Load for so long; SystemExit where one request was not answered well."""
    url = f"http://127.0.0.1:{server.port}{server.path}{body.query}"
    own = {"BODY": str(body.file), "KIND": body.kind, "INTERVAL": str(interval)}
    own |= {"TOKEN": server.token} if server.token else {}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(SERVED / "load.lua"), url]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    line: Line = json.loads(found.stderr.strip().splitlines()[-1])
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line["client"] = round(spent / line["microseconds"] * 1e6, 2)  # cores that it took
    if line["failed"] or not line["requests"]:
        raise SystemExit(f"{url}: {line['failed']} of {line['requests']} requests failed")
    return {**line, "per_second": line["requests"] / line["microseconds"] * 1e6}


def measured(server: Server, body: Body, seconds: float, connections: int = CONNECTIONS) -> Line:
    """After warming up: requests a second, and microseconds of processor for each."""
    wrk(server, body, max(1.0, seconds / 4), connections)
    before = server.cpu()
    line = wrk(server, body, seconds, connections)
    cpu = (server.cpu() - before) / line["requests"] * 1e6
    return {
        "per_second": round(line["per_second"], 1),
        "cpu_us": round(cpu, 1),
        "p50_us": line["p50"],
        "p99_us": line["p99"],
    }


def in_turns(bench: Bench, asked: Sequence[tuple[Server, Body, int]]) -> list[Line]:
    """Each measured TURNS times, one after the other, so that what else the machine does falls on all alike: of each
    figure the median."""
    found = [[measured(*each[:2], bench.seconds / TURNS, each[2]) for each in asked] for _ in range(TURNS)]
    return [
        {name: statistics.median(line[name] for line in lines) for name in lines[0]}
        for lines in zip(*found, strict=True)
    ]


def latency(bench: Bench, server: Server, body: Body) -> None:
    """At SHARE of the peak of two processes."""
    wrk(server, body, max(1.0, bench.seconds / 2), 32)
    peak = wrk(server, body, bench.seconds, 32)["per_second"]
    connections = 64
    interval = connections / (SHARE * peak) * 1000  # milliseconds between two requests of a connection
    for _ in range(3):  # the time of the answer itself comes on top of what a connection waits
        found = wrk(server, body, bench.seconds, connections, interval)
        interval *= found["per_second"] / (SHARE * peak)
    figures = {name: found[name] for name in ("p50", "p99", "p999", "max", "client")}
    bench.note("latency", peak=round(peak), share=round(found["per_second"] / peak, 3), **figures)


def memory(bench: Bench, server: Server, body: Body, requests: int) -> None:
    """Resident size of each process before and after so many requests."""
    wrk(server, body, max(2.0, bench.seconds))
    before, done = server.memory(), 0
    while done < requests:
        done += wrk(server, body, 10)["requests"]
    after = server.memory()
    bench.note("memory", requests=done, before=[round(x, 1) for x in before], after=[round(x, 1) for x in after])


# In this process


def own_time(bench: Bench) -> None:
    """The exported model alone, its columns ready; Arrow's bytes answered in process; a bundle verified and opened."""
    import onnxruntime

    from accountant.home import Home
    from models.onnx.runtime import columns_from_records
    from models.store.loading import load_of_home
    from serving.process.registry import Served
    from serving.rest.models import Posted, answer

    home = Home.open({"DPSERVE_HOME": str(bench.folder / "home")})
    folder, trust = bench.model.parent, home.trust
    load = [_timed(lambda: load_of_home(home, folder, "adult", trust))[0] for _ in range(50)]
    found = load_of_home(home, folder, "adult", trust)
    bench.note("load", milliseconds=round(statistics.median(load) * 1e3, 2))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(bench.model), options)
    served, posted = Served("adult", 1, found), Posted(bodies(bench.folder)["arrow"].file.read_bytes(), "adult", "")
    for count in (1, BATCH):
        columns = columns_from_records(found.ensemble.features, rows(count).to_pylist(), BATCH)
        feed = {name: column.reshape(-1, 1) for name, column in columns.items()}
        pairs = [
            (
                _timed(lambda feed=feed: session.run(["label", "probabilities"], feed))[1],
                _timed(lambda: answer(lambda _: served, posted))[1],
            )
            for _ in range(300)
        ]
        model, arrow = (round(statistics.median(times) * 1e6, 1) for times in zip(*pairs, strict=True))
        bench.note("model", rows=count, cpu_us=model, arrow_us=arrow)


def _timed(work: Any) -> tuple[float, float]:
    """Seconds by the clock, and of this thread's processor."""
    start, cpu = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - start, time.thread_time() - cpu


# All of it


def run(bench: Bench, options: argparse.Namespace) -> None:
    token = make_home(bench.folder)
    sent = bodies(bench.folder)
    own_time(bench)
    with ExitStack() as stack:
        peers = {"bare Starlette": bare(bench), "dpserve": dpserve(bench, token, 1)}
        peers |= {"plain BentoML": plain_bentoml(bench, options.bentoml)}
        peers |= {"MLServer": mlserver(bench, options.mlserver)} if options.mlserver else {}
        peers |= {EARLIER: earlier(bench, options.before)} if options.before else {}
        servers = {name: stack.enter_context(peer) for name, peer in peers.items()}
        ones = [
            (server, sent["one-v2" if name == "MLServer" else "one"], CONNECTIONS) for name, server in servers.items()
        ]
        for (name, server), found in zip(servers.items(), in_turns(bench, ones), strict=True):
            bench.note("one", server=name, ready_seconds=round(server.seconds, 2), **found)
        forms = [(name, "json") for name in servers] + [
            (name, form) for name in ("dpserve", EARLIER) if name in servers for form in ("npy", "arrow")
        ]
        whole = {"json": sent["batch"], **sent}
        bodies_of = [whole["batch-v2" if name == "MLServer" else form] for name, form in forms]
        asked = [(servers[name], body, 4) for (name, _), body in zip(forms, bodies_of, strict=True)]
        for (name, form), found in zip(forms, in_turns(bench, asked), strict=True):
            bench.note("batch", server=name, form=form, rows=BATCH, **found)
    with dpserve(bench, token, 2) as server:
        bench.note("start", workers=2, seconds=round(server.seconds, 2))
        latency(bench, server, sent["one"])
        memory(bench, server, sent["one"], options.requests)


def _python(path: str) -> str:
    """Its whole path, since servers run elsewhere; the link itself, which is what makes it an environment."""
    return os.path.abspath(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of load for each figure")
    parser.add_argument("--requests", type=int, default=1_000_000, help="over which memory is watched")
    parser.add_argument(
        "--bentoml", type=_python, default=sys.executable, help="Python that has BentoML as pip installs it"
    )
    parser.add_argument("--mlserver", type=_python, help="Python that has MLServer; left out where not given")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier dpserve, with a .venv, to stand beside")
    parser.add_argument("--out", type=Path, help="keep the figures, as lines of JSON")
    parser.add_argument("--report", type=Path, default=ROOT / "benchmarks" / "results" / "serving.md")
    options = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        raise SystemExit("wrk: is needed and not installed (Debian: apt-get install wrk)")
    with tempfile.TemporaryDirectory(prefix="dpserve-bench-") as folder:
        Path(folder).chmod(0o700)
        bench = Bench(Path(folder), options.seconds)
        bench.note("machine", cpus=os.cpu_count(), machine=platform.machine(), python=platform.python_version())
        run(bench, options)
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in bench.lines))
    write_report(bench.lines, options.report)


if __name__ == "__main__":
    main()
