"""Whose a row is: missing ids, ids of every type, and which rows of one person are used, over any cut of the file."""

from __future__ import annotations

import tempfile
from collections import Counter
from decimal import Decimal
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from exact_laws import public_of, rows_of, transcript_law

from accountant.budget import NANO, Relation
from accountant.errors import DataError, LedgerUnavailable
from accountant.ledger.records import Unit
from accountant.privacy.claims import compose_pure
from training.calibrate import rehearse
from training.learners.boosting.lazybb import LazyBB
from training.rows import kernels
from training.rows import people as people_module
from training.rows.data import BATCH_ROWS
from training.rows.datasets import pack
from training.rows.packed import scratch as scratch_module
from training.rows.schema import parse_schema

SCHEMA = parse_schema(
    b'target: {name: y, classes: ["no", "yes"]}\nrecords: 4\nignore: [pid]\nfeatures:\n  x: {type: boolean}\n'
)
ROW_NUMBERS = parse_schema(
    b"target: {name: row, range: [0, 65536]}\nrecords: 4\nignore: [pid]\nfeatures:\n  x: {type: boolean}\n"
)
MISSING = ["", " ", "\t", "NA", " n/a ", "NaN", "nan", "null", "NULL", "None", "<NA>", "NaT", "#N/A", r"\N", "?", "-"]


def write(path, table: pa.Table, row_group_size: int = 1 << 20):
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=row_group_size)
    return path


def people(ids, kind=None) -> pa.Table:
    column = pa.array(ids, kind)
    return pa.table({"x": [True] * len(ids), "y": ["no"] * len(ids), "pid": column})


def used(path, most: int = 1) -> int:
    return pack(path, SCHEMA, Unit("person", "pid", most)).labels.size


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("word", MISSING)
def test_a_missing_id_is_refused_with_its_number_and_place(tmp_path, suffix, word):
    path = write(tmp_path / f"rows{suffix}", people(["a", word, "b", word, word]))
    with pytest.raises(DataError, match="missing in 3 of the rows, the first of them row 2 ") as caught:
        used(path)
    assert caught.value.details == {"column": "pid", "rows": 3, "first": 2}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, float("nan"), None, 2.0]),
        pa.array([1.0, float("nan"), None, 2.0], pa.float32()),
        pa.array([1, None, None, 2]),
        pa.array(["a", None, "", "b"]),
        pa.array(["a", None, "", "b"]).dictionary_encode(),
        pa.array([b"\x00", None, b"", b"\xff"]),
        pa.nulls(2),
    ],
)
def test_a_missing_id_is_refused_in_every_type(tmp_path, column):
    with pytest.raises(DataError, match=r"missing in 2 of the rows, the first of them row [12] "):
        used(write(tmp_path / "rows.parquet", people(column)))


def test_missing_ids_are_counted_over_the_whole_file(tmp_path):
    ids = np.arange(200_000, dtype=float)
    ids[[65_535, 65_536, 131_072, 199_999]] = np.nan
    for suffix in (".parquet", ".csv"):
        with pytest.raises(DataError, match="missing in 4 of the rows, the first of them row 65536 "):
            used(write(tmp_path / f"rows{suffix}", people(ids)))


@pytest.mark.parametrize(
    "column", [pa.array([1.5, 2.0]), pa.array([float("inf"), 1.0]), pa.array([2.0**53, 1.0]), pa.array([True, False])]
)
def test_what_cannot_tell_people_apart_is_refused(tmp_path, column):
    with pytest.raises(DataError, match="texts or whole numbers"):
        used(write(tmp_path / "rows.parquet", people(column)))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.0, -0.0, 1.0, 1.0]),
        pa.array([0.0, -0.0, 1.0, 1.0], pa.float16()),
        pa.array(["0.0", "-0.0", "1.", "1"]),
        pa.array([0, 0, 1, 1], pa.uint64()),
        pa.array([Decimal("0.0"), Decimal("0.0"), Decimal("1.0"), Decimal("1.0")]),
        pa.array([b"a", b"b", b"a", b"a"], pa.binary(1)),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int8()), pa.array(["a", "a", "b", "b"])),
    ],
)
def test_one_person_has_one_spelling(tmp_path, column):
    assert used(write(tmp_path / "rows.parquet", people(column))) == 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_ids_that_differ_are_different_people(tmp_path, suffix):
    assert used(write(tmp_path / f"rows{suffix}", people(["7", "07", "a", "A", "a ", "é", "e\u0301", "-7", "0"]))) == 9


