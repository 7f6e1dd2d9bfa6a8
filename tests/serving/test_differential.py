"""Two neighbouring datasets, the same requests to a real server: nothing an analyst or an operator can read differs.

What may differ is the noise of what is released, so the draws are fixed (same_draws.py: each answers by its number and
the public shape of what it is asked for); the clock stands still and names are dealt in order. Then everything is
compared byte for byte, and what differs has leaked. Outside of it: how long something took.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import same_draws
from same_draws import BREAK
from small_home import DATA, ROOT, SCOPES, environment, free_port, records, until

from accountant.home import Home
from serving.app import DOORS
from serving.pages.all import PAGES
from serving.process.tokens import new_token

pytestmark = [pytest.mark.server, pytest.mark.slow]

ROWS = 240
HELPERS = Path(same_draws.__file__).parent
JOBS = [
    ("lazybb", {"rounds": 6}, None),
    ("lazybb-tree", {"rounds": 3}, None),
    ("ebm", {"epochs": 2}, None),
    ("bdpe", {"rounds": 4}, None),
    ("forest", {"trees": 3}, None),
    ("lazybb", {}, {"grid": {"rounds": [3, 5]}, "runs": 3}),
]


def neighbours(folder):
    """(guessed, counted): of `guessed` one has a row less, of `counted` one has another row. That row is unlike all
    others: the only one of its class, with a value outside its range, an unknown category, nothing known besides.
    """
    rows = pq.read_table(DATA / "adult_train.parquet").slice(0, 2000).to_pylist()
    usual = [row for row in rows if row["income"] == "<=50K"][:ROWS]
    odd = dict.fromkeys(usual[0]) | {"income": ">50K", "age": 10_000, "occupation": "31337"}
    plain = dict.fromkeys(usual[0]) | {"income": "<=50K"}
    schema = pq.read_schema(DATA / "adult_train.parquet")
    text = (DATA / "adult.schema.yaml").read_text()
    for name, guessed, counted in (("one", [*usual, odd], [*usual, odd]), ("other", usual, [*usual, plain])):
        place = folder / name
        place.mkdir()
        for dataset, chosen in (("guessed", guessed), ("counted", counted)):
            pq.write_table(pa.Table.from_pylist(chosen, schema), place / f"{dataset}.parquet")
            count = ROWS + 1 if dataset == "counted" else 2 * ROWS
            (place / f"{dataset}.yaml").write_text(text.replace("records: 32561", f"records: {count}"))
    return folder / "one", folder / "other"


def unpacked(raw):
    """The texts of a zip file, whose own bytes hold times and depend on how the random ones pack."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return "\n".join(f"{name}\n{archive.read(name).decode('utf-8', 'replace')}" for name in archive.namelist())


@dataclass
class Observer:
    """A running server, and what was read of it, by where it was read."""

    path: Path
    client: httpx.Client
    fails: Path
    seen: dict[str, str] = field(default_factory=dict)

    @cached_property
    def ledger(self):
        return Home.open({"DPSERVE_HOME": str(self.path)}).ledger

    def ask(self, method, path, scope, **more):
        """A machine that is busy elsewhere may take too long to answer; what is sent has a key, so it is the same
        to ask again.
        """
        headers = {"Authorization": f"Bearer {TOKENS[scope]}"} if scope else {}
        headers |= more.pop("headers", {})
        answer = self.client.request(method, path, headers=headers, **more)
        while answer.status_code == 504:
            answer = self.client.request(method, path, headers=headers, **more)
        return answer

    def post(self, path, body, scope="train"):
        return self.ask("POST", path, scope, json=body)

    def note(self, where, answer):
        kept = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
        text = unpacked(answer.content) if answer.content[:2] == b"PK" else answer.text
        self.seen[f"{len(self.seen)} {where}"] = f"{answer.status_code} {sorted(kept.items())}\n{text}"

    def serves(self, *names):
        with contextlib.suppress(httpx.TransportError):
            answer = self.ask("GET", "/v1/models", WATCHER)
            return answer.status_code == 200 and {*names} <= {line["name"] for line in answer.json()["models"]}


def observe(folder, home, files, port):
    """Copy the home, register, serve, ask everything; in the same place as before, so that paths are the same."""
    place = folder / "home"
    shutil.copytree(home, place)
    shutil.copytree(files, folder / "files")
    own = {"PYTHONPATH": f"{folder / 'site'}:{HELPERS}:{ROOT}", "PYTHONHASHSEED": "0", BREAK: str(folder / "break")}
    where = environment(place, DPSERVE_AUDIT_SECONDS="0", **own)
    made = [sys.executable, str(HELPERS / "same_draws.py"), str(place), str(folder / "files")]
    subprocess.run(made, env=where, check=True, capture_output=True)
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "1"]
    with (place / "server.log").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=where, stdout=out, stderr=out)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
        observer = Observer(place, client, folder / "break")
        try:
            until(observer.serves, "the server answers")
            work(observer)
            look(observer)
        finally:
            process.terminate()
            process.wait(300)
    read_files(place, observer.seen)
    rows = {path.relative_to(place): path.read_bytes() for path in (place / "datasets").rglob("*.npy")}
    place.rename(folder / f"home of {files.name}")
    (folder / "files").rename(folder / f"files of {files.name}")
    return observer.seen, rows


