"""The rules, the board and the metrics, judged by promtool and by a real Prometheus that scrapes two workers."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass

import httpx
import pytest
from alarms import cluster_labels, require_alerts
from prometheus_client.parser import text_string_to_metric_families
from prometheus_rule import RULES
from small_home import ROOT, adult_home, client, free_port, serving, until

from accountant.log.last_seen import HighWater
from training.jobs import job
from training.requests import JobRequest

sys.path.insert(0, str(ROOT / "docs"))
import reference

GRAFANA = ROOT / "serving" / "grafana"
MONITORING = (ROOT / "docs" / "monitoring.md").read_text()
BOARD = json.loads((GRAFANA / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.system("promtool", "prometheus", "prometheus-alertmanager"),
]


def promtool(*arguments, **more):
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, **more)


def names(text):
    """Names of metrics in an expression, as the table of metrics spells them."""
    return {re.sub(r"_bucket$", "", found) for found in re.findall(r"\bdpserve_[a-z_]+", text)}


# The files


@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_rules_are_sound_and_do_what_they_say(arguments):
    found = promtool(*arguments, cwd=GRAFANA)
    assert found.returncode == 0, found.stdout + found.stderr


def test_scrape_configuration_is_sound(tmp_path):
    shutil.copytree(GRAFANA, tmp_path / "grafana")
    (tmp_path / "grafana" / "token").write_text("dps_x")
    found = promtool("check", "config", "prometheus.yml", cwd=tmp_path / "grafana")
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_is_tested():
    tests, rules = ((GRAFANA / name).read_text() for name in ("alerts_test.yml", "alerts.yml"))
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    fired = set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n", tests))
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    assert alerts == fired == silent == set(re.findall(r"`(Dpserve\w+)`", MONITORING))
    named = re.findall(
        r"- alert: (\w+)\n(?: {8}.*\n)*? {8}annotations:\n {10}runbook: /docs/reference/alerts#(\w+)", rules
    )
    assert dict(named) == {name: name.lower() for name in alerts}
    sections = reference.alerts().split("\n## ")[1:]
    assert {section.split("\n")[0] for section in sections} == alerts
    assert [section for section in sections if re.search(r"\| played \|  \|", section)] == []


def test_the_rules_fire_on_the_labels_that_a_cluster_gives():
    """The operator names the job NAMESPACE/NAME, unless the PodMonitor names it; and it reads rules of a PrometheusRule
    alone.
    """
    require_alerts("", [], of_each=["DpserveNotReady"], up=0)
    asking = " ".join(EXPRESSIONS) + json.dumps(BOARD["templating"]).replace("\\", "") + RULES.read_text()
    assert set(re.findall(r'job="[^"]*"', asking)) == {f'job="{cluster_labels("p")["job"]}"'}


def test_board_is_whole():
    """No panel upon another, none outside the 24 columns, no id twice, every panel says what its unit measures."""
    cells = set()
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= covered
    assert "://" not in json.dumps(BOARD)


# A real Prometheus


@dataclass
class Watched:
    """A server of two workers, the Prometheus that watches it, and what the Alertmanager sent."""

    server: object
    port: int
    sent: list[dict]

    def api(self, path, **query):
        answer = client().get(f"http://127.0.0.1:{self.port}/api/v1/{path}", params=query, timeout=300).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, expression):
        found = self.api("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self):
        return {each["labels"]["alertname"] for each in self.api("alerts")["alerts"] if each["state"] == "firing"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    home = adult_home(folder, 2)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 10}, model="adult"), by="test")
    with serving(home.path, DPSERVE_AUDIT_SECONDS="3600") as server, taking_alerts() as (address, sent):
        teller, port = free_port(), free_port()
        tells = start_alertmanager(folder / "alertmanager", teller, address)
        asks = start(folder / "prometheus", port, server, teller)
        try:
            found = Watched(server, port, sent)
            until(
                lambda: asks.poll() is tells.poll() is None and alive(port) and found.value('up{job="dpserve"}') == 1,
                "it is scraped",
            )
            yield found
        finally:
            for process in (asks, tells):
                process.terminate()
                process.wait(300)


@contextlib.contextmanager
def taking_alerts():
    """An address of an operator, and the alerts that came to it."""
    sent = []

    class Takes(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Takes) as taker:
        threading.Thread(target=taker.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{taker.server_port}/", sent
        taker.shutdown()


def start(folder, port, server, teller):
    """The configuration of compose as it is shipped: only the addresses and the pace are the test's own."""
    shutil.copytree(GRAFANA, folder)
    (folder / "token").write_text(server.tokens["audit"])
    text = (ROOT / "deploy" / "prometheus.yml").read_text().replace("15s", "1s")
    text = text.replace("service:3000", f"127.0.0.1:{server.port}").replace("alertmanager:", "127.0.0.1:")
    (folder / "prometheus.yml").write_text(text.replace(":9093", f":{teller}"))
    command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    return begin([*command, "--storage.tsdb.path=data"], folder)


