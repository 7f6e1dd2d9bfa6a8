"""Pairs chosen privately, and synthetic rows: a row moves each release by what is charged, on every neighbour; the law
fits what was released; files are marked, of the schema's types, and cost nothing again."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from accountant.audit.audit import audit_home
from accountant.certificates.profile import PROFILE
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.profile import joint as joint_law
from models.profile import report
from models.profile.chosen import cells_of, choose, count_pairs, count_parents, fineness_of, heaviest_tree, most_counts
from models.profile.columns import Column
from models.profile.joint import Counts, draw, fit
from models.profile.stated import check
from training.calibration.calibrate import rehearse
from training.datasets.datasets import register
from training.datasets.made_up import SYNTHETIC, is_made_up
from training.jobs import job
from training.kinds import stated_steps
from training.kinds.registry import steps_of
from training.measuring.profile import choosing, profile, synthetic_rows
from training.measuring.profile.choosing import ChoosingProfiler
from training.requests import ProfileRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.session.session import Public, sensitivity_of

COLUMNS = (
    Column(NumericFeature("n", (1.0, 2.0)), "feature", (0.0, 3.0)),  # three bins, and missing ones
    Column(BooleanFeature("b"), "feature"),
    Column(CategoricalFeature("c", ("x",)), "target"),  # one value, others, missing ones
    Column(BooleanFeature("d"), "feature"),
)
WIDTHS = tuple(column.bins for column in COLUMNS)
EVERY = [*product((0, 3), (0, 2), (0, 1), (0, 1)), (1, 1, 2, 2), (2, 0, 0, 2)]
SCHEMA = """
target: {name: t, classes: [1, 2, 7]}
records: 600
features:
  age: {type: numeric, range: [0, 100]}
  height: {type: numeric, range: [0.5, 2.5], bins: 40}
  born: {type: date, range: [1950-01-01, 2000-01-01]}
  code: {type: categorical, values: ["1", "2", "3"]}
  place: {type: categorical, values: [north, south]}
  member: {type: boolean}
