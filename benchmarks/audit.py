"""How long it takes to audit a ledger, and how much memory: a line of JSON for each figure, with the machine's name.

    python benchmarks/audit.py [--entries 100000 1000000] [--keep FOLDER]

The ledger (`benchmarks.made_ledger`) has one signed checkpoint per entry. Each figure comes from a process of its own:
wall and CPU seconds, and the largest resident sizes of it and its helpers, added up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
POLL = 0.05  # seconds


def audit_database(home: Path) -> int:
    from accountant.audit.audit import audit_place

    return _sound(audit_place(_place(home)))


def audit_files(home: Path) -> int:
    from dpserve_verify.audit.exports import audit_export
    from dpserve_verify.keys.trust import PublicKeys

    trust = PublicKeys.from_json((home / "trust.json").read_bytes())
    return _sound(audit_export(home.with_name(home.name + ".export"), trust))


def rebuild(home: Path) -> int:
    """The tree alone: every leaf hashed, every root."""
    from accountant.home import place
    from accountant.store.store import Store, leaves
    from dpserve_verify.audit.tree_of_entries import Tree

    tree = Tree()
    with Store(place(_place(home))[1]).reading() as connection:
        for _, body in leaves(connection):
            tree.append(body)
            tree.root()
    return tree.size


def prove(home: Path) -> float:
    """Median seconds of an inclusion proof against the newest checkpoint."""
    from accountant.home import Home

    log, times = Home.open(_place(home)).ledger.log, []
    size = log.size()
    for number in range(1000):
        began = time.perf_counter()
        log.proof(number * 7919 % size)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def export(home: Path) -> int:
    from accountant.audit.export import export as write
    from accountant.home import Home

    return write(Home.open(_place(home)), home.with_name(home.name + ".export"))


WHAT: dict[str, Callable[[Path], float]] = {
    "audit of the database": audit_database,
    "export": export,
    "audit of the export": audit_files,
    "rebuilding the tree": rebuild,
    "one proof": prove,
}


def _place(home: Path) -> dict[str, str]:
    return {"DPSERVE_HOME": str(home)}


def _sound(report: Any) -> int:
    if not report.ok:
        raise SystemExit(f"the ledger is not sound: {report.problems[:3]}")
    return int(report.entries)


def measure(what: str, home: Path) -> dict[str, Any]:
    """Run it in a fresh process and watch it and its helpers."""
    command = [sys.executable, __file__, "--one", what, "--home", str(home)]
    largest: dict[int, int] = {}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    while process.poll() is None:
        for pid in (process.pid, *_children(process.pid)):
            largest[pid] = max(largest.get(pid, 0), _high_water(pid))
        time.sleep(POLL)
    if process.returncode:
        raise SystemExit(process.returncode)
    return {**json.loads(process.stdout.read()), "megabytes": round(sum(largest.values()) / 1024, 1)}


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _high_water(pid: int) -> int:
    """Kilobytes. Not ru_maxrss, which a child takes over from who forked it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def one(what: str, home: Path) -> dict[str, Any]:
    began = time.perf_counter()
    found = WHAT[what](home)
    seconds = found if isinstance(found, float) else time.perf_counter() - began
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    return {"seconds": round(seconds, 6), "cpu_seconds": round(cpu, 2)}


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{(names or [platform.processor()])[0]}, {os.cpu_count()} cores, Python {platform.python_version()}"


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="dpserve-audit-") as folder:
        yield Path(folder)


def _made(folder: Path, entries: int) -> Path:
    """The home with so many entries, made where it is not there yet."""
    from benchmarks.made_ledger import make

    home = folder / str(entries)
    if not home.exists():
        partial = folder / f"{entries}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        make(partial, entries)
        partial.replace(home)
    shutil.rmtree(home.with_name(home.name + ".export"), ignore_errors=True)
    return home


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--keep", type=Path, help="where made ledgers are kept for the next time")
    parser.add_argument("--one", choices=WHAT, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one, asked.home)))
        return
    with _folder(asked.keep) as folder:
        for entries in asked.entries:
            home = _made(folder, entries)
            for what in WHAT:
                print(json.dumps({"what": what, "entries": entries, **measure(what, home), "machine": machine()}))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
