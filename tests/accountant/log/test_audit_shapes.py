"""The quick reader of common entries reads them as the strict one does, and leaves all else to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ledgers import bodies, filled, hexes

from accountant.canonical import CanonicalError, decode, decode_canonical, encode
from accountant.log.entry_reader import _ISSUED, _STEP, decode_entry

TIME = "2026-01-31T23:59:59Z"
STEP = {"reservation": 7, "time": TIME, "type": "started"}
COMMITTED = {**STEP, "type": "committed", "released": hexes("numbers")}
ISSUED = {**STEP, "type": "issued", "model": hexes("model"), "name": "adult-1", "statement": hexes("statement")}
PLAIN = [encode(value) for value in (STEP, COMMITTED, ISSUED)]


@pytest.mark.parametrize("body", PLAIN)
def test_the_common_entries_are_known(body):
    assert _STEP.fullmatch(body) or _ISSUED.fullmatch(body)


def test_every_entry_of_a_ledger_is_read_alike():
    known = 0
    for body in bodies(filled()):
        assert decode_entry(body) == decode_canonical(body) == json.loads(body)
        known += bool(_STEP.fullmatch(body) or _ISSUED.fullmatch(body))
    assert known


def read(reader, body: bytes):
    try:
        return json.dumps(reader(body))
    except CanonicalError as error:
        return error.message


EDITS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(0, 4),
        st.sampled_from([b"", b" ", b"\n", b"0", b"9", b"-", b".", b"e", b'"', b"\\", b",", b"{", b"}", b"\xc3\xa9"]),
    ),
    max_size=3,
)


@settings(max_examples=1000)
@given(st.sampled_from(PLAIN), EDITS)
@example(PLAIN[0].replace(b":7", b":07"), [])
@example(PLAIN[0].replace(b":7", b":-0"), [])
@example(PLAIN[0].replace(b":7", b":9007199254740992"), [])
@example(PLAIN[0].replace(b":7", b":900719925474099"), [])
@example(PLAIN[0].replace(b":7", b":7.0"), [])
@example(PLAIN[0] + b"\n", [])
@example(PLAIN[1].replace(b'"released"', b'"reservation"', 1), [])
def test_two_readers_agree(body, edits):
    for at, drop, add in edits:
        body = body[:at] + add + body[at + drop :]
    assert read(decode_entry, body) == read(decode_canonical, body)


def strictly(body: bytes) -> object:
    """Canonical by definition: what it says, spelled again, is the same bytes."""
    value = decode(body)
    if encode(value) != body:
        raise CanonicalError("json: must be canonical (sorted keys, no blanks, ASCII, shortest escapes)")
    return value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\x7f", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=1000)
@given(VALUES, EDITS)
@example([[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]], [])
@example({"a": 1}, [(1, 0, b'"a":1,')])
@example({"a": 1}, [(5, 1, b"1.0")])
@example({"a": 1}, [(5, 1, b"NaN")])
@example({"a": 1}, [(5, 1, b"1e5")])
@example({"a": 1}, [(5, 1, b"9007199254740992")])
@example({"a": 1}, [(5, 1, b"-0")])
@example({"a": "x"}, [(6, 1, b"\x7f")])
@example({"a": 1}, [(7, 0, b" ")])
def test_plain_bytes_are_read_as_all_others(value, edits):
    try:
        body = encode(value)
    except CanonicalError:  # too deep
        body = json.dumps(value, separators=(",", ":")).encode()
    for at, drop, add in edits:
        body = body[:at] + add + body[at + drop :]
    assert read(decode_canonical, body) == read(strictly, body)
