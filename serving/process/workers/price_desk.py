"""The process that works out prices beside the server, and reads what callers sent that may take any time to read
(schemas, edits), so that no request waits for that of another.

It listens on a socket in the home, that of its own server. Whoever asks is one of its serving processes, and says who
is asking it; a request waits for its turn, and is then worked out by a fork, of lower priority and within BOUNDS, that
ends when nobody waits for its answer any more. One caller has one fork at a time and a few requests waiting, and
callers take turns: none of them can keep the others from an answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from accountant.system.confined import Bounds, confine, end_with_parent
from accountant.system.machine import processors
from dpserve_verify.errors import DpserveError, TooMuch
from serving.process.config.healthy import Heartbeat
from serving.process.watch import logs
from serving.process.workers.desk_wire import Wire, function_of
from serving.process.workers.loading import loading

LOG = logging.getLogger("dpserve.prices")
SOCKET = "DPSERVE_PRICES"
ENGINE = "training.planning.price_engine"
MODULES = (  # whose functions may be asked for
    ENGINE, "training.jobs.measured", "training.datasets.drafts.proposal", "models.edit.edit_list",
)  # fmt: skip
MAX_OF_CALLER = 8  # requests of one caller, running and waiting
MAX_REQUESTS = 64  # of all
MAX_FORKS = max(2, processors() // 2)  # forks; a single caller has one, so a second one is there for the others
BOUNDS = Bounds(2 << 30, 10)  # of a fork, beside what it begins with; a request waits for half as long
CALLER_BYTES = 32  # a digest
LOOK_SECONDS = 1.0
GO, BUSY, DONE, FAILED = "go", "busy", "done", "failed"


@contextmanager
def socket_address(place: Path) -> Iterator[str]:
    """Give `place` as a socket's address, which must be shorter than a path may be."""
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{folder}"
        yield f"{short}/{place.name}" if os.path.exists(short) else str(place)
    finally:
        os.close(folder)


@dataclass(eq=False)
class QueuedRequest:
    """A request that waits for its turn, or is worked out by a fork.

    Attributes:
        caller: The digest of who asks.
        wire: The connection to the serving process.
        process: The fork; 0 while the request waits.
        alive: A pipe that is open as long as the fork lives.
    """

    caller: bytes
    wire: socket.socket
    process: int = 0
    alive: int = -1


class Desk:
    """Queue of price requests: callers take turns. One thread, which forks."""

    def __init__(self, listener: socket.socket, modules: Sequence[str]) -> None:
        self._modules = modules
        self._listener, self._selector = listener, selectors.DefaultSelector()
        self._waiting: list[QueuedRequest] = []
        self._running: list[QueuedRequest] = []
        self._turns = Counter[bytes]()  # when each caller last had one
        self._clock = 0
        self._selector.register(listener, selectors.EVENT_READ)

    def work(self, parent: int, beat: Callable[[], None]) -> None:
        """Work until the process that started this one is gone. `beat` is called again and again."""
        while os.getppid() == parent:
            beat()
            for key, _ in self._selector.select(LOOK_SECONDS):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data.process:
                    self._reap(key.data)
                else:  # it hung up while it waited
                    self._forget(key.data)
            self._begin()

    def _accept(self) -> None:
        wire, _ = self._listener.accept()
        wire.settimeout(LOOK_SECONDS)  # the caller stands in one packet, sent at once
        try:
            caller = wire.recv(CALLER_BYTES, socket.MSG_WAITALL)
        except OSError:
            caller = b""
        wire.settimeout(None)
        requests = [*self._waiting, *self._running]
        of_caller = sum(request.caller == caller for request in requests)
        if len(caller) < CALLER_BYTES:
            wire.close()
        elif of_caller >= MAX_OF_CALLER or len(requests) >= MAX_REQUESTS:
            with contextlib.suppress(OSError), wire:
                Wire(wire).send((BUSY, MAX_OF_CALLER if of_caller >= MAX_OF_CALLER else MAX_REQUESTS))
        else:
            new = QueuedRequest(caller, wire)
            self._waiting.append(new)
            self._selector.register(wire, selectors.EVENT_READ, new)

    def _begin(self) -> None:
        """Fork for the requests whose turn it is: of the callers without a fork, the one who had none for the
        longest.
        """
        while len(self._running) < MAX_FORKS:
            busy = {request.caller for request in self._running}
            ready = [request for request in self._waiting if request.caller not in busy]
            if not ready:
                return
            chosen = min(ready, key=lambda each: self._turns[each.caller])
            self._clock += 1
            self._turns[chosen.caller] = self._clock
            self._forget(chosen, keep=True)
            chosen.alive, ends = os.pipe()
            desk, chosen.process = os.getpid(), os.fork()
            if not chosen.process:
                end_with_parent(desk)
                self._selector.close()
                self._listener.close()
                for request in self._waiting:
                    request.wire.close()
                answer_request(chosen.wire, self._modules)
            os.close(ends)
            chosen.wire.close()
            self._running.append(chosen)
            self._selector.register(chosen.alive, selectors.EVENT_READ, chosen)

    def _reap(self, ended: QueuedRequest) -> None:
        os.waitpid(ended.process, 0)
        self._selector.unregister(ended.alive)
        os.close(ended.alive)
        self._running.remove(ended)
        if not any(request.caller == ended.caller for request in self._waiting) and len(self._turns) > MAX_REQUESTS:
            del self._turns[ended.caller]

    def _forget(self, asked: QueuedRequest, keep: bool = False) -> None:
        self._selector.unregister(asked.wire)
        self._waiting.remove(asked)
        if not keep:
            asked.wire.close()


