"""Figures by group: right without noise, at once as often as they say with it, and so do gaps."""

from __future__ import annotations

import numpy as np
import pytest

from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.worth.groups import GroupedLayout, group_names, group_places, grouped_metrics
from models.worth.intervals import Noise
from models.worth.intervals import ratio as ratio_of
from models.worth.judging import BETTER, judge
from models.worth.layout import BINS, Layout
from models.worth.metrics import metrics, name_of_figure

BINARY, THREE = Layout(("no", "yes"), 0.01), Layout(("a", "b", "c"), 1.0)
NUMBER = Layout((), 0.01, (10.0, 30.0))
NAMES = ("f", "m", "nobody", "other or missing")
QUIET = Noise(0.0)


def by_name(layout, counts, noise=QUIET):
    return {
        (each.name, each.of, each.group): each.found for each in grouped_metrics(layout, np.ravel(counts), noise)
    }  # fmt: skip


def law(chance, shift):
    """Of a group with this share of yes: (2 * BINS,) chances of class by bin, scores moved by `shift`."""
    places = np.linspace(-1, 1, BINS)
    score = np.stack([np.exp(-2 * (places + 0.4 - shift) ** 2), np.exp(-2 * (places - 0.4 - shift) ** 2)])
    return (score / score.sum(axis=1, keepdims=True) * [[1 - chance], [chance]]).ravel()


def test_a_groups_names_and_places():
    for feature, names, codes in (
        (CategoricalFeature("x", ("a", "b")), ("a", "b", "other or missing"), [0, 1, 2, 2]),
        (BooleanFeature("x"), ("false", "true", "missing"), [0, 1, 2]),
        (NumericFeature("x", (30.0, 50.0)), ("up to 30", "above 30, up to 50", "above 50", "missing"), [0, 1, 2, 3]),
    ):
        assert group_names(feature) == names
        assert group_places(names, np.arange(feature.bins)).tolist() == codes


