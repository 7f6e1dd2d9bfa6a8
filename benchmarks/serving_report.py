"""benchmarks/results/serving.md, from the lines of benchmarks/serving.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def write_report(lines: Sequence[Line], path: Path) -> None:
    path.write_text("\n".join(report(lines)) + "\n")


def report(lines: Sequence[Line]) -> list[str]:
    """Markdown, a line each. Bounds stand beside what was measured, met or not."""
    machine = _the(lines, "machine")
    where = (
        f"{machine['cpus']} cores, {machine['machine']}, Python {machine['python']}; the client on the same machine."
    )
    return [
        "# Serving, measured",
        "",
        f"Made by `python -m benchmarks.serving`. {where}",
        "",
        *_one(lines),
        *_batch(lines),
        *_bounds(lines),
        "",
        "What is counted: the time of the processor for the serving processes alone, client and training left out.",
        "dpserve checks the token, the records and the limits, counts, keeps the trail and sets the headers; bare",
        "Starlette does none of this. MLServer is asked by the open inference protocol, one tensor for each feature;",
        "the others by JSON records. Servers are asked in turns, and each figure is the median of five: other work on",
        "the machine falls on all alike. What comes late it makes later all the same.",
    ]


def _one(lines: Sequence[Line]) -> list[str]:
    found = _all(lines, "one")
    least = _by(found, "bare Starlette")["cpu_us"]
    head = ["## One row a request", "", "One serving process, 16 connections.", ""]
    table = [
        "| | requests/s | CPU per request | of bare | half | 99 % | ready after |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in found:
        times = f"{each['p50_us'] / 1e3:.2f} ms | {each['p99_us'] / 1e3:.2f} ms | {each['ready_seconds']:.1f} s"
        cpu = f"{each['cpu_us']:.0f} us | {each['cpu_us'] / least:.2f} x"
        table.append(f"| {each['server']} | {each['per_second']:,.0f} | {cpu} | {times} |")
    return [*head, *table, ""]


def _batch(lines: Sequence[Line]) -> list[str]:
    own = next(line["cpu_us"] for line in _all(lines, "model") if line["rows"] > 1)
    found = _all(lines, "batch")
    head = [
        f"## {found[0]['rows']:,} rows a request",
        "",
        f"The exported model alone, its columns ready, takes {own / 1e3:.2f} ms in ONNX Runtime. 4 connections.",
        "",
    ]
    table = ["| | form | rows/s | CPU per request | of the model's own |", "|---|---|---|---|---|"]
    for each in found:
        rate = each["per_second"] * each["rows"]
        cpu = f"{each['cpu_us'] / 1e3:.2f} ms | {each['cpu_us'] / own:.2f} x"
        table.append(f"| {each['server']} | {each['form']} | {rate:,.0f} | {cpu} |")
    return [*head, *table, ""]


def _bounds(lines: Sequence[Line]) -> list[str]:
    rows = ["## Against the bounds", "", "| | bound | measured | |", "|---|---|---|---|"]
    return [
        *rows,
        *(
            f"| {what} | {bound} | {found} | {'met' if met else 'NOT met'} |"
            for what, bound, found, met in bounds(lines)
        ),
    ]


def bounds(lines: Sequence[Line]) -> Iterable[tuple[str, str, str, bool]]:
    """What, its bound, what was measured, whether it is met."""
    one, batch = _all(lines, "one"), _all(lines, "batch")
    ours = _by(one, "dpserve")
    ratio = ours["cpu_us"] / _by(one, "bare Starlette")["cpu_us"]
    yield "one row: CPU of bare Starlette's", "1.7 x", f"{ratio:.2f} x", ratio <= 1.7
    for name, least in (("plain BentoML", 5), ("MLServer", 2.5)):
        if any(line["server"] == name for line in one):
            ratio = ours["per_second"] / _by(one, name)["per_second"]
            yield f"one row: throughput of {name}'s", f"at least {least} x", f"{ratio:.1f} x", ratio >= least
    late = _the(lines, "latency")
    at = f"{late['p99'] / 1e3:.2f} ms at {late['share']:.0%} of {late['peak']:,}/s, client {late['client']:.1f} cores"
    yield "two processes at 70 % of their peak: 99 % within", "5 ms", at, late["p99"] < 5000
    model = next(line for line in _all(lines, "model") if line["rows"] > 1)
    inside = model["arrow_us"] / model["cpu_us"]
    yield "1,000 rows by Arrow, in process: of the model's own time", "1.5 x", f"{inside:.2f} x", inside <= 1.5
    whole = next(line["cpu_us"] for line in batch if line["form"] == "arrow") / model["cpu_us"]
    yield "1,000 rows by Arrow, whole: of the model's own time", "2.2 x", f"{whole:.2f} x", whole <= 2.2
    size = _the(lines, "memory")
    grown = max(after - before for before, after in zip(size["before"], size["after"], strict=True))
    yield f"memory of a process after {size['requests']:,} requests", "+20 MB", f"{grown:+.1f} MB", grown < 20
    load = _the(lines, "load")["milliseconds"]
    yield "a model read, verified and opened", "10 ms", f"{load:.1f} ms", load < 10
    start = _the(lines, "start")["seconds"]
    yield "two processes from start to ready", "8 s", f"{start:.1f} s", start < 8


def _all(lines: Sequence[Line], figure: str) -> list[Line]:
    return [line for line in lines if line["figure"] == figure]


def _the(lines: Sequence[Line], figure: str) -> Line:
    return _all(lines, figure)[0]


def _by(lines: Sequence[Line], server: str) -> Line:
    return next(line for line in lines if line["server"] == server)
