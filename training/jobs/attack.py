"""An attack on what a learner releases, by canaries: made-up rows, each there by a fair coin (docs/privacy/prices.md).

The learner of a certified model runs once more, by the parameters, plan and noise that its job reserved, on canaries
alone. No row of a person is read, so it costs nothing of a budget. From what that run released, and without the coins,
it is guessed of some canaries whether they are there; the auditor's arithmetic says what the guesses show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.access import key_life
from accountant.certificates.attack import ATTACK, METHOD
from accountant.errors import PlanMismatch
from accountant.home import Home
from accountant.ledger import attacks
from accountant.noise.mechanisms import Mechanism
from accountant.noise.objective import ObjectivePerturbation
from dpserve_verify.certificates import attack as auditor
from dpserve_verify.certificates.attack import count_right, guesses_of, is_above
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.attack_bound import lower_bound, of_epsilon, of_rho, rho_of
from dpserve_verify.privacy.events import Plan, Release, plan_from_json
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
from training.session.session import Integers, Public, Rehearsal, Session

Floats = NDArray[np.float64]
Taken = tuple[Release, Any, Any]  # the line of the plan, what stood before the noise, the answer


class _Tape(Session):
    """Plays a plan and writes down each release; with `answers`, those are given in place of draws."""

    def __init__(self, public: Public, unit: Decimal, plan: Plan, rows: Rows, answers: list[Any] | None) -> None:
        super().__init__(public, unit, plan, rows)
        self.taken: list[Taken] = []
        self._given = answers

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Draw, or answer as it was answered before."""
        answer = super().draw(mechanism, exact, asked) if self._given is None else self._given[len(self.taken)]
        kept = None if isinstance(mechanism, ObjectivePerturbation) else np.asarray(exact, np.float64)
        self.taken.append((asked, kept, answer))
        return answer


@dataclass(frozen=True)
class Attacked:
    """A learner as a job reserved it, to be played on rows of its schema that are made up by `seed`."""

    learn: Callable[[], Learn]
    public: Public
    unit: Decimal
    plan: Plan
    schema: Schema
    seed: int

    def canaries(self, count: int) -> pa.Table:
        """Make up a row for each canary, with an answer by chance, and one more that is always there."""
        table = pa.table(made_up_columns(self.schema, count + 1, self.seed))
        chances = uniform_numbers(self.seed, "canary", "answer", count + 1)
        classes, ends = self.schema.classes, self.schema.target_range or (0.0, 1.0)
        picked = [chance >= 0.5 for chance in chances]
        answers = (
            pa.array([ends[each] for each in picked])
            if classes is None
            else pa.array([classes[int(chance * len(classes))] for chance in chances])
        )
        at = table.column_names.index(self.schema.target)
        return table.set_column(at, self.schema.target, answers)

    def play(self, table: pa.Table, answers: list[Any] | None = None) -> list[Taken]:
        """Play the plan on a table, each row as often as one unit may have it."""
        some = pa.concat_tables([table] * self.public.contributions)
        rows = rows_of(self.schema, some, some[self.schema.target], self.public.relation)
        session = _Tape(self.public, self.unit, self.plan, rows, answers)
        self.learn()(session)
        session.close()
        return session.taken

    def scores(self, coins: NDArray[np.bool_], tell: Callable[[int], None] = lambda done: None) -> Floats:
        """Play once with noise on the canaries that are in, and score each canary by how much likelier what was
        released is with it than without, beside the row that is always there: played again on each by itself, with the
        answers that were released. The coins are used for nothing but the first play.
        """
        table = self.canaries(len(coins))
        always = table.slice(len(coins))
        released = self.play(pa.concat_tables([always, table.filter(pa.array([*coins.tolist(), False]))]))
        answers = [answer for _, _, answer in released]
        base = self.play(always, answers)
        seen, moves = _seen(base), np.empty((len(coins), sum(len(part) for part in _seen(base))))
        for at in range(len(coins)):
            moves[at] = moves_by(self.play(pa.concat_tables([always, table.slice(at, 1)]), answers), base)
            tell(at + 1)
        return tell_apart(moves, np.concatenate(seen))


def _seen(base: list[Taken]) -> list[Floats]:
    """Return what was released in units of its noise, less what would be expected of the row that is always there."""
    parts = []
    for asked, exact, answer in base:
        if exact is None:  # a minimum of a loss: it tells nothing here
            continue
        if asked.norm != "range":
            parts.append(np.ravel(answer - exact) / noise_of(asked))
            continue
        chances = _chances(asked, exact)
        chosen = np.zeros_like(chances)
        chosen[np.arange(len(chances)), np.atleast_1d(answer).astype(int)] = 1
        parts.append(np.ravel((chosen - chances) / np.sqrt(chances)))
    return parts


