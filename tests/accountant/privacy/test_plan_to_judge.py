"""From any plan to the auditor's word: what the accountant prices and claims is judged sound, and half of it is not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from ledgers import MECHANISMS

from accountant.certificates.statement import order_text
from accountant.privacy.claims import RENYI, claim, price
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, Budget, Relation, from_nano
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.filter import Filter, price_to_json
from dpserve_verify.privacy.selection import Poisson, TruncatedNegativeBinomial
from dpserve_verify.privacy.soundness import judge_job

PLANS = 100

# Every size of figure is as likely as any other: the logarithm is even.
EPSILONS = st.floats(-6, 1).map(lambda power: Decimal(f"{10**power:.9f}"))
NOISES = st.floats(-0.5, 5).map(lambda power: Decimal(f"{10**power:.9f}"))
SIMPLE = st.one_of(st.builds(PureDp, EPSILONS), st.builds(BoundedRange, EPSILONS), st.builds(Gaussian, NOISES))
LAWS = st.one_of(
    st.builds(Poisson, st.floats(0, 4).map(lambda power: Decimal(f"{10**power:.6f}"))),
    st.builds(
        TruncatedNegativeBinomial,
        st.integers(-950, 4000).map(lambda each: Decimal(each) / 1000),
        st.floats(-3, -0.05).map(lambda power: Decimal(f"{10**power:.6f}")),
    ),
)
COUNTS = st.sampled_from([1, 1, 2, 20, 100, 500])


@st.composite
def selections(draw: Any) -> RepeatAndSelect:
    runs = draw(st.lists(st.tuples(SIMPLE, COUNTS), min_size=1, max_size=2, unique_by=lambda run: run[0]))
    return RepeatAndSelect(draw(LAWS), tuple(runs))


@st.composite
def plans(draw: Any) -> Plan:
    """Up to three kinds of releases; among four, one is a private selection."""
    events: list[Event] = [
        draw(selections() if draw(st.integers(0, 3)) == 0 else SIMPLE) for _ in range(draw(st.integers(1, 3)))
    ]
    runs = [(event, 1 if isinstance(event, RepeatAndSelect) else draw(COUNTS)) for event in events]
    sensitivity = draw(st.sampled_from([1, 2, 4096]))
    return Plan(
        tuple(
            (Release(f"{at}", *MECHANISMS[type(event)], sensitivity, event), count)
            for at, (event, count) in enumerate(runs)
        )
    )


def value_of(plan: Plan, delta: Decimal, total: Budget) -> tuple[dict[str, Any], tuple[Decimal, ...]]:
    """What a reservation of the plan says of it, as `Ledger.reserve` writes it, and the orders of the dataset."""
    found, orders = claim(plan, delta), Filter.design(total).orders
    assume(found.epsilon.is_finite() and 0 < found.epsilon <= MAX_EPSILON)
    order = None if found.order is None else order_text(found.order)
    claimed = {"epsilon": decimal_string(found.epsilon), "delta": decimal_string(delta), "bound": found.bound}
    asked = {"epsilon": claimed["epsilon"], "delta": claimed["delta"]}
    stated = price_to_json(price(plan, orders), orders)
    return {**asked, "plan": plan.to_json(), "price": stated, "claim": {**claimed, "order": order}}, orders


def one(event: Event, count: int = 1) -> Plan:
    return Plan(((Release("one", *MECHANISMS[type(event)], 1, event), count),))


# What the auditor refused before: its search and the accountant's ended at other orders, or looked less closely.
CHEAP = RepeatAndSelect(
    Poisson(Decimal(20)), ((BoundedRange(Decimal("0.000017959")), 14), (Gaussian(Decimal("89290.46447322")), 1))
)
EDGE = RepeatAndSelect(Poisson(Decimal(30)), ((PureDp(Decimal("0.1189")), 1),))


TOTALS = [("1", "0"), ("0.001", "0.000001"), ("3", "0.000001"), ("100", "0.000001")]


@pytest.mark.slow
@settings(max_examples=PLANS)
@example(one(CHEAP), "0.000001", ("3", "0.000001"))
@example(one(EDGE), "0.000001", ("3", "0.000001"))
@given(plans(), st.sampled_from(["0", "0.0000000001", "0.000001", "0.01"]), st.sampled_from(TOTALS))
def test_what_the_accountant_prices_is_sound_and_half_of_it_is_not(plan, delta, total):
    value, orders = value_of(plan, Decimal(delta), Budget.of(*total))
    asked, releases, figures = judge_job(value, orders, Relation.ADD_REMOVE, 1)
    assert (asked.delta, releases) == (Decimal(delta), len(plan))
    chosen = any(isinstance(event, RepeatAndSelect) for event, _ in plan.events)
    price, told = value["price"], value["claim"]
    for order, figure in zip(orders, figures.rdp, strict=True):
        rounding = (
            8 * releases
        )  # and of a nearly free choice the accountant's search finds a figure far above the least
        if figure > max(rounding, chosen * NANO // 50):
            refused({**value, "price": {**price, "rdp": price["rdp"] | {decimal_string(order): half(figure)}}}, orders)
    if figures.pure > 2:
        refused({**value, "price": {**price, "pure": half(figures.pure)}}, orders)
    if not (chosen and told["bound"] == RENYI) and Decimal(told["epsilon"]) > Decimal("0.0001"):
        refused({**value, "claim": {**told, "epsilon": decimal_string(Decimal(told["epsilon"]) / 2)}}, orders)


def half(figure: int) -> str:
    return decimal_string(from_nano(figure // 2))


def refused(value: dict[str, Any], orders: tuple[Decimal, ...]) -> None:
    with pytest.raises(LedgerInvalid, match="below what the definitions give"):
        judge_job(value, orders, Relation.ADD_REMOVE, 1)
