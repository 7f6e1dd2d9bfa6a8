"""How often a token may ask: what the ledger says, what is counted, and what who asks too often is told."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import warm
from in_process import code, site_at
from ledgers import ROOT
from starlette.responses import HTMLResponse, JSONResponse

from accountant.access import tokens
from accountant.access.tokens import NO_LIMITS, Limits, Token
from accountant.audit.stored_ledger import StoredLedger
from accountant.store.store import checkpoints, leaves
from dpserve_verify.audit.audit import audit
from dpserve_verify.audit.replay import Replay
from dpserve_verify.entries.access import MOST_REQUESTS
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from serving.http.routes import Door
from serving.operations.grants import TokenAnswer
from serving.process.config.limits import DAY, Meter
from serving.process.tokens import new_token
from serving.wire.errors import NotReady, TooManyRequests

MORNING = 20_000 * DAY + 6 * 3600


# What the ledger says


def test_limits_stand_in_the_entry_and_come_back_from_it(home):
    limits = Limits(per_second=5, per_day=100)
    _, token = new_token(home, "partner", ["predict"], limits)
    assert home.ledger.log.entry(token.created).value["limits"] == {"per_second": 5, "per_day": 100}
    assert token.limits == limits
    assert tokens.tokens(home.ledger) == [token]
    revoked = tokens.revoke(home.ledger, "partner")
    assert revoked.limits == limits


def test_only_what_is_limited_is_said(home):
    _, day = new_token(home, "day", ["predict"], Limits(per_day=3))
    _, free = new_token(home, "free", ["predict"])
    assert home.ledger.log.entry(day.created).value["limits"] == {"per_day": 3}
    assert "limits" not in home.ledger.log.entry(free.created).value  # as before there were any
    assert [token.limits for token in tokens.tokens(home.ledger)] == [Limits(per_day=3), NO_LIMITS]
    assert TokenAnswer.of_token(free).limits == {"per_second": None, "per_day": None}


@pytest.mark.parametrize("wrong", [0, -1, MOST_REQUESTS + 1, 1.5, "5", True])
def test_a_limit_is_a_whole_number_above_0(wrong):
    for name in ("per_second", "per_day"):
        with pytest.raises(InputError, match=f"{name}="):
            Limits(**{name: wrong})


def test_a_ledger_with_limits_is_sound(home):
    new_token(home, "partner", ["predict"], Limits(5, 100))
    with home.ledger.log.database.reading() as connection:
        found = audit(
            leaves(connection), checkpoints(connection), home.trust, stored=StoredLedger(connection, home.path)
        )
    assert found.problems == ()


@pytest.mark.parametrize(
    "wrong",
    [None, {}, [], 5, {"per_second": 0}, {"per_second": True}, {"per_day": "5"}, {"per_hour": 5}, {"per_day": 10**10}],
)
def test_an_audit_names_limits_that_mean_nothing(home, wrong):
    replay = Replay(home.trust)
    with home.ledger.log.database.reading() as connection:
        for seq, body in leaves(connection):
            replay.read(seq, body)
    entry = {"type": "token-created", "time": "2026-01-01T00:00:00Z", "name": "x", "scopes": ["predict"]}
    body = canonical.encode({**entry, "principal": "x", "hash": "0" * 64, "limits": wrong})
    with pytest.raises(LedgerInvalid, match="limits"):
        replay.read(home.ledger.log.size(), body)


# What is counted


@pytest.fixture
def now():
    return [MORNING]


@pytest.fixture
def meter(tmp_path, now):
    return Meter(tmp_path / "run" / "limits", lambda: now[0])


def token(created=1, **limits):
    return Token(f"token-{created}", ("predict",), "0" * 64, created, None, Limits(**limits))


def admitted(meter, one, asks):
    """How many of so many requests were let through."""
    count = 0
    for _ in range(asks):
        try:
            meter.admit(one)
            count += 1
        except TooManyRequests:
            continue
    return count


def test_so_many_a_second_and_not_one_more(meter, now):
    one = token(per_second=3)
    assert admitted(meter, one, 10) == 3
    now[0] += 0.999
    assert admitted(meter, one, 10) == 0
    now[0] = MORNING + 1
    assert admitted(meter, one, 10) == 3


def test_so_many_a_day_and_a_day_ends_at_midnight(meter, now):
    one = token(per_day=5)
    assert admitted(meter, one, 3) == 3
    now[0] += 17 * 3600
    assert admitted(meter, one, 10) == 2
    now[0] = MORNING + 18 * 3600
    assert admitted(meter, one, 10) == 5


def test_both_hold_and_what_was_refused_does_not_count(meter, now):
    one = token(per_second=2, per_day=5)
    counts = []
    for _ in range(4):
        counts.append(admitted(meter, one, 100))
        now[0] += 1
    assert counts == [2, 2, 1, 0]


def test_each_token_is_counted_by_itself(meter):
    assert admitted(meter, token(1, per_day=2), 9) == 2
    assert admitted(meter, token(2, per_day=3), 9) == 3
    assert admitted(meter, token(1_000_000, per_day=4), 9) == 4  # of a long ledger: the file has holes
    assert admitted(meter, token(1, per_day=2), 9) == 0


def test_counts_outlive_the_server(tmp_path, meter, now):
    assert admitted(meter, token(per_day=5), 3) == 3
    again = Meter(tmp_path / "run" / "limits", lambda: now[0])
    assert admitted(again, token(per_day=5), 9) == 2


def test_clock_that_was_set_back_does_not_lock_out_for_ever(meter, now):
    now[0] += 400 * DAY
    assert admitted(meter, token(per_day=2), 9) == 2
    now[0] = MORNING
    assert admitted(meter, token(per_day=2), 9) == 2


def test_refusal_says_the_limit_and_when_to_come_back(meter, now):
    one = token(per_second=1, per_day=2)
    meter.admit(one)
    with pytest.raises(TooManyRequests) as refused:
        meter.admit(one)
    assert refused.value.details == {"limit": 1, "per": "second", "retry_after": 1}
    now[0] += 1
    meter.admit(one)
    with pytest.raises(TooManyRequests) as refused:
        meter.admit(one)
    assert refused.value.details == {"limit": 2, "per": "day", "retry_after": 18 * 3600 - 1}


def test_what_cannot_be_counted_is_not_answered(meter, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "/home/somebody/secret")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(NotReady):
            meter.admit(token(per_day=2))
    assert "ENOSPC" in caplog.text
    assert "secret" not in caplog.text
    assert admitted(meter, token(per_day=2), 9) == 2  # and the lock was given back


def test_file_is_for_its_owner_alone(tmp_path, meter):
    meter.admit(token(per_day=1))
    assert (tmp_path / "run" / "limits").stat().st_mode & 0o777 == 0o600


HAMMER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from accountant.access.tokens import Limits, Token
from serving.wire.errors import TooManyRequests
from serving.process.config.limits import Meter
meter = Meter(Path({path!r}), lambda: {now})
token = Token("one", ("predict",), "0" * 64, 7, None, Limits(per_second={most}))
count = 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range({most}):
    try:
        meter.admit(token)
        count += 1
    except TooManyRequests:
        pass
print(count)
"""


