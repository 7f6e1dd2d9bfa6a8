"""Lomas beside the lines of docs/reference/claims.md: its server, with its YAML administration database. MongoDB, which
its documentation asks for, was not there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from studies.beside.trials import find_port, name_versions, note, note_absences, wait_for

ROWS = 2_000
CONFIG = {
    "develop_mode": True,
    "submit_limit": 0,
    "server": {
        "host_ip": "127.0.0.1",
        "host_port": 0,
        "log_level": "warning",
        "reload": False,
        "workers": 1,
        "time_attack": {"method": "jitter", "magnitude": 0.1},
    },
    "admin_database": {"db_type": "yaml", "db_file": "admin.yaml"},
    "dp_libraries": {"opendp": {"contrib": True, "floating_point": True, "honest_but_curious": False}},
}
METADATA = {
    "max_ids": 1,
    "row_privacy": True,
    "censor_dims": False,
    "columns": {
        "age": {"type": "float", "precision": 64, "lower": 0.0, "upper": 100.0},
        "score": {"type": "float", "precision": 64, "lower": 0.0, "upper": 10.0},
        "high": {"type": "string", "cardinality": 2, "categories": ["no", "yes"]},
    },
    "rows": ROWS,
}


def write_home(port: int, ada_spent: float = 0) -> None:
    draw = np.random.default_rng(0)
    age, score = draw.uniform(0, 100, ROWS), draw.uniform(0, 10, ROWS)
    high = np.where(age / 10 + score > 10, "yes", "no")
    rows = "".join(f"{a},{b},{c}\n" for a, b, c in zip(age, score, high, strict=True))
    Path("people.csv").write_text(f"age,score,high\n{rows}")
    Path("metadata.yaml").write_text(yaml.safe_dump(METADATA))
    place = {"database_type": "PATH_DB", "path": "people.csv"}
    about = {"database_type": "PATH_DB", "path": "metadata.yaml"}
    budget = {
        "dataset_name": "PEOPLE",
        "initial_epsilon": 2,
        "initial_delta": 0.001,
        "total_spent_delta": 0,
    }
    users = [
        {"user_name": name, "may_query": True, "datasets_list": [{**budget, "total_spent_epsilon": spent}]}
        for name, spent in (("Ada", ada_spent), ("Ben", 0))
    ]
    datasets = [{"dataset_name": "PEOPLE", "dataset_access": place, "metadata_access": about}]
    Path("admin.yaml").write_text(yaml.safe_dump({"datasets": datasets, "users": users, "queries": []}))
    CONFIG["server"]["host_port"] = str(port)
    Path("config.yaml").write_text(yaml.safe_dump({"runtime_args": {"settings": CONFIG}}))
    Path("secrets.yaml").write_text(yaml.safe_dump({"private_db_credentials": []}))


def ask(url: str, user: str, path: str, **body: Any) -> Any:
    """Ask the server as its client does: JSON, with a person's name in a header; return its answer, or its refusal."""
    data = json.dumps({"dataset_name": "PEOPLE", **body}).encode()
    asked = urllib.request.Request(f"{url}/{path}", data, {"Content-Type": "application/json", "user-name": user})
    try:
        with urllib.request.urlopen(asked, timeout=300) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read().decode()}"


def try_limit(url: str, name: str) -> float:
    """Counts by SQL: their price, and what a person with a budget of 2 may spend; return the epsilon spent."""
    count = {"query_str": "SELECT COUNT(*) AS rows FROM df", "delta": 1e-5, "mechanisms": {}}
    price = ask(url, name, "estimate_smartnoise_sql_cost", **count, epsilon=0.5)
    note("sso", "every request: a name in the header user-name, and no secret", "is answered")
    note("price", f"POST /estimate_smartnoise_sql_cost by {name}, epsilon .5", price)
    for _ in range(2):
        said = ask(url, name, "smartnoise_sql_query", **count, epsilon=1.5, postprocess=True)
        note("limit", f"POST /smartnoise_sql_query by {name}, epsilon 1.5 of 2", said)
    spent = ask(url, name, "get_total_spent_budget")
    note("limit", f"POST /get_total_spent_budget by {name}", spent)
    return float(spent["total_spent_epsilon"])


def try_model(url: str) -> None:
    """A logistic regression of diffprivlib: its price, and what comes with it."""
    import diffprivlib.models
    from diffprivlib_logger import serialise_pipeline
    from sklearn.pipeline import Pipeline

    learner = diffprivlib.models.LogisticRegression(epsilon=0.2, data_norm=101.0)
    body = {
        "diffprivlib_json": serialise_pipeline(Pipeline([("lr", learner)])),
        "feature_columns": ["age", "score"],
        "target_columns": ["high"],
        "test_size": 0.2,
        "test_train_split_seed": 1,
        "imputer_strategy": "drop",
    }
    price = ask(url, "Ben", "estimate_diffprivlib_cost", **body)
    note("price", "POST /estimate_diffprivlib_cost: the server fits the rows to know the price", price)
    answers = [ask(url, "Ben", "diffprivlib_query", **body) for _ in range(2)]
    if isinstance(answers[0], dict):
        model = pickle.loads(base64.b64decode(answers[0]["result"]["model"]))
        note("export", "the model of POST /diffprivlib_query", f"a pickle of {type(model).__name__}")
    for answer in answers:
        shown = {**answer["result"], "model": "..."} if isinstance(answer, dict) else answer
        note("worth", "POST /diffprivlib_query, epsilon .2: its score on rows kept apart, without noise", shown)
    note(
        "list",
        "POST /get_previous_queries by Ben",
        f"{len(ask(url, 'Ben', 'get_previous_queries')['previous_queries'])} queries",
    )


@contextlib.contextmanager
def serving(port: int) -> Iterator[str]:
    environment = {**os.environ, "LOMAS_CONFIG_PATH": "config.yaml", "LOMAS_SECRETS_PATH": "secrets.yaml"}
    command = [sys.executable, "-m", "lomas_server.uvicorn_serve"]
    server = subprocess.Popen(command, env=environment, stdout=sys.stderr)
    try:
        wait_for(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()  # else it waits for minutes for a collector of traces
        server.wait()


def main() -> None:
    name_versions("lomas-server", "lomas-client", "diffprivlib", "smartnoise-sql")
    port = find_port()
    write_home(port)
    client = subprocess.run([sys.executable, "-c", "import lomas_client.client"], capture_output=True, text=True)
    said = client.stderr.splitlines()[-1] if client.returncode else "imports"
    note("serve", "import lomas_client.client (where it fails, REST is asked without it)", said)
    with serving(port) as url:
        spent = try_limit(url, "Ada")
    write_home(port, spent)  # as its database had it; the YAML one drops the other users when one has asked
    with serving(port) as url:
        try_limit(url, "Ben")
        try_model(url)
    write_home(port, 0)
    with serving(port) as url:
        left = ask(url, "Ada", "get_remaining_budget")
    note("list", "what Ada spent set to 0 in its database, then POST /get_remaining_budget", f"{left}: not noticed")
    note_absences(
        "lomas_server",
        {
            "derived": "certificate|in-toto|dsse",
            "attack": "canary|canaries|membership inference",
            "cover": "conformal",
            "person": "data subject|article 15",
            "again": "transparency log|merkle",
            "elsewhere": "transparency log|merkle",
            "agents": "model context protocol|\\bmcp\\b",
            "grpc": "grpc",
        },
    )


if __name__ == "__main__":
    main()
