"""What is beside the core plugs in: distributions whose names begin with `dpserve` bring things by entry points.

The core names no module of an extension. It asks for a group of entry points where it would have a list of its own:

- `dpserve.commands`: nodes of the tree of commands (`serving.cli.tree`); `dpserve.commands.learner`: those of a branch;
- `dpserve.doors`: operations over REST; `dpserve.pages`: doors that are pages;
- `dpserve.places`: places of the navigation; `dpserve.templates`: packages with a folder `templates/`;
- `dpserve.kinds`: the steps of kinds of jobs, by kind;
- `dpserve.engines`: what answers about rows in place of this process;
- `dpserve.others`: what runs learners of others.

Nothing is read or imported before a group is asked for, and then the distributions of dpserve alone: what every
installed package says of itself would take longer than most commands.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.system import lazy_import
from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

metadata = lazy_import.later("importlib.metadata")


@dataclass(frozen=True)
class Extension:
    """An extension of this repository: named where something of it is needed and it is not installed.

    Attributes:
        says: What it does.
        keeps: The files that only it makes in a home; a home that has some is served with it alone. None: it makes
            none.
        commands: Its commands, each by its whole name.
    """

    says: str
    keeps: str | None = None
    commands: tuple[str, ...] = ()


EXTENSIONS = {
    "cluster": Extension("jobs over rows on several hosts, which DPSERVE_ENGINE names"),
    "parties": Extension(
        "campaigns among owners, aggregators and institutions",
        "campaigns/*/*",
        ("campaign", "aggregator", "institution", "owner"),
    ),
    "platform": Extension(
        "learners of others, and checks by record and play",
        commands=("learner check", "learner admit", "learner remove"),
    ),
}


@cache
def entry_points() -> tuple[EntryPoint, ...]:
    """Read the entry points of the distributions of dpserve that are installed, in the order of their names.

    Of two of one name the one that stands first on the path counts, as for its modules.
    """
    folders: dict[str, Path] = {}
    for folder in sys.path:
        for info in Path(folder).glob("dpserve*.dist-info"):
            folders.setdefault(info.name.partition("-")[0], info)
    distributions = (metadata.Distribution.at(folders[name]) for name in sorted(folders))
    return tuple(point for each in distributions for point in each.entry_points if point.group.startswith("dpserve."))


@cache
def load(group: str) -> tuple[Any, ...]:
    """Load what each extension brings to a group, such as `doors`. InputError where one needs what is not installed."""
    brought = (point for point in entry_points() if point.group == f"dpserve.{group}")
    return tuple(
        getattr(module, point.attr) if point.attr else module
        for point in brought
        for module in [lazy_import.load(point.module)]
    )


def brought(group: str, name: str) -> Any:
    """Return what an extension brings to a group that is its own. InputError where it is not installed."""
    for each in load(group):
        return each
    raise absence(name)


def absence(name: str) -> InputError:
    """Return what to do where an extension is needed that is not installed."""
    return InputError(
        f"dpserve-{name}: not installed here; it does {EXTENSIONS[name].says}; pip install ./dpserve_{name}-*.whl"
    )


def check_command(name: str) -> None:
    """Raise InputError where a command that is not there is one of an extension that is not installed."""
    for extension, brings in EXTENSIONS.items():
        if name in brings.commands:
            raise absence(extension)


def is_installed(name: str) -> bool:
    """Return whether the extension of this name brings anything here."""
    return any(point.name == name for point in entry_points())
