"""Drafts: what is proposed, what answers make of it, and what becomes of a step that was cut."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml
from confined_work import run_confined

from accountant.errors import DataError, SchemaError, UnknownName, WrongState
from accountant.ledger.families.records import Unit
from accountant.system.confined import Bounds, ConfinedFork
from dpserve_verify.errors import InputError
from serving.cli.app import run
from training.datasets.datasets import pack
from training.datasets.drafts import steps
from training.datasets.drafts.columns import (
    ColumnAnswer,
    parse_target,
    read_lines,
    require_same_unit,
    unit_of,
    write_lines,
)
from training.datasets.drafts.drafts import (
    CHECKING,
    COLUMNS,
    KEPT_SECONDS,
    LOOKING,
    PROBLEMS,
    READY,
    REGISTERED,
    REGISTERING,
    UNREADABLE,
    Drafts,
)
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.rows.schema.schema import parse_schema
from training.rows.schema.schema_text import FILL_IN
from training.rows.tables.form_search import Cells, find_forms
from training.rows.tables.row_files import read_columns

ROWS = b"person_id,age,city,born,ill\n1,34,Bonn,03/04/1990,yes\n2,51,Kiel,05/06/1973,no\n3,7,Bonn,01/02/2019,no\n"
ANSWERS = [
    ColumnAnswer(("age",), public="0 .. 120"),
    ColumnAnswer(("city",), public="Bonn, Kiel"),
    ColumnAnswer(("born",), public="1900-01-01 .. 2030-12-31", written="DD/MM/YYYY"),
    ColumnAnswer(("ill",), "target", "no, yes"),
]
SCHEMA = "target: {name: ill, classes: [no, yes]}\n".replace("no,", '"no",').replace("yes]", '"yes"]') + (
    "records: 3\nfeatures: {age: {type: numeric, range: [0, 120]}}\nignore: [person_id, city, born]\n"
)


@pytest.fixture
def drafts(home):
    return Drafts(home.path)


def looked(home, drafts, by="ana", rows=ROWS):
    draft = drafts.begin(by, "people.csv", len(rows), 1000)
    steps.step(home, drafts, drafts.append(draft, 0, rows))
    return drafts.get(draft.id, by)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("no, yes share 0.02", {"classes": ["no", "yes"], "prevalence": 0.02}),
        ("a, b, c share .9 .07 .03 leave-out",
         {"classes": ["a", "b", "c"], "prevalence": [0.9, 0.07, 0.03], "missing": "leave-out"}),
        ("no, market share", {"classes": ["no", "market share"]}),
    ],
)  # fmt: skip
def test_a_rare_class_is_said_beside_the_classes(said, wanted):
    assert parse_target(said) == wanted
    body = {"targets": {"y": parse_target(said)}, "records": 9, "features": {"x": {"type": "boolean"}}}
    assert list(parse_schema(yaml.safe_dump(body).encode()).only.prevalence or ()) == pytest.approx(
        {0.02: [0.98, 0.02]}.get(wanted.get("prevalence"), []) if len(wanted["classes"]) == 2 else [0.9, 0.07, 0.03]
    )


@pytest.mark.parametrize("said", ["0 .. 9 share 0.1", " share 0.1", "no, yes share 1 . 2"])
def test_shares_of_nothing_are_refused(said):
    with pytest.raises(InputError):
        parse_target(said)


def test_what_is_proposed_comes_from_names_and_types_and_never_from_values(tmp_path):
    (tmp_path / "people.csv").write_bytes(ROWS)
    lines = {line.columns[0]: line for line in SchemaProposal.of_file(tmp_path / "people.csv").groups()}
    assert (lines["age"].type, lines["age"].public) == ("numeric", "0 .. 120")  # whatever ages there are
    assert (lines["city"].type, lines["city"].public) == ("categorical", "")
    assert lines["born"].choices == ("DD/MM/YYYY", "MM/DD/YYYY")
    assert lines["person_id"].role == "ignore"  # who one person is holds permanently: it is asked
    assert lines["city"].cells[:2] == ("Bonn", "Kiel")  # shown to who brought the file, and taken for nothing
    proposed = [replace(line, cells=(), question=None) for line in lines.values()]
    proposed += [SchemaProposal.of_file(tmp_path / "people.csv").to_yaml("people.csv", looked=True)]
    assert not any(word in str(proposed) for word in ("34", "51", "Bonn", "Kiel", "1990"))


def test_answers_make_a_schema(tmp_path):
    (tmp_path / "people.csv").write_bytes(ROWS)
    proposal = SchemaProposal.of_file(tmp_path / "people.csv")
    body = proposal.to_schema(ANSWERS, 3)
    assert body["targets"] == {"ill": {"classes": ["no", "yes"]}}
    assert body["features"]["born"] == {
        "type": "date", "range": ["1900-01-01", "2030-12-31"], "written": ["DD/MM/YYYY"],
    }  # fmt: skip
    assert body["ignore"] == ["person_id"]
    assert unit_of([ColumnAnswer(("person_id",), "unit")]) == "person_id"
    grouped = proposal.to_schema([*ANSWERS, ColumnAnswer(("city",), "feature and group", "Bonn, Kiel")], 3)
    assert grouped["groups"] == {"city": {}}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (ColumnAnswer(("ill",), "ignore"), "target: no column"),
        (ColumnAnswer(("age",), type="categorical", public="0 .. 9"), "age: '0 .. 9' looks like a range"),
        (ColumnAnswer(("city",)), "city: say its public range or values"),
        (ColumnAnswer(("born",), public="1 .. 2"), "born: say how its days are written"),
        (ColumnAnswer(("age",), public="low .. high"), "age: a numeric column has LOW"),
        (ColumnAnswer(("nobody",)), "the file has none called 'nobody'"),
        (ColumnAnswer(("age",), role="king"), "age: role='king'"),
    ],
)
def test_what_must_be_said_is_named(tmp_path, more, says):
    (tmp_path / "people.csv").write_bytes(ROWS)
    with pytest.raises(InputError, match=says):
        SchemaProposal.of_file(tmp_path / "people.csv").to_schema([*ANSWERS, more], 3)


def test_every_step_leads_on(home, drafts):
    draft = looked(home, drafts)
    assert draft.state == COLUMNS
    steps.step(home, drafts, drafts.check(draft, SCHEMA.replace('"yes"', '"ja"'), []))
    assert drafts.get(draft.id, "ana").state == PROBLEMS
    steps.step(home, drafts, drafts.check(draft, SCHEMA, []))
    assert drafts.get(draft.id, "ana").state == READY
    asked = {"name": "people", "epsilon": "1", "delta": "1e-6", "unit": "person_id"}
    steps.step(home, drafts, drafts.register(draft, {**asked, "name": "No name"}))
    refused = drafts.get(draft.id, "ana")
    assert refused.state == READY
    assert "No name" in refused.refusal["message"]
    assert drafts.rows(draft).exists()
    waiting = drafts.register(draft, asked)
    with pytest.raises(WrongState):
        drafts.delete(waiting)
    steps.step(home, drafts, waiting)
    assert drafts.get(draft.id, "ana").state == REGISTERED
    assert not drafts.rows(draft).exists()
    stored = str(drafts.get(draft.id, "ana"))
    assert not any(told in stored for told in ("Kiel", "03/04/1990", "1990-04-03")), "it is forgotten with the rows"
    assert home.ledger.dataset("people").registration.unit.column == "person_id"


@pytest.fixture
def ward(tmp_path):
    """A folder that the operator allowed, with the rows in a partition; and rows elsewhere that nobody may ask for."""
    folder = tmp_path / "incoming" / "ward"
    (folder / "city=Bonn").mkdir(parents=True)
    (folder / "city=Bonn" / "a.csv").write_bytes(b"age,ill\n34,yes\n51,no\n")
    (folder / "_SUCCESS").touch()
    (tmp_path / "elsewhere" / "city=Bonn").mkdir(parents=True)
    for place in ("elsewhere/other.csv", "elsewhere/city=Bonn/a.csv"):
        (tmp_path / place).write_bytes(b"age,ill\n1,SECRET\n")
    return folder


NAMED = "target: {name: ill, classes: ['no', 'yes']}\nrecords: 2\nignore: [city]\n"
NAMED += "features: {age: {type: numeric, range: [0, 120]}}\n"


def test_rows_that_are_named_are_those_that_were_allowed(home, drafts, ward, tmp_path):
    """At every step, whatever is put into the folder or in its way meanwhile; and none of it is told."""
    allowed, elsewhere = [tmp_path / "incoming"], tmp_path / "elsewhere"

    def link(place, to):
        def act():
            kept = place.with_name("kept")
            if place.exists():
                place.rename(kept)
            place.symlink_to(to)
            return lambda: (place.unlink(), kept.exists() and kept.rename(place))

        return act

    def fifo():
        os.mkfifo(ward / "b.csv")
        return (ward / "b.csv").unlink

    acts = [
        link(ward / "b.csv", elsewhere / "other.csv"), link(ward / "city=Bonn" / "a.csv", elsewhere / "other.csv"),
        link(ward / "city=Bonn", elsewhere / "city=Bonn"), link(ward, elsewhere), link(ward.parent, elsewhere),
        link(ward / "b.csv", ward / "city=Bonn" / "a.csv"), link(ward / "b.csv", "/dev/zero"), fifo,
    ]  # fmt: skip
    draft = drafts.begin_at("ana", str(ward), allowed)
    for state, check in ((LOOKING, None), (CHECKING, NAMED)):
        if check is not None:
            draft = drafts.check(drafts.get(draft.id, "ana"), check, [])
        for act in acts:
            undo = act()
            steps.step(home, drafts, drafts.get(draft.id, "ana"))
            stopped = drafts.get(draft.id, "ana")
            undo()
            assert stopped.refusal["message"].startswith("path: "), stopped
            assert "SECRET" not in str(stopped)
            drafts.change(stopped, state=state, refusal=None)
        steps.step(home, drafts, drafts.get(draft.id, "ana"))
        draft = drafts.get(draft.id, "ana")
        assert (draft.refusal, draft.problems) == (None, [])
    assert draft.state == READY
    assert not (drafts.folder / draft.id / "named").exists()
    with drafts.opened_rows(draft) as rows:  # a file that is changed for a link while it is read
        link(ward / "city=Bonn" / "a.csv", elsewhere / "other.csv")()
        assert [path.name for path in rows.iterdir()] == ["city=Bonn"]
        assert b"34,yes" in (rows / "city=Bonn" / "a.csv").read_bytes()


def test_what_cannot_be_named(drafts, ward, tmp_path):
    allowed, elsewhere = [tmp_path / "incoming"], tmp_path / "elsewhere" / "other.csv"
    (ward / ".hidden").symlink_to(elsewhere)  # no rows are looked for in it
    (tmp_path / "incoming" / "nothing").mkdir()
    (tmp_path / "incoming" / "to").symlink_to(ward)
    first = [drafts.begin_at("ana", str(tmp_path / "incoming" / name), allowed) for name in ("nothing", "to")]
    assert [draft.path for draft in first] == [str(tmp_path / "incoming" / "nothing"), str(ward)]
    (ward / "b.csv").symlink_to(elsewhere)
    (tmp_path / "incoming" / "out").symlink_to(elsewhere)
    for path, problem in (
        (ward, "there is a link in it"), (ward / "b.csv", "must lie"), (tmp_path / "incoming" / "out", "must lie"),
        (ward / "none.csv", "no such file"), (ward / ".." / ".." / "elsewhere", "must lie below"), ("ward", "must lie"),
        ("/dev/zero", "must lie below"), (f"{ward}/a\0b", "must lie below"), ("/", "must lie below"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=problem):
            drafts.begin_at("ana", str(path), allowed)
    with pytest.raises(InputError, match="must be a file"):
        drafts.begin_at("ana", "/dev/null", [Path("/dev")])


def test_a_step_that_was_cut_is_told(home, drafts):
    """It began, and its process ended; the next one does not begin it again, but says so."""
    cut = {"refusal": {"code": "bad_input", "message": steps.CUT, "details": {}}}
    for state, after in ((LOOKING, UNREADABLE), (CHECKING, COLUMNS), (REGISTERING, READY)):
        draft = looked(home, drafts)
        drafts.check(draft, SCHEMA, [])
        steps.step(home, drafts, drafts.change(draft, state=state, asked={"name": "none"}, **cut))
        found = drafts.get(draft.id, "ana")
        assert (found.state, found.refusal["message"]) == (after, steps.CUT)
        drafts.delete(found)
    assert home.ledger.datasets() == []


def test_a_registration_that_was_entered_before_the_cut_is_known(home, drafts):
    draft = looked(home, drafts)
    steps.step(home, drafts, drafts.check(draft, SCHEMA, []))
    asked = {"name": "people", "epsilon": "1", "delta": "1e-6", "unit": "person_id"}
    waiting = drafts.register(draft, asked)
    steps.step(home, drafts, waiting)
    cut = {"code": "bad_input", "message": steps.CUT, "details": {}}
    steps.step(home, drafts, drafts.change(waiting, state=REGISTERING, refusal=cut))
    assert drafts.get(draft.id, "ana").state == REGISTERED


class Harmful(SchemaProposal):
    """What looks at a file, as a decoder that its bytes have taken over."""

    @classmethod
    def of_file(cls, path, look=True, form=None):
        kept = []
        while path.name == "memory.csv":
            kept.append(bytearray(1 << 20))
        while path.name == "time.csv":
            sum(range(10_000))
        while path.name == "sleep.csv":
            time.sleep(1)
        return SchemaProposal.of_file(path, look)


def test_what_harms_its_reader_is_ended_and_nobody_waits_for_it(home, drafts, monkeypatch):
    """Each step within its bounds, and callers in turns: who brought what is honest is not behind who did not."""
    monkeypatch.setattr(steps, "SchemaProposal", Harmful)
    monkeypatch.setattr(steps, "reading_seconds", lambda size: 0)
    monkeypatch.setattr(steps, "STEP_SECONDS", 6.0)
    monkeypatch.setattr(steps, "STEP_BYTES", 300 << 20)
    bad = [drafts.begin("eve", f"{name}.csv", len(ROWS), 1000) for name in ("memory", "time", "sleep")]
    good = drafts.begin("ana", "people.csv", len(ROWS), 1000)
    for draft in (*bad, good):
        drafts.append(draft, 0, ROWS)
    order = []
    monkeypatch.setattr(steps, "ConfinedFork", lambda *about: (order.append(len(order)), ConfinedFork(*about))[1])
    steps.work(home.path)
    found = [drafts.get(draft.id, draft.by) for draft in (*bad, good)]
    assert [draft.state for draft in found] == [UNREADABLE] * 3 + [COLUMNS]
    assert {draft.refusal["message"].partition(" ")[0] for draft in found[:3]} == {"it"}  # was not done, takes more
    assert 4 < len(order) <= 7  # one for each, and one more where it was cut and could not say so
    assert not drafts.is_asked()


@pytest.mark.slow
def test_long_texts_that_repeat_are_read_once_each(tmp_path):
    """Of 3 kB that stood for 2 GB, whether or not the file says that its texts are of a dictionary."""
    count = 600
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["z" * 3_000_000]))
    table = {"x": [at / count for at in range(count)], "c": texts, "y": ["a", "b"] * (count // 2), "d": ["7"] * count}
    pq.write_table(pa.table(table), tmp_path / "said.parquet", compression="zstd")
    plain = pa.table({**table, "c": texts.cast(pa.large_string())})
    pq.write_table(plain, tmp_path / "unsaid.parquet", compression="zstd", store_schema=False, data_page_size=1 << 30)
    feather.write_feather(pa.table(table), tmp_path / "said.feather", compression="zstd")
    schema = parse_schema(
        b"target: {name: y, classes: [a, b]}\nrecords: 600\nfeatures:\n  x: {type: numeric, range: [0, 1]}\n"
        b"  c: {type: categorical, values: [p, q], other: expected}\n"
        b"  d: {type: numeric, range: [0, 9], decimal: ','}\n"
    )

    def read():
        for path in sorted(tmp_path.glob("*.*")):
            assert path.suffix == ".feather" or path.stat().st_size < 10_000
            proposal = SchemaProposal.of_file(path)
            assert (proposal.features.keys(), proposal.ignore) == ({"x", "y", "d"}, {"c": "free text"})
            assert check_file(schema, path).problems == []
            folder = tmp_path / f"of-{path.stem}{path.suffix[1:]}"
            folder.mkdir()
            packed = pack(path, schema, Unit(), folder=folder)
            assert np.array_equal(packed.bins[1], [2] * count)
            for columns in read_columns(path, schema.features, schema):
                assert set(map(len, columns["c"])) == {3_000_000}

    assert run_confined(Bounds(300 << 20, 20, maps=True), 120.0, read)


def test_drafts_are_bounded_and_swept(home, drafts, monkeypatch):
    with pytest.raises(InputError, match="1 to 10 bytes"):
        drafts.begin("ana", "a.csv", 11, 10)
    found = [drafts.begin("ana", "a.csv", 9, 10) for _ in range(5)]
    with pytest.raises(WrongState, match="has 5"):
        drafts.begin("ana", "a.csv", 9, 10)
    with pytest.raises(UnknownName):
        drafts.get(found[0].id, "bob")
    with pytest.raises(UnknownName):
        drafts.get("../../keys", "ana")
    old = time.time() - KEPT_SECONDS - 60
    os.utime(drafts.folder / found[0].id / "draft.json", (old, old))
    drafts.sweep()
    assert {each.id for each in drafts.all()} == {each.id for each in found[1:]}
    with pytest.raises(UnknownName):
        drafts.append(found[0], 0, b"a")


def test_parts_come_in_order_and_again(home, drafts):
    draft = drafts.begin("ana", "a.csv", 6, 10)
    with pytest.raises(WrongState) as refused:
        drafts.append(draft, 2, b"cd")
    assert refused.value.details["received"] == 0
    assert drafts.append(draft, 0, b"abc").received == 3
    assert drafts.append(draft, 0, b"abc").received == 3  # its answer was lost
    with pytest.raises(InputError, match="there are more"):
        drafts.append(draft, 3, b"defg")
    assert drafts.append(draft, 3, b"def").state == LOOKING
    assert drafts.rows(draft).read_bytes() == b"abcdef"
    assert drafts.is_asked()


@pytest.mark.parametrize(
    ("cells", "kind", "decimal", "thousands", "missing"),
    [
        (["2\u00a0741,66", "600,5", "NC"], "numeric", ",", " ", {"NC"}),
        (["1'234.50", "3"], "numeric", ".", "'", set()),
        (["1.234,56", "12", "-"], "numeric", ",", ".", {"-"}),
        (["1,234,567", "12"], "numeric", ".", ",", set()),
        (["1,234.5", "1,5"], "text", ".", "", set()),
        (["1 234", "1'234"], "text", ".", "", set()),
        (["4,31 %", "5\u00a0%", "7"], "numeric", ",", "", set()),
        (["4 kg", "5 g"], "text", ".", "", set()),
        (["?", "n/c"], "empty", ".", "", {"?", "n/c"}),
        (["Bonn", "unknown"], "text", ".", "", set()),  # in a category that may be a word like others
        (["north", "NA", "N/A"], "text", ".", "", {"NA", "N/A"}),  # as R writes a category that is missing
        (["A11", "A12"], "text", ".", "", set()),  # codes, and no amperes
        (["11 A", "12 A"], "numeric", ".", "", set()),
        (["1.234,56", "0,00", "0,52"], "numeric", ",", ".", set()),  # a noughth before the fraction's mark alone
    ],
)
def test_marks_between_thousands_and_words_for_a_missing_value_are_seen(cells, kind, decimal, thousands, missing):
    form = form_of(cells)
    assert (form.kind, {*form.missing}) == (kind, missing)
    assert (form.written.decimal, form.written.thousands) == (decimal, thousands)


def form_of(cells):
    column = Cells()
    column.add(pa.array(cells))
    return find_forms({"a": column})["a"]


def test_a_category_proposes_that_na_is_missing(tmp_path):
    (tmp_path / "people.csv").write_text("area,y\nnorth,1\nNA,0\nsouth,1\n")
    assert SchemaProposal.of_file(tmp_path / "people.csv").features["area"]["missing_words"] == ["NA"]


@pytest.mark.parametrize(("rows", "different", "reason"), [(300, 200, "texts that hardly repeat"), (300, 100, None)])
def test_texts_that_nobody_lists_are_no_category(tmp_path, rows, different, reason):
    lines = (f"Case {at % different}/B,1\n" for at in range(rows))
    (tmp_path / "people.csv").write_text(f"docket,y\n{''.join(lines)}")
    proposal = SchemaProposal.of_file(tmp_path / "people.csv")
    assert (proposal.ignore.get("docket"), "docket" in proposal.features) == (reason, reason is None)


def test_how_cells_are_written_is_said_and_checked(tmp_path):
    (tmp_path / "people.csv").write_bytes(ROWS)
    proposal = SchemaProposal.of_file(tmp_path / "people.csv")
    said = ColumnAnswer(("age",), public="0 .. 9000", decimal=",", thousands="blank", missing_words="NC, ?")
    born = ColumnAnswer(("born",), public="1900-01-01 .. 2030-12-31", written="DD/MM/YYYY, YYYYMMDD")
    named = ColumnAnswer(("born",), public="1900-01-01 .. 2030-12-31", written="MON DD, YYYY")
    assert proposal.to_schema([*ANSWERS, named], 3)["features"]["born"]["written"] == ["MON DD, YYYY"]
    body = proposal.to_schema([*ANSWERS[1:2], born, ANSWERS[3], said], 3)["features"]
    marks = {"decimal": ",", "thousands": " ", "missing_words": ["NC", "?"]}
    assert {name: body["age"][name] for name in marks} == marks
    assert body["born"]["written"] == ["DD/MM/YYYY", "YYYYMMDD"]
    for wrong, says in (
        (ColumnAnswer(("age",), public="0 .. 9", decimal=";"), "age: decimal=';': must be one of . , either"),
        (ColumnAnswer(("age",), public="0 .. 9", thousands=" "), "age: thousands=' ': must be one of none, blank"),
        (
            ColumnAnswer(("born",), public="1900-01-01 .. 2030-12-31", written="DDMMYY"),
            "born: DDMMYY: say `first_year`",
        ),
        (ColumnAnswer(("born",), public="1900-01-01 .. 2030-12-31"), "born: say how its days are written"),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            proposal.to_schema([*ANSWERS, wrong], 3)


def test_one_column_names_the_person_and_the_registration_says_the_same(tmp_path):
    (tmp_path / "people.csv").write_bytes(ROWS)
    proposal = SchemaProposal.of_file(tmp_path / "people.csv")
    said = [*ANSWERS, ColumnAnswer(("person_id",), "unit")]
    assert "person_id" in proposal.to_schema(said, 3)["ignore"]
    with pytest.raises(InputError, match="one column names the person; person_id, city are said to"):
        proposal.to_schema([*said, ColumnAnswer(("city",), "unit")], 3)
    stored = [{"columns": ["person_id"], "role": "unit"}, {"columns": ["age"], "role": "feature"}]
    for same in ("person_id", "person_id=patient", None):
        require_same_unit(stored, same)
    require_same_unit(stored[1:], "record")
    for other in ("record", "age", "age=person_id"):
        with pytest.raises(InputError, match="the columns say that person_id names the person") as refused:
            require_same_unit(stored, other)
        assert refused.value.details["answers"] == ["--unit person_id"]


def test_lines_say_what_the_columns_are(tmp_path):
    (tmp_path / "people.csv").write_bytes(ROWS.replace(b"city", b"age: of"))
    groups = SchemaProposal.of_file(tmp_path / "people.csv").groups()
    lines = write_lines(groups, {})
    assert lines.splitlines() == [
        "age: 0 .. 120",
        "age: of:",
        "born: 1900-01-01 .. 2030-12-31",
        "ill:",
        "person_id: ignore",
    ]
    text = "age: of: Bonn, target\nage: 0 .. 99\n\nborn: leave out\nill: target no, yes leave-out\nperson_id: unit"
    said = {answer["columns"][0]: (answer["role"], answer["public"]) for answer in read_lines(groups, text)}
    assert said == {
        "age: of": ("feature", "Bonn, target"), "age": ("feature", "0 .. 99"), "born": ("ignore", ""),
        "ill": ("target", "no, yes leave-out"), "person_id": ("unit", ""),
    }  # fmt: skip
    answers = {tuple(answer["columns"]): answer for answer in read_lines(groups, text)}
    assert read_lines(groups, write_lines(groups, answers)) == sorted(
        answers.values(), key=lambda answer: [group.columns[0] for group in groups].index(answer["columns"][0])
    )
    for wrong, says in (("nobody: 1 .. 2", "line 1: must begin"), ("age: 1 .. 2\nage: 1 .. 3", "line 2: age stands")):
        with pytest.raises(InputError, match=says):
            read_lines(groups, wrong)


def test_a_file_is_looked_at_again_in_the_encoding_that_is_said(home, drafts):
    rows = ROWS.replace(b"Bonn", "Köln".encode("cp1252")).replace(b"city", "Städte".encode("cp1252"))
    draft = looked(home, drafts, rows=rows)
    drafts.look_again(draft, {"encoding": "cp1251", "delimiter": ","})
    steps.step(home, drafts, drafts.get(draft.id, "ana"))
    again = drafts.get(draft.id, "ana")
    assert (again.state, again.proposal["format"]) == (COLUMNS, {"encoding": "cp1251"})
    assert "Stдdte" in again.proposal["features"]
    drafts.look_again(draft, {"encoding": "euc-jp", "delimiter": ","})
    steps.step(home, drafts, drafts.get(draft.id, "ana"))
    assert drafts.get(draft.id, "ana").state == UNREADABLE
    drafts.look_again(draft, {"encoding": "cp1252", "delimiter": ","})
    steps.step(home, drafts, drafts.get(draft.id, "ana"))
    assert "Städte" in drafts.get(draft.id, "ana").proposal["features"]


def test_a_file_without_a_header_is_looked_at_again_by_the_names_that_are_said(home, drafts):
    _, *lines = ROWS.splitlines(keepends=True)
    names = ROWS.split(b"\n")[0].decode().split(",")
    draft = looked(home, drafts, rows=b"|a title\n" + b"".join(lines))
    drafts.look_again(draft, {"encoding": "utf-8", "delimiter": ",", "columns": names, "skip": 1})
    steps.step(home, drafts, drafts.get(draft.id, "ana"))
    again = drafts.get(draft.id, "ana")
    assert (again.state, again.proposal["format"]) == (COLUMNS, {"columns": names, "skip": 1})
    assert {*again.proposal["features"], *again.proposal["ignore"]} == {*names}


# What the draft says of how cells are written, what a person chooses where it leaves that open, and what is then read.
LOOKS = {
    "three digits after each comma": (
        ["1,234", "56,789"], {"decimal": FILL_IN}, {"thousands ,": [1234, 56789], "decimal ,": [1.234, 56.789]}
    ),
    "three digits after each point": (
        ["1.234", "5.000"], {"decimal": FILL_IN}, {"thousands .": [1234, 5000], "decimal .": [1.234, 5]}
    ),
    "three digits after a comma, one after a point": (
        ["1,234", "2.5"], {"decimal": FILL_IN}, {"thousands ,": [1234, 2.5], "decimal either": [1.234, 2.5]}
    ),
    "a comma that is no thousands'": (["1,234", "0,500"], {"decimal": ","}, {"": [1.234, 0.5]}),
    "a point that is no thousands'": (["1.234", "12.5"], {}, {"": [1.234, 12.5]}),
    "both marks": (["1,234.5", "7"], {"thousands": ","}, {"": [1234.5, 7]}),
    "both marks, the other way": (["1.234,5", "7"], {"decimal": ",", "thousands": "."}, {"": [1234.5, 7]}),
    "blanks and a comma": (["2\u00a0741,66", "7"], {"decimal": ",", "thousands": " "}, {"": [2741.66, 7]}),
    "apostrophes": (["1'234", "7"], {"thousands": "'"}, {"": [1234, 7]}),
    "per cent": (["4,31 %", "5 %"], {"decimal": ",", "unit_mark": "%"}, {"": [4.31, 5]}),
    "money": (["1 200 €", "7 €"], {"thousands": " ", "unit_mark": "€"}, {"": [1200, 7]}),
    "marks for nothing": (["?", "5", "n/a"], {"missing_words": ["?", "n/a"]}, {"": [None, 5, None]}),
    "a mark for nothing among days": (
        ["-", "14.03.2014"], {"written": ["DD.MM.YYYY"], "missing_words": ["-"]}, {"": [None, "2014-03-14"]}
    ),
    "months by name": (
        ["14 mars 2014", "1 août 2014"], {"written": ["DD MON YYYY"]}, {"": ["2014-03-14", "2014-08-01"]}
    ),
    "two digits for the year": (
        ["31/12/24", "01/02/49"], {"written": ["DD/MM/YY"], "first_year": FILL_IN},
        {"1925": ["2024-12-31", "1949-02-01"], "1950": ["2024-12-31", "2049-02-01"]},
    ),
    "two digits for everything": (
        ["01/02/24"], {"written": FILL_IN, "first_year": FILL_IN},
        {"DD/MM/YY": ["2024-02-01"], "MM/DD/YY": ["2024-01-02"]},
    ),
    "a clock of twelve hours": (["2014-03-14 10:30 PM"], {}, {"": ["2014-03-14T22:30:00"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_a_draft_says_how_cells_are_written_and_asks_where_they_do_not_say(tmp_path, name):
    cells, declared, chosen = LOOKS[name]
    path = tmp_path / "rows.csv"
    path.write_text("a;y\n" + "".join(f'"{cell}";{"uv"[at % 2]}\n' for at, cell in enumerate(cells)), "utf-8")
    proposal = SchemaProposal.of_file(path)
    proposal = SchemaProposal.from_json(json.loads(json.dumps(proposal.to_json())))
    told = {key: value for key, value in proposal.features["a"].items() if key not in ("type", "range", "bins")}
    assert told == declared
    if FILL_IN in declared.values():
        with pytest.raises(SchemaError, match="still FILL-IN"):
            parse_schema(proposal.to_yaml("rows.csv", True).encode())
        [line] = [line for line in proposal.groups() if line.columns == ("a",)]
        assert (line.choices or ("1925", "1950")) == tuple(chosen)
        shown = {each.choice: each.meant for each in line.question.readings}
        for choice, meant in chosen.items():
            values = {cell: f"{value:.15g}" if isinstance(value, float | int) else value
                      for cell, value in zip(cells, meant, strict=True)}  # fmt: skip
            assert [*shown.get(choice, ())] == [values[cell] for cell in line.question.cells if choice in shown]
    days, moments = "1900-01-01 .. 2050-01-01", "1900-01-01T00:00:00 .. 2050-01-01T00:00:00"
    public = {"numeric": "0 .. 90000", "date": days, "datetime": moments}
    for choice, meant in chosen.items():
        year = (choice if choice.isdigit() else "1950") if "first_year" in declared else ""
        written = "" if choice.isdigit() else choice
        said = ColumnAnswer(("a",), public=public[proposal.features["a"]["type"]], written=written, first_year=year)
        body = proposal.to_schema([said, ColumnAnswer(("y",), "target", "u, v")], 9)
        schema = parse_schema(yaml.safe_dump(body).encode())
        assert check_file(schema, path).problems == []
        [feature] = schema.features
        [columns] = read_columns(path, [feature], schema)
        values = [None if value != value else value for value in columns["a"].tolist()]
        assert [value if value is None or isinstance(each, float | int) else feature.text(value)
                for value, each in zip(values, meant, strict=True)] == meant  # fmt: skip


def draft_of(folder, text, **said):
    (folder / "rows.csv").write_text(text, "utf-8")
    return SchemaProposal.of_file(folder / "rows.csv", **said)


def test_names_are_told_from_rows_by_the_columns_below_them(tmp_path):
    """Years, nothing and `null` may be names where others are words above values; a first person's row is no names."""
    rows = "".join(f"town{at},{at}.5,{at + 1}.25,{at},yes\n" for at in range(20))
    for header in ("town,2019,2020,2021,y", "town,null,2020,n,y", "<<,true,no,a,y"):
        proposal = draft_of(tmp_path, f"{header}\n{rows}")
        assert {*proposal.features, *proposal.ignore} == {*header.split(",")}
    for header in ("Bonn,34,0.5,7,yes", "Bonn,34,0.5,n/a,yes", "Bonn,2019,0.5,2020,yes"):
        for look in (True, False):
            with pytest.raises(DataError, match="the first line must be a header") as refused:
                draft_of(tmp_path, f"{header}\n{rows}", look=look)
            assert "34" not in str(refused.value)
    assert [*draft_of(tmp_path, f'"a\n(EUR)",b\u200bc,x,x,y\n{rows}').features] == ["a (EUR)", "bc", "x", "x_2", "y"]


