"""Long, deep, wide, repeated and exponential values in every field of every request of a real server: none takes a
serving process more than MOST_SECONDS of a processor, and none is answered as a fault of the server.

Fields are those of the description, of the query and the path of each door, and of the forms that pages show. Of the
values that are no field's own, each field gets some, drawn by SEED; EVERY_VALUE=1 sends all of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
import timeit
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import httpx
import psutil
import pytest
from small_home import adult_home, records, serving, until

from serving.app import DOORS
from serving.pages.all import PAGES
from serving.rest.openapi import examples, openapi
from training.jobs import job
from training.requests import JobRequest, ProfileRequest

pytestmark = pytest.mark.server

SEED = 20261128
MOST_SECONDS, MOST_LOOPS = 0.2, 5  # of a processor of the serving process, for one request: of a slow one by its loops
EVERY = bool(os.environ.get("EVERY_VALUE"))
JSON, FORM, CSV = "application/json", "application/x-www-form-urlencoded", "text/csv"
HERE = "@here@"  # where a hostile value comes
LARGE = 900_000  # bytes of a large value, below those that a body may have
LAST = ("withdraw", "retire", "delete", "keys", "revoke", "end", "logout", "tokens", "grants", "restore", "learners")
SELECT = "select count(*) from adult where "
NESTED = SELECT + "array[" * 24 + "1" + "]" * 24
CALLS = SELECT + "struct(" * 24 + "1" + ")" * 24
DATES = {"columns": {"workclass": {"dates": ["DD.MM.YYYY"] * 600}}}
WORDS = {"columns": {"workclass": {"missing": [f"w{at}" for at in range(1900)]}}}
ADULT = {  # what an example says of another dataset
    "select": "select sex, count(*), avg(age) from adult group by sex", "columns": ["age"], "learner": "lazybb",
    "model": "adult", "records": records(2),
}  # fmt: skip
TEXTS = {
    "zeros": "0" * 990 + ".5e0", "an exponent": "1e99999999", "digits": "9" * 5000, "brackets": "(" * 900,
    "nested": NESTED, "calls": CALLS, "commas": "a," * 400, "blanks": " " * 900, "lines": "a\n" * 400,
    "no character": "a\0b", "turned": "\u202e" * 300, "accents": "e\u0301" * 400, "quotes": "'\"" * 400,
    "versions": "adult@" + "9" * 900, "dots": "a." * 400, "steps": "../" * 300, "blocks": "1-2," * 250,
    "dates": json.dumps(DATES), "words": json.dumps(WORDS), "curve": '{"2": 1e99999999}', "long": "a" * 20_000,
}  # fmt: skip
VALUES = {  # of JSON, as they are sent
    **{what: json.dumps(text) for what, text in TEXTS.items()},
    "a number's exponent": "1e99999999", "a negative exponent": "-1e-99999999", "a number's digits": "9" * 4000,
    "a fraction": "0." + "0" * LARGE + "1", "long": '"' + "a" * LARGE + '"', "escapes": '"' + "\\u0041" * 140_000 + '"',
    "half a pair": '"\\ud800"', "deep": "[" * 28 + "]" * 28, "too deep": '{"a":' * 9000 + "1" + "}" * 9000,
    "wrong numbers": "[" + "1.5," * 120_000 + "1]", "texts": "[" + '"age",' * 120_000 + '"age"]',
    "lists": "[" + "[]," * 120_000 + "[]]", "objects": "[" + '{"a":1},' * 30_000 + "{}]",
    "keys": "{" + ",".join(f'"{at}":1' for at in range(60_000)) + "}", "an object's exponent": '{"2":1e99999999}',
    "more than may be": "[" + "1," * 440_000 + "1]", "true": "true", "null": "null", "an object": "{}", "a list": "[]",
}  # fmt: skip
OWN = {  # values that a field gets for certain: by its name, or by what it takes
    "select": ("nested", "calls"), "format": ("dates", "words"), "epsilon": ("zeros", "a number's exponent"),
    "delta": ("zeros",), "renyi": ("an object's exponent", "keys"), "array": ("wrong numbers", "lists"),
    "object": ("an object's exponent",), "contributions": ("digits",), "records": ("digits", "objects"),
}  # fmt: skip
DRAWN = {"JSON": 2, "form": 2, "query": 2, "path": 2}  # of all other values, how many


@dataclass(frozen=True)
class Sent:
    """A request. `where`: which of its fields has which value."""

    method: str
    path: str
    where: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    kind: str = JSON

    @property
    def address(self) -> str:
        return self.path + ("?" + urlencode(self.query) if self.query else "")


@dataclass
class Forms(HTMLParser):
    """The forms of a page: method, action, and the fields with what stands in them."""

    forms: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((have.get("method", "get").upper(), have.get("action", ""), {}))
        elif tag in ("input", "select", "textarea", "button") and have.get("name") and self.forms:
            self.forms[-1][2].setdefault(have["name"], have.get("value", ""))


def chosen(name: str, takes: set[str], place: str, draw: random.Random) -> list[str]:
    """The values that a field gets."""
    every = VALUES if place == "JSON" else TEXTS
    own = [what for known in (name, *sorted(takes)) for what in OWN.get(known, ()) if what in every]
    others = [what for what in every if what not in own]
    return own + (others if EVERY else draw.sample(others, DRAWN[place]))


def types_of(schema: Any) -> set[str]:
    """The types of JSON that a schema admits."""
    found = {schema["type"]} if isinstance(schema.get("type"), str) else set()
    return found.union(*(types_of(each) for word in ("anyOf", "oneOf", "allOf") for each in schema.get(word, ())))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place within a body: of a list, its first entry."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, each in list(inside)[:40]:
        yield (*path, name)
        if len(path) < 3:
            yield from places(each, (*path, name))


def placed(body: Any, path: tuple[Any, ...], value: str) -> bytes:
    """The body with a value in that place, as it is sent."""
    body = json.loads(json.dumps(body))
    inner = body
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = HERE
    return json.dumps(body).replace(f'"{HERE}"', value, 1).encode()


def at(path: str) -> str:
    """The path of a door with names that there are."""
    names = {"name": "adult", "version": "1", "job": "5", "file": "card.md", "entry": "1", "grant": "1", "learner": "x"}
    return re.sub(r"{(\w+)}", lambda part: names.get(part[1], "0" * 32), path)


def of_json() -> Iterator[Sent]:
    """A value in each field of each body that the description knows."""
    draw = random.Random(SEED)
    described = openapi(DOORS)["paths"]
    for door in DOORS:
        content = described[door.path][door.method.lower()].get("requestBody", {}).get("content", {})
        if JSON not in content:
            continue
        shown = examples().get(f"{door.method} {door.path}", {}).get("request", {}).get("body")
        shown = json.loads(json.dumps(shown).replace("visits", "adult")) if isinstance(shown, dict) else {}
        base = {name: ADULT.get(name, value) for name, value in shown.items()}
        fields = content[JSON]["schema"].get("properties", {})
        yield Sent(door.method, at(door.path), "", (), json.dumps(base).encode())
        paths = dict.fromkeys([*places(base), *((name,) for name in fields)])
        for path in paths:
            takes = types_of(fields.get(path[0], {})) if len(path) == 1 else set()
            for what in chosen(str(path[-1]), takes, "JSON", draw):
                where = f"{'.'.join(map(str, path))}: {what}"
                yield Sent(door.method, at(door.path), where, (), placed(base, path, VALUES[what]))
        for what in ("a number's exponent", "too deep", "more than may be", "long", "keys"):
            yield Sent(door.method, at(door.path), f"the body: {what}", (), VALUES[what].encode())


def of_addresses() -> Iterator[Sent]:
    """A value in each part of each path, and in each field of each query."""
    draw = random.Random(SEED)
    rows = b"workclass\n" + b"Private\n" * 20_000
    for door in (*DOORS, *PAGES):
        body = None if door.method in ("GET", "DELETE") else b"{}"
        kind = FORM if door.path.startswith("/ui") else JSON
        plain = Sent(door.method, at(door.path), "", (), b"" if kind == FORM and body else body, kind)
        for name in re.findall(r"{(\w+)}", door.path):
            for what in chosen(name, set(), "path", draw):
                text = quote(TEXTS[what][:3000], safe="")
                path = at(door.path.replace(f"{{{name}}}", "\1")).replace("\1", text)
                yield replace(plain, path=path, where=f"{{{name}}}: {what}")
        if door.method == "DELETE":
            continue
        for name in door.query:
            for what in chosen(name, set(), "query", draw):
                query = ((name, TEXTS[what][:20_000]),)
                if door.path == "/predict":
                    query = (*(() if name == "model" else (("model", "adult"),)), *query)
                    yield Sent("POST", "/predict", f"{name}: {what}", query, rows, CSV)
                else:
                    yield replace(plain, where=f"{name}: {what}", query=query)


def of_forms(server: Any) -> Iterator[Sent]:
    """A value in each field of each form that the pages show."""
    draw = random.Random(SEED)
    seen = set()
    for door in PAGES:
        if door.method != "GET":
            continue
        page = server.get(at(door.path), headers={"Accept": "text/html"})
        shown = Forms()
        shown.feed(page.text)
        for method, action, fields in shown.forms:
            path = (action or at(door.path)).partition("?")
            known = (method, re.sub(r"[0-9a-f]{32}|\d+", "", path[0]), *sorted(fields))
            if known in seen or not path[0].startswith(("/ui", "/docs")):
                continue
            seen.add(known)
            base = {**dict(parse_qsl(path[2])), "dataset": "adult", "epsilon": "0.1"} if "/new" in path[0] else {}
            base = {name: base.get(name, value) for name, value in fields.items()}
            for name in fields:
                for what in chosen(name.removeprefix("p."), set(), "form", draw):
                    filled = tuple((base | {name: TEXTS[what][: 4000 if method == "GET" else None]}).items())
                    where = f"{name}: {what}"
                    if method == "GET":
                        yield Sent("GET", path[0], where, filled)
                    else:
                        yield Sent("POST", path[0], where, (), urlencode(filled).encode(), FORM)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("fields"), 50)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}), by="test")
    job.run(home, job.submit(home, ProfileRequest("adult", "0.5", columns=("age", "sex")), by="test").seq)
    with serving(home.path, workers=1) as found:
        until(lambda: found.get("/docs?q=learner").status_code == 200, "the manual is read")
        yield found


MEASURED = {
    "profiles": {"dataset": "adult", "epsilon": "0.25", "columns": ["age", "sex"]},
    "evaluations": {"dataset": "adult", "model": "adult", "epsilon": "0.25", "part": "training"},
    "answers": {"dataset": "adult", "select": "select sex, count(*) from adult group by sex", "epsilon": "0.25"},
}


@pytest.mark.parametrize("kind", MEASURED)
def test_measurements_are_planned_beside_and_reserved(server, kind):
    plan = server.ask_again("POST", f"/v1/plans/{kind}", json=MEASURED[kind])
    assert plan.status_code == 200, plan.text
    body = {**MEASURED[kind], "idempotency_key": kind}
    submitted = server.ask_again("POST", f"/v1/{kind}", json=body)
    assert submitted.status_code == 202, submitted.text
    seq = submitted.json()["job"]
    assert server.ask_again("POST", f"/v1/{kind}", json=body).json()["job"] == seq
    if kind == "answers":
        until(lambda: server.get(f"/v1/jobs/{seq}").json()["state"] == "issued", "it is answered")
        told = server.ask_again("GET", f"/v1/answers/{seq}?select=" + quote(MEASURED[kind]["select"]))
        assert (told.status_code, told.json()["job"]) == (200, seq), told.text
    refused = server.ask_again("POST", f"/v1/plans/{kind}", json={**MEASURED[kind], "epsilon": "90"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "budget_refused"), refused.text


def work_of(process: psutil.Process) -> float:
    """The seconds of a processor that a process has taken."""
    times = process.cpu_times()
    return times.user + times.system


def faults(server: Any, sent: Iterator[Sent]) -> tuple[int, list[str]]:
    """How many requests were sent, and which of them took too long or were answered as a fault of the server."""
    found, warm = [], set[str]()
    count = 0
    origin = {"Origin": f"http://127.0.0.1:{server.port}"}
    loop = timeit.Timer("for at in range(1_000_000): total += at", "total = 0", time.process_time)
    (process,) = server.processes("dpserve-serving")
    most = max(MOST_SECONDS, MOST_LOOPS * min(loop.repeat(3, 1)))
    for each in sorted(sent, key=lambda request: any(word in request.path for word in LAST)):
        if each.path not in warm and len(each.path) < 200:  # what is loaded at the first look is not this one's
            warm.add(each.path)
            server.get(each.path, headers={"Accept": "text/html"})
        before = work_of(process)
        headers = {"Content-Type": each.kind, "Accept": "text/html" if each.path.startswith("/ui") else JSON, **origin}
        try:
            answer = server.ask(each.method, each.address, content=each.body, headers=headers)
            seconds = work_of(process) - before
        except (httpx.TransportError, psutil.NoSuchProcess) as error:  # its process was ended meanwhile
            return count, [*found, f"{each.method} {each.path[:60]} {each.where}: {type(error).__name__}"]
        count += 1
        if answer.status_code >= 500 or (seconds > most and each.where):
            said = answer.text[:120] if answer.status_code >= 500 else ""
            found.append(f"{each.method} {each.path[:60]} {each.where}: {answer.status_code}, {seconds:.2f} s {said}")
    return count, found


def test_no_field_of_a_body_takes_long(server):
    count, found = faults(server, of_json())
    assert not found, "\n".join(found)
    assert count > 400


def test_no_part_of_an_address_takes_long(server):
    count, found = faults(server, of_addresses())
    assert not found, "\n".join(found)
    assert count > 200


def test_no_field_of_a_form_takes_long(server):
    count, found = faults(server, of_forms(server))
    assert not found, "\n".join(found)
    assert count > 100
