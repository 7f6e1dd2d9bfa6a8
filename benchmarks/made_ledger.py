"""A long ledger, made fast: what `accountant.ledger.ledger` would have written, with one signed checkpoint per entry.

The first job of each plan goes through the ledger itself; all others are copies of it with names, keys, digests and
reservations of their own, written into the tables in bulk. No admission was checked for them: the audit will.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from accountant import home
from accountant.home import Home
from accountant.ledger.families.family_rows import load, price_text
from accountant.ledger.families.records import Registration, Request, Unit
from accountant.log.last_seen import HighWater
from accountant.privacy.claims import price
from dpserve_verify.formats import canonical, merkle
from dpserve_verify.keys import verifier_keys
from dpserve_verify.log import notes
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.filter import Price

TOTAL, ASKED = Budget.of("3", "0.000001"), Budget.of("0.5", "0.000001")
JOBS_PER_DATASET, IN_FLIGHT, PLANS = 250, 7, 48
BATCH = 20_000  # entries in one transaction
ANALYSTS = ("ana", "ben", "cleo")


class Sums:
    """What jobs have used of an account, added up exactly."""

    def __init__(self) -> None:
        self.pure, self.rdp, self.unbounded = Decimal(0), defaultdict[str, Decimal](Decimal), 0

    def add(self, price: dict[str, Any], times: int) -> None:
        self.pure += times * Decimal(price["pure"])
        self.unbounded += times * price["unbounded"]
        for order, epsilon in price["rdp"].items():
            self.rdp[order] += times * Decimal(epsilon)

    def to_json(self) -> dict[str, Any]:
        rdp = {order: canonical.decimal_string(epsilon) for order, epsilon in self.rdp.items()}
        return {"pure": canonical.decimal_string(self.pure), "rdp": rdp, "unbounded": self.unbounded}


MOVES = {"reserved": (1, 1), "started": (0, -1), "released": (-1, -1)}  # of what is used, and of what is reserved


@dataclass
class Account:
    """A family's account. family: the entry that founded it; analysts: what each has used."""

    family: int
    used: Sums
    reserved: Sums
    analysts: dict[str, Sums]

    def move(self, kind: str, job: dict[str, Any]) -> dict[str, Any]:
        """Charge, start or give back a job; return the line that its entry has."""
        used, reserved = MOVES[kind]
        self.used.add(job["price"], used)
        self.reserved.add(job["price"], reserved)
        line = {
            "family": self.family,
            "changed": None,
            "used": self.used.to_json(),
            "reserved": self.reserved.to_json(),
        }
        if not used:
            return line
        analyst = self.analysts[job["by"]]
        analyst.add(job["price"], used)
        return {**line, "analyst": {"name": job["by"], "used": analyst.to_json()}}


@dataclass
class Made:
    """A job in the making: what its `reserved` entry says, its index row, and the entries still to come."""

    fields: dict[str, Any]
    left: list[str]
    row: dict[str, Any] = field(default_factory=dict)