WATCHER = "watcher"  # asks as often as it needs to, so what the trail says of it is left out
TOKENS: dict[str, str] = {}


def work(observer):
    """Jobs of every learner on both datasets, one after the other; one that fails with the rows in its mouth, and one
    that is refused."""
    for dataset in ("guessed", "counted"):
        for number, (learner, parameters, tuning) in enumerate(JOBS):
            body = {"dataset": dataset, "learner": learner, "epsilon": "0.5", "model": f"{dataset}-{number}"}
            body |= {"parameters": parameters} | ({"tuning": tuning} if tuning else {})
            observer.note("plan", observer.post("/v1/plans", body))
            submit(observer, body)
        observer.fails.touch()
        submit(observer, {"dataset": dataset, "learner": "bdpe", "epsilon": "0.5"})
        assert not observer.fails.exists()
        for path in ("/v1/plans", "/v1/jobs"):
            asked = {"dataset": dataset, "learner": "lazybb", "epsilon": 30, "parameters": {"rounds": 6}}
            observer.note("refused", observer.post(path, asked))


def submit(observer, body):
    """By the ledger's own word, because every look at the door is a line of the trail."""
    answer = observer.post("/v1/jobs", {**body, "idempotency_key": f"key-{len(observer.seen)}"})
    assert answer.status_code == 202, answer.text
    known = {**answer.json(), "state": "", "progress": ""}  # it may have started or not
    observer.seen[f"{len(observer.seen)} submit"] = json.dumps(known)
    seq = known["job"]
    until(lambda: over(observer.ledger.job(seq), observer.path / "jobs" / str(seq)), f"job {seq} is over")
    observer.note("job", observer.ask("GET", f"/v1/jobs/{seq}", "train"))
    observer.note("cancel", observer.ask("DELETE", f"/v1/jobs/{seq}", "train"))


def over(job, folder):
    """What was issued has its place among the models once nothing of the job is left on disk."""
    return job.state == "burned" or (job.issued is not None and not folder.exists())


def look(observer):
    """Predictions, errors, and every door and every page that can be read, with every scope."""
    names = sorted(path.name for path in (observer.path / "models").iterdir())
    until(lambda: observer.serves(*names), "every model is served")
    row = {name: None for name in pq.read_schema(DATA / "adult_train.parquet").names if name != "income"}
    for name in names:
        for path in ("/predict", "/explain"):
            body = {"model": name, "records": [row, *records(20)]}
            observer.note(f"{path} {name}", observer.post(path, body, "predict"))
        bad = {"model": name, "records": [{**row, "age": "x"}]}
        observer.note(f"bad {name}", observer.post("/predict", bad, "predict"))
    for door in (*DOORS, *PAGES):
        if door.method == "GET" and door.path not in TIMED and not door.path.startswith("/ui/static"):
            for path in ways(door, names, observer.ledger):
                for scope in (None, *SCOPES):
                    read(observer, door, path, scope)
    observer.note("audit", observer.post("/v1/audits", {}, "audit"))
    until((observer.path / "logs" / "audit.json").exists, "it is audited")
    observer.note("audited", observer.ask("GET", "/v1/audits/last", "audit"))


def read(observer, door, path, scope):
    """A page as a browser asks for it, with a cookie."""
    if not door.hidden:
        observer.note(f"{path} {scope}", observer.ask("GET", path, scope))
        return
    headers = {"Accept": "text/html"} | ({"Cookie": f"dpserve={TOKENS[scope]}"} if scope else {})
    observer.note(f"{path} {scope}", observer.ask("GET", path, None, headers=headers))


def ways(door, models, ledger):
    """The door's path with names that there are."""
    if "{job}" in door.path:
        return [door.path.replace("{job}", str(job.seq)) for job in ledger.jobs()]
    if "{name}" not in door.path:
        return [door.path + {"/v1/ledger/proof": "?leaf=3", "/v1/ledger/consistency": "?from=2"}.get(door.path, "")]
    chosen = ["guessed", "counted"] if "dataset" in door.path else models[:1] + models[-1:]
    return [re.sub(r"{\w+}", "1", door.path.replace("{name}", name)) for name in chosen]


def read_files(home, seen):
    """What an operator reads in the home, and which files there are; the rows, the keys and the database are private,
    and the database's entries were read by the door."""
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home)
        private = name.parts[0] in ("datasets", "keys", "run") or name.name.startswith("ledger.db")
        size = "" if private or path.is_dir() or name.suffix in (".log", ".jsonl", ".json") else path.stat().st_size
        if name.parts[0] != "run":
            seen[f"file {name}"] = f"{size}"
        if path.is_file() and not private:
            seen[f"content {name}"] = path.read_bytes().decode("latin-1")


