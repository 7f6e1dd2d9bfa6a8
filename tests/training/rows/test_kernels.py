"""The kernels against plain numpy: equal to the last bit, whatever the type, the size, the threads and the history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import split

from accountant.errors import DataError
from models.features.features import NumericFeature
from models.parts.votes import Vote
from training.learners.boosting.bdpe_loss import WEIGHT_ONE
from training.learners.boosting.leaf_rules import one_rules
from training.learners.boosting.reweighting import Projected, Scheduled
from training.learners.ebm.residuals import GRID as EBM_GRID
from training.rows.kernels import trees
from training.rows.kernels import votes as kernels
from training.rows.partitions import threads as engine
from training.rows.partitions.rows import FEW_ROWS, Rows, row_bound

SIZES = [1, 2, 3, 4, 5, 7, kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 2 * kernels.BLOCK + 3]


def make(seed: int, rows: int, widths, dtype=np.uint8):
    random = np.random.default_rng(seed)
    bins = np.stack([random.integers(0, width, rows) for width in widths]).astype(dtype)
    return bins, random.integers(0, 2, rows).astype(np.uint8)


def some_votes(seed: int, count: int, widths) -> list[Vote]:
    random = np.random.default_rng(seed)
    return [
        Vote(kind, int(f), int(random.integers(0, widths[f] - 1)), int(random.choice([-2, -1, 1, 3])))
        for kind, f in zip(
            random.choice(["above", "is", "always"], count), random.integers(0, len(widths), count), strict=True
        )
    ]


def plain_margins(bins, labels, widths, votes):
    total = np.zeros(labels.size, dtype=np.int64)
    for vote in votes:
        total += vote.table(widths[vote.feature])[bins[vote.feature]]
    return np.where(labels > 0, 1, -1) * total


def plain_sums(bins, labels, margins, weights, bound, width):
    signed = np.where(labels > 0, 1, -1) * weights[margins + bound]
    sums = np.zeros((len(bins), width), dtype=object)
    for f, codes in enumerate(bins):
        np.add.at(sums[f], codes, [int(value) for value in signed])
    return sums


def bound_of(votes) -> int:
    return sum(abs(vote.weight) for vote in votes)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("features", [1, 3, 4, 5, 9])
def test_signed_sums_are_those_of_numpy(dtype, rows, features):
    widths = [3, 255, 5, 17, 4, 2, 90, 31, 8][:features]
    widths[0] = 1000 if dtype is np.uint16 else 256
    bins, labels = make(rows, rows, widths, dtype)
    votes = some_votes(rows, 6, widths)
    bound = bound_of(votes)
    weights = np.random.default_rng(1).integers(0, 1 << 36, 2 * bound + 1)
    found = Rows(bins, labels, widths).signed_sums(votes, weights, bound)
    margins = plain_margins(bins, labels, widths, votes)
    assert found.dtype == np.int64
    assert found.shape == (1, features, max(widths))
    assert (found[0] == plain_sums(bins, labels, margins, weights, bound, max(widths))).all()


@given(st.integers(1, 300), st.integers(0, 12), st.integers(0, 10**6))
@settings(max_examples=60)
def test_counts_are_those_of_numpy(size, count, seed):
    widths = [4, 6, 3]
    bins, labels = make(seed, size, widths)
    votes = some_votes(seed, count, widths)
    bound, rows = bound_of(votes), Rows(bins, labels, widths)
    margins = plain_margins(bins, labels, widths, votes)
    assert rows.margin_counts(votes, bound).tolist() == [np.bincount(margins + bound, minlength=2 * bound + 1).tolist()]
    scores = np.where(labels > 0, 1, -1) * margins
    expected = [np.bincount(scores[labels == c] + bound, minlength=2 * bound + 1).tolist() for c in (0, 1)]
    assert rows.score_counts(votes, bound).tolist() == expected


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_change_nothing(threads):
    widths = [40, 7, 90]
    bins, labels = make(5, 50_001, widths)
    votes, answers = some_votes(2, 5, widths), []
    bound = bound_of(votes)
    weights = np.random.default_rng(1).integers(0, 1 << 36, 2 * bound + 1)
    for used in (1, threads):
        rows = split(-(-labels.size // used), bins, labels, widths)
        answers.append([rows.signed_sums(votes[:k], weights, bound) for k in range(6)])
        answers[-1] += [rows.margin_counts(votes, bound), rows.score_counts(votes, bound)]
    assert all((one == other).all() for one, other in zip(*answers, strict=True))


def test_many_cells_use_every_thread(monkeypatch):
    monkeypatch.setattr(engine, "PARALLEL_CELLS", 100)
    bins, labels = make(5, 101, [4])
    assert len(Rows(bins, labels, [4]).parts) == engine.THREADS
    assert len(Rows(bins[:, :99], labels[:99], [4]).parts) == 1


def test_any_order_of_questions_gives_the_same_answers():
    """Longer histories, shorter ones, other ones: the margins kept are those of the votes asked about."""
    widths = [5, 9]
    bins, labels = make(3, 500, widths)
    first, second = some_votes(1, 8, widths), some_votes(2, 8, widths)
    kept = Rows(bins, labels, widths)
    for votes in (first[:3], first, first[:5], second, [], second[:7], first[:1] + second, first):
        bound = bound_of(votes)
        assert (kept.margin_counts(votes, bound) == Rows(bins, labels, widths).margin_counts(votes, bound)).all()


def test_the_largest_sums_fit_into_64_bits():
    """Every row at the largest weight of the projection: 2^26 rows of 2^36 is 2^62, and no bound of rows has more."""
    rows = 1000
    bins, labels = np.zeros((1, rows), np.uint8), np.ones(rows, np.uint8)
    weights = np.array([(1 << 36) * (FEW_ROWS // rows)], dtype=np.int64)
    total = int(Rows(bins, labels, [2]).signed_sums([], weights, 0)[0, 0, 0])
    assert total == rows * int(weights[0]) <= 2**62
    for records in (1, 1 << 25, (1 << 25) + 1, 10**9, 1 << 60):
        most = row_bound(records)
        assert Projected(0.4, 0.5, most).one * most <= 2**62
        assert Scheduled(0.4, 0.1, most=most).one * most <= 2**61
        assert WEIGHT_ONE * most <= 2**62
        assert EBM_GRID * most <= 2**62


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_scores_of_rules_are_sums_over_rows(seed):
    """For every candidate h: the sum of w y h(x), h read off the candidate's own vote."""
    features = (NumericFeature("a", (0.0, 1.0, 2.0)), NumericFeature("b", (5.0,)))
    widths = [feature.bins for feature in features]
    rules, (bins, labels) = one_rules(features), make(seed, 40, widths)
    weights = np.random.default_rng(seed).integers(0, 1 << 36, 1)
    found = rules.scores(Rows(bins, labels, widths).signed_sums([], weights, 0)[0])
    for candidate in range(rules.size):
        vote = rules.vote(candidate, 1)
        agreement = np.where(labels > 0, 1, -1) * vote.table(widths[vote.feature])[bins[vote.feature]]
        assert found[candidate] == int(agreement.sum()) * int(weights[0])
    assert rules.size == 2 * (3 + 1 + 1 + 1 + 1)