def make(folder: Path, entries: int) -> None:
    """A home at `folder` whose ledger has exactly `entries` entries (and at least the first few hundred)."""
    opened = Home.init({"DPSERVE_HOME": str(folder)})
    datasets = [f"rows-{number}" for number in range(entries // (4 * JOBS_PER_DATASET) + 1)]
    for name in datasets:
        unit = Unit()
        rest = (unit, 30_000, _hex("schema"), _hex(name))
        opened.ledger.register(Registration(name, Relation.ADD_REMOVE, TOTAL, *rest))
    for number, plan in enumerate(_plans()):
        asked = Request(datasets[0], "lazybb", ASKED, {"rounds": 25, "bins": 32}, f"model-{number}")
        opened.ledger.reserve(asked, Decimal("0.002"), plan, by=ANALYSTS[0], key=_hex(f"first {number}")[:32])
    opened.ledger.log.database.close()
    connection = sqlite3.connect(folder / "ledger.db", isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    _Filler(connection, opened, folder, datasets).fill(entries)
    connection.close()
    _settle(opened, datasets)


def _plans() -> list[Plan]:
    found = []
    for number in range(PLANS):
        small = Decimal(1000 + number).scaleb(-6)
        mechanism, norm, event = (
            ("exponential", "range", BoundedRange(small)),
            ("permute-and-flip", "range", PureDp(small)),
            ("discrete-gaussian", "l2", Gaussian(Decimal(1000 + number))),
        )[number % 3]
        vote = Release("a stump's feature and cut", mechanism, norm, 1, event)
        leaf = Release("a leaf's class counts", "discrete-laplace", "l1", 1, PureDp(small))
        found.append(Plan(((vote, 25), (leaf, 1))))
    return found


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Filler:
    """Appends copies of the first jobs until the ledger is as long as asked for."""

    def __init__(self, connection: sqlite3.Connection, opened: Home, folder: Path, datasets: list[str]) -> None:
        self.connection, self.datasets = connection, datasets
        self.origin = opened.ledger.log.origin
        self.mark = HighWater(home.mark(folder))
        key = load_pem_private_key((folder / "keys" / "log.pem").read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        self.key, self.key_id = key, verifier_keys.key_id(self.origin, key.public_key())
        rows = connection.execute("SELECT body FROM entry ORDER BY seq").fetchall()
        self.size = len(rows)
        self.last = dict(connection.execute("SELECT level, hash FROM node ORDER BY level, idx"))
        values = [json.loads(body) for (body,) in rows]
        reserved = [value for value in values if value["type"] == "reserved"]
        self.templates = [{name: value[name] for name in value if name != "after"} for value in reserved]
        self.accounts = {
            value["dataset"]: Account(seq, Sums(), Sums(), defaultdict(Sums))
            for seq, value in enumerate(values)
            if value["type"] == "dataset-registered"
        }
        for value in reserved:
            self.accounts[value["dataset"]].move("reserved", value)
        cursor = connection.execute("SELECT * FROM job ORDER BY seq LIMIT 1")
        self.columns = [name for name, *_ in cursor.description]
        self.job = dict(zip(self.columns, cursor.fetchone(), strict=True))
        self.names: dict[str, deque[dict[str, Any]]] = defaultdict(deque)  # by model, the jobs that may bind its name
        self.began = datetime(2026, 1, 1, tzinfo=UTC)

    def fill(self, entries: int) -> None:
        jobs = self._jobs()
        flight: deque[Made] = deque()
        self.connection.execute("BEGIN")
        while self.size < entries:
            if self.size % BATCH == 0:
                self.connection.execute("COMMIT")
                self.connection.execute("BEGIN")
            job = next(jobs) if len(flight) < IN_FLIGHT else flight.popleft()
            self._step(job)
            if job.left:
                flight.append(job)
            else:
                self._file(job)
        for job in flight:
            self._file(job)
        self.connection.execute("COMMIT")
        self.mark.advance(self.size, merkle.root(self.size, self._read))

    def _read(self, level: int, _index: int) -> bytes:
        return bytes(self.last[level])

    def _jobs(self) -> Iterator[Made]:
        number = 0
        while True:
            ends = ["started", "committed", "issued"]
            if number % 16 == 5:
                ends = ["started", "burned"]
            elif number % 32 == 9:
                ends = ["released"]
            name = self.datasets[(number * 7919) % len(self.datasets)]
            fields = {
                **self.templates[number % PLANS],
                "dataset": name,
                "model": f"{name}-{number % 11}",
                "by": ANALYSTS[number % len(ANALYSTS)],
                "idempotency_key": _hex(f"key {number}")[:32],
            }
            keys = ("dataset", "learner", "parameters", "model", "epsilon", "delta")
            fields["request"] = hashlib.sha256(canonical.encode({key: fields[key] for key in keys})).hexdigest()
            yield Made(fields, ["reserved", *ends])
            number += 1

    def _step(self, job: Made) -> None:
        kind, seq, row = job.left.pop(0), self.size, job.row
        fields: dict[str, Any] = {"reservation": row.get("seq")}
        if kind == "reserved":
            row["seq"] = seq
            named = self.names[job.fields["model"]]
            while named and named[0]["state"] in ("burned", "released"):
                named.popleft()
            if not named or named[0]["state"] != "committed":  # what is committed binds the name for good
                named.append(row)
            fields = {**job.fields, "bound": named[0]["seq"]}
        elif kind == "committed":
            fields["released"], row["committed"] = _hex(f"released {seq}"), seq
        elif kind == "burned":
            fields["reason"] = "failed"
        elif kind == "issued":
            fields |= {"statement": _hex(f"statement {seq}"), "model": _hex(f"model {seq}")}
            fields["name"], row["issued"] = job.fields["model"], seq
        row["state"] = "committed" if kind == "issued" else kind
        if kind in MOVES:
            fields["after"] = [self.accounts[job.fields["dataset"]].move(kind, job.fields)]
        self._append({**fields, "type": kind})

    def _append(self, fields: dict[str, Any]) -> None:
        seq = self.size
        moment = (self.began + timedelta(seconds=seq)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = json.dumps({**fields, "time": moment}, sort_keys=True, separators=(",", ":")).encode()
        nodes = merkle.new_nodes(seq, merkle.leaf_hash(text), self._read)
        self.last |= {level: digest for level, _, digest in nodes}
        self.size += 1
        signed = f"{self.origin}\n{self.size}\n{canonical.encode_base64(merkle.root(self.size, self._read))}\n"
        signature = notes.NoteSignature(self.origin, self.key_id, self.key.sign(signed.encode()))
        self.connection.execute("INSERT INTO entry VALUES (?, ?)", (seq, text))
        self.connection.executemany("INSERT INTO node VALUES (?, ?, ?)", nodes)
        self.connection.execute("INSERT INTO checkpoint VALUES (?, ?, 0)", (self.size, f"{signed}\n{signature.line()}"))

    def _file(self, job: Made) -> None:
        own = {name: job.fields[name] for name in ("dataset", "model", "idempotency_key", "request")}
        own |= {"analyst": job.fields["by"], "total": sum(run["count"] for run in job.fields["plan"])}
        row = {**self.job, **own, "committed": None, "issued": None, "queued": 0, **job.row}
        if row["state"] == "reserved":
            row["queued"] = 1
        if row["state"] == "started":
            row |= {"owner": "made", "expires": 0.0}
        marks = ", ".join("?" for _ in self.columns)
        self.connection.execute(f"INSERT INTO job VALUES ({marks})", [row[name] for name in self.columns])


def _settle(opened: Home, datasets: list[str]) -> None:
    """Families and analysts get the sums that the jobs give."""
    with opened.ledger.log.database.reading() as reading:
        families = {name: load(reading, name).families[0] for name in datasets}
    opened.ledger.log.database.close()
    design = next(iter(families.values())).filter
    by_plan = {canonical.encode(plan.to_json()): price(plan, design.orders) for plan in _plans()}
    sums: dict[tuple[str, ...], Price] = defaultdict(design.nothing)
    with closing(sqlite3.connect(opened.path / "ledger.db")) as connection:
        rows = "SELECT dataset, analyst, state, body FROM job JOIN entry USING (seq) WHERE state != 'released'"
        for dataset, analyst, state, body in connection.execute(rows):
            cost = by_plan[canonical.encode(json.loads(body)["plan"])]
            for key in [(dataset,), (dataset, analyst), *([(dataset, "", "")] if state == "reserved" else [])]:
                sums[key] += cost
        connection.execute("DELETE FROM analyst")
        for name, family in families.items():
            texts = [price_text(sums[key], design) for key in ((name,), (name, "", ""))]
            connection.execute("UPDATE family SET used = ?, reserved = ? WHERE id = ?", (*texts, family.identity))
        who = connection.execute("SELECT DISTINCT dataset, analyst FROM job").fetchall()
        values = [(families[name].identity, each, None, price_text(sums[name, each], design)) for name, each in who]
        connection.executemany("INSERT INTO analyst VALUES (?, ?, ?, ?)", values)
        connection.commit()
