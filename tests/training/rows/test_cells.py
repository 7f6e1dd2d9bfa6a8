"""Fine cells: the codes are the feature's own, other bins are merged from them, and homes of before keep their rows."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken
from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.datasets import datasets
from training.datasets.datasets import register
from training.jobs.job import measure, train
from training.learners.base.cut_points import MOST_ALONE
from training.measuring.worth.evaluate import open_model
from training.planning.plans import plan
from training.requests import EvaluationRequest, JobRequest, TuningRequest
from training.rows.packed import cells as packed_cells
from training.rows.packed.cells import MOST_NUMBERS, Cells, declared_ranges, grid_of, merging
from training.rows.packed.earlier_cells import cells_of_earlier, earlier_edges
from training.rows.packed.names import cells_file
from training.rows.partitions.rows import Rows
from training.rows.schema.column_rules import uniform_schema
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import rows_of

RANDOM = np.random.default_rng(0)
RANGES = [
    (0.0, 99999.0),
    (17, 90),
    (-5.0, 10.0),
    (-3.0, -1.0),
    (0.0, 1e-300),
    (0.0, 5e-323),
    (-1e305, 1e305),
    (1.0, 1e9),
]


def number(low, high, bins=32, name="a"):
    cuts = {low + (high - low) * j / bins for j in range(bins)}
    return NumericFeature(name, tuple(sorted(cut for cut in cuts if low <= cut < high)))


@pytest.mark.parametrize("span", RANGES, ids=str)
@pytest.mark.parametrize("bins", [2, 30, 32])
def test_codes_are_those_of_the_features_own_law(span, bins):
    """Of cells and of declared bins, at every cut point and beside it, outside the range, and where nothing stands."""
    feature = number(*span, bins=bins)
    grid = grid_of(feature, span)
    cells = NumericFeature("a", tuple(grid.edges.tolist()))
    near = [np.nextafter(grid.edges, towards) for towards in (-np.inf, np.inf)]
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308]
    values = np.concatenate([RANDOM.uniform(*span, 500), grid.edges, *near, odd])
    codes = grid.encode(values)
    assert codes.tolist() == cells.encode(values).tolist()
    assert grid.declared[codes].tolist() == feature.encode(values).tolist()
    assert grid.size == cells.bins == grid.part.size + 1 == grid.even.size + 1
    assert (np.diff(grid.even) >= 0).all()
    assert grid.even[-1] == 1
    assert (np.diff(grid.part) >= 0).all()
    assert grid.part[0] == 0


def test_only_numbers_with_a_declared_range_have_cells():
    features = (number(0, 1), NumericFeature("b", (1.0, 2.0)), CategoricalFeature("c", ("x",)), BooleanFeature("d"))
    assert declared_ranges(features, {"a": (0, 1), "b": (1.0, 2.0)}) == ((0, 1), None, None, None)
    many = tuple(number(0, 1, 2, f"x{at}") for at in range(MOST_NUMBERS + 1))
    ends = {feature.name: (0.0, 1.0) for feature in many}
    assert declared_ranges(many, ends) == (None,) * len(many)
    assert None not in declared_ranges(many[1:], ends)


def a_table(rows=400):
    columns = {"a": RANDOM.normal(40, 3, rows), "c": RANDOM.choice(["x", "y", "z"], rows), "b": RANDOM.random(rows)}
    columns["b"][:9] = np.nan
    return pa.table({**columns, "y": np.where(columns["a"] > 41, "yes", "no")})


SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 400
features:
  a: {type: numeric, range: [0, 1000], bins: 16}
  c: {type: categorical, values: [x, y]}
  b: {type: numeric, range: [0, 1], bins: 8}
"""


def test_rows_are_merged_into_other_bins_as_their_features_would_encode_them():
    schema, table = parse_schema(SCHEMA.encode()), a_table()
    rows = rows_of(schema, table, table["y"], Relation.ADD_REMOVE)
    own, cells = rows.parts[0].cells.features, grid_of(rows.parts[0].cells.features[0], (0, 1000))
    other = (NumericFeature("a", tuple(cells.edges[[150, 160, 170, 180]].tolist())), *own[1:])
    binned = rows.binned(other)
    assert binned.bins.dtype == np.uint8
    assert binned.widths == (6, 4, 10)
    assert binned.bins[0].tolist() == other[0].encode(table["a"].to_numpy()).tolist()
    assert (binned.bins[1:] == rows.bins[1:]).all()
    assert (binned.labels == rows.labels).all()
    assert rows.binned(other).parts == binned.parts
    for declared in (own, (own[0], *own[1:])):
        assert rows.binned(declared).parts == [*rows.parts]
    assert rows.binned(other).parts == binned.parts
    for wrong in ((number(0, 999.5), *own[1:]), own[::-1], (own[1], own[1]), (own[0], BooleanFeature("c"), own[2])):
        with pytest.raises(InputError):
            rows.binned(wrong)
    some = rows.binned((other[0], own[2]))  # of a model that reads no more than these
    assert some.widths == (6, 10)
    assert (some.bins == binned.bins[[0, 2]]).all()
    plain = Rows(rows.bins, rows.labels, rows.widths)
    assert plain.binned(own).parts == plain.parts
    with pytest.raises(InputError, match="fine cells"):
        plain.binned(other)


