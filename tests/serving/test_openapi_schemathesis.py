"""Every door is held to its own description: schemathesis makes requests from it, good and bad, with every scope.

The description is read from the table of doors, so a new door is tested as soon as it is there.
"""

from __future__ import annotations

import copy
import itertools
from functools import cache

import jsonschema
import pytest
import requests
from hypothesis import HealthCheck, Phase, assume, given, settings
from small_home import SCOPES, adult_home, records, serving

from serving.app import DOORS
from serving.rest.openapi import MEANINGS, codes, openapi
from training.jobs import job
from training.requests import JobRequest

pytestmark = [pytest.mark.server, pytest.mark.slow]

EXAMPLES = 10  # of each door, good ones and bad ones, beside those of who may not
LONGEST_ADDRESS = 8000  # characters: HTTP itself refuses more than 64 KB of headers, in plain text or by closing
BEARERS = (None, *SCOPES)  # each asks each door
# Names that there are, so that not every request ends at the first of them.
KNOWN = {
    "dataset": ["adult"],
    "learner": ["lazybb", "ebm", "forest"],
    "model": ["adult", "tree", "adult@1", "tree@champion"],
    "name": ["adult", "tree", "adult@1"],
    "job": ["2", "6"],
    "epsilon": ["0.1", 0.5, 1000],
    "grid": [{"rounds": [5, 10]}],
}


def closed(schema):
    """The same schemas with no room for a field that is not described: the description allows more, we do not."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else {}
    return {**shut, **{key: closed(value) for key, value in schema.items()}}


def acquainted(schema):
    """The same description with KNOWN names among what may be sent, and records that fit."""
    if isinstance(schema, list):
        return [acquainted(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: acquainted(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict):
        found["properties"] = {name: known(name, value) for name, value in found["properties"].items()}
    if isinstance(found.get("name"), str) and "schema" in found:
        found["schema"] = known(found["name"], found["schema"])
    return found


def known(name, schema):
    if name == "records":
        return {**schema, "items": {"anyOf": [{"enum": records(3)}, schema["items"]]}, "maxItems": 3}
    return {"anyOf": [{"enum": KNOWN[name]}, schema]} if name in KNOWN else schema


def description():
    found = copy.deepcopy(openapi(DOORS))
    for item in found["paths"].values():
        for operation in item.values():
            asked = {key: acquainted(operation[key]) for key in ("parameters", "requestBody") if key in operation}
            operation |= {**asked, "responses": closed(operation["responses"])}
    found["components"] = closed(found["components"])
    return found


@cache
def operations():
    import schemathesis  # half a second: not in each process that collects tests

    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})  # we send the tokens
    schema = schemathesis.openapi.from_dict(description(), config=config)
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@cache
def conforms(good):
    """What is asked of every answer, and of those to what is wrong."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    found = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    return found if good else [*found, checks.negative_data_rejection]


LABELS = {f"{door.method} {door.path}": door for door in DOORS if not door.hidden}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Without a process that trains: what is submitted stays in the queue and costs nothing here."""
    folder = tmp_path_factory.mktemp("described")
    home = adult_home(folder, 100)
    for learner, model in (("lazybb", "adult"), ("lazybb-tree", "tree")):
        job.train(home, JobRequest("adult", learner, "0.5", parameters={"rounds": 5}, model=model), by="test")
    with serving(home.path, workers=1, DPSERVE_JOB_WORKERS="0") as found:
        yield found


@pytest.fixture(scope="module")
def session():
    """A connection for each request: one that is kept might be closed just then. No look for a proxy each time."""
    with requests.Session() as found:
        found.trust_env = False
        found.headers["Connection"] = "close"
        yield found


def test_description_is_valid_and_knows_every_error():
    found = openapi(DOORS)
    for schema in found["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert {f"Error{status}" for status in codes()} <= found["components"]["schemas"].keys()
    assert codes().keys() <= MEANINGS.keys()
    assert operations().keys() == LABELS.keys()


def test_every_answer_has_a_shape():
    shapeless = [label for label, door in LABELS.items() if door.gives.keys() <= {"type"} and "json" in door.media]
    assert shapeless == []
    assert closed({"a": [{"type": "object", "properties": {}}]})["a"][0]["additionalProperties"] is False


@pytest.mark.parametrize("good", [True, False], ids=["good", "bad"])
@pytest.mark.parametrize("label", LABELS)
def test_answers_are_as_described(server, session, label, good):
    door, operation = LABELS[label], operations()[label]
    from schemathesis import GenerationMode

    mode = GenerationMode.POSITIVE if good else GenerationMode.NEGATIVE
    told = [body for body in operation.body if body.media_type != "application/octet-stream"]  # of which none is wrong
    if not good and not (told or operation.query):
        return  # whatever stands in the path is a text, and a name that is not known

    may = [scope for scope in BEARERS if not door.scopes or scope in (*door.scopes, "admin")]
    may_not = [scope for scope in BEARERS if scope not in may]
    turns, refused, asked = itertools.cycle(may), iter(may_not), {}

    def answered(case, scope):
        asked[scope] = case
        headers = {"Authorization": f"Bearer {server.tokens[scope]}"} if scope else {}
        url = f"http://127.0.0.1:{server.port}"
        answer = case.call(base_url=url, session=session, headers=headers, timeout=300)
        case.validate_response(answer, checks=conforms(good or scope not in may))
        assert scope in may or answer.status_code == (403 if scope else 401), scope

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        """Each request is made by one who may, or it would end at the door; one of them by each who may not."""
        url = case.as_transport_kwargs(base_url="http://127.0.0.1")
        assume(len(requests.Request("GET", url["url"], params=url["params"]).prepare().url) < LONGEST_ADDRESS)
        answered(case, next(turns))
        for scope in itertools.islice(refused, 1):
            answered(case, scope)

    ask()
    for scope in [scope for scope in BEARERS if scope not in asked]:  # of some doors there are few requests
        answered(next(iter(asked.values())), scope)
