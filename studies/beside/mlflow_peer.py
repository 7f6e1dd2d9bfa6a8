"""MLflow beside the lines of docs/reference/claims.md, in an empty folder and an environment of its own."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

from studies.beside.trials import find_port, name_versions, note, note_absences, wait_for

MLFLOW = str(Path(sys.executable).with_name("mlflow"))


def try_runs() -> None:
    """Two runs that say what they spent; then the store says something else."""
    import mlflow
    from mlflow.exceptions import MlflowException

    ids = []
    for _ in range(2):
        with mlflow.start_run() as run:
            mlflow.log_param("epsilon", "5")
            ids.append(run.info.run_id)
    note("limit", 'mlflow.log_param("epsilon", 5), in two runs', "both are kept; nothing adds them up")
    try:
        mlflow.MlflowClient().log_param(ids[0], "epsilon", "0.1")
    except MlflowException as error:
        note("list", 'log_param("epsilon", .1) in a run that has one', str(error).splitlines()[0][:120])
    with sqlite3.connect("mlflow.db") as store:
        store.execute("UPDATE params SET value = '0.1' WHERE key = 'epsilon' AND run_uuid = ?", (ids[0],))
    store.close()
    says = mlflow.get_run(ids[0]).data.params["epsilon"]
    note("list", "UPDATE params in its database, then mlflow.get_run", f"epsilon {says}: not noticed")
    mlflow.delete_run(ids[1])
    left = [run.info.run_id for run in mlflow.search_runs(output_format="list")]
    note("list", "mlflow.delete_run, then search_runs", f"{len(left)} of 2 runs are listed")


def try_model() -> str:
    """A model is logged, changed on disk, and loaded; a metric is taken of rows that are given."""
    import mlflow
    import pandas as pd
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression

    x, y = make_classification(500, 5, random_state=0)
    frame = pd.DataFrame(x, columns=list("abcde"))
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(
            LogisticRegression().fit(frame, y), name="m", input_example=frame[:2], serialization_format="pickle"
        )
        done = mlflow.models.evaluate(logged.model_uri, frame.assign(y=y), targets="y", model_type="classifier")
    note("worth", "mlflow.models.evaluate(uri, frame, targets='y')", f"accuracy {done.metrics['accuracy_score']:.3f}")
    folder = Path(mlflow.artifacts.download_artifacts(logged.model_uri))
    before = mlflow.pyfunc.load_model(logged.model_uri).predict(frame)
    path = next(folder.glob("model.pkl"))
    path.write_bytes(pickle.dumps(LogisticRegression().fit(frame, 1 - y)))
    after = mlflow.pyfunc.load_model(str(folder)).predict(frame)
    note(
        "derived",
        "another model.pkl, then pyfunc.load_model",
        f"loads; {(before != after).sum()} of 500 answers differ",
    )
    return str(folder)


def try_server(folder: str) -> None:
    port = find_port()
    command = [MLFLOW, "models", "serve", "-m", folder, "--env-manager", "local", "-p", str(port), "-w", "1"]
    path = f"{Path(MLFLOW).parent}:{os.environ['PATH']}"  # it looks for uvicorn there
    environment = {**os.environ, "PATH": path}
    server = subprocess.Popen(command, stdout=sys.stderr, env=environment, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/ping")
        body = json.dumps({"inputs": [dict.fromkeys("abcde", 0.5)]}).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
        )
        note("serve", "mlflow models serve; POST /invocations", urllib.request.urlopen(asked).read().decode())
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def main() -> None:
    import mlflow

    name_versions("mlflow")
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    try_runs()
    try_server(try_model())
    shown = subprocess.run([MLFLOW, "mcp", "run", "--help"], capture_output=True, text=True)
    note("agents", "mlflow mcp run --help", " ".join((shown.stdout or shown.stderr).split())[:200])
    for line, words, pattern in (
        ("sso", ("server", "--help"), r"--app-name \[[\w-]+\]"),
        ("export", ("models", "--help"), r"(?m)^  (?:build-docker|generate-dockerfile|serve)\b"),
    ):
        shown = subprocess.run([MLFLOW, *words], capture_output=True, text=True)
        said = ", ".join(each.strip() for each in re.findall(pattern, shown.stdout))
        note(line, " ".join(["mlflow", *words]), said)
    note_absences(
        "mlflow",
        {
            "price": "differential(ly)? priva",
            "attack": "canary|canaries|membership inference",
            "cover": "conformal",
            "person": "data subject|article 15",
            "again": "transparency log|merkle",
            "elsewhere": "transparency log|merkle",
            "grpc": "ModelInfer",
        },
    )


if __name__ == "__main__":
    main()
