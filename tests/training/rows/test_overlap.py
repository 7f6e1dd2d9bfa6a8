"""The same people do not get a second budget by accident: what is found, and what chance must not refuse."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from itertools import product
from math import comb, factorial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ledgers import EXAMPLES, bodies, changed, place
from stores import at
from table_fuzzer import TYPES, array_of

from accountant.audit.audit import audit_home
from accountant.errors import DataError, NameTaken
from accountant.home import Home
from accountant.ledger import comparisons
from accountant.ledger.families.records import NewPeople
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets import datasets
from training.datasets.column_match import ColumnValues, likeness, match_columns
from training.datasets.datasets import register
from training.datasets.overlap import (
    LEVEL,
    MOST_ROWS,
    Scan,
    Sketch,
    Values,
    crossing_chance,
    merge_sketches,
    same_people,
)
from training.rows.people.fingerprints import bits_of, holds_fractions, mix, unmix
from training.rows.people.people import unit_ids

TOTAL = Budget.of("1", "1e-6")
KEY = b"a key of the home"
ADULT = pq.read_table(EXAMPLES / "adult_train.parquet")
WITHOUT_WEIGHT = ADULT.drop_columns(["fnlwgt"])  # of 32,561 rows, 5,916 are not alone
FEW = ADULT.select(["age", "sex", "income"])


def scanned(table, known=None, naming=(), batch=1 << 16) -> tuple[Scan, Sketch]:
    scan, start = Scan(KEY, [table.column_names[-1]], table.column_names, naming, known or {}), 0
    for part in table.to_batches(max_chunksize=batch):
        scan(part, start)
        start += len(part)
    return scan, scan.sketch()


def share(registered, new) -> float:
    scan, own = scanned(new, {"a": scanned(registered)[1]})
    return scan.same_rows("a", own)


def numbers(rows=10_000, columns=5, seed=0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({f"x{place}": random.normal(size=rows) for place in range(columns)})


def shuffled(table, seed=0) -> pa.Table:
    return table.take(np.random.default_rng(seed).permutation(len(table)))


# ---- one value, one word ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, 2, None, -3]), pa.array(["1", "2.0", " NA ", "-3"])),
        (pa.array([0.0, -0.0, float("nan")]), pa.array([0, 0, None], pa.uint8())),
        (pa.array([0.1, 0.5, None, 1e9], pa.float32()), pa.array([b".1", b"5e-1", b"", b"+1000000000"])),
        (pa.array([True, False, None]), pa.array(["True", "false", "nan"]).dictionary_encode()),
        (pa.array(["x", "yy", None]).dictionary_encode(), pa.array([b"x", b"yy", None])),
        (pa.array(["ab", "cd"], pa.large_string()), pa.array([b"ab", b"cd"], pa.binary(2))),
        (pa.array(["", "skip", "é", "a" * 99])[2:], pa.array(["é", "a" * 99])),
    ],
)
def test_a_value_has_one_word_in_every_type(one, other):
    key = np.uint64(7)
    assert bits_of(one, key).tolist() == bits_of(other, key).tolist()
    assert len(set(bits_of(pa.array(["a", "b", "", "1", "0", "ab", "ba", "a c"]), key).tolist())) == 8


def test_long_ids_are_told_apart_in_every_type():
    """Whole numbers beyond 2^53, which floats merge, and hexadecimal ones that spell a number beyond all floats."""
    ids = [10**17, 10**17 + 1, -(2**53) - 1, -(2**53) - 2, 7, 2**53 + 1]
    words = bits_of(pa.array(ids), np.uint64(7)).tolist()
    assert len(set(words)) == len(ids)
    assert bits_of(pa.array([str(each) for each in ids]), np.uint64(7)).tolist() == words
    assert [bits_of(pa.array([each]), np.uint64(7))[0] for each in ids] == words  # whatever stands beside
    assert len(set(bits_of(pa.array(["12e45678", "34e45678"]), np.uint64(7)).tolist())) == 2


def test_a_fingerprint_can_be_taken_back():
    words = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64, endpoint=False)
    assert (unmix(mix(words, np.uint64(7)), np.uint64(7)) == words).all()


def test_values_are_counted_exactly_below_the_limit():
    random = np.random.default_rng(0)
    stream = random.integers(0, 3000, 50_000).astype(np.uint64) * np.uint64(6_000_000_000_000_000)
    values = Values(1000)
    for part in np.array_split(stream, 40):
        values.add(part)
    found = values.found()
    true, counts = np.unique(stream[stream < found.limit], return_counts=True)
    assert len(found.ids) == 1000
    assert (found.ids.tolist(), found.counts.tolist()) == (true.tolist(), counts.tolist())


# ---- the two error rates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*TYPES, pa.dictionary(pa.int8(), pa.timestamp("ns"))], ids=str)
def test_a_column_of_any_type_is_compared_or_passed_over(kind):
    """Also one whose name is a person's, and as the unit of privacy it is taken or refused."""
    column = array_of(random.Random(1), kind, ["low", "high", "low"])
    words = bits_of(column, np.uint64(3))
    assert words is None or len(words) == 3
    assert holds_fractions(column) in (True, False)
    with suppress(DataError):
        assert len(unit_ids("person", column)) == 3


