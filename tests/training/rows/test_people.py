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

from accountant.errors import DataError
from accountant.ledger.families.records import Unit
from accountant.privacy.claims import compose_pure
from dpserve_verify.errors import InputError, LedgerUnavailable
from dpserve_verify.privacy.budget import NANO, Relation
from training.calibration.calibrate import rehearse
from training.datasets.datasets import pack
from training.learners.boosting.lazybb import LazyBB
from training.rows import kernels
from training.rows.packed import scratch as scratch_module
from training.rows.partitions.rows import Rows
from training.rows.people import people as people_module
from training.rows.people.fingerprints import bits_of
from training.rows.people.parts import Parting
from training.rows.people.people import unit_ids
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import BATCH_ROWS

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


def used(path, most: int = 1, said=()) -> int:
    return pack(path, SCHEMA, Unit("person", "pid", most), said_ids=said).labels.size


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
        pa.array([b"\x00\xff", None, b"", b"\xff"]),
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
    path = write(
        tmp_path / f"rows{suffix}", people(["7", "07", "a", "A", "é", "-7", "0", "ab", "a b", "a'b", "7'8", "7=8",
                                        "7e3", "7000", "7e03", "1.5e+00", "1e+99", "70e+02"])
    )  # fmt: skip
    assert used(path, said=["distinct-ids"]) == 18


SAME = {
    "blanks": ["p1", " p1", "p1 ", "p1\u00a0", "\u2003p1", "p1\t"],
    "composed": ["Zoë", "Zoe\u0308"],
    "invisible": ["p1", "p1\u200b", "\ufeffp1", "p\u00ad1", "p1\u200e", "p1\ufe0f"],
    "numbers": ["7", " 7", "7 ", "+7", "7.0", "7.", "'7.0", '="7.00"', "\uff17.0"],
    "powers of ten": ["100000", "1e+05", "1E+05", "1.0e+05", "100000.0", "+1e+05", "'1e+05", " 1E+05"],
    "large numbers": ["7654321", "7.654321e+06", "7.654321E+06", "7654321.0"],
    "blanks within": ["Ann Lee", "Ann  Lee", "Ann\u00a0Lee"],
    "quotes": ["7", "'7", '="7"', '"7"', "'7'", " '7 ", "'+7"],
    "width": ["A17", "Ａ１７", "A１７", "A1７\u200b"],
    "scripts": ["17", "١٧", "१७", "１７", "'１７"],
    "quoted names": ["Ann Lee", '"Ann Lee"', "'Ann Lee", '="Ann  Lee"'],
    "NUL": ["p1", "p1\0", "\0p1"],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", SAME)
def test_an_id_that_is_written_otherwise_is_the_same_person(tmp_path, suffix, kind):
    """In every batch, beside whatever others; a person bounded to one row has one, and is in one part."""
    path = write(tmp_path / f"rows{suffix}", people([*SAME[kind], "another"]))
    assert used(path) == 2
    spelt = unit_ids("pid", pa.array(SAME[kind]))
    assert len(set(spelt.to_pylist())) == 1
    assert {unit_ids("pid", pa.array([each]))[0].as_py() for each in SAME[kind]} == {spelt[0].as_py()}
    assert len(set(Parting(b"key", Decimal("0.5")).of_units(spelt).tolist())) == 1
    assert len(set(bits_of(pa.array(SAME[kind]), np.uint64(5)).tolist())) == 1  # and across tables


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "word",
    ["N.A.", "unknown", "Unknown ", "MISSING", "--", "***", "#VALUE!", "#REF!", "\u200b", "\0", "\u00a0", " \u2003 ",
     "n/a.", "not known", "\u3164", "- -", "\u2014"],
)  # fmt: skip
def test_a_placeholder_is_nobody_s_id(tmp_path, suffix, word):
    path = write(tmp_path / f"rows{suffix}", people(["a", word, "b", word]))
    with pytest.raises(DataError, match="missing in 2 of the rows, the first of them row 2 "):
        used(path)


