"""The published schema of each request and the code that reads it admit the same bodies."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from in_process import Site
from jsonschema import Draft202012Validator, ValidationError, validators
from ledgers import copy, place, prepared

from accountant.home import Home
from dpserve import types
from dpserve_verify.errors import InputError
from serving.app import DOORS
from serving.operations.grants import GrantRequest
from serving.operations.notes import NoteRequest
from serving.operations.totals import QuotaRequest, TotalRequest
from serving.rest.openapi import openapi
from training.requests import (
    ChargeRequest,
    EvaluationRequest,
    JobRequest,
    ProfileRequest,
    QueryRequest,
    Reasoned,
    ScheduleRequest,
)
from training.requests.base import json_schema, request_fields
from training.requests.fields import DELTA_PATTERN, matches
from training.requests.registration import RegistrationRequest

BASES = {
    JobRequest: {"dataset": "adult", "epsilon": "0.5"},
    ScheduleRequest: {"name": "weekly", "dataset": "adult", "epsilon": "0.5"},
    EvaluationRequest: {"model": "adult", "dataset": "adult", "epsilon": "0.5"},
    ProfileRequest: {"dataset": "adult", "epsilon": "0.5"},
    QueryRequest: {"dataset": "adult", "select": "select count(*) from adult"},
    RegistrationRequest: {"name": "adult"},
    GrantRequest: {"principal": "ana", "scope": "train", "on": "everything"},
    Reasoned: {"reason": "left"},
    TotalRequest: {"reason": "more", "epsilon": "2"},
    QuotaRequest: {"reason": "four", "analyst": "ana", "share": "0.5"},
    ChargeRequest: {"mechanism": "table", "why": "published"},
    NoteRequest: {},
}
DOOR = {
    "/v1/jobs": JobRequest, "/v1/plans": JobRequest, "/v1/schedules": ScheduleRequest,
    "/v1/evaluations": EvaluationRequest, "/v1/plans/evaluations": EvaluationRequest,
    "/v1/profiles": ProfileRequest, "/v1/plans/profiles": ProfileRequest,
    "/v1/answers": QueryRequest, "/v1/plans/answers": QueryRequest,
}  # fmt: skip
DECIMALS = [
    *("0.5", 0.5, "5e-1", "+0.5", " 0.5", "0.5 ", ".5", "5.", "٥", "0_5", "1e400", "-0", "NaN", "Infinity", "", "0", 0),
    *("0.1234567891234", "1e-9", 1e-9, "1e-10", "50e-2", "1e2", "1.01e2", "1E+2", 100, "100.1", 101, -1, "0.5\n"),
    *("1.5e-05", "1e-30", "1e-31", "0E-10", "000.25", "0.0000000010", "9" * 1001, "1e0", 1, "0.999", "1e-5", "-1e-5"),
    *("+.5", "+.5e0", "-.0", "+.0", "+00.5", "+5e-1"),
]
NAMES = ["n", "auto", "N", "a b", "a" * 64, "a" * 65, "a@1", "..", "a..b", "-a", "a\n", "a@champion", "a@0", "a@2", "ä"]
TEXTS = ["y", "", "Y", "x" * 1000, "x" * 1001, "holdout", "training", "week", "1,500"]
BLOCKS = ["all", "ALL", "1", "1-1", "last:1", "last:01", "last: 1", " 1", "0", "last:99999", "last:100000", "1-", "3-7"]
LISTS = [
    [], ["a"], ["a", "a"], [""], ["a b"], ["A"], ["a" * 64], ["a" * 65], [1], [None], ["a,b"], [" a"], ["ä"],
    [f"x{i}" for i in range(8)], [f"x{i}" for i in range(9)], [["a", "b"]], [["a"]], [["a", 1]], [["a", "b", "c"]],
]  # fmt: skip
PARAMETERS = [
    {}, {"rounds": 50}, {"rounds": "50"}, {"rounds": 50.0}, {"rounds": True}, {"rounds": None}, {"rounds": ""},
    {"rounds": " 50"}, {"rounds": "5e1"}, {"rounds": "٥٠"}, {"rounds": [50]}, {"rounds": ["a"]}, {"rounds": {}},
    {"rounds": "9" * 40}, {"rounds": "9" * 41}, {"rounds": "1e41"}, {"rounds": 10**39}, {"rounds": -(10**40)},
    {"rounds": "1e99999999"}, {"rounds": "x" * 41}, {"features": ["a", 1]}, {"features": "x" * 16_385},
]  # fmt: skip
TUNINGS = [
    {}, {"grid": {}}, {"grid": {"rounds": [50, 100]}}, {"grid": {"rounds": []}}, {"grid": {"rounds": 50}},
    {"grid": {"rounds": [50, 100]}, "runs": 5}, {"grid": {"rounds": [50, 100]}, "runs": "5"}, {"grid": 3},
    {"grid": {"rounds": [50, 100]}, "runs": "0"}, {"grid": {"rounds": [50, 100]}, "runs": "64.5"}, {"runs": 5},
    {"grid": {"rounds": [[3]]}}, {"grid": {"rounds": [*range(65)]}}, {"grid": {"rounds": ["default", None]}, "x": 1},
    {"grid": {"rounds": [50, 100]}, "runs": "5.5"}, {"grid": {"rounds": [50, 100]}, "runs": None},
]  # fmt: skip
ODD = [None, True, False, 5, 1.5, {}, [], "true"]
KEYS = ["k", "k" * 200, "k" * 201, "ä", "a b", "\n", "a\0", "\0"]
VALUES = [*DECIMALS, *NAMES, *TEXTS, *BLOCKS, *LISTS, *PARAMETERS, *TUNINGS, *ODD, *KEYS]


def to_the_end(validator, pattern, instance, schema):
    """In JSON Schema `$` is the very end of a text; in Python a newline may follow."""
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance, re.ASCII):
        yield ValidationError(f"{instance!r:.40} does not match")


Validator = validators.extend(Draft202012Validator, {"pattern": to_the_end})


def admits(kind, body) -> bool:
    return Validator(json_schema(kind)).is_valid(body)


def reads(kind, body) -> bool:
    """As a door reads what came: decimals are exact."""
    try:
        kind.of(json.loads(json.dumps(body), parse_float=Decimal))
    except InputError:
        return False
    return True


def beyond_a_schema(body) -> bool:
    """What a JSON Schema cannot say: how many decimals a number has, and that blocks end before they begin."""
    fine = (body.get(name) for name in ("epsilon", "evaluate", "person_epsilon") if type(body.get(name)) is float)
    first, _, last = str(body.get("blocks")).partition("-")
    backwards = first.isdecimal() and last.isdecimal() and int(last) < int(first)
    return (
        any(round(each, 9) != each for each in fine)
        or backwards
        or any(0 < _number(body.get(name)) < 1e-30 for name in ("delta", "person_delta"))
    )


def _number(value) -> float:
    return value if type(value) is float else 0.0


@pytest.mark.parametrize("kind", BASES)
def test_schema_and_code_admit_the_same_values_of_every_field(kind):
    base, known = BASES[kind], [field.name for field in request_fields(kind)]
    assert admits(kind, base)
    assert reads(kind, base)
    differ = []
    for name in (*known, "nosuch"):
        for value in VALUES:
            body = {**base, name: value}
            if admits(kind, body) != reads(kind, body) and not beyond_a_schema(body):
                differ.append((name, value, admits(kind, body)))
    assert differ == []
    for name in base:
        without = {key: value for key, value in base.items() if key != name}
        assert not admits(kind, without)
        assert not reads(kind, without)


@settings(max_examples=400, deadline=None)
@given(st.text("0123456789.eE+- \n", max_size=14), st.sampled_from(["epsilon", "delta", "evaluate"]))
@example("1.123456789e0", "epsilon")
@example("9.9999999999e1", "epsilon")
@example("1.0000000001e2", "epsilon")
@example("0e999", "delta")
@example("9.99e-31", "delta")
def test_schema_and_code_admit_the_same_texts_of_decimals(text, name):
    body = {"dataset": "adult", "epsilon": "1", name: text}
    assert admits(JobRequest, body) == reads(JobRequest, body), text


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.floats(1e-9, 100), st.decimals("1e-9", "100", places=9).map(float), st.integers(-1, 101)))
def test_what_programs_spell_of_a_float_is_taken_as_a_text_too(number):
    """Python's own spelling of a number that is taken as a number: 1.5e-05 among them."""
    body = {"dataset": "adult", "epsilon": number}
    if not beyond_a_schema(body):
        spelled = {**body, "epsilon": str(number)}
        assert admits(JobRequest, body) == reads(JobRequest, body) == reads(JobRequest, spelled)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*BASES]), st.data())
