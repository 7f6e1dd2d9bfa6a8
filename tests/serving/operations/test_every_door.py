"""One list of examples of every operation: the home, REST and the client answer the same, refuse the same in the same
words, and let nobody in who lacks its scopes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import ledgers
import pytest
from in_process import BASE, Site

from accountant.access.grants import Access, access_of
from accountant.access.tokens import SCOPES
from accountant.errors import Forbidden
from accountant.home import Home
from dpserve import Client, ServiceError
from dpserve_verify.errors import DpserveError
from serving.app import DOORS
from serving.operations import Caller, Operation, at_home, to_request
from serving.operations.grants import add_grant, list_grants, list_tokens, revoke_grant, show_grant
from serving.operations.notes import (
    show_dataset_note,
    show_model_note,
    write_dataset_note,
    write_model_note,
)
from serving.pages.all import PAGES
from serving.wire.errors import status_of
from serving.wire.list_parts import Part

OPERATIONS = [door.operation for door in DOORS if door.operation is not None]
LONG = "x" * 1500


@dataclass(frozen=True)
class Example:
    """What is asked: `body` as JSON, the others as values. `code`: of the error that every door answers with."""

    asked: Operation[..., Any]
    values: dict[str, Any] = field(default_factory=dict)
    code: str = ""

    def __str__(self) -> str:
        return f"{self.asked.function.__name__} {json.dumps(self.values, default=repr)[:60]}"


def of(asked: Operation[..., Any], code: str = "", **values: Any) -> Example:
    return Example(asked, values, code)


TEAM = {"principal": "team-a", "scope": "train", "on": {"dataset": "adult"}}
EXAMPLES = [
    of(add_grant, body=TEAM),
    of(add_grant, body={**TEAM, "on": "everything", "expires": "2099-01-31"}),
    of(add_grant, body={**TEAM, "principal": "token:shop"}),
    *(
        of(add_grant, "bad_input", body={**TEAM, **change})
        for change in (
            {"scope": "root"}, {"principal": "*"}, {"principal": ""}, {"principal": "p" * 201}, {"on": "all"},
            {"on": {"dataset": 3}}, {"on": {"model": "../x"}}, {"expires": "2020-01-01"}, {"why": "x"}, {"scope": 5},
        )
    ),
    of(add_grant, "unknown_name", body={**TEAM, "on": {"dataset": "none"}}),
    of(list_grants, part=Part()),
    of(list_grants, part=Part(q="team", limit=1)),
    of(list_grants, part=Part(), principal="shop"),
    of(list_grants, "bad_input", part=Part(after="99999")),
    of(show_grant, grant="TEAM"),
    of(show_grant, "unknown_name", grant=99999),
    of(revoke_grant, "bad_input", grant="TEAM", body={"reason": " "}),
    of(revoke_grant, "bad_input", grant="TEAM", body={"reason": "r" * 501}),
    of(revoke_grant, "unknown_name", grant=99999, body={"reason": "x"}),
    of(revoke_grant, grant="TEAM", body={"reason": "left"}),
    of(list_tokens, part=Part()),
    of(list_tokens, part=Part(q="sho", limit=1)),
    *(
        of(asked, code, name=name, **body)
        for read, write in ((show_dataset_note, write_dataset_note), (show_model_note, write_model_note))
        for asked, code, name, body in (
            (read, "", "adult", {}),
            (read, "unknown_name", "nobody", {}),
            (write, "", "adult", {"body": {"text": LONG, "tags": ["a", "b"]}}),
            (write, "", "adult", {"body": {"tags": []}}),
            (write, "bad_input", "adult", {"body": {"text": "x" * 2001}}),
            (write, "bad_input", "adult", {"body": {"tags": ["<"]}}),
            (write, "bad_input", "adult", {"body": {"tags": [""]}}),
            (write, "unknown_name", "nobody", {"body": {"text": "x"}}),
            (read, "", "adult", {}),
        )
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = ledgers.copy(ledgers.trained(), tmp_path_factory.mktemp("operations") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(path))
        found = Site(Home.open(), [*DOORS, *PAGES])
        found.secrets = {scope: found.token(f"the-{scope}", scope) for scope in SCOPES}
        found.token("shop", "predict")
        yield found


def client(site: Site) -> Client:
    """The client, whose requests are answered in this process."""

    def answer(request: httpx.Request) -> httpx.Response:
        headers = dict(request.headers)
        came = site.ask(request.method, request.url.raw_path.decode(), headers, content=request.content)
        return httpx.Response(came.status_code, headers=came.headers, content=came.content)

    return Client(BASE, site.secrets["admin"], retries=0, transport=httpx.MockTransport(answer))


def without_body(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "body"}


def at_the_home(site: Site, asked: Operation[..., Any], values: dict[str, Any]) -> Any:
    """As the command line asks."""
    if "body" in values:
        values = {**values, "body": asked.parameters["body"].of(values["body"])}
    rights = access_of(site.home.ledger, "token:the-admin")
    return at_home(asked, Caller(site.home, rights), **values).to_json()


def over_rest(site: Site, asked: Operation[..., Any], values: dict[str, Any]) -> tuple[int, Any]:
    method, path, _, query = to_request(asked, without_body(values))
    more = {"json": values["body"]} if "body" in values else {}
    answer = site.bear(site.secrets["admin"], method, path, params=query, **more)
    return answer.status_code, answer.json()


def by_client(site: Site, asked: Operation[..., Any], values: dict[str, Any]) -> Any:
    method, path, _, query = to_request(asked, without_body(values))
    with client(site) as service:
        return asked.answer.of(service.ask(method, path, values.get("body"), query)).to_json()


def team(site: Site) -> int:
    return at_the_home(site, add_grant, {"body": {**TEAM, "principal": "team-z"}})["grant"]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_door_answers_the_same(site, example):
    values = {name: team(site) if value == "TEAM" else value for name, value in example.values.items()}
    if not example.code:
        answer = at_the_home(site, example.asked, values)
        assert over_rest(site, example.asked, values) == (example.asked.status, answer)
        assert by_client(site, example.asked, values) == answer
        return
    size = site.home.ledger.log.size()
    with pytest.raises(DpserveError) as refused:
        at_the_home(site, example.asked, values)
    assert refused.value.code == example.code
    assert over_rest(site, example.asked, values) == (status_of(refused.value), refused.value.to_json())
    with pytest.raises(ServiceError) as far:
        by_client(site, example.asked, values)
    assert (far.value.code, far.value.message) == (refused.value.code, refused.value.message)
    assert site.home.ledger.log.size() == size


def test_every_operation_has_examples():
    assert {example.asked.function.__name__ for example in EXAMPLES} == {each.function.__name__ for each in OPERATIONS}


@pytest.mark.parametrize("asked", OPERATIONS, ids=lambda each: each.function.__name__)
def test_who_lacks_its_scopes_is_refused_at_home_as_at_the_door(site, asked):
    """By the same error; nobody who holds another scope alone comes in."""
    example = next(each for each in EXAMPLES if each.asked is asked and not each.code)
    values = {name: team(site) if value == "TEAM" else value for name, value in example.values.items()}
    nobody = Access("nobody", (), lambda name: frozenset())
    for scope in set(SCOPES) - {*asked.scopes, "admin"}:
        method, path, _, query = to_request(asked, without_body(values))
        more = {"json": values["body"]} if "body" in values else {}
        far = site.bear(site.secrets[scope], method, path, params=query, **more)
        rights = access_of(site.home.ledger, f"token:the-{scope}")
        for access in (rights, nobody):
            with pytest.raises(Forbidden) as near:
                at_home(asked, Caller(site.home, access), **values)
        with pytest.raises(Forbidden) as near:
            at_home(asked, Caller(site.home, rights), **values)
        assert (far.status_code, far.json()) == (403, near.value.to_json())


def test_a_page_gives_a_grant_and_a_token_as_rest_does(site):
    team(site)
    for kind in ("grants", "tokens"):
        cookie = {"Accept": "text/html", "Cookie": f"dpserve={site.secrets['admin']}"}
        lines = site.ask("GET", f"/ui/{kind}?form=json", cookie).json()[kind]
        listed = site.bear(site.secrets["admin"], "GET", f"/v1/{kind}").json()[kind]
        assert lines[::-1] == [{name: line[name] for name in lines[0]} for line in listed]
    table = partial(site.ask, "GET", headers=cookie)
    assert ",dataset adult," in table("/ui/grants?form=csv").text
