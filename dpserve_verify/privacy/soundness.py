"""Whether a stated price and a stated claim are sound: at least what the definitions of PRIVACY section 2 give.

One law for the ledger before it writes, for its audit, and for the verifiers of certificates: a figure may be more than
what the releases come to, which promises less than could be promised, and never less. It is derived by
`dpserve_verify.privacy.second_opinion` alone, which shares no formula with what charged the job.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil
from operator import add, sub
from typing import Any

from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.faster import FASTER
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.adaptive_opinion import adaptive_delta
from dpserve_verify.privacy.board import board_of
from dpserve_verify.privacy.budget import NANO, Budget, Relation, nano_string, parse_nano
from dpserve_verify.privacy.events import Gaussian, Plan, RepeatAndSelect, plan_from_json
from dpserve_verify.privacy.pairs import ADAPTIVE, GAUSSIAN, KNOWN, PURE, RENYI, bound_fault, fault_of, proof_fault
from dpserve_verify.privacy.renyi import compose_grid
from dpserve_verify.privacy.second_opinion import (
    curve_at,
    discrete_gaussian_mu,
    gaussian_delta,
    pure,
    to_epsilon,
)
from dpserve_verify.privacy.weights import weight_fault

SEARCHED = (
    1e-4  # a selection's figure is the best that a search finds; the accountant's was .9999966 of this one at least
)
FLOAT = 1e-12  # relative, of floating point
_NO_REFERENCES = 2  # the format in which equal values have equal bytes, and no others have them

Value = Mapping[str, Any]


@dataclass(slots=True)
class Figures:
    """A sum of prices in nano-units: pure, jobs without a pure price, and one Renyi figure per order."""

    pure: int
    unbounded: int
    rdp: tuple[int, ...]

    def plus(self, other: Figures, sign: int = 1) -> Figures:
        """Return the sum with `sign` (1 or -1) times `other`. LedgerInvalid where the orders are not the same in
        number.
        """
        if len(self.rdp) != len(other.rdp):
            raise LedgerInvalid("price: must have a figure for every order")
        rdp = tuple(map(add if sign > 0 else sub, self.rdp, other.rdp))
        return Figures(self.pure + sign * other.pure, self.unbounded + sign * other.unbounded, rdp)


def require(holds: bool, otherwise: str, code: str = "", **details: Any) -> None:
    """Raise LedgerInvalid with the words `otherwise`, unless `holds`. `code`: of the error that who writes an entry is
    told in these words, where they asked for what cannot be: an InputError with it and the `details`.
    """
    if holds:
        return
    if not code:
        raise LedgerInvalid(otherwise)
    error = InputError(otherwise, **details)
    error.code = code
    raise error


def judge_job(
    value: Value, orders: tuple[Decimal, ...], relation: Relation, contributions: int, parts: int = 1
) -> tuple[Budget, int, Figures]:
    """Return the request of a reservation, the number of releases it plans, and the price that it states at `orders`,
    which are all that its dataset adds up. LedgerInvalid where price or claim is below what the plan's events come to,
    or where these are not the price of its mechanisms for such neighbours. Jobs are often alike: content that was
    judged once is known by its bytes.
    """
    content = [value[part] for part in ("epsilon", "delta", "plan", "price", "claim")]
    return _judge_job(marshal.dumps(content, _NO_REFERENCES), orders, relation, contributions, parts)


@lru_cache(maxsize=4096)
def _judge_job(
    content: bytes, orders: tuple[Decimal, ...], relation: Relation, contributions: int, parts: int
) -> tuple[Budget, int, Figures]:
    epsilon, delta, planned, cost, claimed = marshal.loads(content)
    asked, plan = Budget(parse_decimal(epsilon), parse_decimal(delta)), plan_from_json(planned)
    one_form = plan.to_json() == planned and len(plan) > 0
    require(one_form, "plan: must be in the one form that plans are stored in")
    figures = judge_price(plan, cost, orders)
    judge_claim(plan, asked, claimed)
    require_pairs(plan, claimed["bound"], relation, contributions, parts)
    return asked, len(plan), figures


def require_pairs(plan: Plan, bound: str, relation: Relation, contributions: int, parts: int = 1) -> None:
    """Raise LedgerInvalid unless each line of a plan is the price of its mechanism, with the lines that must follow,
    and both that and the bound that is claimed are proved for these neighbours; rows are counted in `parts`.
    """
    fault = fault_of(plan) or bound_fault(plan, bound) or proof_fault(plan, relation, contributions)
    fault = fault or weight_fault(plan, parts)
    require(fault is None, fault or "")


def judge_price(plan: Plan, stored: Any, orders: tuple[Decimal, ...]) -> Figures:
    """Read and judge the price that an entry states for `plan`. LedgerInvalid as `read_figures`, where a figure is
    below what the definitions give, and where an event is not the price of its mechanism.
    """
    fault = fault_of(plan)
    require(fault is None, fault or "")
    figures = read_figures(stored, orders)
    require_price(plan, figures, orders)
    return figures


def read_figures(stored: Any, orders: tuple[Decimal, ...]) -> Figures:
    """Read a price that an entry states. LedgerInvalid unless it has a figure for each of `orders` and no others."""
    require(isinstance(stored, dict) and stored.keys() == {"pure", "unbounded", "rdp"}, "price: must have three parts")
    spelled, unbounded = tuple(map(decimal_string, orders)), stored["unbounded"]
    require(isinstance(stored["rdp"], dict) and stored["rdp"].keys() == {*spelled}, "price: must be at every order")
    require(type(unbounded) is int and unbounded in (0, 1), "price: unbounded must be 0 or 1")
    return Figures(
        _read_nano(stored["pure"], "pure"),
        unbounded,
        tuple(_read_nano(stored["rdp"][order], order) for order in spelled),
    )


def require_price(plan: Plan, figures: Figures, orders: tuple[Decimal, ...]) -> None:
    """Raise LedgerInvalid unless each figure is at least what the definitions give for `plan`."""
    least = least_renyi(plan, tuple(map(float, orders)))
    for order, figure, low in zip(orders, figures.rdp, least, strict=True):
        require(low <= figure, f"price: at order {decimal_string(order)} is below what the definitions give")
    whole = pure_sum(plan)
    covered = bool(figures.unbounded) or (whole is not None and whole <= figures.pure)
    require(covered, "price: the pure sum is below what the definitions give")


def _read_nano(text: Any, what: str) -> int:
    figure = parse_nano(text) if isinstance(text, str) else -1
    require(figure >= 0 and nano_string(figure) == text, f"price: {what} must be in its one spelling")
    return figure


@lru_cache(maxsize=4096)
def pure_sum(plan: Plan) -> int | None:
    """Return the pure price of the plan in nano-units, None for infinity; each event's is rounded up, then
    multiplied.
    """
    known = [(pure(event), count) for event, count in plan.events]
    return (
        None
        if any(each is None for each, _ in known)
        else sum(count * ceil((each or 0) * NANO) for each, count in known)
    )


@lru_cache(maxsize=4096)
def least_renyi(plan: Plan, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Return the least that a figure at each of `orders` may be, in nano-units: what the definitions give. The figure
    of a private selection is the best that a search finds, and another may have found a slightly better one.
    """
    total = [0.0] * len(orders)
    for event, count in plan.events:
        slack = SEARCHED if isinstance(event, RepeatAndSelect) else FLOAT
        total = [
            each + count * NANO * own * (1 - slack) for each, own in zip(total, curve_at(event, orders), strict=True)
        ]
    return tuple(total)