def test_every_group_is_measured_as_if_it_were_alone():
    """And the whole as without groups; a group that no row has is told by nothing, and is in no gap."""
    random, layout = np.random.default_rng(1), GroupedLayout(BINARY, "sex", NAMES)
    counts = np.stack([random.multinomial(n, law(p, s)) for n, p, s in ((900, 0.3, 0.1), (2000, 0.5, -0.2))])
    counts = np.concatenate([counts, np.zeros((2, 2 * BINS), int)])
    found = by_name(layout, counts)
    whole = {(each.name, each.of, None): each.found for each in metrics(BINARY, counts.sum(axis=0).tolist(), QUIET)}
    assert {key: value for key, value in found.items() if key in whole} == whole
    said, true = np.tile(np.arange(BINS) >= BINS // 2, 2), np.repeat([False, True], BINS)
    for name, own in zip(("f", "m"), counts, strict=False):
        alone = {each.name: each.found.value for each in metrics(BINARY, own.tolist(), QUIET)}
        rates = {key[0]: value.value for key, value in found.items() if key[2] == name}
        assert rates == pytest.approx(
            {name: alone[name] for name in ("accuracy", "precision", "prevalence", "auroc", "records")}
            | {"true_positive_rate": alone["recall"], "false_positive_rate": 1 - alone["specificity"]}
            | {"selection_rate": own[said].sum() / own.sum()}
        )
        assert own[said & true].sum() / own[true].sum() == pytest.approx(rates["true_positive_rate"])
    for key, value in found.items():
        if key[2] == "nobody" and key[0] != "records":
            assert (value.value, value.low, value.high) == (None, 0.0, 1.0)
    gaps = [each for each in grouped_metrics(layout, counts.ravel().tolist(), QUIET) if each.groups]
    assert {each.groups for each in gaps} == {("f", "m")}
    for each in gaps:
        of = each.name.removesuffix("_gap")
        assert each.found.value == pytest.approx(abs(found[of, None, "f"].value - found[of, None, "m"].value))
        assert each.found.low <= each.found.value <= each.found.high
    body = [each.to_json() for each in grouped_metrics(layout, counts.ravel().tolist(), QUIET)]
    assert (judge("binary", body) == BETTER) == (whole["auroc", None, None].low > 0.5)  # groups have no say in it
    assert {name_of_figure(each) for each in body} >= {"auroc", "auroc, f", "auroc_gap among 2 groups"}
    alone = np.where(np.arange(4)[:, None] == 1, counts, 0)
    assert not [each for each in grouped_metrics(layout, alone.ravel().tolist(), QUIET) if each.groups]


def test_several_classes_and_numbers_by_group():
    random = np.random.default_rng(2)
    table = random.integers(5, 50, (2, 3, 3))
    found = by_name(GroupedLayout(THREE, "sex", ("f", "m")), table)
    for name, own in zip(("f", "m"), table, strict=True):
        assert found["accuracy", None, name].value == pytest.approx(own.trace() / own.sum())
        assert found["selection_rate", "b", name].value == pytest.approx(own[:, 1].sum() / own.sum())
        assert found["true_positive_rate", "c", name].value == pytest.approx(own[2, 2] / own[2].sum())
    layout, places = GroupedLayout(NUMBER, "sex", ("f", "m")), random.random(4000)
    counts = []
    for spread in (0.02, 0.08):
        scores = np.rint((places + random.normal(size=4000) * spread - 0.5) * 2000).astype(np.int64)[:, None]
        counts.append(np.bincount(NUMBER.cells(scores, places).ravel(), minlength=NUMBER.size))
    found = by_name(layout, counts)
    assert found["rmse", None, "m"].value > 3 * found["rmse", None, "f"].value
    assert found["mae_gap", None, None].low > 0
    assert found["records", None, "f"].value == 4000


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_intervals_of_all_groups_hold_at_once_and_so_do_gaps(epsilon):
    """Three groups, one small and one that nobody is in. Of 100 at 95 %, fewer than 87 hold once in 1,000; and with
    a noise four times as large as it is said to be they do not hold.
    """
    sizes, layout = (4000, 2500, 300, 0), GroupedLayout(BINARY, "sex", NAMES)
    laws = [law(0.3, 0.1), law(0.45, -0.1), law(0.2, 0.0), law(0.5, 0.0)]
    truths = [by_name(GroupedLayout(BINARY, "sex", ("x",)), each * 1e9) for each in laws]
    names = [name for name, of, group in truths[0] if group == "x" and name != "records"]
    random, ratio = np.random.default_rng(3), np.exp(-epsilon)
    variance, held, lied, ghosts = 2 * ratio / (1 - ratio) ** 2, dict.fromkeys([*names, "gaps"], 0), 0, 0
    for _ in range(100):
        drawn = [random.multinomial(n, p) for n, p in zip(sizes, laws, strict=True)]
        shape = (4, 2 * BINS)
        noise = random.geometric(1 - ratio, shape) - random.geometric(1 - ratio, shape)
        found = grouped_metrics(layout, (np.stack(drawn) + noise).ravel().tolist(), Noise(variance))
        own = {(each.name, each.group): each.found for each in found if each.group}
        for name in names:
            truth = [each[name, None, "x"].value for each in truths[:3]]
            held[name] += all(
                own[name, who].low <= is_so <= own[name, who].high for who, is_so in zip(NAMES, truth, strict=False)
            )
        gaps = [each for each in found if each.groups]
        ghosts += any(NAMES[3] in each.groups for each in gaps)
        right = []
        for each in gaps:
            of = [truths[NAMES.index(who)][each.name.removesuffix("_gap"), None, "x"].value for who in each.groups]
            right.append(each.found.low <= max(of) - min(of) <= each.found.high)
        held["gaps"] += np.mean(right) if right else 1
        loud, said = drawn[2] + 4 * noise[2], np.tile(np.arange(BINS) >= BINS // 2, 2).astype(float)
        told = ratio_of(loud, said, np.ones(2 * BINS), Noise(variance, 1 - 0.05 / 4))
        lied += not told.low <= truths[2]["selection_rate", None, "x"].value <= told.high
    assert min(held.values()) >= 87, held
    assert ghosts == 0, ghosts
    assert lied > 5, lied
