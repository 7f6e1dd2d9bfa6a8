"""Bodies that are tables (Arrow IPC, .npy), packed bodies, JSON whose keys stand twice: read alike, refused alike."""

from __future__ import annotations

import gzip
import io
import json
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from accountant.errors import RecordError
from dpserve_verify.errors import DpserveError, InputError
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.features.text_numbers import Numbers
from models.onnx.runtime import columns_from_records
from serving.http.compression import pack, unpack
from serving.wire.errors import TooLarge, WrongMediaType
from serving.wire.quick_json import quick_json
from serving.wire.request_bodies import strict_json
from serving.wire.tables_in import table_of

FEATURES = (
    NumericFeature("age", (20.0, 40.0)),
    CategoricalFeature("colour", ("red", "green")),
    BooleanFeature("member"),
)
NUMBERS = (FEATURES[0], FEATURES[2])
READS = {"age", "colour", "member"}
RECORDS = [
    {"age": 30, "colour": "red", "member": False},
    {"age": None, "colour": None, "member": None},
    {"age": 50.5, "colour": "zürich \0 🦉", "member": True},
]
DTYPE = [("member", "u1"), ("colour", "<U12"), ("age", "<f4")]


def table(**columns):
    found = pa.Table.from_pylist(RECORDS)
    for name, column in columns.items():
        found = found.set_column(found.schema.get_field_index(name), name, column)
    return found


def stream(found, chunk=2, **options):
    sink = io.BytesIO()
    with ipc.new_stream(sink, found.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(found, max_chunksize=chunk)
    return sink.getvalue()


def file(found):
    sink = io.BytesIO()
    with ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)
    return sink.getvalue()


def npy(array, version=(1, 0)):
    sink = io.BytesIO()
    np.lib.format.write_array(sink, array, version=version)
    return sink.getvalue()


def rows(*cells, dtype=DTYPE):
    return np.array(list(cells), dtype)


def read(raw, features=FEATURES, limit=10):
    return table_of(raw, features, limit).read(features, READS)


def same(one, other):
    return one.keys() == other.keys() and all(list(map(str, one[name])) == list(map(str, other[name])) for name in one)


@pytest.mark.parametrize("write", [stream, file])
@pytest.mark.parametrize(
    "found",
    [
        table(),
        table().select(["member", "age", "colour"]),
        table(colour=table()["colour"].cast(pa.large_string())),
        table(colour=table()["colour"].dictionary_encode()),
        table(age=table()["age"].cast(pa.float32())),
        table(age=pa.array([30, float("nan"), 50.5])),
    ],
)
def test_arrow_gives_what_json_gives(write, found):
    assert same(read(write(found)), columns_from_records(FEATURES, RECORDS, 10))


KNOWN = Numbers({"red": 3.0, "zürich \0 🦉": -1.5, "": 7.0}, 0.25)


@pytest.mark.parametrize(
    "colours", [["red", None, "green", "zürich \0 🦉"], [None] * 4, ["", "red", "x" * 5000, "green"]]
)
def test_arrow_texts_become_the_numbers_that_the_model_makes_of_them(colours):
    plain = pa.array(colours, pa.string())
    kinds = [plain, plain.cast(pa.large_string()), plain.dictionary_encode(), plain.dictionary_encode("encode")]
    wanted = KNOWN.of(np.array([text or "" for text in colours], object)).tolist()
    for column in [*kinds, *([pa.nulls(4)] if colours[0] is None and colours[-1] is None else [])]:
        whole = pa.table({"age": pa.nulls(4), "colour": column, "member": pa.nulls(4)})
        for chunk in (2, 4):
            found = table_of(stream(whole, chunk=chunk), FEATURES, 10).read(FEATURES, READS, {"colour": KNOWN})
            assert found["colour"].dtype == np.float32
            assert found["colour"].tolist() == wanted


@pytest.mark.parametrize(("kind", "size"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int64(), 300)])
def test_dictionaries_of_every_width_and_nulls_in_both_of_their_parts(kind, size):
    texts = [None, *(f"text {i}" for i in range(size - 1))]
    codes = [None, *range(size)]
    found = pa.DictionaryArray.from_arrays(pa.array(codes, kind), pa.array(texts))
    count = len(codes)
    whole = pa.table({"age": pa.nulls(count), "colour": found, "member": pa.nulls(count)})
    read_back = read(stream(whole, chunk=count), limit=count)["colour"].tolist()
    records = [{"age": None, "colour": None if code is None else texts[code], "member": None} for code in codes]
    assert read_back == list(columns_from_records(FEATURES, records, count)["colour"])


