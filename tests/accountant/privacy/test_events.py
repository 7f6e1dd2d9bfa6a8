"""The closed list of events, plans, and their stored form: every spelling read back, everything else refused."""

from __future__ import annotations

from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decode_canonical, encode
from dpserve_verify.privacy.budget import NANO
from dpserve_verify.privacy.events import (
    EVENT_TYPES,
    SIMPLE,
    BoundedRange,
    Event,
    Gaussian,
    Plan,
    PureDp,
    Release,
    RepeatAndSelect,
    event_from_json,
    event_to_json,
    plan_from_json,
)
from dpserve_verify.privacy.selection import Poisson, TruncatedNegativeBinomial

SIMPLE_EVENTS = st.builds(
    lambda kind, units: kind(Decimal(units) / NANO), st.sampled_from(SIMPLE), st.integers(1, 100 * NANO)
)
DISTRIBUTIONS = st.one_of(
    st.builds(lambda units: Poisson(Decimal(units) / NANO), st.integers(NANO, 10**6 * NANO)),
    st.builds(
        lambda shape, gamma: TruncatedNegativeBinomial(Decimal(shape) / NANO, Decimal(gamma) / NANO),
        st.integers(1 - NANO, 2 * NANO),
        st.integers(NANO // 100, NANO - 1),
    ),
)
SELECTIONS = st.builds(
    lambda law, event, count, other: RepeatAndSelect(law, ((event, count), *([(other, 1)] if other != event else []))),
    DISTRIBUTIONS,
    SIMPLE_EVENTS,
    st.integers(1, 2**31 - 1),
    SIMPLE_EVENTS,
)
EVENTS = st.one_of(SIMPLE_EVENTS, SELECTIONS)
RELEASES = st.builds(
    Release,
    st.text(max_size=20).filter(lambda text: all(ord(letter) < 0xD800 for letter in text)),
    st.sampled_from(["exponential", "discrete-laplace"]),
    st.sampled_from(["range", "l1", "l2"]),
    st.integers(1, 2**80),
    EVENTS,
)


def test_the_list_is_closed():
    assert set(get_args(Event)) == set(EVENT_TYPES) == {BoundedRange, PureDp, Gaussian, RepeatAndSelect}
    assert len({kind.type for kind in EVENT_TYPES}) == len(EVENT_TYPES)


def test_stored_events_never_change_meaning():
    """The spelling of every event as it stands in ledgers, and both of its prices."""
    stored = [
        ({"type": "bounded-range", "epsilon": "0.02"}, Decimal("0.02"), 0.00044484),
        ({"type": "pure-dp", "epsilon": "0.5"}, Decimal("0.5"), 0.4400187),
        ({"type": "gaussian", "noise_multiplier": "8.9957"}, None, 0.054994),
        (
            {
                "type": "repeat-and-select",
                "distribution": {"type": "truncated-negative-binomial", "shape": "1", "gamma": "0.01"},
                "runs": [{"event": {"type": "gaussian", "noise_multiplier": "5"}, "count": 1}],
            },
            None,
            1.8009126,
        ),
        (
            {
                "type": "repeat-and-select",
                "distribution": {"type": "poisson", "mean": "20"},
                "runs": [{"event": {"type": "bounded-range", "epsilon": "0.02"}, "count": 25}],
            },
            None,
            0.3192804,
        ),
    ]
    for body, pure, rdp in stored:
        event = event_from_json(body)
        assert event_to_json(event) == body
        assert event.pure == pure
        assert event.rdp(8.9) == pytest.approx(rdp, rel=1e-4)


@given(EVENTS)
def test_events_are_read_back(event):
    assert event_from_json(decode_canonical(encode(event_to_json(event)))) == event


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "gaussian"},
        {"type": "laplace", "epsilon": "1"},
        {"type": "pure-dp", "epsilon": "1", "count": "2"},
        {"type": "pure-dp", "noise_multiplier": "1"},
        {"type": "pure-dp", "epsilon": 1},
        {"type": "pure-dp", "epsilon": 0.5},
        {"type": "pure-dp", "epsilon": None},
        {"type": ["pure-dp"], "epsilon": "1"},
        {"type": "PURE-DP", "epsilon": "1"},
        *({"type": "pure-dp", "epsilon": bad} for bad in ("0", "-1", "NaN", "Infinity", "1e-3", "0.0000000001", "01")),
        *({"type": "bounded-range", "epsilon": bad} for bad in ("0", "-1", "NaN", "100.1", "1e300")),
        *({"type": "gaussian", "noise_multiplier": bad} for bad in ("0", "-1", "NaN", "Infinity", "9" * 30)),
    ],
)
def test_what_is_not_understood_is_refused(body):
    with pytest.raises(InputError):
        event_from_json(body)


NO_PRICE = ["0", "-1", "NaN", "Infinity", "100.000000001", "0.1234567891", "0.5" + "0" * 30 + "1"]


@pytest.mark.parametrize("number", NO_PRICE)
def test_an_event_takes_no_number_that_has_no_price(number):
    for kind in (BoundedRange, PureDp):
        with pytest.raises(InputError, match="epsilon="):
            kind(Decimal(number))
    if number != "100.000000001":
        with pytest.raises(InputError, match="noise_multiplier="):
            Gaussian(Decimal(number))


@pytest.mark.slow
@given(st.lists(st.tuples(RELEASES, st.integers(1, 3)), max_size=5))
def test_plans_are_read_back_and_merge_equal_neighbours(runs):
    played = [release for release, count in runs for _ in range(count)]
    plan = Plan.of(played)
    assert plan_from_json(decode_canonical(encode(plan.to_json()))) == plan
    assert len(plan) == len(played)
    assert [plan[index] for index in range(len(plan))] == played
    assert sum(count for _, count in plan.events) == len(played)
    assert all(one[0] != other[0] for one, other in zip(plan.runs, plan.runs[1:], strict=False))
    with pytest.raises(IndexError):
        plan[len(plan)]


RUN = Plan.of([Release("p", "exponential", "range", 2, PureDp(Decimal(1)))]).to_json()[0]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [None],
        [{}],
        [{**RUN, "more": 1}],
        [{key: value for key, value in RUN.items() if key != "norm"}],
        *([{**RUN, "count": count}] for count in (0, -1, 2**31, "1", 1.5, None, True)),
        *([{**RUN, "sensitivity": bad}] for bad in ("x", None, "1.5", "-1", "0", "01", 3)),
        *([{**RUN, key: 5}] for key in ("purpose", "mechanism", "norm")),
        [{**RUN, "event": {"type": "laplace"}}],
        [{**RUN, "event": None}],
    ],
)
def test_a_plan_that_is_not_understood_is_refused(body):
    with pytest.raises(InputError):
        plan_from_json(body)