"""


def table(rows) -> Rows:
    codes = np.array(rows, np.uint8).reshape(-1, len(WIDTHS)).T.copy()
    return Rows(codes, np.zeros(codes.shape[1], np.uint8), WIDTHS)


def public(relation, contributions=1, pure=False) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    return Public((BooleanFeature("x"),), "y", ("a", "b"), 100, relation, budget, pure, contributions)


class Scripted:
    """A session that plays answers given beforehand, and keeps what was asked."""

    def __init__(self, about: Public, mean: float, scale: float) -> None:
        self.public, self.unit, self.asked = about, Decimal("0.5"), []
        self._random, self._law = np.random.default_rng(3), (mean, scale)

    def release(self, query, mechanism):
        self.asked.append((query, mechanism))
        return np.rint(self._random.normal(*self._law, query.size) * choosing.GRID).astype(np.int64)


def reached(norm: str, relation: Relation, contributions: int, parents: int) -> list[float]:
    """Of each of the three releases the largest share of its charge that any neighbour moves it by, whatever was
    released before."""
    about, largest = public(relation, contributions, norm == "l1"), [0.0] * 3
    for law in ((0.0, 0.0), (40.0, 1.0), (2.0, 200.0)):
        session = Scripted(about, *law)
        ChoosingProfiler(COLUMNS, 2, 3, norm, parents).learn(session)
        for at, (query, _) in enumerate(session.asked):
            for rest in ([], [EVERY[0]] * 90, [EVERY[3], EVERY[-1]] * 4):
                lone = query(table(rest))
                with_it = [query(table(rest + [row] * contributions)) for row in EVERY]
                pairs = [(lone, other) for other in with_it]
                if relation is Relation.REPLACE_ONE:
                    pairs = [*combinations(with_it, 2)]
                moved = [np.linalg.norm(one - other, 1 if norm == "l1" else 2) for one, other in pairs]
                largest[at] = max(largest[at], float(max(moved)) / sensitivity_of(query, about))
    return largest


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("contributions", "parents"), [(1, 1), (3, 1), (1, 2)])
def test_no_neighbour_moves_a_release_by_more_than_its_charge_and_some_by_all_of_it(
    norm, relation, contributions, parents, monkeypatch
):
    found = reached(norm, relation, contributions, parents)
    assert all(0.98 < share <= 1 for share in found), found
    for query, at in ((choosing.PairScores, 1), (choosing.CellCounts, 2)):
        whole = query.sensitivity
        with monkeypatch.context() as patched:
            patched.setattr(query, "sensitivity", lambda self, relation, whole=whole: -(-whole(self, relation) // 2))
            assert reached(norm, relation, contributions, parents)[at] > 1.9  # a factor of two is seen


def test_replayed_on_neighbours_the_same_is_asked_with_the_same_noise():
    """What is asked follows from what was released, and never from rows: the same answers, the same questions."""
    for relation, parents in product(Relation, (1, 2)):
        one, other = (Scripted(public(relation), 5.0, 5.0) for _ in range(2))
        profiler = ChoosingProfiler(COLUMNS, 2, 3, "l2", parents)
        assert (profiler.learn(one) == profiler.learn(other)).all()
        asked = [[(q.purpose, q.size, m) for q, m in session.asked] for session in (one, other)]
        assert asked[0] == asked[1]
        plan = rehearse(profiler, public(relation), one.unit)
        assert [r.purpose for r in plan] == [purpose for purpose, _, _ in asked[0]]
        assert len(plan) == 3


def test_the_choice_is_the_heaviest_tree_and_cells_hold_neighbours():
    scores = {(0, 1): 5, (0, 3): -2, (0, 4): 9, (1, 3): 7, (1, 4): 8, (3, 4): 1}
    listed = [scores[pair] for pair in combinations((0, 1, 3, 4), 2)]
    assert heaviest_tree(5, 2, listed, 1) == ((0, 4), (4, 1), (1, 3))
    assert heaviest_tree(5, 2, listed, 2) == ((0, 4), (0, 1), (4, 1), (4, 3), (1, 3))  # two that are counted together
    for columns, parents in product((3, 4, 9), (1, 2)):
        pairs = heaviest_tree(columns, 0, [*range((columns - 1) * (columns - 2) // 2)], parents)
        assert len(set(map(frozenset, pairs))) == len(pairs) == count_pairs(columns, parents) - (columns - 1)
        assert columns == 3 or count_parents(columns, count_pairs(columns, parents)) == parents
    wide = Column(NumericFeature("w", tuple(map(float, range(1, 40)))), "feature", (0.0, 40.0))
    named = Column(CategoricalFeature("k", tuple("abcdefgh")), "feature")
    counts = [np.array([5000, *[10] * 39, 7]), np.array([1, 9, 2, 8, 3, 7, 0, 6, 0, 5])]
    own, rare = cells_of((wide, named), counts, 6)
    assert (np.diff(own) >= 0).all()
    assert own[0] != own[1]
    assert (own[-1], np.bincount(own)[-1], own.max()) == (own[-2] + 1, 1, 5)
    assert rare.tolist() == [5, 0, 5, 1, 5, 2, 5, 3, 5, 4]
    blank = choose((wide, named, COLUMNS[1]), [np.zeros(c.bins, int) for c in (wide, named, COLUMNS[1])], [0], 2, 6, 1)
    assert blank.pairs == ((0, 2), (1, 2), (0, 1))
    widths = [33] * 60
    for parents in (1, 2):
        assert most_counts(widths, 0, fineness_of(widths, 0, parents), parents) <= 1 << 14
        assert most_counts(widths, 0, 16, parents) > 1 << 14


def counts_of(rows, around, pairs) -> Counts:
    bins = [np.bincount(rows[:, at], minlength=width).astype(float) for at, width in enumerate(WIDTHS)]
    tables = {}
    for a, b in pairs:
        tables[a, b] = np.zeros((WIDTHS[a], WIDTHS[b]))
        np.add.at(tables[a, b], (rows[:, a], rows[:, b]), 1)
    return Counts(bins, [np.arange(width) for width in WIDTHS], tables, (1.0, 1.0), around)


@pytest.mark.parametrize(
    ("around", "pairs"),
    [
        (2, ((0, 2), (1, 2), (3, 2), (0, 1), (1, 3))),
        (2, ((0, 2), (1, 2), (3, 2), (0, 1), (0, 3), (1, 3))),
        (None, ((0, 1), (3, 1))),
        (None, ()),
    ],
)
def test_without_noise_the_law_has_every_pair_that_was_counted(around, pairs, monkeypatch):
    random = np.random.default_rng(1)
    first = random.integers(0, 3, 4000)
    rows = np.stack([first, (first + random.integers(0, 2, 4000)) % 3, first == 1, random.integers(0, 2, 4000)], 1)
    counts = counts_of(rows, around, pairs)

    def worst() -> float:
        law = fit(counts)
        drawn = np.stack(draw(law, 4000, lambda name, size: np.random.default_rng(len(name)).random(size)), 1)
        again = counts_of(drawn, around, pairs)
        both = [*zip(counts.bins, again.bins, strict=True)]
        both += [(counts.tables[pair], again.tables[pair]) for pair in pairs]
        return max(float(np.abs(one - other).sum()) / 8000 for one, other in both)

    assert worst() < 0.01
    if around is not None:
        monkeypatch.setattr(joint_law, "_joined", lambda given, tables: np.ones((*given.shape, tables[0].shape[1])))
        assert worst() > 0.1


def test_pairs_that_contradict_one_another_by_noise_are_met_halfway():
    given = np.full((2, 2), 0.25)
    one, other = (np.full((2, 2), 0.5) * [share, 1 - share] for share in (0.8, 0.6))  # of the child's two cells
    for tables in ([one, other], [other, one]):
        law = joint_law._joined(given, tables)
        assert law.sum(2) == pytest.approx(given)
        assert law.sum((0, 1))[0] == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize(
    ("edges", "ends", "kind"),
    [
        (np.linspace(0, 100, 32, endpoint=False), (0.0, 100.0), "int64"),
        (np.linspace(-7, 7, 64, endpoint=False), (-7.0, 7.0), "double"),  # some bins have no whole number
        (np.array([0.0, 1.0, 5.0]), (0.0, 20.0), "int64"),
        (np.array([0.5, 1.0, 5.0]), (0.25, 20.0), "double"),
    ],
)
def test_no_number_leaves_its_bin(edges, ends, kind):
    column = Column(NumericFeature("x", tuple(map(float, edges))), "feature", ends)
    bins = np.random.default_rng(2).integers(0, column.bins, 3000)
    values = synthetic_rows.values_of(column, None, bins, 0)
    assert str(values.type) == kind
    assert column.feature.encode(np.array(values.to_pylist(), float)).tolist() == bins.tolist()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with 600 rows of every type, three classes among them, dates, codes and missing values."""
    folder, random = tmp_path_factory.mktemp("synthetic"), np.random.default_rng(0)
    home, kind = Home.init(ledgers.place(folder / "home")), random.integers(0, 3, 600)
    rows = {
        "age": pa.array(20 + 25 * kind + random.integers(0, 20, 600), mask=random.random(600) < 0.1),
        "height": 1.0 + 0.3 * kind + random.random(600) / 4,
        "born": pa.array(3000 + 2000 * kind.astype(np.int32), pa.date32()),
        "code": 1 + kind,
        "place": np.array(["north", "south", "west"])[kind],
        "member": kind == 1,
        "t": np.array([1, 2, 7])[kind],
    }
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    budget, files = Budget.of("20", "0.00001"), (folder / "rows.parquet", folder / "schema.yaml")
    register(home, "all", *files, budget, Relation.ADD_REMOVE, "record")
    home.ledger.log.database.close()
    return folder


