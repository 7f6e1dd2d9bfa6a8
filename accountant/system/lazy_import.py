"""Modules that are loaded when something of them is first looked up: most commands ask for little of what a module
that they load might do, and what draws, signs, reads files or writes graphs loads slowly."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever looks a module over loads nothing
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


def later(name: str) -> Any:
    """Return the module of that dotted name, loaded when something of it is looked up."""
    return _Later(name)
