"""What a body may become: bodies that stand for gigabytes are answered by a process that has no gigabyte."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import hostile_bodies
import numpy as np
import pyarrow as pa
import pytest
from small_home import ROOT, adult_home, environment
from starlette.requests import Request

from accountant.errors import NotInvited
from accountant.home import Home
from dpserve_verify.errors import InputError
from models.features.features import CategoricalFeature
from serving.process.tokens import new_token
from serving.wire import request_bodies, work_time
from serving.wire.bounds import (
    MANY_BYTES,
    MAX_DEPTH,
    PIECE_BYTES,
    TEXT_BYTES,
    check_answer,
    check_cells,
    check_depth,
    check_objects,
    count_byte,
)
from serving.wire.errors import TakesTooLong, TooLarge, TooManyRequests
from serving.wire.tables_in import table_of
from serving.wire.work_time import check_time, in_turn
from training.jobs import job
from training.requests import JobRequest

ROOM = 900 << 20  # bytes of address space, reserved or used, beside what the process has before its first request


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoded")
    home = adult_home(folder, 20)
    job.train(
        home, JobRequest("adult", "ebm", "0.5"), by="test"
    )  # which reads every column, so that each reaches the model
    return home


class Bounded:
    """The application in a process of its own; see bounded_worker."""

    def __init__(self, home: Home, log: Path) -> None:
        token = new_token(home, "sender", ["admin"])[0]
        program = [sys.executable, str(ROOT / "tests" / "helpers" / "bounded_worker.py"), token, str(ROOM)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log.open("wb")}
        self.process = subprocess.Popen(program, env=environment(home.path, MALLOC_ARENA_MAX="2"), **pipes)

    def ask(self, body: hostile_bodies.Body, bounded: bool) -> int:
        told = {"path": body.path, "kind": body.kind, "headers": body.headers, "bounded": bounded}
        self.process.stdin.write(json.dumps({**told, "size": len(body.raw)}).encode() + b"\n" + body.raw)
        self.process.stdin.flush()
        return int(self.process.stdout.readline() or -1)


@pytest.mark.slow
def test_no_body_takes_a_gigabyte(home, tmp_path):
    """Each is answered, none with a fault of ours, under a limit that the system keeps; and then all is as before."""
    worker = Bounded(home, tmp_path / "log")
    assert [worker.ask(body, False) for body in hostile_bodies.good()] == [200] * len(hostile_bodies.good())
    found = {}
    for make in hostile_bodies.hostile():
        body = make()
        found[body.name] = worker.ask(body, True)
    answers = {200, 400, 404, 413, 422, 504}  # 504: given up, and stopped, by a machine that is busy with other tests
    assert set(found.values()) <= answers, (found, (tmp_path / "log").read_text()[-3000:])
    assert found["one text of 15 MB"] == found["many texts"] == found["long texts"] == 200  # each is "other"
    assert (
        found["growing dictionary"]
        == found["batches of one"]
        == found["json empty objects"]
        == found["v2 lists"]
        == 413
    )
    assert {status for name, status in found.items() if name.endswith("deep")} == {400, 413, 422}
    assert [worker.ask(body, True) for body in hostile_bodies.good()] == [200] * len(hostile_bodies.good())
    worker.process.stdin.close()
    assert worker.process.wait(60) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


# What the bounds are


def test_depth_is_that_of_brackets_outside_of_texts():
    for mark, close in (("[", "]"), ('{"a":', "}")):
        check_depth((mark * MAX_DEPTH + "1" + close * MAX_DEPTH).encode())
        with pytest.raises(InputError, match="deeper"):
            check_depth((mark * (MAX_DEPTH + 1) + "1" + close * (MAX_DEPTH + 1)).encode())
    check_depth(json.dumps(["[{" * 100, '\\"[' * 100, "\\" * 99]).encode())
    check_depth(b"[]," * 1000)
    with pytest.raises(InputError, match="deeper"):
        check_depth(b'["\\\\",' + b"[" * 100)
    check_depth(b'"' + b'\\"' * 100_000 + b"[" * 100)  # a text that does not end is one text


def test_objects_are_those_outside_of_texts():
    check_objects(b'{"a": [' + b"{}," * 9 + b'"{{{{{{{{{{{{"]}', 9)
    with pytest.raises(TooLarge):
        check_objects(b'{"a": [' + b"{}," * 10 + b"]}", 9)


def test_cells_and_answers():
    check_cells(20_000, 400)
    check_answer(20_000, 200)
    for check in (check_cells, check_answer):
        with pytest.raises(TooLarge) as caught:
            check(20_000, 1000)
        check(caught.value.details["limit"], 1000)
        with pytest.raises(TooLarge):
            check(caught.value.details["limit"] + 1, 1000)


def test_texts_longer_than_every_category_are_other_and_take_no_room():
    feature = CategoricalFeature("education", ("0", "é" * 3, "x" * 5000))
    texts = ["é" * 3, "y" * 6000, "", None, "x" * 5000, "x" * 5001]
    wanted = ["é" * 3, "1", "", "", "x" * 5000, "1"]  # "1": short, and none of the categories
    plain = pa.array(texts)
    for column in (plain, plain.cast(pa.large_string()), plain.dictionary_encode()):
        raw = hostile_bodies.stream(pa.table({"education": column}), 2)
        assert table_of(raw, (feature,), 10).read((feature,), {"education"})["education"].tolist() == wanted
    shared = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, "i4")), pa.array(["x" * 5000]))
    with pytest.raises(TooLarge) as caught:  # a category of five thousand, twenty thousand times
        table_of(hostile_bodies.stream(pa.table({"education": shared})), (feature,), 20_000).read(
            (feature,), {"education"}
        )
    assert caught.value.details == {"limit": TEXT_BYTES}


# Time


def test_what_is_given_up_stops(monkeypatch):
    """The thread ends with the answer, and only then is it the next one's turn."""
    monkeypatch.setattr(work_time, "WORK_SECONDS", 0.3)
    running = []

    def endless(name):
        running.append(name)
        try:
            while True:
                check_time()
                time.sleep(0.01)
        finally:
            running.remove(name)

    async def ask():
        found = await asyncio.gather(*(in_turn("a", endless, name) for name in "abc"), return_exceptions=True)
        assert [type(each) for each in found] == [TakesTooLong] * 3
        assert running == []
        monkeypatch.setattr(work_time, "WORK_SECONDS", 60)
        return await in_turn("a", lambda: (check_time(), running.copy())[1])

    assert asyncio.run(ask()) == []
    check_time()  # nobody waits here


