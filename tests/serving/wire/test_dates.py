"""A date or a time asked of a model through every door is the same number, and what is none is refused by name."""

from __future__ import annotations

import io
from datetime import date, datetime, time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from accountant.errors import RecordError
from models.edit.edit_parts import bin_text, part_of
from models.explain.card import model_card
from models.explain.shapes import shape_panels
from models.explain.vega_panels import LIGHT
from models.features.features import DateFeature, MomentFeature, TimeFeature
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel, columns_from_records
from models.parts.votes import Vote
from serving.pages.parts.shapes import inputs, picture
from serving.wire import tables_in, v2_tensors

CAME = DateFeature("came", tuple(float(day) for day in range(18262, 18272)))  # 2020-01-01 and on
LOGGED = MomentFeature("logged", (1577836800.0, 1577836860.0))  # 2020-01-01T00:00:00 and a minute later
AT = TimeFeature("at", (21600.0, 43200.0, 64800.0))
FEATURES = (CAME, LOGGED, AT)
RECORDS = [
    {"came": "2020-01-03", "logged": "2020-01-01T00:00:30", "at": "06:30"},
    {"came": None, "logged": None, "at": None},
    {"came": "2020-01-11", "logged": "2020-01-01 01:01:30+01:00", "at": "23:00:01"},
]
NUMBERS = {"came": [18264, np.nan, 18272], "logged": [1577836830, np.nan, 1577836890], "at": [23400, np.nan, 82801]}


def same(columns):
    assert columns.keys() == NUMBERS.keys()
    for name, numbers in NUMBERS.items():
        assert np.array_equal(np.asarray(columns[name], float), numbers, equal_nan=True), name


def arrow(columns):
    sink, table = io.BytesIO(), pa.table(columns)
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return tables_in.table_of(sink.getvalue(), FEATURES, 10).read(FEATURES, NUMBERS.keys())


def npy(array):
    sink = io.BytesIO()
    np.save(sink, array)
    return tables_in.table_of(sink.getvalue(), FEATURES, 10).read(FEATURES, NUMBERS.keys())


def v2(columns, kind):
    tensors = [{"name": name, "shape": [3], "datatype": kind, "data": cells} for name, cells in columns.items()]
    return v2_tensors.table_of(tensors, b"", FEATURES, 10).read(FEATURES, NUMBERS.keys())


def test_every_door_reads_the_same_number():
    texts = {name: [record[name] for record in RECORDS] for name in NUMBERS}
    same(columns_from_records(FEATURES, RECORDS, 10))
    same(arrow(texts))
    zoned = pa.array([datetime(2020, 1, 1, 0, 0, 30), None, datetime(2020, 1, 1, 0, 1, 30)], pa.timestamp("ms", "UTC"))
    typed = {"came": [date(2020, 1, 3), None, date(2020, 1, 11)], "at": [time(6, 30), None, time(23, 0, 1)]}
    same(arrow({**typed, "logged": zoned}))
    same(v2(texts, "BYTES"))
    same(v2({name: [None if each != each else each for each in numbers] for name, numbers in NUMBERS.items()}, "FP64"))
    raw = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in ("2020-01-03", "", "2020-01-11"))
    tensor = {"name": "came", "shape": [3], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
    assert v2_tensors.table_of([tensor], raw, (CAME,), 10).read((CAME,), {"came"})["came"][2] == 18272
    assert [v2_tensors.datatype_of(each) for each in FEATURES] == ["BYTES"] * 3
    cells = list(zip(*[[text or "" for text in texts[name]] for name in NUMBERS], strict=True))
    same(npy(np.array(cells, [(name, "U30") for name in NUMBERS])))
    same(npy(np.array([NUMBERS[name] for name in NUMBERS]).T))


@pytest.mark.parametrize("came", ["2020-02-30", "01.02.2020", "today", 18264, True, "\ud800"])
def test_what_is_no_date_is_refused_by_record_and_field(came):
    with pytest.raises(
        RecordError, match=r"records\[1\]\.came=.*(not a date written YYYY-MM-DD|must be dates|must be Unicode)"
    ):
        columns_from_records(FEATURES, [RECORDS[0], {**RECORDS[0], "came": came}], 10)
    if isinstance(came, str) and came.isascii():
        with pytest.raises(RecordError, match=r"records\[1\]\.came: not a date written YYYY-MM-DD"):
            v2({**{name: [r[name] for r in RECORDS] for name in NUMBERS}, "came": ["2020-01-03", came, ""]}, "BYTES")
        with pytest.raises(RecordError, match=r"records\[0\]\.came"):
            arrow({"came": [came], "logged": [None], "at": [None]})
    with pytest.raises(RecordError, match="came: holds double; must be dates"):
        arrow({"came": pa.array([18264.0]), "logged": [None], "at": [None]})
    with pytest.raises(RecordError, match="time"):
        arrow({"came": pa.array([time(1)]), "logged": [None], "at": [None]})


def test_a_model_of_dates_answers_by_them_and_speaks_of_them():
    votes = (Vote("above", 0, 4, 3, 0), Vote("above", 1, 0, 1, 0), Vote("above", 2, 1, 1, 0), Vote("is", 0, 11, 1, 0))
    ensemble = VotingEnsemble(FEATURES, "y", ("no", "yes"), votes, 0.5)
    columns, model = columns_from_records(FEATURES, RECORDS, 10), OnnxModel(to_onnx(ensemble, {}))
    assert model.inputs == dict.fromkeys(NUMBERS, "tensor(double)")
    assert model.infer(columns)[0].tolist() == ensemble.predict(columns).tolist()
    assert model.infer(columns)[0].tolist()[0] != model.infer(columns)[0].tolist()[2]
    told = [line.test for line in ensemble.vote_table()]
    assert "came > 2020-01-05" in told
    assert "at > 12:00:00" in told
    assert "logged > 2020-01-01T00:00:00" in told
    words = {"epsilon": "1", "delta": "0", "relation": "add-remove", "unit": "one record"}
    assert "| came | date | dates, told apart at 10 cut points from 2020-01-01 to 2020-01-10 |" in model_card(
        ensemble, words
    )
    assert bin_text(CAME, 3) == "2020-01-03..2020-01-04"
    assert part_of(CAME, "2020-01-03..2020-01-05") == [3, 4]
    drawn = picture(ensemble)["features"]
    assert {each["feature"]: each["calendar"] for each in drawn} == {"came": "date", "logged": "datetime", "at": "time"}
    assert any(
        bin["label"] == "above 2020-01-05" for each in drawn for shape in each["shapes"] for bin in shape["bins"]
    )
    assert [(each.kind, each.start) for each in inputs(FEATURES)] == [
        ("date", "2020-01-06"), ("datetime", "2020-01-01T00:01:00"), ("time", "12:00:00"),
    ]  # fmt: skip
    assert any("utcFormat" in str(panel.spec) for panel in shape_panels(ensemble, LIGHT))
