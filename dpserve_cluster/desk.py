"""Asks the workers about the pieces of a job, and adds up.

A question is one pure task a piece, bound to one worker, so that its caches are found again. A worker that is gone, or
was not heard of by the scheduler for a while, is not waited for: its pieces are asked of the others, cut so that each
of them has a share, who make the caches anew. Whoever answers first counts, and each row counts once.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from accountant.errors import EngineLost, JobFailed
from dpserve_cluster import answering
from dpserve_cluster.pieces import Piece, Seen, check_manifest
from dpserve_cluster.workers import (
    CONNECT_SECONDS,
    LOOK_MOST,
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    Workers,
    let_go,
    result,
)
from training.rows.partitions.partition import Integers, Question

LOST = 3  # workers that may end while they answer for the same piece


class Desk:
    """Who answers for which piece, and the exact sum of what they answer."""

    def __init__(self, client: Any, workers: Workers, pieces: Sequence[Piece]) -> None:
        check_manifest(pieces)
        self.job, self.pieces = uuid.uuid4().hex, tuple(pieces)
        self._client, self._workers = client, workers
        self._place: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._seen: dict[str, Seen] = {}
        self._kept: list[Any] = []  # futures of the last question, let go once the next is on its way: one message less
        self._last: tuple[int, Question] = 0, answering.CountRows()
        workers.listen(self._prepare)
        self.size = int(self.ask(*self._last))
        self.runs = count(1)

    def ask(self, run: int, question: Question) -> Integers:
        """Return the sum of what every piece answers. JobFailed where one cannot be had."""
        try:
            answers = self._client.sync(self._ask, run, question)
        except JobFailed:
            raise
        except Exception as error:  # the scheduler is gone, or somebody cancelled what was asked
            raise EngineLost(f"engine: the cluster was lost ({type(error).__name__})") from None
        first, *later_answers = (answers[piece.name] for piece in self.pieces)
        rows: Counter[str] = Counter()
        for piece in self.pieces:
            rows[piece.whose] += answers[piece.name].rows
        for piece in self.pieces:
            shape, before = answers[piece.name].sums.shape, self._rows.setdefault(piece.whose, rows[piece.whose])
            if shape != first.sums.shape or rows[piece.whose] != before:
                raise JobFailed(
                    f"{piece.name}: its answer is not of the form of the others, or of as many rows as before"
                )
        total: Integers = first.sums
        for answer in later_answers:
            total = total + answer.sums
        return total

    async def _ask(self, run: int, question: Question) -> dict[str, answering.Answer]:
        there, pause, patience = self._workers, LOOK_SECONDS, time.monotonic() + PATIENCE_SECONDS
        answers: dict[str, answering.Answer] = {}
        running: dict[asyncio.Task[Any], tuple[Piece, tuple[str, int], Any]] = {}
        ended: dict[str, set[tuple[str, int]]] = {}
        turns, futures = count(), list[Any]()

        def submit() -> None:
            """Ask about every piece that nobody answers, or answered."""
            self._spread(answers)
            waiting, turn = (
                {piece.name for piece, (worker, _), _ in running.values() if worker in there.threads},
                next(turns),
            )
            for piece in self.pieces if there.threads else ():
                if piece.name not in answers and piece.name not in waiting:
                    futures.append(self._submit(worker := self._place[piece.name], run, question, piece))
                    running[asyncio.ensure_future(result(futures[-1]))] = piece, (worker, turn), futures[-1]

        def end(task: asyncio.Task[Any]) -> None:
            """Note that the worker of this task ended."""
            piece, who, future = running.pop(task)
            let_go(task, future)
            there.threads.pop(who[0], None)
            ended.setdefault(piece.whose, set()).add(who)
            if len(ended[piece.whose]) > LOST and piece.name not in answers:
                raise JobFailed(f"{piece.whose}: {LOST + 1} workers ended while they answered; is their memory enough?")

        moved = asyncio.ensure_future(there.moved.wait())
        try:
            submit()
            self._kept, self._last = futures, (run, question)
            while not all(piece.name in answers for piece in self.pieces):
                done, _ = await asyncio.wait({*running, moved}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                lost = [task for task in done if task in running and task.result() is None]
                for task in [task for task in done if task in running and task.result() is not None]:
                    name = running.pop(task)[0].name
                    self._seen[name] = answers.setdefault(name, answering.Answer.of(name, task.result())).seen
                for task in lost:
                    end(task)
                if moved in done:
                    there.moved.clear()
                    moved = asyncio.ensure_future(there.moved.wait())
                elif lost or not done:
                    pause = min(2 * pause, LOOK_MOST)
                    await there.see()
                else:
                    continue
                for task in [task for task, (_, (worker, _), _) in running.items() if worker not in there.listed]:
                    end(task)
                if there.threads:
                    patience = time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > patience:
                    raise EngineLost(f"engine: for {PATIENCE_SECONDS:.0f} s no worker was there that could answer")
                submit()
            return answers
        finally:
            moved.cancel()
            for task, (_, _, future) in running.items():
                let_go(task, future)

    def _submit(self, worker: str, run: int, question: Question, piece: Piece) -> Any:
        return self._client.submit(
            answering.answer, self.job, run, piece, question,
            key=f"dpserve-{uuid.uuid4().hex}", workers=[worker], pure=False,
        )  # fmt: skip

    def _spread(self, answered: Container[str]) -> None:
        """Give every piece a worker that runs. Pieces of lost workers are cut, so that all workers share them."""
        there = self._workers.threads
        if not there:
            return
        lost = {name for name, worker in self._place.items() if worker not in there and name not in answered}
        if lost:
            pieces: list[Piece] = []
            for piece in self.pieces:
                if piece.name in lost:
                    seen = piece.seen | {self._seen[piece.name]} if piece.name in self._seen else piece.seen
                    pieces += replace(piece, seen=seen).split(sum(there.values()) // len(lost))
                else:
                    pieces.append(piece)
            check_manifest(pieces)
            self.pieces = tuple(pieces)
        self._place = self._placed(there, answered)

    def _placed(self, there: dict[str, int], answered: Container[str] = ()) -> dict[str, str]:
        """Return a worker for each piece: the one that it had, unless that has more than its share by threads."""
        parts, total = {piece.name: max(1, len(piece.parts)) for piece in self.pieces}, sum(there.values())
        most = {worker: -(-sum(parts.values()) * threads // total) for worker, threads in there.items()}
        load: Counter[str] = Counter()
        placed = {}
        for name, size in parts.items():
            worker = self._place.get(name, "")
            if name in answered or (worker in there and load[worker] + size <= most[worker]):
                placed[name] = worker
                load[worker] += size
        for name, size in sorted(parts.items(), key=lambda each: -each[1]):
            if name not in placed:
                placed[name] = min(there, key=lambda worker: ((load[worker] + size) / there[worker], worker))
                load[placed[name]] += size
        return placed

    async def _prepare(self, newcomer: str, own: int) -> None:
        """Ask a new worker the last question about its pieces, and drop the answer: files are opened and caches made
        while others still answer.
        """
        placed = self._placed({**self._workers.threads, newcomer: own})
        about = [piece for piece in self.pieces if placed[piece.name] == newcomer]
        futures = [self._submit(newcomer, *self._last, piece) for piece in about]
        running = {asyncio.ensure_future(result(future)): future for future in futures}
        try:
            if running:
                await asyncio.wait(running, timeout=PATIENCE_SECONDS)
        finally:
            for task, future in running.items():
                let_go(task, future)

    def close(self) -> None:
        """Stop asking, and let the workers that can be reached drop what they hold of the job."""
        with suppress(Exception):  # what they hold is dropped with time
            self._client.sync(self._forget)
        self._client.close(CONNECT_SECONDS)

    async def _forget(self) -> None:
        self._workers.close()
        requests = [
            self._client.submit(answering.forget, self.job, key=f"dpserve-{uuid.uuid4()}", workers=[worker], pure=False)
            for worker in self._workers.threads
        ]
        waiting = asyncio.gather(*map(result, requests), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(waiting, LOOK_MOST)
