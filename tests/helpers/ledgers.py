"""Ledgers to test with: small ones with jobs in every state, and a home with models trained on real rows."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

from accountant.access import tokens
from accountant.home import Home
from accountant.ledger.families.records import Job, Registration, Request, Unit
from accountant.ledger.ledger import Ledger
from accountant.log.judge import Sitting
from accountant.store import store, tables
from dpserve_verify.formats import canonical, merkle
from dpserve_verify.log import notes
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, Plan, PureDp, Release, RepeatAndSelect

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "data"
TOTAL = Budget.of("3", "0.000001")
SMALL_ROWS = 400

MECHANISMS = {  # and norms, that an event is the price of
    BoundedRange: ("exponential", "range"),
    PureDp: ("permute-and-flip", "range"),
    Gaussian: ("discrete-gaussian", "l2"),
    RepeatAndSelect: ("private-selection", "run"),
}


@contextmanager
def named(given: Path, path: Path, monkeypatch: Any) -> Iterator[Home]:
    """A copy of a given home at this path, which is the one that the environment of a test names."""
    opened = Home.open(place(copy(given, path)))
    monkeypatch.setenv("DPSERVE_HOME", str(opened.path))
    yield opened
    opened.ledger.log.database.close()


def place(folder: Path) -> dict[str, str]:
    """The environment that names a home; its database is elsewhere where the home has a file that says so."""
    elsewhere = folder / "database.url"
    return {"DPSERVE_HOME": str(folder)} | ({"DPSERVE_LEDGER_URL": elsewhere.read_text()} if elsewhere.exists() else {})


def hexes(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def registration(name: str = "adult", budget: Budget = TOTAL, **changes) -> Registration:
    fields = {"relation": Relation.ADD_REMOVE, "unit": Unit(), "records": 1000, "schema": hexes("schema")}
    return Registration(name, budget=budget, **({"commitment": hexes(name)} | fields | changes))


def request(dataset: str = "adult", epsilon: str = "0.5", delta: str = "0.000001", **parameters) -> Request:
    return Request(dataset, "lazybb", Budget.of(epsilon, delta), {"rounds": 25, **parameters}, dataset)


def plan(event: Event = BoundedRange(Decimal("0.02")), count: int = 25) -> Plan:  # noqa: B008 frozen
    return Plan(((Release("select a 1-rule by weighted agreement", *MECHANISMS[type(event)], 1, event), count),))


def reserve(ledger: Ledger, asked: Request | None = None, what: Plan | None = None, **options) -> Job:
    """Reserve a plan that asks for at least what it claims."""
    asked, what = asked or request(), what or plan()
    options = {"by": "test"} | options
    return ledger.reserve(asked, Decimal("0.02"), what, **options)


def advance(ledger: Ledger, seq: int, state: str) -> None:
    """Bring a reserved job to `state` by the legal way."""
    if state in ("started", "committed", "burned", "issued"):
        ledger.start(seq, "owner:1:1", 60.0)
    if state in ("committed", "issued"):
        ledger.commit(seq, hexes(f"released {seq}"))
    if state == "burned":
        ledger.burn(seq, "failed")
    if state == "released":
        ledger.release(seq)
    if state == "issued":
        ledger.issue(seq, hexes(f"statement {seq}"), hexes(f"model {seq}"))


STATES = ("reserved", "started", "committed", "burned", "released", "issued")


def fill(home: Home) -> Home:
    """Datasets, a job in every state, tokens, a quota, another total: every type of entry but those of keys."""
    ledger = home.ledger
    ledger.register(registration())
    ledger.register(registration("pure", Budget.of("1")))
    for number, state in enumerate(STATES):
        advance(ledger, reserve(ledger, key=f"key {number}").seq, state)
    tokens.create(ledger, "ci", ["train", "predict"], hexes("token"))
    tokens.create(ledger, "auditor", ["audit"], hexes("other token"))
    tokens.revoke(ledger, "ci")
    advance(ledger, reserve(ledger, request("pure", "0.5", "0"), plan(PureDp(Decimal("0.05")), 10)).seq, "committed")
    ledger.register(registration("copy", None, families=("adult",)))
    ledger.set_quota("copy", "test", Decimal("0.9"), "a test", "steward")
    ledger.change_budget("pure", Decimal("1.5"), "a test", "steward")
    advance(ledger, reserve(ledger, request("copy")).seq, "started")
    ledger.log.database.close()
    return home


@lru_cache
def scratch() -> Path:
    scratch = Path(tempfile.mkdtemp(prefix="dpserve-ledgers-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch


@lru_cache
def filled() -> Path:
    """A home with `fill`, to copy."""
    fill(Home.init(place(scratch() / "filled")))
    return scratch() / "filled"


def copy(home: Path, to: Path) -> Path:
    shutil.copytree(home, to)
    return to


def adult_schema(records: int) -> str:
    """Say the schema of the census people for so many rows of theirs."""
    return (EXAMPLES / "adult.schema.yaml").read_text().replace("records: 32561", f"records: {records}")


@lru_cache
def prepared() -> Path:
    """A home with real rows registered and nothing spent, to copy."""
    import pyarrow.parquet as pq

    files = scratch() / "files"
    files.mkdir()
    pq.write_table(pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, SMALL_ROWS), files / "rows.parquet")
    (files / "schema.yaml").write_text(adult_schema(SMALL_ROWS))
    return _registered(scratch() / "prepared")


def _registered(folder: Path) -> Path:
    from training.datasets.datasets import register

    home, files = Home.init(place(folder)), scratch() / "files"
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)
    home.ledger.log.database.close()
    return home.path


@lru_cache
def prepared_on_postgresql() -> Path:
    """As `prepared`, with its ledger in PostgreSQL."""
    import postgres

    prepared()  # the files
    folder = scratch() / "prepared-on-postgresql"
    folder.mkdir()
    (folder / "database.url").write_text(postgres.server().fresh())
    return _registered(folder)


def copy_on_postgresql(home: Path, to: Path) -> Path:
    """A copy with a database of its own. Nobody may be connected to the first."""
    import postgres

    copied = copy(home, to)
    name = (home / "database.url").read_text().split("@/")[1].split("?")[0]
    (copied / "database.url").write_text(postgres.server().copy(name))
    return copied


_begun: dict[tuple[str, str], Path] = {}


def begun(to: Path, first: Registration | None = None, kind: str = "sqlite") -> Home:
    """A home whose ledger, in a database of this kind, has one dataset or none: a copy of the first asked for."""
    key = kind, repr(first)
    if key not in _begun:
        import postgres

        folder = scratch() / f"begun{len(_begun)}"
        folder.mkdir()
        if kind == "postgresql":
            (folder / "database.url").write_text(postgres.server().fresh())
        home = Home.init(place(folder))
        if first is not None:
            home.ledger.register(first)
        home.ledger.log.database.close()
        _begun[key] = folder
    return Home.open(place((copy_on_postgresql if kind == "postgresql" else copy)(_begun[key], to)))


@lru_cache
def trained() -> Path:
    """A home with two models trained on real rows, to copy."""
    from training.jobs import job
    from training.requests import JobRequest

    home = Home.open(place(copy(prepared(), scratch() / "trained")))
    for epsilon in ("0.5", "0.25"):
        job.train(home, JobRequest("adult", "lazybb", epsilon, parameters={"rounds": 8}), by="test")
    home.ledger.log.database.close()
    return home.path


def play_a_job() -> None:
    """All that a job and its audit load and compile is there then, for every fork of this process."""
    from accountant.audit.audit import audit_home
    from training.jobs import job
    from training.requests import JobRequest

    with tempfile.TemporaryDirectory() as folder:
        home = Home.open(place(copy(prepared(), Path(folder) / "home")))
        job.train(home, JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 8}), by="test")
        assert audit_home(home, bundles(home.path)).ok
        home.ledger.log.database.close()
    shutil.rmtree(scratch())
    prepared.cache_clear()
    scratch.cache_clear()


def bundles(home: Path) -> list[tuple[str, bytes, bytes, bytes]]:
    """What the audit takes: name, envelope, proof and model of every bundle of a home."""
    from dpserve_verify.certificates.bundle import read_bundle
    from models.store.bundle import ModelStore

    models = ModelStore(home / "models")
    names = [f"{name}@{version}" for name in models.names() for version in models.versions(name)]
    found = [(name, read_bundle(models.resolve(name))) for name in names]
    return [(name, each.envelope, each.proof, each.onnx) for name, each in found]


def raw(home: Path) -> sqlite3.Connection:
    """The database without its triggers: what an operator with a shell has. Commits by itself."""
    connection = sqlite3.connect(home / "ledger.db", isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    return connection


def bodies(home: Path) -> list[bytes]:
    with raw(home) as connection:
        return [bytes(body) for (body,) in connection.execute("SELECT body FROM entry ORDER BY seq")]


def changed(body: bytes, **fields) -> bytes:
    """An entry that says something else, in canonical form."""
    return canonical.encode({**json.loads(body), **fields})


UNJUDGED = Sitting, "read", lambda sitting, seq, body: None  # to patch with


@contextmanager
def unjudged() -> Iterator[None]:
    """Let entries be written that an audit refuses: as an earlier version did, or somebody with the keys does."""
    with mock.patch.object(*UNJUDGED):
        yield


def append_unsigned(connection: Any, body: bytes) -> int:
    """Append an entry to the tree as somebody with the database alone can."""
    return store.Tree(connection).append(body, lambda seq, entry: None)


def rewrite(home: Path, leaves: list[bytes]) -> None:
    """What an operator with the log's key can do: another history, whole and signed, mark and all. The index stays."""
    opened = Home.open(place(home))
    with raw(home) as connection:
        for table in ("entry", "node", "checkpoint"):
            connection.execute(f"DELETE FROM {table}")
    (home / "keys" / "high-water.json").unlink()
    log = opened.ledger.log
    with log.database.writing() as connection:
        read = store.node_reader(connection)
        for size, leaf in enumerate(leaves, 1):
            append_unsigned(connection, leaf)
            note = notes.sign_checkpoint(log.origin, size, merkle.root(size, read), opened.keys.signer("log"))
            connection.execute(tables.checkpoint_table.insert().values(size=size, note=note, kinds=0))
        log._mark.advance(len(leaves), merkle.root(len(leaves), read))
    log.database.close()
