"""A story that walks through every door of a real server, and what was said at each of them: the examples of the
reference. `python tests/helpers/rest_story.py` writes them to serving/rest/examples.json.
"""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import owners
import sharing
from small_home import ROOT, Server, serving, until

from accountant.home import Home
from local.aggregator import program as aggregator
from local.aggregator.settings import read_settings as read_aggregator
from local.campaign import campaigns, shared_campaigns
from local.owner import program as owner
from local.owner.settings import read_settings as read_owner
from serving.app import DOORS
from serving.http.routes import Door
from serving.rest.openapi import EXAMPLES

ROWS, OWNERS = 900, 6
SHOWN = [door for door in DOORS if not door.hidden]
LONG, MANY = 100, 2  # of an example: characters of a text, and lines of an answer's list
FIRST = {"POST /v1/campaigns/{name}/collect"}  # is asked until there is nothing more
SCHEMA = """\
target: {name: readmitted, classes: ["no", "yes"]}
records: 900
features:
  age: {type: numeric, range: [0, 100], bins: 16}
  days: {type: numeric, range: [0, 30], bins: 16}
  ward: {type: categorical, values: [heart, lungs, surgery]}
"""
RECORD = {"age": 71, "days": 12, "ward": "heart"}
OWNER = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"
pace_seconds = 0.05

[question]
target = "answer"
classes = ["no", "yes"]
features = ["a", "b", "c"]

[policy]
total_epsilon = "8"
largest_epsilon = "4"
least_owners = 2

[ranges]
a = [-3, 3]
"""


def visits() -> bytes:
    """A table of made-up visits, as a .csv."""
    rng = np.random.default_rng(1)
    age, days = rng.integers(18, 95, ROWS), rng.integers(1, 25, ROWS)
    again = np.where(age / 10 + days + 5 * rng.standard_normal(ROWS) > 19, "yes", "no")
    lines = zip(age, days, rng.choice(["heart", "lungs", "surgery"], ROWS), again, strict=True)
    return ("age,days,ward,readmitted\n" + "".join(f"{a},{d},{w},{r}\n" for a, d, w, r in lines)).encode()


def label(door: Door) -> str:
    return f"{door.method} {door.path}"


class Heard:
    """What was said last at each door, that the door did not refuse. `whole`: the answers before they were cut."""

    def __init__(self) -> None:
        self.examples: dict[str, dict[str, Any]] = {}
        self.whole: dict[str, Any] = {}
        self.forms = [(door, re.compile(re.sub(r"{\w+}", "[^/]+", door.path))) for door in SHOWN]

    def note(self, method: str, path: str, asked: tuple[str, bytes], answer: tuple[int, str, bytes]) -> None:
        plain = path.partition("?")[0]
        door = next((d for d, form in self.forms if d.method == method and form.fullmatch(plain)), None)
        status, kind, body = answer
        if door is None or status != door.status or label(door) in self.kept | (FIRST & self.examples.keys()):
            return
        told = of_body(kind, body)
        found: dict[str, Any] = {"path": path}
        if asked[1]:
            found["request"] = {"type": asked[0], "body": short(of_body(*asked), LONG)}
        self.whole[label(door)] = told
        self.examples[label(door)] = {**found, "response": {"type": kind, "body": short(told)}}

    kept: frozenset[str] = frozenset()

    def keep(self, *labels: str) -> None:
        """Of these doors what was said is an example, whatever is said later."""
        assert set(labels) <= self.examples.keys(), labels
        self.kept |= set(labels)


def of_body(kind: str, body: bytes) -> Any:
    """JSON as it is, a text as a text, and of what is neither how long it is."""
    if kind == "application/json":
        return json.loads(body) if body else None
    return body.decode() if kind.startswith("text/") else f"({len(body)} bytes)"


def short(value: Any, many: int = MANY) -> Any:
    """As an example shows it."""
    if isinstance(value, str) and len(value) > LONG and "\n" in value[:-1]:
        lines = value.splitlines()
        return "\n".join([*map(short, lines[:8]), *(["..."] if len(lines) > 8 else [])])
    if isinstance(value, str):
        return value if len(value) <= LONG else value[: LONG - 20] + "..."
    if isinstance(value, dict):
        return {key: short(each, many) for key, each in value.items()}
    return [short(each, many) for each in value[:many]] if isinstance(value, list) else value


@contextmanager
def listening(port: int, heard: Heard) -> Iterator[str]:
    """An address at which a server of this machine is reached, and all that is said is noted."""

    class Through(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            there = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            there.request(self.command, self.path, body, dict(self.headers.items()))
            answer = there.getresponse()
            said, kind = answer.read(), (answer.getheader("Content-Type") or "").partition(";")[0]
            there.close()
            sent = (self.headers.get("Content-Type") or "").partition(";")[0]
            heard.note(self.command, self.path, (sent, body), (answer.status, kind, said))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type") or "")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = pass_on  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests read what was said."""

    door = ThreadingHTTPServer(("127.0.0.1", 0), Through)
    thread = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.server_port}"
    finally:
        door.shutdown()
        thread.join()
        door.server_close()


