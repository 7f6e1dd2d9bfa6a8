"""Where a person may have several rows, one of each is measured, from the packed file to the statement."""

from __future__ import annotations

from decimal import Decimal

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from draws import drawn, loss

from accountant.audit.audit import audit_home
from accountant.certificates.worth import WORTH
from accountant.errors import RowsUnavailable
from accountant.home import Home
from accountant.ledger.families.records import HOLDOUT, Unit
from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature
from models.forms.additive import AdditiveEnsemble
from models.worth.stated import check, layout_of
from training.calibration.calibrate import rehearse
from training.datasets import packing
from training.datasets.datasets import ONE_ROW, register
from training.jobs import job
from training.measuring.worth import evaluate
from training.measuring.worth.histogram import CellCounts, Evaluator
from training.requests import EvaluationRequest, JobRequest
from training.rows.partitions.rows import Rows
from training.rows.people.parts import Parting
from training.rows.people.people import FirstOfEach
from training.rows.schema.schema import parse_schema
from training.rows.tables.partition_source import Source
from training.session.session import Public, Session, sensitivity_of

MOST, FEATURE = 3, CategoricalFeature("x", ("a", "b", "c"))
SCHEMA = parse_schema(
    b'target: {name: y, classes: ["no", "yes"], missing: leave-out}\nrecords: 60\n'
    b"features:\n  x: {type: categorical, values: [a, b, c]}\nignore: [who]\n"
)
ENSEMBLE = AdditiveEnsemble((FEATURE,), "y", ("no", "yes"), None, 0.1, 0, ((-9, -2, 5, 12, 19),), (), ())
PUBLIC = Public((FEATURE,), "y", ("no", "yes"), 60, Relation.ADD_REMOVE, Budget.of("1"), True, MOST)
REST = [(f"p{number % 7}", "abc"[number % 3], ("no", "yes")[number % 2]) for number in range(19)]


def opened(folder, people, part=None, firsts=True, schema=SCHEMA, parting=None) -> Rows:
    """The rows of a part of a file that is packed and read again, the first of each person alone."""
    folder.mkdir()
    columns = dict(zip(("who", "x", "y"), zip(*people, strict=True), strict=True))
    pq.write_table(pa.table({name: [*column] for name, column in columns.items()}), folder / "rows.parquet")
    unit, place = Unit("person", "who", MOST), folder / "packed"
    place.mkdir()
    packing.pack(folder / "rows.parquet", schema, unit, None, parting, place, marks_firsts=True)
    source = Source(place, schema, None, part, firsts=firsts)
    partition = source.partition(0, source.size, folder)
    return Rows(partition.bins, partition.labels, partition.widths, 2)


@pytest.mark.parametrize("parting", [None, Parting(b"key", Decimal("0.5"))], ids=["whole", "parted"])
def test_a_person_adds_one_row_however_many_they_have(tmp_path, parting, monkeypatch):
    """Every number of rows, wherever they stand, answered or not: the counts of one part move by one at most, those of
    the other part stay; and where two rows of a person are marked that is seen.
    """
    query = CellCounts(ENSEMBLE, layout_of(ENSEMBLE))
    assert sensitivity_of(query, evaluate.of_one_row(PUBLIC)) == 1
    parts = [None] if parting is None else [None, HOLDOUT]
    places = iter(range(1000))

    def counts(people):
        return [query(opened(tmp_path / str(next(places)), people, part, parting=parting)) for part in parts]

    def moves():
        before, found = counts(REST), []
        for own in (["a"], ["a", "b"], ["c", "c", "c"], ["a", "b", "c", "a", "b"]):
            for start, answer in ((0, "yes"), (9, "no"), (19, None)):
                news = [("new", x, answer if at == 0 else "yes") for at, x in enumerate(own)]
                after = counts([*REST[:start], *news, *REST[start:]])
                found.append([int(np.abs(a - b).sum()) for a, b in zip(after, before, strict=True)])
        return np.array(found)

    moved = moves()
    assert moved.sum(axis=1).max() == 1
    assert counts(REST)[0].sum() == (7 if parting is None else opened(tmp_path / "learnt", REST, parting=parting).size)
    monkeypatch.setattr(packing, "FirstOfEach", lambda column, most, *more: FirstOfEach(column, max(2, most), *more))
    assert moves().sum(axis=1).max() > 1