def test_no_rows_give_zeros():
    rows = Rows(np.zeros((2, 0), np.uint8), np.zeros(0, np.uint8), [3, 4])
    assert rows.size == 0
    assert not rows.signed_sums([], np.ones(1, np.int64), 0).any()
    assert rows.margin_counts([Vote("always", 0, 0, 1)], 1).tolist() == [[0, 0, 0]]
    assert not rows.score_counts([], 0).any()


def test_bins_that_do_not_fit_the_labels_are_refused():
    with pytest.raises(DataError, match="shape"):
        Rows(np.zeros((2, 3), np.uint8), np.zeros(4, np.uint8), [3, 3])
    with pytest.raises(DataError, match="shape"):
        Rows(np.zeros((1, 4), np.uint8), np.zeros(4, np.uint8), [3, 3])


@given(
    st.lists(st.floats(-1e300, 1e300), max_size=70, unique=True).map(sorted),
    st.lists(st.floats(), max_size=50),
)
def test_numbers_are_encoded_as_the_model_will(edges, values):
    feature = NumericFeature("x", tuple(edges))
    edged = np.array([*values, *edges, *np.nextafter(edges, np.inf), *np.nextafter(edges, -np.inf), -0.0])
    found = kernels.encode_numbers(edged, np.array(edges, float), feature.missing)
    assert found.dtype == np.uint16
    assert found.tolist() == feature.encode(edged).tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_rows_go_to_the_leaves_that_cuts_made(dtype):
    """Against one row after the other; more rows than a block has; cuts that nobody passes."""
    random = np.random.default_rng(5)
    bins = random.integers(0, 7, (4, 20_011)).astype(dtype)
    for _ in range(4):
        limits = np.stack([random.integers(0, 7, 15), random.integers(-1, 7, 15)], axis=1)
        cuts = [(random.integers(new), random.integers(4), *limits[new - 1], new) for new in range(1, 16)]
        leaves, wanted = np.zeros(bins.shape[1] - 11, np.uint8), np.zeros(bins.shape[1] - 11, np.uint8)
        trees.descend(bins, 11, leaves, np.array(cuts))
        for leaf, feature, low, high, new in cuts:
            codes = bins[feature, 11:].astype(int)
            wanted[(wanted == leaf) & (low <= codes) & (codes <= high)] = new
        assert leaves.tolist() == wanted.tolist()
