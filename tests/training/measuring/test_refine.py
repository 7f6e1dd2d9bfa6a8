"""A schema refined by a profile: narrower where rows are, without what the noise hides; and rows made up from one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from small_home import dpserve

from accountant.certificates.profile import PROFILE
from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.profile.columns import column_of
from training.datasets.datasets import register
from training.datasets.made_up import MADE_UP, is_made_up, write_made_up
from training.jobs import job
from training.measuring.profile.refine import refine
from training.requests import ProfileRequest
from training.rows.schema.schema import parse_schema

SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 20000
features:
  wide: {type: numeric, range: [-500, 700], missing_values: [-499], outside: expected}
  tail: {type: numeric, range: [0, 100000]}
  right: {type: numeric, range: [0, 1], bins: 16}
  town: {type: categorical, values: [a, b, c, nobody]}
  mail: {type: boolean}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with a profile of 20,000 rows, ranges too wide, one tail heavy."""
    folder, random = tmp_path_factory.mktemp("refine"), np.random.default_rng(0)
    count = 20_000
    rows = {
        "wide": random.uniform(0, 100, count), "tail": random.lognormal(6, 1.2, count), "right": random.random(count),
        "town": random.choice(["a", "b", "c"], count), "mail": random.random(count) < 0.5,
        "y": random.choice(["no", "yes"], count),
    }  # fmt: skip
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    home = Home.init(ledgers.place(folder / "home"))
    files = folder / "rows.parquet", folder / "schema.yaml"
    register(home, "made", *files, Budget.of("5", "0.00001"), Relation.ADD_REMOVE, "record")
    job.measure(home, ProfileRequest("made", "1"), by="test")
    home.ledger.log.database.close()
    return folder


def without_rare_noise(profile):
    """In one profile of twenty, as documented, the noise of an empty bin looks like rows: here it is nothing."""

    def blank(stated):
        empty = [value == "nobody" for value in stated.values or []]
        if stated.name == "wide":
            low, high = column_of(stated).limits
            empty = ((high <= 0) | (low >= 100)).tolist()
        empty += [False] * (len(stated.counts) - len(empty))
        counts = [0 if gone else count for count, gone in zip(stated.counts, empty, strict=True)]
        return replace(stated, counts=counts)

    return replace(profile, form=replace(profile.form, columns=[*map(blank, profile.form.columns)]))


def test_ranges_shrink_cut_points_follow_rows_and_empty_categories_go(place):
    home = Home.open(ledgers.place(place / "home"))
    (seq,) = [each.seq for each in home.ledger.jobs() if not each.model]
    found = refine(SCHEMA.encode(), without_rare_noise(PROFILE.open(home, seq)[2]))
    changed = {each["feature"] for each in found.changes}
    assert changed == {"wide", "tail", "right", "town"}
    new = parse_schema(found.text.encode())
    wide, tail, right, town, mail = new.features
    assert -60 < min(wide.edges) <= 0
    assert 80 < max(wide.edges) < 200
    assert sum(edge < 2500 for edge in tail.edges) > 8  # the declared cut points have one there
    assert (len(right.edges), town.values, mail.kind) == (16, ("a", "b", "c"), "boolean")
    assert new.written_as("wide").missing_numbers == (-499,)  # how the file is written stays said
    assert (new.targets, new.records) == (parse_schema(SCHEMA.encode()).targets, 20_000)
    with pytest.raises(InputError, match="not the file that the profile is about"):
        refine(SCHEMA.replace("20000", "20001").encode(), PROFILE.open(home, seq)[2])
    home.ledger.log.database.close()


