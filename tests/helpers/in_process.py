"""The doors over a home, asked in this process: for tests that need no socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from accountant.access.tokens import NO_LIMITS, Limits
from accountant.home import Home
from serving.http.routes import Door, Doors
from serving.process.state import ServingState
from serving.process.tokens import new_token
from serving.wire import work_time

work_time.WORK_SECONDS = 60.0  # a way out and not a claim, however busy the machine is
HOST = "ledger.example:3000"
BASE = f"http://{HOST}"
MOST_SECONDS = 5.0  # until another look


class Site:
    """These doors, with the whole layer in front of them."""

    def __init__(self, home: Home, doors: Sequence[Door]) -> None:
        self.home = home
        self.app = Starlette(routes=[Route(door.path, door.endpoint, methods=[door.method]) for door in doors])
        self.app.state.serving = ServingState()
        self.doors = Doors(None, self.app)
        self._looking = threading.Lock()
        self.look()

    def look(self) -> None:
        """As a worker does twice a second, and as there one at a time: what an earlier one saw must not be what is
        known after a later one.
        """
        with self._looking:
            self.app.state.serving.refresh()
            self._looked = time.monotonic()

    def token(self, name: str, *scopes: str, limits: Limits = NO_LIMITS) -> str:
        secret, _ = new_token(self.home, name, scopes, limits)
        self.look()
        return secret

    def ask(self, method: str, path: str, headers: Any = None, base: str = BASE, **more: Any) -> httpx.Response:
        """A home that nobody looked at for long is not answered for; a busy test may take as long."""
        if time.monotonic() - self._looked > MOST_SECONDS:
            self.look()

        async def asking() -> httpx.Response:
            transport = httpx.ASGITransport(self.doors)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(asking())

    def bear(self, secret: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secret}", **more.pop("headers", {})}
        return self.ask(method, path, headers, **more)


@contextmanager
def site_at(folder: Path, doors: Sequence[Door]) -> Iterator[Site]:
    """Over a new home in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(folder / "home"))
        yield Site(Home.init({"DPSERVE_HOME": str(folder / "home")}), doors)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]
