"""Every door has an example, and it is what a real server answers: the whole story is told again and compared."""

from __future__ import annotations

import json

import jsonschema
import pytest
from rest_story import SHOWN, label, told

from serving.app import DOORS
from serving.rest.openapi import examples, openapi

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    return told(tmp_path_factory.mktemp("story"))


def shape(value):
    """Which names and kinds there are; of a list its first, of texts and numbers nothing more."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def differ(one, other, where=""):
    """Where two shapes differ. What is null in one of them, and a list that is empty there, may be anything."""
    if "NoneType" in (one, other) or [] in (one, other) or one == other:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        gone = [f"{where}/{key}" for key in one.keys() ^ other.keys()]
        return gone + [
            each for key in one.keys() & other.keys() for each in differ(one[key], other[key], f"{where}/{key}")
        ]
    if isinstance(one, list) and isinstance(other, list):
        return differ(one[0], other[0], f"{where}/0")
    return [where or "/"]


def test_every_door_has_an_example_that_a_server_gives(heard):
    """python tests/helpers/rest_story.py writes them anew."""
    assert [label(door) for door in SHOWN if label(door) not in heard.examples] == []
    assert list(examples()) == [label(door) for door in SHOWN]
    stale = {}
    for door in SHOWN:
        now, kept = heard.examples[label(door)], examples()[label(door)]
        assert now["response"]["type"] == kept["response"]["type"], label(door)
        assert kept["response"]["type"] in (door.media, *door.also)
        for part in ("request", "response"):
            assert (part in now) == (part in kept), (label(door), part)
            found = differ(shape(now.get(part, {})), shape(kept.get(part, {})))
            if found:
                stale[f"{label(door)}: {part}"] = found
    assert stale == {}


def test_what_was_answered_is_as_it_is_described(heard):
    for door in SHOWN:
        if door.media == "application/json":
            jsonschema.validate(heard.whole[label(door)], door.gives)
        request = heard.examples[label(door)].get("request", {"type": ""})
        if request["type"] == "application/json" and door.takes is not None:
            jsonschema.validate(request["body"], door.takes)
            jsonschema.validate(examples()[label(door)]["request"]["body"], door.takes)


def test_the_description_shows_them():
    """In each operation, with what its address said; cut texts stay within what a page shows."""
    for path, item in openapi(DOORS)["paths"].items():
        for method, operation in item.items():
            kept = examples()[f"{method.upper()} {path}"]
            answers = operation["responses"][str(next(iter(operation["responses"])))]["content"]
            assert answers[kept["response"]["type"]]["example"] == kept["response"]["body"]
            if "request" in kept:
                asked = operation["requestBody"]["content"][kept["request"]["type"]]
                assert asked["example"] == kept["request"]["body"]
            said = {each["name"]: each.get("example") for each in operation["parameters"]}
            assert all(said[name] for name in said if f"{{{name}}}" in path), path
    assert max(len(json.dumps(each)) for each in examples().values()) < 9_000


def test_a_stale_example_is_found():
    """The comparison sees a name that went, one that came, and a kind that changed; and not other values."""
    one = {"model": "a", "rows": [{"age": 1}], "left": None}
    assert differ(shape(one), shape({"model": "b", "rows": [{"age": 2.5}, 3], "left": {"x": 1}})) == []
    for other in (
        {"model": "a", "rows": [{"age": 1}]},
        {**one, "more": 1},
        {**one, "rows": [{"age": "1"}]},
        {**one, "model": 1},
    ):
        assert differ(shape(one), shape(other)), other
