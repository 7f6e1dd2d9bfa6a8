"""Rows and their statistics: two classes and more, votes of any weight, and every limit refused before a number is
wrong. All compared with plain Python integers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import split

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.parts.votes import Vote
from training.rows import kernels
from training.rows.partitions import votes as votes_asked
from training.rows.partitions.rows import Rows
from training.rows.partitions.votes import states_after

WIDTHS = [3, 200, 5, 17, 2, 40]


def make(seed: int, rows: int, widths, classes: int, dtype=np.uint8):
    random = np.random.default_rng(seed)
    bins = np.stack([random.integers(0, width, rows) for width in widths]).astype(dtype)
    return bins, random.integers(0, classes, rows).astype(np.uint8)


def some_votes(seed: int, count: int, widths, outputs: int, weights=(-2, -1, 1, 3)) -> list[Vote]:
    random = np.random.default_rng(seed)
    kinds, features = random.choice(["above", "is", "always"], count), random.integers(0, len(widths), count)
    return [
        Vote(str(kind), int(f), int(random.integers(0, widths[f])), int(random.choice(weights)), output=int(output))
        for kind, f, output in zip(kinds, features, random.integers(0, outputs, count), strict=True)
    ]


def bound_of(votes) -> int:
    """A public total weight that holds for every output."""
    return sum(abs(vote.weight) for vote in votes)


def plain(bins, labels, widths, classes, votes):
    """(y, F), each (outputs, rows), row by row from the definition."""
    own = [1] if classes == 2 else range(classes)
    signs = np.array([[1 if label == k else -1 for label in labels] for k in own], dtype=object)
    scores = np.zeros((len(own), labels.size), dtype=object)
    for vote in votes:
        table = [int(value) for value in vote.table(widths[vote.feature])]
        scores[vote.output] += np.array([table[code] for code in bins[vote.feature]], dtype=object)
    return signs.reshape(scores.shape), scores


def plain_sums(bins, widths, signs, scores, weights, bound):
    sums = np.zeros((len(signs), len(bins), max(widths)), dtype=object)
    for k, (ys, fs) in enumerate(zip(signs, scores, strict=True)):
        for i, (y, f) in enumerate(zip(ys, fs, strict=True)):
            for feature, codes in enumerate(bins):
                sums[k, feature, codes[i]] += y * int(weights[y * f + bound])
    return sums


def plain_counts(values, bound):
    return [[int((row == value).sum()) for value in range(-bound, bound + 1)] for row in values]


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_statistics_are_those_of_their_definition(classes, dtype, threads):
    widths = [1000, *WIDTHS] if dtype is np.uint16 else WIDTHS
    bins, labels = make(classes, 157, widths, classes, dtype)
    rows = split(-(-labels.size // threads), bins, labels, widths, classes)
    votes = some_votes(7, 9, widths, rows.outputs)
    bound = bound_of(votes)
    weights = np.random.default_rng(1).integers(0, 1 << 36, 2 * bound + 1)
    signs, scores = plain(bins, labels, widths, classes, votes)
    found = rows.signed_sums(votes, weights, bound)
    assert found.dtype == np.int64
    assert found.shape == (1 if classes == 2 else classes, len(widths), max(widths))
    assert (found == plain_sums(bins, widths, signs, scores, weights, bound)).all()
    assert rows.margin_counts(votes, bound).tolist() == plain_counts(signs * scores, bound)


def test_scores_of_two_classes_are_counted_per_class():
    bins, labels = make(0, 300, WIDTHS, 2)
    votes = some_votes(3, 6, WIDTHS, 1)
    bound = bound_of(votes)
    scores = plain(bins, labels, WIDTHS, 2, votes)[1][0]
    expected = [plain_counts(scores[None, labels == label], bound)[0] for label in (0, 1)]
    assert Rows(bins, labels, WIDTHS).score_counts(votes, bound).tolist() == expected
    with pytest.raises(InputError, match="two"):
        Rows(bins, labels, WIDTHS, 3).score_counts([], 0)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 9000), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_groups_of_features_are_invisible(widths, limit, seed):
    """Whatever features are counted jointly, each one's sums are those of the feature alone."""
    bins, labels = make(seed, 50, widths, 2, np.uint16)
    weights = np.array([-5, 11, 1 << 36])
    rows, vote, before = Rows(bins, labels, widths), [Vote("above", 0, 0, 1)], votes_asked.JOINT_CODES
    try:
        votes_asked.JOINT_CODES = limit
        together = rows.signed_sums(vote, weights, 1)
        votes_asked.JOINT_CODES = 0
        assert (together == rows.signed_sums(vote, weights, 1)).all()
    finally:
        votes_asked.JOINT_CODES = before
    assert kernels.votes.grouped(tuple(widths), 0)[1].size == len(widths) + 1


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 1 << 14))
def test_every_feature_is_in_one_group_of_bounded_size(widths, limit):
    members, starts, entries = kernels.votes.grouped(tuple(widths), limit)
    assert sorted(members.tolist()) == list(range(len(widths)))
    sizes = [np.prod([widths[m] for m in members[low:high]]) for low, high in pairwise(starts)]
    lengths = np.diff(starts)
    assert entries == max(sizes)
    assert all(size <= limit or length == 1 for size, length in zip(sizes, lengths, strict=True))


