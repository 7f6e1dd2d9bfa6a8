"""What owners add up: its length is bounded whatever the rows are; noise of one aggregator is what the claim needs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import exp

import numpy as np
import pytest
from scipy.stats import beta

from accountant.noise import shares
from accountant.noise.mechanisms import DiscreteGaussian
from accountant.privacy import gdp
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.keys.dsse import ENVELOPE_LIMIT
from dpserve_verify.privacy.budget import Budget
from local.owner.own_rows import numbers
from local.reports.corners import corners
from local.reports.groups import GRID, Groups, round_answers
from local.reports.shared import MAX_BYTES, ROOM, Aggregator, SharedDefinition, multiplier_for, plan_of
from local.reports.shared_learning import groups_for, learn_shared
from local.reports.sums import LIMIT, NoisySum, sum_payload
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from serving.wire.request_bodies import CONTROL_BYTES

FEATURES = (
    NumericFeature("a", tuple(np.linspace(-3, 3, 33))),
    CategoricalFeature("c", tuple("uvwxyz")),
    BooleanFeature("t"),
)
BUDGET = Budget.of("1", "0.00001")


def definition(features=FEATURES, bounded=None, budget=BUDGET, groups=4) -> SharedDefinition:
    layout = Groups(features, groups)
    whom = tuple(Aggregator(name, f"{at + 1}" * 64, f"{at + 3}" * 64) for at, name in enumerate("ab"))
    return SharedDefinition(
        "c", "p", "m", "shared-additive", budget.epsilon, 100, 50, "y", () if bounded else ("no", "yes"), features,
        budget.delta, groups, multiplier_for(layout, budget), bounded, whom,
    )  # fmt: skip


def drawn(rng, rows):
    return [rng.integers(0, feature.bins, rows) for feature in FEATURES]


def test_groups_cover_every_code_and_keep_missing_apart():
    layout = Groups(FEATURES, 4)
    assert [len(set(table)) for table in layout.tables] == [4, 4, 3]
    a, c, _ = layout.tables
    assert (np.diff(a[:-1]) >= 0).all()
    assert set(a[:-1]) == {0, 1, 2}
    assert a[-1] == 3
    assert c.tolist() == [4, 5, 6, 7, 7, 7, 7, 7]
    assert (
        layout.numbers
        == 4 * 4 + 4 * 3 + 4 * 3 + 2 * 11
        == len(layout.statistic(drawn(np.random.default_rng(0), 1), np.ones(1)))
    )
    for most in (1, 65):
        with pytest.raises(InputError):
            Groups(FEATURES, most)


def test_no_owner_is_longer_than_the_sensitivity_and_one_row_is_as_long():
    """Exact: integers are compared. Cutting towards 0 shortens; a mean is no longer than its longest part."""
    rng, layout = np.random.default_rng(1), Groups(FEATURES, 4)
    longest = 0
    for rows in (1, 1, 1, 2, 3, 7, 100, 5000):
        for answers in (rng.choice([-1.0, 1.0], rows), rng.uniform(-1, 1, rows), rng.uniform(-9, 9, rows)):
            found = layout.statistic(drawn(rng, rows), answers)
            longest = max(longest, int((found.astype(object) ** 2).sum()))
    assert longest <= layout.sensitivity**2
    assert longest > (layout.sensitivity - 2) ** 2  # attained by one row
    same = [np.zeros(999, int) for _ in FEATURES]  # all rows alike: the mean is that row
    assert np.array_equal(
        layout.statistic(same, np.ones(999)), layout.statistic([part[:1] for part in same], np.ones(1))
    )


def test_of_more_classes_no_owner_is_longer_either_and_sums_are_theirs():
    """Exact, of 3 and 32 classes: a label of several numbers is no longer than one; the first class's is as long."""
    rng = np.random.default_rng(4)
    for classes in (3, 32):
        layout, table = Groups(FEATURES, 4, classes - 1), corners(classes)
        assert layout.sensitivity == Groups(FEATURES, 4).sensitivity
        assert (np.square(round_answers(table).astype(np.int64)).sum(axis=1) <= GRID**2).all()
        longest = 0
        for rows in (1, 1, 2, 7, 500):
            for labels in (np.zeros(rows, int), np.full(rows, classes - 1), rng.integers(0, classes, rows)):
                found = layout.statistic(drawn(rng, rows), table[labels])
                longest = max(longest, int((found.astype(object) ** 2).sum()))
        assert (layout.sensitivity - 2) ** 2 < longest <= layout.sensitivity**2
        codes, labels = drawn(rng, 200), rng.integers(0, classes, 200)
        total = sum(layout.statistic([code[[at]] for code in codes], table[labels[[at]]]) for at in range(200))
        held = np.zeros((200, layout.size))
        for of, code in zip(layout.tables, codes, strict=True):
            held[np.arange(200), of[code]] = 1
        counts, sums = layout.moments(total.astype(float))
        assert np.allclose(np.diag(counts), held.sum(axis=0))
        assert np.abs(sums - held.T @ table[labels]).max() <= 200 / GRID
    with pytest.raises(InputError, match="length 1"):
        layout.statistic(drawn(rng, 1), np.full((1, 31), 0.5))


