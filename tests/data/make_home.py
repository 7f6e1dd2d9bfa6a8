"""Make the home that `home-0.3.0.tar.xz` beside it holds, with the code of version 0.3.0.

    PYTHONPATH=.:tests/helpers python tests/data/make_home.py WORK

WORK is a new folder. It ends with `home/` (keys, ledger, models, packed rows) and the rows that were registered, as
`people.csv` and so on, and is packed as `WORK.tar.xz` without logs and locks. A later version adds a file of its own
beside it, and never changes this one. The ledger holds nearly every kind of entry that the commands write.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

WORK = Path(sys.argv[1]).resolve()
HOME = WORK / "home"
LEFT_OUT = ("home/logs/", "home/run/", "xdg/")
SCHEMA = """\
target: {name: sick, classes: ["no", "yes"]}
records: 300
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  smokes: {type: boolean}
  town: {type: categorical, values: [north, south, west]}
"""
VISITS = """\
target: {name: cost, range: [0, 100]}
records: 120
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  town: {type: categorical, values: [north, south, west]}
"""


def dpserve(*arguments: str) -> str:
    """Run one command; return what it prints."""
    start = "import sys; from serving.cli.app import main; sys.argv[0] = 'dpserve'; sys.exit(main())"
    environment = {**os.environ, "DPSERVE_HOME": str(HOME), "NO_COLOR": "1", "DPSERVE_PRINCIPAL": "cli:ana"}
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments], cwd=WORK, env=environment, capture_output=True, text=True
    )
    print("$ dpserve", *arguments, f"-> {done.returncode}", flush=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def people(count: int, seed: int) -> list[dict[str, object]]:
    """Draw rows of made-up people."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        age, smokes = round(draw.uniform(0, 100), 1), draw.choice(["true", "false"])
        sick = "yes" if age / 100 + 0.4 * (smokes == "true") + draw.gauss(0, 0.2) > 0.7 else "no"
        row = {"person": f"p{seed}-{number}", "age": age, "smokes": smokes, "town": draw.choice(["north", "south"])}
        rows.append({**row, "sick": sick, "cost": round(min(99.0, age * draw.random()), 2)})
    return rows


