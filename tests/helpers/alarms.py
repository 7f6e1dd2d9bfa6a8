"""Which alerts fire where servers say what they say on `/metrics`: the rules as a cluster gets them, judged by promtool
on the labels that a cluster gives.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_rule import RULES

ROOT = Path(__file__).resolve().parents[2]
RECENT, EVERY, LAST = 4, 240, 4 * 3600  # steps of so many seconds, in the time that is played
Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def cluster_labels(pod: str) -> dict[str, str]:
    """What the Prometheus operator makes of a target of the component `monitoring`: it names the job NAMESPACE/NAME."""
    monitor = yaml.safe_load(RULES.with_name("monitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    labels = {"namespace": "dpserve", "pod": pod, "container": "dpserve", "endpoint": endpoint["port"]}
    labels |= {"instance": f"{pod}:3000", "job": f"dpserve/{monitor['metadata']['name']}"}
    return labels | {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}


def require_alerts(
    page: str, alerts: Iterable[str], of_each: Iterable[str] = (), before: str = "", up: int = 1
) -> None:
    """Fail unless exactly these alerts fire where two pods say what is on a page: `alerts` once, for both, and
    `of_each` for each of them. `before`: the page until a quarter of an hour ago, where it was another one. `up`: 0
    where they do not answer.
    """
    now, steps, rules = time.time(), LAST // EVERY, yaml.safe_load(RULES.read_text())["spec"]
    asked_for, series = set(re.findall(r"\bdpserve_\w+", str(rules))), []
    for pod in ("p-0", "p-1"):
        labels = cluster_labels(pod)
        series.append({"series": _series("up", labels), "values": f"{up}x{steps}"})
        values, earlier = (
            {key: value for key, value in _values(text, now).items() if key[0] in asked_for}
            for text in (page, before or page)
        )
        for name, own in values.keys() | earlier.keys():
            was, is_now = (each.get((name, own), "_") for each in (earlier, values))
            told = {
                "series": _series(name, {**dict(own), **labels}),
                "values": f"{was}x{steps - RECENT} {is_now}x{RECENT}",
            }
            series.append(told)
    counts = Counter({**dict.fromkeys(alerts, 1), **dict.fromkeys(of_each, 2)})
    firing = [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in sorted(counts.items())]
    asked = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{LAST}s"}
    test = {"interval": f"{EVERY}s", "input_series": series, "promql_expr_test": [asked | {"exp_samples": firing}]}
    played = {"rule_files": ["rules.yml"], "evaluation_interval": f"{EVERY}s", "tests": [test]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yml").write_text(yaml.safe_dump(rules))
        (Path(folder) / "played.yml").write_text(yaml.safe_dump(played))
        command = ["promtool", "test", "rules", "played.yml"]
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def _values(page: str, now: float) -> dict[Sample, str]:
    """What each series says, times of it as they are where `now` is LAST."""
    samples = (each for family in text_string_to_metric_families(page) for each in family.samples)
    return {
        (each.name, tuple(sorted(each.labels.items()))): repr(
            each.value - now + LAST if each.name.endswith("_timestamp_seconds") else each.value
        )
        for each in samples
    }


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"