def test_columns_of_nulls_and_tables_of_nothing():
    nothing = {name: [None, None] for name in READS}
    wanted = columns_from_records(FEATURES, [dict.fromkeys(READS)] * 2, 10)
    assert same(read(stream(pa.table({name: pa.nulls(2) for name in READS}))), wanted)
    assert same(read(stream(pa.table(nothing, schema=table().schema))), wanted)
    assert {len(column) for column in read(stream(table().slice(0, 0))).values()} == {0}


def test_of_texts_those_that_the_model_reads_come_out():
    assert table_of(stream(table()), FEATURES, 10).read(FEATURES, {"member"}).keys() == {"age", "member"}


def test_npy_of_fields_and_of_plain_numbers():
    found = read(npy(rows((1, "red", 30), (0, "", np.nan))))
    assert (found["age"].tolist()[0], found["member"].tolist(), found["colour"].tolist()) == (30, [1, 0], ["red", ""])
    plain = np.array([[30, 1], [np.nan, np.nan]])
    for array in (plain, np.asfortranarray(plain), plain.astype(">f4")):
        for version in ((1, 0), (2, 0), (3, 0)):
            found = read(npy(array, version), NUMBERS)
            np.testing.assert_equal(found, {"age": np.array([30, np.nan]), "member": np.array([1, np.nan])})
    assert read(npy(np.empty((0, 2))), NUMBERS)["age"].shape == (0,)
    assert read(npy(rows((1, "é", 3), dtype=[("member", "?"), ("colour", ">U3"), ("age", "<i8")])))["colour"][0] == "é"
    assert read(npy(rows((1, "", 3), dtype=[("member", "?"), ("colour", "<U0"), ("age", "<i8")])))["colour"][0] == ""


@pytest.mark.parametrize(
    ("found", "field"),
    [
        (table().drop_columns(["age"]), "age"),
        (table().append_column("size", pa.array([1, 2, 3])), "size"),
        (table(age=pa.array(["30", None, "fifty"])), "age"),
        (table(age=pa.array([True, False, None])), "age"),
        (table(age=pa.array([[1], [2], [3]])), "age"),
        (table(member=pa.array([1, 0, 2])), "member"),
        (table(colour=pa.array([b"red", b"x", None])), "colour"),
        (table(colour=pa.array([1, 2, 3]).dictionary_encode()), "colour"),
    ],
)
def test_columns_that_do_not_fit(found, field):
    with pytest.raises(RecordError) as caught:
        read(stream(found))
    assert caught.value.details["field"] == field


def test_values_that_do_not_fit():
    beyond = read(stream(table(age=pa.array([1, float("inf"), 3]))))["age"], read(npy(rows((1, "", np.inf))))["age"]
    assert [column.max() for column in beyond] == [np.inf, np.inf]  # beyond every cut point, as in a file
    with pytest.raises(RecordError) as caught:
        read(npy(rows((1, "", 3), (2, "", 3))))
    assert caught.value.details == {"record": 1, "field": "member"}
    for point in (0xD800, 0x110000):
        spoilt = rows((1, "ab", 3), (1, "cd", 3))
        spoilt.view("u1").reshape(2, -1)[1, 1:5] = list(point.to_bytes(4, "little"))
        with pytest.raises(RecordError) as caught:
            read(npy(spoilt))
        assert caught.value.details == {"record": 1, "field": "colour"}


def header(text):
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"ARROW1\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        stream(table())[:-40],
        stream(table())[:100],
        stream(table(), compression="zstd"),
        stream(table(colour=table()["colour"].dictionary_encode()), compression="lz4"),
        b"\x93NUMPY",
        b"\x93NUMPY\4\0" + b"\0" * 100,
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 2)}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2)}"),
        header("{'descr': '<f8', 'fortran_order': 0, 'shape': (0, 2)}"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (0, 2)}"),
        header("{'descr': ('<f8', (9999999, 9999999)), 'fortran_order': False, 'shape': (0, 2)}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 2), 'more': 1}"),
        header("[" * 9000),
        header("__import__('os')"),
        npy(np.array([["a", "b"]])[0]),
        npy(np.zeros((3, 2, 1))),
        npy(np.zeros(3)),
        npy(np.zeros((3, 2))) + b"\0",
    ],
)
def test_bodies_that_are_neither(raw):
    with pytest.raises(InputError):
        read(raw)


