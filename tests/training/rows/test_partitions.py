"""Rows as a sum of partitions: the same bits wherever they are cut, for every learner and every number of threads; and
several packed arrays read as one.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from same_bits import CLASSES, KINDS, SCHEMA, SIZE, learnt, table
from split_rows import partitions_of, split

from accountant.errors import DataError, JobFailed
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.parts.votes import Vote
from training.measuring.profile.counts import TableCounts
from training.rows.kernels import FRACTION
from training.rows.packed import scratch
from training.rows.partitions import threads
from training.rows.partitions.rows import Rows
from training.rows.partitions.votes import SignedSums
from training.rows.schema.schema import parse_schema
from training.rows.statistics import residuals
from training.rows.statistics.additive_rows import AdditiveRows, BinCounts, Joint
from training.rows.statistics.residuals import CellSums, ClippedResiduals, TableResiduals
from training.rows.tables.data import rows_of
from training.session.session import Public


def made(answer: str) -> tuple[Public, Rows]:
    """Rows cut as they are cut just now, and what is public of them."""
    rows = table(answer)
    schema = parse_schema(SCHEMA.replace("ANSWER", answer).encode())
    public = Public.of(schema, Relation.ADD_REMOVE, Budget.of("3", "1e-6"), False)
    return public, rows_of(schema, rows.drop_columns(["y"]), rows["y"], Relation.ADD_REMOVE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_and_the_model_are_the_same_bits_wherever_rows_are_cut(kind, monkeypatch):
    whole = learnt(kind, *made(KINDS[kind][1]))
    for most in (1, 7, 1000):
        with partitions_of(most):
            assert learnt(kind, *made(KINDS[kind][1])) == whole, most
    monkeypatch.setattr(threads, "PARALLEL_CELLS", 0)
    for count in (1, 2, 4):
        with ThreadPoolExecutor(count) as pool, monkeypatch.context() as patch:
            patch.setattr(threads, "THREADS", count)
            patch.setattr(threads, "_POOL", pool)
            assert len(made(KINDS[kind][1])[1].parts) == count
            assert learnt(kind, *made(KINDS[kind][1])) == whole, count


def test_several_packed_arrays_are_read_as_one():
    _, whole = made(CLASSES)
    bins, labels, votes = whole.bins, whole.labels, [Vote("above", 0, 3, 1), Vote("is", 1, 0, 2)]
    pieces = [(0, 40), (40, 40), (40, 149), (149, 150)]
    joined = Rows.joined([split(17, bins[:, a:b].copy(), labels[a:b], whole.widths) for a, b in pieces])
    assert (joined.size, len(joined.parts)) == (SIZE, 3 + 1 + 7 + 1)
    weights = np.arange(7) << 40
    for question in (BinCounts(1), SignedSums(votes, weights, 3), TableCounts(whole.widths, ((0, 1),), "l1").count):
        assert (joined.ask(question) == whole.ask(question)).all()
        assert (joined.ask(pickle.loads(pickle.dumps(question))) == whole.ask(question)).all()
    assert (joined.bins == bins).all()
    assert (joined.labels == labels).all()
    with pytest.raises(InputError, match="other bins or classes"):
        Rows.joined([whole, Rows(bins, labels, [*whole.widths[:2], 99])])


def test_a_partition_is_checked_and_one_that_is_fresh_knows_nothing():
    _, rows = made(CLASSES)
    with pytest.raises(DataError, match="code"):
        split(10, rows.bins, rows.labels, [2, 2, 2])
    rows.margin_counts([Vote("above", 0, 3, 1)], 1)
    assert rows.parts[0].memo
    assert not rows.fresh().parts[0].memo
    assert rows.fresh().parts[0].cells is rows.parts[0].cells


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_cells_of_pairs_are_added_up_block_by_block(block, monkeypatch):
    """Against the definition, for classes and for a number; the last block is not whole."""
    monkeypatch.setattr(residuals, "BLOCK", block)
    random = np.random.default_rng(8)
    bins, labels = random.integers(0, 4, (3, 100)).astype(np.uint8), random.integers(0, 2, 100).astype(np.uint8)
    targets = random.integers(-900, 900, 100).astype(np.int32)
    terms = tuple(random.integers(-3, 4, 4) for _ in range(3))
    pairs = Joint((0, 1), ((0, 0, 1, 2), (1, 0, 2, 0))), Joint((2, 0), ((0, 1, 1, 1), (0, 0, 0, 1)))
    table = random.integers(-9, 9, (2, 31)).astype(np.int32)
    scores = sum(term[code] for term, code in zip(terms, bins, strict=True))
    left = {True: table[labels, np.clip(scores + 15, 0, 30)], False: np.clip(targets - scores - 5, -400, 400)}
    for classes, column in ((2, labels), (0, targets)):
        rows = AdditiveRows(Rows(bins, column, [4, 4, 4], classes), terms)
        found = rows.ask(
            CellSums(TableResiduals(table, -15) if classes else ClippedResiduals(5, 400, 1 << FRACTION), pairs)
        )
        for pair, sums in zip(pairs, found, strict=True):
            own = [np.array(groups)[bins[feature]] for feature, groups in zip(pair.features, pair.groups, strict=True)]
            cell = own[0] * pair.shape[1] + own[1]
            wanted = [int(left[bool(classes)][cell == each].sum()) for each in range(pair.cells)]
            assert sums[: pair.cells].tolist() == wanted


def test_large_merged_bins_lie_in_a_file_without_a_name_and_a_full_disk_is_told(tmp_path, monkeypatch):
    found = scratch.scratch_array((3, 5), np.uint8, tmp_path)
    assert type(found) is np.ndarray
    monkeypatch.setattr(scratch, "IN_MEMORY", 1)
    found = scratch.scratch_array((3, 5), np.uint16, tmp_path)
    found[:] = 7
    assert isinstance(found, np.memmap)
    assert found.sum() == 105
    assert not list(tmp_path.iterdir())
    with pytest.raises(JobFailed, match="no room"):
        scratch.scratch_array((1 << 30, 1 << 30), np.uint8, tmp_path)
