"""Numbers to predict: clipped to a public range, centred, packed as integers; learnt, certified and answered."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from mean_by_bin import MeanByBin
from pages import blocks

from accountant.errors import DataError, SchemaError
from accountant.home import Home
from accountant.ledger.families.records import NewPeople, Unit
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.parts.votes import Vote
from models.store.loading import load_verified
from serving.cli.app import run
from training.datasets.datasets import pack, register
from training.jobs import job
from training.learners import LEARNERS
from training.planning import plans
from training.planning.job_views import dataset_to_json
from training.planning.plans import public_of
from training.requests import JobRequest, TuningRequest
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema, schema_of
from training.rows.tables.data import columns_of, encode_targets, rows_of

SECRET = 31.4159265
ROWS = 2000
TOTAL = Budget.of("4", "1e-6")
NUMBERS = [name for name in LEARNERS if name in ("auto", "ebm", "ebm-trees")]  # those that learn a number too


def schema(low: object = 0, high: object = 1, records: int = ROWS) -> Schema:
    return parse_schema(text(low, high, records))


def text(low: object = 0, high: object = 1, records: int = ROWS) -> bytes:
    return f"""
target: {{name: y, range: [{low}, {high}]}}
records: {records}
features:
  age: {{type: numeric, range: [0, 100], bins: 8}}
  colour: {{type: categorical, values: [red, green]}}
""".encode()


def columns(y: object) -> pa.Table:
    y = y if isinstance(y, pa.Array) else pa.array(y)
    return pa.table({"age": np.arange(len(y)) % 101.0, "colour": ["red"] * len(y), "y": y})


def parquet(folder: Path, table: pa.Table) -> Path:
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def csv(folder: Path, table: pa.Table) -> Path:
    pa.csv.write_csv(table, folder / "rows.csv")
    return folder / "rows.csv"


FILES = pytest.mark.parametrize("write", [parquet, csv])

# ---- from numbers to integers ----------------------------------------------------------------------------------------


def targets(y: object, low: object = 0, high: object = 1) -> list[int]:
    return encode_targets(schema(low, high), pa.array(y)).tolist()


def test_a_target_is_centred_on_its_range_and_clipped_to_it():
    inf = float("inf")
    grid = TARGET_GRID
    assert targets([0, 0.25, 0.5, 0.75, 1.0]) == [-grid, -grid // 2, 0, grid // 2, grid]
    assert targets([-inf, -1e300, -0.1, 1.1, 1e300, inf]) == [-grid] * 3 + [grid] * 3
    assert targets([-10, 5, 20], -10, 20) == [-grid, 0, grid]
    assert encode_targets(schema(), pa.array([0.3])).dtype == np.int32


def test_the_nearest_step_of_the_grid_is_taken():
    step = 1 / TARGET_GRID
    assert targets([0.4 * step, 0.6 * step, -0.6 * step], -1, 1) == [0, 1, -1]


@pytest.mark.parametrize(
    ("low", "high"), [(-1.7e308, 1.7e308), (0, 1.7e308), ("1.0e-300", "3.0e-300"), (1e16, 1e16 + 4)]
)
def test_a_range_of_any_size_ends_where_the_grid_ends(low, high):
    found = targets([float(low), float(high), float(low) / 2 + float(high) / 2], low, high)
    assert found == [-TARGET_GRID, TARGET_GRID, 0]


@pytest.mark.parametrize("span", ["[1, 1]", "[2, 1]", "[0, 5.0e-324]", "[0, .inf]", "[.nan, 1]", "[0]", "[yes, 3]"])
def test_a_range_that_is_none_is_refused(span):
    with pytest.raises(SchemaError, match="range"):
        parse_schema(text().replace(b"[0, 1]", span.encode()))


@FILES
def test_a_range_from_100_to_101_is_that_from_0_to_1(tmp_path, write):
    """Exactly, for numbers that a float holds in both places: nothing of a target's offset reaches a statistic."""
    y = np.random.default_rng(0).integers(-100, 1124, 500) / 1024
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    zero = pack(write(near, columns(y)), schema(0, 1))
    hundred = pack(write(far, columns(y + 100)), schema(100, 101))
    assert zero.labels.dtype == np.int32
    assert (zero.labels == hundred.labels).all()
    assert (zero.bins == hundred.bins).all()
    assert np.unique(zero.labels).size > 300


NUMERIC = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(22, 2)]


