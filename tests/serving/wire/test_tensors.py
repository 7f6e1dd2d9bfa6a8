"""Tensors of the open inference protocol: read as records are, refused as records are, written as the protocol says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from accountant.errors import RecordError
from dpserve_verify.errors import DpserveError, InputError
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from serving.wire.errors import TooLarge
from serving.wire.v2_tensors import datatype_of, table_of, tensor_of

FEATURES = (NumericFeature("age", (20.0, 40.0)), CategoricalFeature("colour", ("red",)), BooleanFeature("member"))
AGE = {"name": "age", "shape": [2, 1], "datatype": "FP64", "data": [30.5, None]}
COLOUR = {"name": "colour", "shape": [2], "datatype": "BYTES", "data": ["red", None]}
MEMBER = {"name": "member", "shape": [2], "datatype": "BOOL", "data": [True, None]}
GOOD = (AGE, COLOUR, MEMBER)


def read(*tensors, binary=b"", limit=10):
    return table_of(list(tensors), binary, FEATURES, limit).read(FEATURES, {"age", "colour", "member"})


def changed(tensor, **fields):
    return {name: value for name, value in {**tensor, **fields}.items() if value is not ...}


def packed(tensor, raw, kind=...):
    kind = tensor["datatype"] if kind is ... else kind
    return changed(tensor, data=..., datatype=kind, parameters={"binary_data_size": len(raw)}), raw


def test_json_tensors():
    found = read(*GOOD)
    np.testing.assert_equal(found["age"], [30.5, np.nan])
    np.testing.assert_equal(found["member"], [1, np.nan])
    assert found["colour"].tolist() == ["red", ""]
    nested = changed(AGE, data=[[30.5], [None]])
    np.testing.assert_equal(read(nested, COLOUR, MEMBER)["age"], [30.5, np.nan])
    nothing = [changed(each, shape=[0], data=[]) for each in GOOD]
    assert {len(column) for column in read(*nothing).values()} == {0}


@pytest.mark.parametrize(
    "kind", ["FP16", "FP32", "FP64", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64"]
)
def test_binary_numbers(kind):
    dtype = np.dtype(kind.lower().replace("fp", "float"))
    tensor, raw = packed(AGE, np.array([30, 7], dtype).tobytes(), kind)
    assert read(COLOUR, tensor, MEMBER, binary=raw)["age"].tolist() == [30, 7]


@pytest.mark.parametrize(
    ("content_type", "cells"),
    [
        ("str", ["red", "blue"]),
        ("base64", ["cmVk", "Ymx1ZQ=="]),
        ("pd_json", ['"red"', '"blue"']),
        ("datetime", ["red", "blue"]),
    ],
)
def test_texts_as_codecs_write_them(content_type, cells):
    about = {"content_type": content_type, "headers": {"x": "y"}, "anything": None}
    found = read(changed(AGE, parameters={"content_type": "np"}), changed(COLOUR, data=cells, parameters=about), MEMBER)
    assert found["colour"].tolist() == ["red", "blue"]


def test_a_missing_text_of_a_data_frame_is_missing():
    found = read(AGE, changed(COLOUR, data=['"red"', "null"], parameters={"content_type": "pd_json"}), MEMBER)
    assert found["colour"].tolist() == ["red", ""]


def test_binary_texts_and_booleans_in_the_order_of_the_inputs():
    texts = serialize_byte_tensor(np.array(["zürich", ""], object)).item()
    (member, ones), (colour, words) = packed(MEMBER, b"\1\0"), packed(COLOUR, texts)
    found = read(member, AGE, colour, binary=ones + words)
    assert (found["colour"].tolist(), found["member"].tolist()) == (["zürich", ""], [1, 0])


@pytest.mark.parametrize(
    ("tensor", "details"),
    [
        (changed(AGE, data=[1, True]), {"record": 1, "field": "age"}),
        (changed(AGE, data=[1, "2"]), {"record": 1, "field": "age"}),
        (changed(AGE, data=[1, [2]]), {"record": 1, "field": "age"}),
        (changed(AGE, datatype="INT64", data=[1, 2.5]), {"record": 1, "field": "age"}),
        (changed(AGE, data=[1, 10**400]), {"field": "age"}),
        (changed(AGE, datatype="BYTES", data=["1", "two"]), {"record": 1, "field": "age"}),
        (changed(AGE, datatype="INT8", data=[1, 300]), {"field": "age"}),
        (changed(AGE, datatype="UINT64", data=[1, -1]), {"field": "age"}),
        (changed(AGE, datatype="BOOL", data=[True, True]), {"field": "age"}),
        (changed(AGE, datatype="FP8"), {"field": "age"}),
        (changed(MEMBER, datatype="FP32", data=[1, 2]), {"record": 1, "field": "member"}),
        (changed(MEMBER, data=[True, 1]), {"record": 1, "field": "member"}),
        (changed(COLOUR, data=["red", 1]), {"record": 1, "field": "colour"}),
        (changed(COLOUR, data=["red", "\ud800"]), {"record": 1, "field": "colour"}),
        (changed(COLOUR, name="shade"), {"field": "shade"}),
        (changed(COLOUR, data=["cmVk", "no"], parameters={"content_type": "base64"}), {"record": 1, "field": "colour"}),
        (
            changed(COLOUR, data=['"red"', "{"], parameters={"content_type": "pd_json"}),
            {"record": 1, "field": "colour"},
        ),
        (
            changed(COLOUR, data=['"red"', "7"], parameters={"content_type": "pd_json"}),
            {"record": 1, "field": "colour"},
        ),
        (changed(COLOUR, datatype="FP64", data=[1, 2]), {"field": "colour"}),
    ],
)
def test_values_that_do_not_fit(tensor, details):
    others = [each for each in GOOD if each["name"] != tensor["name"]]
    with pytest.raises(RecordError) as caught:
        read(tensor, *others)
    assert caught.value.details == details


def test_a_feature_that_is_missing():
    with pytest.raises(RecordError, match="colour: is missing"):
        read(AGE, MEMBER)


@pytest.mark.parametrize(
    "tensor",
    [
        changed(AGE, shape=[3]),
        changed(AGE, shape=[1]),
        changed(AGE, shape=[2, 2]),
        changed(AGE, shape=[2, 1, 1]),
        changed(AGE, shape=[]),
        changed(AGE, shape=[-1]),
        changed(AGE, shape=[True]),
        changed(AGE, shape=["2"]),
        changed(AGE, shape=...),
        changed(AGE, data=...),
        changed(AGE, data=[1]),
        changed(AGE, data=[[1, 2]] * 2),
        changed(AGE, data="12"),
        changed(AGE, more=1),
        changed(AGE, parameters={"binary_data_size": 8}),
        changed(AGE, parameters={"shared_memory_region": "x"}),
        changed(AGE, data=..., parameters={"binary_data_size": 16, "shared_memory_byte_size": 16}),
        changed(COLOUR, name="age", parameters={"content_type": "image"}),
        changed(COLOUR, name="age", parameters={"content_type": ["str"]}),
        changed(AGE, data=..., parameters={"binary_data_size": -8}),
        changed(AGE, data=..., parameters={"binary_data_size": True}),
        changed(AGE, data=..., parameters={"binary_data_size": 16}),
        changed(AGE, name="colour", datatype="BYTES", data=["a", "b"]),
        "age",
    ],
)
def test_tensors_that_are_none(tensor):
    with pytest.raises(InputError):
        read(tensor, COLOUR, MEMBER)


@pytest.mark.parametrize(
    ("tensor", "kind", "raw"),
    [
        (AGE, "FP64", b"\0" * 15),
        (AGE, "FP64", b"\0" * 24),
        (COLOUR, "BYTES", b"\1\0\0\0a"),
        (COLOUR, "BYTES", b"\1\0\0\0a\xff\xff\xff\xffb"),
        (COLOUR, "BYTES", b"\1\0\0\0a\1\0\0\0bc"),
        (COLOUR, "BYTES", b"\1\0\0\0a\1\0\0\0\xff"),
        (MEMBER, "BOOL", b"\1\2"),
    ],
)
def test_bytes_that_are_none(tensor, kind, raw):
    binary, _ = packed(tensor, raw, kind)
    with pytest.raises(InputError):
        read(binary, *(each for each in GOOD if each is not tensor), binary=raw)


def test_bytes_that_belong_to_nothing_and_infinity():
    with pytest.raises(InputError, match="belong to no input"):
        read(*GOOD, binary=b"\0")
    tensor, raw = packed(AGE, np.array([1, np.inf]).tobytes())
    assert read(tensor, COLOUR, MEMBER, binary=raw)["age"].tolist() == [1, np.inf]  # beyond every cut point


def test_too_many_records_before_their_bytes_are_looked_at():
    with pytest.raises(TooLarge):
        read(changed(AGE, shape=[10**18], data=[]))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw):
    tensor, _ = packed(COLOUR, raw)
    try:
        found = read(AGE, tensor, MEMBER, binary=raw)
    except DpserveError:
        return
    assert len(found["colour"]) == 2


def test_what_is_written_is_what_a_client_reads():
    texts = np.array(["a,b", "é"], object)
    head, raw = tensor_of("label", texts, binary=True)
    assert head == {"name": "label", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}}
    assert [each.decode() for each in deserialize_bytes_tensor(raw)] == ["a,b", "é"]
    for dtype, kind in (("f4", "FP32"), ("f8", "FP64"), ("i8", "INT64")):
        values = np.array([[1, 2], [3, 4]], dtype)
        head, raw = tensor_of("x", values.T, binary=True)
        assert head["datatype"] == kind
        assert np.frombuffer(raw, dtype).reshape(head["shape"]).tolist() == values.T.tolist()
        assert tensor_of("x", values, binary=False)[0]["data"] == [1, 2, 3, 4]
    assert [datatype_of(feature) for feature in FEATURES] == ["FP64", "BYTES", "FP64"]