def test_schema_and_code_admit_the_same_bodies(kind, data):
    known = [field.name for field in request_fields(kind)]
    changes = data.draw(st.dictionaries(st.sampled_from(known), st.sampled_from(VALUES), max_size=3))
    body = {**BASES[kind], **changes}
    assert admits(kind, body) == reads(kind, body) or beyond_a_schema(body), body


def test_the_description_has_the_schemas_of_the_requests():
    paths = openapi(DOORS)["paths"]
    for path, kind in DOOR.items():
        told = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert told["properties"].keys() == json_schema(kind)["properties"].keys()
        for name, shape in json_schema(kind)["properties"].items():
            assert told["properties"][name].get("anyOf") == shape.get("anyOf")
            assert told["properties"][name]["description"]


def test_a_client_says_every_field():
    """`dpserve` is installed where no pydantic is: its types repeat the names, and are held to them here."""
    said = {
        JobRequest: (types.JobFields, {"dataset", "learner", "epsilon"}),
        ScheduleRequest: (types.ScheduleFields, {"name", "dataset", "epsilon"}),
        EvaluationRequest: (types.EvaluationFields, {"model", "dataset", "epsilon"}),
        ProfileRequest: (types.ProfileFields, {"dataset", "epsilon"}),
        QueryRequest: (types.QueryFields, {"dataset", "select"}),
        ChargeRequest: (types.ChargeFields, {"mechanism", "why"}),
    }
    for kind, (fields, named) in said.items():
        assert {*fields.__annotations__} | named == {field.name for field in request_fields(kind)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    with pytest.MonkeyPatch.context() as patch:
        home = Home.open(place(copy(prepared(), folder / "home")))
        patch.setenv("DPSERVE_HOME", str(home.path))
        site = Site(home, DOORS)
        site.secret = site.token("ana", "train")
        yield site


WORLD = re.compile(
    r"parameters \[|target|evaluate: dataset|blocks=|dataset=adult: |grid|rounds=|features|delta=.* (has|below 1/rec)"
    r"|too small for|json: an integer|part=holdout: no rows|columns=|pairs=|around=|start=|group|scores|against"
)


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/schedules", "/v1/plans/evaluations", "/v1/plans/profiles"])
def test_the_doors_refuse_what_the_schema_refuses(site, path):
    """And take what it admits, but for what only the home knows: which names there are, what a dataset keeps aside."""
    kind = DOOR[path]
    base = BASES[kind] | ({"dry_run": True} if kind is ScheduleRequest else {})
    pools = {
        "epsilon": DECIMALS, "delta": DECIMALS, "evaluate": DECIMALS, "learner": NAMES, "model": NAMES,
        "blocks": BLOCKS,
        "target": TEXTS, "parameters": PARAMETERS, "tuning": TUNINGS, "idempotency_key": KEYS,
        "columns": LISTS, "pairs": LISTS, "part": TEXTS, "against": NAMES, "name": NAMES, "every": TEXTS,
    }  # fmt: skip
    for name in (field.name for field in request_fields(kind) if field.name != "dry_run"):
        for value in [*pools.get(name, ()), *ODD]:
            body = {**base, name: value}
            if beyond_a_schema(body):
                continue
            answer = site.bear(site.secret, "POST", path, json=body)
            refused = answer.status_code == 400
            said = answer.json()["error"]["message"] if answer.status_code >= 400 else ""
            assert answer.status_code in (200, 201, 400, 403, 404), (name, value, said)
            if not admits(kind, body):
                assert refused, (name, value)
            elif refused:
                assert WORLD.search(said), (name, value, said)


def test_a_field_that_is_null_is_as_left_out(site):
    for path, body in (
        ("/v1/plans", {**BASES[JobRequest], "learner": None}),
        ("/v1/schedules", {**BASES[ScheduleRequest], "learner": None, "dry_run": True}),
    ):
        answer = site.bear(site.secret, "POST", path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["dataset"] == "adult"


def test_what_is_refused_is_named_by_its_own_name(site):
    answer = site.bear(site.secret, "POST", "/v1/plans", json={**BASES[JobRequest], "evaluate": 0})
    assert answer.json()["error"]["message"] == "evaluate=0: must be > 0"


def test_every_list_of_the_description_says_what_it_holds():
    """Generators of clients leave a door out where one does not, and take the first answer that is described."""
    bare = []

    def look(shape, where):
        if isinstance(shape, dict):
            if "array" in shape.get("type", ()) and not {"items"} & shape.keys():
                bare.append(where)
            for name, value in shape.items():
                if name != "example":
                    look(value, f"{where}/{name}")
        elif isinstance(shape, list):
            for at, value in enumerate(shape):
                look(value, f"{where}/{at}")

    described = openapi(DOORS)
    look(described["paths"], "")
    assert bare == []
    answers = described["paths"]["/predict"]["post"]["responses"]["200"]["content"]
    assert next(iter(answers)) == "application/json"


@pytest.mark.parametrize("text", ["0E-7", "0e5", "0", "1e-6"])
def test_a_delta_as_programs_write_decimals_is_read(text):
    assert matches(DELTA_PATTERN, text)
