"""Several targets of one table: what a schema may say of them, and which rows and columns each one's job gets."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from accountant.errors import DataError, SchemaError
from accountant.home import Home
from accountant.ledger.families.records import Unit
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import pack, register
from training.datasets.drafts.proposal import SchemaProposal
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import NO_CLASS, NO_NUMBER, has_answer, rows_of

FEATURES = "features:\n  age: {type: numeric, edges: [20, 40, 60]}\n"
ONE = "target: {name: income, classes: [low, high]}\n"
SEVERAL = """\
targets:
  income: {classes: [low, high]}
  region: {classes: [north, south, east], missing: leave-out}
  hours: {range: [0, 80], missing: leave-out}
"""
GOOD = f"records: 9\n{SEVERAL}{FEATURES}"


def parse(text: str):
    return parse_schema(text.encode())


def test_each_target_has_a_schema_of_its_own():
    schema = parse(GOOD)
    assert schema.target_names == ("income", "region", "hours")
    asked = {name: schema.question(name) for name in schema.target_names}
    assert [each.classes for each in asked.values()] == [("low", "high"), ("north", "south", "east"), None]
    assert [each.target_range for each in asked.values()] == [None, None, (0.0, 80.0)]
    assert {each.digest for each in asked.values()} == {schema.digest}
    assert all(each.features == schema.features and each.question(None) == each for each in asked.values())


def test_a_target_under_targets_alone_is_that_of_old():
    old, new = (
        parse(f"records: 9\n{ONE}{FEATURES}"),
        parse(f"records: 9\ntargets: {{income: {{classes: [low, high]}}}}\n{FEATURES}"),
    )
    assert (old.targets, old.features) == (new.targets, new.features)
    assert old.question(None) == old.question("income") == old


def test_several_targets_answer_no_question_by_themselves():
    for ask in (lambda s: s.target, lambda s: s.classes, lambda s: s.target_range, lambda s: s.question(None)):
        with pytest.raises(InputError, match="income, region, hours") as caught:
            ask(parse(GOOD))
        assert caught.value.details == {"targets": ["income", "region", "hours"]}
    with pytest.raises(InputError, match="'age' is no target"):
        parse(GOOD).question("age")


INCOME = "  income: {type: categorical, values: [low, high]}\n"
ALSO = GOOD.replace("income: {classes: [low, high]}", "income: {classes: [low, high], also_feature: true}")
REFUSED = {
    "none": (f"records: 9\n{FEATURES}", "needs either"),
    "both": (GOOD + ONE, "needs either"),
    "empty": (f"records: 9\ntargets: {{}}\n{FEATURES}", "targets"),
    "a list": (f"records: 9\ntargets: [{{name: income, classes: [low, high]}}]\n{FEATURES}", "targets"),
    "twice": (GOOD.replace("  hours:", "  income:"), "'income'.*stand twice"),
    "neither classes nor range": (GOOD.replace("range: [0, 80], ", ""), "targets.hours"),
    "a name in it": (GOOD.replace("{range: [0, 80]", "{name: hours, range: [0, 80]"), "targets.hours.name"),
    "another rule": (GOOD.replace("leave-out", "guess"), "missing"),
    "a feature without permission": (GOOD + INCOME, "features.income: the target cannot be.*also_feature"),
    "permission without a feature": (ALSO, "targets.income: also_feature needs"),
    "permission without another target": (
        f"records: 9\ntargets: {{income: {{classes: [low, high], also_feature: true}}}}\n{FEATURES}{INCOME}",
        "another target",
    ),
    "permission of the only target": (
        f"records: 9\n{ONE[:-2]}, also_feature: true}}\n{FEATURES}",
        "also_feat",
    ),
    "permission in words": (ALSO.replace("also_feature: true", 'also_feature: "yes"') + INCOME, "also_feature"),
    "classes as a number": (ALSO + "  income: {type: numeric, edges: [1]}\n", "features.income: a target with"),
    "no other feature": (ALSO.replace(FEATURES, "features:\n") + INCOME, "no other feature"),
    "ignored": (GOOD + "ignore: [region]\n", "'region' is used"),
    "a name that is none": (GOOD.replace("hours:", '"":'), "printable"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_a_schema_may_not_say_of_targets(text, says):
    with pytest.raises(SchemaError, match=f"(?s){says}"):
        parse(text)


def test_a_draft_says_how_several_targets_are_written(tmp_path):
    pq.write_table(pa.table({"age": [1.0]}), tmp_path / "rows.parquet")
    text = SchemaProposal.of_file(tmp_path / "rows.parquet", look=False).to_yaml("rows.parquet", looked=False)
    assert "targets: {NAME: {classes: [...]}, NAME: {range: [low, high]}}" in text


# ---- rows ------------------------------------------------------------------------------------------------------------

TABLE = {
    "age": [10.0, 30.0, 50.0, 70.0, None],
    "income": ["low", "high", "high", "low", "low"],
    "region": ["north", "", "NA", "east", "south"],
    "hours": [0.0, None, 40.0, 80.0, None],
}


def write(folder, table, suffix):
    path = folder / f"rows.{suffix}"
    pq.write_table(table, path) if suffix == "parquet" else pa.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_every_target_is_packed_once_and_missing_answers_have_their_mark(tmp_path, suffix):
    packed = pack(write(tmp_path, pa.table(TABLE), suffix), parse(GOOD))
    income, region, hours = packed.answers
    assert packed.bins.shape == (1, 5)
    assert income.tolist() == [0, 1, 1, 0, 0]
    assert region.tolist() == [0, NO_CLASS, NO_CLASS, 2, 1]
    assert hours.tolist() == [-(1 << 20), NO_NUMBER, 0, 1 << 20, NO_NUMBER]
    assert [has_answer(column).tolist() for column in (income, region, hours)] == [
        [True] * 5,
        [True, False, False, True, True],
        [True, False, True, True, False],
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_target_refuses_missing_answers_unless_it_leaves_them_out_and_unknown_ones_always(tmp_path, suffix):
    missing = pa.table({**TABLE, "income": ["low", "", "high", "low", "low"]})
    unknown = pa.table({**TABLE, "region": ["north", "west", "NA", "east", "south"]})
    for table, says in ((missing, "income, row 3 .*: missing"), (unknown, "region, row 3 .*: .* not one of")):
        with pytest.raises(DataError, match=says):
            pack(write(tmp_path, table, suffix), parse(GOOD))
    with pytest.raises(DataError, match="hours, row 3 .*: missing"):
        pack(write(tmp_path, pa.table(TABLE), suffix), parse(GOOD.replace("80], missing: leave-out", "80]")))


def test_a_missing_word_that_is_a_class_is_one(tmp_path):
    schema = parse(GOOD.replace("[north, south, east]", '[north, south, east, "NA"]'))
    assert pack(write(tmp_path, pa.table(TABLE), "csv"), schema).answers[1].tolist() == [0, NO_CLASS, 3, 2, 1]


def test_255_classes_leave_a_mark_for_a_missing_answer(tmp_path):
    words = [f"c{number}" for number in range(255)]
    schema = parse(f"records: 9\ntargets: {{y: {{classes: {words}, missing: leave-out}}}}\n{FEATURES}")
    packed = pack(write(tmp_path, pa.table({"age": [1.0, 2.0], "y": ["c254", None]}), "parquet"), schema)
    assert packed.labels.tolist() == [254, 255]
    assert has_answer(packed.labels).tolist() == [True, False]


def test_a_target_that_nobody_answers_is_refused(tmp_path):
    with pytest.raises(DataError, match="region: no row that is used has an answer"):
        pack(write(tmp_path, pa.table({**TABLE, "region": ["NA"] * 5}), "csv"), parse(GOOD))


def test_under_replace_one_no_row_is_left_out(tmp_path):
    (tmp_path / "schema.yaml").write_text(GOOD.replace("records: 9", "records: 5"))
    home, path = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write(tmp_path, pa.table(TABLE), "csv")
    with pytest.raises(DataError, match="leave-out` needs add-remove"):
        register(home, "d", path, tmp_path / "schema.yaml", Budget.of(1, "1e-6"), Relation.REPLACE_ONE, None)
    assert not home.ledger.datasets()


def test_a_notebook_leaves_out_the_same_rows():
    schema = parse(GOOD).question("region")
    table = pa.table({"age": TABLE["age"]})
    rows = rows_of(schema, table, TABLE["region"], Relation.ADD_REMOVE)
    assert rows.labels.tolist() == [0, 2, 1]
    whole = rows_of(parse(GOOD).question("income"), table, TABLE["income"], Relation.ADD_REMOVE)
    assert rows.bins[0].tolist() == whole.bins[0, [0, 3, 4]].tolist()
    with pytest.raises(DataError, match="add-remove"):
        rows_of(schema, table, TABLE["region"], Relation.REPLACE_ONE)


def used(folder, rows, name, most):
    """The rows, as (bin, answer), that a job on this target sums over."""
    schema = parse(GOOD)
    columns = {key: [row[key] for row in rows] for key in ("pid", "age", "income", "region", "hours")}
    types = [pa.string(), pa.float64(), pa.string(), pa.string(), pa.float64()]
    table = pa.table([pa.array(v, t) for v, t in zip(columns.values(), types, strict=True)], names=list(columns))
    packed = pack(write(folder, table, "parquet"), schema, Unit("person", "pid", most))
    answers = packed.answers[schema.target_names.index(name)]
    present = has_answer(answers)
    return sorted(zip(packed.bins[0][present].tolist(), answers[present].tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_a_person_moves_no_target_by_more_rows_than_they_may_contribute(tmp_path, most):
    """Over every place of a person's two rows among others', and every pattern of their missing answers."""
    others = [
        {"pid": "a", "age": 10.0, "income": "low", "region": "north", "hours": 1.0},
        {"pid": "b", "age": 30.0, "income": "high", "region": None, "hours": None},
        {"pid": "a", "age": 50.0, "income": "high", "region": "east", "hours": None},
    ]
    largest = 0
    for region, hours, at in itertools.product([("south", None), (None, "south")], [(None, 7.0), (9.0, 8.0)], range(4)):
        mine = [
            {"pid": "z", "age": 70.0, "income": "low", "region": r, "hours": h}
            for r, h in zip(region, hours, strict=True)
        ]
        near = [*others[:at], mine[0], *others[at:], mine[1]]
        for name in ("income", "region", "hours"):
            without, with_person = used(tmp_path, others, name, most), used(tmp_path, near, name, most)
            more = list(with_person)
            for row in without:
                more.remove(row)  # everybody else's rows stay, each of them
            largest = max(largest, len(more))
            assert len(more) <= most
    assert largest == most


def test_the_packed_numbers_of_a_schema_of_old_are_what_they_were(tmp_path):
    """One target: the same files and the same bytes in them, whatever the schema calls it."""
    table = pa.table({"age": TABLE["age"], "income": TABLE["income"]})
    (tmp_path / "schema.yaml").write_text(f"records: 9\n{ONE}{FEATURES}")
    home, path = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write(tmp_path, table, "csv")
    register(home, "d", path, tmp_path / "schema.yaml", Budget.of(1, "1e-6"), Relation.ADD_REMOVE, None)
    (folder,) = home.datasets.iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["bins.npy", "labels.npy", "schema.yaml", "sketch.npz"]
    assert np.load(folder / "labels.npy").tolist() == [0, 1, 1, 0, 0]
    (entry,) = [home.ledger.log.entry(at).value for at in range(home.ledger.log.size())][-1:]
    assert "targets" not in entry