MASKS = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "TIME"),  # of the log and the trail
    (r"(nonce[-=]\"?)[\w+/=-]+", r"\1NONCE"),
    (r'("seconds": ?)[\d.e-]+', r"\1SECONDS"),
    (r"(dpserve\.\w+\[)\d+", r"\1PROCESS"),
    (r'(name="idempotency_key" value=")\w+', r"\1KEY"),
    (r"(?m)^(id: \w+:)\d+$", r"\1DONE"),  # of an event: how far the last look at the lease had come
    (r'(?m)^.*("watcher"|route="/v1/models").*\n', ""),
    (r'(?m)^.*"token": ?null.*\n', ""),  # of those without a token the trail counts the rest of a second
    (r"(?m)^(\w+_seconds\w*(?<!_count)(?:{[^}]*})?) .*$", r"\1 SECONDS"),  # metrics that measure time
    (r"(?m)^.*/readyz.*\n", ""),  # asked until it was ready
    (r'(?m)^.*("status": ?|status=")504.*\n', ""),  # and these until they were answered
    (r"(?m)^dpserve_refusals_total.*\n", ""),  # which counts each time
    (r"(?m)^.*refused: (GET|POST) .*\n", ""),  # of which the log has twenty a second; the trail has each
    (r"(?m)^(dpserve_(request_wait|loop_late)_seconds_count|dpserve_processes).*\n", ""),  # of moments
    (r"(?m)^dpserve_disk_free_bytes.*\n", ""),  # in hundredths of a disk that other programs write to
]


TIMED = ("/readyz", "/ui/service")  # seconds of this process, as /metrics has them, where they are masked


def normal(text):
    for pattern, put in MASKS:
        text = re.sub(pattern, put, text)
    return text


def differences(one, other):
    """Where they differ. Processes write to one log in turn, and their metrics come in the order of their numbers."""
    found = sorted(one.keys() ^ other.keys())
    for where in sorted(one.keys() & other.keys()):
        lines = [normal(each[where]).splitlines() for each in (one, other)]
        anyhow = where.endswith(".log") or "/metrics" in where
        if (sorted(lines[0]) != sorted(lines[1])) if anyhow else lines[0] != lines[1]:
            found.append(where)
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neighbours")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("import same_draws\nsame_draws.install()\n")
    home = Home.init({"DPSERVE_HOME": str(folder / "first")})
    for name, scope in (*zip(SCOPES, SCOPES, strict=True), (WATCHER, "admin")):
        TOKENS[name] = new_token(home, name, [scope])[0]
    port, files = free_port(), neighbours(folder)
    return [observe(folder, home.path, each, port) for each in files]


def test_nothing_differs(pair):
    (one, _), (other, _) = pair
    assert differences(one, other) == []


def test_rows_did_differ_and_every_job_came_to_its_end(pair):
    """Else the test above would say nothing."""
    (one, rows), (_, others) = pair
    assert rows.keys() == others.keys()
    changed = {path for path in rows if rows[path] != others[path]}
    assert len({path.parent for path in changed}) == 2
    states = [json.loads(text.split("\n", 1)[1])["state"] for where, text in one.items() if where.endswith(" job")]
    assert states.count("issued") == 2 * len(JOBS)
    assert states.count("burned") == 2


def test_operators_were_shown_no_row(pair):
    for seen, _ in pair:
        for where, text in seen.items():
            assert "31337" not in text, where
            assert "the values were" not in text, where


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-21 16:10:49,460 INFO job 1: 241 rows", "2026-11-21 16:10:49,460 INFO job 1: 240 rows"),
        ('{"records": 241}', '{"records": 240}'),
        ('dpserve_predictions_total{model="a"} 241.0', 'dpserve_predictions_total{model="a"} 240.0'),
        ('dpserve_prediction_seconds_count{model="a"} 2.0', 'dpserve_prediction_seconds_count{model="a"} 3.0'),
        ('{"time": "2026-11-21T16:10:49Z", "status": 200}', '{"time": "2026-11-21T16:10:49Z", "status": 404}'),
    ],
)
def test_masks_hide_no_difference_that_matters(one, other):
    assert differences({"x": one}, {"x": other}) == ["x"]
    assert differences({"x": one}, {"x": one}) == []
    assert differences({"x": one}, {}) == ["x"]


def test_draws_are_fixed_by_shape_alone(tmp_path):
    code = (
        "import same_draws; same_draws.install()\n"
        "import numpy as np\nfrom decimal import Decimal\nfrom accountant.noise import mechanisms as m\n"
        "import sys\nvalues = np.arange(5) * int(sys.argv[1])\n"
        "e = Decimal(1)\n"
        "print(m.ExponentialSelection(e).draw(values, 1), m.DiscreteLaplace(e).draw(values, 1),"
        " m.ExponentialSelections(e).draw(values.reshape(1, 5), 1), m.DiscreteGaussian(e).draw(values, 1))"
    )
    own = {**environment(tmp_path), "PYTHONPATH": f"{HELPERS}:{ROOT}"}
    said = [
        subprocess.run([sys.executable, "-c", code, factor], env=own, capture_output=True, text=True, check=True).stdout
        for factor in ("1", "1000")
    ]
    assert said[0] == said[1]
    assert np.size(said[0])