def judge_claim(plan: Plan, asked: Budget, stored: Any) -> None:
    """Read and judge a stored claim. LedgerInvalid unless it is within what was `asked`, and no less than the plan
    comes to by the bound that it names.
    """
    shape = isinstance(stored, dict) and stored.keys() == {"epsilon", "delta", "order", "bound"}
    require(shape, "claim: must be an epsilon, a delta, an order and a bound")
    epsilon, order = parse_decimal(stored["epsilon"]), stored["order"]
    require(decimal_string(epsilon) == stored["epsilon"], "claim: epsilon must be in its one spelling")
    require(stored["delta"] == decimal_string(asked.delta), "claim: delta must be the one asked for")
    require_claim(plan, asked, stored["bound"], None if order is None else parse_decimal(order), epsilon)


def require_claim(plan: Plan, asked: Budget, bound: Any, order: Decimal | None, epsilon: Decimal) -> None:
    """Raise LedgerInvalid unless the plan comes to at most `epsilon` by that bound, and this is within `asked`."""
    require(epsilon <= asked.epsilon, f"claim: epsilon {epsilon} is above the {asked.epsilon} asked for")
    require(bound in KNOWN, f"claim: bound={bound!r:.60} is not known")
    require((bound == RENYI) == (order is not None), "claim: an order stands beside a Renyi bound, and no other")
    require(
        holds(plan, bound, order, epsilon, asked.delta), f"claim: epsilon {epsilon} is below what the definitions give"
    )


@lru_cache(maxsize=4096)
def holds(plan: Plan, bound: str, order: Decimal | None, epsilon: Decimal, delta: Decimal) -> bool:
    """Return whether the plan is (epsilon, delta)-DP by this bound, one of KNOWN, at this order if it is Renyi's."""
    if bound == PURE:
        whole = pure_sum(plan)
        return whole is not None and Decimal(whole) / NANO <= epsilon
    if bound == RENYI and order is not None:
        if not (1 < order < 10**6 and delta > 0):
            return False
        (least,) = least_renyi(plan, (float(order),))
        return to_epsilon(float(order), least / NANO, float(delta)) <= float(epsilon) + 1e-12
    if bound == GAUSSIAN:
        squared = _squared_mu(plan)
        return squared is not None and gaussian_delta(float(squared), float(epsilon)) <= float(delta) * (1 + 1e-9)
    if bound == ADAPTIVE and delta > 0:
        return _adaptive_delta(plan, float(epsilon), float(delta)) <= float(delta) * (1 + 1e-6)
    return False


def holds_by_some(plan: Plan, epsilon: Decimal, delta: Decimal) -> bool:
    """Return whether the plan is (epsilon, delta)-DP by any bound of KNOWN."""
    bounds = [bound for bound in KNOWN if bound != RENYI]
    return any(holds(plan, bound, None, epsilon, delta) for bound in bounds) or any(
        holds(plan, RENYI, Decimal(repr(order)), epsilon, delta) for order, _ in compose_grid(plan.events)
    )


def _squared_mu(plan: Plan) -> Fraction | None:
    total = Fraction(0)
    for release, count in plan.runs:
        if not isinstance(release.event, Gaussian) or not release.event.noise_multiplier * release.sensitivity > 2:
            return None
        total += count * discrete_gaussian_mu(release.event.noise_multiplier, release.sensitivity)
    return total


def _adaptive_delta(plan: Plan, epsilon: float, delta: float) -> float:
    """Return delta on the accountant's step, over a wider grid. Both are public choices: the bound holds whatever they
    are.
    """
    board = board_of(plan.events, delta)
    if board is None:
        return 1.0
    return adaptive_delta(plan.events, epsilon, board.step, board.size + board.size // 8, FASTER.worst_range)
