"""Parts: adding a unit changes one part, by that unit's rows alone; learners read the other part and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.errors import DataError
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import HOLDOUT, Unit
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import NumericFeature
from training.datasets.datasets import pack, register
from training.jobs import job
from training.planning import plans
from training.requests import JobRequest
from training.rows.packed.cells import grid_of
from training.rows.people.parts import Parting
from training.rows.people.people import unit_ids
from training.rows.schema.schema import parse_schema

SCHEMA = b"""
target: {name: y, classes: ["no", "yes"]}
records: 60
features:
  x: {type: numeric, range: [0, 8], bins: 2} # 1 to 3 are one bin, and told apart by their cells
ignore: [who]
"""
PARTING = Parting(b"k" * 32, Decimal("0.4"))
ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3), st.booleans()), min_size=1, max_size=30)


def parts_of(tmp_path, rows, unit: Unit) -> dict[str | None, Counter]:
    """Each part as a multiset of stored rows."""
    table = {"x": [float(x) for _, x, _ in rows], "y": ["yes" if y else "no" for *_, y in rows]}
    if unit.column:
        table["who"] = [who for who, *_ in rows]
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    packed = pack(tmp_path / "rows.parquet", parse_schema(SCHEMA), unit, parting=PARTING)
    values = grid_of(NumericFeature("x", (0.0, 4.0)), (0.0, 8.0)).edges
    stored = {part: np.vstack([values[own.cells], *own.answers]).T.tolist() for part, own in packed.parts().items()}
    return {part: Counter(map(tuple, rows)) for part, rows in stored.items()}


def test_a_group_is_part_of_what_a_row_holds(tmp_path):
    """Rows that differ in it alone are not exchangeable: one more of a group leaves the others of its kind in place."""
    grouped = SCHEMA.replace(b"ignore: [who]", b"groups: {who: {type: categorical, values: [a, b]}}")
    random = np.random.default_rng(0)
    rows = [(str(who), 1.0, "yes") for who in random.choice(["a", "b"], 60)]

    def parts(rows):
        table = {name: [row[at] for row in rows] for at, name in enumerate(("who", "x", "y"))}
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        packed = pack(tmp_path / "rows.parquet", parse_schema(grouped), Unit(), parting=PARTING)
        return {part: Counter(own.bins[1].tolist()) for part, own in packed.parts().items()}

    before = parts(rows)
    for at in (0, 30, 60):
        after = parts([*rows[:at], ("a", 1.0, "yes"), *rows[at:]])
        grown = {part: after[part] - before[part] for part in before}
        assert sorted(map(dict, grown.values()), key=len) == [{}, {0: 1}]
        assert not any(before[part] - after[part] for part in before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


@pytest.mark.slow
@given(ROWS, st.sampled_from("abcdefgh"), st.integers(0, 3), st.booleans(), st.data())
@settings(max_examples=60)
def test_one_more_record_changes_one_part_by_itself(place, rows, who, x, y, data):
    """Wherever it stands, also among rows that equal it."""
    at = data.draw(st.integers(0, len(rows)))
    before, after = (parts_of(place, each, Unit()) for each in (rows, [*rows[:at], (who, x, y), *rows[at:]]))
    gained = {part: after[part] - before[part] for part in before}
    assert all(before[part] <= after[part] for part in before)
    assert sorted(sum(each.values()) for each in gained.values()) == [0, 1]
    assert Counter({(x, int(y)): 1}) in gained.values()


@pytest.mark.slow
@given(
    ROWS, st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=5), st.integers(1, 3), st.data()
)
@settings(max_examples=60)
def test_one_more_person_changes_one_part_by_at_most_their_contributions(place, rows, own, most, data):
    unit, mixed = Unit("person", "who", most), list(rows)
    for x, y in own:
        mixed.insert(data.draw(st.integers(0, len(mixed))), ("new", x, y))
    before, after = (parts_of(place, each, unit) for each in (rows, mixed))
    gained = {part: sum((after[part] - before[part]).values()) for part in before}
    assert all(before[part] <= after[part] for part in before)
    assert sorted(gained.values()) == [0, min(most, len(own))]
    assert gained[HOLDOUT if PARTING.is_held(b"unew") else None] == min(most, len(own))


def test_a_part_that_follows_from_the_place_in_the_file_is_caught(place):
    """The same check fails where a row's part depends on others: what it guards against."""
    rows = [("a", k % 4, k % 3 == 0) for k in range(12)]

    def by_place(each):
        held = {part: Counter() for part in (None, HOLDOUT)}
        for k, (_, x, y) in enumerate(each):
            held[HOLDOUT if k % 3 == 0 else None][x, int(y)] += 1
        return held

    before, after = by_place(rows), by_place([("a", 3, True), *rows])
    assert not all(before[part] <= after[part] for part in before)


def test_a_person_has_one_part_whatever_column_type_names_them():
    spelt = [pa.array(ids) for ids in ([7, 8, 9], [7.0, 8.0, 9.0], ["7", "8.0", "9"], [b"7", b"8", b"9"])]
    assert len({tuple(PARTING.of_units(unit_ids("who", each)).tolist()) for each in spelt}) == 1
    many = unit_ids("who", pa.array(range(99)))
    assert Parting(b"j" * 32, Decimal("0.4")).of_units(many).tolist() != PARTING.of_units(many).tolist()


