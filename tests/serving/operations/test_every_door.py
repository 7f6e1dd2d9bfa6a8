"""One list of examples of every operation: the home, REST and the client answer the same, refuse the same in the same
words, and let nobody in who lacks its scopes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import httpx
import ledgers
import pytest
from client_methods import BY_HAND, FILE, written
from in_process import BASE, Site

from accountant.access.grants import Access, access_of
from accountant.access.tokens import SCOPES
from accountant.errors import Forbidden
from accountant.home import Home
from accountant.ledger.archive import archive
from accountant.ledger.families.records import State, Why
from dpserve import Client, ServiceError
from dpserve_verify.errors import DpserveError
from serving.app import DOORS
from serving.operations import Caller, Operation, at_home, to_request
from serving.operations.answers import answer_to_json
from serving.operations.datasets import list_datasets, list_families, show_dataset
from serving.operations.edits import edit_model, show_curve
from serving.operations.grants import add_grant, list_grants, list_tokens, revoke_grant, show_grant
from serving.operations.jobs import cancel_job, list_jobs, plan_job, show_job, submit_job
from serving.operations.ledger import list_checkpoints, list_entries, show_consistency, show_proof
from serving.operations.notes import (
    show_dataset_note,
    show_model_note,
    write_dataset_note,
    write_model_note,
)
from serving.operations.people import show_person
from serving.operations.placing import promote_model, restore_model, retire_model
from serving.operations.schedules import add_schedule, list_schedules, remove_schedule
from serving.operations.totals import (
    change_budget,
    charge,
    plan_charge,
    restore_dataset,
    retire_dataset,
    set_quota,
    withdraw_dataset,
)
from serving.pages.all import PAGES
from serving.wire.errors import status_of
from serving.wire.list_parts import Part
from training.jobs import job
from training.jobs.schedule import add, make_schedule
from training.requests import JobRequest

OPERATIONS = [door.operation for door in DOORS if door.operation is not None]
LONG = "x" * 1500
BAD = "bad_input"
WAYS = ("home", "rest", "client")  # what each changes has WAY in its name


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


EDIT = {"edits": [{"feature": "age", "set": {"bins": "..25", "to": 0.5}}], "reason": "few rows"}
FEW = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.01", "parameters": {"rounds": 8}}
WEEKLY = {**FEW, "name": "week-WAY", "start": "2099-01-05T06:00"}
WRONG_JOBS = [
    (BAD, {"epsilon": "-1"}), (BAD, {"parameters": {"nope": 1}}), (BAD, {"model": ""}), (BAD, {"blocks": "7-9"}),
    ("budget_refused", {"epsilon": "90"}), ("unknown_name", {"dataset": "nope"}), ("unknown_name", {"learner": "nope"}),
]  # fmt: skip
TEAM = {"principal": "team-a", "scope": "train", "on": {"dataset": "adult"}}
EXAMPLES = [
    of(add_grant, body=TEAM),
    of(add_grant, body={**TEAM, "on": "everything", "expires": "2099-01-31"}),
    of(add_grant, body={**TEAM, "principal": "token:shop"}),
    *(
        of(add_grant, BAD, body={**TEAM, **change})
        for change in (
            {"scope": "root"}, {"principal": "*"}, {"principal": ""}, {"principal": "p" * 201}, {"on": "all"},
            {"on": {"dataset": 3}}, {"on": {"model": "../x"}}, {"expires": "2020-01-01"}, {"why": "x"}, {"scope": 5},
        )
    ),
    of(add_grant, "unknown_name", body={**TEAM, "on": {"dataset": "none"}}),
    of(list_grants, part=Part()),
    of(list_grants, part=Part(q="team", limit=1)),
    of(list_grants, part=Part(), principal="shop"),
    of(list_grants, BAD, part=Part(after="99999")),
    of(show_grant, grant="TEAM"),
    of(show_grant, "unknown_name", grant=99999),
    of(revoke_grant, BAD, grant="TEAM", body={"reason": " "}),
    of(revoke_grant, BAD, grant="TEAM", body={"reason": "r" * 501}),
    of(revoke_grant, "unknown_name", grant=99999, body={"reason": "x"}),
    of(revoke_grant, grant="TEAM", body={"reason": "left"}),
    of(list_tokens, part=Part()),
    of(list_entries, after=2),
    of(list_entries, after=99999),
    of(list_checkpoints),
    of(list_checkpoints, after=4),
    of(show_proof, leaf=1),
    of(show_proof, leaf=1, size=2),
    of(show_consistency, from_=2, to=4),
    *(of(show_proof, BAD, **place) for place in ({"leaf": 2, "size": 2}, {"leaf": 1, "size": 99999})),
    *(of(show_consistency, BAD, **place) for place in ({"from_": 4, "to": 2}, {"from_": 2, "to": 99999})),
    *(of(each, part=part) for each in (list_datasets, list_families) for part in (Part(), Part(archived=True))),
    *(of(each, part=Part(q="of-", limit=1)) for each in (list_datasets, list_families)),
    *(of(each, BAD, part=Part(after="nobody")) for each in (list_datasets, list_families)),
    of(show_dataset, name="adult"),
    of(show_dataset, "unknown_name", name="nobody"),
    of(show_person, name="closed"),
    of(show_person, name="closed", blocks="1"),
    *(of(show_person, BAD, name="adult", blocks=blocks) for blocks in ("2", "2026-03", "p17", "-1")),
    of(show_person, "unknown_name", name="nobody"),
    *(of(each, name="of-WAY", body={"rho": "0.01", "mechanism": "a", "why": "b"}) for each in (plan_charge, charge)),
    *(
        of(asked, code, name="of-home", body={"mechanism": "a", "why": "b", **change})
        for asked in (plan_charge, charge)
        for change, code in (({"rho": "90"}, "budget_refused"), ({"rho": "1", "mu": "1"}, BAD), ({}, BAD))
    ),
    of(change_budget, name="of-WAY", body={"epsilon": "7", "reason": "more"}),
    *(
        of(change_budget, BAD, name="of-home", body={"epsilon": "7", "reason": "more", **change})
        for change in ({"epsilon": "x"}, {"epsilon": 7}, {"reason": ""})
    ),
    of(set_quota, name="of-WAY", body={"analyst": "ana", "share": "0.5", "reason": "four"}),
    of(set_quota, BAD, name="of-home", body={"analyst": "ana", "share": "1.5", "reason": "four"}),
    of(retire_dataset, name="of-WAY", body={"reason": "over"}),
    of(retire_dataset, "wrong_state", name="closed", body={"reason": "over"}),
    of(restore_dataset, name="over-WAY", body={"reason": "again"}),
    of(restore_dataset, "wrong_state", name="adult", body={"reason": "again"}),
    of(withdraw_dataset, name="spare-WAY", body={"reason": "a typo"}),
    of(withdraw_dataset, "unknown_name", name="nobody", body={"reason": "a typo"}),
    of(withdraw_dataset, "wrong_state", name="adult", body={"reason": "a typo"}),
    of(list_tokens, part=Part(q="sho", limit=1)),
    of(show_curve, name="adult"),
    of(show_curve, name="adult@1", feature="education"),
    of(show_curve, "unknown_name", name="nobody"),
    *(of(show_curve, BAD, name="adult", **term) for term in ({"feature": "shoe size"}, {"class_": "aunt"})),
    of(edit_model, name="adult", body={**EDIT, "dry_run": True}),
    of(edit_model, name="of-WAY", body=EDIT),
    of(edit_model, "unknown_name", name="nobody", body=EDIT),
    of(edit_model, "wrong_state", name="of-home", body={**EDIT, "entry": 1}),
    *(
        of(edit_model, BAD, name="of-home", body={**EDIT, **change})
        for change in ({"edits": []}, {"edits": [{"feature": "shoe size"}]},
            {"reason": None}, {"reason": "x" * 501}, {"reason": " "}, {"promote": 1}, {"by": "me"})
    ),
    of(promote_model, name="of-WAY", body={"version": 2, "reason": "better", "although_not_better": True}),
    of(retire_model, name="of-WAY@1", body={"reason": "old"}),
    of(restore_model, name="of-WAY@1", body={"reason": "asked for"}),
    of(promote_model, "wrong_state", name="of-home", body={"version": 2, "reason": "again"}),
    of(promote_model, "unknown_name", name="of-home", body={"version": 9, "reason": "x"}),
    of(promote_model, "unknown_name", name="nobody", body={"version": 1, "reason": "x"}),
    *(
        of(promote_model, BAD, name="of-home", body={"version": 1, "reason": "x", **change})
        for change in ({"version": "1"}, {"version": 0}, {"reason": " "}, {"reason": "x" * 1001}, {"if_better": 1},
            {"if_better": True, "although_not_better": True}, {"by": "me"})
    ),
    *(
        of(asked, code, name=name, body=body)
        for asked in (retire_model, restore_model)
        for name, body, code in (("of-home@9", {"reason": "x"}, "unknown_name"), ("of-home@1", {}, BAD),
            ("of-home@1", {"reason": " "}, BAD), ("of-home@x", {"reason": "x"}, BAD))
    ),
    of(plan_job, body=FEW),
    of(plan_job, body={**FEW, "learner": None}),
    of(plan_job, BAD, body={**FEW, "evaluate": "0.1"}),
    *(of(each, code, body=FEW | change) for each in (plan_job, submit_job) for code, change in WRONG_JOBS),
    of(list_jobs),
    of(list_jobs, dataset="adult", state="issued", limit=1),
    of(list_jobs, after=2, limit=200),
    of(list_jobs, BAD, state="nope"),
    of(list_jobs, "unknown_name", dataset="nope"),
    of(show_job, job="DONE"),
    of(show_job, "unknown_name", job=999),
    of(cancel_job, job="JOB"),
    of(submit_job, body={**FEW, "idempotency_key": "key-WAY"}),
    of(cancel_job, "wrong_state", job="DONE"),
    of(cancel_job, "unknown_name", job=999),
    of(list_schedules, part=Part(q="EVER")),
    of(list_schedules, part=Part(q="adu", limit=1)),
    of(list_schedules, BAD, part=Part(after="nope")),
    of(add_schedule, body={**WEEKLY, "dry_run": True}),
    of(add_schedule, body=WEEKLY),
    *(
        of(add_schedule, code, body={**WEEKLY, "name": "worse", **change})
        for code, change in (*WRONG_JOBS, (BAD, {"every": "year"}), (BAD, {"every": ""}), (BAD, {"start": "soon"}),
                             (BAD, {"name": "../x"}), (BAD, {"tuning": {}}))
    ),
    of(remove_schedule, schedule="over-WAY"),
    of(remove_schedule, "unknown_name", schedule="nope"),
    *(
        of(asked, code, name=name, **body)
        for read, write in ((show_dataset_note, write_dataset_note), (show_model_note, write_model_note))
        for asked, code, name, body in (
            (read, "", "adult", {}),
            (read, "unknown_name", "nobody", {}),
            (write, "", "adult", {"body": {"text": LONG, "tags": ["a", "b"]}}),
            (write, "", "adult", {"body": {"tags": []}}),
            (write, BAD, "adult", {"body": {"text": "x" * 2001}}),
            (write, BAD, "adult", {"body": {"tags": ["<"]}}),
            (write, BAD, "adult", {"body": {"tags": [""]}}),
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
        for name in ("closed", *(f"{kind}-{way}" for kind in ("of", "spare", "over") for way in WAYS)):
            found.home.ledger.register(ledgers.registration(name))
            if name.startswith(("over", "closed")):
                archive(found.home.ledger, "dataset", name, Why("test", "over"))
        for way in WAYS * 2:  # two versions of each
            few = JobRequest("adult", "lazybb", "0.01", model=f"of-{way}", parameters={"rounds": 2})
            job.train(found.home, few, by="test")
        for name in ("ever", *(f"over-{way}" for way in WAYS)):
            rule = make_schedule(found.home, name, "week", FEW, "cli:ana", 4071276000, token=None)
            add(found.home, rule)
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
    return answer_to_json(at_home(asked, Caller(site.home, rights), **values))


def over_rest(site: Site, asked: Operation[..., Any], values: dict[str, Any]) -> tuple[int, Any]:
    method, path, _, query = to_request(asked, without_body(values))
    more = {"json": values["body"]} if "body" in values else {}
    answer = site.bear(site.secrets["admin"], method, path, params=query, **more)
    return answer.status_code, answer.json()


def by_client(site: Site, asked: Operation[..., Any], values: dict[str, Any]) -> Any:
    """By its typed method; what that takes none of is sent as it is."""
    method, path, _, query = to_request(asked, without_body(values))
    named = {name: value for name, value in values.items() if f"{{{name}}}" in asked.path}
    with client(site) as service:
        by_hand = BY_HAND.get(asked.function.__name__)
        call = getattr(service, asked.function.__name__) if by_hand is None else partial(by_hand, service)
        try:
            arguments = signature(call).bind(**{**named, **query}, **values.get("body", {}))
        except TypeError:
            return service.ask(method, path, values["body"], query)
        answer = call(*arguments.args, **arguments.kwargs)
        return getattr(answer, "raw", answer)


def in_the_name_of(way: str, site: Site, values: dict[str, Any]) -> dict[str, Any]:
    """What one way asks for: its own names, and a job of its own that waits."""

    def own(value: Any) -> Any:
        if value == "DONE":
            return site.home.ledger.jobs(State.COMMITTED)[0].seq
        if value == "JOB":
            return ledgers.reserve(site.home.ledger, ledgers.request("adult", "0.02"), ledgers.plan(count=1)).seq
        if isinstance(value, dict):
            return {name: own(each) for name, each in value.items()}
        return value.replace("WAY", way) if isinstance(value, str) else value

    return {name: own(value) for name, value in values.items()}


def anybodys(answer: Any, way: str) -> Any:
    """The answer without the numbers and times of new entries and jobs, which each way has its own of, what they left,
    and by names that have WAY; of an edit's own model without the figures, which are random.
    """
    text = re.sub(r"[0-9-]{10}T[0-9:]{8}Z", "TIME", json.dumps(answer))
    plain = json.loads(text.replace(f"-{way}", "-WAY") if "next" not in answer else text)
    of_its_own = {"entry", "job", "left"} | ({"changed"} if plain.get("model") == "of-WAY@3" else set())
    return {name: value for name, value in plain.items() if name not in of_its_own}


def team(site: Site) -> int:
    return at_the_home(site, add_grant, {"body": {**TEAM, "principal": "team-z"}})["grant"]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_door_answers_the_same(site, example):
    values = {name: team(site) if value == "TEAM" else value for name, value in example.values.items()}
    if not example.code:
        asked, (home, rest, far) = example.asked, (in_the_name_of(way, site, values) for way in WAYS)
        answer = anybodys(at_the_home(site, asked, home), "home")
        status, over = over_rest(site, asked, rest)
        expected = 200 if values.get("body", {}).get("dry_run") else asked.status
        assert (status, anybodys(over, "rest")) == (expected, answer)
        assert anybodys(by_client(site, asked, far), "client") == answer
        return
    values, size = in_the_name_of("home", site, values), site.home.ledger.log.size()
    with pytest.raises(DpserveError) as refused:
        at_the_home(site, example.asked, values)
    assert refused.value.code == example.code
    assert over_rest(site, example.asked, values) == (status_of(refused.value), refused.value.to_json())
    with pytest.raises(ServiceError) as far:
        by_client(site, example.asked, values)
    assert (far.value.code, far.value.message) == (refused.value.code, refused.value.message)
    assert site.home.ledger.log.size() == size


def test_the_client_has_the_methods_that_follow_from_operations():
    """python tests/helpers/client_methods.py writes them."""
    assert FILE.read_text("utf-8") == written()


def test_every_operation_has_examples():
    assert {example.asked.function.__name__ for example in EXAMPLES} == {each.function.__name__ for each in OPERATIONS}


@pytest.mark.parametrize("asked", OPERATIONS, ids=lambda each: each.function.__name__)
def test_who_lacks_its_scopes_is_refused_at_home_as_at_the_door(site, asked):
    """By the same error; nobody who holds another scope alone comes in."""
    example = next(each for each in EXAMPLES if each.asked.function is asked.function and not each.code)
    values = {name: team(site) if value == "TEAM" else value for name, value in example.values.items()}
    values = in_the_name_of("home", site, values)
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
