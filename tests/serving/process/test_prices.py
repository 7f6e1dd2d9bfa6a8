"""The price desk: callers take turns, none waits for another's, and what nobody waits for any more ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest
from desk_tasks import die, load, refuse, too_large, wait
from small_home import ROOT, until

from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature
from serving.process import prices
from serving.process.prices import PriceRequest
from serving.process.workers.price_desk import MAX_OF_CALLER, MAX_REQUESTS, SOCKET, socket_address
from serving.wire.errors import ClientGone, NotReady, TooManyRequests
from training.planning.price_engine import offer, run_while_wanted
from training.requests import TuningRequest
from training.session.session import Public
from training.tuning.tune import tuned_of

LONG = 300  # seconds, which nobody waits for
FEATURES = tuple(BooleanFeature(f"x{number}") for number in range(8))
PUBLIC = Public(FEATURES, "y", ("a", "b"), 1000, Relation.ADD_REMOVE, Budget.of("1", "1e-6"), False)
CONNECTED = []  # who stands at the desk, in their order


def noted(connect):
    def connected(caller):
        wire = connect(caller)
        CONNECTED.append(caller)
        return wire

    return connected


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    place = tmp_path_factory.mktemp("desk") / ("d" * 120)  # no address of a socket may be so long
    place.mkdir()
    path = f"{ROOT}:{ROOT / 'tests' / 'helpers'}"
    command = [sys.executable, "-m", "serving.process.workers.price_desk", str(place / "prices"), str(os.getpid())]
    command.append("desk_tasks")
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SOCKET, str(place / "prices"))
        patch.setattr(prices, "SEND_SECONDS", 120)  # or on a busy machine this process would sleep LONG itself
        patch.setattr(prices, "_connect", noted(prices._connect))
        until(lambda: listens(place / "prices"), "the desk listens")
        yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def listens(place):
    """Its address is there a moment before: who asks then is refused, and works it out here, with no bound."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as wire, socket_address(place) as near:
        wire.connect(near)
        return True
    return False


@pytest.fixture
def ask(desk):
    """Asks in threads of its own; what still runs at the end is given up."""
    given_up, threads = threading.Event(), ThreadPoolExecutor(MAX_REQUESTS + 20)
    yield lambda caller, *what: threads.submit(PriceRequest(caller, given_up, run_while_wanted), *what)
    given_up.set()
    threads.shutdown()
    until(lambda: not desk.children(), "nothing goes on for nobody")


def forks(desk, count):
    return until(lambda: len(desk.children()) == count, f"{count} forks")


@pytest.mark.slow
def test_it_is_worked_out_elsewhere_one_after_the_other(ask, desk):
    found = [ask("a", wait, 0.0).result() for _ in range(3)]
    assert len({os.getpid(), desk.pid, *found}) == 5
    assert psutil.Process().nice() < desk.nice()


def test_a_fork_has_loaded_all_that_it_may_be_asked_for(ask):
    """Or each plan of a measurement would first load what it is made by, which takes longer than the plan."""
    assert ask("a", load).result() == []


def test_errors_come_back_as_they_were_raised(ask):
    with pytest.raises(BudgetRefused, match="too much") as refused:
        ask("a", refuse).result()
    assert refused.value.details == {"reason": "budget", "asked": {"epsilon": "9"}}


def test_a_price_has_bounded_memory_and_one_that_is_killed_is_said(ask):
    with pytest.raises(InputError, match="more memory than it may"):
        ask("a", too_large).result()
    with pytest.raises(NotReady):
        ask("a", die).result()
    assert ask("a", wait, 0.0).result() > 0


def test_one_caller_has_one_fork_and_few_in_wait_and_the_others_pass(ask, desk):
    before = len(CONNECTED)
    running = [ask("greedy", wait, LONG) for _ in range(MAX_OF_CALLER)]
    until(lambda: len(CONNECTED) == before + MAX_OF_CALLER, "all of them came before who asks to be refused")
    forks(desk, 1)
    until(lambda: refused(ask("greedy", wait, 0.0)), "the caller waits for too many")
    for caller in ("b", "c", "b"):
        assert ask(caller, wait, 0.0).result() > 0
    assert not any(each.done() for each in running)


def refused(answer):
    try:
        answer.result(timeout=0.5)
    except TooManyRequests as error:
        return error.details["retry_after"] == 1
    except TimeoutError:
        pass
    return False


def test_all_callers_together_are_bounded_as_well(ask):
    asked = [ask(f"caller {number % 20}", wait, LONG) for number in range(MAX_REQUESTS + 5)]
    done = until(lambda: len(found := [each for each in asked if each.done()]) == 5 and found, "five too many")
    assert all(refused(each) for each in done)


@pytest.mark.slow
def test_what_nobody_waits_for_ends(desk):
    for given_up_while in ("it runs", "it waits"):
        given_up, threads = threading.Event(), ThreadPoolExecutor(2)
        found = [threads.submit(PriceRequest("gone", given_up, run_while_wanted), wait, LONG) for _ in range(2)]
        forks(desk, 1)
        given_up.set()
        for each in found:
            with pytest.raises(ClientGone):
                each.result()
        assert forks(desk, 0), given_up_while


@pytest.mark.slow
def test_without_a_desk_what_is_given_up_ends_as_well(monkeypatch):
    """64 settings of ebm, thousands of epochs each: minutes, worked out by a server that was started without a desk."""
    monkeypatch.setenv(SOCKET, "")
    given_up = threading.Event()
    tuned = tuned_of("ebm", None, TuningRequest({"epochs": [*range(4001, 4065)]}), pure=False)
    asked = canonical.encode(dict(tuned.stored())).decode()
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(PriceRequest("a", given_up, run_while_wanted), offer, "ebm", asked, PUBLIC)
        time.sleep(1)
        assert prices.LOCAL_PRICE.locked()
        assert not found.done()
        given_up.set()
        began = time.monotonic()
        with pytest.raises(ClientGone):
            found.result(60)
    assert time.monotonic() - began < 30
    assert not prices.LOCAL_PRICE.locked()


def test_a_desk_that_is_not_there_leaves_one_at_a_time_to_this_process(monkeypatch):
    monkeypatch.setenv(SOCKET, "/nowhere/prices")
    given_up, threads = threading.Event(), ThreadPoolExecutor(20)
    together, most = [], []

    def work():
        together.append(1)
        most.append(len(together))
        time.sleep(0.02)
        together.pop()

    found = [
        threads.submit(PriceRequest("a", given_up, run_while_wanted), work) for _ in range(prices.MAX_LOCAL_PRICES)
    ]
    assert [each.result() for each in found] == [None] * prices.MAX_LOCAL_PRICES
    assert max(most) == 1
    with prices.LOCAL_PRICE:
        waiting = [
            threads.submit(PriceRequest("a", given_up, run_while_wanted), work) for _ in range(prices.MAX_LOCAL_PRICES)
        ]
        until(lambda: prices.LOCAL_PRICES._value == 0, "all of them wait")
        other = PriceRequest("b", given_up, run_while_wanted)
        until(lambda: refused(threads.submit(other, work)), "nobody else may wait")
        given_up.set()
        for each in waiting:
            with pytest.raises(ClientGone):
                each.result()
