"""A job that cannot end is refused before it costs: limits are looked at before anything is charged."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.errors import DataError
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused, InputError, LedgerUnavailable, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.registry import ensemble_bytes
from models.onnx import check
from models.onnx.check import MAX_NODES
from models.onnx.export import to_onnx
from training.calibration import plan_warnings
from training.calibration.plan_warnings import FEW_TEXTS, check_exportable
from training.datasets import datasets
from training.jobs import job, queue
from training.learners import LEARNERS
from training.learners.boosting.bdpe import SplitRisks
from training.learners.forest import _logit
from training.planning import first_plan, plans
from training.planning.price_engine import offer
from training.requests import JobRequest, TuningRequest
from training.rows.partitions import rows as rows_module
from training.rows.partitions.rows import FEW_ROWS, MOST_ROWS
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Rehearsal

NUMBER = {"type": "numeric", "range": [0, 1], "bins": 8}
FLAG = {"type": "boolean"}
TEXT = {"type": "categorical", "values": ["a", "b"]}
TWO = {"classes": ["no", "yes"]}
FEW = {"x": NUMBER, "c": TEXT}


def body(features: dict, target: dict = TWO, records: int = 60) -> bytes:
    return json.dumps({"target": {"name": "y", **target}, "records": records, "features": features}).encode()


def public_of(features: dict, target: dict = TWO, delta: str = "1e-6", records: int = 60) -> Public:
    schema = parse_schema(body(features, target, records))
    return Public.of(schema, Relation.ADD_REMOVE, Budget.of("1", delta), delta == "0")


def registered(folder, features: dict, records: int = 60, total: Budget | None = None, rows: int = 60) -> Home:
    """A home with so many rows of these features as dataset `d`."""
    home, random = Home.init({"DPSERVE_HOME": str(folder / "home")}), np.random.default_rng(5)
    kinds = {"numeric": lambda: random.random(rows), "boolean": lambda: random.random(rows) < 0.5}
    kinds["categorical"] = lambda: random.choice(["a", "b"], rows)
    columns = {name: kinds[kind["type"]]() for name, kind in features.items()}
    pq.write_table(pa.table({**columns, "y": random.choice(["no", "yes"], rows)}), folder / "rows.parquet")
    (folder / "schema.yaml").write_bytes(body(features, records=records))
    paths = folder / "rows.parquet", folder / "schema.yaml"
    datasets.register(home, "d", *paths, total or Budget.of("100", "1e-6"), Relation.ADD_REMOVE, "record")
    return home


def refused(home: Home, asked: JobRequest, said: str, error: type[Exception] = InputError) -> None:
    """With this message, and the ledger is as it was."""
    before = home.ledger.log.size(), home.ledger.dataset("d").most_used.used
    with pytest.raises(error, match=said):
        job.train(home, asked, by="test")
    assert (home.ledger.log.size(), home.ledger.dataset("d").most_used.used) == before


# ---- what could not be exported --------------------------------------------------------------------------------------


@pytest.fixture
def room(monkeypatch) -> int:
    """A graph with room for an eighth of the nodes: what takes minutes of a large one is as true of a small one."""
    monkeypatch.setattr(check, "MAX_NODES", MAX_NODES // 8)
    monkeypatch.setattr(plan_warnings, "FEW_TEXTS", FEW_TEXTS // 8)
    return MAX_NODES // 8


def test_what_is_small_enough_not_to_be_tried_has_room():
    assert 3 * FEW_TEXTS < MAX_NODES


@pytest.mark.slow
def test_a_model_with_more_texts_than_a_graph_has_room_for_is_refused_with_how_many_would_fit(tmp_path, room):
    features = {f"c{i}": TEXT for i in range(312)}
    home = registered(tmp_path, features)
    asked = JobRequest("d", "ebm", "1", parameters={"epochs": 1})
    refused(home, asked, f"656 nodes; at most {room}; its first 240 features would fit")
    fits = {name: features[name] for name in list(features)[:240]}
    (tmp_path / "fits").mkdir()
    assert job.train(registered(tmp_path / "fits", fits), asked, by="test")["state"] == "issued"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lazybb", {"rounds": 620}),
        ("lazybb-tree", {"rounds": 88, "depth": 3, "criterion": "error"}),
        ("bdpe", {"rounds": 88, "depth": 3}),
        ("forest", {"trees": 70, "depth": 4}),
    ],
)
def test_votes_and_splits_may_ask_as_many_texts_as_there_are(name, parameters, room):
    """Each of them may ask a text of its own: 560 of them are more than the 512 nodes there is room for."""
    learner = LEARNERS[name](**parameters)
    few, many = (public_of({f"c{i}": TEXT for i in range(count)}) for count in (190, 560))
    for public in (few, many):
        blank = learner.learn(Rehearsal(public, Decimal("0.01")))
        if public is few:
            check_exportable(learner, public, blank)
            continue
        if name != "forest":  # its splits are public: the rehearsal asks them already
            to_onnx(blank, {})
        with pytest.raises(InputError, match=rf"at most {room}; its first (50|48)\d features would fit"):
            check_exportable(learner, public, blank)


SHAPES = {
    "numbers": {f"x{i}": {**NUMBER, "bins": 300} for i in range(3)},
    "texts": {f"c{i}": {"type": "categorical", "values": [f"v{j}" for j in range(40)]} for i in range(6)},
    "mixed": {"x": NUMBER, "b": FLAG, "c": TEXT, "other": {**TEXT, "values": ["a", "b", "c"]}},
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("classes", [2, 5])
def test_the_fullest_model_takes_more_room_than_any_that_is_learnt(tmp_path, name, shape, classes):
    """Real models of few rows at little noise, which ask many different things, and the one that is tried out."""
    public = public_of(SHAPES[shape], {"classes": [f"k{i}" for i in range(classes)]})
    learner = LEARNERS[name]()
    try:
        learner.check(public)
    except InputError:
        assert classes > 2
        assert name not in ("auto", "lazybb")
        return
    full = learner.learn(Rehearsal(public, Decimal("0.01"))).fullest(public.features)
    most, bytes_of = to_onnx(full, {}), len(ensemble_bytes(full))
    for seed in range(3):
        found = learnt(learner, public, seed)
        assert nodes(to_onnx(found, {})) <= nodes(most) + 1  # small scores of numbers alone take one more
        assert len(to_onnx(found, {})) <= len(most) * 1.05 + 1000
        assert len(ensemble_bytes(found)) <= bytes_of * 1.2 + 1000  # in a rehearsal numbers have few digits


def learnt(learner, public: Public, seed: int):
    """What the learner makes of answers drawn by lot, as if all of them were noise."""
    return learner.learn(Lots(public, seed))


class Lots(Rehearsal):
    def __init__(self, public: Public, seed: int) -> None:
        super().__init__(public, Decimal("0.01"))
        self.random = np.random.default_rng(seed)

    def release(self, query, mechanism):
        super().release(query, mechanism)
        if "per-row" in mechanism.name:
            query = getattr(query, "query", query)  # one of an order asks in bins
            leaves = len(query.cuts) + 1
            return self.random.integers(0, query.size // leaves, leaves)
        if mechanism.norm == "range":
            return int(self.random.integers(query.size))
        return self.random.integers(-(1 << 40), 1 << 40, query.size)


def nodes(onnx: bytes) -> int:
    from onnx import ModelProto

    return len(ModelProto.FromString(onnx).graph.node)


def test_a_schema_whose_texts_alone_are_too_large_is_refused_without_trying(monkeypatch):
    public = public_of({f"c{i}": TEXT for i in range(3)})
    learner = LEARNERS["lazybb"](rounds=3)
    blank = learner.learn(Rehearsal(public, Decimal("0.01")))
    monkeypatch.setattr("training.calibration.plan_warnings.FEW_TEXTS", 1)
    check_exportable(learner, public, blank)
    monkeypatch.setattr("training.calibration.plan_warnings.MAX_NAME_CHARACTERS", 5)
    with pytest.raises(InputError, match="their categories and cut points alone are too large; its first 2 features"):
        check_exportable(learner, public, blank)


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_rows_than_were_declared_allow_are_refused_at_registration(tmp_path, monkeypatch):
    count, most = FEW_ROWS // 64 + 1, FEW_ROWS // 64  # of a real limit writing the file alone would take long
    monkeypatch.setattr(rows_module, "FEW_ROWS", most)
    flags = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["no", "yes"]))
    pq.write_table(pa.table({"b": pa.array(np.zeros(count, bool)), "y": flags}), tmp_path / "rows.parquet")
    (tmp_path / "schema.yaml").write_bytes(body({"b": FLAG}))
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    paths = tmp_path / "rows.parquet", tmp_path / "schema.yaml"
    with pytest.raises(DataError, match=f"more than {most} rows, the most where about so many are declared"):
        datasets.register(home, "d", *paths, Budget.of("1", "1e-9"), Relation.ADD_REMOVE, "record")
    assert not home.ledger.datasets()
    assert not list(home.datasets.glob("*"))


def test_rows_registered_before_that_was_refused_are_refused_where_their_number_is_public(tmp_path, monkeypatch):
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    (tmp_path / "schema.yaml").write_bytes(body({"b": FLAG}))
    pq.write_table(pa.table({"b": [True] * 60, "y": ["no", "yes"] * 30}), tmp_path / "rows.parquet")
    paths = tmp_path / "rows.parquet", tmp_path / "schema.yaml"
    datasets.register(home, "d", *paths, Budget.of("1", "1e-6"), Relation.REPLACE_ONE, "record")
    monkeypatch.setattr(first_plan, "MOST_ROWS", 59)
    refused(home, JobRequest("d", "lazybb", "0.1"), "records=60: at most 59 rows can be learnt from at once")


def test_rows_registered_before_that_was_refused_are_no_rows_where_their_number_is_private(tmp_path, monkeypatch):
    """The refusal is the one of rows that cannot be read: which it is, nobody is told."""
    home = registered(tmp_path, FEW)
    monkeypatch.setattr(rows_module, "row_bound", lambda records: 59)
    queued, size = job.submit(home, JobRequest("d", "lazybb", "0.1"), by="test"), home.ledger.log.size()
    with pytest.raises(LedgerUnavailable, match="not in this home as they were registered, or cannot be read, or are"):
        job.train(home, JobRequest("d", "lazybb", "0.2"), by="test")
    assert queue.work_once(home, set()) is None
    assert home.ledger.job(queued.seq).waiting == "rows"
    assert home.ledger.log.size() == size
    home.ledger.release(queued.seq)
    assert home.ledger.dataset("d").most_used.used == home.ledger.dataset("d").most_used.filter.nothing()


@pytest.mark.slow
@pytest.mark.parametrize("records", [2**39 + 1, 10**12])
def test_a_declared_count_beyond_all_rows_ends(tmp_path, records):
    """`auto` and a forest learn for seconds then: of one count."""
    home, few = registered(tmp_path, FEW, records, Budget.of("3", "1e-13")), ("lazybb", "lazybb-tree", "bdpe")
    for name in LEARNERS if records == 10**12 else (*few, "ebm"):
        found = {"rounds": 2} if name in few else {}
        assert job.train(home, JobRequest("d", name, "0.3", parameters=found), by="test")["state"] == "issued", name


def test_a_plan_that_no_entry_holds_is_refused_with_what_to_do(tmp_path):
    home = registered(tmp_path, FEW, 10**12, Budget.of("3", "1e-14"))
    many = JobRequest("d", "bdpe", "1", parameters={"rounds": 100})
    refused(home, many, "500 releases differ so much that an entry of the ledger does not hold them")


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(("epsilon", "delta", "prevalence"), [("100", "1e-13", ()), ("8", "0", (0.99, 0.01))])
def test_what_a_learner_does_by_default_is_held_by_an_entry_however_strong(name, epsilon, delta, prevalence):
    strong = replace(
        public_of(FEW, records=10**7, delta=delta), budget=Budget.of(epsilon, delta), prevalence=prevalence
    )
    assert 0 < offer(name, "{}", strong).recipe.claim.epsilon <= Decimal(epsilon)


def test_no_sensitivity_of_a_split_grows_beyond_the_rows_there_can_be():
    def most(records: int) -> int:
        learner, asked = LEARNERS["bdpe"](rounds=1, depth=1), []

        class Watched(Rehearsal):
            def release(self, query, mechanism):
                asked.append(query)
                return super().release(query, mechanism)

        learner.learn(Watched(public_of(FEW, records=records, delta="1e-13"), Decimal("0.1")))
        assert isinstance(asked[0], SplitRisks)
        return asked[0].sensitivity(Relation.ADD_REMOVE)

    assert most(60) < most(FEW_ROWS) < most(MOST_ROWS - 1) < most(MOST_ROWS) == most(2**39 + 1)


# ---- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["50.000001", "60", "99.9"])
@pytest.mark.parametrize("name", LEARNERS)
def test_an_epsilon_above_half_of_the_most_is_planned_or_refused_by_the_budget(tmp_path, name, epsilon):
    home = registered(tmp_path, FEW)
    try:
        found = plans.plan(home, JobRequest("d", name, epsilon))
    except BudgetRefused:  # with what would fit
        return
    assert Decimal("0.99") * Decimal(epsilon) < found.recipe.claim.epsilon <= Decimal(epsilon)


def test_what_rounds_are_not_to_blame_for_is_not_blamed_on_them():
    """At delta 0 private selections have a pure price each: a single round may cost 100, and two together 200."""
    public = public_of(FEW, delta="0")
    for name in ("lazybb", "lazybb-tree"):
        found = LEARNERS[name](rounds=1).recipe(Public(**{**vars(public), "budget": Budget.of("100", "0")}))
        assert Decimal("99.9") < found.claim.epsilon <= 100


@pytest.mark.parametrize("name", ["bdpe", "forest", "ebm"])
def test_gaussian_noise_has_no_price_without_a_delta(tmp_path, name):
    home = registered(tmp_path, FEW)
    refused(
        home, JobRequest("d", name, "1", delta="0"), "delta=0: on a dataset with a delta, .* ask for a delta above 0"
    )
    assert job.train(home, JobRequest("d", name, "1"), by="test")["state"] == "issued"


@pytest.mark.parametrize("name", LEARNERS)
def test_tuning_without_a_delta_is_refused_on_a_dataset_with_one(tmp_path, name):
    home = registered(tmp_path, FEW)
    named = {
        "forest": {"trees": [3, 5]},
        "ebm": {"epochs": [3, 5]},
        "ebm-trees": {"epochs": [3, 5]},
        "auto": {"rate": [0.1, 0.2]},
    }
    grid = named.get(name, {"rounds": [3, 5]})
    asked = JobRequest("d", name, "1", delta="0", tuning=TuningRequest(grid))
    refused(home, asked, "delta=0: on a dataset with a delta, tuning draws a Poisson number of runs")


# ---- what rows of one class may say ----------------------------------------------------------------------------------


def test_a_share_that_rounds_to_one_has_log_odds():
    """A class that never occurs, in many rows and trees: its share is below what a float tells from nothing."""
    assert 27 < _logit(1.0) < 28
    assert _logit(0.0) == pytest.approx(-_logit(1.0), abs=1e-3)


def test_a_score_of_any_forest_is_exact():
    from models.onnx.nodes import EXACT

    public, learner = public_of({"b": FLAG}), LEARNERS["forest"](trees=1000, depth=1)
    for seed in range(2):
        found = learner.learn(Lots(public, seed))
        heaviest = abs(found.constant) + sum(max(abs(t.yes.weight), abs(t.no.weight)) for t in found.trees)
        assert heaviest < EXACT
    with pytest.raises(ModelInvalid):
        to_onnx(type(found)(**{**vars(found), "constant": EXACT}), {})


@pytest.mark.slow
def test_a_claim_of_0_which_no_certificate_states_is_refused(tmp_path):
    """A budget so small that its releases may tell everything within delta: a claim of 0 was charged and not issued."""
    home = registered(tmp_path, FEW, total=Budget.of("50.5", "0.01"))
    for name in LEARNERS:
        refused(home, JobRequest("d", name, "0.00001"), "epsilon=0.00001: ")
        assert job.train(home, JobRequest("d", name, "1"), by="test")["state"] == "issued"
