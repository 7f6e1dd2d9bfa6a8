"""What a serving worker knows, looked at anew twice a second: the home, the tokens, the models, and whether all is
well.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from accountant.errors import LedgerReplaced
from accountant.home import Home, place
from accountant.ledger.job_counts import JobFigures
from dpserve_verify.errors import DpserveError, LedgerUnavailable
from serving.process import last_look
from serving.process.config.settings import ServerSettings
from serving.process.config.startup import CERTIFICATE_END
from serving.process.last_look import LastLook
from serving.process.registry import Registry
from serving.process.tokens import PREFIX, Bearer, Rights, digest, rights
from serving.process.watch.history import History
from serving.process.watch.metrics import LATENESS, MISMATCHES
from serving.process.workers.forks import WORKER_PARENT
from serving.wire.errors import NotReady
from serving.wire.work_time import LATE, OVERDUE

if TYPE_CHECKING:
    from serving.process.sso import SingleSignOn

LOG = logging.getLogger("dpserve.serving")
LOOK_SECONDS = 0.4
ANEW_SECONDS = 0.1  # from one look for a token that nobody knew to the next: bad tokens make a worker look no oftener
ADMITTING = anyio.CapacityLimiter(4)  # threads that check tokens of a provider
LOOKING = anyio.CapacityLimiter(1)  # a thread of its own: what it sees decides whether anybody is answered
VERIFY_SECONDS = 0.2  # at a look: a model that was not verified by then is when it is asked for
AWAY_SECONDS = 3.0  # without a look that came to its end: seven are begun in it
NOT_ASKED = "the ledger's database cannot be asked: predictions go on, nothing is admitted"
WHOLE_SECONDS = 5.0  # between two looks at all that the database says, where nothing was written


class ServingState:
    """One per worker. `refresh` blocks and runs in a thread; everything else only reads."""

    def __init__(self) -> None:
        settings = ServerSettings()
        self.registry = Registry(settings.models_in_memory, settings.metrics_versions)
        self.figures = JobFigures()
        self.history = History()
        self.stopping = False
        self.sign_on = None if not settings.sso else checker_of(settings.sso)
        self._stopping = os.environ.get("DPSERVE_STOPPING", "")
        self.certificate_end = float(os.environ.get(CERTIFICATE_END) or 0)  # 0: it serves none
        self.root = int(os.environ.get(WORKER_PARENT) or os.getpid())  # `dpserve serve`, which began this one
        self._home: Home | None = None
        self._rights: Rights | None = None
        self._last: LastLook | None = None  # of another process, while this one has none of its own
        self._without_ledger = settings.without_ledger_seconds
        self._wrong: frozenset[str] = frozenset()
        self._problem = self._why = "has not looked yet"
        self._seen = self._whole = float("-inf")
        self._away = False
        self._anew: asyncio.Task[None] | None = None  # the next look for tokens that nobody knew
        self._began_anew = float("-inf")
        self._written: object = None  # what the ledger's file was like when it was last asked

    def refresh(self, whole: bool = True) -> None:
        """Look at the home; what is wrong with it is remembered as the reason why nothing is answered. A ledger that
        cannot be looked at now is none, for as long as the setting says: what was seen of it holds on.

        `whole`: else only whether anything was written, or expired, since the last look at all of it, where that is
        not longer ago than WHOLE_SECONDS.
        """
        self.stopping = bool(self._stopping) and os.path.exists(self._stopping)
        try:
            if self._home is None:
                self._home = Home.open()
            now = time.monotonic()
            self._home.ledger.log.database.check_file()
            written = self._home.ledger.log.database.settled()
            known = self._rights if not whole and now - self._whole < WHOLE_SECONDS else None
            is_as_it_was = known is not None and written is not None and written == self._written
            if known is None or not (known.lasts if is_as_it_was else known.hold_in(self._home)):
                before = self._rights if self._last is None else None
                known = rights(self._home, before)  # looks at the high-water mark, and at what was signed
                self._rights, self._last, self._whole = known, None, now
                self._alarm(known.wrong)
            self._written = written
            self.registry.refresh(self._home, VERIFY_SECONDS, known.trust)
            for dataset in self.registry.datasets:  # predictions ask for them, and are to ask no database
                known.families(dataset)
            self._note("", self.behind or OVERDUE.problem)
            self._seen, self._away = now, False
            last_look.keep(self._home, known, self.registry, now)
        except LedgerUnavailable as error:
            if self._seen == float("-inf"):  # the database went away in the middle of the first look: it is none
                self._rights = None
            self._go_by_last_look()
            if self._rights is None:
                self._note(f"{error.code}: {error.message}")
            elif not self._problem and not self._away:
                LOG.error("the ledger cannot be looked at: %s; what was seen holds on", error.message)
            self._away = True
        except DpserveError as error:
            self._note(f"{error.code}: {error.message}")
            if "index" in error.details:
                self._alarm([f"{error.details['index']}: {error.message}"])
            if (
                isinstance(error, LedgerReplaced) and self._home is not None
            ):  # the next look opens what stands there now
                self._home.ledger.log.database.close()
                self._home = None
        except Exception as error:  # whatever it is: say not ready, keep looking
            self._note(type(error).__name__)

    def _go_by_last_look(self) -> None:
        """Go by what another process of this machine saw last, where this one has seen nothing, and that is not longer
        ago than the setting says.
        """
        if self._rights is None and (last := last_look.read(place(os.environ)[0], self._without_ledger)) is not None:
            self._last, self._rights, self._seen = last, last.rights, last.seen
            LOG.error("not seen yet: predicting by what was seen %.0f s ago", time.monotonic() - last.seen)
        if self._last is not None:
            try:
                self.registry.refresh(self._last, VERIFY_SECONDS)
                self._note("")
            except Exception as error:  # as for a look
                self._note(type(error).__name__)

    def _alarm(self, wrong: list[str]) -> None:
        """Log rows of the database that say what was never signed, each once."""
        for text in wrong:
            if text not in self._wrong:
                MISMATCHES.labels(text.partition(" ")[0]).inc()
                LOG.error("the ledger's index was changed by somebody else: %s", text)
        self._wrong = frozenset(wrong)

    def _note(self, problem: str, behind: str = "") -> None:
        why = problem or behind
        if why and why != self._why:
            LOG.error("not ready: %s", why)
        self._problem, self._why = problem, why

    @property
    def problem(self) -> str:
        """Return why this worker does not answer; empty when it does."""
        if self._problem:
            return self._problem
        is_stale = time.monotonic() - self._seen > self._without_ledger
        return f"the ledger could not be looked at for {self._without_ledger} seconds" if is_stale else ""

    @property
    def is_away(self) -> bool:
        """Return whether the ledger could not be asked at the last look, or one waits for its answer."""
        return self._away or time.monotonic() - self._seen > AWAY_SECONDS

    @property
    def unready(self) -> str:
        """Return why no more requests should be sent here; empty where they may be. A server that was asked to stop
        still answers to the end.
        """
        stopping = "the server was asked to stop" if self.stopping else ""
        return self.problem or self.behind or stopping or OVERDUE.problem

    @property
    def behind(self) -> str:
        """Return why this version may not write to the ledger any more: a newer one has. Empty where it may."""
        return "" if self._home is None else self._home.ledger.log.behind

    def require_welcome(self) -> None:
        """Raise NotReady where no more requests should be sent here; it says why where a newer version of dpserve is
        the reason.
        """
        if self.unready:
            why = self.behind if self.behind and not self.problem else "the server's log says why"
            raise NotReady(f"not ready; {why}")

    @property
    def home(self) -> Home:
        """Return the home; raise NotReady while the home, its ledger or its tokens cannot be relied upon, or its
        ledger's database was away since this process began.
        """
        self.require_ready()
        if self._home is None or self._last is not None:
            raise NotReady(f"dpserve is not ready for this; {NOT_ASKED}")
        return self._home

    @property
    def path(self) -> Path:
        """Return the home's folder; raise NotReady as `require_ready`."""
        self.require_ready()
        return place(os.environ)[0] if self._home is None else self._home.path

    def require_ready(self) -> None:
        """Raise NotReady while tokens and models cannot be relied upon."""
        if self.problem or self._rights is None:
            raise NotReady("dpserve is not ready; the server's log says why")

    def bearer(self, name: str) -> Bearer | None:
        """Return the good token of this sha256, and what it may; None where there is none, or a provider's was not
        admitted lately.
        """
        if self._rights is None:
            return None
        known = self._rights.bearers.get(name)
        return self.sign_on.bearer(name, self._rights) if known is None and self.sign_on is not None else known

    async def admit(self, secret: bytes) -> Bearer | None:
        """Return who bears a token; None where it is not good. One that is not known is looked for once more: ours in
        the ledger, a provider's as `SingleSignOn.admit`, whose Unauthorized and NotReady are raised.
        """
        name = digest(secret)
        if (known := self.bearer(name)) is not None:
            return known
        if secret.startswith(PREFIX.encode()):
            await self._look_anew()
        elif self.sign_on is not None:
            await anyio.to_thread.run_sync(self.sign_on.admit, secret, limiter=ADMITTING)
        return self.bearer(name)

    async def _look_anew(self) -> None:
        """Wait for a look that begins from now on: whoever waits shares it."""

        async def look() -> None:
            await asyncio.sleep(self._began_anew + ANEW_SECONDS - time.monotonic())
            self._began_anew, self._anew = time.monotonic(), None  # who comes from now on needs another
            await anyio.to_thread.run_sync(self.refresh, False, limiter=LOOKING)

        if self.is_away:
            return
        if self._anew is None or self._anew.done():
            self._anew = asyncio.create_task(look())
        await asyncio.wait({self._anew}, timeout=AWAY_SECONDS)

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await anyio.to_thread.run_sync(self.refresh, False, limiter=LOOKING)
            if self._home is not None:
                await anyio.to_thread.run_sync(self.history.look, self._home.ledger.log.database, limiter=LOOKING)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look once before anything is answered, and then again and again."""
        await anyio.to_thread.run_sync(self.refresh, limiter=LOOKING)
        tasks = [asyncio.create_task(self.watch()), asyncio.create_task(LATE.watch(LATENESS.observe))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def checker_of(setting: str) -> SingleSignOn:
    """Return what checks tokens of the provider that a setting names; loaded where there is one."""
    from serving.process.config.provider import Provider
    from serving.process.sso import SingleSignOn

    return SingleSignOn(Provider.of(setting), place(os.environ)[0])
