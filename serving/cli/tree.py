"""A tree of commands that names its modules, and loads one when a command of it is entered.

So each module of commands imports plainly what it needs, and `dpserve --help` or `dpserve token list` waits for nothing
that trains or serves.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from accountant.system import extensions
from serving.cli.backends.choice import Needs, check_needs
from serving.cli.terminal import show_busy
from serving.process.workers.loading import loading

Command = TyperCommand | TyperGroup
Options = TypeVar("Options")


@dataclass(frozen=True)
class Leaf:
    """One command: `place` is MODULE:FUNCTION of `package`. `needs`: a home, or a server as well; `instead`: what to do
    where there is a server, and only a home will do."""

    place: str
    needs: Needs = Needs.HOME
    instead: str = ""
    package: str = "serving.cli"

    def function(self) -> Callable[..., None]:
        """Load the command's module, and return its function."""
        module, _, name = self.place.partition(":")
        with show_busy("loading"), loading():
            function: Callable[..., None] = getattr(import_module(f"{self.package}.{module}"), name)
        return function

    @property
    def summary(self) -> str:
        """Read how the function's docstring begins, in its file: a list loads no module."""
        module, _, name = self.place.partition(":")
        folder = Path(import_module(self.package).__path__[0])
        text = folder.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
        return cleandoc(text.partition(f"\ndef {name}(")[2].split('"""', 2)[1]).partition("\n\n")[0]


@dataclass(frozen=True)
class Branch:
    """A group of commands, in the order in which a list shows them."""

    summary: str
    leaves: Mapping[str, Leaf]


Nodes = Mapping[str, Leaf | Branch]
Node = TypeVar("Node", bound=Leaf | Branch)


class WithExtensions(Mapping[str, Node]):
    """The nodes of the core, and `before` one of them, or behind all, those that extensions bring to a group, which are
    looked for when a name is none of the core's, or all are listed.
    """

    def __init__(self, core: Mapping[str, Node], group: str, before: str = "") -> None:
        self._core, self._group, self._before = core, group, before

    def __getitem__(self, name: str) -> Node:
        return self._core[name] if name in self._core else self._brought()[name]

    def __iter__(self) -> Iterator[str]:
        names = list(self._core)
        at = names.index(self._before) if self._before else len(names)
        yield from (*names[:at], *self._brought(), *names[at:])

    def __len__(self) -> int:
        return len(self._core) + len(self._brought())

    def _brought(self) -> Mapping[str, Node]:
        return dict(ChainMap(*extensions.load(self._group)))


class LazyGroup(TyperGroup):
    """A group whose commands are made when they are looked up in `commands`; listing their names makes none."""

    def __init__(self, nodes: Nodes, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": None})
        self._nodes = nodes
        self.commands = _Commands(nodes)  # type: ignore[assignment]  # it is only ever read

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names, in order."""
        return list(self._nodes)

    def panels(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        """Return the commands' names under the titles that a list has."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the first sentence of its summary."""
        width = max(map(len, self._nodes))
        for title, names in self.panels(ctx).items():
            texts = [self._nodes[name].summary.replace("\n", " ").partition(". ")[0] for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", text.rstrip(".")) for name, text in zip(names, texts, strict=True)]
                )

    def get_command(self, ctx: Any, cmd_name: str) -> Command | None:
        """Return, for a list, a command with its name and summary alone. InputError where an extension that is not
        installed brings it.
        """
        node = self._nodes.get(cmd_name)
        if node is None:
            extensions.check_command(f"{_group_of(ctx)} {cmd_name}".strip())
            return None
        return TyperCommand(cmd_name, help=node.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the real command, to be run."""
        name, command, rest = super().resolve_command(ctx, args)
        node = self._nodes.get(str(name))
        if isinstance(node, Leaf) and "--help" not in rest:
            check_needs(f"{_group_of(ctx)} {name}".strip(), node.needs, node.instead)
        return name, command and self.commands[str(name)], rest


def _group_of(ctx: Any) -> str:
    """Return the name of the group that a context is of, without that of the program."""
    return str(ctx.command_path).partition(" ")[2]


class _Commands(Mapping[str, Command]):
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def __getitem__(self, name: str) -> Command:
        node = self._nodes[name]
        if isinstance(node, Branch):
            return LazyGroup(node.leaves, name=name, help=node.summary, no_args_is_help=True, rich_markup_mode=None)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        single.command(name)(node.function())
        return get_command(single)  # type: ignore[return-value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def from_fields(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of many options, which are the fields of a dataclass; the function gets them as one value."""

    def as_command(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(kind(**given))

        command.__doc__, command.__annotations__ = function.__doc__, {}
        command.__signature__ = signature(kind, eval_str=True)  # type: ignore[attr-defined]  # Typer reads it
        return command

    return as_command