def start_alertmanager(folder, port, address):
    """As it is shipped, too. Debian's knows no `url_file`."""
    folder.mkdir()
    text = (ROOT / "deploy" / "alertmanager.yml").read_text().replace("10s", "0s")
    assert "- url_file: /run/secrets/alerts" in text
    (folder / "alertmanager.yml").write_text(text.replace("url_file: /run/secrets/alerts", f"url: {address}"))
    command = ["prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=data"]
    return begin([*command, "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}"], folder)


def begin(command, folder):
    with (folder / "log").open("wb") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)


def alive(port):
    try:
        return client().get(f"http://127.0.0.1:{port}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_metrics_are_well_formed_and_each_is_meant(watched):
    """What promtool says of the page, and that rules and board speak of no metric that is not on it."""
    watched.server.predict()
    asked = {"dataset": "adult", "learner": "lazybb", "epsilon": 50}
    until(lambda: watched.server.post("/v1/plans", asked).status_code == 403, "it is refused, however slow the machine")
    text = watched.server.get("/metrics", scope="audit").text
    assert promtool("check", "metrics", input=text).stderr == ""
    on_page = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert on_page <= names(reference.figures())
    asked = names(" ".join(EXPRESSIONS) + (GRAFANA / "alerts.yml").read_text())
    none_yet = {"dpserve_certificate_failures_total", "dpserve_index_mismatches_total"}
    assert asked - on_page <= none_yet


def counted(server):
    """Records predicted so far, as whichever worker answers says."""
    families = text_string_to_metric_families(server.get("/metrics", scope="audit").text)
    return sum(each.value for family in families for each in family.samples if each.name == "dpserve_predictions_total")


def test_two_workers_count_as_one(watched):
    """Each scrape meets either worker; the counter never falls, and gives every request."""
    before = counted(watched.server)
    for _ in range(20):
        assert watched.server.predict(count=3).status_code == 200
    assert counted(watched.server) == before + 60
    until(lambda: watched.value("sum(dpserve_predictions_total)") == before + 60, "every record was counted")
    assert watched.value("resets(dpserve_predictions_total[5m])") == 0
    assert watched.value("dpserve_audit_ok") == 1


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_board_asks_what_prometheus_answers(watched, expression):
    filled = expression.replace("$instance", ".*").replace("$dataset", ".*").replace("$__rate_interval", "1m")
    watched.api("query", query=filled)


def test_audit_by_request(watched):
    server = watched.server
    answer = server.ask("POST", "/v1/audits", scope="audit")
    assert answer.status_code == 202
    last = lambda: server.get("/v1/audits/last", scope="audit").json()  # noqa: E731
    found = until(lambda: last() if last().get("at", "") >= answer.json()["asked"] else None, "the audit was made")
    assert (found["ok"], found["problems"], found["entries"]) == (True, [], server.home.ledger.log.size())


def test_alert_fires_where_a_model_was_changed_and_ends(watched):
    assert "DpserveCertificateFailures" not in watched.firing()
    path = watched.server.path / "models" / "adult" / "1" / "model.onnx"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        until(lambda: "DpserveCertificateFailures" in watched.firing(), "the alert fires")
        names_sent = lambda: {each["labels"]["alertname"] for each in watched.sent}  # noqa: E731
        until(lambda: "DpserveCertificateFailures" in names_sent(), "somebody is told")
    finally:
        path.write_bytes(good)
    until(lambda: watched.value("max(dpserve_models_refused)") == 0, "every worker serves it again")


def test_server_that_is_not_ready_is_seen_to_be(watched):
    mark = watched.server.path / "keys" / "high-water.json"
    good, (size, root) = mark.read_bytes(), HighWater(mark).read()
    try:
        HighWater(mark).advance(size + 5, root)
        until(lambda: watched.value('up{job="dpserve"}') == 0, "the scrape fails")
    finally:
        mark.write_bytes(good)
    until(lambda: watched.value('up{job="dpserve"}') == 1, "it is ready again")
