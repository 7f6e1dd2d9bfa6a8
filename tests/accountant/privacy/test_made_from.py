"""What a release was made from adds up: each part once, the same people together, others apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp
from dpserve_verify.privacy.made_from import Source, events_of, merge_events, sum_of

EIGHT = ((Gaussian(Decimal("2.5")), 3), (PureDp(Decimal("0.5")), 1))
MODEL = Source(
    "dpserve/a", 5, 9, "a" * 64, "model", "start", "d", ("f",), "training", Decimal(8), Decimal("0.000001"), EIGHT, True
)
OWN = Decimal("0.01"), Decimal("0.000002")


def other(
    job: int, epsilon: str, families: tuple[str, ...] = ("f",), same: bool = True, part: str = "training"
) -> Source:
    named = {"reservation": job, "entry": job + 4, "families": families, "same_people": same, "part": part}
    return replace(MODEL, epsilon=Decimal(epsilon), delta=Decimal(0), events=((PureDp(Decimal(epsilon)), 1),), **named)


def test_every_part_counts_and_none_twice():
    """An edited model and its ancestor are one release, of whichever statement; the same job of another ledger is
    another one.
    """
    edited, profile = replace(MODEL, entry=12, statement="b" * 64), other(7, "0.5")
    found = sum_of(*OWN, "training", [MODEL, edited, profile])
    assert found.same == (Decimal("8.51"), Decimal("0.000003"))
    for left_out in ([MODEL], [profile], [MODEL, profile, other(8, "0.25")]):
        assert sum_of(*OWN, "training", left_out).same != found.same
    assert sum_of(*OWN, "training", [MODEL, replace(MODEL, ledger="dpserve/b")]).same == (
        Decimal("16.01"),
        Decimal("0.000004"),
    )
    assert sum_of(*OWN, "training", []).same is None


@pytest.mark.parametrize(("part", "epsilon"), [("training", "8.26"), ("holdout", "8.25"), ("all", "8.26")])
def test_what_is_kept_aside_holds_other_units(part, epsilon):
    """One part's sum is the model's and a profile's 8.25; the claim and a profile aside add to their own."""
    found = sum_of(*OWN, part, [MODEL, other(7, "0.25"), other(8, "3", part="holdout")])
    assert found.same is not None
    assert found.same[0] == Decimal(epsilon)
    assert "larger of their two sums" in found.words


def test_other_people_are_stated_apart_and_those_who_share_a_family_together():
    sources = [
        other(1, "1", ("g",), same=False), other(2, "2", ("h",), same=False), other(3, "4", ("g", "i"), same=False),
        other(4, "8", ("i",), same=False), other(5, "16", ("g",), same=False, part="holdout"),
    ]  # fmt: skip
    found = sum_of(*OWN, "training", sources)
    assert found.same is None
    assert sorted(each.epsilon for each in found.apart) == [Decimal(2), Decimal(16)]
    assert sorted(each.epsilon for each in sum_of(*OWN, "training", sources[:4]).apart) == [Decimal(2), Decimal(13)]


def test_what_is_charged_elsewhere_is_all_that_was_not_charged_before():
    own, profile, stranger = ((BoundedRange(Decimal("0.02")), 25),), other(7, "0.5"), other(8, "4", same=False)
    sources = [MODEL, replace(MODEL, entry=12), profile, stranger]
    events, names = events_of(own, sources)
    assert (events, names) == ((*own, *EIGHT, *profile.events), [MODEL.name, profile.name])
    assert events_of(own, sources, {MODEL.name}) == ((*own, *profile.events), [profile.name])
    assert events_of(own, sources, {MODEL.name, profile.name}) == (own, [])


def test_a_source_is_spelt_and_read_back():
    assert Source.from_json(MODEL.to_json()) == MODEL
    plan = [
        {"event": {"type": "pure-dp", "epsilon": "0.5"}, "count": 2},
        {"event": {"type": "gaussian", "noise_multiplier": "3"}, "count": 1},
        {"event": {"type": "pure-dp", "epsilon": "0.5"}, "count": 5},
    ]
    assert merge_events(plan) == ((PureDp(Decimal("0.5")), 7), (Gaussian(Decimal(3)), 1))
