"""What is said of the width before anything is paid: from public numbers alone, and right where it is tried."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from models.profile.figures import laplace_variance
from models.worth.expected_width import Measurement, short_width
from models.worth.groups import GroupedLayout
from models.worth.intervals import Noise, auroc
from models.worth.layout import BIN_CHOICES, BINS, Layout, choose_bins
from models.worth.paired import PairedLayout
from models.worth.scored import ScoredLayout

TWO, THREE, NUMBER = Layout(("a", "b"), 1.0), Layout(("a", "b", "c"), 1.0), Layout((), 1.0, (0.0, 1000.0))
LAYOUTS = TWO, THREE, NUMBER, ScoredLayout(THREE), PairedLayout(TWO, TWO), PairedLayout(NUMBER, NUMBER)


def measurement(layout, records, epsilon, contributions=1, prevalence=()):
    moved = layout.cells_per_record * contributions
    return Measurement(
        layout, records, contributions, epsilon, partial(laplace_variance, sensitivity=moved), prevalence
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.kind)
def test_more_rows_and_more_epsilon_are_expected_to_tell_more(layout):
    """Of every kind; what it says holds the figures, and an epsilon that is enough is enough."""
    poor, good, rich = (measurement(layout, records, 0.25).forecast().to_json() for records in (150, 600, 20_000))
    halves = [each["figures"][0]["high"] for each in (poor, good, rich)]
    assert halves[0] >= halves[1] > halves[2]
    assert rich["figures"][0]["half_width"] is not None
    assert short_width(rich["figures"][0]["half_width"]) in rich["says"]
    if poor["enough"] is not None:
        there = measurement(layout, 150, float(poor["enough"]["epsilon"])).forecast().to_json()
        assert there["figures"][0]["half_width"] < 1.5 * poor["enough"]["half_width"]


def test_where_noise_drowns_the_counts_no_result_is_expected_and_the_way_out_is_said():
    body = measurement(TWO, 600, 0.02).forecast().to_json()
    assert body["figures"][0]["half_width"] is None
    assert body["says"].startswith("no better than guessing: too few rows for this epsilon; AUROC ± ")
    assert f"from epsilon {body['enough']['epsilon']}" in body["says"]
    nearly = replace(measurement(Layout(("a", "b"), 1.0, bins=8), 350, 0.12), names_people=True)
    (width,) = nearly.widths(0.12, names=("auroc",))
    assert 0.45 < width.middle < 0.5
    assert nearly.forecast().to_json()["says"].startswith("no better than guessing")
    several = measurement(TWO, 600, 0.5, contributions=3).forecast().to_json()["figures"][0]
    alone = measurement(TWO, 600, 0.5).forecast().to_json()["figures"][0]
    assert several["half_width"] > 1.5 * alone["half_width"]
    groups = GroupedLayout(TWO, "g", ("x", "y", "z"))
    assert measurement(groups, 600, 0.5).forecast().to_json()["figures"][0]["half_width"] > alone["half_width"]
    rare = measurement(TWO, 600, 0.5, prevalence=(0.95, 0.05)).forecast().to_json()["figures"][0]
    assert rare["low"] > 2 * alone["low"]


def test_fewer_bins_are_chosen_by_public_numbers_and_are_worth_it():
    strengths = (10, 60, 100, 599, 600, 1e6)
    assert [choose_bins(each) for each in strengths] == [8, 8, 16, 16, BINS, BINS]
    assert {choose_bins(each) for each in strengths} == {*BIN_CHOICES}
    few, many = (measurement(Layout(("a", "b"), 1.0, bins=bins), 600, 0.12).forecast().to_json() for bins in (8, BINS))
    assert few["figures"][0]["low"] < many["figures"][0]["low"]
    assert few["figures"][0]["half_width"] < 0.7 * many["figures"][0]["half_width"]


def test_the_forecast_holds_of_models_that_it_was_not_made_of():
    """Of laws with other scores, in at least four of five cells the interval is as wide as was said."""
    random, held = np.random.default_rng(5), []
    laws = [(2.0, 1.0, 0.25), (1.0, 1.6, 0.4), (0.6, 3.0, 0.2)]  # chances of a beta law, and the share of class 1
    for (a, b, share), records, epsilon, contributions in product(laws, (400, 3000), (0.1, 0.5, 2.0), (1, 3)):
        layout = Layout(("a", "b"), 1.0, bins=choose_bins(records * epsilon / contributions))
        (width, *_) = measurement(layout, records, epsilon, contributions).widths(epsilon, names=("auroc",))
        true = random.random(records) < share
        chance = np.where(true, random.beta(a + 1, b, records), random.beta(a, b + 1, records))
        counts = np.bincount(true * layout.bins + np.searchsorted(layout.edges, chance), minlength=layout.size)
        ratio, variance = 1 - np.exp(-epsilon / contributions), laplace_variance(epsilon, contributions)
        counts = counts + random.geometric(ratio, layout.size) - random.geometric(ratio, layout.size)
        found = auroc(layout.table(counts), Noise(variance, grouped=contributions))
        held.append(0.95 * width.low <= (found.high - found.low) / 2 <= 1.05 * width.high)
    assert np.mean(held) >= 0.8, held
