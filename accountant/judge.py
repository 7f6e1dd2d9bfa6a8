"""Filters, prices and claims judged from what is stored, for the auditor alone: each is derived twice, as the ledger
does and from the definitions of PRIVACY section 2 by `accountant.definitions`, which shares no code with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from accountant.budget import NANO, Budget, nano
from accountant.canonical import decimal_string, parse_decimal
from accountant.definitions import renyi, to_epsilon
from accountant.errors import LedgerInvalid
from accountant.events import Gaussian, Plan
from accountant.filter import Filter, price_to_json
from accountant.prices import Claim, claim, price

Value = Mapping[str, Any]
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(slots=True)
class Figures:
    """A sum of prices in nano-units: pure, jobs without a pure price, and one Renyi figure per order."""

    pure: int
    unbounded: int
    rdp: tuple[int, ...]

    def plus(self, other: Figures, sign: int = 1) -> Figures:
        rdp = tuple(a + sign * b for a, b in zip(self.rdp, other.rdp, strict=True))
        return Figures(self.pure + sign * other.pure, self.unbounded + sign * other.unbounded, rdp)


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LedgerInvalid(otherwise)


def require_hex(value: Value, *names: str) -> None:
    for name in names:
        require(_HEX.fullmatch(value[name]) is not None, f"{name}: must be 64 hexadecimal digits")


def read_budget(value: Value) -> Budget:
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


def judge_price(plan: Plan, stored: Any, orders: tuple[Decimal, ...]) -> Figures:
    require(stored == _stored_price(plan, orders), "price: does not follow from the plan's events")
    found = Figures(
        nano(parse_decimal(stored["pure"])),
        stored["unbounded"],
        tuple(nano(parse_decimal(stored["rdp"][decimal_string(order)])) for order in orders),
    )
    for order, figure in zip(orders, found.rdp, strict=True):
        own = sum(count * NANO * renyi(event, float(order)) for event, count in plan.events)
        require(own <= figure <= own + 3 * len(plan), f"price: at order {order} is not that of the definitions")
    pure = [None if isinstance(event, Gaussian) else count * event.epsilon for event, count in plan.events]
    known = sum((figure for figure in pure if figure is not None), Decimal(0))
    expected = (0, 1) if None in pure else (nano(known), 0)
    require((found.pure, found.unbounded) == expected, "price: the pure sum is not that of the definitions")
    return found


@lru_cache(maxsize=4096)
def _stored_price(plan: Plan, orders: tuple[Decimal, ...]) -> dict[str, Any]:
    return price_to_json(price(plan, orders), orders)


def judge_claim(plan: Plan, asked: Budget, stored: Any) -> None:
    found = _claim(plan, asked.delta)
    order = None if found.order is None else decimal_string(Decimal(repr(found.order)))
    expected = {"epsilon": decimal_string(found.epsilon), "delta": decimal_string(asked.delta), "order": order}
    expected |= {"bound": found.bound} if "bound" in stored else {}  # the first ledgers knew two bounds and named none
    require(stored == expected, "claim: does not follow from the plan's events")
    require(found.epsilon <= asked.epsilon, f"claim: epsilon {found.epsilon} is above the {asked.epsilon} asked for")
    if found.order is not None:
        rdp = sum(count * renyi(event, found.order) for event, count in plan.events)
        own = to_epsilon(found.order, rdp, float(asked.delta))
        require(own <= float(found.epsilon) + 1e-12, "claim: is below what the definitions give")


@lru_cache(maxsize=4096)
def _claim(plan: Plan, delta: Decimal) -> Claim:
    return claim(plan, delta)
