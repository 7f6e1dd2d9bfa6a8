"""Filters, prices and claims judged from what is stored, for the auditor alone: each is derived twice, as the ledger
does and from the definitions of PRIVACY section 2 by `accountant.privacy.second_opinion`, which shares no code with it.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil
from operator import add, sub
from typing import Any

from accountant.budget import NANO, Budget, from_nano, nano
from accountant.canonical import decimal_string, parse_decimal
from accountant.errors import LedgerInvalid
from accountant.privacy.claims import ADAPTIVE, BOUNDS, FIRST_BOUNDS, GAUSSIAN, PURE, RENYI, Claim, claim, price
from accountant.privacy.events import Gaussian, Plan, RepeatAndSelect, plan_from_json
from accountant.privacy.filter import Filter, price_to_json
from accountant.privacy.second_opinion import (
    adaptive_delta,
    discrete_gaussian_mu,
    gaussian_delta,
    pure,
    renyi,
    to_epsilon,
)

Value = Mapping[str, Any]
_NO_REFERENCES = 2  # the format in which equal values have equal bytes, and no others have them
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@lru_cache(1 << 16)
def spelt(figure: int) -> str:
    """Nano-units as rows and entries spell them: entries about many blocks repeat them."""
    return decimal_string(from_nano(figure))


@dataclass(slots=True)
class Figures:
    """A sum of prices in nano-units: pure, jobs without a pure price, and one Renyi figure per order."""

    pure: int
    unbounded: int
    rdp: tuple[int, ...]

    def plus(self, other: Figures, sign: int = 1) -> Figures:
        """The sum with `sign` (1 or -1) times `other`. LedgerInvalid where the orders are not the same in number."""
        if len(self.rdp) != len(other.rdp):
            raise LedgerInvalid("price: must have a figure for every order")
        rdp = tuple(map(add if sign > 0 else sub, self.rdp, other.rdp))
        return Figures(self.pure + sign * other.pure, self.unbounded + sign * other.unbounded, rdp)


@dataclass(frozen=True)
class Account:
    """Where a family's budget stands, for a certificate that says so. `epsilon`: what `used` comes to; `rdp`: its
    figures with their orders; `whole`: whether one job took the whole total; `person`: it is of one person over all
    blocks.
    """

    family: str
    budget: Budget
    largest: Decimal
    used: Figures
    rdp: tuple[tuple[Decimal, int], ...]
    epsilon: Decimal
    whole: bool
    person: bool = False


def require(holds: bool, otherwise: str) -> None:
    """LedgerInvalid with the words `otherwise`, unless it holds."""
    if not holds:
        raise LedgerInvalid(otherwise)


def require_hex(value: Value, *names: str) -> None:
    """LedgerInvalid unless each of these fields is a SHA-256 digest in lower-case hexadecimal."""
    for name in names:
        require(_HEX.fullmatch(value[name]) is not None, f"{name}: must be 64 hexadecimal digits")


def read_budget(value: Value) -> Budget:
    """The budget as an entry spells it, in decimal strings. InputError where it is none."""
    return Budget(parse_decimal(value["epsilon"]), parse_decimal(value["delta"]))


def judge_filter(budget: Budget, stored: Any) -> tuple[tuple[Decimal, int], ...]:
    """The stored criteria are those that the budget designs, and each is sound by the definitions alone."""
    require(stored == Filter.design(budget).to_json(), "filter: is not the one that the budget gives")
    weights = sum((parse_decimal(line["weight"]) for line in stored), Decimal(0))
    require(weights <= 1, "filter: the weights must sum to at most 1")
    for line in stored:
        order, delta = float(line["order"]), float(budget.delta * parse_decimal(line["weight"]))
        sound = to_epsilon(order, float(line["cap"]), delta) <= float(budget.epsilon)
        require(sound, f"filter: the cap at order {order} exceeds the budget")
    return tuple((parse_decimal(line["order"]), nano(parse_decimal(line["cap"]))) for line in stored)


def judge_job(value: Value, orders: tuple[Decimal, ...]) -> tuple[Budget, int, Figures]:
    """What a reservation asked for, how many releases it plans, and their price. Jobs are often alike: content that was
    judged once is known by its bytes.
    """
    parts = [value[part] for part in ("epsilon", "delta", "plan", "price", "claim")]
    return _judge_job(marshal.dumps(parts, _NO_REFERENCES), orders)


@lru_cache(maxsize=4096)
def _judge_job(content: bytes, orders: tuple[Decimal, ...]) -> tuple[Budget, int, Figures]:
    epsilon, delta, planned, cost, claimed = marshal.loads(content)
    asked, plan = Budget(parse_decimal(epsilon), parse_decimal(delta)), plan_from_json(planned)
    one_form = plan.to_json() == planned and len(plan) > 0
    require(one_form, "plan: must be in the one form that plans are stored in")
    figures = judge_price(plan, cost, orders)
    judge_claim(plan, asked, claimed)
    return asked, len(plan), figures


def judge_price(plan: Plan, stored: Any, orders: tuple[Decimal, ...]) -> Figures:
    """The price that an entry states for `plan`. LedgerInvalid unless it follows from the plan's events twice over: by
    the formulas that charged it, and by the definitions."""
    require(stored == _stored_price(plan, orders), "price: does not follow from the plan's events")
    figures = Figures(
        nano(parse_decimal(stored["pure"])),
        stored["unbounded"],
        tuple(nano(parse_decimal(stored["rdp"][decimal_string(order)])) for order in orders),
    )
    for order, figure in zip(orders, figures.rdp, strict=True):
        low, high = _renyi_range(plan, float(order))
        require(low <= figure <= high, f"price: at order {order} is not that of the definitions")
    whole = _pure(plan)
    expected = (0, 1) if whole is None else (whole, 0)
    require((figures.pure, figures.unbounded) == expected, "price: the pure sum is not that of the definitions")
    return figures


@lru_cache(maxsize=4096)
def _pure(plan: Plan) -> int | None:
    """In nano-units; each event's is rounded up, then multiplied."""
    known = [(pure(event), count) for event, count in plan.events]
    return (
        None
        if any(each is None for each, _ in known)
        else sum(count * ceil((each or 0) * NANO) for each, count in known)
    )


