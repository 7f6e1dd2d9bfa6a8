"""What the entries mean, read by nobody's word: a second state machine, apart from the one that wrote them.

Every entry is judged from its exact bytes and from the entries before it; prices by `accountant.judge`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from accountant import canonical
from accountant.budget import NANO, Budget, parse_relation
from accountant.canonical import parse_decimal
from accountant.errors import DpserveError, LedgerInvalid
from accountant.events import plan_from_json
from accountant.judge import (
    Figures,
    Value,
    judge_claim,
    judge_filter,
    judge_price,
    read_budget,
    require,
    require_hex,
)
from accountant.keys import PublicKeys
from accountant.log import read_entry
from accountant.names import check_name

FORMAT = "dpserve-ledger/v1"
SCOPES = ["predict", "train", "audit", "admin"]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_FIELDS = {
    "genesis": "format origin issuer log",
    "dataset-registered": "dataset uuid family relation budget filter unit records schema commitment",
    "reserved": "dataset learner parameters model epsilon delta unit plan price claim request idempotency_key by",
    "started": "reservation",
    "committed": "reservation released",
    "burned": "reservation reason",
    "released": "reservation",
    "issued": "reservation statement model name",
    "token-created": "name scopes hash",
    "token-revoked": "name hash",
}


@dataclass(slots=True)
class DatasetState:
    """A dataset as its entries leave it. `criteria`: (order, cap in nano-units)."""

    seq: int
    uuid: str
    budget: Budget
    records: int
    criteria: tuple[tuple[Decimal, int], ...]
    used: Figures
    reserved: Figures


@dataclass(slots=True)
class JobState:
    """A job as its entries leave it; what the index's row must say."""

    dataset: str
    model: str
    key: str | None
    request: str
    total: int
    price: Figures
    state: str = "reserved"
    committed: int | None = None
    issued: int | None = None


@dataclass(slots=True)
class TokenState:
    """A token as its entries leave it."""

    seq: int
    name: str
    scopes: str
    revoked: int | None = None