def test_objects_are_never_unpickled():
    sink = io.BytesIO()
    np.save(sink, np.array([[{1}, {2}]], object), allow_pickle=True)
    with pytest.raises(InputError):
        read(sink.getvalue())


def test_tensors_are_no_table():
    sink = pa.BufferOutputStream()
    ipc.write_tensor(pa.Tensor.from_numpy(np.zeros((2, 2))), sink)
    with pytest.raises(InputError):
        read(sink.getvalue().to_pybytes())


def test_too_many_records():
    for raw in (stream(table()), npy(rows(*[(1, "", 3)] * 3))):
        with pytest.raises(TooLarge):
            read(raw, limit=2)
    many = stream(pa.table({name: pa.nulls(1 << 20) for name in READS}), None)  # a million in a few hundred bytes
    assert len(many) < 1000
    with pytest.raises(TooLarge):
        read(many)


def test_a_name_that_stands_twice():
    found = pa.Table.from_arrays([pa.nulls(1)] * 4, names=["age", "colour", "member", "age"])
    with pytest.raises(RecordError):
        read(stream(found))


@given(st.sampled_from([stream(table()), file(table()), npy(rows((1, "red", 30)))]), st.data())
def test_spoilt_bytes_are_answered_or_refused(raw, data):
    spoilt = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 6))):
        spoilt[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(spoilt[: data.draw(st.integers(0, len(raw)))]))
    except DpserveError:
        return
    assert len({len(column) for column in found.values()}) == 1


# Packed bodies


@pytest.mark.parametrize(("encoding", "write"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("", bytes)])
def test_unpacked_is_what_was_packed(encoding, write):
    assert unpack(write(b"abc" * 1000), encoding, 3000) == b"abc" * 1000
    assert unpack(write(b""), encoding, 0) == b""


@pytest.mark.parametrize("write", [gzip.compress, zlib.compress])
def test_packed_bodies_that_are_refused(write):
    encoding = "gzip" if write is gzip.compress else "deflate"
    good = write(b"a" * 1000)
    with pytest.raises(TooLarge):
        unpack(good, encoding, 999)
    for raw in (good[:-1], good + b"x", good + good, b"", b"plain"):
        with pytest.raises(InputError):
            unpack(raw, encoding, 5000)
    with pytest.raises(WrongMediaType):
        unpack(good, "br", 5000)


def test_answers_are_packed_for_who_takes_it():
    raw = b"abc" * 1000
    packed, headers = pack(raw, "gzip, deflate, br")
    assert (gzip.decompress(packed), headers) == (raw, {"Content-Encoding": "gzip"})
    packed, headers = pack(raw, "gzip;q=0, deflate")
    assert (zlib.decompress(packed), headers) == (raw, {"Content-Encoding": "deflate"})
    assert pack(raw, "") == pack(raw, "br") == (raw, {})
    assert pack(b"short", "gzip") == (b"short", {})


# JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "a", "records": [{"age": 1, "age": 2}]}',
        '{"model": "a", "model" : "a", "records": []}',
        '{"a": 1, "b" : 2, "b" : 3, "c": "x\\":"}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": [{"x": {"b": 1,\n"b"\n: 2}}]}',
        '{"a": [[{"b": 1, "b": 2}]]}',
        '{"a": [1, {"b": 1, "b": 2}]}',
        '{"a": 1, "\\u0061": 2}',
    ],
)
def test_a_key_that_stands_twice_is_refused(text):
    json.loads(text)
    with pytest.raises(InputError, match="stands twice"):
        quick_json(text.encode(), 1000)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(alphabet='a":{}, \\\n'),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a": \\', max_size=3), inner, max_size=3)
        ),
    ),
    st.sampled_from([(",", ":"), (", ", " : "), (",\n", ": ")]),
)
def test_quick_json_reads_what_is_json(value, separators):
    assert quick_json(json.dumps(value, separators=separators).encode(), 1000) == value


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a": 1}x'])
def test_what_is_no_json(raw):
    with pytest.raises(InputError):
        quick_json(raw, 1000)


def test_half_a_surrogate_pair_is_no_text():
    """No answer could repeat it, and the message of an error does."""
    assert strict_json(rb'{"a": "\uD83E\udd89"}') == {"a": "\U0001f989"}
    for raw in (rb'{"a": "\ud800"}', rb'{"\uDfff": 1}', rb'{"a": ["\udd89\ud83e"]}'):
        for read in (strict_json, lambda raw: quick_json(raw, 10)):
            with pytest.raises(InputError):
                read(raw)