def moves_by(with_it: list[Taken], base: list[Taken]) -> Floats:
    """Return by how much a canary moves what `_seen` gives, in the same units: of a choice, to first order."""
    parts = []
    for (asked, one, _), (_, other, _) in zip(with_it, base, strict=True):
        if one is None or other is None:
            continue
        move = one - other
        if asked.norm != "range":
            parts.append(np.ravel(move) / noise_of(asked))
            continue
        chances, move = _chances(asked, other), np.atleast_2d(move) * float(asked.event.pure or 0) / asked.sensitivity
        parts.append(np.ravel((move - (chances * move).sum(axis=1, keepdims=True)) * np.sqrt(chances)))
    return np.concatenate(parts)


def noise_of(asked: Release) -> float:
    """Return the standard deviation of the noise in each number."""
    return float(asked.sensitivity * (asked.event.deviation or 1))


def _chances(asked: Release, exact: Floats) -> Floats:
    """Return the chance of each choice, row by row, by the exponential mechanism."""
    powers = np.atleast_2d(exact) * float(asked.event.pure or 0) / asked.sensitivity
    return np.maximum(np.exp(powers - np.logaddexp.reduce(powers, axis=1, keepdims=True)), 1e-12)


def tell_apart(moves: Floats, seen: Floats) -> Floats:
    """Return a score for each canary: the best linear estimate of its coin from all that was seen, whose noise has the
    variance 1 and whose coins have 1/4, so that canaries which move the same answers are told apart.
    """
    matched = moves @ (seen - moves.sum(axis=0) / 2)
    return np.asarray(np.linalg.solve(moves @ moves.T + 4 * np.eye(len(moves)), matched))


def guess(scores: Floats, count: int) -> tuple[list[int], list[int]]:
    """Return the canaries that are guessed to be in, and not to be: of the highest and the lowest scores."""
    order = np.argsort(scores, kind="stable").tolist()
    return sorted(order[len(order) - count // 2 :]), sorted(order[: count // 2])


def figures(canaries: int, right: int, plan: Plan, delta: Decimal) -> dict[str, Decimal]:
    """Return the claimed rho, and the bounds that so many right guesses show."""
    guesses, level = guesses_of(canaries), auditor.LEVEL
    return {
        "rho": rho_of((release.event, count) for release, count in plan.runs),
        "leastRho": lower_bound(canaries, guesses, right, level, of_rho),
        "leastEpsilon": lower_bound(canaries, guesses, right, level, lambda at: of_epsilon(at, delta)),
    }


def attack(home: Home, name: str, by: str, tell: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Make the attack that was registered when a model was trained, state and enter it; return what it shows.

    InputError where none was registered, WrongState where it was begun before: it is made once.
    """
    issued = open_in(home, name).verified.certificate.issued
    seq = home.ledger.log.entry(issued).value["reservation"]
    if home.ledger.job(seq).issued != issued:
        raise InputError(f"model={name}: was edited; attack the version that it came from")
    steps, stored = steps_of(home, seq), home.ledger.reservation(seq).value
    count = steps.request.attack
    if not count:
        raise InputError(f"model={name}: no attack was registered when it was trained; dpserve train --attack 1000")
    dataset = home.ledger.dataset_of(seq)
    schema = schema_of(home, dataset)
    of = Attacked(
        lambda: steps.learner(schema), steps.public(dataset, schema), Decimal(stored["unit"]),
        plan_from_json(stored["plan"]), steps.question(schema), seq,
    )  # fmt: skip
    rehearsal = Rehearsal(of.public, of.unit)
    of.learn()(rehearsal)
    if rehearsal.plan != of.plan:
        raise PlanMismatch(f"model={name}: this version of dpserve would train it otherwise, and cannot attack it")
    drawn = attacks.start(home.ledger, seq, count, by)
    scores = of.scores(np.array([drawn.bits >> at & 1 for at in range(count)], bool), tell)
    inside, outside = guess(scores, guesses_of(count))
    right = count_right(drawn.coins, inside, outside)
    shown = figures(count, right, of.plan, steps.request.budget.delta)
    entry = home.ledger.log.entry(issued).value
    found = {
        "canaries": count, "started": drawn.entry, "secret": drawn.secret, "coins": drawn.coins, "in": inside,
        "out": outside, "right": right, **{key: decimal_string(each) for key, each in shown.items()},
    }  # fmt: skip
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
    bound = {"started": found.started, "coins": coins, "canaries": found.canaries, "right": found.right}
    refuted = is_above(found, Decimal(predicate.claim.epsilon))
    place = ATTACK.place(home, seq)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    envelope = sign(home, place / ATTACK.envelope_file, payload)
    index = attacks.enter(
        home.ledger, seq, digest(dsse.parse(envelope).payload), bound, refuted, key_life.signed_by(envelope)
    )
    replace_file(place / ATTACK.proof_file, home.ledger.log.proof(index).encode(), PRIVATE, alone=True)
    return {"job": seq, "entry": index, **attack_to_json(predicate), "statement": str(ATTACK.file(home, seq))}