@pytest.mark.slow
def test_exact_over_processes_that_ask_at_once(tmp_path):
    most, path = 20_000, tmp_path / "run" / "limits"
    script = HAMMER.format(root=str(ROOT), path=str(path), now=MORNING, most=most)
    command = [*warm.python(), "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = [int(process.communicate()[0]) for process in processes]
    assert sum(counts) == most
    assert all(process.returncode == 0 for process in processes)


def test_worker_that_was_killed_holds_nothing_up(tmp_path, meter):
    """It had the lock when it was killed."""
    script = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX, 64, 0)
print("locked", flush=True)
time.sleep(600)
"""
    meter.admit(token(per_day=9))
    command = [sys.executable, "-c", script, str(tmp_path / "run" / "limits")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(BlockingIOError):
        fcntl.lockf(meter._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 32, 32)
    process.kill()
    process.wait()
    meter.admit(token(per_day=9))


# At the door


async def answer(_request):
    return JSONResponse({})


DOORS = (Door("GET", "/v1/models", ("predict",), answer, "models"), Door("GET", "/livez", (), answer, "alive"))


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path, DOORS) as found:
        yield found


def test_too_many_requests_are_told_when_to_come_back(site):
    secret, other = site.token("partner", "predict", limits=Limits(per_day=2)), site.token("other", "predict")
    assert [site.bear(secret, "GET", "/v1/models").status_code for _ in range(2)] == [200, 200]
    refused = site.bear(secret, "GET", "/v1/models")
    assert code(refused) == (429, "too_many_requests")
    assert 1 <= int(refused.headers["Retry-After"]) <= DAY
    assert refused.json()["error"]["details"]["limit"] == 2
    assert site.bear(other, "GET", "/v1/models").status_code == 200
    assert site.ask("GET", "/livez").status_code == 200


def test_page_of_a_refusal_says_when_too(site):
    site.app.state.error_page = lambda request, answer: HTMLResponse("<h1>Too often</h1>", answer.status_code)
    secret = site.token("partner", "predict", limits=Limits(per_day=1))
    headers = {"Accept": "text/html", "Cookie": f"dpserve={secret}"}
    first, second = (site.ask("GET", "/ui/nope", headers) for _ in range(2))
    assert (first.status_code, second.status_code, second.text) == (404, 429, "<h1>Too often</h1>")
    assert int(second.headers["Retry-After"]) >= 1


def test_whatever_a_token_asks_counts_and_what_others_ask_does_not(site):
    secret = site.token("partner", "audit", limits=Limits(per_day=2))
    assert code(site.bear(secret + "x", "GET", "/v1/models")) == (401, "unauthorized")
    assert code(site.bear(secret, "GET", "/v1/models")) == (403, "forbidden")
    assert code(site.bear(secret, "GET", "/nope")) == (404, "not_found")
    assert code(site.bear(secret, "GET", "/v1/models")) == (429, "too_many_requests")
    assert code(site.ask("GET", "/v1/models", {"Cookie": f"dpserve={secret}"})) == (429, "too_many_requests")


def test_new_token_of_the_old_name_begins_anew(site):
    secret = site.token("partner", "predict", limits=Limits(per_day=1))
    assert [site.bear(secret, "GET", "/v1/models").status_code for _ in range(2)] == [200, 429]
    tokens.revoke(site.home.ledger, "partner")
    again = site.token("partner", "predict", limits=Limits(per_day=1))
    assert [site.bear(again, "GET", "/v1/models").status_code for _ in range(2)] == [200, 429]


def test_json_of_a_limited_token_is_json():
    limited = TokenAnswer.of_token(replace(token(), limits=Limits(per_day=7))).to_json()
    assert json.loads(json.dumps(limited))["limits"] == {"per_second": None, "per_day": 7}