def test_one_at_a_time():
    most = [0, 0]

    def work():
        most[0] += 1
        most[1] = max(most)
        time.sleep(0.01)
        most[0] -= 1

    async def ask():
        await asyncio.gather(*(in_turn("a", work) for _ in range(10)))

    asyncio.run(ask())
    assert most == [0, 1]


def test_callers_take_turns():
    """Whoever comes has its turn after those who wait already with their first, not after all that they sent."""
    order = []

    async def ask():
        hog = [asyncio.ensure_future(in_turn("hog", order.append, number)) for number in range(6)]
        given_up = asyncio.ensure_future(in_turn("gone", order.append, "gone"))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(in_turn(name, order.append, name)) for name in ("b", "c", "b")]
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(*hog, *others)

    asyncio.run(ask())
    assert order == [0, 1, "b", "c", 2, "b", 3, 4, 5]


def of(principal):
    """The scope of a request: of a token's principal, or (None) of a stranger."""
    return {} if principal is None else {"dpserve.access": SimpleNamespace(principal=principal)}


def test_bodies_are_held_for_callers_by_shares():
    """A caller holds as much as is still free, so whoever comes next has room; strangers are one caller with little."""
    most, part, scopes = request_bodies.MAX_HELD_BYTES, 1 << 20, []

    def take_all(principal):
        for count in range(most):
            scopes.append(of(principal))
            try:
                request_bodies.hold(scopes[-1], part)
            except TooManyRequests:
                return count * part
        return most

    assert take_all(None) == request_bodies.STRANGERS_BYTES
    greedy = [take_all(f"token:{number}") for number in range(5)]
    assert greedy[0] == (most - request_bodies.STRANGERS_BYTES) // 2
    assert most - sum(greedy) - request_bodies.STRANGERS_BYTES >= part
    request_bodies.hold(last := of("token:last"), part)
    for scope in (*scopes, last, last):  # nothing is given back twice
        request_bodies.let_go(scope)
    assert take_all("token:0") == most // 2
    for scope in scopes:
        request_bodies.let_go(scope)


def test_a_stranger_says_who_it_is_before_the_rest_is_read(monkeypatch):
    monkeypatch.setattr(request_bodies, "STRANGERS_BYTES", 8000)
    first, rest = b"invitation\n" + bytes(2000), bytes(50_000)
    read, shown = [], []

    async def ask(welcome, *parts, **head):
        queue = list(parts)

        async def receive():
            read.append(len(queue[0]))
            return {"type": "http.request", "body": queue.pop(0), "more_body": bool(queue)}

        headers = [(b"content-type", b"text/plain"), *((name.encode(), value) for name, value in head.items())]
        scope = {"type": "http", "headers": headers}
        try:
            return await request_bodies.read_body(Request(scope, receive), 1 << 20, b"text/plain", welcome=welcome)
        finally:
            request_bodies.let_go(scope)

    async def welcome(line):
        shown.append(line)
        if line != b"invitation":
            raise NotInvited("no")
        return "owner"

    assert asyncio.run(ask(welcome, first, rest)) == first + rest
    assert asyncio.run(ask(welcome, b"invitation")) == b"invitation"
    assert shown == [b"invitation"] * 2
    read.clear()
    with pytest.raises(NotInvited):
        asyncio.run(ask(welcome, bytes(100), rest))
    assert read == [100]
    with pytest.raises(TooManyRequests):
        asyncio.run(ask(welcome, first + rest))
    for parts, head in (((first, rest), {}), ((first,), {"content-length": b"4097"})):
        with pytest.raises(TooLarge) as caught:
            asyncio.run(ask(None, *parts, **head))
        assert caught.value.details["limit"] == request_bodies.STRANGER_BYTES


@pytest.mark.parametrize("size", [0, 10, MANY_BYTES - 1, MANY_BYTES, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 1])
def test_bytes_are_counted_alike_many_at_a_time(size):
    raw = (b'{"a": 1}, ' * (size // 10 + 1))[:size]
    assert count_byte(raw, b":") == raw.count(b":")
    assert count_byte(raw, b"{") == raw.count(b"{")
