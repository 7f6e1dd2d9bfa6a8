"""Who of a cluster is there, and who of them may be asked.

Whoever is lost is heard of at once, from the scheduler; who stands still is missed after a while. A newcomer is looked
at, and does what it is to do once in vain, before any question is asked of it: no question waits for that.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from accountant.errors import EngineLost, EngineUnavailable
from accountant.system.lazy_import import later
from accountant.system.life import LIFE
from dpserve_cluster import answering

distributed = later("distributed")

LOUD = ("distributed.client", "distributed.core", "distributed.utils", "distributed.comm")  # have levels of their own
CONNECT_SECONDS = 10.0
LOOK_SECONDS = 0.25  # without an answer: then the scheduler is asked who is there; up to LOOK_MOST
LOOK_MOST = 2.0
SILENT_SECONDS = 15.0  # a worker tells the scheduler every half second that it is there, one of many less often
PATIENCE_SECONDS = 60.0  # without any worker that could answer


def connect(address: str) -> Any:
    """Return a connection to the scheduler. EngineUnavailable where there is none. What workers answer is bytes, and
    nothing of it is unpickled here.
    """
    how: dict[str, Any] = {"set_as_default": False, "deserializers": ["dask", "msgpack"], "timeout": CONNECT_SECONDS}
    try:
        if address.startswith("tls://"):
            how["security"] = distributed.Security(require_encryption=True)  # certificates: Dask's own configuration
        for name in ("distributed", *LOUD):  # what becomes of the cluster is told by our errors
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return distributed.Client(address, **how)
    except ImportError:
        raise EngineUnavailable(
            "DPSERVE_ENGINE: a cluster needs Dask: pip install distributed (the extra dask)"
        ) from None
    except Exception as error:  # refused, no answer, another protocol, no or wrong certificates
        failed = type(error).__name__
    # What is left of that client is closed now. Were it found when the next one begins, within a lock of Dask's that is
    # held then, its end would wait for that lock for ever.
    gc.collect()
    raise EngineUnavailable(
        f"DPSERVE_ENGINE={address}: no scheduler can be asked there ({failed}); start it, or see to the address and "
        "the certificates"
    )


@dataclass
class Workers:
    """Who is there, and who of them may be asked: those that see the files and have our sources. `threads`: of each of
    them. `listed`: all that the scheduler has not given up. `moved`: somebody came or went. `prepare`: what a newcomer
    of so many threads does before it is asked.
    """

    client: Any
    files: dict[str, int]
    threads: dict[str, int] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    prepare: Callable[[str, int], Awaitable[None]] | None = None
    _meeting: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)  # what the scheduler said, and when that moved

    async def awake(self) -> dict[str, int]:
        """Return those that run and were heard of lately, with their threads. No clock of theirs is believed."""
        workers = (await self.client.scheduler.identity(n_workers=-1))["workers"]
        now, self.listed = time.monotonic(), {*workers}
        for address, about in workers.items():
            if self._heard.get(address, (None, now))[0] != about["last_seen"]:
                self._heard[address] = about["last_seen"], now
        return {
            address: about["nthreads"]
            for address, about in workers.items()
            if about["status"] == "running" and now - self._heard[address][1] < SILENT_SECONDS
        }

    async def found(self) -> None:
        """Look at those that are awake and not known yet. EngineUnavailable where one of them may not be asked, or
        where there is none.
        """
        awake = await self.awake()
        self.threads = {address: threads for address, threads in self.threads.items() if address in awake}
        looked = await asyncio.gather(*(self._look(worker) for worker in awake if worker not in self.threads))
        self.threads |= {address: awake[address] for address in looked if address is not None}
        if not self.threads:
            raise EngineUnavailable("DPSERVE_ENGINE: the cluster has no worker that answers; start some")

    def listen(self, prepare: Callable[[str, int], Awaitable[None]]) -> None:
        """Begin to hear at once which workers come and go."""
        self.prepare = prepare
        self.client.subscribe_topic("all", self._hear)

    def close(self) -> None:
        """Meet nobody any more."""
        for task in (*self._meeting.values(), *self._tasks.values()):
            task.cancel()

    async def see(self) -> None:
        """Drop who is not awake, and begin to meet who is new."""
        LIFE.show()
        awake = await self.awake()
        self.threads = {address: threads for address, threads in self.threads.items() if address in awake}
        for address, threads in awake.items():
            if address not in self.threads and address not in self._meeting:
                self._meeting[address] = asyncio.ensure_future(self._meet(address, threads))

    def _hear(self, event: Any) -> None:
        about = event[1] if isinstance(event[1], dict) else {}  # others may write there what they like
        if about.get("action") == "remove-worker":
            self.listed.discard(about["worker"])
            self.threads.pop(about["worker"], None)
            if (meeting := self._meeting.pop(about["worker"], None)) is not None:
                meeting.cancel()
            self.moved.set()
        elif about.get("action") == "add-worker":
            self._tasks[about["worker"]] = asyncio.ensure_future(self._await(about["worker"]))

    async def _await(self, address: str) -> None:
        """Wait until a new worker runs."""
        with suppress(Exception):  # the scheduler is gone: the next question says so
            pause = LOOK_SECONDS
            await self.see()
            while address in self.listed and address not in {*self.threads, *self._meeting}:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LOOK_MOST)
                await self.see()
        self._tasks.pop(address, None)

    async def _meet(self, address: str, own: int) -> None:
        try:
            if await self._look(address) is None:
                return
            if self.threads and self.prepare is not None:
                await self.prepare(address, own)
            if address in self.listed:
                self.threads[address] = own
                self.moved.set()
        except EngineUnavailable:
            pass  # this one may not be asked, others may
        finally:
            self._meeting.pop(address, None)

    async def _look(self, address: str) -> str | None:
        word = f"dpserve-look-{uuid.uuid4()}"
        future = self.client.submit(answering.look, self.files, key=word, workers=[address], pure=False)
        task = asyncio.ensure_future(future.result())
        try:
            if not (await asyncio.wait([task], timeout=CONNECT_SECONDS))[0]:
                return None
            report = json.loads(task.result())
        except (OSError, distributed.KilledWorker, asyncio.CancelledError):
            return None
        except Exception as error:
            raise EngineUnavailable(
                f"worker {address}: cannot run dpserve ({type(error).__name__}); install what runs here on every worker"
            ) from None
        finally:
            if not task.done():
                let_go(task, future)
        if report["fingerprint"] != answering.fingerprint():
            raise EngineUnavailable(
                f"worker {address}: runs another dpserve, Python or numpy; install what runs here on every worker"
            )
        if report["unseen"]:
            raise EngineUnavailable(
                f"worker {address}: does not see {report['unseen'][0]} as it is here; workers read the home's "
                "datasets/ at the same path (a shared file system, or a copy)"
            )
        return address


def let_go(task: asyncio.Task[Any], future: Any) -> None:
    """Wait for what comes of the future no longer. One that came is being fetched, and is left to end by itself: a
    client that is stopped as it begins to fetch fetches nothing ever after.
    """
    if future.done():
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else hears of it
    else:
        task.cancel()


async def result(future: Any) -> Any:
    """Return what a task came to; None where its worker ended with it, or with what it came to. EngineLost where it was
    cancelled, as what is asked of a scheduler that ends is.
    """
    try:
        answer = await future.result()
        LIFE.show()  # who waits for many has one of them
        return answer
    except (distributed.KilledWorker, OSError):
        return None
    except asyncio.CancelledError:
        if future.cancelled():
            raise EngineLost("engine: the scheduler was lost, or what was asked of it was cancelled") from None
        raise
