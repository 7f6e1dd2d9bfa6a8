"""Lists of a home that has grown old: each line carries its own problem, and no other line suffers from it."""

from __future__ import annotations

import json
import re

import baseline
import ledgers
import pytest
from in_process import Site
from pages_in_process import Pages, words

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.archive import archived
from dpserve.types import Dataset
from serving.app import DOORS
from serving.cli.app import run
from serving.cli.terminal import show_stream
from serving.process.registry import Registry
from serving.wire import lists
from training.jobs.schedule import add, make_schedule, submit_due

LOST = "visits"  # a dataset that grows, of three blocks, with a schedule
ASKED = {"learner": "lazybb", "epsilon": "0.01", "parameters": {"rounds": 2}}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A home with datasets in families, models, tokens, grants and schedules: `tests/data/make_home.py`."""
    return baseline.unpack(tmp_path_factory.mktemp("baseline") / "unpacked")


@pytest.fixture
def path(old, tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    return ledgers.copy(old, tmp_path / "home")


def said(capsys, *arguments: str) -> tuple[int, str]:
    code = run(arguments)
    return code, capsys.readouterr().out


def test_one_dataset_without_its_folder_fails_no_list(path, tmp_path, capsys):
    home = Home.open({"DPSERVE_HOME": str(path)})
    lost = home.datasets / home.ledger.dataset(LOST).registration.commitment
    lost.rename(tmp_path / "away")
    add(home, make_schedule(home, "sound", "day", {"dataset": "people", **ASKED}, "cli:ana", 0, token=None))
    problem = f"rows_unavailable: dataset={LOST}: its folder, datasets/{lost.name[:8]}..., is not in this home"

    site = Site(home, DOORS)
    secret = site.token("all", "admin")
    listed = {kind: site.bear(secret, "GET", f"/v1/{kind}") for kind in ("datasets", "families", "schedules")}
    assert {kind: answer.status_code for kind, answer in listed.items()} == dict.fromkeys(listed, 200)
    lines = {kind: {line["name"]: line for line in listed[kind].json()[kind]} for kind in listed}
    for kind, line in (("datasets", LOST), ("families", LOST), ("schedules", "weekly")):
        assert lines[kind][line]["problem"].startswith(problem)
        others = [each["problem"] for name, each in lines[kind].items() if name != line]
        assert others
        assert set(others) == {None}
    assert lines["datasets"]["people"]["budget"]["jobs_left"]["lazybb"] > 0
    assert lines["schedules"]["sound"]["alone"] > 0
    known = Dataset.of(site.bear(secret, "GET", f"/v1/datasets/{LOST}").json())
    assert known.problem == lines["datasets"][LOST]["problem"]
    assert known.budget.spent > 0

    pages = Pages(home)
    for place in ("/ui/datasets", f"/ui/datasets/{LOST}", f"/ui/datasets/{LOST}/fits", "/ui/schedules"):
        answer = pages.page(place)
        assert answer.status_code == 200
        assert problem in words(answer)

    for command in ("dataset list", f"dataset show {LOST}", "schedule list"):
        code, text = said(capsys, *command.split())
        assert (code, problem in text) == (0, True)
    code, text = said(capsys, "dataset", "list", "--json")
    assert (code, len(json.loads(text)["datasets"])) == (0, len(lines["datasets"]))
    code, text = said(capsys, *f"plan {LOST} --epsilon 0.1 --blocks all --json".split())
    assert (code, json.loads(text)["error"]["code"]) == (1, "rows_unavailable")
    assert "database" not in text
    assert len(submit_due(home, lambda: 86_400.0)) == 1  # of the sound one; `weekly` waits
    home.ledger.log.database.close()


def paged(ask, kind: str, name) -> list:
    """All lines, two at a time, and what names each."""
    lines, after = [], None
    while True:
        body = ask(kind, limit=2, **({} if after is None else {"after": after}))
        assert len(body[kind]) <= 2
        lines += body[kind]
        if (after := body["next"]) is None:
            return lines
        assert after == str(name(body[kind][-1]))


NAMES = {
    "datasets": lambda line: line["name"],
    "families": lambda line: line["name"],
    "models": lambda line: line["model"],
    "schedules": lambda line: line["name"],
    "tokens": lambda line: line["created"],
    "grants": lambda line: line["grant"],
}
# Of each list, what a part of one line's name is, and how many lines it leaves of the home's and of those made here.
HELD = {
    "datasets": "eopl",
    "families": "AGAI",
    "models": "lazybb@",
    "schedules": "day",
    "tokens": "e1",
    "grants": "am-a",
}


def test_every_list_comes_in_parts_and_by_name(path, capsys):
    home = Home.open({"DPSERVE_HOME": str(path)})
    for number in range(3):
        add(home, make_schedule(home, f"day-{number}", "day", {"dataset": "people", **ASKED}, "cli:ana", 0, token=None))
    site = Site(home, DOORS)
    secret = site.token("reader", "admin")
    [site.token(f"one{number}", "audit") for number in range(3)]

    def over_rest(kind, **query):
        answer = site.bear(secret, "GET", f"/v1/{kind}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def by_command(kind, **options):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        code, text = said(capsys, kind.removesuffix("s"), "list", "--json", *words)
        assert code == 0
        return json.loads(text)

    for kind, name in NAMES.items():
        whole = over_rest(kind)
        assert (whole["next"], len(whole[kind]) > 2) == (None, True), kind
        assert paged(over_rest, kind, name) == whole[kind]
        held = over_rest(kind, q=HELD[kind])[kind]
        assert 0 < len(held) < len(whole[kind]), kind
        assert over_rest(kind, q=HELD[kind], limit=1)[kind] == held[:1]
        assert over_rest(kind, q="no such name")[kind] == []
        for query in ({"after": "no such line"}, {"limit": 0}, {"limit": 1001}, {"least": 1}):
            assert site.bear(secret, "GET", f"/v1/{kind}", params=query).status_code == 400
        if kind != "families":
            assert [name(line) for line in by_command(kind)[kind]] == [name(line) for line in whole[kind]]
            assert paged(by_command, kind, name) == by_command(kind)[kind]
            assert len(by_command(kind, contains=HELD[kind])[kind]) == len(held)
    code, text = said(capsys, "dataset", "list", "--limit", "1", "--contains", "agai")
    assert (code, text.splitlines()[1].split()[0]) == (0, lines_of(over_rest("families", q="agai"))[0])
    home.ledger.log.database.close()


def lines_of(body) -> list[str]:
    return [line["name"] for line in body["families"]]


def test_pages_of_lists_come_in_parts(path, monkeypatch):
    home = Home.open({"DPSERVE_HOME": str(path)})
    monkeypatch.setattr(lists, "ON_A_PAGE", 2)
    for number in range(3):
        add(home, make_schedule(home, f"day-{number}", "day", {"dataset": "people", **ASKED}, "cli:ana", 0, token=None))
    pages = Pages(home)
    for place, row in (("/ui/datasets", "<tr>"), ("/ui/tokens", "/revoke"), ("/ui/schedules", "/remove")):
        pages_seen, address = [], place
        while address:
            text = pages.page(address).text
            pages_seen.append(text)
            (address, *_) = [*re.findall(r'href="([^"]+)" rel="next"', text), ""]
            address = address.replace("&amp;", "&")
        rows = [text.count(row) - (row == "<tr>") for text in pages_seen]
        assert len(rows) > 1
        assert all(count == 2 for count in rows[:-1])
        assert pages_seen[1].count('rel="first"') == 1
        assert json.loads(pages.page(f"{place}?form=json").text)  # a file has all of them
    assert "No schedule of that name" in words(pages.page("/ui/schedules?q=nope"))
    home.ledger.log.database.close()


def test_the_ledger_is_shown_newest_first_and_in_parts(path, capsys):
    home = Home.open({"DPSERVE_HOME": str(path)})
    values = [entry.value for entry in home.ledger.log.entries(0, 1000)]

    def shown(*options: str) -> tuple[list[int], int | None]:
        code, text = said(capsys, "ledger", "show", "--json", *options)
        assert code == 0
        body = json.loads(text)
        assert all({"index": each["index"], **values[each["index"]]} == each for each in body["entries"])
        return [each["index"] for each in body["entries"]], body["next"]

    last = len(values) - 1
    assert shown() == ([*range(last, last - 50, -1)], last - 49)
    assert shown("--before", str(last - 49), "--limit", "1000") == ([*range(last - 50, -1, -1)], None)
    assert shown("--after", "-1", "--limit", "1000") == ([*range(last + 1)], None)
    assert shown("--after", "10", "--limit", "3") == ([11, 12, 13], 13)
    assert shown("--after", str(last)) == ([], None)
    issued = [number for number, value in enumerate(values) if value["type"] == "issued"]
    assert shown("--type", "issued", "--limit", "2") == (issued[:-3:-1], issued[-2])
    assert shown("--type", "issued", "--after", str(issued[0]), "--limit", "99") == (issued[1:], None)
    about = [number for number, value in enumerate(values) if "fixed" in str(value.get("dataset"))]
    assert set(about) <= set(shown("--dataset", "fixed")[0]) < set(range(last))
    assert run(["ledger", "show", "--type", "nope"]) == 2
    text = said(capsys, "ledger", "show", "--limit", "2")[1]
    assert [line.split()[0] for line in text.splitlines()] == ["INDEX", str(last), str(last - 1)]
    home.ledger.log.database.close()


def test_a_list_is_printed_as_it_comes(capsys):
    def lines():
        for number in range(3):
            yield {"number": number, "text": "a\x1b[31m"}
            parts.append(capsys.readouterr().out)
            assert f'"number": {number}' in parts[-1]

    parts: list[str] = []
    show_stream("lines", lines(), lambda: {"next": None})
    text = "".join(parts) + capsys.readouterr().out
    assert json.loads(text) == {"lines": [{"number": n, "text": "a\x1b[31m"} for n in range(3)], "next": None}
    assert "\x1b" not in text
    show_stream("lines", [], lambda: {"next": 4})
    assert json.loads(capsys.readouterr().out) == {"lines": [], "next": 4}


def test_what_is_archived_is_hidden_from_lists_and_nothing_else_changes(path, capsys):
    home = Home.open({"DPSERVE_HOME": str(path)})
    before = {name: home.ledger.dataset(name).families[0].used for name in ("people", "again", "fixed")}
    doors = Site(home, DOORS)
    secret, pages = doors.token("reader", "admin"), Pages(home)

    def names(kind: str, **query: str) -> list[str]:
        body = doors.bear(secret, "GET", f"/v1/{kind}", params=query).json()
        return [line["name"] for line in body[kind]]

    whole = {kind: names(kind) for kind in ("datasets", "families", "models")}
    for what, act, name in (
        ("dataset", "retire", "fixed"),
        ("dataset", "retire", "again"),
        ("model", "archive", "lazybb"),
    ):
        code, text = said(capsys, what, act, name, "--reason", "its time is over", "--json")
        assert (code, json.loads(text)["archived"]) == (0, True)
        assert run([what, act, name, "--reason", "again"]) == 2
        assert run([what, act, "nope", "--reason", "again"]) == 2
    doors.look()
    pages.look()
    assert names("datasets") == [name for name in whole["datasets"] if name not in ("fixed", "again")]
    assert names("families") == [name for name in whole["families"] if name != "fixed"]  # `people` has another dataset
    assert names("models") == [name for name in whole["models"] if name != "lazybb"]
    for kind, lines in whole.items():
        assert names(kind, archived="true") == lines
        assert doors.bear(secret, "GET", f"/v1/{kind}", params={"archived": "maybe"}).status_code == 400
    for command, name in (("dataset list", "fixed"), ("model list", "lazybb@2")):
        assert name not in said(capsys, *command.split())[1]
        assert name in said(capsys, *command.split(), "--all")[1]
    for place, name in (("/ui/datasets", "fixed"), ("/ui/models", "/ui/models/lazybb")):
        assert f"{name}" not in pages.page(place).text.replace("lazybb-tree", "")
        assert f"{name}" in pages.page(f"{place}?archived=true").text.replace("lazybb-tree", "")

    opened = Home.open({"DPSERVE_HOME": str(path)})  # a process that knows nothing yet
    assert archived(opened.ledger, "dataset") == {"fixed", "again"}
    assert {name: opened.ledger.dataset(name).families[0].used for name in before} == before
    registry = Registry()
    registry.refresh(opened)
    assert registry.get("lazybb").name == "lazybb"  # it answers as before
    report = audit_home(opened, ledgers.bundles(path))
    assert (report.problems, report.ok) == ((), True)
    for what, act, name in (("dataset", "restore", "fixed"), ("model", "unarchive", "lazybb")):
        assert run([what, act, name, "--reason", "a review"]) == 0
        assert run([what, act, name, "--reason", "again"]) == 2
    assert names("families") == whole["families"]
    assert names("models") == whole["models"]
    assert audit_home(opened).problems == ()
    home.ledger.log.database.close()