def test_the_share_is_met_also_where_most_rows_are_equal():
    """4,000 rows of 8 kinds: 1600 are expected, 31 is the standard deviation; beyond 5 of them once in 1.7 million."""
    codes = np.random.default_rng(0).integers(0, 8, 4000)
    assert abs(int(PARTING.of_records([codes]).sum()) - 1600) < 155


def write(folder, rows, schema=SCHEMA):
    people, values, answers = zip(*rows, strict=True)
    table = {"x": [float(x) for x in values], "y": ["yes" if y else "no" for y in answers], "who": people}
    pq.write_table(pa.table(table), folder / "rows.parquet")
    (folder / "schema.yaml").write_bytes(schema)
    return folder / "rows.parquet", folder / "schema.yaml"


def entered(home, folder, rows, name="people", unit="who", families=(), **more):
    files = write(folder, rows)
    budget = None if families else Budget.of("2", "0.000001")
    return register(home, name, *files, budget, Relation.ADD_REMOVE, unit, families=families, **more)


def test_learners_never_read_what_is_kept_aside(home, tmp_path, monkeypatch):
    rows = [(f"p{k}", k % 4, k % 2 == 0) for k in range(60)]
    dataset = entered(home, tmp_path, rows, holdout=Decimal("0.4"))
    seen = []
    from training.kinds import job_steps

    real = job_steps.open_rows
    monkeypatch.setattr(job_steps, "open_rows", lambda *a: seen.append(real(*a)) or seen[-1])
    body = job.train(home, JobRequest("people", "lazybb", "0.5", parameters={"rounds": 2}), by="test")
    folder = home.datasets / dataset.registration.commitment
    sizes = [np.load(folder / name).shape[-1] for name in ("bins.npy", "holdout-bins.npy")]
    assert (body["state"], sum(sizes)) == ("issued", 60)
    assert seen[0].size == sizes[0] < 60
    shown = plans.plan(home, JobRequest("people", "lazybb", "0.5"))
    public = plans.public_of(shown.dataset, parse_schema(SCHEMA), shown.request.budget)
    assert public.records == 36


def test_a_person_is_in_one_part_of_all_datasets_of_the_family(home, tmp_path):
    people = [f"p{k}" for k in range(60)]
    entered(home, tmp_path, [(who, 0, True) for who in people], holdout=Decimal("0.4"))
    entered(home, tmp_path, [(who, 1, False) for who in people[::-1]], "again", families=("people",))
    name = home.ledger.dataset("people").families[0].name
    key = bytes.fromhex(home.keys.commitment([b"the key of the parts of family ", name.encode()]))
    held = sum(Parting(key, Decimal("0.4")).is_held(b"u" + who.encode()) for who in people)
    for each in ("people", "again"):
        folder = home.datasets / home.ledger.dataset(each).registration.commitment
        assert np.load(folder / "holdout-labels.npy").size == held
    assert 5 < held < 50


def test_what_cannot_have_parts_is_refused(home, tmp_path):
    rows = [(f"p{k}", k % 4, k % 2 == 0) for k in range(40)]
    for share in ("0", "1", "-0.1", "1.5", "0.00001", "NaN"):
        with pytest.raises(InputError, match="holdout"):
            entered(home, tmp_path, rows, holdout=Decimal(share))
    with pytest.raises(InputError, match="replace-one"):
        register(
            home, "r", *write(tmp_path, rows), Budget.of("1", "0.000001"), Relation.REPLACE_ONE, "who",
            holdout=Decimal("0.2"),
        )  # fmt: skip
    entered(home, tmp_path, rows, "one", unit="record", holdout=Decimal("0.2"))
    with pytest.raises(InputError, match="rows of another dataset may be about people of either part"):
        entered(home, tmp_path, [(w, x, not y) for w, x, y in rows], "two", unit="record", families=("one",))
    with pytest.raises(InputError, match="declared where it is founded"):
        entered(home, tmp_path, rows, "two", families=("one",), holdout=Decimal("0.2"))
    with pytest.raises((InputError, DataError)):
        home.ledger.dataset("people", part=HOLDOUT)


def test_the_packed_part_is_part_of_the_commitment(home, tmp_path):
    """A changed file of what is kept aside is found before a job starts."""
    dataset = entered(home, tmp_path, [(f"p{k}", k % 4, k % 2 == 0) for k in range(40)], holdout=Decimal("0.3"))
    path = home.datasets / dataset.registration.commitment / "holdout-labels.npy"
    path.chmod(0o600)
    np.save(path, 1 - np.load(path))
    with pytest.raises(Exception, match="not in this home as they were registered"):
        plans_and_train(home)
    assert json.loads(json.dumps(describe_budget(home.ledger.dataset("people"))))["spent"]["epsilon"] == "0"


def plans_and_train(home):
    job.train(home, JobRequest("people", "lazybb", "0.5", parameters={"rounds": 2}), by="test")
