"""What a release made elsewhere costs, as its maker states it: one curve of four kinds, of public numbers alone.

An epsilon may have a delta above 0, which bounds no Renyi figure and no pure sum: it is paid from what a total sets
apart for that (docs/privacy/outside.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from math import ceil
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import NANO, check_delta, check_epsilon, exact_decimal, from_nano, nano, short_delta
from dpserve_verify.privacy.events import PureDp
from dpserve_verify.privacy.filter import Price

EPSILON, RHO, MU, RENYI = "epsilon", "rho", "mu", "renyi"
KINDS = (EPSILON, RHO, MU, RENYI)
MOST_POINTS = 1000
LARGEST_ORDER = Decimal(10**6)
NO_BOUND = 10**6 * NANO  # a figure above every cap: at an order that a stated curve does not reach
MOST_ROWS = 10_000
DIGITS, ROUNDING = 20, 1 + Decimal("1e-18")  # of a delta of several rows


@dataclass(frozen=True)
class Curve:
    """The cost of a release. `kind`, one of KINDS: pure `epsilon`; `rho` of zero-concentrated privacy; `mu` of Gaussian
    privacy; or `renyi`: (order, divergence) points, orders rising. The first three have one number, `value`; beside a
    Renyi curve it is the pure epsilon that holds as well, 0 where none does. `delta`: of an epsilon, with which chance
    it may fail.
    """

    kind: str
    value: Decimal = Decimal(0)
    points: tuple[tuple[Decimal, Decimal], ...] = ()
    delta: Decimal = Decimal(0)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Curve:
        """Return the curve that some of `epsilon`, `delta`, `rho`, `mu` and `renyi` state; None stands for nothing.

        InputError where they state none, or two other than epsilon and a Renyi curve, or a number is not above 0 or too
        large.
        """
        given = [kind for kind in KINDS if fields.get(kind) is not None]
        delta = check_delta(exact_decimal("delta", fields.get("delta") or "0"))
        if fields.get("delta") is not None and given != [EPSILON]:
            raise InputError("delta: stands beside an epsilon alone; leave it out")
        if len(given) != 1 and given != [EPSILON, RENYI]:
            stated = "two" if given else "none"
            raise InputError(f"curve: {stated} stated; state one of epsilon, rho, mu, or a Renyi curve")
        kind = given[-1]
        value = (
            Decimal(0) if given == [RENYI] else check_epsilon(exact_decimal(given[0], fields[given[0]]), given[0], True)
        )
        return cls(kind, value, _points(fields[kind]) if kind == RENYI else (), delta)

    def to_json(self) -> dict[str, Any]:
        """Return it as entries state it."""
        if self.kind == RENYI:
            pure = {EPSILON: decimal_string(self.value)} if self.value else {}
            return {**pure, RENYI: {decimal_string(order): decimal_string(figure) for order, figure in self.points}}
        delta = {"delta": decimal_string(self.delta)} if self.delta else {}
        return {**delta, self.kind: decimal_string(self.value)}

    @property
    def words(self) -> str:
        """State it in a few words."""
        if self.kind == RENYI:
            first, last = self.points[0][0], self.points[-1][0]
            pure = f" and epsilon {decimal_string(self.value)}" if self.value else ""
            return (
                f"a Renyi curve of {len(self.points)} orders ({decimal_string(first)} to {decimal_string(last)}){pure}"
            )
        delta = f" at delta {short_delta(self.delta)}" if self.delta else ""
        return f"{self.kind} {decimal_string(self.value)}{delta}"

    def of_rows(self, rows: int) -> Curve:
        """Return what `rows` records together cost where each costs this: group privacy. InputError of a Renyi curve,
        which says too little for that, and where it comes to too much.
        """
        if rows == 1:
            return self
        if not 1 <= rows <= MOST_ROWS:
            raise InputError(f"contributions={rows}: must be 1 to {MOST_ROWS}")
        if self.kind == RENYI:
            raise InputError(
                "contributions: a Renyi curve of one record bounds none of several; state that of a person"
            )
        factor = rows * rows if self.kind == RHO else rows
        value = check_epsilon(factor * self.value, f"{self.kind} of {rows} rows", True)
        with localcontext(Context(prec=DIGITS, rounding=ROUND_CEILING)):
            delta = self.delta * rows * ((rows - 1) * self.value).exp() * ROUNDING
        return Curve(self.kind, value, delta=check_delta(delta, f"delta of {rows} rows"))

    def price(self, orders: tuple[Decimal, ...]) -> Price:
        """Return what an account adds up at `orders`, rounded up."""
        pure = nano(self.value) if self.kind in (EPSILON, RENYI) and self.value else None
        return Price(pure or 0, int(pure is None), tuple(self._at(order) for order in orders))

    def _at(self, order: Decimal) -> int:
        pure = NO_BOUND
        if self.kind in (EPSILON, RENYI) and self.value:
            pure = ceil(PureDp(self.value).rdp(float(order)) * NANO * (1 + 1e-12))
        if self.kind == EPSILON:
            return pure
        if self.kind == RHO:  # D_a <= rho a
            return ceil(Fraction(self.value) * Fraction(order) * NANO)
        if self.kind == MU:  # D_a = mu^2 a / 2, and what is made of it has no more
            return ceil(Fraction(self.value) ** 2 * Fraction(order) / 2 * NANO)
        figures = [figure for at, figure in self.points if at >= order]  # D_a does not fall as a grows
        return min(nano(min(figures)), pure) if figures else pure


def _points(stated: Any) -> tuple[tuple[Decimal, Decimal], ...]:
    if not isinstance(stated, Mapping) or not 1 <= len(stated) <= MOST_POINTS:
        raise InputError(f"renyi: must be 1 to {MOST_POINTS} orders with a divergence each")
    points = [(exact_decimal("order", order), stated[order]) for order in stated]
    for order, _ in points:
        if not 1 < order <= LARGEST_ORDER:
            raise InputError(f"order={order}: must be above 1 and at most {LARGEST_ORDER}")
    if len({order for order, _ in points}) != len(points):
        raise InputError("renyi: an order stands twice")
    return tuple((order, _divergence(order, figure)) for order, figure in sorted(points, key=lambda point: point[0]))


def _divergence(order: Decimal, stated: Any) -> Decimal:
    """Return the divergence that is stated at an order, rounded up to 9 decimals."""
    figure = exact_decimal(f"divergence at order {order}", stated)
    if not 0 < figure <= NO_BOUND // NANO:
        raise InputError(f"divergence at order {order}: {figure} must be above 0 and at most {NO_BOUND // NANO}")
    return from_nano(ceil(Fraction(figure) * NANO))