@dataclass
class Replay:
    """Reads entries in order and keeps what follows from them. `trust` is pinned by who reads."""

    trust: PublicKeys
    datasets: dict[str, DatasetState] = field(default_factory=dict)
    jobs: dict[int, JobState] = field(default_factory=dict)
    tokens: dict[str, TokenState] = field(default_factory=dict)
    _once: set[tuple[str, str]] = field(default_factory=set)

    def read(self, seq: int, body: bytes) -> Value:
        """Judge one entry and take it in; what it says. LedgerInvalid says what is wrong with it."""
        try:
            value = read_entry(seq, body).value
            self._form(seq, value)
            self._READERS[value["type"]](self, seq, value)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LedgerInvalid(f"entry {seq}: not of its type's form ({error!r:.200})", entry=seq) from error
        except DpserveError as error:
            said = error.message.removeprefix(f"entry {seq}: ")
            raise LedgerInvalid(f"entry {seq}: {said}", entry=seq) from error
        return value

    def _form(self, seq: int, value: Value) -> None:
        kind = value["type"]
        require(kind in _FIELDS, f"type={kind!r:.60}: not a type of entry that this reader knows")
        expected = {"type", "time", *_FIELDS[kind].split()}
        require(set(value) == expected, f"{kind}: must have exactly the fields {sorted(expected)}")
        require(_TIME.fullmatch(value["time"]) is not None, "time: must be like 2026-01-31T23:59:59Z")
        require((kind == "genesis") == (seq == 0), "genesis: must be entry 0, and no other")

    def _genesis(self, seq: int, value: Value) -> None:
        require(value["format"] == FORMAT, f"format={value['format']!r:.60}: must be {FORMAT}")
        require(value["origin"] == self.trust.origin, f"origin={value['origin']!r:.80}: must be {self.trust.origin}")
        require(value["log"] == self.trust.log_pem, "log: must be the pinned log key")
        first = [key.pem for key in self.trust.issuers if key.valid_at(seq)]
        require(value["issuer"] in first, "issuer: must be a pinned issuer key, valid from entry 0")

    def _registered(self, seq: int, value: Value) -> None:
        name = check_name("dataset", value["dataset"])
        require(name not in self.datasets, f"dataset={name}: was registered before, as entry {self._seq(name)}")
        for what in ("uuid", "commitment"):
            self._new(what, value[what])
        require(value["family"] == value["uuid"], "family: must be the dataset's own")
        parse_relation(value["relation"])
        require(
            set(value["unit"]) == {"name", "column", "contributions"}, "unit: must have name, column, contributions"
        )
        require_hex(value, "schema", "commitment")
        budget = read_budget(value["budget"])
        require(type(value["records"]) is int and value["records"] >= 1, "records: must be an integer from 1")
        budget.check_delta(value["records"])
        criteria = judge_filter(budget, value["filter"])
        nothing = Figures(0, 0, (0,) * len(criteria))
        self.datasets[name] = DatasetState(seq, value["uuid"], budget, value["records"], criteria, nothing, nothing)

    def _seq(self, name: str) -> int | None:
        return self.datasets[name].seq if name in self.datasets else None

    def _reserved(self, seq: int, value: Value) -> None:
        dataset = self._dataset(value["dataset"])
        asked = read_budget(value)
        asked.check_delta(dataset.records)
        require(asked.delta <= dataset.budget.delta, "delta: must not be above the dataset's")
        require(parse_decimal(value["unit"]) > 0, "unit: must be above 0")
        check_name("model", value["model"])
        self._request(value)
        plan = plan_from_json(value["plan"])
        require(
            plan.to_json() == value["plan"] and len(plan) > 0, "plan: must be in the one form that plans are stored in"
        )
        cost = judge_price(plan, value["price"], tuple(order for order, _ in dataset.criteria))
        judge_claim(plan, asked, value["claim"])
        used = dataset.used.plus(cost)
        require(_admits(dataset, used), f"admission: the dataset's budget {dataset.budget.epsilon} is exceeded")
        dataset.used, dataset.reserved = used, dataset.reserved.plus(cost)
        job = JobState(value["dataset"], value["model"], value["idempotency_key"], value["request"], len(plan), cost)
        self.jobs[seq] = job

    def _request(self, value: Value) -> None:
        keys = ("dataset", "learner", "parameters", "model", "epsilon", "delta")
        digest = hashlib.sha256(canonical.encode({key: value[key] for key in keys})).hexdigest()
        require(value["request"] == digest, "request: must be the digest of what was asked")
        require(isinstance(value["by"], str), "by: must be a string")
        if value["idempotency_key"] is not None:
            self._new("idempotency_key", value["idempotency_key"])

    def _started(self, seq: int, value: Value) -> None:
        job = self._move(value, "reserved", "started")
        dataset = self.datasets[job.dataset]
        dataset.reserved = dataset.reserved.plus(job.price, -1)

    def _committed(self, seq: int, value: Value) -> None:
        require_hex(value, "released")
        self._move(value, "started", "committed").committed = seq

    def _burned(self, seq: int, value: Value) -> None:
        require(isinstance(value["reason"], str), "reason: must be a string")
        self._move(value, "started", "burned")

    def _released(self, seq: int, value: Value) -> None:
        job = self._move(value, "reserved", "released")
        dataset = self.datasets[job.dataset]
        dataset.used, dataset.reserved = dataset.used.plus(job.price, -1), dataset.reserved.plus(job.price, -1)

    def _issued(self, seq: int, value: Value) -> None:
        require_hex(value, "statement", "model")
        job = self._job(value)
        require(job.state == "committed", f"job {value['reservation']}: is {job.state}, must be committed")
        require(job.issued is None, f"job {value['reservation']}: was issued before, as entry {job.issued}")
        require(value["name"] == job.model, f"name={value['name']!r:.80}: must be {job.model}")
        job.issued = seq

    def _token_created(self, seq: int, value: Value) -> None:
        name = check_name("name", value["name"])
        require_hex(value, "hash")
        self._new("token", value["hash"])
        scopes = [scope for scope in SCOPES if scope in value["scopes"]]
        require(bool(scopes) and value["scopes"] == scopes, f"scopes: must be some of {SCOPES}, in this order")
        known = [each.seq for each in self.tokens.values() if each.name == name and each.revoked is None]
        require(not known, f"name={name}: is in use, see entry {known[:1]}")
        self.tokens[value["hash"]] = TokenState(seq, name, ",".join(scopes))

    def _token_revoked(self, seq: int, value: Value) -> None:
        token = self.tokens.get(value["hash"])
        good = token is not None and token.name == value["name"] and token.revoked is None
        require(good, f"name={value['name']!r:.80}: no such token is good")
        self.tokens[value["hash"]].revoked = seq

    def _dataset(self, name: str) -> DatasetState:
        require(name in self.datasets, f"dataset={name!r:.80}: was never registered")
        return self.datasets[name]

    def _job(self, value: Value) -> JobState:
        known = type(value["reservation"]) is int and value["reservation"] in self.jobs
        require(known, f"reservation={value['reservation']!r:.40}: no such reservation stands before")
        return self.jobs[value["reservation"]]

    def _move(self, value: Value, before: str, after: str) -> JobState:
        job = self._job(value)
        require(job.state == before, f"job {value['reservation']}: is {job.state}, must be {before} to be {after}")
        job.state = after
        return job

    def _new(self, what: str, name: str) -> None:
        require(isinstance(name, str) and bool(name), f"{what}: must be a string")
        require((what, name) not in self._once, f"{what}={name:.80}: came before")
        self._once.add((what, name))

    _READERS: ClassVar = {
        "genesis": _genesis,
        "dataset-registered": _registered,
        "reserved": _reserved,
        "started": _started,
        "committed": _committed,
        "burned": _burned,
        "released": _released,
        "issued": _issued,
        "token-created": _token_created,
        "token-revoked": _token_revoked,
    }


def _admits(dataset: DatasetState, used: Figures) -> bool:
    pure = not used.unbounded and used.pure <= dataset.budget.epsilon * NANO
    return pure or any(figure <= cap for figure, (_, cap) in zip(used.rdp, dataset.criteria, strict=True))
