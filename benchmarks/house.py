"""The shape of the house in figures: `python benchmarks/house.py [FOLDER]`, for any checkout. Standard library alone.

Folders and files, lines, functions, imports inside functions, re-exports (`from a import b as b`), circles between
files and between folders that lie beside each other, private helpers that are called once, public names without a
docstring.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("accountant", "models", "training", "local", "serving", "dpserve")
SMALL = 5  # four lines under a signature of one
Tree = dict[str, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCK = ast.stmt | ast.excepthandler | ast.match_case  # what may hold an import


def sources(root: Path) -> Tree:
    """Path from `root` -> what is in it, for every file of the rooms."""
    paths = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def lines_outside_tests(root: Path) -> int:
    """Lines of Python in rooms, benchmarks, examples and documentation."""
    places = (*ROOMS, "benchmarks", "examples", "docs")
    paths = [path for place in places for path in (root / place).rglob("*.py") if not path.parent.name.startswith(".")]
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def inner_imports(tree: ast.Module) -> int:
    """Imports inside functions."""
    return len({id(i) for f in functions(tree) for i in ast.walk(f) if isinstance(i, ast.Import | ast.ImportFrom)})


def reexports(tree: ast.Module) -> int:
    """`from a import b as b`: a name that only passes through."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sum(alias.asname == alias.name for node in found for alias in node.names)


def helpers_called_once(tree: ast.Module) -> list[Function]:
    """Private functions of at most four lines under their signature that one place of their own file names."""
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    named.update(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    private = [node for node in functions(tree) if node.name.startswith("_") and not node.name.startswith("__")]
    return [node for node in private if length(node) <= SMALL and named[node.name] == 1]


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and methods without a docstring. What a base class documents counts as its own
    (a method whose class has a base and that overrides), as do constructors and setters."""
    for node in tree.body:
        if isinstance(node, (*Function.__args__, ast.ClassDef)) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None:
                yield node.name
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if (
                        isinstance(inner, Function)
                        and not inner.name.startswith("_")
                        and ast.get_docstring(inner) is None
                    ):
                        marks = {ast.unparse(mark) for mark in inner.decorator_list}
                        if not any("override" in mark or mark.endswith(".setter") for mark in marks):
                            yield f"{node.name}.{inner.name}"


def public(tree: ast.Module) -> int:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    inside = [node for body in (tree, *classes) for node in body.body]
    return sum(
        isinstance(node, (*Function.__args__, ast.ClassDef)) and not node.name.startswith("_") for node in inside
    )


def arrows(trees: Tree) -> dict[str, set[str]]:
    """File -> files that it imports, also inside functions; imports for types alone are left out."""
    files = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in imports(tree):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            for name in names:
                target = files.get(name) or files.get(name.rpartition(".")[0])
                if target and target != path:
                    found[path].add(target)
    return found


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, BLOCK) and not (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            yield from imports(child)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected files of more than one (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            ring = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(ring) > 1:
                found.append(sorted(ring))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def beside(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Folder -> folders whose files it imports. Not those that it lies in or that lie in it: a folder is no floor, its
    own files may stand below and above what they are made of.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for path, others in graph.items():
        for other in others:
            one, two = Path(path).parent, Path(other).parent
            if not (one.is_relative_to(two) or two.is_relative_to(one)):
                found[one.as_posix()].add(two.as_posix())
    return found


def figures(root: Path) -> dict[str, object]:
    trees = sources(root)
    folders = Counter(Path(path).parent.as_posix() for path in trees)
    largest, count = folders.most_common(1)[0]
    every = [node for tree in trees.values() for node in functions(tree)]
    lengths = sorted(map(length, every))
    bare = [f"{path}:{name}" for path, tree in trees.items() for name in undocumented(tree)]
    lines = sum(len((root / path).read_text("utf-8").splitlines()) for path in trees)
    names = sum(public(tree) for tree in trees.values())
    graph = arrows(trees)
    return {
        "largest folder": f"{count} files ({largest})",
        "files": len(trees),
        "lines in the rooms": lines,
        "lines outside tests": lines_outside_tests(root),
        "longest file": max(len((root / path).read_text("utf-8").splitlines()) for path in trees),
        "functions": f"{len(every)}, median {lengths[len(lengths) // 2]}, longest {lengths[-1]} lines",
        "circles between files": circles(graph) or 0,
        "circles between folders": circles(beside(graph)) or 0,
        "re-exports": sum(map(reexports, trees.values())),
        "imports inside functions": sum(map(inner_imports, trees.values())),
        "small private helpers called once": sum(len(helpers_called_once(tree)) for tree in trees.values()),
        "public names with a docstring": f"{1 - len(bare) / names:.1%} of {names}",
    }


LISTS = {
    "--bare": undocumented,
    "--once": lambda tree: (f"{node.lineno} {node.name}" for node in helpers_called_once(tree)),
}

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word not in LISTS]
    place = Path(words[0]) if words else Path(__file__).resolve().parents[1]
    for asked in LISTS.keys() & set(sys.argv):
        for path, tree in sources(place).items():
            for line in LISTS[asked](tree):
                print(f"{path}:{line}")
    if not LISTS.keys() & set(sys.argv):
        for name, value in figures(place).items():
            print(f"{name:36} {value}")
