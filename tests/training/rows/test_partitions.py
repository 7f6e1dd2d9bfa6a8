"""Rows as a sum of partitions: the same bits wherever they are cut, for every learner and every number of threads; and
several packed arrays read as one.
"""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from split_rows import partitions_of, split

from accountant.budget import Budget, Relation
from accountant.errors import DataError, InputError, JobFailed
from accountant.mechanisms import DiscreteLaplace
from models.votes import Vote
from training.learners import LEARNERS, DPEBMRegressor
from training.profiles.counts import TableCounts
from training.rows.additive_rows import BinCounts
from training.rows.data import rows_of
from training.rows.packed import scratch
from training.rows.partitions import threads
from training.rows.partitions.votes import SignedSums
from training.rows.rows import Rows
from training.rows.schema import parse_schema
from training.session import Public
from training.tuning.selecting import CorrectRows

SIZE = 150
SCHEMA = """
target: {name: y, ANSWER}
records: 150
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""
CLASSES, NUMBER = 'classes: ["no", "yes"]', "range: [0, 100]"
GIVEN = {
    "lazybb": {"rounds": 6, "cuts": "found"},
    "lazybb-tree": {"rounds": 3, "criterion": "gini", "cuts": "even", "bins": 20},
    "bdpe": {"rounds": 2},
    "forest": {},
    "ebm": {"epochs": 3},
}
KINDS = {name: (LEARNERS[name](**given), CLASSES) for name, given in GIVEN.items()} | {
    "projected": (LEARNERS["lazybb"](rounds=6, reweighting="projected"), CLASSES),
    "number": (DPEBMRegressor(epochs=3), NUMBER),
}


def made(answer: str) -> tuple[Public, Rows]:
    """Rows cut as they are cut just now, and what is public of them."""
    random = np.random.default_rng(4)
    age = random.uniform(-3, 103, SIZE)
    table = pa.table(
        {"age": age, "colour": random.choice(["red", "green", "blue"], SIZE), "member": random.random(SIZE) < 0.5}
    )
    schema = parse_schema(SCHEMA.replace("ANSWER", answer).encode())
    y = np.where(age + random.normal(0, 20, SIZE) > 50, "yes", "no") if answer == CLASSES else age
    public = Public.of(schema, Relation.ADD_REMOVE, Budget.of("3", "1e-6"), False)
    return public, rows_of(schema, table, pa.array(y), Relation.ADD_REMOVE)


class Noted:
    """A releaser with the same noise every time, which keeps a hash of every exact answer."""

    def __init__(self, public: Public, unit: Decimal, rows: Rows) -> None:
        self.public, self.unit, self.answers, self._rows = public, unit, hashlib.sha256(), rows
        self._random = np.random.default_rng(9)

    def release(self, query, mechanism):
        exact = query(self._rows)
        assert exact.dtype == np.int64
        self.answers.update(f"{exact.shape}".encode() + exact.tobytes())
        noise = self._random.normal(0, 0.3 * query.sensitivity(self.public.relation), exact.shape).astype(np.int64)
        if mechanism.norm != "range":
            return exact + noise
        found = (exact + noise).argmax(axis=-1)
        return int(found) if exact.ndim == 1 else found


def learnt(kind: str) -> tuple[str, str]:
    """A hash of every exact answer, and the model."""
    learner, answer = KINDS[kind]
    public, rows = made(answer)
    session = Noted(public, learner.recipe(public).unit, rows)
    ensemble = learner.learn(session)
    if answer == CLASSES:
        session.release(CorrectRows(ensemble, "l1"), DiscreteLaplace(Decimal(1)))
    return session.answers.hexdigest(), repr(ensemble)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_and_the_model_are_the_same_bits_wherever_rows_are_cut(kind, monkeypatch):
    whole = learnt(kind)
    for most in (1, 7, 1000):
        with partitions_of(most):
            assert learnt(kind) == whole, most
    monkeypatch.setattr(threads, "PARALLEL_CELLS", 0)
    for count in (1, 2, 4):
        with ThreadPoolExecutor(count) as pool, monkeypatch.context() as patch:
            patch.setattr(threads, "THREADS", count)
            patch.setattr(threads, "_POOL", pool)
            assert len(made(KINDS[kind][1])[1].parts) == count
            assert learnt(kind) == whole, count


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


def test_large_merged_bins_lie_in_a_file_without_a_name_and_a_full_disk_is_told(tmp_path, monkeypatch):
    found = scratch.scratch((3, 5), np.uint8, tmp_path)
    assert type(found) is np.ndarray
    monkeypatch.setattr(scratch, "IN_MEMORY", 1)
    found = scratch.scratch((3, 5), np.uint16, tmp_path)
    found[:] = 7
    assert isinstance(found, np.memmap)
    assert found.sum() == 105
    assert not list(tmp_path.iterdir())
    with pytest.raises(JobFailed, match="no room"):
        scratch.scratch((1 << 30, 1 << 30), np.uint8, tmp_path)
