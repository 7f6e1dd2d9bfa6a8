"""How often an attack by canaries is above a sound claim, and how often it catches half of the priced noise.

    python -m studies.attacks.canaries forest 1 --attacks 3 --runs 100 >> studies/attacks/canaries.jsonl
    python -m studies.attacks.canaries report < studies/attacks/canaries.jsonl

Every run is a real fit on a canary of Adult's schema, with the noise that is priced and with half of it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from math import comb
from pathlib import Path
from typing import Any

from dpserve_verify.privacy.attack_bound import ceiling, copies_of, is_unlikely
from dpserve_verify.privacy.budget import Budget, Relation
from training.jobs import attack
from training.learners import LEARNERS
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Session

SCHEMA = Path(__file__).parents[2] / "examples" / "data" / "adult.schema.yaml"
DELTA = "0.000001"
RUNS = (100, 200, 500, 1000)  # of attacks that are told of
DRAW = Session.draw


def draw_half(self: Session, mechanism: Any, exact: Any, asked: Any) -> Any:
    """Draw with half of the noise that is priced: the bug that is to be caught."""
    doubled = DRAW(self, mechanism, 2 * exact, asked)
    return doubled if asked.norm == "range" else (doubled + 1) // 2


def target(learner: str, epsilon: str, **parameters: Any) -> attack.AttackTarget:
    """Return a learner at an epsilon, as a job on Adult would reserve it."""
    question = parse_schema(SCHEMA.read_bytes()).question(None, {})
    public = Public.of(question, Relation.ADD_REMOVE, Budget.of(epsilon, DELTA), pure=False)
    made = LEARNERS[learner]
    recipe = made(**parameters).recipe(public)
    return attack.AttackTarget(lambda: made(**parameters).learn, public, recipe.unit, recipe.plan, question, seed=1)


def run(of: attack.AttackTarget, runs: int, *, halved: bool) -> int:
    """Attack once; return how many guesses are right."""
    coins = secrets.randbits(runs)
    Session.draw = draw_half if halved else DRAW  # type: ignore[method-assign]
    try:
        return runs - (coins ^ of.guess(coins, runs)).bit_count()
    finally:
        Session.draw = DRAW  # type: ignore[method-assign]


def report(lines: list[dict[str, Any]]) -> str:
    """Return the table of a page: how often attacks of so many runs are above the claim, by the law of guesses that are
    right as often as measured.
    """
    heads = ("learner", "epsilon", "noise", "copies", "fits", "right", "claimed at most", *map(str, RUNS))
    rows: list[tuple[str, ...]] = [heads, ("---",) * len(heads)]
    names = sorted({(each["learner"], each["epsilon"], each["halved"]) for each in lines})
    for name in names:
        found = [each for each in lines if (each["learner"], each["epsilon"], each["halved"]) == name]
        fits, claimed = sum(each["runs"] for each in found), found[0]["claimed"]
        right = sum(each["right"] for each in found) / fits
        powers = (f"{power(runs, claimed, right):.3f}" for runs in RUNS)
        noise = "half" if name[2] else "as priced"
        shown = str(found[0]["copies"]), str(fits), f"{right:.3f}", f"{claimed / 10_000:.4f}"
        rows.append((*name[:2], noise, *shown, *powers))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def power(runs: int, claimed: int, right: float) -> float:
    """Return how often an attack is above a claim whose guesses are each right with this chance."""
    refuting = next((at for at in range(runs + 1) if is_unlikely(at, runs, claimed)), runs + 1)
    return sum(comb(runs, at) * right**at * (1 - right) ** (runs - at) for at in range(refuting, runs + 1))


def main() -> None:
    """Attack, and print a line of what came of each; or print the table of lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("learner")
    parser.add_argument("epsilon", nargs="?", default="1")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--attacks", type=int, default=3)
    parser.add_argument("--runs", type=int, default=100)
    asked = parser.parse_args()
    if asked.learner == "report":
        print(report([json.loads(line) for line in sys.stdin]))
        return
    parameters = {name: int(value) for name, value in (each.split("=") for each in asked.set)}
    of = target(asked.learner, asked.epsilon, **parameters)
    claimed = ceiling(of.plan, of.public.budget.epsilon, of.public.budget.delta)
    for halved in (False, True) * asked.attacks:
        line = {
            "learner": asked.learner, "epsilon": asked.epsilon, **parameters, "runs": asked.runs, "halved": halved,
            "copies": copies_of(of.plan), "claimed": claimed, "right": run(of, asked.runs, halved=halved),
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