@pytest.mark.parametrize(
    ("weight", "dtype"),
    [(1, np.int16), (16_383, np.int16), (16_384, np.int32), (100_000, np.int32), (-(2**30), np.int64)],
)
def test_states_grow_with_the_public_weight_of_votes(weight, dtype):
    """At the largest margin that a type carries, and one above it."""
    bins, labels = np.array([[0, 1, 2]], np.uint8), np.array([0, 1, 1], np.uint8)
    rows = Rows(bins, labels, [3])
    votes = [Vote("is", 0, 1, weight)]
    (state,) = states_after(rows.parts[0], votes, abs(weight))
    assert state.dtype == dtype
    assert state.tolist() == [-2 * weight, 2 * weight + 1, -2 * weight + 1]


def test_margins_of_a_million_votes_do_not_overflow():
    bins, labels = make(0, 5, [2], 2)
    votes = [Vote("always", 0, 0, 100_000)] * 10
    found = Rows(bins, labels, [2]).margin_counts(votes, 1_000_000)
    assert found[0, 2_000_000] == labels.sum()
    assert found[0, 0] == 5 - labels.sum()
    assert found.sum() == 5


@pytest.mark.parametrize(("classes", "dtype", "weights"), [(2, np.uint8, (-2, 1)), (3, np.uint16, (-900, 700))])
def test_many_votes_in_one_pass_are_those_one_by_one(classes, dtype, weights, monkeypatch):
    """Of a slice of rows, in several blocks, from the beginning and on top of others; more features than one group."""
    widths = [*WIDTHS, 300 if dtype == np.uint16 else 30]
    bins, labels = make(5, 40_000, widths, classes, dtype)
    rows = Rows(bins[:, :30_000], labels[:30_000], widths, classes)
    votes = some_votes(2, 200, widths, rows.outputs, weights)
    bound = bound_of(votes)
    found = {}
    for most in (0, 1 << 30):
        monkeypatch.setattr(votes_asked, "ONE_BY_ONE", most)
        found[most] = [part.fresh() for part in rows.parts]
        for part in found[most]:
            states_after(part, votes[:50], bound)
    for one, other in zip(*found.values(), strict=True):
        for here, there in zip(states_after(one, votes, bound), states_after(other, votes, bound), strict=True):
            assert here.dtype == there.dtype
            assert (here == there).all()


def test_a_total_weight_above_64_bits_is_refused():
    bins, labels = make(0, 5, [2], 2)
    with pytest.raises(InputError, match="64 bits"):
        Rows(bins, labels, [2]).margin_counts([Vote("always", 0, 0, 1 << 62)], 1)


