"""Write the alert rules as the object that the Prometheus operator reads: `python tests/helpers/prometheus_rule.py`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "kubernetes" / "components" / "monitoring" / "rules.yaml"
HEAD = """\
# Made of serving/grafana/alerts.yml by tests/helpers/prometheus_rule.py: change that file, and make this one again.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: dpserve
spec:
"""


def prometheus_rule() -> str:
    """Return the object, with the groups of `alerts.yml` as they stand there."""
    lines = (ROOT / "serving" / "grafana" / "alerts.yml").read_text().splitlines(keepends=True)
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in lines if not line.startswith("#"))


if __name__ == "__main__":
    RULES.write_text(prometheus_rule())