class Story:
    """Asks with the scope that a door takes; what it refuses ends the story."""

    def __init__(self, server: Server, url: str, heard: Heard, folder: Path) -> None:
        self.server, self.url, self.heard, self.folder = server, url, heard, folder
        self.home: Home = server.home

    def ask(self, scope: str | None, method: str, path: str, body: Any = None, **more: Any) -> Any:
        given = {"json": body} if isinstance(body, dict) else {"content": body}
        port = int(self.url.rpartition(":")[2])
        answer = Server(self.server.path, port, self.server.process, self.server.log, self.server.tokens).ask(
            method, path, scope, **given, **more
        )
        assert answer.status_code < 300, (method, path, answer.text, self.server.log.read_text()[-2000:])
        return answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text

    def get(self, scope: str | None, path: str) -> Any:
        return self.ask(scope, "GET", path)

    def post(self, by: str, path: str, **body: Any) -> Any:
        return self.ask(by, "POST", path, body)

    def learners_of_others(self) -> None:
        """One that is checked and admitted, shown, and removed."""
        text = (ROOT / "examples" / "naive_bayes.py").read_text()
        about = {"name": "bayes", "text": text, "class": "NaiveBayes", "author": "ana"}
        self.post("steward", "/v1/learners", **about, reason="two of us read it", neighbours=2)
        until(lambda: self.get("steward", "/v1/learners")["learners"], "the learner was checked")
        self.heard.keep("GET /v1/learners")
        self.get("steward", "/v1/learners/bayes")
        self.post("steward", "/v1/learners/bayes/remove", reason="its author mended it")

    def registered(self) -> None:
        """A file in a part, a schema, and a total; and a draft that is given up."""
        rows = visits()
        one = self.post("steward", "/v1/drafts", file="visits.csv", bytes=len(rows))["draft"]
        part = {"Content-Type": "application/octet-stream"}
        self.ask("steward", "PUT", f"/v1/drafts/{one}/rows?at=0", rows, headers=part)
        until(lambda: self.get("steward", f"/v1/drafts/{one}")["state"] == "columns", "the columns are known")
        self.get("steward", "/v1/drafts")
        self.heard.keep("GET /v1/drafts", "GET /v1/drafts/{draft}")
        self.post("steward", f"/v1/drafts/{one}/check", schema=SCHEMA)
        until(lambda: self.get("steward", f"/v1/drafts/{one}")["state"] == "ready", "every row was checked")
        total = {"epsilon": "50", "delta": "0.00001", "unit": "record", "holdout": "0.3"}
        self.post("steward", f"/v1/drafts/{one}/register", name="tryout", **total)
        until(lambda: self.get("steward", f"/v1/drafts/{one}")["state"] == "registered", "the dataset is there")
        self.post("steward", "/v1/datasets/tryout/withdraw", reason="another name")
        self.heard.keep("POST /v1/drafts", "PUT /v1/drafts/{draft}/rows", "POST /v1/drafts/{draft}/check")
        two = self.post("steward", "/v1/drafts", file="visits.csv", bytes=len(rows))["draft"]
        self.ask("steward", "PUT", f"/v1/drafts/{two}/rows?at=0", rows, headers=part)
        until(lambda: self.get("steward", f"/v1/drafts/{two}")["state"] == "columns", "the columns are known")
        self.post("steward", f"/v1/drafts/{two}/check", schema=SCHEMA)
        until(lambda: self.get("steward", f"/v1/drafts/{two}")["state"] == "ready", "every row was checked")
        self.post("steward", f"/v1/drafts/{two}/register", name="visits", **total)
        until(lambda: self.get("steward", f"/v1/drafts/{two}")["state"] == "registered", "the dataset is there")
        other = self.post("steward", "/v1/drafts", file="more.csv", bytes=10)["draft"]
        self.ask("steward", "DELETE", f"/v1/drafts/{other}")
        self.post("steward", "/v1/datasets/visits/budget", epsilon="60", reason="the board agreed to more")
        self.post("steward", "/v1/datasets/visits/quotas", analyst="ana", share="0.5", reason="half is for others")
        elsewhere = {
            "mechanism": "a table of stays, discrete Gaussian noise",
            "why": "published in May",
            "rho": "0.001",
        }
        self.post("steward", "/v1/datasets/visits/charges/plan", **elsewhere)
        self.post("steward", "/v1/datasets/visits/charges", **elsewhere)
        self.learners_of_others()
        self.post("steward", "/v1/datasets/visits/retire", reason="its time is over")
        self.post("steward", "/v1/datasets/visits/restore", reason="a review")
        note = {"text": "stays of 2027, from the ward's own book", "tags": ["2027", "ward"]}
        self.ask("steward", "PUT", "/v1/datasets/visits/note", note)
        self.get("steward", "/v1/datasets/visits/note")

    def trained(self) -> None:
        """Two versions, one of them measured; a job that is taken back."""
        asked = {"dataset": "visits", "learner": "ebm", "epsilon": "4"}
        self.post("train", "/v1/plans", **asked)
        self.post("train", "/v1/schedules", name="weekly", **asked, start="2099-01-05T06:00")
        self.get("train", "/v1/schedules")
        self.heard.keep("GET /v1/schedules")
        self.ask("train", "DELETE", "/v1/schedules/weekly")
        for key in ("monday", "tuesday"):
            job = self.post("train", "/v1/jobs", **asked, idempotency_key=key)["job"]
            self.get("train", f"/v1/jobs/{job}/events")
        self.heard.keep("POST /v1/jobs", "GET /v1/jobs/{job}/events")
        self.get("train", f"/v1/jobs/{job}")
        self.heard.keep("GET /v1/jobs/{job}")
        worth = {"model": "visits@1", "dataset": "visits", "epsilon": "4"}
        self.post("train", "/v1/plans/evaluations", **worth)
        self.issued("/v1/evaluations", **worth)
        ages = {"dataset": "visits", "epsilon": "2", "columns": ["age"]}
        self.post("train", "/v1/plans/profiles", **ages)
        profiled = self.issued("/v1/profiles", **ages)
        self.get("train", f"/v1/profiles/{profiled}/synthetic?rows=3")
        counts = {
            "dataset": "visits",
            "select": "select readmitted, count(*), avg(age) from visits group by readmitted",
        }
        self.post("train", "/v1/plans/answers", **counts, epsilon="2")
        self.issued("/v1/answers", **counts, epsilon="2")
        for path in ("/v1/datasets", "/v1/families", "/v1/datasets/visits", "/v1/datasets/visits/profiles"):
            self.get("train", path)
        self.get("steward", "/v1/datasets/visits/person")
        self.get("train", "/v1/jobs?dataset=visits&state=issued&limit=2")

    def issued(self, path: str, **body: Any) -> int:
        job = self.post("train", path, **body)["job"]
        self.get("train", f"/v1/jobs/{job}/events")
        self.get("train", f"{path}/{job}")
        return int(job)

    def cancelled(self) -> None:
        """While nothing is trained, what is submitted waits, and can be taken back."""
        (worker,) = self.server.processes("dpserve-train")
        worker.suspend()
        try:
            job = self.post("train", "/v1/jobs", dataset="visits", learner="lazybb", epsilon="1")["job"]
            self.ask("train", "DELETE", f"/v1/jobs/{job}")
        finally:
            worker.resume()

    def served(self) -> None:
        """Predictions, the models, and which version answers."""
        records = {"model": "visits", "records": [RECORD, {**RECORD, "age": None}]}
        for path in ("/predict?notes=1", "/explain"):
            self.post("predict", path, **records)
        for path in ("", "/visits@1", "/visits/certificate", "/visits/bundle"):
            self.get("predict", f"/v1/models{path}")
        why = {"reason": "measured, and better"}
        self.post("promote", "/v1/models/visits/promote", version=2, although_not_better=True, **why)
        self.post("promote", "/v1/models/visits/champion", version=1, although_not_better=True, **why)
        self.post("promote", "/v1/models/visits@2/retire", reason="not needed")
        self.post("promote", "/v1/models/visits@2/restore", reason="needed after all")
        self.ask("promote", "PUT", "/v1/models/visits/note", {"tags": ["production"]})
        self.get("predict", "/v1/models/visits/note")
        self.get("predict", "/v1/models/visits@1/curve?feature=days")
        less = {"feature": "days", "zero": "..5", "why": "a short stay says nothing"}
        self.post("promote", "/v1/models/visits@1/edits", edits=[less], reason="the ward's review")
        for path in ("/v1/trust", "/v2", "/v2/health/live", "/v2/health/ready", "/", "/livez", "/readyz"):
            self.get("predict", path)
        self.post("predict", "/v2/repository/index", ready=True)
        inputs = [
            {"name": "age", "shape": [1, 1], "datatype": "FP64", "data": [71]},
            {"name": "days", "shape": [1, 1], "datatype": "FP64", "data": [12]},
            {"name": "ward", "shape": [1, 1], "datatype": "BYTES", "data": ["heart"]},
        ]
        for path in ("/v2/models/visits", "/v2/models/visits/versions/1"):
            self.get("predict", path)
            self.get("predict", f"{path}/ready")
            self.post("predict", f"{path}/infer", inputs=inputs)

    def watched(self) -> None:
        """Grants, tokens, the ledger, audits and metrics."""
        grant = self.post("admin", "/v1/grants", principal="ana", scope="train", on={"dataset": "visits"})["grant"]
        self.get("admin", "/v1/grants?principal=ana")
        self.get("admin", f"/v1/grants/{grant}")
        self.heard.keep("GET /v1/grants", "GET /v1/grants/{grant}")
        self.post("admin", f"/v1/grants/{grant}/revoke", reason="left the team")
        self.get("admin", "/v1/tokens")
        for path in (
            "?after=1",
            "/checkpoint",
            "/checkpoints?after=1",
            "/proof?leaf=1&size=4",
            "/consistency?from=2&to=4",
        ):
            self.get("audit", f"/v1/ledger{path}")
        self.get("audit", "/v1/ledger/consistency?from=2&to=4")
        self.get("audit", "/metrics")
        asked = self.ask("audit", "POST", "/v1/audits")["asked"]
        until(lambda: self.audited(asked), "the audit that was asked for")

    def audited(self, asked: str) -> bool:
        answer = self.server.ask("GET", "/v1/audits/last", "audit")
        return answer.status_code == 200 and self.get("audit", "/v1/audits/last")["at"] >= asked

    def reported(self) -> None:
        """Owners who report: one campaign is learnt from, one in turns goes on a turn, and is given up."""
        owners.asking(self.folder, self.home, OWNERS, 2)
        for number in range(3):
            own = self.folder / f"owner-{number}"
            own.mkdir()
            owners.write(own / "rows.csv", owners.people(1, number))
            (own / "owner.toml").write_text(OWNER.format(url=self.url, trust=self.home.path / "trust.json"))
            invitation = campaigns.invitation(self.home, "survey", number)
            owner.answer(read_owner(own / "owner.toml"), "survey", invitation)
        self.get("train", "/v1/campaigns")
        self.get(None, "/v1/campaigns/survey")
        self.heard.keep("GET /v1/campaigns", "GET /v1/campaigns/{name}")
        self.ask("train", "POST", "/v1/campaigns/survey/close", {})
        owners.asking(self.folder, self.home, OWNERS, 2, "turns", learner="local-stump", rounds="2", epsilon="4")
        owners.answer_turn(self.home, "turns", owners.people(OWNERS), 2)
        self.ask("train", "POST", "/v1/campaigns/turns/next", {})
        self.post("train", "/v1/campaigns/turns/give-up", reason="too few answered")

    def shared(self) -> None:
        """Owners who share among two aggregators, each of which answers by its own program."""
        whom = sharing.aggregators(self.folder, self.home, self.url)
        definition = sharing.asking(self.folder, self.home, whom, OWNERS, 4)
        sent = {"Content-Type": "application/octet-stream"}
        for number in range(OWNERS):
            body = campaigns.invitation(self.home, "census", number).encode() + b"\n"
            body += sharing.sealed(definition, number, owners.people(3, number))
            self.ask(None, "POST", "/v1/campaigns/census/shares", body, headers=sent)
        self.ask("train", "POST", "/v1/campaigns/census/close", {})
        with ThreadPoolExecutor(2) as both:
            tokens = [shared_campaigns.token_for(self.home, "census", at) for at in (0, 1)]
            answers = [
                both.submit(aggregator.answer, read_aggregator(place), "census", token, 20)
                for place, token in zip(whom, tokens, strict=True)
            ]
            assert [each.result().owners for each in answers] == [OWNERS] * 2

    def rounds(self) -> None:
        """Two institutions, and two aggregators for each of their sums."""
        folder = self.folder / "hospitals"
        folder.mkdir()
        place = hospitals.Hospitals(folder, self.home, self.url)
        place.found([hospitals.people(60), hospitals.people(60, 1)], hospitals.schema(120))
        place.ask("wards", settings=(("epochs", "1"), ("rate", "0.5")))
        found = place.everybody("wards")
        assert not [each for each in found.values() if isinstance(each, Exception)], found


def told(folder: Path) -> Heard:
    """The whole story, on a server of its own."""
    Home.init({"DPSERVE_HOME": str(folder / "home")})
    heard = Heard()
    with serving(folder / "home", workers=1) as server, listening(server.port, heard) as url:
        story = Story(server, url, heard, folder)
        story.registered()
        story.trained()
        story.served()
        story.watched()
        story.reported()
        story.shared()
        story.rounds()
        story.cancelled()
    return heard


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        heard = told(Path(folder))
    found = {label(door): heard.examples[label(door)] for door in SHOWN}
    EXAMPLES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(found)} examples in {EXAMPLES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
