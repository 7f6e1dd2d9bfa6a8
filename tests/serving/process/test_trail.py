"""The audit trail: who asked for what is written before the answer goes out, and nothing else is."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import subprocess

import anyio
import pytest
import warm
from in_process import BASE, code, site_at
from ledgers import ROOT
from small_home import dpserve
from starlette.responses import JSONResponse

from accountant.access.tokens import Limits
from dpserve_verify.errors import BudgetRefused
from serving.http.routes import Door, in_thread
from serving.pages import login
from serving.pages.parts.ui import page
from serving.process.watch import access_log
from serving.process.watch.access_log import MAX_REFUSED, Trail, note_subject
from serving.process.watch.trail_lines import lines, path_of
from serving.wire.errors import ClientGone, NotReady

SECRET = "31337"


async def model(request):
    """As the service: the name is in the body, and known to be good once the model was found, here in a thread."""
    body = await request.json()
    if body["model"] == "adult":
        await in_thread(note_subject, "adult@1")
    return JSONResponse({}, 200 if body["model"] == "adult" else 404)


async def named(request):
    return JSONResponse({}, 200 if request.path_params["name"] == "adult" else 404)


async def gone(_request):
    raise ClientGone


async def broken(_request):
    raise ZeroDivisionError(SECRET)


async def full(request):
    refusal = BudgetRefused(SECRET, reason="quota", asked=SECRET)
    return page(request, "error.html", refusal=refusal, title="", message="", code="")


DOORS = (
    Door("GET", "/ui/full", ("audit",), full, "a page that tells a refusal"),
    Door("POST", "/predict", ("predict",), model, "predict"),
    Door("GET", "/v1/datasets/{name}", ("audit",), named, "a dataset"),
    Door("GET", "/v1/gone", ("audit",), gone, "hung up"),
    Door("GET", "/v1/broken", ("audit",), broken, "a bug"),
    Door("GET", "/livez", (), named, "alive"),
    Door("GET", "/ui/login", (), named, "the page"),
    Door("GET", "/ui/static/{name}", (), named, "a file"),
    Door("POST", "/ui/login", (), login.login, "in"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with site_at(tmp_path_factory.mktemp("trail"), DOORS) as found:
        found.secret = found.token("auditor", "audit", "predict")
        yield found


def written(site):
    """The newest line, without its time, whose form is looked at."""
    found = next(lines(site.home.path))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found.pop("time"))
    assert list(found)[:5] == ["token", "method", "route", "status", "about"]
    assert set(list(found)[5:]) <= {"code", "reason"}
    return tuple(found.values())


def count(site):
    return sum(1 for _ in lines(site.home.path))


def test_request_leaves_a_line(site):
    site.bear(site.secret, "GET", "/v1/datasets/adult")
    assert written(site) == ("auditor", "GET", "/v1/datasets/{name}", 200, "adult")


def test_model_that_a_body_names(site):
    site.bear(site.secret, "POST", "/predict", json={"model": "adult", "age": SECRET})
    assert written(site) == ("auditor", "POST", "/predict", 200, "adult@1")
    site.bear(site.secret, "POST", "/predict", json={"model": SECRET})
    assert written(site) == ("auditor", "POST", "/predict", 404, None)


@pytest.mark.parametrize(
    ("method", "path", "line"),
    [
        ("GET", f"/v1/datasets/{SECRET}?{SECRET}", ("auditor", "GET", "/v1/datasets/{name}", 404, None)),
        ("GET", f"/{SECRET}", ("auditor", "GET", None, 404, None, "not_found")),
        ("DELETE", "/predict", ("auditor", "DELETE", None, 405, None, "method_not_allowed")),
        ("BREW", "/predict", ("auditor", "other", None, 405, None, "method_not_allowed")),
        ("GET", "/v1/broken", ("auditor", "GET", "/v1/broken", 500, None, "internal")),
    ],
)
def test_nothing_that_the_client_made_up(site, method, path, line):
    site.bear(site.secret, method, path)
    assert written(site) == line
    assert SECRET not in path_of(site.home.path / "logs", 0).read_text()


def test_who_is_refused_is_written_too(site):
    assert site.ask("GET", "/v1/datasets/adult").status_code == 401
    assert written(site) == (None, "GET", None, 401, None, "unauthorized")
    other = site.token("other", "predict")
    assert site.bear(other, "GET", "/v1/datasets/adult").status_code == 403
    assert written(site) == ("other", "GET", "/v1/datasets/{name}", 403, None, "forbidden")
    few = site.token("few", "audit", limits=Limits(per_day=1))
    assert [site.bear(few, "GET", "/v1/datasets/adult").status_code for _ in range(2)] == [200, 429]
    assert written(site) == ("few", "GET", None, 429, None, "too_many_requests")
    headers = {"Cookie": f"dpserve={site.secret}", "Sec-Fetch-Site": "cross-site"}
    assert site.ask("GET", "/v1/datasets/adult", headers).status_code == 403
    assert written(site) == ("auditor", "GET", None, 403, None, "cross_site")


def test_why_is_written_and_logged_by_code_alone(site, caplog):
    caplog.set_level(logging.INFO, "dpserve")
    access_log.trail(site.home.path)._second = 0  # as if the second of earlier refusals were over
    for _ in range(60):
        assert site.bear(site.secret, "GET", "/ui/full").status_code == 403
        assert written(site) == ("auditor", "GET", "/ui/full", 403, None, "budget_refused", "quota")
    line = "refused: GET /ui/full of auditor: 403 budget_refused quota"
    assert {record.getMessage() for record in caplog.records} == {line}
    seconds = {time["time"] for time in lines(site.home.path)}
    assert MAX_REFUSED <= len(caplog.records) <= MAX_REFUSED * len(seconds)
    assert SECRET not in path_of(site.home.path / "logs", 0).read_text()
    site.ask("GET", "/ui/full", {"Accept": "application/json"})
    assert len(caplog.records) <= MAX_REFUSED * (len(seconds) + 1)
    assert not any("unauthorized" in record.getMessage() for record in caplog.records)  # no stranger fills the log


def test_login_is_written_with_who_came_in(site):
    headers = {"Origin": BASE}
    site.ask("POST", "/ui/login", headers, data={"token": site.secret})
    assert written(site) == ("auditor", "POST", "/ui/login", 303, None)
    site.ask("POST", "/ui/login", headers, data={"token": "dps_wrong"})
    assert written(site) == (None, "POST", "/ui/login", 303, None)


def test_what_is_open_leaves_none(site):
    before = count(site)
    for path in ("/livez", "/ui/login", "/ui/static/dpserve.css"):
        site.ask("GET", path)
    assert count(site) == before


def test_who_hung_up_has_asked(site):
    async def asking():
        async def receive():
            raise AssertionError

        async def send(message):
            raise AssertionError(message)

        headers = [(b"host", b"here"), (b"authorization", f"Bearer {site.secret}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/v1/gone", "headers": headers, "scheme": "http"}
        more = {"http_version": "1.1", "query_string": b"", "root_path": ""}
        await site.doors({**scope, **more}, receive, send)

    anyio.run(asking)
    assert written(site) == ("auditor", "GET", "/v1/gone", None, None)


def test_no_answer_without_its_line(site, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "/home/somebody")

    with monkeypatch.context() as patch:
        patch.setattr(access_log.os, "write", full)
        assert code(site.bear(site.secret, "GET", "/v1/datasets/adult")) == (503, "not_ready")
    assert "ENOSPC" in caplog.text
    assert "somebody" not in caplog.text
    assert site.bear(site.secret, "GET", "/v1/datasets/adult").status_code == 200


def asked(one, *what, number):
    for _ in range(number):
        one.write(*what)


def test_flood_of_refusals_drives_nobody_out(tmp_path):
    one = Trail(tmp_path / "logs", most=10**6, files=3)
    asked(one, "few", "GET", None, 429, None, number=500)
    asked(one, None, "GET", None, 401, None, number=300)
    asked(one, "auditor", "GET", "/v1/models", 200, None, number=70)
    one._second = 0  # as if it were over
    one.write("auditor", "GET", "/v1/models", 200, None)
    found = list(lines(tmp_path))
    for token, number in (("few", 500), (None, 300), ("auditor", 71)):
        mine = [line for line in found if line["token"] == token]
        assert sum(line.get("times", 1) for line in mine) == number
        assert len(mine) <= 71
    assert len(found) <= 71 + 2 * 3 * (access_log.MAX_REFUSED + 1)  # seconds may have turned meanwhile


# The file


def many(one, number, about="adult"):
    for _ in range(number):
        one.write("auditor", "GET", "/v1/models", 200, about)
        one._second = 0  # as if a second had gone by: that is when it looks


def test_full_file_is_put_aside_and_the_last_one_goes(tmp_path):
    one = Trail(tmp_path, most=300, files=3)
    many(one, 30)
    assert sorted(os.listdir(tmp_path)) == ["access.1.jsonl", "access.2.jsonl", "access.jsonl", "access.lock"]
    sizes = [path_of(tmp_path, number).stat().st_size for number in range(3)]
    assert all(300 <= size < 450 for size in sizes[1:])
    assert path_of(tmp_path, 0).stat().st_mode & 0o777 == 0o600


def test_one_file_alone_begins_anew(tmp_path):
    many(Trail(tmp_path, most=300, files=1), 30)
    assert sorted(os.listdir(tmp_path)) == ["access.jsonl", "access.lock"]
    assert path_of(tmp_path, 0).stat().st_size < 450


def test_file_that_others_moved_is_made_again(tmp_path):
    one = Trail(tmp_path, most=10**6, files=3)
    many(one, 1, "first")
    path_of(tmp_path, 0).rename(tmp_path / "elsewhere")
    many(one, 1, "second")
    assert json.loads(path_of(tmp_path, 0).read_text())["about"] == "second"


def test_lines_come_newest_first_over_all_files(tmp_path):
    one = Trail(tmp_path / "logs", most=300, files=5)
    for number in range(9):
        many(one, 1, str(number))
    with path_of(tmp_path / "logs", 0).open("ab") as file:
        file.write(b'{"time": "cut o')
    assert [line["about"] for line in lines(tmp_path)] == [str(number) for number in reversed(range(9))]
    assert list(lines(tmp_path / "nowhere")) == []


def test_lines_of_a_long_file_are_whole(tmp_path, monkeypatch):
    many(Trail(tmp_path / "logs", most=10**6, files=1), 50)
    whole = list(lines(tmp_path))
    for block in (1, 7, 108, 5000):
        monkeypatch.setattr(access_log, "BLOCK", block)
        assert list(lines(tmp_path)) == whole
    assert len(whole) == 50


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from serving.process.watch.access_log import Trail
one = Trail(Path({path!r}), most=2000, files=1000)
for number in range(300):
    one.write(sys.argv[1], "GET", "/v1/models", 200, str(number))
    one._second = 0
"""