@pytest.mark.parametrize(("suffix", "group"), [(".csv", 0), (".parquet", BATCH_ROWS), (".parquet", 1 << 20)])
def test_another_s_id_that_is_no_text_changes_no_spelling(tmp_path, suffix, group):
    """A Latin-1 id in one batch, none in the others: a person stays one, and a blank stays nobody."""
    path = tmp_path / f"rows{suffix}"
    for last, rows in ((b"B", 3), (b"\xe9", 4)):
        ids = [b"A", b"7", *[b"B"] * BATCH_ROWS, b"A", b"7.0", last]
        if suffix == ".csv":  # pyarrow writes no bytes that are no text
            path.write_bytes(b"pid,x,y\n" + b"".join(pid + b",true,no\n" for pid in ids))
        else:
            write(path, people(ids), group)
        assert used(path) == rows
    blank = write(tmp_path / "blank.parquet", people([b"A", b" NA ", b"\xe9"]))
    with pytest.raises(DataError, match="missing in 1 of the rows, the first of them row 2 "):
        used(blank)


# ---- which rows are used ---------------------------------------------------------------------------------------------

KINDS = {
    "text": lambda ids: pa.array([f"p{value}" for value in ids]),
    "number": lambda ids: pa.array(ids),
    "float": lambda ids: pa.array(ids.astype(float)),
    "dictionary": lambda ids: pa.array([f"p{value}" for value in ids]).dictionary_encode(),
    "repeating dictionary": lambda ids: pa.DictionaryArray.from_arrays(  # two entries for every person
        pa.array(2 * ids + np.arange(len(ids)) % 2), pa.array([f"p{value // 2}" for value in range(2 * ids.max() + 2)])
    ),
}


FILES = ((".csv", 0), (".parquet", 1 << 20), (".parquet", 10_007))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most", "suffix", "group"),  # every two of kind, number and file
    [(kind, (1, 3)[(k + f) % 2], *FILES[f]) for k, kind in enumerate(KINDS) for f in range(len(FILES))],
)
def test_the_first_rows_of_every_person_are_used_over_borders_and_in_every_format(tmp_path, kind, most, suffix, group):
    """Exactly those, for people whose rows stand on both sides of every border, against a count row by row."""
    ids, expected = first_rows(most)
    numbers = np.arange(len(ids)) % 65_536
    table = pa.table({"x": np.ones(len(ids), bool), "row": numbers, "pid": KINDS[kind](ids)})
    path = write(tmp_path / f"rows{suffix}", table, group)
    packed = pack(path, ROW_NUMBERS, Unit("person", "pid", most))
    assert np.array_equal(packed.labels, expected)


@cache
def first_rows(most):
    """The ids, and the labels of the first `most` rows of everybody as they would be packed alone."""
    count = 2 * BATCH_ROWS + 1000
    ids = np.random.default_rng(0).integers(0, count // 3, count)
    for border in (BATCH_ROWS, 2 * BATCH_ROWS):
        ids[border - 2 : border + 2] = count + border
    ids[[0, BATCH_ROWS - 1, BATCH_ROWS, count - 1]] = count + 7
    rows_before, numbers = Counter(), []
    for row, person in enumerate(ids.tolist()):
        rows_before[person] += 1
        if rows_before[person] <= most:
            numbers.append(row % 65_536)
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"x": np.ones(len(numbers), bool), "row": numbers, "pid": numbers})
        return ids, pack(write(Path(folder) / "expected.parquet", table), ROW_NUMBERS).labels


