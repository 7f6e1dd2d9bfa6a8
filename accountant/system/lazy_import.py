"""Modules that are loaded when something of them is first looked up: most commands ask for little of what a module
that they load might do, and what draws, signs, reads files or writes graphs loads slowly. Some comes with an extra
alone, and who asks for it where that is not installed is told what brings it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dpserve_verify.errors import InputError

# Module: the package that has it, and the extra that asks for the package.
EXTRAS = {
    "authlib": ("authlib", "sso"),
    "bentoml": ("bentoml", "bento"),
    "grpc": ("grpcio", "grpc"),
    "httpx": ("httpx", "client"),
    "joserfc": ("authlib", "sso"),
    "mcp": ("mcp", "agents"),
    "mcp_types": ("mcp", "agents"),
    "numba": ("numba", "train"),
    "llvmlite": ("numba", "train"),
    "pyarrow": ("pyarrow", "train"),
    "psutil": ("psutil", "train"),
    "sklearn": ("scikit-learn", "notebook"),
    "skl2onnx": ("skl2onnx", "sklearn"),
    "starlette": ("starlette", "serve"),
    "uvicorn": ("uvicorn", "serve"),
    "vl_convert": ("vl-convert-python", "pictures"),
}


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever looks a module over loads nothing
            raise AttributeError(name)
        return getattr(load(self.__name__), name)


def load(name: str) -> Any:
    """Return the module of that dotted name; InputError where it needs an extra that is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise without_extra(error) or error from None


def require(name: str) -> None:
    """Raise InputError where a module of an extra is not installed; loads nothing."""
    if find_spec(name) is None:
        raise without_extra(ModuleNotFoundError(name=name)) or InputError(f"{name}: not installed here")


def without_extra(error: ModuleNotFoundError) -> InputError | None:
    """Return what to do about a module that is not there; None where no extra brings it."""
    name = str(error.name).partition(".")[0]
    if name not in EXTRAS:
        return None
    package, extra = EXTRAS[name]
    return InputError(
        f"{package}: not installed here; pip install {package} (the extra {extra!r} of dpserve brings it)"
    )


def later(name: str) -> Any:
    """Return the module of that dotted name, loaded when something of it is looked up."""
    return _Later(name)
