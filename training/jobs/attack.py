"""An attack on what a learner releases, by canaries: made-up units, each there by a fair coin (docs/privacy/prices.md).

The learner of a certified model runs again and again, by the parameters, plan and noise that its job reserved, each
time on one canary or none. No row of a person is read, so it costs nothing of a budget. From what a run released it is
guessed whether its canary was there: where that is likelier with it than without, by the plan's own laws of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from accountant.access import key_life
from accountant.certificates.attack import ATTACK, METHOD
from accountant.errors import PlanMismatch
from accountant.home import Home
from accountant.ledger import attacks
from accountant.noise.mechanisms import Mechanism
from accountant.noise.objective import ObjectivePerturbation
from dpserve_verify.certificates.attack import count_right, figures, is_above
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import InputError
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.attack_bound import copies_of
from dpserve_verify.privacy.events import Gaussian, Plan, Release, plan_from_json
from dpserve_verify.system.files import PRIVATE, replace_file
from models.store.placing import open_in
from models.worth.attacks import attack_to_json
from training.datasets.made_up import made_up_columns, uniform_numbers
from training.finish.release import sign
from training.kinds.job_steps import Learn
from training.kinds.registry import steps_of
from training.measuring.planning import part_of
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, schema_of
from training.rows.tables.data import rows_of
from training.session.session import Public, Query, Rehearsal, Session

AGAINST = 1  # rows against a canary, for each of its own


class _WeighingSession(Session):
    """Plays a plan on rows without a canary or on those with it, and sums how much likelier each answer is with it."""

    def __init__(self, of: AttackTarget, without: Rows, within: Rows, *, inside: bool) -> None:
        super().__init__(of.public, of.unit, of.plan, within if inside else without)
        self.both, self.likelier = (without, within), 0.0

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Release as a session does."""
        self._query = query
        return super().release(query, mechanism)

    def draw(self, mechanism: Mechanism, exact: Any, asked: Release) -> Any:
        """Draw, and weigh the answer: by both exact answers alike, whichever it was drawn from."""
        answer = super().draw(mechanism, exact, asked)
        if not isinstance(mechanism, ObjectivePerturbation):  # a minimum of a loss: it tells nothing here
            without, within = (log_chance(asked, answer, np.asarray(self._query(rows))) for rows in self.both)
            self.likelier += within - without
        return answer


def log_chance(asked: Release, answer: Any, exact: Any) -> float:
    """Return the logarithm of the chance of an answer, up to what is the same for all `exact` ones."""
    if asked.norm == "range":
        powers = np.atleast_2d(exact) * float(asked.event.pure or 0) / asked.sensitivity
        chosen = powers[np.arange(len(powers)), np.atleast_1d(answer).astype(int)]
        return float(np.sum(chosen - np.logaddexp.reduce(powers, axis=1)))
    away = (answer - exact) / asked.sensitivity
    if isinstance(asked.event, Gaussian):
        return float(-np.sum(away**2) / (2 * float(asked.event.noise_multiplier) ** 2))
    return float(-np.sum(np.abs(away)) * float(asked.event.pure or 0))


@dataclass(frozen=True)
class AttackTarget:
    """A learner as a job reserved it, to be played on rows of its schema that are made up by `seed`."""

    learn: Callable[[], Learn]
    public: Public
    unit: Decimal
    plan: Plan
    schema: Schema
    seed: int

    def canaries(self, count: int) -> tuple[pa.Table, pa.Table]:
        """Make up a row for each canary, with an answer by chance, and the same rows with another answer."""
        table = pa.table(made_up_columns(self.schema, count, self.seed))
        chances = uniform_numbers(self.seed, "canary", "answer", count)
        answers: Sequence[Any] = self.schema.classes or self.schema.target_range or (0.0, 1.0)
        picked = [int(chance * len(answers)) for chance in chances]
        at, name = table.column_names.index(self.schema.target), self.schema.target
        one, other = (
            table.set_column(at, name, pa.array([answers[(pick + far) % len(answers)] for pick in picked]))
            for far in (0, 1)
        )
        return one, other

    def guess(self, coins: int, runs: int, tell: Callable[[int], None] = lambda done: None) -> int:
        """Run so often, each time with a canary where its coin says so, and guess each time whether it was there. Rows
        against it are always there: what is learned of them is wrong of it, so that it keeps its full weight. The coins
        tell on which rows it is played, and nothing else.
        """
        (canaries, against), guesses = self.canaries(runs), 0
        rows = copies_of(self.plan) * self.public.contributions
        for at in range(runs):
            always, canary = against.take([at] * rows * AGAINST), canaries.take([at] * rows)
            without, within = self.rows(always), self.rows(pa.concat_tables([always, canary]))
            session = _WeighingSession(self, without, within, inside=bool(coins >> at & 1))
            self.learn()(session)
            session.close()
            guesses |= (session.likelier > 0) << at
            tell(at + 1)
        return guesses

    def rows(self, table: pa.Table) -> Rows:
        """Return a table as rows that a learner may ask."""
        return rows_of(self.schema, table, table[self.schema.target], self.public.relation)


