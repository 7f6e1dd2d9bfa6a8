"""The pages over a home, asked in this process as a browser with a session would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import BASE, Site

from accountant.home import Home
from serving.pages.all import PAGES
from serving.pages.home import error_page

HTML = {"Accept": "text/html"}


class Pages(Site):
    """A token of each scope, and pages asked for with it."""

    def __init__(self, home: Home) -> None:
        super().__init__(home, PAGES)
        self.app.state.error_page = error_page
        self.secrets = {scope: self.token(f"the-{scope}", scope) for scope in ("predict", "train", "audit", "admin")}

    def page(self, path: str, scope: str = "admin", **more: Any) -> httpx.Response:
        return self.ask("GET", path, {**HTML, "Cookie": f"dpserve={self.secrets[scope]}"}, **more)

    def send(self, path: str, scope: str = "admin", origin: str = BASE, **fields: str) -> httpx.Response:
        headers = {**HTML, "Cookie": f"dpserve={self.secrets[scope]}", "Origin": origin}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return self.ask("POST", path, headers, content=str(httpx.QueryParams(fields)).encode())


@contextmanager
def pages_at(home: Path) -> Iterator[Pages]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home))
        yield Pages(Home.open({"DPSERVE_HOME": str(home)}))


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def words(response: httpx.Response) -> str:
    """What the page says, without its markup."""
    reader = _Words()
    reader.feed(response.text)
    return " ".join(reader.words)
