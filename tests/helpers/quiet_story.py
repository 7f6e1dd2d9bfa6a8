"""A day of dpserve, from an empty home to a served model: test_nothing_is_sent.py runs it where nobody answers.

    python quiet_story.py FOLDER

Both servers, the verifier, and commands in groups that load different things are processes of their own, which begin
and end as a user's: nothing here sets a variable of a dependency. FOLDER holds rows.parquet, schema.yaml,
people.parquet and record.json; what is written goes there as well.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
DPSERVE = [sys.executable, "-m", "serving.cli"]
EACH = """
import json, sys
from serving.cli.app import run
for words in json.loads(sys.argv[1]):
    print(words)
    code = run(words)
    if code:
        sys.exit(code)
"""
PATIENCE = 120.0  # seconds: a way out and not a claim


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_each(*commands: list[str]) -> None:
    """Run commands one after another in one process: to start one takes two seconds of a processor."""
    run(sys.executable, "-c", EACH, json.dumps(commands))


def ask(url: str, token: str = "", body: object = None) -> tuple[int, bytes]:
    """The status of an answer and its body; 0 where there is none."""
    data, headers = None, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if body is not None:
        data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        if error.code in (400, 403, 422):
            sys.exit(f"{url}: {error.read().decode()}")
        return int(error.code), b""
    except OSError:
        return 0, b""


def until(status: int, *asked: Any, says: bytes = b"") -> None:
    """Ask until this is the status, and these bytes stand in the answer."""
    end = time.monotonic() + PATIENCE
    while (answer := ask(*asked))[0] != status or says not in answer[1]:
        if time.monotonic() > end:
            sys.exit(f"waited in vain: {asked}")
        time.sleep(0.2)


def serve(token: str, record: dict[str, object], *command: str) -> None:
    """Serve, predict, train over REST, look at pages, and end as an operator ends it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    url, log = f"http://127.0.0.1:{port}", FOLDER / f"{command[-1].partition(':')[0]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--port", port], stdout=out, stderr=out)
    try:
        until(200, f"{url}/readyz")
        until(200, f"{url}/predict", token, {"model": "adult", "records": [record]})
        job = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.2", "delta": "1e-6", "model": f"over-{port}"}
        until(202, f"{url}/v1/jobs", token, job)
        for page in ("/docs.json", "/metrics", "/v1/ledger", "/docs", "/ui"):
            until(200, url + page, token)
        until(200, f"{url}/v1/jobs?state=issued", token, says=f"over-{port}".encode())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def main() -> None:
    rows, schema = str(FOLDER / "rows.parquet"), str(FOLDER / "schema.yaml")
    register = ["dataset", "register", "adult", "--data", rows, "--schema", schema, "--unit", "record"]
    register += ["--new-people", "--reason", "a first table", "--epsilon", "5", "--delta", "1e-5"]
    plan = ["plan", "adult", "--learner", "auto", "--epsilon", "0.5"]
    run_each(["init"], ["schema", "check", schema, "--data", rows], register, plan)
    run(*DPSERVE, "train", "adult", "--learner", "lazybb", "--epsilon", "0.5", "--delta", "1e-6")
    predicted = str(FOLDER / "predicted.csv")
    run(*DPSERVE, "predict", "adult", "--data", str(FOLDER / "people.parquet"), "--out", predicted)
    exported = str(FOLDER / "exported")
    run_each(
        ["model", "explain", "adult", "--out", str(FOLDER / "explained.png")],
        ["model", "export", "adult", "--out", exported],
        ["verify", exported],
        ["ledger", "audit"],
    )
    run(
        sys.executable, "-m", "dpserve_verify", exported, "--trust", str(Path(os.environ["DPSERVE_HOME"], "trust.json"))
    )
    scopes = ("--scope", "predict", "--scope", "train", "--scope", "audit")
    token = json.loads(run(*DPSERVE, "token", "create", *scopes, "--name", "story", "--json"))["token"]
    record = json.loads((FOLDER / "record.json").read_text())
    os.environ["DPSERVE_WORKERS"] = "1"
    serve(token, record, *DPSERVE, "serve")
    serve(token, record, sys.executable, "-m", "bentoml", "serve", "serving.service:DpserveService")


if __name__ == "__main__":
    main()
