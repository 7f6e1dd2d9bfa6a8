"""Answers that cover: as often as was asked on average over 1,000 releases, and little wider than without privacy."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from dpserve_verify.errors import InputError
from models.parts.answers import probabilities_of
from models.parts.beside import read_wanted
from models.worth.cover import COVER_BINS, PARTS, CoverLayout, choose_cover_bins, cover_metrics
from models.worth.groups import GroupedLayout, grouped_metrics
from models.worth.intervals import Noise
from models.worth.judging import UNCLEAR, judge
from models.worth.layout import Layout
from models.worth.statements import cover_levels
from studies.statements.cover import release

CLASSES = CoverLayout(Layout(("no", "yes"), 0.001, bins=256))
NUMBER = CoverLayout(Layout((), 0.001, (0.0, 40.0), bins=256))
RUNS, FRESH = 1000, 40_000
RANDOM = np.random.default_rng(56)


def draw_records(layout: CoverLayout, size: int):
    """Scores (size, 1) and true answers of a calibrated model of two classes, or of a number with normal errors."""
    if layout.target_range is None:
        scores = np.rint(RANDOM.normal(-800, 1500, size)).astype(np.int64)[:, None]
        return scores, (RANDOM.random(size) < probabilities_of(scores, layout.link)[:, 1]).astype(np.intp)
    answers = np.clip(RANDOM.normal(0.5, 0.15, size), 0, 1)
    return np.rint((answers + RANDOM.normal(0, 0.07, size) - 0.5) * 40_000).astype(np.int64)[:, None], answers


def simulate(layout: CoverLayout, records: int, epsilon: str, level: float) -> tuple[float, float, float]:
    """The mean coverage of RUNS releases by the mechanism itself, its standard error, and the mean width over that of
    open split conformal.
    """
    scores, answers = draw_records(layout, FRESH)
    places = layout.cells(scores, answers)[0]
    law = np.bincount(places, minlength=layout.own.bins) / FRESH
    counts = RANDOM.multinomial(records, law, RUNS)
    released, variance = release(layout, counts, epsilon)
    found = [layout.last_place(each.tolist(), level, variance) for each in released]
    assert None not in found
    widths = layout.ends
    if layout.target_range is None:  # how many classes a set has
        each = layout.class_places(scores)
        widths = np.array([(each <= place).sum() / FRESH for place in range(layout.own.bins)])
    open_place = (np.cumsum(counts, axis=1) < np.ceil((records + 1) * level)).sum(axis=1)
    open_width = (widths[open_place] + widths[np.maximum(open_place - 1, 0)]) / 2  # somewhere in the bin
    held = np.cumsum(law)[found]
    return held.mean(), held.std() / RUNS**0.5, widths[found].mean() / open_width.mean()


@pytest.mark.statistical
@pytest.mark.parametrize("layout", [CLASSES, NUMBER], ids=["classes", "number"])
def test_nine_of_ten_are_covered_at_5000_rows_by_answers_hardly_wider_than_without_privacy(layout):
    """Within a point of 90 %, and never less than asked by more than chance: 4 standard errors."""
    for epsilon in ("0.25", "1"):
        found, error, width = simulate(layout, 5000, epsilon, 0.9)
        assert 0.9 - 4 * error <= found <= 0.91
        assert width <= 1.1
    found, error, _ = simulate(layout, 5000, "1", 0.8)
    assert 0.8 - 4 * error <= found <= 0.81


@pytest.mark.statistical
def test_few_rows_at_a_small_epsilon_cover_no_less_and_a_bin_less_would_be_seen():
    for layout in (CLASSES, NUMBER):
        few = replace(layout, own=replace(layout.own, bins=choose_cover_bins(500)))
        found, error, _ = simulate(few, 1000, "0.6", 0.9)
        assert 0.9 - 4 * error <= found <= 0.93
    with patch.object(CoverLayout, "_first", staticmethod(lambda beyond: int(np.argmax(beyond >= 0)) - 1)):
        found, error, _ = simulate(NUMBER, 5000, "1", 0.9)
    assert found < 0.9 - 4 * error


def test_a_level_without_enough_records_is_none_and_says_nothing():
    counts, noise = np.zeros(CLASSES.size), Noise(2 * 49.0)
    counts[[3, 40, 250]], counts[-1] = np.array([700, 250, 50]) * PARTS, 1000
    assert CLASSES.last_place(counts, 0.69, 1e-9) == 3
    assert CLASSES.last_place(counts, 0.71, 1e-9) == 40
    assert CLASSES.last_place(counts, 0.96, 1e-9) == 250
    assert CLASSES.last_place(np.append(counts[:-1] * 0.5, 1000), 0.9, 1e-9) == 255  # never reached: all there is
    assert CLASSES.last_place(counts, 0.99, noise.variance) is None
    told = {metric.name: metric.to_json() for metric in cover_metrics(CLASSES, counts, Noise(2 * 4900.0))}
    assert told["least_chance_95"]["value"] is None
    assert judge(CLASSES.kind, [*told.values()]) == UNCLEAR
    levels = [int(name[-2:]) for name, metric in told.items() if name != "records" and metric["value"] is not None]
    assert cover_levels({"histogram": {}, "metrics": [*told.values()]}) == sorted(levels) != [80, 90, 95]


def test_figures_say_what_a_level_means_of_each_group_in_units_of_the_answer():
    layout = GroupedLayout(NUMBER, "sex", ("f", "m", "other or missing"))
    scores, answers = draw_records(NUMBER, 3000)
    counts = np.bincount(NUMBER.cells(scores, answers).ravel(), minlength=NUMBER.size)
    noise = Noise(98.0)
    metrics = grouped_metrics(layout, [*counts, *(2 * counts), *(0 * counts)], noise)
    found = {(metric.name, metric.group): metric.found for metric in metrics}
    quantile = float(np.quantile(np.abs(NUMBER.own.answers_of(scores) - answers), 0.9)) * 40
    for group in ("f", "m"):
        figure = found["half_width_90", group]
        assert figure.low < quantile < figure.high
        assert quantile < figure.value < 1.03 * quantile
    assert found["half_width_90", "m"].high < found["half_width_90", "f"].high
    assert found["half_width_90", "other or missing"].is_whole
    assert {metric.groups for metric in metrics} == {()}
    stated = {"histogram": {"groups": {}}, "metrics": [metric.to_json() for metric in metrics]}
    assert cover_levels(stated) == [80, 90, 95]
    stated["metrics"] = [each for each in stated["metrics"] if each.get("group") == "other or missing"]
    assert cover_levels(stated) == [], "of all records alone no group is answered"
    assert [choose_cover_bins(strength) for strength in (10, 1000, 1e9)] == [*COVER_BINS]


def test_what_is_wanted_is_read_or_refused():
    assert read_wanted(None, None, None) is None
    wanted = read_wanted(None, ".9", "sex")
    assert (wanted.level, wanted.covers, wanted.group) == (0.9, True, "sex")
    assert wanted.names(("a", 1)) == ("in_a", "in_1")
    assert (wanted.names(()), read_wanted("0.6", None, None).names(("a", "b"))) == (("low", "high"), ("low", "high"))
    for texts in ((".9", ".9", None), (None, None, "sex"), (".9", None, "sex"), (None, "1", None), (None, "nan", None)):
        with pytest.raises(InputError, match=r"one at a time|goes with cover|for instance \.9"):
            read_wanted(*texts)