@pytest.mark.parametrize("kind", NUMERIC, ids=str)
def test_numbers_of_every_type_are_read(tmp_path, kind):
    found = pack(parquet(tmp_path, columns(pa.array([0, 1, 2, 4]).cast(kind))), schema(0, 4)).labels.tolist()
    assert found == [-TARGET_GRID, -TARGET_GRID // 2, 0, TARGET_GRID]


@FILES
@pytest.mark.parametrize("hole", [None, float("nan")])
def test_a_missing_target_is_refused_by_its_row_alone(tmp_path, write, hole):
    y = [SECRET] * 70_000 + [hole, SECRET]
    with pytest.raises(DataError, match="y, row 70002 .*: missing") as caught:
        pack(write(tmp_path, columns(y)), schema(0, 50))
    assert "31.4" not in str(caught.value)


@FILES
@pytest.mark.parametrize("y", [["one", "two"], [True, False], ["1", "x"]], ids=str)
def test_texts_and_truth_values_are_no_numbers(tmp_path, write, y):
    with pytest.raises(DataError, match=r"column 'y'|y, row \d") as caught:
        pack(write(tmp_path, columns(y)), schema())
    assert not any(repr(value) in str(caught.value) for value in y)


def test_rows_of_a_person_are_the_first_ones(tmp_path):
    table = columns([0.0, 0.25, 0.5, 0.75, 1.0]).append_column("who", pa.array(["a", "a", "b", "a", "b"]))
    found = pack(parquet(tmp_path, table), schema(), Unit("person", "who", 2))
    assert found.labels.tolist() == targets([0.0, 0.25, 0.5, 1.0])
    assert found.bins.shape == (2, 4)


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_rows_of_numbers_have_targets_and_no_classes():
    rows = rows_of(schema(), columns([0.0, 0.5, 1.0]), pa.array([0.0, 0.5, 1.0]), Relation.ADD_REMOVE)
    assert rows.targets.tolist() == [-TARGET_GRID, 0, TARGET_GRID]
    assert (rows.size, rows.outputs, rows.classes) == (3, 1, 0)
    vote = Vote(0, "above", 1, 1)
    asked = [
        lambda: rows.labels,
        lambda: rows.margin_counts((vote,), 1),
        lambda: rows.score_counts((vote,), 1),
        lambda: rows.signed_sums((vote,), np.ones(3, np.int64), 1),
    ]
    for ask in asked:
        with pytest.raises(InputError, match="classes"):
            ask()


def test_rows_of_classes_have_no_targets():
    with pytest.raises(InputError, match="targets"):
        _ = Rows(np.zeros((1, 2), np.uint8), np.zeros(2, np.uint8), [2]).targets


@pytest.mark.parametrize(
    "column",
    [
        np.array([TARGET_GRID + 1], np.int32),
        np.array([-TARGET_GRID - 1], np.int32),
        np.array([np.iinfo(np.int32).min], np.int32),
        np.array([0], np.int64),
        np.array([0.5]),
    ],
    ids=str,
)
def test_targets_off_the_grid_are_refused(column):
    """Every sensitivity rests on this bound: it is checked whenever rows are opened."""
    with pytest.raises(DataError, match="targets"):
        Rows(np.zeros((1, 1), np.uint8), column, [2], 0)


# ---- the platform ----------------------------------------------------------------------------------------------------


def made(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """y is about age / 4 + 10 or + 5, by colour; a range of [0, 40] clips next to nothing."""
    random = np.random.default_rng(seed)
    age, colour = random.uniform(0, 100, rows), random.choice(["red", "green"], rows)
    y = age / 4 + np.where(colour == "red", 10, 5) + random.normal(0, 1, rows)
    return pa.table({"age": age, "colour": colour, "y": y})


def registered(folder: Path, relation: Relation = Relation.ADD_REMOVE, records: int = ROWS) -> Home:
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    (folder / "schema.yaml").write_bytes(text(0, 40, records))
    register(home, "d", parquet(folder, made()), folder / "schema.yaml", TOTAL, relation, None)
    return home


def test_what_lies_on_disk_is_four_bytes_a_row(tmp_path):
    home = registered(tmp_path)
    (labels,) = home.datasets.glob("*/labels.npy")
    found = np.load(labels)
    assert (found.dtype, found.shape) == (np.int32, (ROWS,))


@pytest.mark.parametrize("relation", list(Relation))
def test_a_learner_is_told_the_range(tmp_path, relation):
    home = registered(tmp_path, relation)
    dataset = home.ledger.dataset("d")
    public = public_of(dataset, schema_of(home, dataset), TOTAL)
    assert (public.classes, public.target_range, public.records) == (None, (0.0, 40.0), ROWS)


def test_replace_one_needs_the_public_count(tmp_path):
    with pytest.raises(DataError, match="records=1999") as caught:
        registered(tmp_path, Relation.REPLACE_ONE, ROWS - 1)
    assert "2000" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in LEARNERS if name not in NUMBERS])
