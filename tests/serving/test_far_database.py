"""How often each GET of REST and pages asks the ledger's database, in a home of a hundred datasets and fifty jobs:
where the database is far, each time costs what the way there takes. A list asks no oftener for a hundred lines than for
one.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from decimal import Decimal

import ledgers
import pytest
from faulty_wire import SilentWire
from in_process import MOST_SECONDS, Site
from pages_in_process import HTML
from postgres import server
from sqlalchemy import Engine, event, make_url

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger import block_appending, evaluations
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.job_kinds import Evaluation, Profile
from dpserve_verify.privacy.events import PureDp
from serving.app import DOORS
from serving.pages.all import PAGES
from serving.pages.home import error_page
from serving.process.tokens import new_token
from training.jobs import job
from training.requests import JobRequest

DATASETS, JOBS = 100, 50
MOST = 14, 5  # statements, and messages to a server, the end of the transaction among them
MORE = {
    "/ui/audit/ledger.zip": (14, 14),  # all of the ledger, a thousand entries in each message
    "/ui/datasets/{name}": (18, 5),
    # a price is waited for between its transactions, and looks at what was measured and counted
    "/ui/jobs/new": (34, 5),
    "/ui/jobs/price": (26, 3),
}
QUERY = {
    "/v1/ledger/proof": "?leaf=1&size=9",
    "/v1/ledger/consistency": "?from=3&to=9",
    "/v1/models/{name}/curve": "?feature=age",
    "/ui/models/{name}/compare": "?with=adult@1",
    "/ui/jobs/price": "?dataset=adult&learner=lazybb&epsilon=0.1",
    "/ui/jobs/new": "?dataset=adult&learner=lazybb&epsilon=0.1",
}
PARTS = {
    "{version}": "1", "{file}": "card.md", "{grant}": "0", "{draft}": "0", "{learner}": "lazybb",
    "{page:path}": "access", "{path:path}": "dpserve.css", "{entry}": "7", "{name}": "adult",
}  # fmt: skip


def fill(home: Home) -> None:
    """Datasets of several kinds, one of them grown, jobs of several people in every state, evaluations and profiles, a
    model, tokens, grants.
    """
    ledger = home.ledger
    adult = ledger.dataset("adult").registration
    job.train(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 8}), by="test")
    for number in range(DATASETS - 1):
        name, digest = f"site-{number}", ledgers.hexes(str(number))
        more = {"holdout": Decimal("0.2")} if number % 10 == 5 else {}
        if number % 10 == 4:
            more = {"budget": None, "families": (f"site-{number - 1}",)}
        ledger.register(replace(adult, name=name, commitment=digest, **more))
        shutil.copytree(home.datasets / adult.commitment, home.datasets / digest)
        if number % 10 == 0:
            ledger.set_quota(name, "ana", Decimal("0.9"), "a test", "steward")
    for number in range(JOBS - 1):
        asked = ledgers.request(f"site-{number}" if number % 2 else "adult", "0.02")
        made = ledger.reserve(asked, Decimal("0.02"), ledgers.plan(count=1), by=("ana", "bob")[number % 2])
        ledgers.advance(ledger, made.seq, ledgers.STATES[number % len(ledgers.STATES)])
        new_token(home, f"t{number}", ["audit"])
        grants.add(ledger, [Grant(f"p{number}", "train", "dataset", "adult")], "test")
    measured = [job.issued for job in ledger.jobs() if job.issued and job.dataset == "site-1"]
    kinds = [*(Evaluation(entry) for entry in measured), Profile()]
    for number in range(5):
        for kind in kinds:
            model = "" if isinstance(kind, Profile) else "adult"
            about = replace(ledgers.request("site-1", "0.01", "0"), kind=kind, model=model)
            asked = replace(about, parameters={"number": number})
            seq = ledger.reserve(asked, Decimal("0.01"), ledgers.plan(PureDp(Decimal("0.01")), 1), by="ana").seq
            ledgers.advance(ledger, seq, "committed")
            keyid = home.keys.signer("issuer").public_key.keyid
            evaluations.enter(ledger.log, seq, ledgers.hexes(f"statement {seq}"), keyid)
    for number in range(2, 6):
        block_appending.append(ledger.log, NewBlock("site-2", ledgers.hexes(f"block {number}"), 10, "steward"), number)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def site(request, tmp_path_factory):
    """The doors over such a home; `wire`: the way to its database, where that is a server."""
    folder, wire = tmp_path_factory.mktemp("far") / "home", None
    if request.param == "sqlite":
        path = ledgers.copy(ledgers.prepared(), folder)
    else:
        path = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), folder)
    fill(Home.open(ledgers.place(path)))
    if request.param == "postgresql":
        wire = SilentWire(server().folder)
        (path / "database.url").write_text(wire.url(make_url((path / "database.url").read_text()).database))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ledgers.place(path).items():
            patch.setenv(name, value)
        found = Site(Home.open(ledgers.place(path)), (*DOORS, *PAGES))
        found.app.state.error_page = error_page
        found.secret, found.wire = found.token("all", "admin"), wire
        yield found
        found.home.ledger.log.database.close()


def address(door, job: int) -> str:
    path = door.path.replace("{job}", str(job))
    for part, value in PARTS.items():
        path = path.replace(part, value)
    return path + QUERY.get(door.path, "")


def asked(site, door, job: int) -> tuple[int, int]:
    """How many statements one GET sends, and how many messages that is to a server. It was asked for once before."""
    statements = []

    def note(*call):
        statements.append(call[2])

    named = {**HTML, "Cookie": f"dpserve={site.secret}"} if door.hidden else {"Authorization": f"Bearer {site.secret}"}
    site.ask("GET", address(door, job), named)
    if door.path == "/metrics" or time.monotonic() - site._looked > MOST_SECONDS / 2:
        site.look()  # what could not be asked a moment ago is not asked; and nobody looks while it is counted
    before = site.wire.messages if site.wire else 0
    event.listen(Engine, "before_cursor_execute", note)
    try:
        answer = site.ask("GET", address(door, job), named)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert answer.status_code < 500, answer.text
    return len(statements), site.wire.messages - before if site.wire else 0


def test_no_door_asks_for_each_line(site):
    """Every GET, but of streams, which end when their job does."""
    job = next(row.seq for row in site.home.ledger.jobs() if row.dataset == "adult")
    doors = [door for door in (*DOORS, *PAGES) if door.method == "GET" and door.media != "text/event-stream"]
    counts = {door.path: asked(site, door, job) for door in doors}
    print("\n".join(f"{each} {path}" for path, each in sorted(counts.items(), key=lambda pair: pair[1])))
    of = 0 if site.wire is None else 1  # what is asked ahead of a server is a statement, and no message
    assert {path: each for path, each in counts.items() if each[of] > MORE.get(path, MOST)[of]} == {}