@pytest.mark.slow
def test_from_the_command_line_to_a_model_of_the_refined_schema(place, tmp_path):
    home = ledgers.copy(place / "home", tmp_path / "home")
    (number,) = [each.name for each in (home / "profiles").iterdir()]
    schema, refined = place / "schema.yaml", tmp_path / "refined.yaml"
    asked = ("schema", "refine", "--schema", str(schema), "--out", str(refined), "--json", "--profile")
    body = json.loads(dpserve(home, *asked, number).stdout)
    first = refined.read_text()
    assert body["schema"] == first
    shutil.copytree(home / "profiles" / number, tmp_path / "sent")
    assert dpserve(home, *asked, str(tmp_path / "sent" / "profile.dsse.json")).returncode == 0
    assert refined.read_text() == first
    data = ("--data", str(place / "rows.parquet"), "--schema", str(refined), "--unit", "record")
    assert dpserve(home, "dataset", "register", "again", *data, "--epsilon", "1", "--delta", "1e-6").returncode == 2
    joined = dpserve(home, "dataset", "register", "again", *data, "--family", "made")  # the same people: one budget
    assert joined.returncode == 0, joined.stderr
    train = ("train", "again", "--learner", "lazybb", "--epsilon", "0.5", "--set", "rounds=5", "--json")
    assert json.loads(dpserve(home, *train).stdout)["state"] == "issued"
    assert dpserve(home, *asked, "99").returncode != 0
    assert dpserve(home, *asked, str(schema)).returncode == 2
    envelope = tmp_path / "sent" / "profile.dsse.json"
    envelope.write_text(envelope.read_text().replace('"sig":"', '"sig":"A'))
    assert dpserve(home, *asked, str(envelope)).returncode == 4


WORDS = """
targets: {price: {range: [0, 10], missing: leave-out}, kind: {classes: [1, 2, 3], also_feature: true}}
records: 100
features:
  age: {type: numeric, range: [17, 90]}
  rate: {type: numeric, range: [0, 1]}
  cuts: {type: numeric, edges: [1, 2.5, 9]}
  code: {type: categorical, values: [10, 20]}
  town: {type: categorical, values: ["a,b", "c\\"d"]}
  mail: {type: boolean}
  kind: {type: categorical, values: ["1", "2", "3"]}
"""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_made_up_rows_fit_their_schema_and_are_marked(tmp_path, suffix):
    (tmp_path / "schema.yaml").write_text(WORDS)
    out, again, other = (tmp_path / f"{name}.{MADE_UP.word}.{suffix}" for name in ("one", "two", "three"))
    schema = parse_schema(WORDS.encode())
    for path, seed in ((out, 1), (again, 1), (other, 2)):
        write_made_up(schema, 500, path, seed)
    assert out.read_bytes() == again.read_bytes() != other.read_bytes()
    table = pq.read_table(out) if suffix == "parquet" else pyarrow.csv.read_csv(out)
    assert table.column_names == ["age", "rate", "cuts", "code", "town", "mail", "kind", "price"]
    assert (table.num_rows, table["age"].type, table["kind"].null_count) == (500, pa.int64(), 0)
    assert 0 < table["age"].null_count < 40
    home = Home.init(ledgers.place(tmp_path / "home"))
    register(home, "tried", out, tmp_path / "schema.yaml", Budget.of("3", "0.0001"), Relation.ADD_REMOVE, "record")
    renamed = tmp_path / f"rows.{suffix}"
    shutil.copy(out, renamed)
    assert is_made_up(out)
    assert is_made_up(renamed) is (suffix == "parquet")  # a .csv says so by its name alone
    home.ledger.log.database.close()


@pytest.mark.slow
def test_made_up_rows_are_refused_where_nothing_is_said(tmp_path):
    home, schema = tmp_path / "home", tmp_path / "schema.yaml"
    schema.write_text(WORDS)
    dpserve(home, "init")
    out = str(tmp_path / "rows.made-up.csv")
    made = dpserve(home, "schema", "sample", "--schema", str(schema), "--rows", "100", "--out", out, "--json")
    assert json.loads(made.stdout) == {"out": out, "rows": 100, "seed": 0, "made_up": True}
    asked = (
        "dataset",
        "register",
        "tried",
        "--data",
        out,
        "--schema",
        str(schema),
        "--epsilon",
        "1",
        "--delta",
        "1e-3",
    )
    refused = dpserve(home, *asked, "--unit", "record")
    assert (refused.returncode, "--made-up" in refused.stderr) == (2, True)
    assert dpserve(home, *asked, "--unit", "record", "--made-up").returncode == 0
    for wrong in (("--rows", "0"), ("--out", str(tmp_path / "rows.csv")), ("--out", str(tmp_path / "made-up.xlsx"))):
        sample = ("schema", "sample", "--schema", str(schema), "--rows", "5", "--out", out)
        assert dpserve(home, *sample, *wrong).returncode == 2
