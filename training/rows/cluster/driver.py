"""The driver's side of a cluster: who answers for which piece, and the exact sum of what they answer.

A question is one pure task a piece, bound to one worker, so that its caches are found again. A worker that is gone, or
was not heard of by the scheduler for a while, is not waited for: its pieces are asked of another, which makes the
caches anew. Whoever answers first counts, and each piece counts once. Noise is drawn by nobody here: a session does,
once, after the sum.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from accountant.errors import EngineUnavailable, InputError, JobFailed
from accountant.home import settings
from accountant.later import later
from models.features import Feature
from training.rows.cluster import answering
from training.rows.cluster.pieces import Piece, check_manifest
from training.rows.packed.source import Digests, Source
from training.rows.partitions import threads
from training.rows.partitions.partition import Integers, Partition, Question

distributed = later("distributed")

CONNECT_SECONDS = 10.0
LOOK_SECONDS = 0.25  # without an answer: then the scheduler is asked who is there; up to LOOK_MOST
LOOK_MOST = 2.0
SILENT_SECONDS = 15.0  # a worker tells the scheduler every half second that it is there, one of many less often
PATIENCE_SECONDS = 60.0  # without any worker that could answer
LOST = 3  # workers that may end while they answer for the same piece
NAMED = {"dask": "tcp", "tls": "tls"}
Check = Callable[[Source, Callable[[str], Iterable[bytes]]], None]


def engine_address() -> str | None:
    """Where DPSERVE_ENGINE says that a cluster is, as Dask writes it; None where this process is the engine.
    InputError where it says neither.
    """
    said = settings()["DPSERVE_ENGINE"].value
    if said == "local":
        return None
    try:
        found = urlsplit(said)
        if found.scheme in NAMED and found.hostname and found.port and found.netloc.count("@") + len(found.path) == 0:
            return f"{NAMED[found.scheme]}://{found.netloc}"
    except ValueError:
        pass
    raise InputError(f"DPSERVE_ENGINE={said[:80]}: must be local, dask://HOST:PORT, or tls://HOST:PORT")


def check_engine(files: Sequence[Path]) -> None:
    """Before a job is charged: EngineUnavailable unless the cluster that DPSERVE_ENGINE names is there, and all of its
    workers that answer see these files, and have the dpserve that is here.
    """
    address = engine_address()
    if address is not None:
        client = _client(address)
        try:
            client.sync(Workers(client, _sizes(files)).found)
        finally:
            client.close(CONNECT_SECONDS)


def open_cluster(address: str, sources: Sequence[Source], schema: Path, bounds: Sequence[int], check: Check) -> Cluster:
    """The rows of these sources, asked of a cluster. `schema`: their file; `bounds`: more rows than that none has.
    `check` raises where a source's files are not those that were registered, and reads each of them once, by the reader
    that it is given: what is hashed then is what the manifest names.
    """
    files = [source.folder / name for source in sources for name in source.files]
    try:
        client = _client(address)
    except EngineUnavailable as error:
        raise JobFailed(f"rows: {error.message}") from None
    try:
        workers, since = Workers(client, _sizes([*files, schema])), time.monotonic()
        while not workers.threads:  # it is charged: what comes back soon is waited for
            try:
                client.sync(workers.found)
            except EngineUnavailable as error:
                if time.monotonic() - since > PATIENCE_SECONDS:
                    raise JobFailed(f"rows: {error.message}") from None
                time.sleep(LOOK_SECONDS)
        pieces = manifest(sources, schema, bounds, sum(workers.threads.values()), check)
        return Cluster(Desk(client, workers, pieces), sources[0].partition(0, 0, sources[0].folder))
    except BaseException:
        client.close(CONNECT_SECONDS)
        raise


def manifest(
    sources: Sequence[Source], schema: Path, bounds: Sequence[int], threads_there: int, check: Check
) -> tuple[Piece, ...]:
    """The rows of these sources cut into pieces, whose number follows from what is public alone."""
    fewest = [-(-bound // threads.PARTITION) for bound in bounds]
    times = -(-threads_there // sum(fewest))  # a piece at least for everybody who could answer
    found = []
    for source, few in zip(sources, fewest, strict=True):
        rows, parts = source.size, few * times
        cuts = list(pairwise(rows * at // parts for at in range(parts + 1)))
        digests = Digests(source, cuts)
        check(source, digests)
        for at, ((low, high), digest) in enumerate(zip(cuts, digests.done(), strict=True), 1):
            name = f"piece {at} of {parts} of block {source.folder.name}"
            same = schema, source.schema.digest, source.target, source.part, source.by, source.fine
            found.append(Piece(name, source.folder, low, high, rows, digest, *same))
    check_manifest(found)
    return tuple(found)


def _sizes(files: Iterable[Path]) -> dict[str, int]:
    return {os.fspath(file.absolute()): file.stat().st_size for file in files}


def _client(address: str) -> Any:
    """A connection to the scheduler. EngineUnavailable where there is none. What workers answer is bytes, and nothing
    of it is unpickled here.
    """
    how: dict[str, Any] = {"set_as_default": False, "deserializers": ["dask", "msgpack"], "timeout": CONNECT_SECONDS}
    try:
        if address.startswith("tls://"):
            how["security"] = distributed.Security(require_encryption=True)  # certificates: Dask's own configuration
        return distributed.Client(address, **how)
    except ImportError:
        raise EngineUnavailable("DPSERVE_ENGINE: a cluster needs the extra dask: pip install 'dpserve[dask]'") from None
    except Exception as error:  # refused, no answer, another protocol, no or wrong certificates
        raise EngineUnavailable(
            f"DPSERVE_ENGINE={address}: no scheduler can be asked there ({type(error).__name__}); start it, or see to "
            "the address and the certificates"
        ) from None


@dataclass
class Workers:
    """Who is there, and who of them may be asked: those that see the files and have our sources. `threads`: of each of
    them. `listed`: all that the scheduler has not given up.
    """

    client: Any
    files: dict[str, int]
    threads: dict[str, int] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)  # what the scheduler said, and when that moved

    async def awake(self) -> dict[str, int]:
        """Those that run and were heard of lately, with their threads. No clock of theirs is believed."""
        told = (await self.client.scheduler.identity(n_workers=-1))["workers"]
        now, self.listed = time.monotonic(), {*told}
        for address, about in told.items():
            if self._heard.get(address, (None, now))[0] != about["last_seen"]:
                self._heard[address] = about["last_seen"], now
        return {
            address: about["nthreads"]
            for address, about in told.items()
            if about["status"] == "running" and now - self._heard[address][1] < SILENT_SECONDS
        }

    async def found(self) -> None:
        """Look at those that are awake and not known yet. EngineUnavailable where one of them may not be asked, or
        where there is none.
        """
        awake = await self.awake()
        self.threads = {address: own for address, own in self.threads.items() if address in awake}
        looked = await asyncio.gather(*(self._look(each) for each in awake if each not in self.threads))
        self.threads |= {address: awake[address] for address in looked if address is not None}
        if not self.threads:
            raise EngineUnavailable("DPSERVE_ENGINE: the cluster has no worker that answers; start some")

    async def _look(self, address: str) -> str | None:
        word = f"dpserve-look-{uuid.uuid4()}"
        future = self.client.submit(answering.look, self.files, key=word, workers=[address], pure=False)
        task = asyncio.ensure_future(future.result())
        try:
            if not (await asyncio.wait([task], timeout=CONNECT_SECONDS))[0]:
                _let_go(task, future)
                return None
            found = json.loads(task.result())
        except (OSError, distributed.KilledWorker, asyncio.CancelledError):
            return None
        except Exception as error:
            raise EngineUnavailable(
                f"worker {address}: cannot run dpserve ({type(error).__name__}); install what runs here on every worker"
            ) from None
        if found["fingerprint"] != answering.fingerprint():
            raise EngineUnavailable(
                f"worker {address}: runs another dpserve, Python or numpy; install what runs here on every worker"
            )
        if found["unseen"]:
            raise EngineUnavailable(
                f"worker {address}: does not see {found['unseen'][0]} as it is here; workers read the home's datasets/ "
                "at the same path (a shared file system, or a copy)"
            )
        return address


class Desk:
    """Asks the workers about the pieces of a job, and adds up."""

    def __init__(self, client: Any, workers: Workers, pieces: Sequence[Piece]) -> None:
        check_manifest(pieces)
        self.job, self.pieces = uuid.uuid4().hex, tuple(pieces)
        self._client, self._workers = client, workers
        self._place: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._kept: list[Any] = []  # futures of the last question, let go once the next is on its way: one message less
        self._spread()
        self.size = int(self.ask(0, answering.CountRows()))
        self.runs = count(1)

    def ask(self, run: int, question: Question) -> Integers:
        """The sum of what every piece answers. JobFailed where one cannot be had."""
        try:
            answers = self._client.sync(self._ask, run, question)
        except JobFailed:
            raise
        except Exception as error:  # the scheduler is gone, or somebody cancelled what was asked
            raise JobFailed(f"engine: the cluster was lost ({type(error).__name__})") from None
        first, *others = (answers[piece.name] for piece in self.pieces)
        for piece, answer in zip(self.pieces, (first, *others), strict=True):
            if answer.sums.shape != first.sums.shape or self._rows.setdefault(piece.name, answer.rows) != answer.rows:
                raise JobFailed(
                    f"{piece.name}: its answer is not of the form of the others, or of as many rows as before"
                )
        total: Integers = first.sums
        for answer in others:
            total = total + answer.sums
        return total

    async def _ask(self, run: int, question: Question) -> dict[str, answering.Answer]:
        word, numbers = uuid.uuid4().hex, count()
        answers: dict[str, answering.Answer] = {}
        asked: dict[asyncio.Task[Any], tuple[Piece, str, Any]] = {}
        ended: Counter[str] = Counter()
        kept: list[Any] = []

        def submit(piece: Piece) -> None:
            worker = self._place[piece.name]
            future = self._client.submit(
                answering.answer, self.job, run, piece, question,
                key=f"dpserve-{word}-{next(numbers)}", workers=[worker], pure=False,
            )  # fmt: skip
            kept.append(future)
            asked[asyncio.ensure_future(_result(future))] = piece, worker, future

        def end(task: asyncio.Task[Any]) -> None:
            """Its worker ended with it."""
            piece, worker, future = asked.pop(task)
            _let_go(task, future)
            self._workers.threads.pop(worker, None)
            ended[piece.name] += 1
            if ended[piece.name] > LOST and piece.name not in answers:
                raise JobFailed(f"{piece.name}: {LOST + 1} workers ended while they answered; is their memory enough?")

        try:
            for piece in self.pieces:
                submit(piece)
            self._kept, pause, patience = kept, LOOK_SECONDS, time.monotonic() + PATIENCE_SECONDS
            while len(answers) < len(self.pieces):
                done: set[asyncio.Task[Any]] = set()
                if asked:
                    done, _ = await asyncio.wait(asked, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (raw := task.result()) is None:
                        end(task)
                    else:
                        name = asked.pop(task)[0].name
                        answers.setdefault(name, answering.Answer.of(name, raw))
                if all(task.result() is not None for task in done) and done:
                    continue
                pause = min(2 * pause, LOOK_MOST)
                there = await self._looked()
                for task in [task for task, (_, worker, _) in asked.items() if worker not in self._workers.listed]:
                    end(task)
                if there:
                    patience = time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > patience:
                    raise JobFailed(f"engine: for {PATIENCE_SECONDS:.0f} s no worker was there that could answer")
                else:
                    await asyncio.sleep(LOOK_SECONDS)
                waiting = {piece.name for piece, worker, _ in asked.values() if worker in self._workers.threads}
                for piece in self.pieces if there else ():
                    if piece.name not in answers and piece.name not in waiting:
                        submit(piece)
            return answers
        finally:
            for task, (_, _, future) in asked.items():
                _let_go(task, future)

    async def _looked(self) -> bool:
        """See who is there, and give the pieces of those that are not to others; whether there is anybody."""
        with suppress(EngineUnavailable):  # one may not be asked, others may
            await self._workers.found()
        if self._workers.threads:
            self._spread()
        return bool(self._workers.threads)

    def _spread(self) -> None:
        """Every piece has a worker that is there: the one that it had, unless that has more than its share."""
        there, total = self._workers.threads, sum(self._workers.threads.values())
        held: Counter[str] = Counter()
        kept = {}
        for name, worker in self._place.items():
            if worker in there and held[worker] < -(-len(self.pieces) * there[worker] // total):
                kept[name] = worker
                held[worker] += 1
        for piece in self.pieces:
            if piece.name not in kept:
                kept[piece.name] = chosen = min(there, key=lambda worker: (held[worker] / there[worker], worker))
                held[chosen] += 1
        self._place = kept

    def close(self) -> None:
        """Nothing more is asked: workers drop what they hold of the job, if they can be told."""
        with suppress(Exception):  # what they hold is dropped with time
            self._client.sync(self._forget)
        self._client.close(CONNECT_SECONDS)

    async def _forget(self) -> None:
        told = [
            self._client.submit(answering.forget, self.job, key=f"dpserve-{uuid.uuid4()}", workers=[worker], pure=False)
            for worker in self._workers.threads
        ]
        waiting = asyncio.gather(*map(_result, told), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(waiting, LOOK_MOST)


def _let_go(task: asyncio.Task[Any], future: Any) -> None:
    """Wait for what comes of the future no longer. One that came is being fetched, and is left to end by itself: a
    client that is stopped as it begins to fetch fetches nothing ever after.
    """
    if future.done():
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else hears of it
    else:
        task.cancel()


async def _result(future: Any) -> Any:
    """What a task came to; None where its worker ended with it, or with what it came to. JobFailed where it was
    cancelled, as what is asked of a scheduler that ends is.
    """
    try:
        return await future.result()
    except (distributed.KilledWorker, OSError):
        return None
    except asyncio.CancelledError:
        if future.cancelled():
            raise JobFailed("engine: the scheduler was lost, or what was asked of it was cancelled") from None
        raise


class Cluster:
    """Partitions that lie on other hosts. `shape`: none of their rows, in their bins."""

    def __init__(self, desk: Desk, shape: Partition, run: int = 0) -> None:
        self._desk, self._shape, self._run = desk, shape, run
        self.widths, self.classes, self.outputs = shape.widths, shape.classes, shape.outputs

    @property
    def size(self) -> int:
        """Rows of all. Private under add/remove."""
        return self._desk.size

    @property
    def parts(self) -> Sequence[Partition]:
        """InputError: they lie elsewhere."""
        raise InputError("rows: lie on the hosts of a cluster, which answer questions alone")

    def ask(self, question: Question) -> Integers:
        """The sum of what every partition answers. JobFailed where one cannot be had."""
        return self._desk.ask(self._run, question)

    def check_binned(self, features: tuple[Feature, ...]) -> None:
        """InputError where the rows do not stand in the bins of these features."""
        self._shape.check_binned(features)

    def fresh(self) -> Cluster:
        """The same rows, with nothing derived from them or from released values."""
        return Cluster(self._desk, self._shape, next(self._desk.runs))

    def close(self) -> None:
        """Leave the cluster."""
        self._desk.close()
