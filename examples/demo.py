"""The whole story on real rows, with the real command line and the real server: run by `make demo`.

    python examples/demo.py [--home DIR]

Registers Adult, trains LazyBB at epsilon 0.5, shows the budget before and after, the certificate, held-out accuracy
beside two baselines, serves and asks for predictions, submits a job that does not fit, audits the ledger, and
verifies with openssl.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "examples" / "data"
DPSERVE = [sys.executable, "-m", "serving.cli"]
BENTOML = [sys.executable, "-m", "bentoml"]
ROWS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--home", type=Path, help="where to keep the demo's keys, ledger and models (default: a new folder)"
    )
    home = parser.parse_args().home or Path(tempfile.mkdtemp(prefix="dpserve-demo-"))
    os.environ["DPSERVE_HOME"] = str(home)
    began = time.monotonic()

    say("A new home for keys, ledger and models")
    dpserve("init")
    say("The steward registers Adult: 32,561 real people, at most epsilon 3 at delta 1e-6, permanently")
    register = ["dataset", "register", "adult", "--data", str(DATA / "adult_train.parquet")]
    dpserve(*register, "--schema", str(DATA / "adult.schema.yaml"), "--epsilon", "3", "--delta", "1e-6")
    budget("before")
    say("The data scientist trains LazyBB at epsilon 0.5")
    dpserve("train", "adult", "--learner", "lazybb", "--epsilon", "0.5", show=True)
    budget("after")
    certificate(home)
    held_out(home)
    say("A job beyond the budget is refused")
    dpserve("train", "adult", "--learner", "lazybb", "--epsilon", "5", show=True, expect=3)
    scopes = ["--scope", "predict", "--scope", "train"]
    token = json.loads(dpserve("token", "create", *scopes, "--name", "demo", "--json"))["token"]
    with server(token) as ask:
        say("The real server answers real rows")
        answered = predictions(ask)
        say("Over REST, too, a job beyond the budget is refused")
        asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "5", "idempotency_key": "demo"}
        status, answer = ask("/v1/jobs", asked)
        for _ in range(20):  # 504: too busy to say so in time; under its key it may be asked again
            status, answer = (status, answer) if status != 504 else ask("/v1/jobs", asked)
        print(f"  HTTP {status}: {answer['error']['message']}")
        require(status == 403, "the refusal must be 403")
    with server(token, "bentoml", "serving.service:DpserveService") as ask:
        say("Under BentoML, the same service answers the same")
        require(predictions(ask) == answered, "both servers must say the same")
    say("The auditor checks the ledger")
    dpserve("ledger", "audit", show=True)
    say("... and the certificate, with openssl")
    openssl(home)
    print(f"\nAll of it in {time.monotonic() - began:.0f} s. The demo's home stays in {home}")


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def require(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"demo: {what}")


def dpserve(*arguments: str, show: bool = False, expect: int = 0) -> str:
    """Run the command line; its standard output. Ends the demo when the exit code is not the expected one."""
    print("  $ dpserve " + " ".join(arguments), flush=True)
    done = subprocess.run([*DPSERVE, *arguments], capture_output=True, text=True)
    if show or done.returncode != expect:
        print("".join(f"  {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="", flush=True)
    require(done.returncode == expect, f"exit code {done.returncode}, expected {expect}")
    return done.stdout


def budget(when: str) -> None:
    found = json.loads(dpserve("dataset", "show", "adult", "--json"))["budget"]
    print(f"  {when}: {found['left']['words']}")


def certificate(home: Path) -> None:
    say("The certificate that was signed for the model")
    envelope = json.loads((bundle(home) / "model.onnx.dsse.json").read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    claim = statement["predicate"]["claim"]
    print(f"  subject sha256 {statement['subject'][0]['digest']['sha256']}")
    print(f"  epsilon {claim['epsilon']}, delta {claim['delta']}, {claim['relation']}, unit: {claim['unit']['name']}")
    for run in statement["predicate"]["mechanisms"]:
        print(f"  {run['count']:>4} x {run['mechanism']} at epsilon {run['event'].get('epsilon')}: {run['purpose']}")
    print(f"  reserved as ledger entry {statement['predicate']['ledger']['reservation']}")
    print(f"  signed by {envelope['signatures'][0]['keyid']}")


def held_out(home: Path) -> None:
    say("Held-out accuracy, on Adult's own test file, beside two baselines that protect nobody")
    out = home / "predictions.parquet"
    dpserve("predict", "adult", "--data", str(DATA / "adult_test.parquet"), "--out", str(out))
    import pyarrow.parquet as pq
    from sklearn.metrics import accuracy_score, roc_auc_score

    train, test = pq.read_table(DATA / "adult_train.parquet"), pq.read_table(DATA / "adult_test.parquet")
    found, truth = pq.read_table(out), test["income"].to_pylist()
    positive = [label == ">50K" for label in truth]
    private = accuracy_score(truth, found["label"].to_pylist()), roc_auc_score(positive, found["p_>50K"].to_pylist())
    print(f"  {'':<34}accuracy  AUROC")
    for name, figures in (
        ("most frequent class", (1 - sum(positive) / len(positive), 0.5)),
        ("LazyBB, epsilon 0.5 (ours)", private),
        ("gradient boosting, not private", not_private(train, test)),
    ):
        print(f"  {name:<34}{figures[0]:.4f}    {figures[1]:.4f}")
    require(private[1] > 0.88, "the private model's AUROC is far below what it should be")


def not_private(train: Any, test: Any) -> tuple[float, float]:
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import accuracy_score, roc_auc_score

    def numbers(table: Any) -> Any:
        columns = [table[name] for name in train.column_names if name != "income"]
        return np.column_stack(
            [c.to_numpy() if str(c.type) != "string" else code(c, name) for c, name in zip(columns, names, strict=True)]
        )

    def code(column: Any, name: str) -> Any:
        known = {value: index for index, value in enumerate(sorted(set(train[name].to_pylist())))}
        return np.array([known.get(value, -1) for value in column.to_pylist()], dtype=float)

    names = [name for name in train.column_names if name != "income"]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(numbers(train), train["income"].to_pylist())
    truth = test["income"].to_pylist()
    scores = model.predict_proba(numbers(test))[:, 1]
    return accuracy_score(truth, model.predict(numbers(test))), roc_auc_score(
        [label == ">50K" for label in truth], scores
    )


@contextmanager
def server(token: str, program: str = "dpserve", *what: str) -> Iterator[Any]:
    """A real server on a free port; yields ask(path, body) -> (status, answer)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["serve", *what, "--port", str(port)]
    say("Starting the server: " + " ".join([program, *command]))
    start = {"dpserve": DPSERVE, "bentoml": BENTOML}[program]
    environment = {**os.environ, "DPSERVE_WORKERS": "1"}
    with Path(os.environ["DPSERVE_HOME"], "logs", "demo-server.log").open("wb") as log:
        running = subprocess.Popen([*start, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)

    def ask(path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", None if body is None else json.dumps(body).encode()
        )
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    ask.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
    try:
        wait_ready(running, port)
        yield ask
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(120)
        print("  the server is stopped")


def wait_ready(running: subprocess.Popen[bytes], port: int) -> None:
    began = time.monotonic()
    while time.monotonic() - began < 300:
        require(running.poll() is None, "the server ended; see logs/demo-server.log in the home")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                print(f"  ready after {time.monotonic() - began:.1f} s")
                return
        except OSError:
            time.sleep(0.2)
    require(False, "the server was not ready within 300 s")


def predictions(ask: Any) -> Any:
    """Ask for real rows, print them beside the truth, and return what was predicted."""
    import pyarrow.parquet as pq

    rows = pq.read_table(DATA / "adult_test.parquet").slice(0, ROWS).to_pylist()
    truth = [row.pop("income") for row in rows]
    status, answer = ask("/predict", {"model": "adult", "records": rows})
    require(status == 200, f"/predict answered {status}: {answer}")
    for row, actual, label, chances in zip(rows, truth, answer["predictions"], answer["probabilities"], strict=True):
        who = f"age {row['age']}, {row['education']}, {row['marital_status']}"
        print(f"  {who}: {label} ({max(chances):.2f}); in truth {actual}")
    return answer["predictions"], answer["probabilities"]


def bundle(home: Path) -> Path:
    return home / "models" / "adult" / "1"


def openssl(home: Path) -> None:
    """The signature again, by a tool that is not ours, over the bytes that DSSE says are signed."""
    if shutil.which("openssl") is None:
        print("  openssl is not installed here, so this one check was not made")
        return
    envelope = json.loads((bundle(home) / "model.onnx.dsse.json").read_text())
    kind, payload = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
    place = home / "openssl"
    place.mkdir(exist_ok=True)
    (place / "signed").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (place / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    (place / "issuer.pem").write_text(json.loads((home / "trust.json").read_text())["issuers"][0]["pem"])
    command = "openssl pkeyutl -verify -pubin -inkey issuer.pem -rawin -in signed -sigfile signature"
    print(f"  $ {command}")
    done = subprocess.run(command.split(), cwd=place, capture_output=True, text=True)
    print(f"  {done.stdout.strip()}{done.stderr.strip()}")
    require(done.returncode == 0, "openssl does not accept the certificate's signature")


if __name__ == "__main__":
    main()