@pytest.fixture
def home(place, tmp_path):
    return Home.open(ledgers.place(ledgers.copy(place / "home", tmp_path / "home")))


def spent(home):
    return describe_budget(home.ledger.dataset("all"))["spent"]["epsilon"]


@pytest.mark.parametrize(("least", "pairs"), [(20_000, 6 + 5), (0, 6 + 9)])
def test_a_table_is_paid_for_once_and_has_the_types_of_the_schema(home, place, tmp_path, monkeypatch, least, pairs):
    monkeypatch.setattr(profile, "TWO_PARENTS_FROM", least)
    asked = ProfileRequest("all", "8", around="auto")
    expected = profile.plan(home, asked).to_json()["expected"]
    body = job.measure(home, asked, by="test")
    charged, seq = spent(home), body["job"]
    assert body["profile"]["chosen"]["around"] == "t"
    assert len(body["profile"]["pairs"]) == pairs
    assert job.measure(home, asked, by="other")["job"] == seq
    out = tmp_path / "all.synthetic.parquet"
    made = synthetic_rows.from_profile(home, seq, out, 3000, 0, "all")
    assert spent(home) == charged
    found, schema = pq.read_table(out), parse_schema(SCHEMA.encode())
    assert {name: str(found.schema.field(name).type) for name in found.column_names} == {
        "age": "int64", "height": "double", "born": "date32[day]", "code": "int64", "place": "string",
        "member": "bool", "t": "int64",
    }  # fmt: skip
    columns = {name: found[name].to_numpy(zero_copy_only=False) for name in ("age", "height", "t", "place")}
    assert np.isnan(columns["age"]).mean() == pytest.approx(0.1, abs=0.04)
    assert set(columns["t"]) == {1, 2, 7}
    assert 0.5 <= np.nanmin(columns["height"]) <= np.nanmax(columns["height"]) <= 2.5
    means = [float(np.nanmean(columns["age"][columns["t"] == label])) for label in (1, 2, 7)]
    assert means == pytest.approx([29.5, 54.5, 79.5], abs=6)  # what the columns say together
    assert made["summary"]["pairs"]["off"] < 2 * made["summary"]["pairs"]["noise"]
    for name in ("columns", "pairs"):  # what was told before the money, by public numbers
        assert expected[name] == pytest.approx(made["summary"][name]["noise"], rel=0.3)
    assert expected["better"]
    few = profile.plan(home, ProfileRequest("all", "0.1", around="auto")).to_json()["expected"]
    assert few["says"].startswith("no better than guessing")
    again, other = tmp_path / "again.synthetic.parquet", tmp_path / "other.synthetic.parquet"
    synthetic_rows.from_profile(home, seq, again, 3000, 0, "all")
    synthetic_rows.from_profile(home, seq, other, 3000, 1, "all")
    assert again.read_bytes() == out.read_bytes() != other.read_bytes()
    marked = json.loads(pq.read_schema(out).metadata[SYNTHETIC.metadata])
    assert (marked["dataset"], marked["entry"], marked["epsilon"]) == ("all", body["profile"]["entry"], "8")
    assert marked == made == synthetic_rows.describe(out.read_bytes())
    text = tmp_path / "all.synthetic.csv"
    synthetic_rows.from_profile(home, seq, text, None, 0, "all")
    assert 500 < pyarrow.csv.read_csv(text).num_rows < 700
    (tmp_path / "renamed.parquet").write_bytes(out.read_bytes())
    assert all(map(is_made_up, (out, text, tmp_path / "renamed.parquet")))
    budget, files = Budget.of("1", "0"), (tmp_path / "renamed.parquet", place / "schema.yaml")
    register(home, "tried", *files, budget, Relation.ADD_REMOVE, "record")  # they are rows of the schema
    assert schema.digest == made["schema"]
    report.write(body["profile"], tmp_path / "report.html")
    assert "along the tree" in (tmp_path / "report.html").read_text()
    assert audit_home(home).ok


