"""Canonical JSON, base64 and decimals: round trips by law, refusals by table."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from dpserve_verify.formats.canonical import (
    MAX_DEPTH,
    CanonicalError,
    Flat,
    decimal_string,
    decode,
    decode_base64,
    decode_canonical,
    encode,
    encode_base64,
    exact_integer,
    exact_object,
    exact_text,
    parse_decimal,
)

KEYS = st.text(st.characters(max_codepoint=127), max_size=6)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_round_trip(value):
    raw = encode(value)
    assert decode_canonical(raw) == value
    assert encode(decode_canonical(raw)) == raw
    assert raw.isascii()
    assert json.loads(raw) == value


ASCII = st.text(st.characters(max_codepoint=126), max_size=12)  # RFC 8785 writes all else as it is; \x7f too
ASCII_VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | ASCII,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ASCII, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(ASCII_VALUES)
def test_an_independent_writer_of_rfc_8785_gives_the_same_bytes(value):
    assert encode(value) == rfc8785.dumps(value)


@given(VALUES)
def test_beyond_ascii_the_independent_writer_says_the_same_in_other_bytes(value):
    assert decode(rfc8785.dumps(value)) == decode(encode(value)) == value


def test_known_bytes():
    value = {"b": [1, True, None, {}], "a": 'é\u2028\n"\\', "B": -5, "": "\x7f"}
    assert encode(value) == b'{"":"\\u007f","B":-5,"a":"\\u00e9\\u2028\\n\\"\\\\","b":[1,true,null,{}]}'
    assert encode((1, (2,))) == b"[1,[2]]"


@pytest.mark.parametrize(
    "value",
    [0.5, float("nan"), {"a": 1.0}, 2**53, -(2**53), b"x", {1: 2}, {"é": 1}, {None: 1}, {"a"}, "\ud800", Decimal(1)],
)
def test_encode_refuses(value):
    with pytest.raises(CanonicalError):
        encode(value)


def nested(depth):
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"1.0",
        b"1e3",
        b"-0.0",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"9007199254740992",
        b"-9007199254740992",
        b"9" * 5000,
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":1}x',
        b'{"a":1}{}',
        b'{"a":1}\0',
        b"[1,]",
        b"01",
        b"'a'",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\n"',
        b"\xef\xbb\xbf1",
        '"a"'.encode("utf-16"),
        '{"é":1}'.encode(),
        nested(33),
        nested(30_000),
        b'{"a":' * 10_000,
    ],
)
def test_decode_refuses(raw):
    with pytest.raises(CanonicalError):
        decode(raw)


def test_decode_takes_the_deepest_and_the_largest():
    assert encode(decode(nested(32))) == nested(32)
    assert decode(b"9007199254740991") == 2**53 - 1
    with pytest.raises(CanonicalError, match="deep"):
        encode(json.loads(nested(33)))


@pytest.mark.parametrize(
    "raw", [b' {"a":1}', b'{"a":1}\n', b'{"a": 1}', b'{"b":1,"a":2}', b'"\\u0061"', b'"\\u00E9"', '"é"'.encode(), b"-0"]
)
def test_another_spelling_is_read_but_is_not_canonical(raw):
    decode(raw)
    with pytest.raises(CanonicalError, match="canonical"):
        decode_canonical(raw)


def test_size_limit_counts_bytes():
    assert len(encode("x" * 65_533)) == 65_535
    for call in (lambda: encode("x" * 65_534), lambda: decode(b'"' + b"x" * 65_534 + b'"')):
        with pytest.raises(CanonicalError, match="65535"):
            call()
    assert decode(encode("x" * 65_534, limit=70_000), limit=70_000) == "x" * 65_534
    with pytest.raises(CanonicalError, match="at most"):
        decode(b"[" + b"1," * 5_000_000 + b"1]")


def test_a_cycle_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(CanonicalError, match="deep"):
        encode(value)


def test_what_is_looked_at_once_is_refused_as_everything_else_is():
    flat = Flat({"pure": "0.5", "rdp": {"8.9": "1"}, "unbounded": 0, "none": None})
    for odd in ({"a": 0.5}, {"é": 1}, {1: 1}, {"a": 2**53}, {"a": {"b": {}}}, {"a": [[]]}, {"a": "\ud800"}):
        with pytest.raises(CanonicalError):
            Flat(odd)
    with pytest.raises(TypeError):
        flat["pure"] = 0.5
    value, plain = flat, dict(flat)
    for depth in range(MAX_DEPTH - 1):
        assert encode(value) == encode(plain), depth
        value, plain = [value], [plain]
    for each in (value, plain):
        with pytest.raises(CanonicalError, match="deep"):
            encode(each)


def test_error_is_the_users_and_has_its_code():
    with pytest.raises(CanonicalError) as caught:
        decode(b"{")
    assert (caught.value.code, caught.value.exit_code) == ("json_invalid", 2)


def test_typed_access():
    assert exact_object({"a": 1}, ("a",), "thing") == {"a": 1}
    assert (exact_text("x", "t"), exact_integer(0, "n")) == ("x", 0)
    for bad in ({}, {"a": 1, "b": 2}, {"b": 1}, [], None):
        with pytest.raises(CanonicalError, match="thing"):
            exact_object(bad, ("a",), "thing")
    for bad in (True, -1, "1", None):
        with pytest.raises(CanonicalError, match="n="):
            exact_integer(bad, "n")
    with pytest.raises(CanonicalError, match="t="):
        exact_text(1, "t")


@given(st.binary(max_size=40))
def test_base64_round_trip(raw):
    assert decode_base64(encode_base64(raw)) == raw


@pytest.mark.parametrize("text", ["QQ", "QR==", "QQ==\n", " QQ==", "QQ= =", "QQ===", "-_8=", "é", "Q", "QQ==QQ=="])
def test_base64_has_one_spelling(text):
    with pytest.raises(CanonicalError):
        decode_base64(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**15), max_value=10**15, places=12))
def test_decimal_round_trip(x):
    text = decimal_string(x)
    assert parse_decimal(text, negative=True) == x
    assert decimal_string(parse_decimal(text, negative=True)) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ("0", "0"),
        ("-0.00", "0"),
        ("0E+1000000", "0"),
        ("1E+2", "100"),
        ("1.500", "1.5"),
        ("100", "100"),
        ("1E-6", "0.000001"),
        ("-2.50", "-2.5"),
        ("1234567890.12345678901234567890123456789", "1234567890.12345678901234567890123456789"),
    ],
)
def test_decimal_string(x, text):
    assert decimal_string(Decimal(x)) == text


@pytest.mark.parametrize("x", ["NaN", "Infinity", "-Infinity", "sNaN", "1E+40", "1E-40", "1E+999999", "1E-999999"])
def test_decimal_string_refuses(x):
    with pytest.raises(CanonicalError):
        decimal_string(Decimal(x))


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", ".5", "1.", "01", "00", "1_0", " 1", "1\n", "١", "NaN", "0x1", "1,5", "1" * 41]
)
def test_parse_decimal_refuses(text):
    with pytest.raises(CanonicalError):
        parse_decimal(text)


def test_parse_decimal_takes_plain_decimals():
    assert parse_decimal("0.50") == Decimal("0.5")
    assert parse_decimal("1" * 40) == Decimal("1" * 40)
    assert parse_decimal("-1.5", negative=True) == Decimal("-1.5")
    with pytest.raises(CanonicalError):
        parse_decimal(1.5)
