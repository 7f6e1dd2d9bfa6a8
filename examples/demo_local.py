"""Owners who trust nobody, with the real command line and the real server: run by `make demo-local`.

    python examples/demo_local.py [--home DIR]

Three owners hold 9,000 rows of Adult each and never give them up. A campaign is opened, each owner's own program checks
it, charges its own ledger and sends one number below 64; the model is learnt from three numbers, certified and served.
Then the same three, and 300 smaller ones that are simulated, send shares to two aggregators, of whom one must be
honest.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from demo import DATA, dpserve, require, say, server
from sklearn.metrics import roc_auc_score

from local.campaign.asking import BYTES, read_pinned_keys
from local.campaign.asking import ask as ask_service
from local.owner import program
from local.owner.own_rows import open_table
from local.owner.reports import body_of, read_task
from local.owner.settings import read_settings

OWNERS, EACH, PUBLIC = 3, 9_000, 2_000
SMALLER, FEW = 300, 10  # owners beside the three, and their rows
SETTINGS = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"

[question]
target = "income"
classes = ["<=50K", ">50K"]
features = {features}

[policy]
total_epsilon = "8"
largest_epsilon = "6"
learners = ["local-linear", "shared-additive"]
total_delta = "0.000001"
largest_delta = "0.000001"
aggregators = ["{aggregator}"]

[ranges]
age = [17, 90]
"""


def made_aggregators(home: Path, url: str) -> tuple[list[Path], str]:
    """Two folders as two parties would make them, and the fingerprint of the first, whom the owners trust."""
    folders, found = [home / "office", home / "university"], []
    for folder in folders:
        found.append(
            json.loads(dpserve("aggregator", "init", str(folder), "--name", folder.name, "--url", url, "--json"))
        )
        text = (
            (folder / "aggregator.toml")
            .read_text()
            .replace('"1"', '"2"')
            .replace("trust.json", str(home / "trust.json"))
        )
        (folder / "aggregator.toml").write_text(text)
    return folders, found[0]["fingerprint"]