def test_learners_of_classes_refuse_a_number_and_are_not_counted_among_the_jobs_left(tmp_path, name):
    home = registered(tmp_path)
    lines = home.ledger.log.size()
    most = next(key for key in ("rounds", "trees") if key in LEARNERS[name]().get_params())
    for asked in (JobRequest("d", name, "1"), JobRequest("d", name, "1", tuning=TuningRequest({most: [5, 10]}))):
        with pytest.raises(InputError, match="classes"):
            job.train(home, asked, by="test")
    assert home.ledger.log.size() == lines
    assert sorted(dataset_to_json(home, home.ledger.dataset("d"))["budget"]["jobs_left"]) == ["ebm", "ebm-trees"]


def test_a_learner_of_numbers_is_not_counted_where_there_are_classes(tmp_path, monkeypatch):
    monkeypatch.setitem(LEARNERS, "mean-by-bin", MeanByBin)
    home = registered(tmp_path)
    assert plans.jobs_left(home, home.ledger.dataset("d"))["mean-by-bin"] > 1
    (tmp_path / "classes.yaml").write_bytes(text().replace(b"range: [0, 1]", b'classes: ["a", "b"]'))
    rows = columns(["a", "b"])
    few = NewPeople("few others", "steward")
    classes = tmp_path / "classes.yaml"
    register(home, "c", parquet(tmp_path, rows), classes, TOTAL, Relation.ADD_REMOVE, None, new_people=few)
    found = plans.jobs_left(home, home.ledger.dataset("c"))
    assert "mean-by-bin" not in found
    assert "lazybb" in found


def test_tuning_scores_classes_and_refuses_a_number(tmp_path, monkeypatch):
    class Choosy(MeanByBin):
        def __init__(
            self, floor: int = 10, schema=None, epsilon=1, delta="0.000001", relation="add-remove", account=None
        ):
            super().__init__(schema=schema, epsilon=epsilon, delta=delta, relation=relation, account=account)
            self.floor = floor

    monkeypatch.setitem(LEARNERS, "choosy", Choosy)
    home = registered(tmp_path)
    with pytest.raises(InputError, match="tune: .* is a number"):
        plans.plan(home, JobRequest("d", "choosy", "1", tuning=TuningRequest({"floor": [5, 10]})))


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", ["mean-by-bin", *NUMBERS])
def test_a_number_from_rows_to_a_verified_model_that_answers(tmp_path, monkeypatch, caplog, capfd, name, relation):
    monkeypatch.setitem(LEARNERS, "mean-by-bin", MeanByBin)
    home = registered(tmp_path, relation)
    asked = JobRequest("d", name, "2")
    planned = plans.plan(home, asked)
    with caplog.at_level(logging.DEBUG):
        answer = job.train(home, asked, by="test")
    assert answer["state"] == "issued"
    assert (home.ledger.dataset("d").most_used.used,) == planned.costs
    found = load_verified(home.models / "d" / "1", home.trust)
    assert found.certificate.epsilon <= 2
    stated = found.certificate.form.public
    assert stated.classes is None
    assert stated.range is not None
    assert (stated.range.low, stated.range.high) == ("0", "40")
    ensemble, unseen = found.ensemble, made(500, seed=1)
    assert ensemble.classes == ()
    values = ensemble.predict(columns_of(schema(0, 40), unseen))
    assert (values.dtype, values.shape) == (np.float64, (500,))
    assert ((values >= 0) & (values <= 40)).all()
    y = np.asarray(unseen["y"])
    assert 1 - ((y - values) ** 2).mean() / y.var() > 0.6  # the mean by bin of age alone has about .75
    told = caplog.text + capfd.readouterr().out + json.dumps(answer)
    assert not any(f"{value:.4f}" in told for value in np.asarray(made()["y"])[:200])


# ---- the page --------------------------------------------------------------------------------------------------------

PAGE = "docs/reference/training.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (declared,), (made_up, notebook), (commands,) = (
        blocks(PAGE, kind, "Learning a number") for kind in ("yaml", "python", "sh")
    )
    (tmp_path / "flats.yaml").write_text(declared)
    session: dict[str, object] = {"__name__": "__main__"}
    exec(compile(made_up, PAGE, "exec"), session)
    for line in commands.splitlines():
        assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    rents, rent = pq.read_table(tmp_path / "rents.parquet"), np.asarray(session["rent"])
    assert rents.column_names == ["value"]
    assert len(rents) == len(rent)
    assert 1 - ((rent - np.asarray(rents["value"])) ** 2).mean() / rent.var() > 0.7
    exec(compile(notebook, PAGE, "exec"), session)
    assert session["model"].score(session["flats"], session["rent"]) > 0.7
