"""The report of the load runs: every bound stands in it with what was measured; and what is sent is sound."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pyarrow as pa

from benchmarks import serving_sent
from benchmarks.serving_report import bounds, report


def made(cpu=80.0, rate=6500.0, p99=900, arrow=800.0, inside=800.0, grown=1.0, load=5.0, start=3.0):
    one = {"figure": "one", "p50_us": 1, "p99_us": 2, "ready_seconds": 1.0}
    batch = {"figure": "batch", "rows": 1000, "per_second": 10.0, "p50_us": 1, "p99_us": 2}
    return [
        {"figure": "machine", "cpus": 2, "machine": "x", "python": "3.11"},
        {"figure": "load", "milliseconds": load},
        {"figure": "model", "rows": 1, "cpu_us": 5.0},
        {"figure": "model", "rows": 1000, "cpu_us": 700.0, "arrow_us": inside},
        {**one, "server": "bare Starlette", "per_second": 18000.0, "cpu_us": 50.0},
        {**one, "server": "dpserve", "per_second": rate, "cpu_us": cpu},
        {**one, "server": "plain BentoML", "per_second": 1000.0, "cpu_us": 900.0},
        {**one, "server": "MLServer", "per_second": 2500.0, "cpu_us": 400.0},
        {**batch, "server": "dpserve", "form": "arrow", "cpu_us": arrow},
        {"figure": "start", "workers": 2, "seconds": start},
        {"figure": "latency", "peak": 9000, "share": 0.7, "client": 0.4}
        | {"p50": 300, "p99": p99, "p999": 2000, "max": 3000},
        {"figure": "memory", "requests": 1000000, "before": [400.0, 400.0], "after": [400.5, 400.0 + grown]},
    ]


def missed(**values):
    return [what for what, _, _, met in bounds(made(**values)) if not met]


def test_each_bound_can_be_missed_and_alone():
    assert missed() == []
    found = [
        missed(cpu=86.0),
        missed(rate=6200.0),  # MLServer alone
        missed(p99=5000),
        missed(arrow=1541.0),
        missed(inside=1051.0),
        missed(grown=20.0),
        missed(load=10.0),
        missed(start=8.0),
    ]
    assert all(len(each) == 1 for each in found)
    assert len({each[0] for each in found}) == len(found) == len(list(bounds(made()))) - 1
    assert len(missed(rate=4900.0)) == 2  # either peer


def test_report_says_what_was_met_and_what_was_not():
    text = "\n".join(report(made(p99=7000)))
    assert len(re.findall(r"\| met \|", text)) == 8
    assert re.search(r"99 % within \| 5 ms \| 7\.00 ms at 70% of 9,000/s, client 0\.4 cores \| NOT met \|", text)
    assert "| dpserve | 6,500 | 80 us | 1.60 x |" in text
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert all(width in (5, 6, 8) for width in widths)


def test_every_form_says_the_same_rows(tmp_path):
    sent = serving_sent.bodies(tmp_path)
    table = serving_sent.rows(serving_sent.BATCH)
    assert json.loads(sent["batch"].file.read_bytes())["records"] == table.to_pylist()
    assert pa.ipc.open_stream(sent["arrow"].file.read_bytes()).read_all() == table
    array = np.load(io.BytesIO(sent["npy"].file.read_bytes()), allow_pickle=False)
    assert {name: array[name].tolist() for name in array.dtype.names} == table.to_pydict()
    tensors = json.loads(sent["batch-v2"].file.read_bytes())["inputs"]
    assert {each["name"]: each["data"] for each in tensors} == table.to_pydict()