def shared(home: Path, url: str, folders: list[Path], rows: pa.Table) -> None:
    """The same question to two aggregators: no public rows, and nobody trusted alone."""
    say("Two aggregators, one of them honest: the same owners, and 300 smaller ones, send shares")
    count, listed = str(OWNERS + SMALLER), home / "shares.txt"
    schema = str(DATA / "adult.schema.yaml")
    budget = ["--epsilon", "2", "--delta", "0.000001", "--owners", count]
    dpserve("campaign", "population", "crowd", "--schema", schema, *budget, show=True)
    keys = [word for folder in folders for word in ("--aggregator", str(folder / "aggregator.json"))]
    asked = dpserve(
        "campaign", "open", "census", "--population", "crowd", *budget, *keys, "--invitations", str(listed), "--json"
    )
    tokens, invitations = json.loads(asked)["tokens"], listed.read_text().split()
    for number in range(OWNERS):
        own = str(home / f"owner-{number}" / "owner.toml")
        dpserve("owner", "answer", "census", "--invitation", invitations[number], "--settings", own, show=number == 0)
    place = read_settings(home / "owner-0" / "owner.toml")
    offer = ask_service(place, "GET", "/v1/campaigns/census")
    definition = program.verify_offer(offer, read_pinned_keys(place), "census").definition
    for number in range(SMALLER):
        pyarrow.csv.write_csv(rows.slice(number * FEW, FEW), home / "few.csv")
        task, few = read_task(definition, OWNERS + number), open_table(home / "few.csv")
        body = body_of(task, invitations[OWNERS + number], few)
        ask_service(place, "POST", "/v1/campaigns/census/shares", body, BYTES)
    dpserve("campaign", "close", "census", show=True)
    say("Each aggregator opens its shares, tells the other whose, adds the whole noise, and answers once")
    with ThreadPoolExecutor(2) as both:
        for folder, token in zip(folders, tokens, strict=True):
            both.submit(dpserve, "aggregator", "answer", "census", "--token", token, "--folder", str(folder), show=True)
    dpserve("campaign", "close", "census", show=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="where to keep the demo's files (default: a new folder)")
    home = parser.parse_args().home or Path(tempfile.mkdtemp(prefix="dpserve-demo-"))
    os.environ["DPSERVE_HOME"] = str(home)
    began = time.monotonic()

    say("The data user: a home, and 2,000 public rows without labels")
    dpserve("init")
    rows = pq.read_table(DATA / "adult_train.parquet")
    public, invitations = home / "public.csv", home / "invitations.txt"
    pyarrow.csv.write_csv(rows.slice(0, PUBLIC).drop_columns(["income"]), public)
    public_columns = [name for name in rows.column_names if name != "income"]
    say("A population of three owners, and what all campaigns together may cost one of them")
    schema = str(DATA / "adult.schema.yaml")
    dpserve(
        "campaign", "population", "offices", "--schema", schema, "--owners", str(OWNERS), "--epsilon", "6", show=True
    )
    asked = ["campaign", "open", "survey", "--population", "offices", "--epsilon", "6", "--owners", str(OWNERS)]
    noisy = "--although-noise"  # forecasts are of owners of one row each, and these three have thousands
    dpserve(*asked, noisy, "--public-rows", str(public), "--invitations", str(invitations), show=True)
    token = json.loads(dpserve("token", "create", "--scope", "predict", "--name", "demo", "--json"))["token"]
    with server(token) as ask:
        folders, trusted = made_aggregators(home, ask.url)
        for number, invitation in enumerate(invitations.read_text().split()):
            say(f"Owner {number}: checks the campaign, charges its own ledger, sends one number")
            own = home / f"owner-{number}"
            own.mkdir()
            pyarrow.csv.write_csv(rows.slice(PUBLIC + number * EACH, EACH), own / "rows.csv")
            text = SETTINGS.format(
                url=ask.url, trust=home / "trust.json", aggregator=trusted, features=json.dumps(public_columns)
            )
            (own / "owner.toml").write_text(text)
            answer = ["owner", "answer", "survey", "--invitation", invitation, "--settings", str(own / "owner.toml")]
            dpserve(*answer, show=True)
        dpserve("owner", "show", "--settings", str(own / "owner.toml"), show=True)
        say("Closed, learnt, certified: from three numbers below 64")
        dpserve("campaign", "close", "survey", show=True)
        record = pq.read_table(DATA / "adult_test.parquet").slice(0, 1).to_pylist()[0]
        record.pop("income")
        deadline = time.monotonic() + 30
        status, found = ask("/predict", {"model": "survey", "records": [record]})
        while status == 404 and time.monotonic() < deadline:  # the server looks for new models twice a second
            time.sleep(0.2)
            status, found = ask("/predict", {"model": "survey", "records": [record]})
        require(status == 200, f"/predict answered {status}: {found}")
        print(f"  served: {found['predictions'][0]}, certificate {found['certificate']}")
        shared(home, ask.url, folders, rows.slice(PUBLIC + OWNERS * EACH))
    say("Anybody verifies both; the auditor checks the ledger")
    for model in ("survey", "census"):
        dpserve("verify", str(home / "models" / model / "1"), show=True)
    dpserve("ledger", "audit", show=True)
    truth = [label == ">50K" for label in pq.read_table(DATA / "adult_test.parquet")["income"].to_pylist()]
    for model, what in (("survey", "three random numbers"), ("census", "the sums of 303 owners, with noise")):
        out = home / f"{model}.parquet"
        dpserve("predict", model, "--data", str(DATA / "adult_test.parquet"), "--out", str(out))
        score = roc_auc_score(truth, pq.read_table(out)["p_>50K"].to_pylist())
        print(f"  {model}: AUROC on Adult's test file {score:.3f}, from {what}; .5 would be none at all")
    print(f"\nAll of it in {time.monotonic() - began:.0f} s. The demo's files stay in {home}")


if __name__ == "__main__":
    main()
