"""What Tab completes beyond commands and options: names of this home. Quick, and quiet where it cannot read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from dpserve_verify.errors import DpserveError
from serving.cli.backends.choice import server_address

# Their names alone: importing the learners takes a second or more, and a person waits at the key.
NAMES = ("auto", "bdpe", "ebm", "ebm-trees", "forest", "lazybb", "lazybb-tree")

Completion = Callable[[str], list[str]]


def _complete_names(names: Callable[[Path, str], Iterable[str]]) -> Completion:
    def complete(incomplete: str) -> list[str]:
        try:
            from accountant.home import place  # loads the ledger, which no other command needs

            candidates = (
                () if server_address() is not None else names(*place(os.environ))
            )  # a server is not asked at each key
            return sorted(name for name in candidates if name.startswith(incomplete))
        except (DpserveError, OSError):  # Tab asks for names, and not for what is wrong
            return []

    return complete


def _datasets(home: Path, url: str) -> Iterable[str]:
    if not (home / "keys").exists():
        return ()
    from sqlalchemy import select  # as above

    from accountant.store.store import Store
    from accountant.store.tables import dataset_table

    with Store(url).reading() as connection:
        return list(connection.execute(select(dataset_table.c.name)).scalars())


def _models(home: Path, url: str) -> Iterable[str]:
    for folder in (home / "models").iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder.name
            yield f"{folder.name}@champion"
            yield from (f"{folder.name}@{version.name}" for version in folder.iterdir() if version.name.isdigit())


DATASETS = _complete_names(_datasets)
Name = Annotated[str, typer.Argument(help="The dataset's name.", autocompletion=DATASETS)]
MODELS = _complete_names(_models)
Model = Annotated[str, typer.Argument(help="adult, adult@champion or adult@2.", autocompletion=MODELS)]


def LEARNERS(incomplete: str) -> list[str]:  # noqa: N802  as the others
    """Return the learners' names that begin so; they are the same everywhere."""
    return [name for name in NAMES if name.startswith(incomplete)]