def write(name: str, rows: list[dict[str, object]], *columns: str) -> str:
    """Write some columns of the rows as a CSV file; return its name."""
    with (WORK / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return name


def register() -> None:
    """Register a dataset of persons of whom some are kept aside, another of the same people, one of records, one that
    grows.
    """
    (WORK / "people.yaml").write_text(SCHEMA)
    (WORK / "visits.yaml").write_text(VISITS)
    write("people.csv", people(300, 1), "person", "age", "smokes", "town", "sick")
    write("again.csv", people(150, 1) + people(150, 2), "person", "age", "smokes", "town", "sick")
    write("fixed.csv", people(300, 3), "age", "smokes", "town", "sick")
    for block in (1, 2, 3):
        write(f"visits-{block}.csv", people(120, 10 + block), "person", "age", "town", "cost")
    of_people, of_visits = ("--schema", "people.yaml"), ("--schema", "visits.yaml")
    person, total = ("--unit", "person"), ("--epsilon", "20", "--delta", "1e-5")
    register = ("dataset", "register")
    dpserve(*register, "people", "--data", "people.csv", *of_people, *total, *person, "--holdout", "0.3")
    dpserve(*register, "again", "--data", "again.csv", *of_people, *person, "--family", "people")
    fixed = ("--unit", "record", "--relation", "replace-one")
    dpserve(*register, "fixed", "--data", "fixed.csv", *of_people, *total, *fixed)
    more = ("--contributions", "2", "--person-epsilon", "30", "--person-delta", "2e-5")
    dpserve(*register, "visits", "--data", "visits-1.csv", *of_visits, *total, *person, *more)


def release() -> None:
    """Train learners of each form, tune, evaluate, profile, edit, promote and revoke."""
    small = {
        "lazybb": "rounds=4",
        "lazybb-tree": "rounds=2",
        "ebm": "epochs=2",
        "forest": "trees=2",
        "bdpe": "rounds=2",
    }
    for learner, setting in small.items():
        dpserve("train", "people", "--learner", learner, "--epsilon", "0.5", "--set", setting, "--model", learner)
    dpserve(
        "tune",
        "people",
        "--learner",
        "lazybb",
        "--epsilon",
        "1",
        "--grid",
        "rounds=2,4",
        "--runs",
        "2",
        "--model",
        "tuned",
    )
    dpserve(
        "train",
        "people",
        "--epsilon",
        "0.5",
        "--learner",
        "ebm",
        "--set",
        "epochs=2",
        "--model",
        "ebm",
        "--evaluate",
        "0.25",
        "--promote",
    )
    dpserve("evaluate", "lazybb", "--dataset", "people", "--epsilon", "0.25")
    dpserve("profile", "people", "--epsilon", "0.2")
    dpserve(
        "model",
        "edit",
        "ebm",
        "--feature",
        "age",
        "--monotone",
        "increasing",
        "--why",
        "risk grows with age",
        "--promote",
    )
    dpserve("train", "visits", "--learner", "ebm", "--epsilon", "0.3", "--set", "epochs=2", "--model", "cost")
    dpserve("train", "fixed", "--learner", "lazybb", "--epsilon", "0.3", "--set", "rounds=2", "--model", "fixed")


def grow() -> None:
    """Append two blocks, train on windows, and delete the oldest block's rows."""
    for block in (2, 3):
        dpserve("dataset", "append", "visits", "--records", "120", "--data", f"visits-{block}.csv")
    dpserve(
        "train",
        "visits",
        "--learner",
        "ebm",
        "--epsilon",
        "0.3",
        "--set",
        "epochs=2",
        "--model",
        "cost",
        "--blocks",
        "last:2",
    )
    dpserve("profile", "visits", "--epsilon", "0.2", "--blocks", "all")
    dpserve("dataset", "delete", "visits", "--upto", "1", "--reason", "kept for one year")


def govern() -> None:
    """Set quotas, totals, grants, tokens, a schedule, and new keys; revoke one of each."""
    dpserve("dataset", "budget", "people", "--epsilon", "25", "--reason", "decision 1")
    dpserve("dataset", "quota", "people", "--analyst", "token:shop", "--share", "0.25", "--reason", "one of four")
    dpserve("token", "create", "--name", "shop", "--scope", "predict", "--scope", "train", "--dataset", "people")
    dpserve("token", "create", "--name", "book", "--principal", "team-a")
    dpserve("token", "create", "--name", "gone", "--scope", "audit")
    dpserve("token", "revoke", "--name", "gone")
    dpserve("grant", "add", "--principal", "team-a", "--scope", "train", "--dataset", "people")
    grant = json.loads(dpserve("grant", "add", "--principal", "team-b", "--scope", "audit", "--json"))
    dpserve("grant", "revoke", str(grant["grants"][0]["grant"]), "--reason", "the audit is over")
    dpserve(
        "schedule",
        "add",
        "weekly",
        "--dataset",
        "visits",
        "--epsilon",
        "0.1",
        "--blocks",
        "last:2",
        "--start",
        "2027-01-01T00:00",
    )
    dpserve("model", "retire", "forest", "--why", "few trees")
    dpserve("key", "rotate", "--role", "issuer", "--reason", "yearly")
    dpserve("key", "rotate", "--role", "log", "--reason", "yearly")
    dpserve("key", "revoke", "bdpe", "--reason", "withdrawn")
    dpserve(
        "train",
        "people",
        "--learner",
        "lazybb",
        "--epsilon",
        "0.5",
        "--set",
        "rounds=4",
        "--model",
        "lazybb",
        "--promote",
    )


def queue() -> None:
    """Queue three jobs: one is cancelled, one is started by a process that dies, one waits for the next version."""
    from accountant.home import Home
    from training.jobs import job
    from training.requests import JobRequest

    home = Home.open({"DPSERVE_HOME": str(HOME)})
    asked = JobRequest("people", "lazybb", "0.25", parameters={"rounds": 2}, model="queued")
    jobs = [job.submit(home, asked, by="token:shop", key=f"key-{number}").seq for number in range(3)]
    dpserve("job", "cancel", str(jobs[0]))
    home.ledger.start(jobs[1], "another host:1:2:3", 60.0)
    home.ledger.burn(jobs[1], "the process died")
    home.ledger.log.database.close()


def ask_owners() -> None:
    """Open and close a campaign that twenty owners answer, and leave another one open."""
    import owners

    from accountant.home import Home
    from local.campaign import campaigns

    home = Home.open({"DPSERVE_HOME": str(HOME)})
    owners.asking(WORK, home, 20, name="survey")
    definition = campaigns.load(home, "survey").definition
    owners.put(home, "survey", owners.reports(definition, owners.people(20)))
    campaigns.close(home, "survey")
    owners.asking(WORK, home, 20, name="open")
    home.ledger.log.database.close()


def main() -> None:
    """Make everything."""
    WORK.mkdir()
    (WORK / "token.txt").write_text(dpserve("init"))
    for step in (register, release, grow, govern, queue, ask_owners):
        step()
    dpserve("ledger", "audit")
    dpserve("model", "list")
    with tarfile.open(f"{WORK}.tar.xz", "w:xz", preset=9) as packed:
        for path in sorted(WORK.rglob("*")):
            name = path.relative_to(WORK).as_posix()
            if path.is_file() and not name.startswith(LEFT_OUT) and not name.endswith(".lock"):
                packed.add(path, name, filter=_of_nobody)


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


main()
