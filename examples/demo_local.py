"""Owners who trust nobody, with the real command line and the real server: run by `make demo-local`.

    python examples/demo_local.py [--home DIR]

Three owners hold 9,000 rows of Adult each and never give them up. A campaign is opened, each owner's own program checks
it, charges its own ledger and sends one number below 64; the model is learnt from three numbers, certified and served.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
from demo import DATA, dpserve, require, say, server
from sklearn.metrics import roc_auc_score

OWNERS, EACH, PUBLIC = 3, 9_000, 2_000
SETTINGS = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"

[policy]
total_epsilon = "6"
largest_epsilon = "6"
learners = ["local-linear"]

[ranges]
age = [17, 90]
"""


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
    say("A population of three owners, and what all campaigns together may cost one of them")
    schema = str(DATA / "adult.schema.yaml")
    dpserve(
        "campaign", "population", "offices", "--schema", schema, "--owners", str(OWNERS), "--epsilon", "6", show=True
    )
    asked = ["campaign", "open", "survey", "--population", "offices", "--epsilon", "6", "--owners", str(OWNERS)]
    dpserve(*asked, "--public-rows", str(public), "--invitations", str(invitations), show=True)
    token = json.loads(dpserve("token", "create", "--scope", "predict", "--name", "demo", "--json"))["token"]
    with server(token) as ask:
        for number, invitation in enumerate(invitations.read_text().split()):
            say(f"Owner {number}: checks the campaign, charges its own ledger, sends one number")
            own = home / f"owner-{number}"
            own.mkdir()
            pyarrow.csv.write_csv(rows.slice(PUBLIC + number * EACH, EACH), own / "rows.csv")
            text = SETTINGS.format(url=ask.url, trust=home / "trust.json")
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
    say("Anybody verifies it; the auditor checks the ledger")
    dpserve("verify", str(home / "models" / "survey" / "1"), show=True)
    dpserve("ledger", "audit", show=True)
    out = home / "predictions.parquet"
    dpserve("predict", "survey", "--data", str(DATA / "adult_test.parquet"), "--out", str(out))
    truth = [label == ">50K" for label in pq.read_table(DATA / "adult_test.parquet")["income"].to_pylist()]
    score = roc_auc_score(truth, pq.read_table(out)["p_>50K"].to_pylist())
    print(f"  AUROC on Adult's test file: {score:.3f}, from three random numbers; .5 would be none at all")
    print(f"\nAll of it in {time.monotonic() - began:.0f} s. The demo's files stay in {home}")


if __name__ == "__main__":
    main()