@pytest.mark.parametrize(
    "ids",
    [
        ["0", "0", *map(str, range(1, 300))],
        ["99999", *map(str, range(1, 300)), "99999"],
        ["see below"] * 11 + [f"p{row}" for row in range(300)],
        ["see below"] * 50 + [f"p{row // 3}" for row in range(300)],
        ["ours"] * 11 + ["p1"],
    ],
    ids=["zero", "nines", "words", "where others have three", "of two"],
)
def test_an_id_with_many_more_rows_than_others_is_asked_about(tmp_path, ids):
    path = write(tmp_path / "rows.parquet", people(ids))
    with pytest.raises(InputError, match="is it one person, or does it stand where the person is not known") as asked:
        used(path)
    assert asked.value.details == {"column": "pid", "answers": ["--one-person"]}
    assert "ours" not in str(asked.value)
    assert used(path, said=["one-person"]) == len(set(ids))


@pytest.mark.parametrize(
    "ids",
    [
        list(map(str, range(300))),
        [str(row // 4) for row in range(4000)],
        [f"p{row}" for row in range(300)] + ["p7"] * 9,
        ["p1"],
        ["p1", "p1", "p2"],
        np.random.default_rng(3).geometric(0.3, 3000).cumsum().astype(str).tolist() * 2,
    ],
)
def test_people_who_come_as_often_as_others_are_not_asked_about(tmp_path, ids):
    used(write(tmp_path / "rows.parquet", people(ids)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("ids", [["Ada", "ada", "b"], ["7", "07", "8"], ["Zoë", "ZOË", "b"], ["-7", "-007", "1"]])
def test_ids_that_capitals_or_zeros_alone_tell_apart_are_asked_about(tmp_path, suffix, ids):
    path = write(tmp_path / f"rows{suffix}", people(ids))
    with pytest.raises(InputError, match="1 ids differ from another one by capitals or leading zeros alone"):
        used(path)
    assert used(path, said=["distinct-ids"]) == 3
    used(write(tmp_path / f"rows{suffix}", people(["P0001", "P0002", "a7", "B8", "10", "20"])))


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
        assert used(path, said=["one-person"]) == rows
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


@pytest.mark.parametrize("same", ["0", ("7", "7 ")], ids=["placeholder", "written twice"])
def test_a_placeholder_doubles_the_loss(tmp_path, same):
    """Ann's row stands before Bob's. Under one placeholder both are one person of one row, so that Ann moves two:
    by the exact law of the real learner that is twice the claim, which is why it is asked about. One person who is
    written twice is one, and moves one row.
    """
    fields = {"rounds": 2, "rate": 0.001, "weighting": "exponential", "decay": 0.0, "cuts": "declared"}
    learner, features = LazyBB(**fields, threshold=False), parse_schema(LOSS).features
    public = public_of(Relation.ADD_REMOVE, 100, True, features, ("a", "b"))
    plan = rehearse(learner, public, Decimal("0.5"))
    price = compose_pure(plan.events) / NANO
    filling = [(False, "a")] * 2 + [(True, "a")] * 155 + [(None, "a")] * 2 + [(None, "b")] * 16
    others = [(f"x{number}", *row) for number, row in enumerate(filling)]

    def law(rows, said=()):
        ids, xs, ys = zip(*rows, *others, strict=True)
        path = write(tmp_path / "rows.parquet", pa.table({"f": pa.array(xs, pa.bool_()), "y": ys, "pid": ids}))
        packed = pack(path, parse_schema(LOSS), Unit("person", "pid", 1), said_ids=said)
        return transcript_law(learner, public, Decimal("0.5"), Rows(packed.bins, packed.labels, [3], 2), len(plan))

    def loss(mine, theirs, said=()):
        both = law([(mine, True, "a"), (theirs, True, "b")], said), law([(theirs, True, "b")], said)
        return float(np.abs(both[0] - both[1]).max()) / price

    if same == "0":
        with pytest.raises(InputError, match="is it one person"):
            loss(same, same)
        assert loss(same, same, ["one-person"]) == pytest.approx(1.9995, abs=2e-4)
        assert loss("x-ann", "x-bob") == pytest.approx(0.9998, abs=2e-4)
    else:
        person = law([(same[0], True, "a"), (same[1], True, "b")]), law([])
        assert 0.9 < float(np.abs(person[0] - person[1]).max()) / price <= 1


LOSS = b"target: {name: y, classes: [a, b]}\nrecords: 100\nignore: [pid]\nfeatures:\n  f: {type: boolean}\n"
