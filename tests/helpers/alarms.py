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

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_rule import RULES

ROOT = Path(__file__).resolve().parents[2]
EVERY, LAST = 240, 2 * 3600  # seconds: of the time that is played, in which all stays as it is


def cluster_labels(pod: str) -> dict[str, str]:
    """What the Prometheus operator makes of a target of the component `monitoring`: it names the job NAMESPACE/NAME."""
    monitor = yaml.safe_load(RULES.with_name("monitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    labels = {"namespace": "dpserve", "pod": pod, "container": "dpserve", "endpoint": endpoint["port"]}
    labels |= {"instance": f"{pod}:3000", "job": f"dpserve/{monitor['metadata']['name']}"}
    return labels | {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}


def require_alerts(page: str, alerts: Iterable[str], of_each: Iterable[str] = ()) -> None:
    """Fail unless exactly these alerts fire where two pods say what is on a page: `alerts` once, for both, and
    `of_each` for each of them.
    """
    now, steps, rules = time.time(), LAST // EVERY, yaml.safe_load(RULES.read_text())["spec"]
    asked_for, series = set(re.findall(r"\bdpserve_\w+", str(rules))), []
    for pod in ("p-0", "p-1"):
        labels = cluster_labels(pod)
        series.append({"series": _series("up", labels), "values": f"1x{steps}"})
        for family in text_string_to_metric_families(page):
            for each in (each for each in family.samples if each.name in asked_for):
                is_time = each.name.endswith("_timestamp_seconds")
                value = each.value - now + LAST if is_time else each.value
                series.append({"series": _series(each.name, {**each.labels, **labels}), "values": f"{value!r}x{steps}"})
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


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"
