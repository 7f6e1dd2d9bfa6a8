"""Plays a home at random: every kind of entry that this version writes, by the functions that write it, in any order.

What it asks for may be refused in words. It may not be refused by the judge of entries, whose refusal says that two
parts of dpserve differ on what may stand; nor go on without an end; nor leave what an audit finds wrong.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ledgers import TOTAL, advance, hexes, place, plan, registration, request, reserve
from vector_stories import outside as running

from accountant.access import grants, key_life, tokens
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.errors import Forbidden
from accountant.home import Home
from accountant.ledger import block_appending, campaigns, evaluations, learner_admissions, model_names, schedules
from accountant.ledger.archive import archive
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.comparisons import REGISTER, Comparison, record_comparison
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import Contribution, Evaluation, Profile
from accountant.ledger.families.records import HOLDOUT, NewPeople, Request, State, Unit, Why
from accountant.ledger.job_rows import resume
from accountant.ledger.learner_admissions import Admission
from accountant.ledger.outside import Outside, charge
from accountant.ledger.withdrawal import withdraw
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.keys.trust import fingerprint
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.outside import Curve
from training.datasets.datasets import register
from training.datasets.growing.append import append

WHY = Why("steward", "a test")
NAMES, PEOPLE = ("adult", "visits", "wards"), Unit("person", "patient", 2)
SMALL = plan(PureDp(Decimal("0.02")), 5)
ENDLESS = 20.0  # processor seconds of one act: each takes a fraction of one
REFUSED = (InputError, BudgetRefused, Forbidden)
OWNED = "owned"  # a population whose owners keep their rows
ROWS = "rows"  # a dataset with real rows
SCHEMA = "target: {name: y, classes: [a, b]}\nrecords: 40\nfeatures:\n  x: {type: numeric, range: [0, 1], bins: 4}\n"


class Endless(AssertionError):
    """An act did not end."""


@contextmanager
def ending() -> Iterator[None]:
    """Raise Endless where the body takes ENDLESS seconds of the processor."""

    def end(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Player:
    """One home and one law of chance. `kinds`: how often each kind of entry was written."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.folder, self.number = random.Random(seed), folder, 0
        self.home = Home.init(place(folder / "home"))
        self.ledger = self.home.ledger
        (folder / "schema.yaml").write_text(SCHEMA)
        register(self.home, ROWS, self.file(), folder / "schema.yaml", TOTAL, Relation.ADD_REMOVE, "record")
        self.ledger.register(registration(OWNED, Budget.of("9"), relation=Relation.REPLACE_ONE, unit=Unit("owner")))
        self.ledger.register(registration("adult", holdout=Decimal("0.2")))
        self.acts: list[Callable[[], object]] = [
            *[self.register, self.join, self.append, self.withdraw, self.retire, self.total, self.quota, self.charge],
            *[self.reserve] * 7,
            *[self.step] * 9,
            *[self.issue] * 4,
            *[self.drop, self.place, self.edit, self.revoke, self.token, self.grant, self.schedule, self.period],
            *[self.learner, self.campaign, self.key, self.compare, self.append_rows, self.retire_rows, self.reopen],
        ]

    def play(self, steps: int) -> None:
        """Do so many acts; the audit after each."""
        for _ in range(steps):
            act = self.random.choice(self.acts)
            with ending():
                try:
                    act()
                except REFUSED:
                    continue
            problems = audit_home(self.home).problems
            assert not problems, f"{act.__name__}: {problems[:2]}"

    @property
    def kinds(self) -> Counter[str]:
        return Counter(entry.value["type"] for entry in self.ledger.log.entries(limit=10**6))

    # What is chosen

    def new(self) -> str:
        self.number += 1
        return hexes(f"{self.number}")

    def dataset(self) -> Dataset:
        there = {*NAMES, "joined"} & {each.registration.name for each in self.ledger.datasets()}
        return self.ledger.dataset(self.random.choice(sorted(there or {ROWS})))

    def words(self, dataset: Dataset) -> str | None:
        chosen = self.random.choice([None, "all", "last:2", "1", "2-3"])
        return "all" if chosen is None and dataset.last else chosen

    def by(self) -> str:
        return self.random.choice(["ann", "bob"])

    def of(self, kind: str) -> int:
        """The index of an entry of a kind; InputError where there is none."""
        found = [entry.seq for entry in self.ledger.log.entries(limit=10**6) if entry.value["type"] == kind]
        if not found:
            raise InputError(f"no {kind}")
        return self.random.choice(found)

    def job(self, *states: State) -> int:
        found = [job.seq for job in self.ledger.jobs() if job.state in states]
        if not found:
            raise InputError("no such job")
        return self.random.choice(found)

    def file(self) -> Path:
        """A file of rows that no other has."""
        self.number += 1
        lines = [f"{self.random.random():.9f},{self.random.choice('ab')}" for _ in range(40)]
        path = self.folder / f"{self.number}.csv"
        path.write_text("\n".join(["x,y", *lines, ""]))
        return path

    # Datasets

    def register(self) -> None:
        name, unit = self.random.choice(NAMES), self.random.choice([Unit(), PEOPLE])
        more: dict[str, Any] = {"holdout": Decimal("0.2")} if self.random.random() < 0.3 else {}
        if unit is PEOPLE and self.random.random() < 0.3:
            more["person"] = Budget.of("4", "0.000001")
        budget = self.random.choice(
            [Budget.of("2", "0.000001"), Budget.of("2", "0.000001", "0.0000001"), Budget.of("1")]
        )
        if "person" in more:
            more["person"] = replace(budget, epsilon=Decimal(4))
        self.ledger.register(registration(name, budget, unit=unit, commitment=self.new(), **more))

    def join(self) -> None:
        of = self.dataset()
        self.ledger.register(
            registration("joined", None, unit=of.registration.unit, families=(of.registration.name,),
                         commitment=self.new())
        )  # fmt: skip

    def append(self) -> None:
        dataset = self.dataset()
        each = WHY if dataset.registration.unit is not Unit() and self.random.random() < 0.2 else None
        block = NewBlock(dataset.registration.name, self.new(), 500, "steward", each_block=each)
        block_appending.append(self.ledger.log, block, (dataset.last or 1) + 1)

    def drop(self) -> None:
        dataset = self.dataset()
        block_appending.drop(self.ledger.log, dataset.registration.name, self.random.choice([1, 1, 2]), WHY)

    def withdraw(self) -> None:
        withdraw(self.ledger, self.dataset().registration.name, WHY)

    def retire(self) -> None:
        what = self.random.choice(["dataset", "model"])
        archive(self.ledger, what, self.random.choice(NAMES), WHY, ends=self.random.random() < 0.7)

    def total(self) -> None:
        name, epsilon = self.dataset().registration.name, Decimal(self.random.choice(["0.3", "2", "3"]))
        change = self.random.choice([self.ledger.change_budget, self.ledger.change_person_total])
        change(name, epsilon, "a test", "steward")

    def quota(self) -> None:
        share = Decimal(self.random.choice(["0.2", "0.9"]))
        self.ledger.set_quota(self.dataset().registration.name, self.random.choice("*ab"), share, "a test", "steward")

    def charge(self) -> None:
        dataset = self.dataset()
        curves = [{"rho": "0.002"}, {"epsilon": "0.01"}, {"mu": "0.02"}, {"epsilon": "0.01", "delta": "0.00000001"},
                  {"renyi": {"2": "0.001", "8": "0.005", "32": "0.02"}}]  # fmt: skip
        stated = Curve.read(self.random.choice(curves))
        document = self.random.choice([None, hexes("one"), self.new()])
        whole = Outside(stated, "a table", WHY, document, dataset.registration.unit.name, blocks=self.words(dataset),
                        another=self.random.random() < 0.2)  # fmt: skip
        charge(self.ledger, dataset.registration.name, whole)

    # Jobs

    def asked(self) -> Request:
        dataset = self.dataset()
        delta = "0.000001" if dataset.delta and self.random.random() < 0.5 else "0"
        asked = replace(request(dataset.registration.name, "0.5", delta), blocks=self.words(dataset))
        match self.random.randrange(5):
            case 0:
                part = self.random.choice([None, HOLDOUT])
                return replace(asked, kind=Profile(), model="", learner="profile", part=part)
            case 1:
                return replace(asked, kind=Contribution(self.new()), model="")
            case 2:
                certified = self.of("issued")
                name = self.ledger.log.entry(certified).value["name"]
                part = self.random.choice([None, HOLDOUT])
                return replace(asked, kind=Evaluation(certified), model=name, part=part)
        return replace(asked, promote=self.random.random() < 0.2)

    def reserve(self) -> None:
        what = self.random.choice([SMALL, SMALL, plan(Gaussian(Decimal(20)), 2), plan(PureDp(Decimal("0.1")), 4)])
        key = self.random.choice([None, self.new(), "again"])
        reserve(self.ledger, self.asked(), what, by=self.by(), key=key)

    def step(self) -> None:
        seq = self.job(State.RESERVED, State.STARTED)
        if self.ledger.job(seq).state is State.RESERVED:
            return advance(self.ledger, seq, self.random.choice(["started", "started", "started", "released"]))
        holding = next(each for each in self.ledger.leases() if each.seq == seq)
        match self.random.randrange(3):
            case 0:
                resume(self.ledger.log, holding, "owner:2:2", 60.0)
            case 1:
                self.ledger.burn(seq, "failed")
            case _ if "contributes" in self.ledger.reservation(seq).value:
                self.ledger.burn(seq, "failed")  # as they all are
            case _:
                self.ledger.commit(seq, hexes(f"released {seq}"))

    def issue(self) -> None:
        seq = self.job(State.COMMITTED)
        if self.ledger.job(seq).model and "evaluates" not in self.ledger.reservation(seq).value:
            self.ledger.issue(seq, self.new(), self.new())
        else:
            keyid = self.home.keys.signer("issuer").public_key.keyid
            evaluations.enter(self.ledger.log, seq, self.new(), keyid)

    def edit(self) -> None:
        self.ledger.derive(self.of(self.random.choice(["issued", "derived"])), self.new(), self.new(), WHY)

    def place(self) -> None:
        act = self.random.choice([model_names.PROMOTED, model_names.RETIRED, model_names.RESTORED])
        issued = self.of("issued")
        name = self.ledger.log.entry(issued).value["name"]
        model_names.record(self.ledger, act, name, self.random.randint(1, 4), issued, "a test", "steward")

    def revoke(self) -> None:
        key_life.revoke(self.home, self.of("issued"), "steward", "a test")

    # Who may do what

    def token(self) -> None:
        name = self.random.choice(["ci", "nb"])
        if self.random.random() < 0.4:
            tokens.revoke(self.ledger, name)
        else:
            scopes = self.random.choice([["train"], ["predict"], []])
            tokens.create(self.ledger, name, scopes, self.new(), principal=self.random.choice([None, "ann"]))

    def grant(self) -> None:
        if self.random.random() < 0.4:
            grants.revoke(self.ledger, self.of("grant-added"), WHY)
        else:
            kind, name = self.random.choice([("dataset", "adult"), ("family", "adult"), ("model", "adult")])
            grants.add(self.ledger, [Grant(self.by(), self.random.choice(["train", "promote"]), kind, name)], "steward")

    def schedule(self) -> None:
        name = self.random.choice(["nightly", "weekly"])
        with self.ledger.log.writing() as writer:
            match self.random.randrange(3):
                case 0:
                    schedules.remove(writer, name, "steward")
                case 1:
                    schedules.stop(writer, self.of("schedule-added"), "a test")
                case _:
                    asked = {"dataset": self.dataset().registration.name, "learner": "lazybb", "epsilon": "0.5"}
                    by = self.random.choice(["cli:cleo", "cli:dora"])
                    schedules.enter(writer, schedules.Schedule(name, "day", 0, by, asked))

    def period(self) -> None:
        with self.ledger.log.signed() as signed:
            living, _ = schedules.schedules(signed)
        if living:
            rule = self.random.choice(living)
            after = schedules.Period(rule.seq or 0, self.random.choice([0, (rule.last or (0,))[0] + 1]))
            asked = request(rule.asked["dataset"], "0.5", "0")
            self.ledger.reserve(asked, Decimal("0.02"), SMALL, by=rule.by, scheduled=after)

    def learner(self) -> None:
        name = self.random.choice(["bayes", "trees"])
        match self.random.randrange(4):
            case 0:
                learner_admissions.remove(self.ledger, name, WHY)
            case 1:
                entry = self.of("learner-admitted")
                value = self.ledger.log.entry(entry).value
                text = Admission(value["name"], value["digest"], "Bayes", "bayes.py", hexes("report"), 100, WHY)
                reserve(self.ledger, running(text, entry, self.dataset().registration.name), SMALL, by=self.by())
            case _:
                of = self.random.choice([(), ("adult",)])
                text = Admission(name, self.new(), "Bayes", "bayes.py", hexes("report"), 100, WHY, of)
                learner_admissions.admit(self.ledger, text)

    # Owners, keys, files

    def campaign(self) -> None:
        """One of a few steps of a campaign of owners in turns, or its whole life by shares."""
        definition = self.new()
        report = Release("one report of one owner", "one-of-k", "replacement", 1, PureDp(Decimal("0.1")))
        asked = {"definition": definition, "owners": 500, "least": 100, "turns": 2}
        named = Request(OWNED, "one-of-k", Budget.of("0.1"), asked, "owned")
        seq = reserve(self.ledger, named, Plan(((report, 1),))).seq
        advance(self.ledger, seq, "started")
        campaigns.open_campaign(self.ledger, seq, definition)
        for turn in range(1, self.random.choice([2, 3, 3])):
            campaigns.enter_round(self.ledger, seq, definition, turn, 60, hexes(f"released {seq}"))
        campaigns.close_campaign(self.ledger, seq, definition, self.random.choice([120, 200]))
        if self.random.random() < 0.8:
            self.ledger.commit(seq, hexes(f"released {seq}"))
        else:
            self.ledger.burn(seq, "failed")

    def key(self) -> None:
        role = self.random.choice(["issuer", "log"])
        if self.random.random() < 0.5:
            key_life.rotate(self.home, role, "steward", "a test", overlap=role == "issuer")
        else:
            old = self.random.choice([entry for entry in self.ledger.log.entries(limit=10**6)
                                      if entry.value["type"] == "key-added"] or [self.of("key-added")])  # fmt: skip
            if old.value["keyid"] == fingerprint(self.home.keys.public_key(old.value["role"])):
                return  # who ends the key in use rotates first
            act = self.random.choice([key_life.retire, key_life.mark_compromised])
            after = (self.ledger.log.size() - 1,) if act is key_life.mark_compromised else ()
            act(self.home, old.value["keyid"], *after, "steward", "a test")

    def compare(self) -> None:
        asked = Comparison(REGISTER, "copy", self.by(), self.random.choice([None, self.new(), hexes("file")]))
        record_comparison(self.ledger, asked, self.random.choice([[], ["adult"]]) if "adult" in self.names() else [])

    def names(self) -> set[str]:
        return {dataset.registration.name for dataset in self.ledger.datasets()}

    def append_rows(self) -> None:
        append(self.home, ROWS, self.file(), "steward", 40, new_rows=NewPeople("steward", "made for a test"))

    def retire_rows(self) -> None:
        archive(self.ledger, "dataset", ROWS, WHY, ends=self.random.random() < 0.5)

    def reopen(self) -> None:
        """As the next process finds it."""
        self.ledger.log.database.close()
        self.home = Home.open(place(self.home.path))
        self.ledger = self.home.ledger
