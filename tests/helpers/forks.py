"""`--workers 4`: tests by forks of the one process that imported and collected everything.

Workers that are begun anew, as pytest-xdist's are, would each import and collect all again, and each begin a warm
process of its own (`warm.py`): most of a minute of a processor for four. A fork takes one file after the other, in the
order collected, so that what a file starts is started once. What dies in a test is named, and another fork goes on.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

Line = Connection  # from a fork: ("asks",), ("report", data), ("warning", ...), ("done",); to it: items, or None

before: list[Callable[[], object]] = []  # what is done before there are forks, for all of them
begin_as_new: list[Callable[[], None]] = []  # what a fork does first
NUMBERS = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="forks that share the tests, file by file; 0: this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    workers = session.config.option.workers
    if not workers or session.config.option.collectonly or session.testsfailed or not session.items:
        return None  # as pytest does
    for prepare in before:
        prepare()
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    by_path = groupby(range(len(session.items)), key=lambda number: session.items[number].path)
    files = deque([*numbers] for _, numbers in by_path)
    if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
        reporter.showfspath = False  # files are mixed
    running: list[Worker] = []
    try:
        running += [Worker(session, running) for _ in range(min(workers, len(files)))]
        while running:
            ready = wait([each for worker in running for each in (worker.line, worker.ended)])
            for worker in [worker for worker in running if {worker.line, worker.ended} & {*ready}]:
                worker.listen(files)
                if worker.gone:
                    running.remove(worker)
                    if files and not session.shouldfail:
                        running.append(Worker(session, running))
    finally:
        for worker in running:
            os.kill(worker.pid, signal.SIGINT)
            os.waitpid(worker.pid, 0)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


class Worker:
    """A fork, seen from the process that collected."""

    def __init__(self, session: pytest.Session, others: list[Worker]) -> None:
        self.session, self.holds, self.gone = session, deque[int](), False
        self.line, theirs = Pipe()
        number = next(NUMBERS)
        session.config.get_terminal_writer().flush()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            for line in (self.line, *(other.line for other in others)):
                line.close()
            _live(session, number, theirs)
        theirs.close()
        self.ended = os.pidfd_open(self.pid)

    def listen(self, files: deque[list[int]]) -> None:
        """Everything that it has said; of one that ended, that it did."""
        over = bool(wait([self.ended], 0))  # before its last words are read, or they might come between
        try:
            while self.line.poll():
                self._heard(files, *self.line.recv())
        except EOFError:
            over = True
        if over:
            self._end(files)

    def _heard(self, files: deque[list[int]], what: str, *told: Any) -> None:
        hook, config = self.session.config.hook, self.session.config
        if what == "asks":
            stop = self.session.shouldfail or self.session.shouldstop
            given = files.popleft() if files and not stop else None
            self.holds.extend(given or ())
            self.line.send(given)
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=config, data=told[0])
            hook.pytest_runtest_logreport(report=report)
        elif what == "warning":
            category, message, place, when, nodeid, location = told
            warning = warnings.WarningMessage(message, type(category, (Warning,), {}), *place)
            record = {"warning_message": warning, "when": when, "nodeid": nodeid, "location": location}
            hook.pytest_warning_recorded.call_historic(kwargs=record)
        else:
            item = self.session.items[self.holds.popleft()]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _end(self, files: deque[list[int]]) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.ended)
        self.line.close()
        self.gone = True
        if status and self.holds:
            item = self.session.items[self.holds.popleft()]
            said = f"its process ended with {status}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            self.session.config.hook.pytest_runtest_logreport(report=report)
        elif status:
            raise RuntimeError(f"a worker ended with {status} after its tests")
        if self.holds:
            files.appendleft([*self.holds])


# ---- in the fork -----------------------------------------------------------------------------------------------------


def _live(session: pytest.Session, number: int, line: Line) -> None:
    status = 1
    atexit._clear()  # what the first process ends and removes
    atexit.register(multiprocessing.util._exit_function)
    try:
        for begin in begin_as_new:
            begin()
        try:
            _work(session, number, line)
        finally:  # also where we are interrupted, or the first process is no more
            session._setupstate.teardown_exact(None)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _work(session: pytest.Session, number: int, line: Line) -> None:
    config = session.config
    plugins, factory = config.pluginmanager, config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.mktemp(f"worker-{number}", numbered=False)
    factory._next_number.clear()
    plugins.unregister(name="terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are the other forks', too
    capture.start_global_capturing()
    capture.suspend_global_capture()
    plugins.register(_Teller(config, line))
    items = _items(session, line)
    item = next(items, None)
    while item is not None and not (session.shouldfail or session.shouldstop):
        after = next(items, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        line.send(("done",))
        item = after


def _items(session: pytest.Session, line: Line) -> Iterator[pytest.Item]:
    line.send(("asks",))
    while (numbers := line.recv()) is not None:
        yield from (session.items[number] for number in numbers)
        line.send(("asks",))


class _Teller:
    """A plugin that hands on what the terminal and the caches of the first process must know."""

    def __init__(self, config: pytest.Config, line: Line) -> None:
        self.config, self.line = config, line

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.line.send(("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report)))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        if when == "runtest":  # those of the collection are told anew to each plugin that comes
            warned = warning_message
            place = warned.filename, warned.lineno
            self.line.send(("warning", warned.category.__name__, str(warned.message), place, when, nodeid, location))