def test_a_bound_below_the_votes_is_refused_and_the_next_question_answered():
    bins, labels = make(4, 90, WIDTHS, 3)
    votes = some_votes(1, 6, WIDTHS, 3)
    bound, rows = bound_of(votes), Rows(bins, labels, WIDTHS, 3)
    rows.margin_counts(votes[:2], bound)
    with pytest.raises(InputError, match="bound=1"):
        rows.margin_counts([*votes, Vote("always", 0, 0, 1)], 1)
    assert (rows.margin_counts(votes, bound) == Rows(bins, labels, WIDTHS, 3).margin_counts(votes, bound)).all()


def test_a_pass_that_was_cut_short_leaves_nothing_behind(monkeypatch):
    bins, labels = make(4, 90, WIDTHS, 2)
    votes = some_votes(1, 6, WIDTHS, 1)
    bound, rows = bound_of(votes), Rows(bins, labels, WIDTHS)

    real, left = kernels.votes.advance, [0, 1, 1]

    def cut(*same):
        if not left.pop():
            raise KeyboardInterrupt
        real(*same)

    rows.margin_counts(votes[:2], bound)
    monkeypatch.setattr(kernels.votes, "advance", cut)
    with pytest.raises(KeyboardInterrupt):
        rows.margin_counts(votes, bound)
    monkeypatch.undo()
    assert (rows.margin_counts(votes, bound) == Rows(bins, labels, WIDTHS).margin_counts(votes, bound)).all()


def test_weights_that_could_overflow_a_sum_are_refused():
    bins, labels = make(0, 4, [2], 2)
    rows = Rows(bins, labels, [2])
    most = np.array([(1 << 61) - 1])
    assert abs(rows.signed_sums([], most, 0)).sum() <= 4 * int(most[0])
    for weights in (most + 1, -most - 1, np.array([-(1 << 63)])):
        with pytest.raises(InputError, match="64 bits"):
            rows.signed_sums([], weights, 0)
    with pytest.raises(InputError, match="must be 1"):
        rows.signed_sums([], np.ones(3, np.int64), 0)


def test_codes_and_labels_out_of_range_are_refused():
    """The kernels trust what is checked here: they write where a code points."""
    bins, labels = make(0, 4, [3, 2], 2)
    with pytest.raises(DataError, match="code"):
        Rows(np.array([[0, 1, 3, 0], [0, 1, 0, 1]], np.uint8), labels, [3, 2])
    with pytest.raises(DataError, match="below 2"):
        Rows(bins, np.array([0, 1, 2, 0], np.uint8), [3, 2])
    with pytest.raises(DataError, match="below 1"):
        Rows(bins, labels, [3, 2], 1)


def test_mapped_and_transposed_bins_are_as_good(tmp_path):
    bins, labels = make(2, 700, WIDTHS, 2)
    np.save(tmp_path / "bins.npy", bins)
    votes = some_votes(1, 4, WIDTHS, 1)
    bound = bound_of(votes)
    weights = np.arange(2 * bound + 1)
    expected = Rows(bins, labels, WIDTHS).signed_sums(votes, weights, bound)
    for same in (np.load(tmp_path / "bins.npy", mmap_mode="r"), np.asfortranarray(bins)):
        assert (Rows(same, labels, WIDTHS).signed_sums(votes, weights, bound) == expected).all()


def test_weights_may_have_either_sign_and_votes_may_weigh_nothing():
    bins, labels = make(9, 64, WIDTHS, 3)
    votes = [*some_votes(5, 5, WIDTHS, 3), Vote("above", 1, 3, 0, output=2)]
    bound = bound_of(votes)
    weights = np.random.default_rng(2).integers(-(1 << 40), 1 << 40, 2 * bound + 1)
    signs, scores = plain(bins, labels, WIDTHS, 3, votes)
    found = Rows(bins, labels, WIDTHS, 3).signed_sums(votes, weights, bound)
    assert (found == plain_sums(bins, WIDTHS, signs, scores, weights, bound)).all()