def test_bins_are_looked_up_once_however_often_they_are_asked(monkeypatch):
    """Of a hundred numbers it took longer than a round of boosting."""
    schema, table = parse_schema(SCHEMA.encode()), a_table()
    rows, looked_up = rows_of(schema, table, table["y"], Relation.ADD_REMOVE), []
    own = schema.features
    assert grid_of(own[0], (0, 1000))  # is kept as well
    monkeypatch.setattr(packed_cells, "merging", lambda *given: looked_up.append(given) or merging(*given))
    first, second = ((number(0, 1000, bins, "a"), *own[1:]) for bins in (4, 8))
    for features, times in ((first, 2), (first, 2), (second, 4), (second, 4), (own, 4)):
        assert rows.binned(features).bins.shape[1] == rows.size
        assert len(looked_up) == times  # to see that rows stand in them, and to merge these


def test_no_bin_of_a_wide_number_needs_more_than_a_byte_but_where_a_feature_has_more():
    schema = uniform_schema(2, 0, 1, ["n", "y"], 10, bins=300)
    rows = rows_of(schema, {"x0": [0.1, 0.5], "x1": [0.2, 0.9]}, pa.array(["n", "y"]), Relation.ADD_REMOVE)
    assert rows.bins.dtype == np.uint16
    assert rows.binned([NumericFeature(f.name, f.edges[::2]) for f in schema.features]).bins.dtype == np.uint8
    stand = Cells(schema.features, (None, None), lambda number: None)
    assert stand.tables(schema.features[1:]) == [(1, None)]
    with pytest.raises(InputError, match="in another order"):
        stand.tables(schema.features[::-1])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A dataset with a part kept aside, and one as they were registered before there were cells."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "schema.yaml").write_text(SCHEMA)
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    for name in ("new", "old"):
        pq.write_table(a_table(), folder / f"{name}.parquet")
    total, rest = Budget.of(100, "1e-6"), (Relation.ADD_REMOVE, "record")
    register(home, "new", folder / "new.parquet", folder / "schema.yaml", total, *rest, holdout=Decimal("0.25"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "declared_ranges", lambda features, ends: (None,) * len(features))
        patch.setattr("training.datasets.packing.declared_ranges", lambda features, ends: (None,) * len(features))
        register(home, "old", folder / "old.parquet", folder / "schema.yaml", total, *rest)
    return home, folder


FOUND = {"rounds": 5, "cuts": "found", "bins": 8}


def test_a_job_may_find_cut_points_and_its_model_says_them(home):
    """From the plan to the certificate, evaluated on what was kept aside, and judged by the auditor."""
    home, _ = home
    entry = home.ledger.dataset("new").registration
    assert entry.cells
    told = train(home, JobRequest("new", "lazybb", "20", parameters=FOUND), by="test")
    model = open_model(home, reference := f"new@{told['version']}")
    edges = model.ensemble.features[0].edges
    assert 7 <= len(edges) <= 7 + 2 * MOST_ALONE
    assert sum(25 < edge < 55 for edge in edges) >= 3, "where rows are, of 1,000 that are declared"
    assert "count rows per fine cell" in [run.purpose for run in model.certificate.form.mechanisms]
    worth = measure(home, EvaluationRequest(reference, "new", "20"), by="test")
    assert worth["worth"]
    assert audit_home(home).ok


@pytest.mark.slow
def test_tuned_jobs_find_their_own(home):
    home, _ = home
    tuning = TuningRequest(grid={"rounds": [3, 5]}, runs="2")
    told = train(
        home, JobRequest("new", "lazybb", "20", parameters={"cuts": "found", "bins": 8}, tuning=tuning), by="test"
    )
    assert 7 <= len(open_model(home, told["model"]).ensemble.features[0].edges) <= 7 + 2 * MOST_ALONE


@pytest.mark.slow
def test_rows_of_before_are_used_as_they_are(home):
    home, folder = home
    about = home.ledger.dataset("old").registration
    assert not about.cells
    assert not (home.datasets / about.commitment / cells_file()).exists()
    with pytest.raises(InputError, match="fine cells"):
        plan(home, JobRequest("old", "lazybb", "1", parameters=FOUND))
    told = train(home, JobRequest("old", "lazybb", "1", parameters={"rounds": 5}), by="test")
    assert told["model"] == "old"
    with pytest.raises(NameTaken, match="in the dataset old already"):
        register(home, "again", folder / "old.parquet", folder / "schema.yaml", Budget.of(1, "1e-6"),
                 Relation.ADD_REMOVE, "record")  # fmt: skip
    assert audit_home(home).ok


@pytest.mark.parametrize("span", [(0.0, 100.0), (-3.0, 5.0), (10.0, 1e6), (-1e5, 0.0)])
def test_cells_that_an_earlier_version_packed_are_read_in_their_bins(span):
    """Each is a cell of today's grid that lies in the same declared bin, at the end of the earlier one and no later."""
    low, high = span
    feature = NumericFeature("x", tuple(np.linspace(low, high, 9)[1:-1].tolist()))
    random = np.random.default_rng(0)
    values = np.concatenate([random.uniform(low, high, 5000), low + (high - low) * random.uniform(0, 1, 5000) ** 9])
    edges, today = earlier_edges(feature, span), grid_of(feature, span)
    packed, table = np.searchsorted(edges, values), cells_of_earlier(feature, span)
    assert table.size == edges.size + 2
    assert table[-1] == today.size - 1  # the missing value's
    now = today.encode(values)
    assert (today.declared[table[packed]] == today.declared[now]).all()
    assert (table[packed] >= now).all()
    assert (np.append(edges, high)[packed] <= np.append(today.edges, np.inf)[table[packed]]).all()
    assert (np.diff(table.astype(int)) >= 0).all()