def test_rows_follow_from_any_profile_and_what_cannot_be_made_is_refused(home, tmp_path):
    for more in ({}, {"pairs": (("age", "t"), ("age", "height"))}, {"columns": ("age", "place")}):
        seq = job.measure(home, ProfileRequest("all", "1", **more), by="test")["job"]
        made = synthetic_rows.from_profile(home, seq, tmp_path / "a.synthetic.parquet", 200, 0, "all")
        assert made["rows"] == 200
        assert pq.read_table(tmp_path / "a.synthetic.parquet").num_columns == (2 if "columns" in more else 7)
    for path, rows, dataset, problem in (
        ("a.parquet", 10, "all", "name must say that the rows are synthetic"),
        ("a.synthetic.txt", 10, "all", "must end in"),
        ("a.synthetic.csv", 0, "all", "must be 1 to"),
        ("a.synthetic.csv", 10, "other", "is of dataset all"),
    ):
        with pytest.raises(InputError, match=problem):
            synthetic_rows.from_profile(home, seq, tmp_path / path, rows, 0, dataset)
    for wrong, problem in (
        ({"around": "height", "pairs": (("age", "t"),)}, "takes none that are named"),
        ({"around": "nothing"}, "must be a column"),
        ({"around": "age", "columns": ("age", "t")}, "among 3 to"),
    ):
        with pytest.raises(InputError, match=problem):
            profile.plan(home, ProfileRequest("all", "1", **wrong))
    with pytest.raises(BudgetRefused) as refused:
        profile.plan(home, ProfileRequest("all", "50", around="auto"))
    assert 0 < Decimal(refused.value.details["would_fit"]["epsilon"]) < 50
    pure = profile.plan(home, ProfileRequest("all", "1", "0", around="t"))
    assert (pure.to_json()["noise"], len(pure.recipe.plan), str(pure.recipe.claim.delta)) == ("laplace", 3, "0")
    assert pure.recipe.claim.epsilon <= 1