@lru_cache(maxsize=65536)
def _renyi_range(plan: Plan, order: float) -> tuple[float, float]:
    """What the definitions allow for the figure at `order`, in nano-units: rounded up, and not by much. The figure of a
    private selection is the best that a search finds, and two searches agree within one percent."""
    low = high = 0.0
    for event, count in plan.events:
        own, searched = count * NANO * renyi(event, order), isinstance(event, RepeatAndSelect)
        low += own * (1 - 0.01 * searched)
        high += own * (1 + 0.01 * searched) + 3 * count
    return low, high


@lru_cache(maxsize=4096)
def _stored_price(plan: Plan, orders: tuple[Decimal, ...]) -> dict[str, Any]:
    return price_to_json(price(plan, orders), orders)


def judge_claim(plan: Plan, asked: Budget, stored: Any) -> None:
    """The stored claim is the one the plan supports, and sound by the definitions alone."""
    named = "bound" in stored  # the first ledgers knew two bounds and named none
    recomputed = claim(plan, asked.delta, BOUNDS if named else FIRST_BOUNDS)
    order = None if recomputed.order is None else decimal_string(Decimal(repr(recomputed.order)))
    expected = {"epsilon": decimal_string(recomputed.epsilon), "delta": decimal_string(asked.delta), "order": order}
    require(
        stored == (expected | {"bound": recomputed.bound} if named else expected),
        "claim: does not follow from the plan",
    )
    require(
        recomputed.epsilon <= asked.epsilon,
        f"claim: epsilon {recomputed.epsilon} is above the {asked.epsilon} asked for",
    )
    require(_sound(plan, recomputed), "claim: is below what the definitions give")


@lru_cache(maxsize=4096)
def _sound(plan: Plan, found: Claim) -> bool:
    """Whether the bound that the claim names holds at its epsilon, by `accountant.privacy.second_opinion`."""
    epsilon, delta = float(found.epsilon), float(found.delta)
    if found.bound == PURE:
        whole = _pure(plan)
        return whole is not None and Decimal(whole) / NANO <= found.epsilon
    if found.bound == RENYI and found.order is not None:
        least, _ = _renyi_range(plan, found.order)
        return to_epsilon(found.order, least / NANO, delta) <= epsilon + 1e-12
    if found.bound == GAUSSIAN:
        return gaussian_delta(float(_squared_mu(plan)), epsilon) <= delta * (1 + 1e-9)
    if found.bound == ADAPTIVE:
        return _adaptive_delta(plan, epsilon, delta) <= delta * (1 + 1e-6)
    return False


def _squared_mu(plan: Plan) -> Fraction:
    total = Fraction(0)
    for release, count in plan.runs:
        require(isinstance(release.event, Gaussian), "claim: this bound is for Gaussian releases alone")
        if isinstance(release.event, Gaussian):
            total += count * discrete_gaussian_mu(release.event.noise_multiplier, release.sensitivity)
    return total


def _adaptive_delta(plan: Plan, epsilon: float, delta: float) -> float:
    """On the accountant's step, over a wider grid. Both are public choices: the bound holds whatever they are."""
    from accountant.privacy.adaptive import board_of  # loads a compiler

    board = board_of(plan.events, delta)
    return 1.0 if board is None else adaptive_delta(plan.events, epsilon, board.step, board.size + board.size // 8)