@pytest.mark.parametrize(("there", "here", "once"), list(product(range(4), range(4), range(7))))
def test_the_chance_is_the_exact_share_of_all_assignments(there, here, once):
    """Over every way to say which of the rows are the first file's, with as many as there are."""
    pairs = there + here + once
    first = 2 * there + once
    ways = {}
    for crossing in range(first % 2, pairs + 1, 2):
        both = (first - crossing) // 2
        if both >= 0 and both + crossing <= pairs:
            ways[crossing] = comb(pairs, crossing) * comb(pairs - crossing, both) * 2**crossing
    assert sum(ways.values()) == comb(2 * pairs, first)
    expected = sum(count for crossing, count in ways.items() if crossing >= once) / comb(2 * pairs, first)
    assert crossing_chance(once, there, here) == pytest.approx(expected, rel=1e-9)


def test_another_population_crosses_less():
    """The law is largest where both files are of one population: for every ratio of rates below it."""
    there, here, once = 6, 5, 9
    limit = crossing_chance(once, there, here)
    first, second = 2 * there + once, 2 * here + once
    for ratio in (0.1, 0.5, 0.9, 1.0):
        law = {
            h: ratio**h * 2**h / (factorial((first - h) // 2) * factorial(h) * factorial((second - h) // 2))
            for h in range(1, min(first, second) + 1, 2)
        }
        tail = sum(weight for h, weight in law.items() if h >= once) / sum(law.values())
        assert tail <= limit * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("table", [ADULT, WITHOUT_WEIGHT, FEW], ids=["adult", "without its weight", "few"])
@pytest.mark.parametrize("cut", [16_280, 2_000, 31_000])
def test_disjoint_parts_of_adult_are_never_refused(table, cut):
    """Adult has true repeats: thousands of rows of one half stand in the other. 5 cuts at a chance of 1e-6 each."""
    for seed in range(5):
        mixed = shuffled(table, seed)
        assert share(mixed.slice(0, cut), mixed.slice(cut)) == 0
    both = set(map(str, mixed.slice(0, cut).to_pylist())) & set(map(str, mixed.slice(cut).to_pylist()))
    assert len(both) > (100 if table is not ADULT else -1)


@pytest.mark.slow
def test_small_tables_of_few_categories_are_never_refused():
    for seed, rows, columns in product(range(10), (30, 200, 3000), (1, 2, 4)):
        random = np.random.default_rng(seed)
        one, other = (
            pa.table({f"c{place}": random.integers(0, 4, rows) for place in range(columns)}) for _ in range(2)
        )
        assert share(one, other) == 0
        without_repeats = [each.group_by(each.column_names).aggregate([]) for each in (one, other)]
        assert share(*without_repeats) == 0


def test_people_who_differ_are_never_refused():
    """Skewed populations whose common values differ."""
    random = np.random.default_rng(3)
    one, other = (
        pa.table({"a": random.geometric(rate, 20_000), "b": random.geometric(rate, 20_000)}) for rate in (0.01, 0.02)
    )
    assert share(one, other) == 0


@pytest.mark.slow
@pytest.mark.parametrize("rows", [25, 100, 500])
def test_a_part_of_a_numeric_table_is_always_found(rows):
    for seed in range(10):
        table = numbers(seed=seed)
        part = shuffled(table, seed).slice(0, rows)
        assert share(table, part) == 1
        assert share(part, table) == 1


@pytest.mark.slow
@pytest.mark.parametrize("table", [ADULT, WITHOUT_WEIGHT], ids=["adult", "without its weight"])
def test_a_part_of_adult_is_found(table):
    for seed in range(5):
        part = shuffled(table, seed).slice(0, 1628)
        assert share(table, part) == 1
    half = shuffled(table).slice(0, 4000)
    assert 0.4 < share(half, shuffled(table).slice(2000, 4000)) < 0.6  # of which some are true repeats


CHANGES = {
    "another order": lambda table: shuffled(table),
    "one row less": lambda table: table.slice(1),
    "two columns": lambda table: table.select(["x3", "x1"]),
    "one column": lambda table: table.select(["x3"]),
    "another column": lambda table: table.append_column("z", pa.array(np.arange(len(table)) % 7)),
    "32-bit numbers": lambda table: pa.table({name: table[name].cast(pa.float32()) for name in table.column_names}),
    "texts": lambda table: pa.table({name: table[name].cast(pa.string()) for name in table.column_names}),
    "its target coded anew": lambda table: table.set_column(4, "x4", pa.array(table["x4"].to_numpy() > 0)),
    "half other rows": lambda table: pa.concat_tables([table.slice(0, 5000), numbers(5000, seed=9)]),
    "every row twice": lambda table: pa.concat_tables([shuffled(table), table]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_found_whatever_was_changed(change):
    found = share(numbers(), CHANGES[change](numbers()))
    if change != "every row twice":
        assert found >= 0.49
    else:
        assert found == 0  # a limit that docs/privacy/rows.md names


def test_row_numbers_written_anew_hide_nothing():
    table = WITHOUT_WEIGHT.append_column("row", pa.array(np.arange(len(ADULT))))
    part = shuffled(WITHOUT_WEIGHT).slice(0, 3000)
    assert share(table, part.append_column("row", pa.array(np.arange(3000)))) > 0.9


def test_more_rows_than_a_sketch_holds():
    """120,000 rows are sampled and counted in part; a tenth of them is found, other rows are not."""
    table = numbers(120_000, 3)
    assert len(scanned(table)[1].cells) == 1 << 15
    assert share(table, shuffled(table).slice(0, 12_000)) == pytest.approx(1, abs=0.05)
    assert share(shuffled(table).slice(0, 12_000), table) == 1
    assert share(table, numbers(120_000, 3, seed=5)) == 0


def test_many_blocks_are_compared_as_one_file():
    """A file that is one of 125 blocks is found in the sketch of all, strangers are not; no larger than one file's."""
    table = pa.table({"x": np.arange(125 * 400) * 1.5, "y": np.arange(125 * 400) % 7})
    blocks = [table.slice(400 * number, 400) for number in range(125)]
    sketches = [scanned(block)[1] for block in blocks]
    together = merge_sketches(iter(sketches))
    assert len(together.cells) <= 2 * MOST_ROWS
    assert together.rows == 125 * 400
    for file in (
        blocks[0],
        shuffled(blocks[77]),
        pa.concat_tables([blocks[124].slice(0, 100), blocks[3].slice(9, 50)]),
    ):
        scan, own = scanned(file, {"a": together})
        assert scan.same_rows("a", own) > 0.5
        named = [scan.same_rows("a", own, sketch) > 0 for sketch in sketches]
        assert 1 <= sum(named) <= 2
    others = pa.table({"x": 0.1 + np.arange(400) * 1.5, "y": np.arange(400) % 7})
    scan, own = scanned(others, {"a": together})
    assert scan.same_rows("a", own) == 0


def test_ids_are_compared_under_any_name():
    table = pa.table({"a": np.arange(30_000), "b": [f"p{row}" for row in range(30_000)]})
    one = scanned(table, naming=["b"])[1].people["b"]
    for ids, expected in (
        (range(0, 30_000, 10), 1),
        (range(29_000, 40_000), 1000 / 11_000),
        (range(40_000, 50_000), 0),
    ):
        other = pa.table({"c": [f"p{row}" for row in ids]})
        assert same_people(scanned(other, naming=["c"])[1].people["c"], one) == pytest.approx(expected, abs=0.02)


# ---- the steward -----------------------------------------------------------------------------------------------------


def put(home, name, table, suffix=".parquet", bins=32, target="x0", unit=None, ignore=(), comment="", **how):
    folder = home.path.parent
    path = folder / f"{name}{suffix}"
    (pq.write_table if suffix == ".parquet" else pyarrow.csv.write_csv)(table, path)
    features = "".join(
        f"  {column}: {{type: numeric, range: [-9, 9], bins: {bins}}}\n"
        for column in table.column_names
        if column != target and column not in ignore
    )
    head = f"target: {{name: {target}, range: [-9, 9]}}\nrecords: 9000\nignore: {list(ignore)}\n"
    schema = f"{head}features:\n{features}{comment}\n"
    (folder / f"{name}.yaml").write_text(schema)
    budget = None if how.get("families") else TOTAL
    return register(home, name, path, folder / f"{name}.yaml", budget, Relation.ADD_REMOVE, unit, **how)


SECOND = {
    "a comment": {"comment": "# the same rows"},
    "other bins": {"bins": 33},
    "another target": {"target": "x3"},
    "another format": {"suffix": ".csv", "comment": "# the same rows"},
    "a twentieth, in another order": {"table": shuffled(numbers()).slice(0, 500)},
    "some columns": {"table": numbers().select(["x4", "x0"])},
    "one row less": {"table": numbers().slice(1)},
    "a column left out": {"ignore": ["x2"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", SECOND)
def test_a_second_budget_for_the_same_rows_is_refused_with_what_to_do(home, change):
    put(home, "a", numbers())
    options = dict(SECOND[change])
    table = options.pop("table", numbers())
    with pytest.raises(NameTaken, match=r"rows .* are in the dataset a already.*--family a; .*--new-people --reason"):
        put(home, "b", table, **options)
    assert [each.registration.name for each in home.ledger.datasets()] == ["a"]
    assert len(list(home.datasets.iterdir())) == 1
    assert put(home, "b", table, **options, families=("a",)).family == home.ledger.dataset("a").family
    assert audit_home(home).problems == ()


def test_the_same_people_in_other_rows_are_refused(home):
    ids = [f"p{row // 2}" for row in range(2000)]
    put(home, "a", numbers(2000).append_column("patient", pa.array(ids)), unit="patient", ignore=["patient"])
    later = numbers(2000, seed=1).append_column("customer", pa.array(ids[::-1]))
    for unit in ("customer", "record"):
        with pytest.raises(NameTaken, match="people of this file are in the dataset a"):
            put(home, "b", later, unit=unit, ignore=["customer"])
    others = numbers(2000, seed=1).append_column("customer", pa.array([f"new {name}" for name in ids]))
    put(home, "c", others, unit="customer", ignore=["customer"])


STRANGERS = {
    "countries": lambda seed: pa.array(np.random.default_rng(seed).choice(["US", "DE", "FR"], 2000)),
    "weights": lambda seed: pa.array(np.random.default_rng(seed).integers(0, 900, 2000)),
    "fractions": lambda seed: pa.array(np.random.default_rng(seed).normal(size=2000).round(2)),
    "months": lambda seed: pa.array([f"2020-{row % 12 + 1:02d}" for row in range(2000)]),
    "id": lambda seed: pa.array(range(1, 2001)),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_strangers_who_share_what_names_nobody_are_not_refused(home, what):
    """Values under ignore that every file has (countries, dates, row numbers); also where nothing else is shared."""
    put(home, "a", numbers(2000).append_column(what, STRANGERS[what](1)), unit="record", ignore=[what])
    same_columns = numbers(2000, seed=1).append_column(what, STRANGERS[what](2))
    put(home, "b", same_columns, unit="record", ignore=[what])
    other_columns = numbers(2000, seed=2).rename_columns([f"z{place}" for place in range(5)])
    other_columns = other_columns.append_column(what, STRANGERS[what](3))
    put(home, "c", other_columns, target="z0", unit="record", ignore=[what])


def test_row_numbers_beside_few_categories_refuse_no_strangers():
    random = np.random.default_rng(0)
    one, other = (pa.table({"id": range(3000), "sex": random.integers(0, 2, 3000)}) for _ in range(2))
    assert share(one, other) == 0
    keys = pa.array([f"key {key}" for key in range(3000)])  # other keys are no chance
    assert share(one.append_column("uuid", keys), other.append_column("uuid", keys)) > 0


def test_new_people_are_an_entry_that_verifies(home):
    put(home, "a", numbers())
    why = NewPeople("another clinic, made from one simulator", "steward")
    dataset = put(home, "b", numbers().slice(1), new_people=why)
    assert dataset.registration.new_people == why
    first, second = (json.loads(body) for body in bodies(home.path)[1:])
    assert "new_people" not in first
    assert second["new_people"] == {"reason": why.reason, "by": "steward"}
    assert audit_home(home).problems == ()
    with pytest.raises(InputError, match="not new"):
        put(home, "c", numbers().slice(2), new_people=why, families=("a",))
    with pytest.raises(InputError, match="reason"):
        put(home, "c", numbers().slice(2), new_people=NewPeople("", "steward"))


@pytest.mark.parametrize(
    "bad", [{}, {"reason": "x"}, {"reason": "", "by": "x"}, {"reason": "x", "by": "y", "z": "1"}, "x"]
)
def test_an_entry_of_new_people_that_says_something_else_does_not_verify(home, bad):
    put(home, "a", numbers(100), new_people=NewPeople("a test", "steward"))
    genesis, entry = bodies(home.path)
    replay = Replay(home.trust)
    replay.read(0, genesis)
    with pytest.raises(LedgerInvalid):
        replay.read(1, changed(entry, new_people=bad))
    replay.read(1, entry)


def test_the_sketch_is_private_and_says_nothing_elsewhere(home, caplog):
    dataset = put(home, "a", numbers())
    sketch = home.datasets / dataset.registration.commitment / "sketch.npz"
    assert sketch.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NameTaken):
        put(home, "b", numbers().slice(1))
    said = [json.loads(body) for body in bodies(home.path)]
    assert [entry["type"] for entry in said] == ["genesis", "dataset-registered", "rows-compared"]
    assert said[2] | {"time": ""} == {
        "type": "rows-compared", "time": "", "door": "register", "dataset": "b", "concerns": ["a"], "by": "home",
    }  # fmt: skip
    assert caplog.text == ""
    own = Sketch.read(sketch)
    other = Home.init(place(home.path.parent / "other"))
    theirs = Sketch.read(other.datasets / put(other, "a", numbers()).registration.commitment / "sketch.npz")
    assert not np.isin(own.cells, theirs.cells).any()  # another key


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"x" * 4000, None])
def test_a_damaged_sketch_is_named_and_admits_nothing(home, damage):
    put(home, "one", numbers())
    (sketch,) = home.datasets.rglob("sketch.npz")
    sketch.write_bytes(sketch.read_bytes()[:-900] if damage is None else damage)
    with pytest.raises(DataError, match=r"sketch\.npz: cannot be read"):
        put(home, "two", numbers(seed=1))
    assert [dataset.registration.name for dataset in home.ledger.datasets()] == ["one"]


def test_a_lost_sketch_asks_and_is_made_anew_from_the_same_file(home):
    dataset = put(home, "a", numbers())
    sketch = home.datasets / dataset.registration.commitment / "sketch.npz"
    before = Sketch.read(sketch)
    sketch.unlink()
    with pytest.raises(
        InputError, match=r"in the dataset a\?.*sketch\.npz.*--family a;.*--new-people --reason"
    ) as asked:
        put(home, "b", numbers().slice(1))
    assert asked.value.details == {"dataset": "a", "answers": ["--family a", "--new-people --reason TEXT"]}
    put(home, "c", numbers(seed=1), new_people=NewPeople("another town", "steward"))
    with pytest.raises(NameTaken, match="registered already"):
        put(home, "d", numbers())
    assert (Sketch.read(sketch).cells == before.cells).all()
    assert sketch.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NameTaken, match="are in the dataset a already"):
        put(home, "b", numbers().slice(1))
    put(home, "e", numbers(seed=2))
    assert [each.registration.name for each in home.ledger.datasets()] == ["a", "c", "e"]


def test_two_homes_of_one_ledger_ask_about_what_only_the_other_knows(tmp_path, ledger_url, monkeypatch):
    monkeypatch.setattr(comparisons, "MAX_ANSWERS", 100)
    homes = []
    for name in ("here", "there"):
        if homes:
            shutil.copytree(homes[0].path / "keys", tmp_path / name / "keys")
        homes.append((Home.open if homes else Home.init)(at(tmp_path / name, ledger_url)))
    here, there = homes
    put(here, "a", numbers())
    for table in (numbers().slice(1), numbers(seed=1)):  # nobody can tell them apart there
        with pytest.raises(InputError, match="in the dataset a"):
            put(there, "b", table)
    with pytest.raises(NameTaken, match="registered already"):  # the same bytes: known by the ledger alone
        put(there, "b", numbers())
    first = put(there, "b", numbers(seed=1), new_people=NewPeople("another town", "steward"))
    with pytest.raises(InputError, match="in the dataset b"):
        put(here, "c", numbers(seed=2))
    assert put(there, "c", numbers().slice(1), families=("a",)).family == here.ledger.dataset("a").family
    for home in homes:  # with what the other knows, each compares
        other = homes[1 - homes.index(home)]
        shutil.copytree(other.datasets, home.datasets, dirs_exist_ok=True)
    with pytest.raises(NameTaken, match="are in the dataset b already"):
        put(here, "d", numbers(seed=1).slice(1))
    assert put(here, "d", numbers(seed=2)).family not in {first.family, here.ledger.dataset("a").family}
    assert audit_home(there).problems == ()


@pytest.mark.parametrize("again", [numbers().slice(1), numbers(seed=1)], ids=["the same rows", "other rows"])
def test_what_is_registered_while_a_file_is_read_is_compared_too(home, monkeypatch, again):
    reads = []

    def in_between(*arguments):
        reads.append(arguments)
        if len(reads) == 1:
            put(home, "first", numbers())
        return pack(*arguments)

    pack = datasets.pack
    monkeypatch.setattr(datasets, "pack", in_between)
    if again.equals(numbers(seed=1)):
        put(home, "second", again)
    else:
        with pytest.raises(NameTaken, match="are in the dataset first already"):
            put(home, "second", again)
    assert len(reads) == 3  # the first once, the other twice
    registered = [each.registration.commitment for each in home.ledger.datasets()]
    assert sorted(path.name for path in home.datasets.iterdir()) == sorted(registered)
    assert audit_home(home).problems == ()


def test_rows_that_are_registered_are_never_removed(home, monkeypatch):
    """By a start that was cut between the folder and its entry, nor where another host that shares the folder, but not
    the lock, has entered the same rows meanwhile."""

    def unavailable(*_):
        raise LedgerUnavailable("the database is away")

    with monkeypatch.context() as cut:
        cut.setattr(type(home.ledger), "register", unavailable)
        with pytest.raises(LedgerUnavailable):
            put(home, "a", numbers())
    (left,) = home.datasets.iterdir()
    assert home.ledger.datasets() == []
    dataset = put(home, "a", numbers())
    assert list(home.datasets.iterdir()) == [left]
    with monkeypatch.context() as late:
        late.setattr(datasets, "_check_new_rows", lambda *_: None)
        late.setattr(datasets, "check_new_people", lambda *_: None)
        with pytest.raises(NameTaken, match="registered already, as a"):
            put(home, "b", numbers())
    datasets.require_rows(home, dataset)
    assert list(home.datasets.iterdir()) == [left]


def test_the_level_is_of_three_comparisons():
    assert pytest.approx(1e-6) == 3 * LEVEL
    assert crossing_chance(25, 0, 0) <= LEVEL < crossing_chance(24, 0, 0)


# ---- copies that were written anew -----------------------------------------------------------------------------------


def spelt(table, how) -> pa.Table:
    """Every cell as a text, written in another way."""
    return pa.table({name: [how(str(value)) for value in table[name].to_pylist()] for name in table.column_names})


def in_thousands(table, name) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pc.divide(table[name].cast(pa.float64()), 1000.0))


def renamed(table) -> pa.Table:
    return table.rename_columns([f"column {place}" for place in range(table.num_columns)])


ACCIDENTS = {
    "a blank after each comma": lambda table: spelt(table, lambda cell: f" {cell}"),
    "capitals": lambda table: spelt(table, str.upper),
    "quotes": lambda table: spelt(table, lambda cell: f' "{cell}"'),
    "every column renamed": renamed,
    "a number in thousands": lambda table: in_thousands(table, "fnlwgt"),
    "another number in thousands": lambda table: in_thousands(table, "age"),
    "all of it": lambda table: shuffled(renamed(spelt(in_thousands(table, "fnlwgt"), str.upper))),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_adult_written_anew_is_found(accident):
    table = ADULT.slice(0, 20_000)
    copy = ACCIDENTS[accident](table)
    assert share(table, copy) > 0.9


@pytest.mark.parametrize("how", [str.upper, lambda cell: f"{cell} ", lambda cell: f"\u200b{cell}"])
def test_names_in_another_spelling_are_the_same_rows(how):
    """Composed accents or not, too: rows of four texts, of which no other column tells anything."""
    random = np.random.default_rng(2)
    names = [[f"Zoë{number}" for number in random.integers(0, 400, 3000)] for _ in range(4)]
    table = pa.table({f"c{place}": column for place, column in enumerate(names)})
    assert share(table, spelt(table, how)) > 0.9
    assert share(table, spelt(table, lambda cell: cell.replace("ë", "e\u0308"))) > 0.9


def test_one_value_that_is_no_text_changes_no_other():
    """A Latin-1 cell in a batch: the cells beside it are compared as ever."""
    words = bits_of(pa.array([b"Ada", b" ada", b"\xe9"]), np.uint64(7)).tolist()
    assert words[:2] == bits_of(pa.array(["ADA", '"ada"']), np.uint64(7)).tolist()


@pytest.mark.parametrize("cut", [16_280, 31_000])
@pytest.mark.parametrize("table", [ADULT, WITHOUT_WEIGHT, FEW], ids=["adult", "without its weight", "few"])
def test_disjoint_halves_under_other_names_are_not_refused(table, cut):
    mixed = shuffled(table, cut)
    assert share(mixed.slice(0, cut), renamed(mixed.slice(cut))) == 0


def test_columns_that_are_alike_are_not_exchanged():
    """Many things were measured twice, with length and width exchanged: in halves of one table, as strangers' rows,
    they stand in both, and within neither.
    """
    random = np.random.default_rng(1)
    length, width, price = random.normal(size=(3, 6000)).round(2)
    first = pa.table({"x": length, "y": width, "p": price})
    second = pa.table({"x": width, "y": length, "p": price})
    assert share(first, second) == 0
    assert share(first, renamed(first)) == 1


def test_a_match_of_columns_is_by_how_often_values_stand_there():
    key, common = np.uint64(5), np.uint64(6)

    def values(numbers):
        return ColumnValues.of(mix(np.asarray(numbers, np.uint64), key), key, common)

    random = np.random.default_rng(0)
    own = {"a": values(random.integers(0, 9, 5000)), "b": values(np.arange(5000)), "c": values([7] * 5000)}
    known = {"p": values(np.arange(5000)[::-1]), "q": values(random.integers(0, 9, 4000)), "r": values([7] * 9)}
    assert match_columns(known, own) == {"p": "b", "q": "a"}
    assert likeness([known["p"]], [own["b"]])[0, 0] == pytest.approx(1)
    assert match_columns({"p": values(np.arange(9000, 14_000))}, own) == {}


def test_a_sketch_of_another_form_is_not_compared(tmp_path):
    with (tmp_path / "sketch.npz").open("wb") as file:
        scanned(ADULT.slice(0, 600))[1].write(file)
    with np.load(tmp_path / "sketch.npz") as arrays:
        others = {name: arrays[name] for name in arrays if name != "form"}
    for form in ({}, {"form": np.array(1)}, {"form": np.array(9)}):
        np.savez(tmp_path / "sketch.npz", **others, **form)
        with pytest.raises(DataError, match="cannot be read"):
            Sketch.read(tmp_path / "sketch.npz")
