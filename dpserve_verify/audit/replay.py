"""What the entries mean, believing nobody: a second state machine, apart from the one that wrote them.

Every entry is judged from its exact bytes and from the entries before it; prices by `dpserve_verify.audit.judge`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import intern
from typing import ClassVar

from dpserve_verify.audit.judge import Value
from dpserve_verify.audit.replay_budget import Books, costs_of
from dpserve_verify.audit.replay_charges import Charges
from dpserve_verify.audit.replay_made_from import Behind, Profiles
from dpserve_verify.audit.replay_names import Names
from dpserve_verify.audit.replay_person import person_total
from dpserve_verify.entries.access import Rights
from dpserve_verify.entries.attacks import Attacks
from dpserve_verify.entries.campaigns import Campaigns
from dpserve_verify.entries.datasets import Archive
from dpserve_verify.entries.job_kinds import OF_DATASET, JobKind, read_kind
from dpserve_verify.entries.jobs import ASKED
from dpserve_verify.entries.keys import KeyRing
from dpserve_verify.entries.kinds import read_form
from dpserve_verify.entries.learners import Learners
from dpserve_verify.entries.schedules import Schedules
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.formats.canonical_bytes import decode_entry
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.privacy.soundness import Figures, judge_job, require

MOST_RESUMED = 5
KEY_TYPES = ("key-added", "key-retired", "key-compromised")


@dataclass(slots=True)
class JobState:
    """A job as its entries leave it; what the index's row must say. `part`: whose account bears its price; `evaluates`:
    of an evaluation, the entry of the certified model; `window`: the blocks whose accounts bear its price. `issued`:
    the entry of its certificate or statement.
    """

    dataset: str
    model: str
    key: str | None
    request: bytes
    by: str
    target: str | None
    total: int
    costs: tuple[Figures, ...]
    kind: JobKind
    part: str | None = None
    evaluates: int | None = None
    window: tuple[int, int] | None = None
    resumed: int = 0
    state: str = "reserved"
    committed: int | None = None
    issued: int | None = None


@dataclass
class Replay:
    """Reads entries in order and keeps what follows. `trust` is pinned by who reads. `issued`: entries that certify a
    model; `derived`: of those of edited ones, the entry of the base; `models`: what each is called, and its digest;
    `worths`: of each `evaluated` entry, the entry that certifies what was measured."""

    trust: PublicKeys
    books: Books = field(default_factory=Books)
    jobs: dict[int, JobState] = field(default_factory=dict)
    access: Rights = field(default_factory=Rights)
    issued: set[int] = field(default_factory=set)
    derived: dict[int, int] = field(default_factory=dict)
    campaigns: Campaigns = field(default_factory=Campaigns)
    models: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    worths: dict[int, int] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    archive: Archive = field(default_factory=Archive)
    charges: Charges = field(default_factory=Charges)
    learners: Learners = field(default_factory=Learners)
    profiles: Profiles = field(default_factory=Profiles)
    behind: Behind = field(default_factory=Behind)
    schedules: Schedules = field(default_factory=Schedules)
    attacks: Attacks = field(default_factory=Attacks)
    keys: KeyRing = field(init=False)
    _keys: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.keys = KeyRing(self.trust)

    def read(self, seq: int, body: bytes) -> Value:
        """Judge one entry, take it in and return its value. LedgerInvalid says what is wrong with it."""
        value: Value = {}
        try:
            decoded = decode_entry(body)
            kind = decoded.get("type") if isinstance(decoded, dict) else None
            if not isinstance(decoded, dict) or not isinstance(kind, str):
                raise LedgerInvalid("must be an object with a type")
            value = decoded
            form = read_form(kind, decoded)
            require((kind == "genesis") == (seq == 0), "genesis: must be entry 0, and no other")
            if kind in ("reserved", "schedule-added", "dataset-appended"):
                self.archive.judge_open(value)
            if (judge := self._JUDGES.get(kind)) is None:
                form.judge(self, seq)
            else:
                judge(self, seq, value)
            self.behind.note(seq, value)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LedgerInvalid(f"entry {seq}: not of its type's form ({error!r:.200})", entry=seq) from error
        except DpserveError as error:
            message = error.message.removeprefix(f"entry {seq}: ")
            raise LedgerInvalid(f"entry {seq}: {message}", **{**error.details, "entry": seq}) from error
        return value

    def read_key(self, seq: int, body: bytes) -> None:
        """Judge an entry about keys, and pass over others: behind one that nobody here knows, sums are not known."""
        decoded = decode_entry(body)
        if isinstance(decoded, dict) and decoded.get("type") in KEY_TYPES:
            self.read(seq, body)

    def notes(self) -> list[str]:
        """Return what is no problem, and what a reader of the audit should know."""
        return [*self.books.blocks.notes, *self.access.notes]

    def _judge_reserved(self, seq: int, value: Value) -> None:
        window = self.books.blocks.window(value)
        dataset = self.books.dataset(value["dataset"], value.get("part"), window)
        kind = read_kind(value)
        evaluates = self._to_evaluate(seq, value) if kind is JobKind.EVALUATION else None
        request, releases, cost = judge_job(
            value, dataset.orders, dataset.relation, dataset.contributions, dataset.parts
        )
        request.check_delta(dataset.records)
        most = min(family.budget.delta for family in self.books.of(dataset))
        require(request.delta <= most, "delta: must not be above the dataset's")
        require(parse_decimal(value["unit"]) > 0, "unit: must be above 0")
        if kind not in OF_DATASET:
            check_name("model", value["model"])
            asks = value["target"] in dataset.targets if dataset.targets else "target" not in value
            require(asks, "target: must be one of the dataset's, and stands only where it has several")
        self._judge_request(value)
        asks_owners = dataset.remote and kind in OF_DATASET - ({JobKind.PROFILE} if dataset.institutions else set())
        require(not asks_owners, f"job: {kind.value}, and the rows of this dataset stay with their owners")
        self.campaigns.judge_reserved(seq, value, dataset)
        self.learners.judge_reserved(seq, value)
        self.behind.judge(seq, value)
        self.schedules.judge_reserved(seq, value, self.access, self.books)
        self.attacks.note_reserved(seq, value)
        costs = self.books.split(dataset, cost)
        total_claim = None
        if "whole" in value:
            total_claim = seq, parse_decimal(value["claim"]["epsilon"]), request.delta
        self.books.reserve(dataset, value["by"], costs, total_claim)
        self.books.judge_after(value, dataset.families, value["by"], window)
        # Of a million entries a quarter are jobs, and their names are few: each is kept once.
        dataset_name, model, by = (intern(value[name]) for name in ("dataset", "model", "by"))
        target = intern(value["target"]) if "target" in value else None
        who = (dataset_name, model, value["idempotency_key"], bytes.fromhex(value["request"]), by, target)
        if kind is JobKind.PROFILE:
            self.profiles.note_claim(seq, value["claim"])
        self.jobs[seq] = JobState(*who, releases, costs, kind, value.get("part"), evaluates, window)
        self.names.judge_reserved(
            seq, value, self.jobs, lambda: self.access.may_promote(value["by"], model, value["time"])
        )

    def _to_evaluate(self, seq: int, value: Value) -> int:
        certified: int = value["evaluates"]
        if "against" in value:
            against = value["against"]
            if against not in self.issued or against in self.keys.revocations:
                raise LedgerInvalid(f"against={against!r:.40}: must be a certified model before that stands")
            require(against != certified, f"against={against}: must be another model than what is evaluated")
        if certified in self.jobs:  # reserved together: what the job is going to make
            making = self.jobs[certified]
            sound = certified == seq - 1 and making.kind is JobKind.TRAINING
            sound = sound and "against" not in value
            require(sound, f"evaluates={certified}: must be the job reserved just before, which makes a model")
            require(value["model"] == making.model, f"model={value['model']!r:.80}: must be {making.model}")
            return certified
        if certified not in self.issued or certified in self.keys.revocations:
            raise LedgerInvalid(f"evaluates={certified!r:.40}: must be a certified model before that stands")
        name, _ = self.models[certified]
        require(value["model"] == name, f"model={value['model']!r:.80}: must be {name}, which is evaluated")
        return certified

    def _judge_request(self, value: Value) -> None:
        request = {key: value[key] for key in ASKED if key in value}
        digest = hashlib.sha256(canonical.spell(request)).hexdigest()
        require(value["request"] == digest, "request: must be the digest of what was asked")
        if value["idempotency_key"] is not None:
            owned_key = value["by"], (key := value["idempotency_key"])
            require(owned_key not in self._keys, f"idempotency_key={key:.80}: came before from {value['by']:.80}")
            self._keys.add(owned_key)

    def _judge_started(self, seq: int, value: Value) -> None:
        job = self.move(value["reservation"], "reserved", "started")
        self.learners.judge_started(value["reservation"])
        if job.evaluates in self.jobs:
            require(self.jobs[job.evaluates].issued is not None, f"job {job.evaluates}: has made no model to evaluate")
        dataset = self.books.dataset(job.dataset, job.part, job.window)
        self.books.start(dataset, costs_of(job.costs, dataset))
        self.books.judge_after(value, dataset.families, None, job.window)

    def _judge_resumed(self, seq: int, value: Value) -> None:
        """Judge `resumed`: a job goes on, for no price, as what was drawn is not drawn again
        (docs/privacy/filter.md).
        """
        job, times = self.move(value["reservation"], "started", "started"), value["times"]
        require(
            times == job.resumed + 1 <= MOST_RESUMED,
            f"times={times!r:.40}: must be {job.resumed + 1}, and at most {MOST_RESUMED}",
        )
        job.resumed = times
        grown = self.books.blocks.known.get(job.dataset)
        due = [*(job.window or (1, 1))] if job.window or grown else None
        require(value.get("window") == due, f"window: must be {due}, where blocks are or were named")

    def _judge_released(self, seq: int, value: Value) -> None:
        job = self.move(value["reservation"], "reserved", "released")
        dataset = self.books.dataset(job.dataset, job.part, job.window)
        self.books.release(dataset, job.by, costs_of(job.costs, dataset))
        self.books.judge_after(value, dataset.families, job.by, job.window)

    def _judge_dataset(self, seq: int, value: Value) -> None:
        """Judge the registration of a dataset that founds a family, or is of families that stand."""
        enter = self.books.judge_registered if value["type"] == "dataset-registered" else self.books.judge_joined
        enter(seq, value)
        self.profiles.judge_named(value, value.get("families", [value["uuid"]]))

    def ancestors(self, index: int) -> list[int]:
        """Return the entries that a certified model came from, the `issued` one first, its own last."""
        chain = [index]
        while chain[0] in self.derived:
            chain.insert(0, self.derived[chain[0]])
        return chain

    def job(self, number: int) -> JobState:
        """Return a job by its `reserved` entry. InputError where none stands."""
        require(number in self.jobs, f"job={number!r:.40}: no such job", "unknown_name", job=number)
        return self.jobs[number]

    def move(self, number: int, before: str, after: str) -> JobState:
        """Bring a job from a state to another. InputError where it is not in the first."""
        job = self.job(number)
        otherwise = f"job {number}: is {job.state}, must be {before} to be {after}"
        require(job.state == before, otherwise, "wrong_state", job=number, state=job.state)
        job.state = after
        return job

    # Kind -> who judges it, where that is not its form (`dpserve_verify.entries`).
    _JUDGES: ClassVar[dict[str, Callable[[Replay, int, Value], None]]] = {
        "dataset-registered": _judge_dataset,
        "person-total": lambda self, seq, value: person_total(self.books, seq, value),
        "dataset-joined": _judge_dataset,
        "dataset-appended": lambda self, *at: self.books.judge_appended(*at),
        "budget-changed": lambda self, seq, value: self.books.judge_budget_changed(seq, value),
        "reserved": _judge_reserved,
        "started": _judge_started,
        "resumed": _judge_resumed,
        "released": _judge_released,
        "charged": lambda self, _, value: self.charges.judge(self.books, value, self.trust.origin),
    }