@pytest.mark.parametrize("most", [1, 3])
def test_people_are_told_apart_by_their_ids_whatever_words_they_have(tmp_path, monkeypatch, most):
    """Tables that grow from a few slots, in files and in memory, and ids of few words, or of one alone: the rows that
    plain counting uses, however the file is cut.
    """
    random = np.random.default_rng(most)
    ids = [b"%d" % each + b"x" * (each % 5) for each in random.integers(0, 900, 3000).tolist()]
    seen, expected = Counter(), []
    for each in ids:
        seen[each] += 1
        expected.append(seen[each] <= most)
    real = kernels.words.text_bits
    for words, borders in ((1 << 62, [0, 3000]), (7, [0, 1, 1000, 1001, 2999, 3000]), (1, [0, 1500, 3000])):
        monkeypatch.setattr(people_module, "SLOTS", 4)
        monkeypatch.setattr(scratch_module, "IN_MEMORY", 1 << 12 if words == 7 else 1 << 26)
        monkeypatch.setattr(kernels.words, "text_bits", lambda *asked, of=words: real(*asked) % np.uint64(of))
        first = people_module.FirstOfEach("pid", most, tmp_path)
        found = []
        for start, end in pairwise(borders):
            found += first(pa.record_batch({"pid": pa.array(ids).slice(start, end - start)}), start).tolist()
        assert found == expected
        assert isinstance(first._table, np.memmap) == (words == 7)


def test_a_disk_without_room_for_people_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_module, "IN_MEMORY", 1 << 10)
    with pytest.raises(LedgerUnavailable, match="no room to count the rows of each person"):
        people_module.FirstOfEach("pid", 1, tmp_path / "gone")


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_another_person_s_rows_change_nothing(tmp_path, most):
    """Wherever they stand: the rows that are used of everybody else stay, in their order."""
    others = [(pid, row) for row, pid in enumerate("abacabcba")]
    alone = numbers_used(tmp_path, others, most)
    for first, second in product(range(len(others) + 1), repeat=2):
        with_person = list(others)
        with_person.insert(first, ("new", 100))
        with_person.insert(second, ("new", 101))
        found = numbers_used(tmp_path, with_person, most)
        assert [row for row in found if row < 100] == alone
        assert len(found) == len(alone) + min(most, 2)


def numbers_used(folder, rows, most):
    ids, numbers = zip(*rows, strict=True)
    table = pa.table({"x": [True] * len(ids), "row": numbers, "pid": ids})
    schema = parse_schema(
        b"target: {name: row, classes: ["
        + b", ".join(b"%d" % number for number in range(102))
        + b"]}\nrecords: 4\nignore: [pid]\nfeatures:\n  x: {type: boolean}\n"
    )
    return pack(write(folder / "rows.parquet", table), schema, Unit("person", "pid", most)).labels.tolist()


# ---- the promise -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_exact_loss_of_a_person_is_at_most_the_claim(tmp_path, suffix):
    """Real files, with and without a person, through `pack` into the exact law of LazyBB's transcripts, whatever ids
    stand there, blank ones too. One pooled person of all the blanks had 1.9995 times the claim.
    """
    learner = LazyBB(rounds=2, rate=0.1, slope=0.1, decay=0.0, reweighting="scheduled", density=1.0, threshold=False)
    public = public_of(Relation.ADD_REMOVE, 4, True)
    plan = rehearse(learner, public, Decimal(2))
    price = compose_pure(plan.events) / NANO
    laws = {}

    def law(rows):
        data = read(tmp_path / f"rows{suffix}", rows)
        if data not in laws:
            laws[data] = transcript_law(learner, public, Decimal(2), rows_of(data), len(plan))
        return laws[data]

    cells, worst, refused = list(product((0, 1), repeat=2)), 0.0, 0
    for new, other in product(("", "n", " "), ("", "o", " ")):
        for mine, yours in product(cells, cells):
            person, shared = [(new, *mine)], [(other, *yours), ("b", 1, 1)]
            try:
                both = law(person + shared), law(shared)
            except DataError:
                refused += 1
                continue
            worst = max(worst, float(np.abs(both[0] - both[1]).max()))
    assert 0.6 <= worst / price <= 1 + 1e-9
    assert refused == 8 * 16


def read(path, rows):
    ids, xs, ys = zip(*rows, strict=True)
    words = [("no", "yes")[y] for y in ys]
    packed = pack(
        write(path, pa.table({"x": [bool(x) for x in xs], "y": words, "pid": ids})), SCHEMA, Unit("person", "pid", 1)
    )
    return tuple(zip(packed.bins[0].tolist(), packed.labels.tolist(), strict=True))
