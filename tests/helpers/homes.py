"""The home of a test: a fixture of every file, imported by `conftest.py`."""

from __future__ import annotations

from pathlib import Path

import ledgers
import pytest

from accountant.home import Home
from accountant.home.contents import files_in, place_of

GIVEN = ("filled", "prepared", "trained")  # functions of `ledgers` that return the folder of a home


@pytest.fixture
def home(request, tmp_path, monkeypatch):
    """Yield a home of this test alone, which `DPSERVE_HOME` names: an empty one, or a copy of what the file's
    `pytestmark = pytest.mark.home(NAME)` names, one of GIVEN or a fixture of the file.

    With `folder=True` it is the path of the copy, which nobody has opened. Whatever the test leaves in it has its line
    in the table of a home, or a backup would lose it.
    """
    path, mark = tmp_path / "home", request.node.get_closest_marker("home")
    monkeypatch.setenv("DPSERVE_HOME", str(path))
    if mark is None:
        opened = ledgers.begun(path)
    else:
        (name,) = mark.args
        made = getattr(ledgers, name)() if name in GIVEN else request.getfixturevalue(name)
        ledgers.copy(made if isinstance(made, Path) else made.path, path)
        if mark.kwargs.get("folder"):
            yield path
            return
        opened = Home.open(ledgers.place(path))
    yield opened
    opened.ledger.log.database.close()
    assert unknown_files(path) == []


def unknown_files(home: Path) -> list[str]:
    """Files of a home that the table lacks, but for what these helpers put there."""
    own = ("database.url", "server.log")
    return [path for path in files_in(home) if path not in own and place_of(path) is None]
