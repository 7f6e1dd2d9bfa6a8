"""What a registration leaves behind where something beside it fails."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from small_home import write_files

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken, SchemaError
from accountant.home import Home
from accountant.home.notes import Note, note_of, write_note
from accountant.ledger.families.records import NewPeople
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from models.onnx import export
from serving.cli.app import run
from training.datasets import datasets
from training.datasets.datasets import register
from training.datasets.file_check import check_file
from training.jobs import job
from training.planning import first_plan, plans
from training.planning.first_plan import check_first_job
from training.planning.price_engine import without_labels
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema, schema_of


def test_what_is_registered_stays_so_where_it_cannot_be_noted(tmp_path, caplog):
    """The note is for people, and comes after the entry: asked again, the name would be taken."""
    home, files = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write_files(tmp_path / "files")
    (home.path / "datasets.json").mkdir()  # as a full disk refuses it
    total = Budget.of(1, "1e-6")
    about = register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    assert home.ledger.datasets() == [about]
    assert "adult is registered, and cannot be noted there" in caplog.text


# What no model can ever be learnt by: the text of the schema, the total, and what is said.
UNLEARNABLE = {
    "a range too narrow": ("{name: y, range: [0, 1.0e-320]}", "x", "3", "link=0.0"),
    "a pair's name": ("{name: y, range: [0, 1]}", "a & b", "3", "would be the name of a pair"),
    "a total too small": ("{name: y, range: [0, 1]}", "x", "0.000000001", "too small for this plan"),
}


@pytest.mark.parametrize("name", UNLEARNABLE)
def test_what_can_never_be_learnt_is_refused_while_nothing_is_entered(tmp_path, name):
    target, column, epsilon, problem = UNLEARNABLE[name]
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    schema, rows = tmp_path / "schema.yaml", tmp_path / "rows.csv"
    columns = ["a", "b", column]
    listed = "".join(f"  {each}: {{type: numeric, range: [0, 1]}}\n" for each in columns)
    schema.write_text(f"target: {target}\nrecords: 1000000\nfeatures:\n{listed}")
    rows.write_text(",".join([*columns, "y"]) + "\n" + "0,1,0.5,0.5\n" * 200)
    size = home.ledger.log.size()
    with pytest.raises(InputError, match="target='y': `auto` could not learn it, even with epsilon") as refused:
        register(home, "made", rows, schema, Budget.of(epsilon, "1e-7"), Relation.ADD_REMOVE, "record")
    assert problem in refused.value.message
    assert (home.ledger.datasets(), home.ledger.log.size()) == ([], size)
    if epsilon == "3":  # and a check says the same
        with pytest.raises(InputError, match=re.escape(problem)):
            check_file(parse_schema(schema.read_bytes()), rows)


def test_a_schema_whose_empty_model_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    """No schema is known that parses, can be planned and not exported: a fault of the exporter stands for one."""

    def refuse(raw):
        raise ModelInvalid("graph: a fault")

    monkeypatch.setattr(export, "check_graph", refuse)
    schema = parse_schema((write_files(tmp_path) / "schema.yaml").read_bytes())
    with pytest.raises(SchemaError, match="even with epsilon 1 at delta .*: graph: a fault"):
        check_first_job(schema)


def test_each_target_is_tried_at_the_budget_and_the_records_of_its_jobs(tmp_path, monkeypatch):
    """As `dpserve plan` would: the part that jobs learn from, the rows of one person, the total of the family."""
    home, files = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write_files(tmp_path / "files")
    seen = []
    monkeypatch.setattr(first_plan, "without_labels", lambda public: seen.append(public) or without_labels(public))
    total, args = Budget.of(1, "1e-6"), (files / "rows.parquet", files / "schema.yaml")
    about = register(home, "adult", *args, total, Relation.ADD_REMOVE, "record", holdout=Decimal("0.2"))
    assert seen == [plans.public_of(about, schema_of(home, about).question(None), total)]
    own, other = Budget.of(2, "1e-7"), tmp_path / "other.parquet"
    pq.write_table(pq.read_table(args[0]).slice(0, 1500), other)
    register(home, "other", other, args[1], own, Relation.ADD_REMOVE, "record", new_people=NewPeople("a test", "me"))
    schema = tmp_path / "schema.yaml"
    schema.write_bytes(args[1].read_bytes() + b"# another one\n")
    monkeypatch.setattr(datasets, "check_new_people", lambda *_: None)
    register(home, "again", other, schema, None, Relation.ADD_REMOVE, "record", families=["other"])
    assert [public.budget for public in seen[1:]] == [own, own]


def test_a_withdrawn_registration_leaves_name_and_rows_to_a_mended_schema(tmp_path, capsys, monkeypatch):
    home, files = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write_files(tmp_path / "files")
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    schema, mended = files / "schema.yaml", tmp_path / "mended.yaml"
    mended.write_text(schema.read_text().replace("bins: 32", "bins: 16"))
    total, rows = Budget.of(1, "1e-6"), files / "rows.parquet"
    first = register(home, "adult", rows, schema, total, Relation.ADD_REMOVE, "record")
    folder = home.datasets / first.registration.commitment
    write_note(home.path, "dataset", "adult", Note("for the board"))
    with pytest.raises(NameTaken, match="in the dataset adult already"):
        register(home, "again", rows, mended, total, Relation.ADD_REMOVE, "record")
    assert run(["dataset", "withdraw", "adult", "--reason", "the bins were wrong"]) == 0
    assert "is withdrawn, and its name and rows are free; entry" in capsys.readouterr().out
    assert not folder.exists()
    assert note_of(home.path, "dataset", "adult") == Note()  # of another dataset of that name
    for name, text in (("again", mended), ("adult", schema)):  # another name, then the very same once more
        dataset = register(home, name, rows, text, Budget.of(2, "1e-6"), Relation.ADD_REMOVE, "record")
        assert (dataset.budget.epsilon, dataset.is_untouched) == (2, True)
        assert (home.datasets / dataset.registration.commitment).is_dir()
        if name == "again":
            assert run(["dataset", "withdraw", name, "--reason", "another name"]) == 0
    job.train(home, JobRequest("adult", "lazybb", "0.5"), by="test")
    assert run(["dataset", "withdraw", "adult", "--reason", "too late"]) == 2
    assert "has started: its price stays spent; retire it" in capsys.readouterr().err
    assert run(["dataset", "withdraw", "nobody", "--reason", "x"]) == 2
    assert run(["dataset", "retire", "adult", "--reason", "its time is over"]) == 0
    assert run(["plan", "adult", "--epsilon", "0.1"]) == 2
    assert "is retired" in capsys.readouterr().err
    assert run(["dataset", "show", "adult"]) == 0
    assert "it takes no further job, schedule or block" in capsys.readouterr().out
    assert audit_home(home).problems == ()