def test_moments_are_those_of_the_rows():
    rng, layout = np.random.default_rng(2), Groups(FEATURES, 4)
    codes, answers = drawn(rng, 300), rng.choice([-1.0, 1.0], 300)
    total = sum(layout.statistic([code[[at]] for code in codes], answers[[at]]) for at in range(300))
    counts, sums = layout.moments(total.astype(float))
    held = np.zeros((300, layout.size))
    for table, code in zip(layout.tables, codes, strict=True):
        held[np.arange(300), table[code]] = 1
    whole = held.T @ held
    for table in layout.tables:  # of one feature the diagonal alone
        whole[np.ix_(list(set(table)), list(set(table)))] *= np.eye(len(set(table)))
    assert np.allclose(counts, whole)
    assert np.allclose(sums[:, 0], held.T @ answers)


def test_noise_of_one_aggregator_is_what_the_claim_needs():
    found = definition()
    assert gdp.epsilon_of(found.plan, found.delta) <= found.epsilon
    less = found.noise_multiplier - Decimal("0.000001")
    assert gdp.epsilon_of(plan_of(found.layout, less), found.delta) > found.epsilon
    for wrong in ({"noise_multiplier": less}, {"allowed": Decimal(0)}, {"classes": ("a",)}, {"bounded": (0.0, 1.0)},
                  {"aggregators": found.aggregators[:1]}, {"aggregators": found.aggregators[:1] * 2},
                  {"groups": 1}, {"least": 101}, {"learner": "local-linear"}):  # fmt: skip
        with pytest.raises(InputError):
            replace(found, **wrong)
    with pytest.raises(InputError, match="Gaussian"):
        multiplier_for(found.layout, Budget.of("1", "0"))


def test_what_nobody_could_send_is_not_asked_for():
    """The largest answer of a campaign that is allowed is read by the platform; of a larger one there is none."""
    assert MAX_BYTES == CONTROL_BYTES == ENVELOPE_LIMIT == LIMIT
    wide = tuple(NumericFeature(f"x{at}", tuple(map(float, range(20)))) for at in range(23))
    for features, owners in ((FEATURES, 4_500_000), (wide[:22], 800_000)):
        found = replace(definition(features, groups=16), owners=owners)
        total = NoisySum(np.ones(owners, bool), shares.split(np.arange(found.layout.numbers), 1 << 40)[0])
        envelope = len(encode_base64(sum_payload(found, 1, total))) + 512  # keyid, signature, names
        assert found.largest - 2 * ROOM <= envelope <= found.largest <= MAX_BYTES
        with pytest.raises(InputError, match="fewer owners"):
            replace(found, owners=owners + 500_000)
    with pytest.raises(InputError, match="fewer groups"):  # two shares alone
        definition(wide, groups=16)


def loss_is_within(noises: int, factor: float, draws: int = 20_000) -> bool:
    """Black box: one owner's worst statistic against none, as whoever knows all other shares sees the sum. Whether the
    chance of the best event keeps to e^epsilon and delta, by Clopper and Pearson at 1e-4.

    The statistic is projected on the owner's own direction: of a Gaussian no event tells more.
    """
    found = definition((NumericFeature("a", (0.0,)),), budget=Budget.of("2", "0.00001"), groups=3)
    own = found.layout.statistic([np.zeros(1, int)], np.ones(1))
    sensitivity = int(found.layout.sensitivity / factor)
    mechanism = DiscreteGaussian(found.noise_multiplier)

    def seen(there: bool) -> np.ndarray:
        total = np.zeros(draws)
        for number in np.flatnonzero(own):
            noise = sum(mechanism.draw(np.zeros(draws, np.int64), sensitivity) for _ in range(noises))
            total += float(own[number]) * (there * own[number] + noise)
        return total / np.linalg.norm(own.astype(float))

    with_owner, without = seen(True), seen(False)
    edge = float(found.noise_multiplier) * found.layout.sensitivity
    for threshold in (0.5 * edge, edge, 1.5 * edge, found.layout.sensitivity / 2):
        hits, misses = (with_owner > threshold).sum(), (without > threshold).sum()
        least = beta.ppf(1e-4, hits, draws - hits + 1) if hits else 0.0
        most = beta.ppf(1 - 1e-4, misses + 1, draws - misses)
        if least > exp(float(found.epsilon)) * most + float(found.delta):
            return False
    return True


@pytest.mark.statistical
def test_one_honest_aggregator_is_enough_and_none_is_caught():
    assert loss_is_within(noises=2, factor=1.0)
    assert loss_is_within(noises=1, factor=1.0)  # the other adds none
    assert not loss_is_within(noises=1, factor=8.0)
    assert not loss_is_within(noises=0, factor=1.0)


def test_number_is_learnt_from_sums():
    """A public range in place of classes: without noise the answer is near a linear truth."""
    found = definition(bounded=(0.0, 10.0), budget=Budget.of("50", "0.0001"), groups=8)
    rng = np.random.default_rng(3)
    a, t = rng.uniform(-3, 3, 3000), rng.random(3000) < 0.5
    y = np.clip(5 + a + 2 * t, 0, 10)
    codes = [FEATURES[0].encode(a), np.zeros(3000, int), t.astype(int)]
    scaled, _ = numbers([str(value) for value in y], (0.0, 10.0))
    total = sum(found.layout.statistic([code[[at]] for code in codes], scaled[[at]]) for at in range(3000))
    columns = {"a": a, "c": np.array(["u"] * 3000), "t": t}
    answers = learn_shared(found, np.asarray(total), 3000).values(columns)
    assert np.corrcoef(answers, y)[0, 1] > 0.95
    assert GRID * 3000 < 2**53


def test_public_rule_grows_with_owners_and_epsilon():
    assert [groups_for(30_000, epsilon) for epsilon in (0.1, 0.25, 0.5, 1)] == [8, 8, 16, 16]
