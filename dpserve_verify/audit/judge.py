"""What the auditor's readers of entries share: fields of entries, where a family stands, and the filter of a budget. It
is derived twice: as the ledger does, and from the definitions of PRIVACY section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.budget import Budget, from_nano, nano
from dpserve_verify.privacy.filter import Filter
from dpserve_verify.privacy.second_opinion import to_epsilon
from dpserve_verify.privacy.soundness import Figures, require

Value = Mapping[str, Any]


@lru_cache(1 << 16)
def spelt(figure: int) -> str:
    """Spell nano-units as rows and entries do; remembered, as entries about many blocks repeat them."""
    return decimal_string(from_nano(figure))


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


def read_budget(value: Value) -> Budget:
    """Return the budget as an entry spells it, in decimal strings. InputError where it is none."""
    budget = Budget(*(parse_decimal(value.get(name, "0")) for name in ("epsilon", "delta", "outside")))
    require(budget.to_entry() == value, "budget: must be in its one form")
    return budget


def judge_filter(budget: Budget, stored: Any) -> tuple[tuple[Decimal, int], ...]:
    """Return the criteria (order, cap) of an entry. LedgerInvalid unless the budget designs them and each is sound by
    the definitions alone.
    """
    require(stored == Filter.design(budget).to_json(), "filter: is not the one that the budget gives")
    weights = sum((parse_decimal(line["weight"]) for line in stored), Decimal(0))
    require(weights <= 1, "filter: the weights must sum to at most 1")
    apart = weights * budget.delta + budget.outside <= budget.delta
    require(apart, "filter: counts on what is set apart for releases made elsewhere")
    for line in stored:
        order, delta = float(line["order"]), float(budget.delta * parse_decimal(line["weight"]))
        sound = to_epsilon(order, float(line["cap"]), delta) <= float(budget.epsilon)
        require(sound, f"filter: the cap at order {order} exceeds the budget")
    return tuple((parse_decimal(line["order"]), nano(parse_decimal(line["cap"]))) for line in stored)