def test_two_parents_where_rows_are_many_and_noise_is_gaussian(home, monkeypatch):
    assert f"{profile.TWO_PARENTS_FROM:,} or more" in Path("docs/privacy/counts.md").read_text("utf-8")
    for least, delta, parents in ((600, None, 2), (601, None, 1), (0, "0", 1)):  # 600 rows, epsilon 1
        monkeypatch.setattr(profile, "TWO_PARENTS_FROM", least)
        planned = profile.plan(home, ProfileRequest("all", "1", delta, around="t"))
        assert planned.request.parameters.get("parents", 1) == parents
        asked = planned.recipe.plan[2].purpose
        assert asked == f"rows by cell of {6 + (5 if parents == 1 else 9)} chosen pairs of columns"


def test_a_run_that_is_killed_between_releases_draws_only_what_was_not_drawn(home, monkeypatch):
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    drawn, whole = [], choosing.CellCounts.sensitivity
    for kind in (DiscreteGaussian, DiscreteLaplace):
        draw = kind.draw
        monkeypatch.setattr(kind, "draw", lambda self, *asked, draw=draw: drawn.append(1) or draw(self, *asked))
    reserved = job.submit(home, ProfileRequest("all", "2", around="t"), by="test")

    def cut(self, relation):
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return whole(self, relation)

    with monkeypatch.context() as patched:
        patched.setattr(choosing.CellCounts, "sensitivity", cut)
        with pytest.raises(KeyboardInterrupt):
            job.run(home, reserved.seq)
    charged = spent(home)
    assert (len(drawn), charged != "0") == (2, True)
    assert job.recover(home)["finished"] == [reserved.seq]
    assert (len(drawn), spent(home)) == (3, charged)
    assert audit_home(home).ok


@pytest.mark.parametrize("least", [20_000, 0])
def test_a_killed_run_is_paid_and_gone_on_with_and_a_changed_choice_is_found(home, monkeypatch, least):
    monkeypatch.setattr(profile, "TWO_PARENTS_FROM", least)
    reserved = job.submit(home, ProfileRequest("all", "3", around="t"), by="test")

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stated_steps, "sign", cut)
        with pytest.raises(KeyboardInterrupt):
            job.run(home, reserved.seq)
    charged = spent(home)
    kept = json.loads((home.jobs / str(reserved.seq) / stated_steps.COUNTS).read_text())
    assert job.recover(home)["finished"] == [reserved.seq]
    assert spent(home) == charged != "0"
    assert steps_of(home, reserved.seq).result()["profile"]["epsilon"] == "3"
    envelope, proof, found = PROFILE.open(home, reserved.seq)
    stated = found.form
    counts = [each for column in stated.columns for each in column.counts] + stated.chosen.scores
    assert counts + [each for pair in stated.pairs for each in pair.counts] == kept
    assert PROFILE.verify(envelope, proof.decode(), home.trust).sha256 == home.ledger.dataset("all").registration.schema
    names = [column.name for column in stated.columns if column.name != "t"]
    tree = {frozenset(pair.columns) for pair in stated.pairs}
    apart = [frozenset(pair) in tree for pair in combinations(names, 2)].index(False)  # another score, another tree
    for path, value in (
        (("chosen", "scores", apart), 10**7),
        (("chosen", "cells", 0, 0), 3),
        (("chosen", "variance"), "1"),
        (("chosen", "around"), "age"),
        (("pairs", 0, "columns", 0), "height"),
        (("chosen",), None),
    ):
        forged = json.loads(dsse.parse(envelope).payload)
        part = forged["predicate"]
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        if value is None:
            del part[path[-1]]
        body, read = PROFILE.read(canonical.encode(forged, 1 << 19))
        with pytest.raises(CertificateInvalid, match="figures|counts"):
            check(Stated(body, read.predicate, "all", "", Decimal(1), Decimal(0), 0, PROFILE.rule))
    check(found)