@pytest.mark.statistical
def test_the_release_keeps_its_promise_on_neighbours_and_rows_that_are_not_bounded_are_caught(tmp_path):
    """A person of three rows, or nobody, through the packed file: with all three of them noise of one is too little."""
    public, unit, evaluator = (
        evaluate.of_one_row(PUBLIC),
        Decimal(1),
        Evaluator(CellCounts(ENSEMBLE, layout_of(ENSEMBLE))),
    )
    news = [("new", "c", "yes")] * MOST
    plan = rehearse(evaluator, public, unit)
    assert [(release.sensitivity, release.event.pure) for release, _ in plan.runs] == [(1, unit)]

    def losses(firsts):
        with_them, without = (
            opened(tmp_path / f"{firsts} {len(people)}", people, firsts=firsts) for people in (REST + news, REST)
        )
        moved = evaluator.query(with_them) != evaluator.query(without)
        most = evaluator.query(with_them)[moved]
        return loss(
            *(
                (
                    drawn(lambda: evaluator.learn(Session(public, unit, plan, rows)), DiscreteLaplace, 3000, moved)  # noqa: B023
                    >= most
                ).all(axis=1)
                for rows in (with_them, without)
            )
        )

    assert losses(True) <= 1
    assert losses(False) > 1


@pytest.mark.slow
def test_one_row_of_each_person_is_measured_signed_and_audited(tmp_path):
    """Three rows to a person: the noise of one; a dataset that was registered before is measured as it was."""
    rows = pq.read_table(ledgers.EXAMPLES / "adult_train.parquet").slice(0, 3000)
    rows = rows.append_column("person", pa.array([f"P{number // 3:05d}" for number in range(len(rows))]))
    text = (ledgers.EXAMPLES / "adult.schema.yaml").read_text().replace("records: 32561", "records: 3000")
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "schema.yaml").write_text(f"{text}ignore: [person]\n")
    home = Home.init(ledgers.place(tmp_path / "home"))
    budget, files = Budget.of("4", "0.00001"), (tmp_path / "rows.parquet", tmp_path / "schema.yaml")
    register(home, "adult", *files, budget, Relation.ADD_REMOVE, "person", MOST, holdout=Decimal("0.3"))
    dataset = home.ledger.dataset("adult")
    assert home.ledger.log.entry(dataset.seq).value["firsts"] is True
    made = job.train(home, JobRequest("adult", "lazybb", "1", parameters={"rounds": 20}, evaluate="0.5"), by="test")
    early = made["evaluated"]["worth"]
    asked = EvaluationRequest(model="adult", dataset="adult", epsilon="1")
    assert evaluate.plan(home, asked).to_json()["contributions"] == 1
    body = job.measure(home, asked, by="test")
    for worth, number in ((early, made["evaluated"]["job"]), (body["worth"], body["job"])):
        _, _, stated = WORTH.open(home, number)
        unit, (mechanism,) = stated.form.claim.unit, stated.form.mechanisms
        assert (unit.contributions, mechanism.sensitivity) == (1, "1")
        assert unit.bounding == "the first record of each value of person, in file order"
        assert home.ledger.log.entry(number).value["parameters"]["rows"] == ONE_ROW
        check(stated)
        people = next(each for each in worth["metrics"] if each["metric"] == "records")
        assert 200 < float(people["value"]) < 400  # 300 people of 900 rows
    report = audit_home(home)
    assert report.ok, report.problems
    plain = evaluate.plan(home, asked).dataset
    without = evaluate.replace(plain, registration=evaluate.replace(plain.registration, firsts=False))
    assert evaluate.has_one_row(plain)
    assert not evaluate.has_one_row(without)
    file = home.datasets / plain.commitments[0] / "holdout-firsts.npy"
    marks = np.load(file)
    np.save(file, np.ones_like(marks))
    with pytest.raises(RowsUnavailable, match="not in this home as they were registered"):
        job.measure(home, EvaluationRequest(model="adult", dataset="adult", epsilon="0.3"), by="test")
