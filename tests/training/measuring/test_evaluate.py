"""From the command to a signed statement: charged once, given again for nothing, verified offline, refused with why."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import nullcontext
from decimal import Decimal

import ledgers
import numpy as np
import pyarrow.parquet as pq
import pytest

from accountant.audit.audit import audit_home
from accountant.certificates.worth import WORTH, figure
from accountant.errors import IdempotencyConflict, JobFailed, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import HOLDOUT, NewPeople
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, DpserveError, InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature
from models.forms.additive import AdditiveEnsemble
from models.parts.beside import read_wanted
from models.store import placing
from models.worth.cover import CoverLayout
from models.worth.report import write
from models.worth.stated import check, figures, layout_of, report_of
from models.worth.statements import mark, worths
from training.datasets.datasets import register
from training.jobs import job, queue
from training.kinds import stated_steps
from training.kinds.registry import steps_of
from training.kinds.stated_steps import COUNTS
from training.kinds.training_steps import TrainingSteps
from training.measuring.worth import evaluate
from training.measuring.worth.covers import Cover
from training.measuring.worth.histogram import CellCounts
from training.planning.job_views import job_to_json
from training.requests import EvaluationRequest, JobRequest
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import schema_of

TEST = ledgers.EXAMPLES / "adult_test.parquet"
TESTED = pq.read_table(TEST).slice(1500, 1500)


GROUPS = (
    "missing: own-bin",
    "missing: own-bin\ngroups: {sex: {}, age: {type: numeric, edges: [30, 50]},\n"
    "  fnlwgt: {type: numeric, edges: [100000, 200000]}, relationship: {type: categorical, values: [Martian]}}",
)


def small(folder, name, rows, schema_changes=()):
    import pyarrow.parquet as pq

    files = folder / name
    files.mkdir()
    pq.write_table(rows, files / "rows.parquet")
    text = (ledgers.EXAMPLES / "adult.schema.yaml").read_text().replace("records: 32561", f"records: {len(rows)}")
    for old, new in schema_changes:
        assert old in text
        text = text.replace(old, new)
    (files / "schema.yaml").write_text(text)
    return files / "rows.parquet", files / "schema.yaml"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with Adult, a fifth kept aside, a model of it, other people's rows, and rows without a part."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("worth")
    home = Home.init(ledgers.place(folder / "home"))
    train, test = pq.read_table(ledgers.EXAMPLES / "adult_train.parquet"), pq.read_table(TEST)
    budget = Budget.of("2", "0.00001")
    for name, rows, holdout in (
        ("adult", train.slice(0, 4000), Decimal("0.5")),
        ("others", test.slice(0, 1500), None),
        ("plain", train.slice(8000, 1000), None),
    ):
        files = small(folder, name, rows, [GROUPS] if name == "adult" else [])
        register(home, name, *files, budget, Relation.ADD_REMOVE, "record", holdout=holdout)
    for name in ("adult", "plain"):
        job.train(home, JobRequest(name, "lazybb", "1", parameters={"rounds": 60}), by="test")
    job.train(
        home, JobRequest("adult", "lazybb", "0.001", parameters={"rounds": 1}), by="test"
    )  # adult@2: worth nothing
    home.ledger.log.database.close()
    return folder


@pytest.fixture
def home(place, tmp_path):
    return Home.open(ledgers.place(ledgers.copy(place / "home", tmp_path / "home")))


def asked(epsilon="0.5", **more):
    return EvaluationRequest(**({"model": "adult", "dataset": "adult", "epsilon": epsilon} | more))


def spent(home, dataset="adult", part=None):
    return describe_budget(home.ledger.dataset(dataset, part=part))["spent"]["epsilon"]


@pytest.mark.slow
def test_an_evaluation_is_charged_to_what_was_kept_aside_and_given_again_for_nothing(home):
    before = spent(home)
    body = job.measure(home, asked(), by="test")
    assert (spent(home), spent(home, part=HOLDOUT)) == (before, "0.5")
    found = body["worth"]
    assert (found["part"], found["seen"], found["epsilon"], found["delta"]) == (HOLDOUT, False, "0.5", "0")
    assert found["better"] and float(found["metrics"][0]["low"]) > 0.7  # noqa: PT018
    again = job.measure(home, asked("0.50"), by="somebody else")
    assert (again["job"], spent(home, part=HOLDOUT)) == (body["job"], "0.5")
    assert again["worth"] == found
    other = job.measure(home, asked("0.25"), by="test")
    assert other["job"] != body["job"]
    assert worths(home, found["certificate"])[0]["job"] == other["job"]
    report = audit_home(home)
    assert report.ok, report.problems


def test_the_statement_is_verified_by_itself_and_whatever_is_changed_is_found(home):
    body = job.measure(home, asked(), by="test")
    envelope, proof, found = WORTH.open(home, body["job"])
    text, model = proof.decode(), evaluate.open_model(home, "adult").bundle.onnx
    assert WORTH.verify(envelope, text, home.trust, model).name == "adult"
    assert found.sha256 == evaluate.open_model(home, "adult").certificate.sha256
    with pytest.raises(CertificateInvalid, match="bytes are not those"):
        WORTH.verify(envelope, text, home.trust, model + b" ")
    forged = json.loads(dsse.parse(envelope).payload)
    forged["predicate"]["metrics"][0]["value"] = "0.999999"
    again = dsse.sign(canonical.encode(forged, 1 << 19), home.keys.signer("issuer"))
    with pytest.raises(CertificateInvalid, match="its statement is not"):  # a stolen issuer key alone cannot mint one
        WORTH.verify(again, text, home.trust)
    _, stated = WORTH.read(canonical.encode(forged, 1 << 19))
    with pytest.raises(CertificateInvalid, match="do not follow from the counts"):
        check(Stated(forged, stated.predicate, "adult", "", Decimal(1), Decimal(0), 0, WORTH.rule))
    form, layout = found.form, layout_of(evaluate.open_model(home, "adult").ensemble)
    ratio = np.exp(-0.5)  # at epsilon .5 a record moves one count by one
    for variance, is_honest in ((2 * ratio / (1 - ratio) ** 2, True), (float(form.histogram.variance) / 4, False)):
        forged = json.loads(dsse.parse(envelope).payload)  # every figure follows from the variance that is stated
        forged["predicate"]["histogram"]["variance"] = figure(float(variance))
        forged["predicate"]["metrics"] = figures(layout, form.histogram.counts, float(variance), 1)
        stated = Stated(
            forged, WORTH.read(canonical.encode(forged, 1 << 19))[1].predicate, "adult", "", *[0] * 3, WORTH.rule
        )
        with nullcontext() if is_honest else pytest.raises(CertificateInvalid, match="the noise of the mechanism"):
            check(stated)
    wrong = proof.decode().replace("index ", "index 1")
    with pytest.raises(DpserveError):
        WORTH.verify(envelope, wrong, home.trust)


@pytest.mark.slow
def test_figures_by_group_are_released_at_once_for_the_same_price(home, tmp_path):
    """By a feature's own bins and by others; a group that no row has; what is refused."""
    plain = evaluate.plan(home, asked()).to_json()
    price = evaluate.plan(home, asked(group="sex")).to_json()
    assert price == plain | {"group": "sex", "expected": price["expected"]}
    halves = [each["expected"]["figures"][0]["half_width"] for each in (plain, price)]
    assert halves[0] < halves[1]  # of all records: each group brings its noise
    body = job.measure(home, asked(group="sex"), by="test")
    assert job.measure(home, asked(group="sex"), by="another")["job"] == body["job"]
    assert spent(home, part=HOLDOUT) == "0.5"
    told = body["worth"]
    assert told["histogram"]["groups"] == {"column": "sex", "names": ["Female", "Male", "other or missing"]}
    found = {(each["metric"], each.get("group")): each for each in told["metrics"]}
    assert float(found["records", "Male"]["low"]) > float(found["records", "Female"]["high"])
    assert float(found["selection_rate_gap", None]["low"]) > 0
    assert found["selection_rate_gap", None]["groups"] == ["Female", "Male"]
    assert told["better"]
    rows = {None: 2000.0} | {name: float(found["records", name]["value"]) for name in ("Female", "Male")}
    assert abs(rows["Female"] + rows["Male"] - float(found["records", None]["value"])) < 200
    envelope, _, verified = WORTH.open(home, body["job"])
    check(verified)
    forged = json.loads(dsse.parse(envelope).payload)
    gap = next(each for each in forged["predicate"]["metrics"] if each["metric"] == "selection_rate_gap")
    gap["groups"] = ["Male", "Female"]
    with pytest.raises(CertificateInvalid, match="do not follow from the counts"):
        check(
            Stated(
                forged, WORTH.read(canonical.encode(forged, 1 << 19))[1].predicate, "adult", "", *[0] * 3, WORTH.rule
            )
        )
    age = job.measure(home, asked("0.25", group="age"), by="test")["worth"]
    names = ["up to 30", "above 30, up to 50", "above 50", "missing"]
    assert age["histogram"]["groups"]["names"] == names
    weight = job.measure(home, asked("0.5", group="fnlwgt"), by="test")["worth"]  # at .25 noise has it below one in 30
    assert float(next(each for each in weight["metrics"] if each.get("group") == "up to 100000")["low"]) > 0.5
    nobody = job.measure(home, asked("0.25", group="relationship"), by="test")["worth"]["metrics"]
    martians = {each["metric"]: each for each in nobody if each.get("group") == "Martian"}
    assert {martians[name]["high"] for name in ("accuracy", "selection_rate", "auroc")} == {"1.000000"}
    assert not [each for each in nobody if "groups" in each]  # one group alone has records
    write(report_of(told, 1, ["no", "yes"]), tmp_path / "worth.html")
    assert (tmp_path / "worth.html").read_text().count('aria-label="selection_rate by group"') == 1
    write(report_of(told, 1, ["no", "yes"]), tmp_path / "worth.csv")
    assert (tmp_path / "worth.csv").read_text().splitlines()[0] == "figure,class,value,low,high,group"
    for wrong, said in (
        ({"group": "race"}, "names no such group"),
        ({"against": "adult@2", "group": "sex"}, "at a time"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate.plan(home, asked(**{"model": "adult@1"} | wrong))
    with pytest.raises(InputError, match=r"it has \[\]"):
        evaluate.plan(home, asked(dataset="others", group="sex"))
    report = audit_home(home)
    assert report.ok, report.problems


@pytest.mark.slow
def test_what_is_learnt_from_is_marked_and_must_be_asked_for_by_name(home):
    with pytest.raises(InputError, match="keeps no rows aside"):
        job.measure(home, asked(model="plain", dataset="plain"), by="test")
    body = job.measure(home, asked(model="plain", dataset="plain", part="training"), by="test")["worth"]
    assert (body["part"], body["seen"]) == ("all", True)
    body = job.measure(home, asked(part="training"), by="test")["worth"]
    assert (body["part"], body["seen"]) == ("training", True)
    body = job.measure(home, asked(dataset="others"), by="test")["worth"]
    assert (body["part"], body["seen"]) == ("all", False)
    body = job.measure(home, asked(model="plain"), by="test")["worth"]  # another family's model on what is kept aside
    assert (body["part"], body["seen"]) == (HOLDOUT, False)
    with pytest.raises(InputError, match="must be holdout or training"):
        job.measure(home, asked(part="test"), by="test")


@pytest.mark.slow
def test_fewer_bins_are_part_of_what_is_reserved_and_signed_and_the_same_question_is_answered_once(home, monkeypatch):
    """By public numbers; statements of 32 bins stand, verify, and answer the same question for nothing."""
    few, many = evaluate.plan(home, asked("0.02")), evaluate.plan(home, asked("2"))
    assert few.request.parameters == {"cells": 16, "bins": 8}  # about 2,000 records at epsilon .02
    assert many.request.parameters == {"cells": 64}
    assert few.measurement.layout.bins == 8
    several = dataclasses.replace(
        evaluate.public_of(few.dataset, *_question(home), few.request.budget), contributions=9
    )
    rich = dataclasses.replace(several, budget=Budget.of("0.5"))
    assert [evaluate.bins_for(public) for public in (several, rich)] == [{"bins": 8}, {"bins": 16}]
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "choose_bins", lambda signal: 32)
        early = job.measure(home, asked("0.02"), by="test")
    again = evaluate.plan(home, asked("0.02"))
    assert (again.known, again.to_json()["epsilon"], again.to_json()["expected"]) == (early["job"], "0", None)
    body = job.measure(home, asked("0.03"), by="test")
    assert body["worth"]["histogram"]["columns"] == 8
    assert home.ledger.log.entry(body["job"]).value["parameters"] == {"cells": 16, "bins": 8}
    _, _, found = WORTH.open(home, body["job"])
    check(found)
    for columns in (7, 16, 32):
        counts = dataclasses.replace(found.form.histogram, columns=columns)
        with pytest.raises(CertificateInvalid, match="histogram"):
            check(dataclasses.replace(found, form=dataclasses.replace(found.form, histogram=counts)))
    assert report_of(body["worth"], 1, ["no", "yes"]).thresholds[-1]["threshold"] > "0.9"
    report = audit_home(home)
    assert report.ok, report.problems


def _question(home):
    return (schema_of(home, home.ledger.dataset("adult", part=HOLDOUT)),)


@pytest.mark.slow
def test_of_two_models_the_better_one_is_shown_and_promoted_by_the_statement(home):
    """And one that is not shown to be worth anything only where that is said; each answer says what to run."""
    with pytest.raises(WrongState, match="no statement compares the two") as refused:
        placing.promote(home, "adult@2", "new", "ann", if_better=True)
    assert refused.value.details["command"] == "dpserve evaluate adult@2 --against adult@1 --dataset NAME --epsilon E"
    body = job.measure(home, asked(model="adult@2", against="adult@1"), by="test")["worth"]
    first = body["metrics"][0]
    assert (first["metric"], body["better"], body["seen"]) == ("accuracy_difference", False, False)
    assert float(first["low"]) <= float(first["value"]) <= float(first["high"])
    assert body["against"]["certificate"] == evaluate.open_model(home, "adult@1").certificate.issued
    with pytest.raises(WrongState, match=f"entry {body['entry']} says: no better than adult of entry"):
        placing.promote(home, "adult@2", "new", "ann", if_better=True)
    alone = job.measure(home, asked("0.001", model="adult@2"), by="test")["worth"]
    assert not alone["better"]  # one rule may be of use by luck, but noise of this size shows nothing
    assert (alone["outcome"], alone["metrics"][0]["value"]) == ("could not tell", None)
    lines = [{"certificate": {"entry": each["certificate"]}} for each in (alone, body)]
    marked = mark(home, [*lines, {"certificate": None}])
    assert [each["better"] for each in marked] == [False, False, None]
    assert [each["outcome"] for each in marked] == ["could not tell", "could not tell", None]
    with pytest.raises(WrongState, match="could not tell whether it is better than a constant.*although-not-better"):
        placing.promote(home, "adult@2", "new", "ann")
    with pytest.raises(InputError, match="choose one"):
        placing.promote(home, "adult@2", "new", "ann", if_better=True, although_not_better=True)
    assert placing.promote(home, "adult@2", "new", "ann", although_not_better=True).worth is None
    back = job.measure(home, asked(model="adult@1", against="adult"), by="test")["worth"]
    assert back["better"]
    done = placing.promote(home, "adult@1", "it is better", "ann", if_better=True)
    assert (done.worth, home.ledger.log.entry(done.entry).value["worth"]) == (back["entry"], back["entry"])
    with pytest.raises(InputError, match="is the model itself"):
        job.measure(home, asked(model="adult@1", against="adult"), by="test")
    report = audit_home(home)
    assert report.ok, report.problems
    _, _, found = WORTH.open(home, back["job"])
    forged = dataclasses.replace(found.form, better=False)
    with pytest.raises(CertificateInvalid, match="do not follow"):
        check(dataclasses.replace(found, form=forged))
    with pytest.raises(CertificateInvalid, match="must be of kind binary"):
        check(dataclasses.replace(found, form=dataclasses.replace(found.form, against=None)))


def test_models_of_others_are_compared_where_neither_learnt_the_rows(home):
    seen = job.measure(home, asked(model="plain", against="adult", part="training"), by="test")["worth"]
    assert (seen["part"], seen["seen"]) == ("training", False)  # plain learnt from other people; adult from these
    assert WORTH.open(home, seen["job"])[2].form.against.seen
    with pytest.raises(InputError, match="keeps no rows aside"):
        job.measure(home, asked(dataset="plain", against="plain"), by="test")
    assert (
        evaluate.plan(home, asked(model="plain", against="adult")).to_json()["against"]
        == seen["against"]["certificate"]
    )
    with pytest.raises(UnknownName):
        job.measure(home, asked(against="nobody"), by="test")


@pytest.mark.slow
def test_a_model_is_trained_and_evaluated_by_one_command_charged_before_it_starts(home, monkeypatch):
    """And after a cut nothing is charged for what cannot come any more."""
    one = JobRequest("adult", "lazybb", "0.2", parameters={"rounds": 5}, model="both", evaluate="0.5")
    body = job.train(home, one, by="test", key="k")
    assert body["evaluation"]["job"] == body["job"] + 1
    found = body["evaluated"]["worth"]
    assert (found["certificate"], found["epsilon"], found["part"]) == (body["certificate"]["entry"], "0.5", HOLDOUT)
    assert job.train(home, one, by="test", key="k")["evaluated"]["worth"] == found
    with pytest.raises(IdempotencyConflict, match="came with 0.5"):
        job.train(home, dataclasses.replace(one, evaluate=None), by="test", key="k")
    assert job.measure(home, asked(model="both"), by="test")["job"] == body["job"] + 1  # known: for nothing
    assert spent(home, part=HOLDOUT) == "0.5"
    with pytest.raises(InputError, match="keeps no rows aside"):
        job.train(home, dataclasses.replace(one, dataset="plain"), by="test")
    size = home.ledger.log.size()
    with pytest.raises(BudgetRefused):
        job.train(home, dataclasses.replace(one, evaluate="1.75"), by="test")
    assert home.ledger.log.size() == size
    queued = job.submit(home, dataclasses.replace(one, evaluate="0.25"), by="test")
    assert queue.work_once(home) == queued.seq
    assert job_to_json(home, home.ledger.job(queued.seq))["evaluation"] == {"job": queued.seq + 1, "state": "reserved"}
    assert queue.work_once(home) == queued.seq + 1
    assert WORTH.open(home, queued.seq + 1)[2].epsilon == Decimal("0.25")
    with monkeypatch.context() as patched:
        patched.setattr(TrainingSteps, "open_rows", lambda *_: 1 / 0)
        with pytest.raises(JobFailed):
            job.train(home, one, by="test")
    assert spent(home, part=HOLDOUT) == "0.75"
    early = job.submit(home, one, by="test")
    home.ledger.start(early.seq, "somebody", 600.0)
    assert queue.work_once(home) is None  # while it is being made, nobody evaluates it
    report = audit_home(home)
    assert report.ok, report.problems


def test_with_the_budget_gone_it_says_what_would_fit(home):
    job.measure(home, asked("1.5"), by="test")
    with pytest.raises(BudgetRefused) as refused:
        job.measure(home, asked("1.2"), by="test")
    fits = refused.value.details["would_fit"]["epsilon"]
    assert 0 < Decimal(fits) < Decimal("1.2")
    job.measure(home, asked(fits), by="test")
    assert evaluate.plan(home, asked("1.5")).known is not None  # what was measured is given, also then


def test_what_does_not_fit_is_refused_before_it_costs(home, tmp_path):
    import pyarrow.parquet as pq

    rows = pq.read_table(TEST).slice(2000, 300)
    budget = Budget.of("2", "0.00001")
    changed = small(tmp_path, "changed", rows, [("range: [17, 90]", "range: [10, 100]")])
    register(home, "changed", *changed, budget, Relation.ADD_REMOVE, "record")
    with pytest.raises(InputError, match=r"has otherwise: \['age'\]"):
        job.measure(home, asked(dataset="changed"), by="test")
    with pytest.raises(UnknownName):
        job.measure(home, asked(model="nobody"), by="test")
    with pytest.raises(UnknownName):
        job.measure(home, asked(dataset="nowhere"), by="test")
    with pytest.raises(InputError):
        job.measure(home, asked("0"), by="test")
    assert spent(home, "changed") == "0"


@pytest.mark.slow
def test_answers_cover_as_often_as_asked_of_others_by_groups_too_and_judge_no_model(home):
    """Of 1,500 people that no job read: within .06, which noise and chance leave once in ten thousand."""
    model = evaluate.open_model(home, "adult@1")
    columns = {name: TESTED[name].to_numpy(zero_copy_only=False) for name in TESTED.column_names}
    true = np.array([model.ensemble.classes.index(label) for label in columns["income"]])

    def held(level, group=None):
        wanted = read_wanted(None, level, group)
        cover = Cover.of(home, model.ensemble, model.certificate, group)
        sets = np.column_stack([*cover.answer(columns, wanted).values()])
        assert sets.shape == (len(true), 2)
        return sets[np.arange(len(true)), true]

    with pytest.raises(InputError, match=r"not counted on rows .*: dpserve evaluate adult .*--cover, or"):
        held(0.9)
    job.measure(home, asked("0.8", model="adult@1", cover=True), by="test")
    body = job.measure(home, asked("1", model="adult@1", cover=True, group="sex"), by="test")["worth"]
    assert (spent(home, part=HOLDOUT), body["histogram"]["kind"], body["better"]) == ("1.8", "cover-classes", False)
    for level in (0.7, 0.9):
        assert abs(held(level).mean() - level) < 0.06
        for sex in ("Male", "Female"):
            assert abs(held(level, "sex")[columns["sex"] == sex].mean() - level) < 0.08
    assert mark(home, [{"certificate": {"entry": model.certificate.issued}}])[0]["outcome"] is None
    _, _, stated = WORTH.open(home, body["job"])
    assert "Not promised: of any one record" in stated.form.method
    for level, why in ((0.99, "too few rows .*lower level"), (0.4, r"for instance \.9")):
        with pytest.raises(InputError, match=why):
            held(level)
    for more, why in (
        ({"part": "training"}, "learnt from these rows"),
        ({"scores": True}, "one at a time"),
        ({"against": "adult@2"}, "one at a time"),
    ):
        with pytest.raises(InputError, match=why):
            evaluate.plan(home, asked("0.1", model="adult@1", cover=True, **more))
    dataset = home.ledger.dataset("adult", part=HOLDOUT)
    schema = dataclasses.replace(schema_of(home, dataset), groups=(CategoricalFeature("town", ("a", "b")),))
    with pytest.raises(InputError, match="town: must be a feature that the model reads"):
        evaluate.require_coverable(model, schema, dataset, HOLDOUT, "town")
    again = evaluate.plan(home, asked("0.8", model="adult@1", cover=True)).to_json()
    assert (again["epsilon"], again["cover"]) == ("0", True)


def test_intervals_of_a_number_hold_the_rows_that_were_counted():
    """Without noise: as many as the level says, and hardly more; and none lies beyond the range."""
    feature = CategoricalFeature("x", tuple("abcdefgh"))
    terms = (tuple(range(-400, 600, 100)),)
    ensemble = AdditiveEnsemble((feature,), "y", (), (10.0, 30.0), 0.01, 0, (*terms,), (), ())
    random = np.random.default_rng(1)
    values = random.integers(0, 8, 4000)
    targets = np.clip(
        (np.array(terms[0])[values] / 1000 + random.normal(0, 0.2, 4000)) * TARGET_GRID, -TARGET_GRID, TARGET_GRID
    )
    layout = CoverLayout(layout_of(ensemble, 256))
    rows = Rows(values.astype(np.uint8)[None], targets.astype(np.int32), [feature.bins], 0)
    cover = Cover(ensemble, layout, [CellCounts(ensemble, layout)(rows).tolist()], 1e-9, 0)
    ends = cover.answer({"x": np.array(feature.values)[values]}, read_wanted(None, 0.9, None))
    real = 20 + 10 * targets / TARGET_GRID
    held = (ends["low"] <= real) & (real <= ends["high"])
    assert 0.9 <= held.mean() < 0.92
    assert ends["low"].min() >= 10
    assert ends["high"].max() <= 30


def test_a_part_with_one_row_or_one_class_gives_an_answer(home, tmp_path):
    """And one that says nothing: whether a class has rows is private."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(TEST).slice(3000)
    target = next(name for name in rows.column_names if name in ("class", "income", "target", "y"))
    none = rows.filter(pc.equal(rows[target], rows[target][0])).slice(0, 50)
    for name, few in (("one", rows.slice(5, 1)), ("none", none)):
        how = Budget.of("2", "0.00001"), Relation.ADD_REMOVE, "record"
        register(home, name, *small(tmp_path, name, few), *how, new_people=NewPeople("a test", "steward"))
        body = job.measure(home, asked(dataset=name), by="test")["worth"]
        assert not body["better"]


def test_a_cut_after_the_commit_is_gone_on_with(home, monkeypatch):
    """The same counts, signed and entered once."""
    reserved = job.submit(home, asked(), by="test", queued=True)

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stated_steps, "sign", cut)
        with pytest.raises(KeyboardInterrupt):
            job.run(home, reserved.seq)
    counts = json.loads((home.jobs / str(reserved.seq) / COUNTS).read_text())
    assert job.recover(home)["finished"] == [reserved.seq]
    _, _, found = WORTH.open(home, reserved.seq)
    assert found.form.histogram.counts == counts
    assert job.recover(home)["finished"] == []
    shutil.rmtree(home.evaluations / str(reserved.seq))
    with pytest.raises(UnknownName, match="no statement of worth"):
        WORTH.open(home, reserved.seq)


def test_a_changed_count_on_disk_is_never_signed(home, monkeypatch):
    reserved = job.submit(home, asked(), by="test", queued=True)
    with monkeypatch.context() as patched:
        patched.setattr(job, "_finish", lambda *_: None)
        job.run(home, reserved.seq)
    path = home.jobs / str(reserved.seq) / COUNTS
    path.write_text(path.read_text().replace("[", "[1", 1))
    with pytest.raises(LedgerInvalid, match="not what was committed"):
        steps_of(home, reserved.seq).finish()


def test_rows_that_are_nobodys_secret_cost_nothing_and_say_whose_word_it_is(home, tmp_path):
    """As scikit-learn says; rows that are registered are refused, whatever the file is called."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    from models.worth import report
    from training.measuring.worth.public_rows import evaluate_rows

    verified, rows = evaluate.open_model(home, "adult"), pq.read_table(TEST).slice(5000, 2000)
    pyarrow.csv.write_csv(rows, tmp_path / "public.csv")
    found = evaluate_rows(home, verified, "adult@1", tmp_path / "public.csv", "a tester")
    figures = {each["metric"]: float(each["value"]) for each in found.metrics}
    assert 0.8 < figures["auroc"] < 0.95
    assert "measured by a tester on rows of their own" in found.body["word"]
    for suffix in (".html", ".json", ".csv"):
        report.write(found, tmp_path / f"report{suffix}")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert json.loads((tmp_path / "report.json").read_text())["data"]["records"] == 2000
    assert (tmp_path / "report.csv").read_text().startswith("figure,class,value,low,high\n")
    with pytest.raises(InputError, match="must end in"):
        report.write(found, tmp_path / "report.pdf")
    copied = tmp_path / "copied.parquet"
    pq.write_table(pq.read_table(ledgers.EXAMPLES / "adult_train.parquet").slice(100, 2000), copied)
    with pytest.raises(InputError, match="stand in the dataset adult, and are private"):
        evaluate_rows(home, verified, "adult@1", copied, "a tester")
    pq.write_table(rows.slice(0, 0), copied)
    with pytest.raises(InputError, match="no rows"):
        evaluate_rows(home, verified, "adult@1", copied, "a tester")
    pq.write_table(rows.drop_columns(["age"]), copied)
    with pytest.raises(InputError, match="age"):
        evaluate_rows(home, verified, "adult@1", copied, "a tester")


def test_a_model_that_is_lost_before_the_start_costs_nothing(home):
    reserved = job.submit(home, asked(), by="test", queued=True)
    shutil.move(home.models / "adult", home.path / "elsewhere")
    with pytest.raises(DpserveError):
        job.run(home, reserved.seq)
    assert (home.ledger.job(reserved.seq).state, spent(home, part=HOLDOUT)) == ("released", "0")


def test_a_file_to_evaluate_on_is_asked_about_once_and_few_rows_need_a_word(home, tmp_path):
    """Each comparison leaves an entry, a miss too, and counts; the same file again is no other answer."""
    import pyarrow.parquet as pq

    from accountant.store.store import body_at
    from dpserve_verify.log.entry import read_entry
    from training.measuring.worth.public_rows import evaluate_rows

    def compared():
        with home.ledger.log.database.reading() as connection:
            every = [read_entry(seq, body_at(connection, seq)).value for seq in range(home.ledger.log.size())]
        return [entry["concerns"] for entry in every if entry["type"] == "rows-compared" and entry["by"] == "once"]

    verified, rows = evaluate.open_model(home, "adult"), pq.read_table(TEST).slice(9000, 900)
    pq.write_table(rows, tmp_path / "public.parquet")
    for _ in range(3):
        evaluate_rows(home, verified, "adult@1", tmp_path / "public.parquet", "once")
    assert compared() == [[]]
    pq.write_table(rows.slice(0, 99), tmp_path / "few.parquet")
    with pytest.raises(InputError, match="fewer than 100 rows.*--public"):
        evaluate_rows(home, verified, "adult@1", tmp_path / "few.parquet", "once")
    evaluate_rows(home, verified, "adult@1", tmp_path / "few.parquet", "once", is_public=True)
    assert compared() == [[]]