def answer_request(wire: socket.socket, modules: Sequence[str]) -> NoReturn:
    """Read a price request, work it out by a function of these modules and send the answer. Runs in a fork and never
    returns; ends where the other side does.
    """
    status = 1
    peer = wire.dup()

    def end_with_it() -> None:
        with contextlib.suppress(OSError):
            peer.recv(1)
        os._exit(1)

    try:
        confine(BOUNDS)
        connection = Wire(wire)
        connection.send((GO, None))
        name, arguments = connection.receive()
        function = function_of(name, modules)
        threading.Thread(target=end_with_it, daemon=True).start()
        result: tuple[str, Any]
        try:
            result = (DONE, function(*arguments))
        except MemoryError:
            result = (FAILED, TooMuch("what was sent: working it out takes more memory than it may"))
        except DpserveError as error:
            result = (FAILED, error)
        except Exception as error:
            LOG.exception("a price cannot be worked out")
            result = (FAILED, DpserveError(f"the price could not be worked out ({type(error).__name__})"))
        connection.send(result)
        status = 0
    except (EOFError, OSError):  # nobody waits for it any more
        pass
    except ValueError:
        LOG.exception("a message of the price desk is none")
    finally:
        os._exit(status)


def load(modules: Sequence[str] = MODULES) -> None:
    """Load what works prices out: what a fork must load first, each of them would load anew."""
    with loading():
        for name in modules:
            import_module(name)
        import_module(ENGINE).warm()


def main(place: Path, parent: int, heartbeat: Heartbeat, modules: Sequence[str] = MODULES) -> None:
    """Listen at `place` as long as process `parent` lives, once everything is loaded. Until then nobody answers, and
    callers work prices out themselves. `heartbeat` shows that it does not stand still; `modules`: whose functions may
    be asked for.
    """
    os.nice(5)
    logs.set_up()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    place.unlink(missing_ok=True)
    began = time.monotonic()
    load(modules)
    with socket.socket(socket.AF_UNIX) as listener:
        with socket_address(place) as path:
            listener.bind(path)
        os.chmod(place, 0o600)
        listener.listen(16 * MAX_REQUESTS)  # a full queue refuses at once, and the server works the price out
        LOG.debug("prices are worked out here, after %.1f s", time.monotonic() - began)
        Desk(listener, modules).work(parent, heartbeat.beat)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Heartbeat(), (*MODULES, *sys.argv[3:]))
