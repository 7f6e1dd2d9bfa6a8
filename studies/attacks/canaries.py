"""How often an attack by canaries is above a sound claim, and how often it catches half of the priced noise.

    python -m studies.attacks.canaries --fits 1000 --halved 100 > studies/attacks/canaries.jsonl
    python -m studies.attacks.canaries --report < studies/attacks/canaries.jsonl

Every fit is a real one, of `forest` with 8 trees of depth 8 on canaries of Adult's schema. Its trees are public,
so how far a canary moves each answer is the same in every fit: it is played once.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpserve_verify.certificates.attack import LEVEL, guesses_of
from dpserve_verify.privacy.attack_bound import of_epsilon, of_rho, refutes, rho_of
from dpserve_verify.privacy.budget import Budget, Relation
from training.jobs import attack
from training.learners.forest import DPRandomForestClassifier
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Session

SCHEMA = Path(__file__).parents[2] / "examples" / "data" / "adult.schema.yaml"
EPSILONS, DELTA, CANARIES = ("1", "2", "4", "8", "0.5"), "0.000001", 1000
DRAW = Session.draw


def draw_half(self: Session, mechanism: Any, exact: Any, asked: Any) -> Any:
    """Draw with half of the noise that is priced: the bug that is to be caught."""
    doubled = mechanism.draw(2 * exact, asked.sensitivity)
    return doubled if asked.norm == "range" else (doubled + 1) // 2


def target(epsilon: str, **parameters: Any) -> attack.Attacked:
    """Return the learner at an epsilon, as a job on Adult would reserve it."""
    question = parse_schema(SCHEMA.read_bytes()).question(None, {})
    public = Public.of(question, Relation.ADD_REMOVE, Budget.of(epsilon, DELTA), pure=False)
    recipe = DPRandomForestClassifier(**parameters).recipe(public)
    return attack.Attacked(
        lambda: DPRandomForestClassifier(**parameters).learn, public, recipe.unit, recipe.plan, question, seed=1
    )


def run(epsilon: str, moves: Any, fits: int, *, halved: bool) -> dict[str, Any]:
    """Attack so many fits. `moves`: of each canary, in the answers' own unit."""
    of, guesses = target(epsilon, trees=8, depth=8), guesses_of(CANARIES)
    table = of.canaries(CANARIES)
    always, rights = table.slice(CANARIES), []
    base, decode = np.concatenate([np.ravel(exact) for _, exact, _ in BASE]), None
    Session.draw = draw_half if halved else DRAW  # type: ignore[method-assign]
    try:
        for _ in range(fits):
            coins = np.array([secrets.randbits(1) for _ in range(CANARIES)], bool)
            released = of.play(pa.concat_tables([always, table.filter(pa.array([*coins.tolist(), False]))]))
            asked, seen = released[0][0], np.concatenate([np.ravel(answer) for _, _, answer in released])
            noise = attack.noise_of(asked)
            if decode is None:  # what `attack.tell_apart` solves for each fit anew
                unit = moves / noise
                decode = np.linalg.solve(unit @ unit.T + 4 * np.eye(CANARIES), unit)
            scores = decode @ ((seen - base - moves.sum(axis=0) / 2) / noise)
            inside, outside = attack.guess(scores, guesses)
            rights.append(int(coins[inside].sum() + (~coins[outside]).sum()))
    finally:
        Session.draw = DRAW  # type: ignore[method-assign]
    rho = rho_of((release.event, count) for release, count in of.plan.runs)
    caught = (
        _least_that_refutes(guesses, of_rho(rho)),
        _least_that_refutes(guesses, of_epsilon(of.public.budget.epsilon, of.public.budget.delta)),
    )
    above = [right for right in rights if right >= min(caught)]
    middle = attack.figures(CANARIES, sorted(rights)[len(rights) // 2], of.plan, of.public.budget.delta)
    return {
        "epsilon": epsilon,
        "halved": halved,
        "fits": fits,
        "above": len(above),
        "right": sum(rights) / len(rights),
        "guesses": guesses,
        "rho": str(rho),
        "leastRho": str(middle["leastRho"]),
        "leastEpsilon": str(middle["leastEpsilon"]),
    }


def _least_that_refutes(guesses: int, promise: Any) -> int:
    """Return the fewest right guesses that refute a promise."""
    low, high = guesses // 2, guesses + 1
    while low < high:
        right = (low + high) // 2
        if refutes(CANARIES, guesses, right, LEVEL, promise):
            high = right
        else:
            low = right + 1
    return low


def report(lines: list[dict[str, Any]]) -> str:
    """Return the table of a page."""
    heads = ("epsilon", "noise", "fits", "right", "rho claimed", "rho at least", "epsilon at least", "above the claim")
    rows: list[tuple[str, ...]] = [heads, ("---:",) * len(heads)]
    for each in lines:
        noise, right = "half of it" if each["halved"] else "as priced", f"{each['right']:.0f} of {each['guesses']}"
        shown = each["rho"], each["leastRho"], each["leastEpsilon"], f"**{each['above'] / each['fits']:.1%}**"
        rows.append((each["epsilon"], noise, str(each["fits"]), right, *shown))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


BASE: list[Any] = []


def main() -> None:
    """Run, or print the table of lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--halved", type=int, default=100)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if asked.report:
        print(report([json.loads(line) for line in sys.stdin]))
        return
    of = target("1", trees=8, depth=8)
    table = of.canaries(CANARIES)
    always = table.slice(CANARIES)
    answers = [answer for _, _, answer in of.play(always)]
    BASE[:] = of.play(always, answers)
    base = np.concatenate([np.ravel(exact) for _, exact, _ in BASE])
    alone = (of.play(pa.concat_tables([always, table.slice(at, 1)]), answers) for at in range(CANARIES))
    moves = np.array([np.concatenate([np.ravel(exact) for _, exact, _ in each]) for each in alone]) - base
    for epsilon in EPSILONS:
        for halved in (False, True):
            fits = asked.halved if halved else asked.fits if epsilon == "1" else asked.fits // 10
            print(json.dumps(run(epsilon, moves, fits, halved=halved)), flush=True)


if __name__ == "__main__":
    main()
