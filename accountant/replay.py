"""What the entries mean, read by nobody's word: a second state machine, apart from the one that wrote them.

Every entry is judged from its exact bytes and from the entries before it. Prices are derived twice: as the ledger does,
and from the definitions of PRIVACY section 2 by `accountant.definitions`, which shares no code with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

from accountant import canonical
from accountant.budget import NANO, Budget, nano, parse_relation
from accountant.canonical import decimal_string, parse_decimal
from accountant.definitions import renyi, to_epsilon
from accountant.errors import DpserveError, LedgerInvalid
from accountant.events import Gaussian, Plan, plan_from_json
from accountant.filter import Filter, price_to_json
from accountant.keys import PublicKeys
from accountant.log import read_entry
from accountant.names import check_name
from accountant.prices import Claim, claim, price

Value = Mapping[str, Any]
FORMAT = "dpserve-ledger/v1"
SCOPES = ["predict", "train", "audit", "admin"]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
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
class Figures:
    """A sum of prices in nano-units: pure, jobs without a pure price, and one Renyi figure per order."""

    pure: int
    unbounded: int
    rdp: tuple[int, ...]

    def plus(self, other: Figures, sign: int = 1) -> Figures:
        rdp = tuple(a + sign * b for a, b in zip(self.rdp, other.rdp, strict=True))
        return Figures(self.pure + sign * other.pure, self.unbounded + sign * other.unbounded, rdp)


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
        _require(kind in _FIELDS, f"type={kind!r:.60}: not a type of entry that this reader knows")
        expected = {"type", "time", *_FIELDS[kind].split()}
        _require(set(value) == expected, f"{kind}: must have exactly the fields {sorted(expected)}")
        _require(_TIME.fullmatch(value["time"]) is not None, "time: must be like 2026-01-31T23:59:59Z")
        _require((kind == "genesis") == (seq == 0), "genesis: must be entry 0, and no other")

    def _genesis(self, seq: int, value: Value) -> None:
        _require(value["format"] == FORMAT, f"format={value['format']!r:.60}: must be {FORMAT}")
        _require(value["origin"] == self.trust.origin, f"origin={value['origin']!r:.80}: must be {self.trust.origin}")
        _require(value["log"] == self.trust.log_pem, "log: must be the pinned log key")
        first = [key.pem for key in self.trust.issuers if key.valid_at(seq)]
        _require(value["issuer"] in first, "issuer: must be a pinned issuer key, valid from entry 0")

    def _registered(self, seq: int, value: Value) -> None:
        name = check_name("dataset", value["dataset"])
        _require(name not in self.datasets, f"dataset={name}: was registered before, as entry {self._seq(name)}")
        for what in ("uuid", "commitment"):
            self._new(what, value[what])
        _require(value["family"] == value["uuid"], "family: must be the dataset's own")
        parse_relation(value["relation"])
        _require(
            set(value["unit"]) == {"name", "column", "contributions"}, "unit: must have name, column, contributions"
        )
        _hex(value, "schema", "commitment")
        budget = _budget(value["budget"])
        _require(type(value["records"]) is int and value["records"] >= 1, "records: must be an integer from 1")
        budget.check_delta(value["records"])
        criteria = _filter(budget, value["filter"])
        nothing = Figures(0, 0, (0,) * len(criteria))
        self.datasets[name] = DatasetState(seq, value["uuid"], budget, value["records"], criteria, nothing, nothing)

    def _seq(self, name: str) -> int | None:
        return self.datasets[name].seq if name in self.datasets else None

    def _reserved(self, seq: int, value: Value) -> None:
        dataset = self._dataset(value["dataset"])
        asked = _budget(value)
        asked.check_delta(dataset.records)
        _require(asked.delta <= dataset.budget.delta, "delta: must not be above the dataset's")
        _require(parse_decimal(value["unit"]) > 0, "unit: must be above 0")
        check_name("model", value["model"])
        self._request(value)
        plan = plan_from_json(value["plan"])
        _require(
            plan.to_json() == value["plan"] and len(plan) > 0, "plan: must be in the one form that plans are stored in"
        )
        cost = _price(plan, value["price"], tuple(order for order, _ in dataset.criteria))
        _claimed(plan, asked, value["claim"])
        used = dataset.used.plus(cost)
        _require(_admits(dataset, used), f"admission: the dataset's budget {dataset.budget.epsilon} is exceeded")
        dataset.used, dataset.reserved = used, dataset.reserved.plus(cost)
        job = JobState(value["dataset"], value["model"], value["idempotency_key"], value["request"], len(plan), cost)
        self.jobs[seq] = job

    def _request(self, value: Value) -> None:
        keys = ("dataset", "learner", "parameters", "model", "epsilon", "delta")
        digest = hashlib.sha256(canonical.encode({key: value[key] for key in keys})).hexdigest()
        _require(value["request"] == digest, "request: must be the digest of what was asked")
        _require(isinstance(value["by"], str), "by: must be a string")
        if value["idempotency_key"] is not None:
            self._new("idempotency_key", value["idempotency_key"])

    def _started(self, seq: int, value: Value) -> None:
        job = self._move(value, "reserved", "started")
        dataset = self.datasets[job.dataset]
        dataset.reserved = dataset.reserved.plus(job.price, -1)

    def _committed(self, seq: int, value: Value) -> None:
        _hex(value, "released")
        self._move(value, "started", "committed").committed = seq

    def _burned(self, seq: int, value: Value) -> None:
        _require(isinstance(value["reason"], str), "reason: must be a string")
        self._move(value, "started", "burned")

    def _released(self, seq: int, value: Value) -> None:
        job = self._move(value, "reserved", "released")
        dataset = self.datasets[job.dataset]
        dataset.used, dataset.reserved = dataset.used.plus(job.price, -1), dataset.reserved.plus(job.price, -1)

    def _issued(self, seq: int, value: Value) -> None:
        _hex(value, "statement", "model")
        job = self._job(value)
        _require(job.state == "committed", f"job {value['reservation']}: is {job.state}, must be committed")
        _require(job.issued is None, f"job {value['reservation']}: was issued before, as entry {job.issued}")
        _require(value["name"] == job.model, f"name={value['name']!r:.80}: must be {job.model}")
        job.issued = seq

    def _token_created(self, seq: int, value: Value) -> None:
        name = check_name("name", value["name"])
        _hex(value, "hash")
        self._new("token", value["hash"])
        scopes = [scope for scope in SCOPES if scope in value["scopes"]]
        _require(bool(scopes) and value["scopes"] == scopes, f"scopes: must be some of {SCOPES}, in this order")
        known = [each.seq for each in self.tokens.values() if each.name == name and each.revoked is None]
        _require(not known, f"name={name}: is in use, see entry {known[:1]}")
        self.tokens[value["hash"]] = TokenState(seq, name, ",".join(scopes))

    def _token_revoked(self, seq: int, value: Value) -> None:
        token = self.tokens.get(value["hash"])
        good = token is not None and token.name == value["name"] and token.revoked is None
        _require(good, f"name={value['name']!r:.80}: no such token is good")
        self.tokens[value["hash"]].revoked = seq

    def _dataset(self, name: str) -> DatasetState:
        _require(name in self.datasets, f"dataset={name!r:.80}: was never registered")
        return self.datasets[name]

    def _job(self, value: Value) -> JobState:
        known = type(value["reservation"]) is int and value["reservation"] in self.jobs
        _require(known, f"reservation={value['reservation']!r:.40}: no such reservation stands before")
        return self.jobs[value["reservation"]]

    def _move(self, value: Value, before: str, after: str) -> JobState:
        job = self._job(value)
        _require(job.state == before, f"job {value['reservation']}: is {job.state}, must be {before} to be {after}")
        job.state = after
        return job

    def _new(self, what: str, name: str) -> None:
        _require(isinstance(name, str) and bool(name), f"{what}: must be a string")
        _require((what, name) not in self._once, f"{what}={name:.80}: came before")
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


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LedgerInvalid(otherwise)


def _hex(value: Value, *names: str) -> None:
    for name in names:
        _require(_HEX.fullmatch(value[name]) is not None, f"{name}: must be 64 hexadecimal digits")


def _budget(value: Value) -> Budget:
    return Budget(parse_decimal(value["epsilon"]), parse_decimal(value["delta"]))


def _filter(budget: Budget, stored: Any) -> tuple[tuple[Decimal, int], ...]:
    """The stored criteria are those that the budget designs, and each is sound by the definitions alone."""
    _require(stored == Filter.design(budget).to_json(), "filter: is not the one that the budget gives")
    weights = sum((parse_decimal(line["weight"]) for line in stored), Decimal(0))
    _require(weights <= 1, "filter: the weights must sum to at most 1")
    for line in stored:
        order, delta = float(line["order"]), float(budget.delta * parse_decimal(line["weight"]))
        sound = to_epsilon(order, float(line["cap"]), delta) <= float(budget.epsilon)
        _require(sound, f"filter: the cap at order {order} exceeds the budget")
    return tuple((parse_decimal(line["order"]), nano(parse_decimal(line["cap"]))) for line in stored)


def _price(plan: Plan, stored: Any, orders: tuple[Decimal, ...]) -> Figures:
    _require(stored == _stored_price(plan, orders), "price: does not follow from the plan's events")
    found = Figures(
        nano(parse_decimal(stored["pure"])),
        stored["unbounded"],
        tuple(nano(parse_decimal(stored["rdp"][decimal_string(order)])) for order in orders),
    )
    for order, figure in zip(orders, found.rdp, strict=True):
        own = sum(count * NANO * renyi(event, float(order)) for event, count in plan.events)
        _require(own <= figure <= own + 3 * len(plan), f"price: at order {order} is not that of the definitions")
    pure = [None if isinstance(event, Gaussian) else count * event.epsilon for event, count in plan.events]
    known = sum((figure for figure in pure if figure is not None), Decimal(0))
    expected = (0, 1) if None in pure else (nano(known), 0)
    _require((found.pure, found.unbounded) == expected, "price: the pure sum is not that of the definitions")
    return found


@lru_cache(maxsize=4096)
def _stored_price(plan: Plan, orders: tuple[Decimal, ...]) -> dict[str, Any]:
    return price_to_json(price(plan, orders), orders)


def _claimed(plan: Plan, asked: Budget, stored: Any) -> None:
    found = _claim(plan, asked.delta)
    order = None if found.order is None else decimal_string(Decimal(repr(found.order)))
    expected = {"epsilon": decimal_string(found.epsilon), "delta": decimal_string(asked.delta), "order": order}
    _require(stored == expected, "claim: does not follow from the plan's events")
    _require(found.epsilon <= asked.epsilon, f"claim: epsilon {found.epsilon} is above the {asked.epsilon} asked for")
    if found.order is not None:
        rdp = sum(count * renyi(event, found.order) for event, count in plan.events)
        own = to_epsilon(found.order, rdp, float(asked.delta))
        _require(own <= float(found.epsilon) + 1e-12, "claim: is below what the definitions give")


@lru_cache(maxsize=4096)
def _claim(plan: Plan, delta: Decimal) -> Claim:
    return claim(plan, delta)


def _admits(dataset: DatasetState, used: Figures) -> bool:
    pure = not used.unbounded and used.pure <= dataset.budget.epsilon * NANO
    return pure or any(figure <= cap for figure, (_, cap) in zip(used.rdp, dataset.criteria, strict=True))
