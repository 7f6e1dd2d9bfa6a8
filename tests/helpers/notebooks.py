"""Notebooks of examples/, cell by cell, without a kernel: what each shows is what a notebook would show of it."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def cells(name: str) -> list[dict[str, Any]]:
    """The code cells."""
    body = json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in body["cells"] if cell["cell_type"] == "code"]


def play(name: str) -> list[Any]:
    """Run every cell in one session; the value of the expression that each ends with, None where it ends with none."""
    session: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells(name):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), session)
        value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), session)
        shown.append(value)
    return shown