def test_a_unit_is_what_ids_look_like(tmp_path):
    """A `member` of yes and no, or of fractions, is no person; a member's number is."""
    for cells, named in ((("ja", "nein"), False), (("1,5 kg", "20 kg"), False), (("M001", "M002"), True)):
        rows = "".join(f'"{cells[at % 2]}{at // 4 if named else ""}";{"uv"[at % 2]}\n' for at in range(40))
        proposal = draft_of(tmp_path, f"member;y\n{rows}")
        assert (proposal.people == ("member",), "member" in proposal.ignore) == (named, named)
        assert named or proposal.features["member"].get("measure", False) == (cells[0] == "1,5 kg")


def test_what_can_be_read_in_two_ways_is_shown_to_the_steward_and_stands_in_no_draft(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("born,rent,ill,y\n03/04/2021,1.234,0,u\n05/06/2021,9.876,1,v\n")
    assert run(["schema", "draft", str(tmp_path / "rows.csv"), "--data"]) == 0
    draft, told = capsys.readouterr()
    for cells in (
        ("03/04/2021", "2021-04-03", "2021-03-04"), ("1.234", "1234", "1.234"), ("0", "no", "0", "a word"),
    ):  # fmt: skip
        assert re.search(r"\s+".join(map(re.escape, cells)), told), cells
        assert not any(cell in draft for cell in cells if len(cell) > 6)
    assert "{type: boolean} # or {type: numeric, range: [0, 1], bins: 2} or" in draft


def test_what_may_be_of_two_types_is_asked_with_both_readings(tmp_path):
    days = ["20240131", "19991224", "20240229"]
    votes, notes = ["T", "F", "N"], ["12", "(1)", "7", "(2)"]
    for cells, kind, readings in (
        (days, "date", {"date": ("2024-01-31", "1999-12-24", "2024-02-29"), "numeric": tuple(days)}),
        (votes, "categorical", {"categorical": ("a word",) * 3, "boolean": ("no", "no", "yes")}),
        (notes, "numeric", {"numeric": ("-1", "-2"), "notes": ("missing", "missing")}),
        (["20240131", "20241301"], "numeric", None), (["20240131", "2024"], "numeric", None),
        (["(1)", "(20.5)"], "numeric", None), (["T", "F", "t"], "boolean", None), (["Y", "N"], "boolean", None),
    ):  # fmt: skip
        text = "a;y\n" + "".join(f"{cell};{'uv'[at % 2]}\n" for at, cell in enumerate(cells))
        proposal = draft_of(tmp_path, text)
        question = proposal.questions.get("a")
        assert (proposal.features["a"]["type"], question is None) == (kind, readings is None), cells
        for reading in () if question is None else question.readings:
            assert reading.meant == readings[reading.choice]
            ends = {"range": [-99, 99_999_999]} if reading.declared["type"] == "numeric" else {}
            ends = {"range": ["1900-01-01", "2050-01-01"]} if reading.declared["type"] == "date" else ends
            body = {
                "target": {"name": "y", "classes": ["u", "v"]},
                "records": 9,
                "features": {"a": {**reading.declared, **ends}},
                "format": dict(proposal.format),
            }
            assert check_file(parse_schema(yaml.safe_dump(body).encode()), tmp_path / "rows.csv").problems == []


@pytest.mark.parametrize(("cell", "is_asked"), [("", True), ("NA", True), ("v", False)])
def test_a_target_may_be_missing_where_a_cell_is(tmp_path, cell, is_asked):
    """It is a question of the draft, which nobody answers by an edit of another line."""
    text = draft_of(tmp_path, f"a;y\n1;u\n2.5;v\n3;{cell}\n").to_yaml("rows.csv", True)
    assert ("missing: FILL-IN" in text) == is_asked
    for answer in ("leave-out", "refuse"):
        said = text.replace("name: FILL-IN, classes: FILL-IN", "name: y, classes: [u, v]").replace(
            "missing: FILL-IN", f"missing: {answer}"
        )
        said = said.replace("records: FILL-IN", "records: 3").replace("[FILL-IN, FILL-IN]", "[0, 9]")
        said = re.sub(r'  "y": .*\n', "", said)
        assert parse_schema(said.encode()).only.leave_out == (is_asked and answer == "leave-out")
