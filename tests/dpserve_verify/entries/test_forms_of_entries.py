"""The forms of entries: the published schema and the audit read alike, and both every entry that is sound."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from expected_verdicts import EXPECTED, FOLDER, trust_of

from dpserve_verify.audit.replay import Replay
from dpserve_verify.entries.entry import ReasonForm
from dpserve_verify.entries.kinds import FORMS, json_schema, read_form
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.formats.forms import NotOfTheForm

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "ledger.schema.json"
VALID = jsonschema_rs.Draft202012Validator(json_schema()).is_valid
SOUND = [name for name, each in EXPECTED.items() if (each["kind"], each["verdict"]) == ("ledger", "sound")]
WRONG = [None, True, False, -1, 0, 7, "", "x", "0.5", " ", [], ["x"], [7], {}, {"x": 1}, "a" * 600]


def entries(name):
    return [json.loads(line) for line in (FOLDER / name / "ledger" / "entries.jsonl").read_text().splitlines()]


def fullest():
    """By kind, the ledger and the place of the entry that says most of the sound ones."""
    found = {}
    for name in SOUND:
        for seq, value in enumerate(entries(name)):
            if len(value) > found.get(value["type"], (0,))[0]:
                found[value["type"]] = len(value), name, seq
    return {kind: (name, seq) for kind, (_, name, seq) in found.items()}


def is_read(value):
    try:
        read_form(value["type"], value)
    except DpserveError:
        return False
    return True


def test_the_published_schema_is_that_of_the_code():
    """Made anew by `python -m dpserve_verify.entries.kinds > docs/ledger.schema.json`."""
    assert json.loads(SCHEMA.read_text()) == json_schema()


@pytest.mark.parametrize("name", SOUND)
def test_entries_of_sound_ledgers_are_of_the_schema(name):
    wrong = [value for value in entries(name) if not VALID(value)]
    assert not wrong


@pytest.mark.parametrize("kind", FORMS)
def test_no_field_is_missing_unknown_or_of_another_type(kind):
    """The schema says what the audit does; where a rule reads a field itself, the rule refuses what the schema does."""
    name, seq = fullest()[kind]
    value = entries(name)[seq]
    form = FORMS[kind]
    for key in value:
        cut = {other: each for other, each in value.items() if other != key}
        assert VALID(cut) == (key not in form.required())
        assert key == "type" or is_read(cut) == VALID(cut)
        changed = [{**value, key: each} for each in WRONG]
        assert key == "parameters" or not all(map(VALID, changed)), key
        for each in changed if key != "type" else ():
            assert VALID(each) or not is_read(each) or not is_sound(name, seq, each), (key, each[key])
            assert is_read(each) or not VALID(each), (key, each[key])
    assert not VALID(value | {"more": 1})
    assert not is_read(value | {"more": 1})


def is_sound(name, seq, value):
    """Whether an audit takes the entry behind those before it."""
    replay = Replay(trust_of(name))
    try:
        for place, each in enumerate([*entries(name)[:seq], value]):
            replay.read(place, canonical.encode(each))
    except LedgerInvalid:
        return False
    return True


def test_a_line_says_something():
    """As `str.strip` has it, whatever the alphabet."""
    for code in range(0x10000):
        text = f"{chr(code)}\n"
        try:
            ReasonForm.read({"reason": text, "by": "x"})
        except NotOfTheForm:
            assert not text.strip(), hex(code)
        else:
            assert text.strip(), hex(code)