@pytest.mark.slow
def test_no_line_is_lost_or_torn_between_workers(tmp_path):
    script = WRITER.format(root=str(ROOT), path=str(tmp_path / "logs"))
    names = ["one", "two", "three"]
    processes = [subprocess.Popen([*warm.python(), "-c", script, name]) for name in names]
    assert [process.wait() for process in processes] == [0, 0, 0]
    found = list(lines(tmp_path))
    for name in names:
        numbers = [int(line["about"]) for line in found if line["token"] == name]
        assert sorted(numbers) == list(range(300))
    assert len(list((tmp_path / "logs").glob("access.*.jsonl"))) > 10


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(NotReady):
        Trail(tmp_path / "logs", 300, 3).write("auditor", "GET", "/v1/models", 200, None)


# The command


def test_command_shows_the_newest(site):
    home, secret = site.home.path, site.token("shown", "audit", limits=Limits(per_day=2))
    for _ in range(3):
        site.bear(secret, "GET", "/v1/datasets/adult")
    found = dpserve(home, "token", "trail", "--last", "2", "--json")
    assert found.returncode == 0, found.stderr
    assert [line["status"] for line in json.loads(found.stdout)["requests"]] == [200, 429]
    shown = dpserve(home, "token", "trail", "--name", "shown")
    assert [line.split()[1:] for line in shown.stdout.splitlines()] == [
        ["TOKEN", "STATUS", "REQUEST", "ABOUT", "WHY"],
        ["shown", "200", "GET", "/v1/datasets/{name}", "adult"],
        ["shown", "200", "GET", "/v1/datasets/{name}", "adult"],
        ["shown", "429", "GET", "-", "-", "too_many_requests"],
    ]


def test_command_makes_a_limited_token_and_lists_it(site):
    home = site.home.path
    options = ("--name", "partner", "--scope", "predict", "--per-second", "20", "--per-day", "100000")
    made = dpserve(home, "token", "create", *options, "--json")
    assert json.loads(made.stdout)["limits"] == {"per_second": 20, "per_day": 100_000}
    assert "at most 20 per second, 100000 per day" in made.stderr
    assert "20 per second, 100000 per day" in dpserve(home, "token", "list").stdout
    refused = dpserve(home, "token", "create", "--name", "x", "--scope", "predict", "--per-day", "0")
    assert refused.returncode == 2
    assert "per_day=0: must be a whole number from 1" in refused.stderr
