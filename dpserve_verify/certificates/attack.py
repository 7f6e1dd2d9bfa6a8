"""What a statement of an attack says, and how each of its figures is derived again: from coins and guesses alone."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Annotated

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.attack_bound import STEPS, ceiling, copies_of, least_chance, least_epsilon
from dpserve_verify.privacy.events import Plan

FEWEST, MOST = 20, 5000  # runs
Bits = Annotated[str, Limits(pattern="^([0-9a-f]{2})+$")]
Digest = Annotated[str, Limits(pattern="^[0-9a-f]{64}$")]
Figure = Annotated[str, Limits(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40)]
Runs = Annotated[int, Limits(low=FEWEST, high=MOST)]
Whole = Annotated[int, Limits(low=0)]


class AttackForm(Form):
    """An attack by canaries: what was drawn and guessed, and what follows."""

    runs: Runs = form_field(about="of the learner, each with one canary, who is no person")
    copies: Whole = form_field(about="units of privacy that a canary is")
    started: Whole = form_field(about="index of the entry that fixed the coins")
    secret: Digest = form_field(about="what was hashed before the coins")
    coins: Bits = form_field(about="a bit for each run, the first in the lowest: 1 where its canary was there")
    guesses: Bits = form_field(about="the same, as it was guessed")
    right: Whole = form_field(about="how many guesses are right")
    claimed: Figure = form_field(about="the largest chance of a right guess that the claim allows")
    least: Figure = form_field(about="shown: it is more than that, or that is 0")
    least_epsilon: Figure = form_field(key="leastEpsilon", about="the same, as epsilon at the claim's delta")


def commitment(secret: str, coins: str) -> str:
    """Return the digest by which coins are fixed before anything is released."""
    return hashlib.sha256(bytes.fromhex(secret) + bytes.fromhex(coins)).hexdigest()


def bits_of(text: str) -> int:
    """Return bits that are stated."""
    return int.from_bytes(bytes.fromhex(text), "little")


def count_right(runs: int, coins: str, guesses: str) -> int:
    """Return how many guesses are right."""
    return runs - (bits_of(coins) ^ bits_of(guesses)).bit_count()


def figures(runs: int, right: int, plan: Plan, epsilon: Decimal, delta: Decimal) -> dict[str, int | str]:
    """Return what follows from a number of right guesses, as it is stated."""
    copies, least = copies_of(plan), least_chance(right, runs)
    chances = {"claimed": Decimal(ceiling(plan, epsilon, delta)) / STEPS, "least": Decimal(least) / STEPS}
    decimals = {**chances, "leastEpsilon": least_epsilon(least, delta, copies)}
    return {"copies": copies, "right": right, **{name: decimal_string(each) for name, each in decimals.items()}}


def is_above(found: AttackForm) -> bool:
    """Tell whether the attack refutes the claim: the lower bound is not below the upper one."""
    return Decimal(found.least) >= Decimal(found.claimed)


def check(found: AttackForm, plan: Plan, epsilon: Decimal, delta: Decimal) -> None:
    """Derive every figure again. CertificateInvalid names the first that does not follow, and refuses a statement whose
    lower bound is not below its upper one: then the claim is not to be relied on.
    """
    runs = found.runs
    for name, bits in (("coins", found.coins), ("guesses", found.guesses)):
        if len(bits) != 2 * ((runs + 7) // 8) or bits_of(bits) >> runs:
            raise CertificateInvalid(f"attack.{name}: must be a bit for each run")
    follow = figures(runs, count_right(runs, found.coins, found.guesses), plan, epsilon, delta)
    stated = found.to_json()
    for name, value in follow.items():
        if stated[name] != value:
            raise CertificateInvalid(f"attack.{name}: does not follow, it is {value}")
    if is_above(found):
        raise CertificateInvalid(
            f"attack: shows more loss than is claimed: guesses are right with a chance above {found.least}, and at "
            f"most {found.claimed} is claimed; do not rely on this model's claim"
        )