def attack(home: Home, name: str, by: str, tell: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Make the attack that was registered when a model was trained, state and enter it; return what it shows.

    InputError where none was registered, WrongState where it was begun before: it is made once.
    """
    issued = open_in(home, name).verified.certificate.issued
    seq = home.ledger.log.entry(issued).value["reservation"]
    if home.ledger.job(seq).issued != issued:
        raise InputError(f"model={name}: was edited; attack the version that it came from")
    steps, stored = steps_of(home, seq), home.ledger.reservation(seq).value
    runs = steps.request.attack
    if not runs:
        raise InputError(
            f"model={name}: no attack was registered when it was trained; train a version that has one: "
            f"dpserve train {steps.request.dataset} --model {name.partition('@')[0]} --attack 200 --epsilon E"
        )
    dataset = home.ledger.dataset_of(seq)
    schema = schema_of(home, dataset)
    of = AttackTarget(
        lambda: steps.learner(schema), steps.public(dataset, schema), Decimal(stored["unit"]),
        plan_from_json(stored["plan"]), steps.question(schema), seq,
    )  # fmt: skip
    rehearsal = Rehearsal(of.public, of.unit)
    of.learn()(rehearsal)
    if rehearsal.plan != of.plan:
        raise PlanMismatch(f"model={name}: this version of dpserve would train it otherwise, and cannot attack it")
    drawn = attacks.start(home.ledger, seq, runs, by)
    guesses = of.guess(drawn.bits, runs, tell).to_bytes((runs + 7) // 8, "little").hex()
    claim = Decimal(stored["claim"]["epsilon"]), Decimal(stored["claim"]["delta"])
    found = {
        "runs": runs, "started": drawn.entry, "secret": drawn.secret, "coins": drawn.coins, "guesses": guesses,
        **figures(runs, count_right(runs, drawn.coins, guesses), of.plan, *claim),
    }  # fmt: skip
    entry = home.ledger.log.entry(issued).value
    payload = ATTACK.encode(
        {"model": {"name": entry["name"], "certificate": issued}, "attack": found, "method": METHOD, "level": "0.95"},
        {}, part_of(dataset, steps.request), dataset, steps.request, of.plan,
        {"origin": home.ledger.log.origin, "reservation": seq, "leaf": home.ledger.reservation_hash(seq)},
        (entry["name"], entry["model"]),
    )  # fmt: skip
    return state(home, seq, payload, drawn.digest)


def state(home: Home, seq: int, payload: bytes, coins: str) -> dict[str, Any]:
    """Sign the statement, enter it, and put it in its place with its proof."""
    predicate = ATTACK.read(payload)[1].predicate
    found = predicate.attack
    bound = {"started": found.started, "coins": coins, "runs": found.runs, "right": found.right}
    place = ATTACK.place(home, seq)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    envelope = sign(home, place / ATTACK.envelope_file, payload)
    index = attacks.enter(
        home.ledger, seq, digest(dsse.parse(envelope).payload), bound, is_above(found), key_life.signed_by(envelope)
    )
    replace_file(place / ATTACK.proof_file, home.ledger.log.proof(index).encode(), PRIVATE, alone=True)
    return {"job": seq, "entry": index, **attack_to_json(predicate), "statement": str(ATTACK.file(home, seq))}
