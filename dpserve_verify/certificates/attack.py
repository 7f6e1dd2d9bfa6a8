"""What a statement of an attack says, and how each of its figures is derived again: from coins and guesses alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.attack_bound import STEPS, of_epsilon, of_rho, refutes, rho_of
from dpserve_verify.privacy.events import Plan

FEWEST, MOST = 20, 5000  # canaries
LEVEL = Decimal("0.025")  # of each of the two bounds: both hold with .95
Hex = Annotated[str, Limits(pattern="^([0-9a-f]{2})+$")]
Digest = Annotated[str, Limits(pattern="^[0-9a-f]{64}$")]
Figure = Annotated[str, Limits(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40)]
Canary = Annotated[int, Limits(low=0, high=MOST - 1)]
Canaries = Annotated[int, Limits(low=FEWEST, high=MOST)]


def guesses_of(canaries: int) -> int:
    """Return of how many canaries it is guessed: one of ten, an even number, which has the most power."""
    return canaries // 20 * 2


class AttackForm(Form):
    """An attack by canaries: what was drawn and guessed, and what follows."""

    canaries: Canaries = form_field(about="rows that were made up; no person's")
    started: Annotated[int, Limits(low=0)] = form_field(about="index of the entry that fixed the coins")
    secret: Digest = form_field(about="what was hashed before the coins")
    coins: Hex = form_field(about="a bit for each canary, the first in the lowest: 1 where it is in")
    guessed_in: list[Canary] = form_field(key="in", about="canaries that are guessed to be in, in order")
    guessed_out: list[Canary] = form_field(key="out", about="and those that are guessed not to be")
    right: Annotated[int, Limits(low=0)]
    rho: Figure = form_field(about="claimed: the Renyi divergence at every order a is at most a times that")
    least_rho: Figure = form_field(key="leastRho", about="shown: it is more than that, or that is 0")
    least_epsilon: Figure = form_field(key="leastEpsilon", about="shown, at the claim's delta")


def commitment(secret: str, coins: str) -> str:
    """Return the digest by which coins are fixed before anything is released."""
    return hashlib.sha256(bytes.fromhex(secret) + bytes.fromhex(coins)).hexdigest()


def count_right(coins: str, inside: Sequence[int], outside: Sequence[int]) -> int:
    """Return how many guesses are right."""
    bits = int.from_bytes(bytes.fromhex(coins), "little")
    return sum(bits >> at & 1 for at in inside) + sum(1 - (bits >> at & 1) for at in outside)


def is_above(found: AttackForm, epsilon: Decimal) -> bool:
    """Tell whether the attack refutes the claim: a lower bound is above the upper one."""
    return parse_decimal(found.least_epsilon) > epsilon or parse_decimal(found.least_rho) > parse_decimal(found.rho)


def is_refuted(canaries: int, right: int, rho: Decimal, epsilon: Decimal, delta: Decimal) -> bool:
    """Tell from the number of right guesses alone whether they refute a claim: the next step above one of its figures
    would still be shown. The same as `is_above` of bounds that follow.
    """
    promises = ((rho, of_rho), (epsilon, lambda least: of_epsilon(least, delta)))
    above = [promise(Decimal(int(Fraction(claimed) * STEPS) + 1) / STEPS) for claimed, promise in promises]
    return any(refutes(canaries, guesses_of(canaries), right, LEVEL, each) for each in above)


def check(found: AttackForm, plan: Plan, epsilon: Decimal, delta: Decimal) -> None:
    """Derive every figure again. CertificateInvalid names the first that does not follow, and refuses a statement whose
    lower bound is above its upper one: then the claim is not to be relied on.
    """
    m, inside, outside = found.canaries, found.guessed_in, found.guessed_out
    k = guesses_of(m)
    _require(len(found.coins) == 2 * ((m + 7) // 8) and int.from_bytes(bytes.fromhex(found.coins), "little") >> m == 0,
             "coins: must be a bit for each canary")  # fmt: skip
    sound = all(list(each) == sorted({*each}) and len(each) == k // 2 for each in (inside, outside))
    _require(sound and not {*inside} & {*outside}, f"in, out: must be {k // 2} canaries each, in order and apart")
    _require(max(inside + outside) < m, "in, out: must be of the canaries")
    _require(found.right == count_right(found.coins, inside, outside), "right: does not follow from coins and guesses")
    _require(parse_decimal(found.rho) == rho_of((r.event, n) for r, n in plan.runs), "rho: not that of the mechanisms")
    promises: tuple[tuple[str, str, Any], ...] = (
        ("leastRho", found.least_rho, of_rho),
        ("leastEpsilon", found.least_epsilon, lambda at: of_epsilon(at, delta)),
    )
    for name, stated, promise in promises:
        least, step = parse_decimal(stated), Decimal(1) / STEPS
        _require(least % step == 0, f"{name}: must be in steps of {step}")
        shown = not least or refutes(m, k, found.right, LEVEL, promise(least))
        _require(shown and not refutes(m, k, found.right, LEVEL, promise(least + step)), f"{name}: does not follow")
    if is_above(found, epsilon):
        raise CertificateInvalid(
            f"attack: shows more loss than is claimed: epsilon {found.least_epsilon} above {epsilon}, or rho "
            f"{found.least_rho} above {found.rho}; do not rely on this model's claim"
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise CertificateInvalid(f"attack.{message}")
